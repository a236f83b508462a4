"""The shared repository of a soak, and a real server of it behind a proxy that does harm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self, get_args

from support.faults import FaultProxy
from support.http_server import HttpRepo, HttpServer
from support.ssh_server import SshServer

Transport = Literal["path", "http", "ssh"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
IDENTITY: Mapping[Transport, str] = {"path": "GL_USER", "http": "REMOTE_USER", "ssh": "GL_USER"}


class Gateway:
    """One bare repository, served over one transport; clients reach it through the proxy."""

    def __init__(
        self, transport: Transport, bare: Path, folder: Path, users: Mapping[str, str]
    ) -> None:
        """Start serving; ``users`` is names and their passwords (http)."""
        self.transport, self.bare, self._folder, self._users = transport, bare, folder, users
        self.proxy: FaultProxy | None = None
        self.repo: HttpRepo | None = None
        self._http: HttpServer | None = None
        self._ssh: SshServer | None = None
        folder.mkdir(parents=True, exist_ok=True)
        if transport != "path":
            self.proxy = FaultProxy(self._start())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.proxy is not None:
            self.proxy.close()
        self._stop()

    def url(self, user: str) -> str:
        """Where a user's clone pushes to."""
        if self.proxy is None:
            return str(self.bare)
        at = f"127.0.0.1:{self.proxy.port}"
        if self._ssh is not None:
            return f"ssh://{self._ssh.user}@{at}{self.bare}"
        return f"http://{user}:{self._users[user]}@{at}/r1/{self.bare.name}"

    def env(self, user: str) -> dict[str, str]:
        """What git needs in a user's environment."""
        if self._ssh is not None:
            return {"GIT_SSH_COMMAND": self._ssh.command_as(user)}
        return {"GL_USER": user} if self.transport == "path" else {}

    def restart(self) -> None:
        """Kill the server with all that it does, and start it again."""
        assert self.proxy is not None, "a path has no server"
        if self._ssh is not None:
            self._ssh.restart()
            self.proxy.target = self._ssh.port
        else:
            self._stop()
            self.proxy.target = self._start()

    def _start(self) -> int:
        if self.transport == "http":
            self._http = HttpServer(self._folder / "backend.log")
            self.repo = self._http.publish(self.bare, self._users)
            return self._http.port
        self._ssh = SshServer(self._folder)
        return self._ssh.port

    def _stop(self) -> None:
        if self._http is not None:
            self._http.close()
        if self._ssh is not None:
            self._ssh.close()
