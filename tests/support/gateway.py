"""A gateway that really listens, in front of a clone of a real remote, and callers with tokens."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import uvicorn

from gitlease.gateway.app import GatewayApp, application, gateway_app, hosts_of, server_of
from gitlease.gateway.opening import open_gateway, open_tokens
from gitlease.gateway.tokens import SCOPES
from support.fences import clean_env
from support.remotes import Remote
from support.running import LONG, ROOT, until


@dataclass
class Served:
    """A gateway at work. ``clients`` are those of its callers, by their names."""

    folder: Path
    url: str
    app: GatewayApp
    server: uvicorn.Server
    secrets: dict[str, str] = field(default_factory=dict)
    clients: dict[str, httpx.Client] = field(default_factory=dict)

    def secret(self, name: str, *scopes: str) -> str:
        """The token of somebody, who is made known with the first call."""
        if name not in self.secrets:
            _, self.secrets[name] = open_tokens(str(self.folder)).add(
                f"{name}@example.com",
                name=name,
                scopes=frozenset(scopes or SCOPES),
                expires=None,
                now=time.time_ns() // 1_000_000,
            )
        return self.secrets[name]

    def caller(self, name: str) -> httpx.Client:
        """Somebody's client."""
        if name not in self.clients:
            self.clients[name] = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {self.secret(name)}"},
                timeout=LONG,
                trust_env=False,
                verify=False,  # there is no TLS here, for which certificates would be read
            )
        return self.clients[name]

    def ask(self, name: str, method: str, path: str, **options: Any) -> httpx.Response:
        """What somebody's request is answered with."""
        return self.caller(name).request(method, path, **options)

    def pushes(self) -> int:
        return self.app.gateway.joiner.steps


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _looking_often() -> AbstractContextManager[object]:
    """Have uvicorn look ten times as often whether it is to end: it is not what is tested."""
    often = SimpleNamespace(**vars(asyncio))
    often.sleep = lambda seconds: asyncio.sleep(seconds / 10)
    return mock.patch.object(uvicorn.server, "asyncio", often)


@contextlib.contextmanager
def serving(folder: Path, **others: Path) -> Iterator[Served]:
    """Serve a clone on a port of its own, and ``others`` by their names, until the block ends."""
    apps = {
        name: gateway_app(
            open_gateway(str(place)), open_tokens(str(place)), hosts=hosts_of("127.0.0.1")
        )
        for name, place in {"": folder, **others}.items()
    }
    port = free_port()
    server = server_of(application(apps), "127.0.0.1", port)
    server.config.timeout_graceful_shutdown = 5
    thread = threading.Thread(target=server.run, daemon=True)
    served = Served(folder, f"http://127.0.0.1:{port}", apps[""], server)
    with _looking_often():
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive(), "the gateway listens")
            assert thread.is_alive(), "the gateway did not start"
            yield served
        finally:
            for client in served.clients.values():
                client.close()
            server.should_exit = True
            thread.join(LONG)


class Gate:
    """A gateway as a process of its own, at one port for all its lives."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._env = clean_env({**remote.env, "PYTHONPATH": ROOT})
        self._process: subprocess.Popen[bytes] | None = None

    def token(self, name: str) -> str:
        return open_tokens(str(self.folder)).add(
            f"{name}@example.com", name=name, scopes=SCOPES, expires=None, now=1
        )[1]

    def start(self) -> None:
        words = [sys.executable, "-m", "gitlease", "serve", "--port", str(self.port)]
        self._process = subprocess.Popen(words, cwd=self.folder, env=self._env)
        until(self._answers, "the gateway listens")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            connection.request("GET", "/healthz")
            with connection.getresponse() as answer:
                return answer.status == 200
        return False

    def end(self, by: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(by)
        return self._process.wait(LONG)


@contextlib.contextmanager
def running(folder: Path, remote: Remote) -> Iterator[Gate]:
    """A gateway that runs, until the block ends."""
    gate = Gate(folder, remote)
    gate.start()
    try:
        yield gate
    finally:
        gate.end(signal.SIGKILL)
