"""The gateway's application: its endpoints, and what they share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from gitlease.core.errors import GitleaseError
from gitlease.faces.http import (
    events,
    fields,
    leases,
    metrics,
    openapi,
    openintent,
    openintent_events,
    spor,
)
from gitlease.faces.http.access import Access, AllowedHosts, Refused
from gitlease.faces.http.board import BoardPages
from gitlease.faces.http.fields import RequestField
from gitlease.faces.http.request_handler import Door, Verb, problem
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.tokens import Tokens

if TYPE_CHECKING:
    from gitlease.faces.mcp.http import ToolsEndpoint

Plain = Callable[[Request], Awaitable[Response]]
Endpoint = tuple[openapi.ApiOperation, Verb, str]


def _operation(
    method: str,
    path: str,
    verb: Verb,
    about: Mapping[str, RequestField],
    name: str,
    *,
    success: tuple[int, ...] = (200,),
    conditional: bool = False,
    writes: bool = False,
) -> Endpoint:
    text = (verb.__doc__ or "").partition("\n")[0].rstrip(".")
    shown = openapi.ApiOperation(
        method, path, name, text, about, success=success, conditional=conditional, writes=writes
    )
    return shown, verb, "write" if writes else "read"


KEY = "/v1/leases/{key}"
ENDPOINTS: tuple[Endpoint, ...] = (
    _operation(
        "PUT", KEY, leases.put_lease, fields.CLAIM, "claim", success=(200, 201), writes=True
    ),
    _operation(
        "PATCH", KEY, leases.patch_lease, fields.PATCH, "renew", conditional=True, writes=True
    ),
    _operation(
        "DELETE", KEY, leases.delete_lease, fields.END, "release", conditional=True, writes=True
    ),
    _operation("GET", KEY, leases.get_lease, {}, "show"),
    _operation("GET", "/v1/leases", leases.list_leases, fields.LIST, "list"),
    _operation(
        "POST",
        "/v1/leases:claim",
        leases.claim_several,
        fields.CLAIM_SEVERAL,
        "claim_several",
        success=(200, 201),
        writes=True,
    ),
    _operation(
        "POST",
        "/v1/leases:renew",
        leases.renew_several,
        fields.RENEW_SEVERAL,
        "renew_several",
        writes=True,
    ),
    _operation("POST", "/v1/check", leases.check_paths, fields.CHECK, "check"),
    _operation("GET", "/v1/tasks", leases.list_tasks, {}, "tasks"),
    _operation(
        "POST",
        "/v1/tasks:next",
        leases.next_task,
        fields.NEXT,
        "next",
        success=(200, 201),
        writes=True,
    ),
    _operation("GET", "/v1/history/{key}", leases.history, fields.HISTORY, "history"),
)


class GatewayApp:
    """The application of one repository's gateway: its routes, and its beginning and end."""

    def __init__(
        self, gateway: Gateway, follower: Follower, access: Access, tokens: Tokens
    ) -> None:
        self.gateway, self.follower = gateway, follower
        self.door = Door(gateway, access)
        self._access, self._closing = access, asyncio.Event()
        self._board = BoardPages(gateway, follower, access, tokens.redeem, self._closing)
        self._streams = events.OpenStreams()
        self._tools = _tools(self.door, follower, self._streams)

    def routes(self) -> list[BaseRoute]:
        found: list[BaseRoute] = [
            Route(
                shown.path.replace("{key}", "{key:path}"),
                self.door.endpoint(shown.name, verb, shown.fields, scope=scope),
                methods=[shown.method],
            )
            for shown, verb, scope in ENDPOINTS
        ]
        stream: Callable[..., object] = events.stream(
            self.follower, self._access, self._streams, self._closing
        )
        return [
            *found,
            *spor.routes(self.door),
            *openintent.routes(self.door),
            *openintent_events.routes(stream),
            *self._board.routes(),
            Route("/v1/events", stream),
            Route("/metrics", self.plain(self._metrics)),
            Route("/mcp", self._tools or self.plain(_no_tools), methods=["POST"]),
            *about([self]),
        ]

    def serving(self) -> contextlib.AbstractAsyncContextManager[None]:
        """What must run while requests are answered."""
        return self._tools.serving() if self._tools else contextlib.nullcontext()

    def end_streams(self) -> None:
        """End what listens; what was asked is answered yet."""
        self._closing.set()
        self.door.closing.set()
        self.follower.close()

    def plain(self, answer: Plain) -> Plain:
        """An answer that needs no token, to whoever asks for the right host."""

        async def checked(request: Request) -> Response:
            try:
                self._access.check_address(request.headers)
            except Refused as refused:
                return problem(refused.status, refused.document, refused.headers)
            return await answer(request)

        return checked

    async def is_ready(self) -> bool:
        """Whether the remote answers."""
        try:
            store, layer = self.gateway.store, self.gateway.layer
            await anyio.to_thread.run_sync(lambda: store.fetch(layer))
        except GitleaseError:
            return False
        return True

    async def _metrics(self, _request: Request) -> Response:
        text = metrics.text(self.door.counted, self.gateway)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _tools(door: Door, follower: Follower, streams: events.OpenStreams) -> ToolsEndpoint | None:
    """The tools for agents, where what they need is installed."""
    if find_spec("mcp") is None:
        return None
    from gitlease.faces.mcp.http import ToolsEndpoint

    return ToolsEndpoint(door, follower, streams)


async def _no_tools(_request: Request) -> Response:
    said = "this gateway has no tools for agents: the package mcp is not installed there"
    hints = ["pip install 'gitlease[mcp]', where the gateway runs"]
    return problem(501, {"code": "not_found", "message": said, "hints": hints}, {})


def about(apps: Sequence[GatewayApp], below: Sequence[str] = ("",)) -> list[BaseRoute]:
    """What is told of gateways without a token; ``below`` are their paths."""

    async def document(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        shown = (shown for shown, _, _ in ENDPOINTS)
        return JSONResponse(openapi.document(shown, [root + path for path in below]))

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        if all([await app.is_ready() for app in apps]):
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the remote cannot be reached\n", status_code=503)

    told = {"/openapi.json": document, "/healthz": healthz, "/readyz": readyz}
    return [Route(path, apps[0].plain(answer)) for path, answer in told.items()]


def application(apps: Mapping[str, GatewayApp]) -> Starlette:
    """The application of several gateways: that called ``""`` at the root, others by name."""
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
        exception_handlers={HTTPException: _no_route, Exception: _fault},
    )
    made.router.redirect_slashes = False  # it would send callers to whatever host they named
    return made


def gateway_app(gateway: Gateway, tokens: Tokens, *, hosts: AllowedHosts) -> GatewayApp:
    """The application of one gateway, for callers with tokens and requests to these hosts."""
    follower = Follower(gateway.store, gateway.layer)
    gateway.on_head = follower.heard
    return GatewayApp(gateway, follower, Access(tokens.holder_of, hosts=hosts), tokens)


async def _no_route(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "usage")
    said = "there is nothing at this address" if status == 404 else str(error)
    hints = ["the endpoints: /openapi.json"]
    headers = getattr(error, "headers", None) or {}
    return problem(status, {"code": code, "message": said, "hints": hints}, headers)


async def _fault(_request: Request, _error: Exception) -> Response:
    said = "a fault of gitlease itself: its log has more"
    return problem(500, {"code": "internal", "message": said, "hints": []}, {})
