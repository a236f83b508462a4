"""The gateway's application and its server: one process, one port, any number of repositories."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Any

import anyio
import h11
import uvicorn
from h11 import Connection as H11Connection
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from uvicorn.protocols.http.h11_impl import H11Protocol

from gitlease.gateway import events, lfs, openintent, spor
from gitlease.gateway.board import BoardPages
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.opening import open_gateway, open_tokens
from gitlease.gateway.request_handler import (
    RATE,
    Access,
    Refused,
    RequestHandler,
    failed,
    is_loopback,
)
from gitlease.gateway.routes import ROUTES, openapi_document
from gitlease.gateway.tokens import Tokens
from gitlease.kernel.rules.errors import GitleaseError, Invalid, Rollback

if TYPE_CHECKING:
    from gitlease.gateway.mcp import ToolsEndpoint


Endpoint = Callable[[Request], Awaitable[Response]]


class GatewayApp:
    """The application of one repository's gateway."""

    def __init__(
        self, gateway: Gateway, follower: Follower, access: Access, tokens: Tokens
    ) -> None:
        self.gateway, self.follower = gateway, follower
        self.handler = RequestHandler(gateway, access)
        self._access, self._closing = access, asyncio.Event()
        self._board = BoardPages(gateway, follower, access, tokens.redeem, self._closing)
        self._streams = events.OpenStreams()
        self._tools = _tools(self.handler, follower, self._streams)

    def routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route(
                # A path is a resource, with slashes of its own.
                x.path.replace("{key}", "{key:path}"),
                x.endpoint(self.handler),
                methods=[x.method],
            )
            for x in ROUTES
        ]
        stream = events.stream(self.follower, self._access, self._streams, self._closing)
        return [
            *routes,
            *spor.routes(self.handler),
            *openintent.routes(self.handler, stream),
            *lfs.routes(self.handler),
            *self._board.routes(),
            Route("/v1/events", stream),
            Route("/metrics", self.public(self._metrics)),
            Route("/mcp", self._tools or self.public(_no_tools), methods=["POST", "GET", "DELETE"]),
            *about([self]),
        ]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """The context in which requests are answered, and locks are renewed."""
        keeping = asyncio.create_task(lfs.keep(self.gateway))
        try:
            async with self._tools.serving() if self._tools else contextlib.nullcontext():
                yield
        finally:
            keeping.cancel()

    def end_streams(self) -> None:
        """End event streams; requests under way are still answered."""
        self._closing.set()
        self.handler.closing.set()
        self.follower.close()

    def public(self, answer: Endpoint) -> Endpoint:
        """An endpoint that needs no token, only the right host."""

        async def checked(request: Request) -> Response:
            self._access.check_address(request.headers)
            return await answer(request)

        return checked

    async def trouble(self) -> str:
        """The reason why it cannot answer requests now; empty if it can."""
        try:
            await anyio.to_thread.run_sync(self.gateway.check_ready)
        except Rollback:
            return "the remote has an older or another ledger than this gateway knows"
        except GitleaseError:
            return "the remote cannot be reached"
        except OSError as error:
            return f"this gateway cannot write to its clone: {error.strerror or 'unknown'}"
        return ""

    async def _metrics(self, _request: Request) -> Response:
        gateway, counts = self.gateway, sorted(self.handler.counts.items())
        lines = [
            "# HELP gitlease_requests_total Requests by verb and status.",
            "# TYPE gitlease_requests_total counter",
            *(
                f'gitlease_requests_total{{verb="{verb}",status="{status}"}} {number}'
                for (verb, status), number in counts
            ),
            "# HELP gitlease_steps_total Steps pushed to the remote.",
            "# TYPE gitlease_steps_total counter",
            f"gitlease_steps_total {gateway.joiner.steps}",
        ]
        if (head := gateway.store.newest(gateway.layer)) is not None:
            age = head.received.elapsed_at_most(gateway.clock.now()) / 1_000
            lines += [
                "# HELP gitlease_known_age_seconds Seconds since the remote last answered.",
                "# TYPE gitlease_known_age_seconds gauge",
                f"gitlease_known_age_seconds {age:.3f}",
            ]
        text = "\n".join(lines) + "\n"
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _tools(
    handler: RequestHandler, follower: Follower, streams: events.OpenStreams
) -> ToolsEndpoint | None:
    if find_spec("mcp") is None:
        return None
    from gitlease.gateway.mcp import ToolsEndpoint

    return ToolsEndpoint(handler, follower, streams)


async def _no_tools(_request: Request) -> Response:
    message = "this gateway has no tools for agents: the package mcp is not installed"
    hint = "on the gateway's machine, this says how to add it: gitlease mcp status claude"
    raise Refused(501, "not_found", message, hint)


def about(apps: Sequence[GatewayApp], below: Sequence[str] = ("",)) -> list[BaseRoute]:
    """The public routes that describe gateways; ``below`` are their paths."""

    async def openapi_json(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return JSONResponse(openapi_document([root + path for path in below]))

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        texts = [text for app in apps if (text := await app.trouble())]
        return PlainTextResponse(f"{texts[0]}\n" if texts else "ok\n", 503 if texts else 200)

    public = {"/openapi.json": openapi_json, "/healthz": healthz, "/readyz": readyz}
    return [Route(path, apps[0].public(answer)) for path, answer in public.items()]


def application(apps: Mapping[str, GatewayApp]) -> Starlette:
    """The application of several gateways by name; the one named ``""`` is at the root."""
    routes: list[BaseRoute] = [
        Mount(f"/repos/{name}", app=Router(app.routes(), redirect_slashes=False))
        for name, app in apps.items()
        if name
    ]
    if "" in apps:
        routes += apps[""].routes()
    else:
        routes += about(list(apps.values()), [f"/repos/{name}" for name in apps])

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        for app in apps.values():
            # Before the first request: what an earlier process left decides what a repeated one is
            # told.
            await anyio.to_thread.run_sync(app.gateway.settle)
        async with contextlib.AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.serving())
            yield
            for app in apps.values():
                app.end_streams()
        for app in apps.values():
            await anyio.to_thread.run_sync(app.gateway.close)

    made = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _no_route,
            Refused: _refused,
            GitleaseError: _refused,
            Exception: _fault,
        },
    )
    # An open redirect: to any host named.
    made.router.redirect_slashes = False
    return made


def gateway_app(
    gateway: Gateway, tokens: Tokens, *, hosts: Callable[[str], bool], rate: float = RATE
) -> GatewayApp:
    """The application of one gateway, for callers with tokens and requests to these hosts.

    ``rate`` is the number of requests a second that a token may send.
    """
    follower = Follower(gateway.store, gateway.layer)
    return GatewayApp(gateway, follower, Access(tokens.holder_of, hosts=hosts, rate=rate), tokens)


async def _no_route(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "usage")
    message = "there is nothing at this address" if status == 404 else str(error)
    headers = getattr(error, "headers", None)
    return failed(Refused(status, code, message, "the endpoints: /openapi.json", headers=headers))


async def _refused(_request: Request, error: Exception) -> Response:
    return failed(error)  # type: ignore[arg-type]


async def _fault(_request: Request, _error: Exception) -> Response:
    return failed(Refused(500, "internal", "a bug in gitlease: see the gateway's log"))


DRAIN = 30  # seconds to answer pending requests at the end
HEAD_SECONDS = 10.0  # for the head of a request to arrive
MOST_OF_HEAD = 32 * 1024  # bytes
MOST_CONNECTIONS = 800  # each is a file, of which a process usually may have 1,024
MOST_IDLE_OF_PEER = 200  # connections of one address without a request; the oldest is closed


def hosts_of(host: str, names: Sequence[str] = ()) -> Callable[[str], bool]:
    """Return a test of whether requests to a gateway at ``host`` may be addressed to a name."""
    known = {"localhost", "127.0.0.1", "::1", host.lower(), *(x.lower() for x in names)}
    if is_loopback(host):
        return known.__contains__
    known.add(socket.gethostname().lower())

    def is_known(name: str) -> bool:
        # DNS rebinding needs a name, so beyond loopback every IP address is accepted.
        with contextlib.suppress(ValueError):
            return name in known or bool(ip_address(name))
        return False

    return is_known


def server_of(made: Starlette, host: str, port: int) -> uvicorn.Server:
    """The server of an application, with its limits."""
    config = uvicorn.Config(
        made,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_OF_HEAD,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host. Raises Invalid if they cannot."""
    sockets, why = list[socket.socket](), ""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        places, why = [], getattr(error, "strerror", None) or "unknown host"
    for family, at in dict.fromkeys((family, str(at[0])) for family, _, _, _, at in places):
        try:
            opened = socket.create_server((at, port), family=family)
            sockets.append(opened)
            # Accepted connections inherit it; asyncio sets it for its own sockets only. Without it
            # the second part of each answer would wait 40 ms for the acknowledgement of the first.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            # IPv6 may be off; but a port in use belongs to another server.
            why = os.strerror(error.errno) if error.errno else str(error)
            if error.errno == errno.EADDRINUSE:
                break
    else:
        if sockets:
            return sockets
    for opened in sockets:
        opened.close()
    raise Invalid(
        f"cannot listen at {host}, port {port}: {why}",
        hints=("choose another address: gitlease serve --host HOST --port PORT",),
    )


class StrictConnection(H11Connection):
    """HTTP/1.1 without the forms that a proxy in front may read as other requests than h11 does.

    Those are two lengths of one body (``Content-Length`` beside ``Transfer-Encoding``), a
    ``Transfer-Encoding`` of HTTP/1.0, and lines that end in a bare line feed.
    """

    _last = b""  # the last byte before those that wait to be read

    def next_event(self) -> Any:
        waiting = self.trailing_data[0]
        # Judged before the head is complete: an empty line in bare line feeds would end it.
        if self.their_state is h11.IDLE and _has_bare_feed(waiting.partition(b"\r\n\r\n")[0]):
            raise h11.RemoteProtocolError("a line of the head ends in a bare line feed")
        event = super().next_event()
        read = waiting[: len(waiting) - len(self.trailing_data[0])]
        # What ends a body in chunks may have lines, too.
        if isinstance(event, h11.EndOfMessage) and _has_bare_feed(read, after=self._last):
            raise h11.RemoteProtocolError("a line of the trailers ends in a bare line feed")
        self._last = read[-1:] or self._last
        if isinstance(event, h11.Request):
            lengths = {name for name, _ in event.headers} & {*BODY_LENGTHS}
            old = event.http_version < b"1.1" and BODY_LENGTHS[1] in lengths
            if len(lengths) > 1 or old:
                raise h11.RemoteProtocolError("the body has no certain length")
            return _without_upgrade(event)
        return event


def _without_upgrade(request: h11.Request) -> h11.Request:
    """Leave out an offer to speak another protocol, for which uvicorn would log a warning."""
    # `curl --http2` makes one with each request, and is answered without it.
    kept = [x for x in request.headers if x[0] != b"upgrade"]
    if len(kept) == len(request.headers):
        return request
    return h11.Request(
        method=request.method,
        target=request.target,
        headers=kept,
        http_version=request.http_version,
    )


BODY_LENGTHS = (b"content-length", b"transfer-encoding")


def _has_bare_feed(data: bytes, *, after: bytes = b"") -> bool:
    """Return whether a line in the data, which come ``after`` this byte, ends without a return."""
    return data.count(b"\n") > (after + data).count(b"\r\n")


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection if the head of a request does not arrive in time."""

    _late: asyncio.TimerHandle | None = None
    _heard = 0.0  # when data came, by the loop's clock

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.conn = StrictConnection(h11.SERVER, MOST_OF_HEAD)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()
        self._heard, peer = self.loop.time(), self._peer()
        alike = [x for x in self.connections if isinstance(x, PatientProtocol)]
        # One that is being closed is still among the connections for a turn of the loop.
        idle = [
            x
            for x in alike
            if x._peer() == peer and x._has_no_request() and not x.transport.is_closing()
        ]
        if len(idle) > MOST_IDLE_OF_PEER:
            # One address cannot take all files of the process, and a client that reconnects is
            # served.
            min(idle, key=lambda x: x._heard).transport.close()

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
        # Open streams would delay the end.
        for app in apps.values():
            app.end_streams()
        end(number, frame)

    server.handle_exit = end_in_order  # type: ignore[method-assign,assignment]
    # Uvicorn raises them again once it has drained.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.run(sockets)
    return 0 if server.started else 1
