"""The shared repository of a soak and the way to it: real servers behind proxies that do harm."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

from support.faults import FaultProxy
from support.fences import clean_env
from support.http_server import HttpRepo, HttpServer
from support.ssh_server import SshServer

Transport = Literal["path", "http", "ssh", "git"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
IDENTITY: Mapping[Transport, str | None] = {
    "path": "GL_USER",
    "http": "REMOTE_USER",
    "ssh": "GL_USER",
    "git": None,  # the protocol knows nobody
}

_START_SECONDS = 10.0
_REPLAY_SECONDS = 10.0
_LARGEST_RECORDING = 1 << 20


class Recorder:
    """A TCP proxy that keeps what clients sent, so that it can be sent once more."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._sent: deque[bytes] = deque(maxlen=8)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True, name="recorder")
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def replay(self, back: int, length: float) -> bool:
        """Send what a recent client sent to the server again, or the first part of it.

        ``back`` chooses among the last pushes, ``length`` is the share of the bytes. False when
        no push was seen so far.
        """
        pushes = [sent for sent in tuple(self._sent) if b"receive-pack" in sent[:200]]
        if not pushes:
            return False
        data = pushes[-1 - back % len(pushes)]
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.target)) as s,
        ):
            s.settimeout(_REPLAY_SECONDS)
            s.sendall(data[: max(1, int(len(data) * length))])
            s.shutdown(socket.SHUT_WR)
            until = time.monotonic() + _REPLAY_SECONDS
            while time.monotonic() < until and s.recv(65536):
                pass
        return True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        sent = bytearray()
        down = threading.Thread(target=_forward, args=(server, client, None), daemon=True)
        down.start()
        _forward(client, server, sent)
        down.join()
        self._sent.append(bytes(sent))
        client.close()
        server.close()


def _forward(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if kept is not None and len(kept) < _LARGEST_RECORDING:
                kept += data
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class GitDaemon:
    """`git daemon` on a loopback port, which takes pushes from anyone."""

    def __init__(self, bare: Path, log: Path) -> None:
        self._bare, self._log = bare, log
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers; it listens on the same port every time."""
        words = ["git", "daemon", "--export-all", "--reuseaddr", "--enable=receive-pack"]
        where = [f"--base-path={self._bare.parent}", f"--port={self.port}", "--listen=127.0.0.1"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*words, *where],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_env(),
                start_new_session=True,
            )
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        raise RuntimeError(f"git daemon does not answer, see {self._log}")

    def kill(self) -> None:
        """Kill it and everything that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class Gateway:
    """One bare repository, served over one transport; clients reach it through the proxies."""

    def __init__(self, transport: Transport, bare: Path, folder: Path) -> None:
        self.transport, self.bare, self._folder = transport, bare, folder
        self.proxy: FaultProxy | None = None
        self.recorder: Recorder | None = None
        self.repo: HttpRepo | None = None
        self._http: HttpServer | None = None
        self._ssh: SshServer | None = None
        self._daemon: GitDaemon | None = None
        self._users: dict[str, str] = {}

    def open(self, users: Mapping[str, str]) -> Self:
        """Start serving; ``users`` is names and their passwords (http)."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._users = dict(users)
        if self.transport == "path":
            return self
        self.recorder = Recorder(self._start())
        self.proxy = FaultProxy("127.0.0.1", self.recorder.port)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.proxy is not None:
            self.proxy.close()
        if self.recorder is not None:
            self.recorder.close()
        self._stop()

    def url(self, user: str) -> str:
        """Where a user's clone pushes to."""
        if self.proxy is None:
            return str(self.bare)
        at = f"127.0.0.1:{self.proxy.port}"
        if self._ssh is not None:
            return f"ssh://{self._ssh.user}@{at}{self.bare}"
        if self._daemon is not None:
            return f"git://{at}/{self.bare.name}"
        return f"http://{user}:{self._users[user]}@{at}/r1/{self.bare.name}"

    def env(self, user: str) -> dict[str, str]:
        """What git needs in a user's environment."""
        if self.transport == "path":
            return {"GL_USER": user}
        if self._ssh is not None:
            return {"GIT_SSH_COMMAND": self._ssh.command_as(user)}
        return {}

    def restart(self) -> None:
        """Kill the server with all that it does, and start it again."""
        if self.recorder is None:
            raise ValueError("a path has no server")
        if self._ssh is not None:
            self._ssh.restart()
            self.recorder.target = self._ssh.port
            return
        self._stop()
        self.recorder.target = self._start()

    def _start(self) -> int:
        if self.transport == "http":
            self._http = HttpServer(self._folder / "backend.log")
            self.repo = self._http.publish(self.bare, self._users)
            return self._http.port
        if self.transport == "ssh":
            self._ssh = SshServer(self._folder)
            return self._ssh.port
        if self._daemon is None:
            self._daemon = GitDaemon(self.bare, self._folder / "daemon.log")
        else:
            self._daemon.start()
        return self._daemon.port

    def _stop(self) -> None:
        if self._http is not None:
            self._http.close()
        if self._ssh is not None:
            self._ssh.close()
        if self._daemon is not None:
            self._daemon.kill()
