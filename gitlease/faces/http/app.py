"""The gateway's application: its endpoints, their OpenAPI document, their start and their end."""

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

from gitlease.core.errors import GitleaseError, Rollback
from gitlease.faces.http import events, openintent, spor
from gitlease.faces.http.board import BoardPages
from gitlease.faces.http.request_handler import (
    RATE,
    Access,
    AllowedHosts,
    Refused,
    RequestHandler,
    failed,
)
from gitlease.faces.http.routes import ROUTES, openapi_document
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.tokens import Tokens

if TYPE_CHECKING:
    from gitlease.faces.mcp.http import ToolsEndpoint


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
        found: list[BaseRoute] = [
            Route(
                x.path.replace("{key}", "{key:path}"),
                x.endpoint(self.handler),
                methods=[x.method],
            )
            for x in ROUTES
        ]
        stream = events.stream(self.follower, self._access, self._streams, self._closing)
        return [
            *found,
            *spor.routes(self.handler),
            *openintent.routes(self.handler, stream),
            *self._board.routes(),
            Route("/v1/events", stream),
            Route("/metrics", self.public(self._metrics)),
            Route("/mcp", self._tools or self.public(_no_tools), methods=["POST", "GET", "DELETE"]),
            *about([self]),
        ]

    def serving(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The context in which requests are answered."""
        return self._tools.serving() if self._tools else contextlib.nullcontext()

    def end_streams(self) -> None:
        """End event streams; requests under way are still answered."""
        self._closing.set()
        self.handler.closing.set()
        self.follower.close()

    def public(self, answer: Endpoint) -> Endpoint:
        """An endpoint that needs no token, only the right host."""

        async def checked(request: Request) -> Response:
            try:
                self._access.check_address(request.headers)
            except Refused as refused:
                return failed(refused)
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
    from gitlease.faces.mcp.http import ToolsEndpoint

    return ToolsEndpoint(handler, follower, streams)


async def _no_tools(_request: Request) -> Response:
    message = "this gateway has no tools for agents: the package mcp is not installed"
    hint = "pip install 'gitlease[mcp]', on the gateway's machine"
    return failed(Refused(501, "not_found", message, hint))


def about(apps: Sequence[GatewayApp], below: Sequence[str] = ("",)) -> list[BaseRoute]:
    """The public routes that describe gateways; ``below`` are their paths."""

    async def openapi_json(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return JSONResponse(openapi_document([root + path for path in below]))

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        found = [text for app in apps if (text := await app.trouble())]
        return PlainTextResponse(f"{found[0]}\n" if found else "ok\n", 503 if found else 200)

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
    made.router.redirect_slashes = False  # an open redirect: to any host named
    return made


def gateway_app(
    gateway: Gateway, tokens: Tokens, *, hosts: AllowedHosts, rate: float = RATE
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


async def _fault(_request: Request, _error: Exception) -> Response:
    return failed(Refused(500, "internal", "a bug in gitlease: see the gateway's log"))
