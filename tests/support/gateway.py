"""A gateway that really listens, in front of a clone of a real remote, and callers with tokens."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gitlease.faces.http.app import GatewayApp, application, gateway_app
from gitlease.faces.http.serving import hosts_of, server_of
from gitlease.gateway.tokens import SCOPES
from gitlease.wiring.gateway.gateway import open_gateway
from gitlease.wiring.gateway.tokens import open_tokens

LONG = 60.0  # seconds for whatever must come


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


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve a clone on a port of its own, until the block ends."""
    tokens = open_tokens(str(folder))
    made = gateway_app(open_gateway(str(folder)), tokens.holder_of, hosts=hosts_of("127.0.0.1"))
    port = free_port()
    server = server_of(application({"": made}), "127.0.0.1", port)
    server.config.timeout_graceful_shutdown = 5
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + LONG
    while not server.started:
        assert thread.is_alive(), "the gateway did not start"
        assert time.monotonic() < end
        time.sleep(0.01)
    served = Served(folder, f"http://127.0.0.1:{port}", made, server)
    try:
        yield served
    finally:
        for client in served.clients.values():
            client.close()
        server.should_exit = True
        thread.join(LONG)
