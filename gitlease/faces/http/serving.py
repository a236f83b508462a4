"""Runs a gateway: one process, one port, any number of repositories."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from gitlease.core.errors import Invalid
from gitlease.faces.http.app import application, gateway_app
from gitlease.faces.http.request_handler import RATE, AllowedHosts, is_loopback
from gitlease.wiring.gateway import open_gateway, open_tokens

DRAIN = 30  # seconds to answer pending requests at the end
HEAD_SECONDS = 10.0  # for the head of a request to arrive
MOST_CONNECTIONS = 800  # each is a file, of which a process usually may have 1,024
MOST_IDLE_OF_PEER = 200  # connections of one address without a request; the oldest is closed


def hosts_of(host: str, names: Sequence[str] = ()) -> AllowedHosts:
    """The hosts that requests to a gateway listening at ``host`` may be addressed to.

    DNS rebinding needs a name, so beyond loopback every IP address is accepted.
    """
    own = {"localhost", "127.0.0.1", "::1", host.lower(), *(x.lower() for x in names)}
    if is_loopback(host):
        return AllowedHosts(frozenset(own))
    return AllowedHosts(frozenset({*own, socket.gethostname().lower()}), addresses=True)


def server_of(made: Starlette, host: str, port: int) -> uvicorn.Server:
    """The server of an application, with its limits."""
    config = uvicorn.Config(
        made,
        host=host,
        port=port,
        http=PatientProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=32 * 1024,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host. Raises Invalid if they cannot."""
    found, why = list[socket.socket](), ""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        places, why = [], getattr(error, "strerror", None) or "unknown host"
    for family, at in dict.fromkeys((family, str(at[0])) for family, _, _, _, at in places):
        try:
            one = socket.create_server((at, port), family=family)
            found.append(one)
            # Accepted connections inherit it; asyncio sets it for its own sockets only. Without it
            # the second part of each answer would wait 40 ms for the acknowledgement of the first.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # IPv6 may be off; but a port in use belongs to another server
            why = os.strerror(error.errno) if error.errno else str(error)
            if error.errno == errno.EADDRINUSE:
                break
    else:
        if found:
            return found
    for one in found:
        one.close()
    raise Invalid(
        f"cannot listen at {host}, port {port}: {why}",
        hints=("choose another address: gitlease serve --host HOST --port PORT",),
    )


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection if the head of a request does not arrive in time."""

    _late: asyncio.TimerHandle | None = None
    _heard = 0.0  # when data came, by the loop's clock

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()
        self._heard, peer = self.loop.time(), self._peer()
        alike = [x for x in self.connections if isinstance(x, PatientProtocol)]
        idle = [x for x in alike if x._peer() == peer and x._is_idle()]
        if len(idle) > MOST_IDLE_OF_PEER:
            min(idle, key=lambda x: x._heard).transport.close()

    def _is_idle(self) -> bool:
        # One that is being closed is still among the connections for a turn of the loop.
        return self._has_no_request() and not self.transport.is_closing()

    def _peer(self) -> object:
        at = self.transport.get_extra_info("peername")
        return at[0] if at else None

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)
        if self._has_no_request():
            self._expect_head()
        else:
            self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _has_no_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if self._has_no_request():
            self.transport.close()


def serve(
    repositories: Mapping[str, str],
    host: str,
    port: int,
    prog: str,
    *,
    names: Sequence[str] = (),
    rate: float = RATE,
) -> int:
    """Serve clones, given by name and folder, until a signal; ``""`` is at the root.

    ``names`` are further hosts that requests may be addressed to, ``rate`` the requests a second of
    a token. Raises what opening a clone may.
    """
    sockets, hosts = listen(host, port), hosts_of(host, names)
    apps = {
        name: gateway_app(open_gateway(folder), open_tokens(folder), hosts=hosts, rate=rate)
        for name, folder in repositories.items()
    }
    server = server_of(application(apps), host, port)
    shown = f"[{host}]" if ":" in host else host
    for name in repositories:
        path = f"/repos/{name}" if name else ""
        print(f"{prog}: serving http://{shown}:{port}{path}/v1", file=sys.stderr, flush=True)
    end = server.handle_exit

    def end_in_order(number: int, frame: FrameType | None) -> None:
        for app in apps.values():  # open streams would delay the end
            app.end_streams()
        end(number, frame)

    server.handle_exit = end_in_order  # type: ignore[method-assign,assignment]
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again once it has drained
        signal.signal(number, lambda *_: None)
    server.run(sockets)
    return 0 if server.started else 1
