"""The gateway's application: its endpoints, their OpenAPI document, their start and their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router

from gitlease import __version__
from gitlease.core.errors import GitleaseError, Rollback
from gitlease.core.frozen import dataclass
from gitlease.faces.http import events, fields, leases, openintent, spor
from gitlease.faces.http.board import BoardPages
from gitlease.faces.http.fields import RequestField
from gitlease.faces.http.request_handler import (
    RATE,
    Access,
    AllowedHosts,
    Refused,
    RequestHandler,
    Verb,
    failed,
)
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.tokens import Tokens

if TYPE_CHECKING:
    from gitlease.faces.mcp.http import ToolsEndpoint


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """An endpoint, the verb behind it, and the fields of its body or query.

    ``grants``: it may create a lease (201). ``conditional``: it honours ``If-Match``. ``writes`` if
    it needs write access, or the flag of the body that does.
    """

    method: str
    path: str
    name: str
    verb: Verb
    fields: Mapping[str, RequestField]
    grants: bool = False
    conditional: bool = False
    writes: bool | str = False


_ERRORS = {
    400: "bad arguments",
    401: "no token, or an invalid one",
    403: "the token or the remote does not allow it",
    404: "not found",
    408: "the body arrived too slowly",
    409: "another holder has it, or the ledger was replaced",
    412: "the caller does not hold it, or no longer does",
    413: "the body is too large",
    421: "the gateway does not answer for this host",
    422: "refused by policy",
    429: "too many requests",
    500: "a damaged record, or a bug in gitlease",
    503: "the remote cannot be reached",
    504: "the outcome of the change is unknown",
}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "message"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "message": {"type": "string"},
        "holder": {"type": ["string", "null"]},
        "session": {"type": ["string", "null"]},
        "expires_at": {"type": ["string", "null"]},
        "retry_after": {"type": "integer"},
        "next": {"type": "array", "items": {"type": "string"}},
    },
}
_ANSWER = {
    "type": "object",
    "required": ["schema", "ok", "command", "warnings"],
    "properties": {
        "schema": {"type": "integer"},
        "ok": {"type": "boolean"},
        "command": {"type": "string"},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "leases": {"type": "array", "items": {"type": "object"}},
    },
}


def openapi_document(operations: Iterable[ApiOperation], bases: Iterable[str]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of an API that is served below these paths."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gitlease",
            "version": __version__,
            "description": "Leases for a repository. The token determines the holder.",
        },
        "servers": [{"url": base or "/"} for base in bases],
        "security": [{"bearer": []}, {"basic": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, "Answer": _ANSWER},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _operation(operation: ApiOperation) -> dict[str, Any]:
    body = operation.method in ("PUT", "PATCH", "POST")
    parameters = [_header("Gitlease-Session", "The session of the token's holder.")]
    if "{key}" in operation.path:
        parameters.append(
            {
                "name": "key",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1},
                "description": "A resource: a task id, a name, or a path; URL-encoded.",
            }
        )
    if operation.writes:
        parameters.append(
            _header("Idempotency-Key", "A request repeated under one key is done once.")
        )
    if operation.conditional:
        parameters.append(_header("If-Match", "The fencing token of the lease, in quotes."))
    if operation.name == "claim":
        parameters.append(_header("If-None-Match", "`*`: only if the caller does not hold it yet."))
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": (operation.verb.__doc__ or "").partition("\n")[0].rstrip("."),
        "responses": _responses(operation),
    }
    if body:
        found["requestBody"] = {
            "required": any(x.required for x in operation.fields.values()),
            "content": {"application/json": {"schema": _schema(operation.fields)}},
        }
    else:
        parameters += [_query(name, field) for name, field in operation.fields.items()]
    return found | {"parameters": parameters}


def _responses(operation: ApiOperation) -> dict[str, Any]:
    answer = {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[str, Any] = {"200": {"description": "done", "content": answer}}
    if operation.grants:
        found["201"] = found["200"]
    return found | {
        str(status): {"description": text, "content": problem} for status, text in _ERRORS.items()
    }


def _schema(fields: Mapping[str, RequestField]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, field in fields.items() if field.required],
        "properties": {
            name: {**field.schema, "description": field.about} for name, field in fields.items()
        },
    }


def _query(name: str, field: RequestField) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": field.required,
        "schema": field.schema,
        "description": field.about,
    }


def _header(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": {"type": "string"}, "description": about}


Endpoint = Callable[[Request], Awaitable[Response]]

LEASE, LEASES = "/v1/leases/{key}", "/v1/leases"
OPERATIONS: tuple[ApiOperation, ...] = (
    ApiOperation("PUT", LEASE, "claim", leases.put_lease, fields.CLAIM, grants=True, writes=True),
    ApiOperation(
        "PATCH", LEASE, "renew", leases.patch_lease, fields.PATCH, conditional=True, writes=True
    ),
    ApiOperation(
        "DELETE", LEASE, "release", leases.delete_lease, fields.END, conditional=True, writes=True
    ),
    ApiOperation("GET", LEASE, "show", leases.get_lease, {}),
    ApiOperation("GET", LEASES, "list", leases.list_leases, fields.LIST),
    ApiOperation(
        *("POST", f"{LEASES}:claim", "claim_several", leases.claim_several, fields.CLAIM_SEVERAL),
        grants=True,
        writes=True,
    ),
    ApiOperation(
        *("POST", f"{LEASES}:renew", "renew_several", leases.renew_several, fields.RENEW_SEVERAL),
        writes=True,
    ),
    ApiOperation("POST", "/v1/check", "check", leases.check_paths, fields.CHECK),
    ApiOperation("GET", "/v1/tasks", "tasks", leases.list_tasks, fields.TASKS),
    ApiOperation(
        *("POST", "/v1/tasks:next", "next", leases.next_task, fields.NEXT),
        grants=True,
        writes="claim",
    ),
    ApiOperation("GET", "/v1/history/{key}", "history", leases.history, fields.HISTORY),
)


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
                self.handler.verb(x.name, x.verb, x.fields, writes=x.writes),
                methods=[x.method],
            )
            for x in OPERATIONS
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
        return JSONResponse(openapi_document(OPERATIONS, [root + path for path in below]))

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
    gateway.on_head = follower.notice
    return GatewayApp(gateway, follower, Access(tokens.holder_of, hosts=hosts, rate=rate), tokens)


async def _no_route(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "usage")
    message = "there is nothing at this address" if status == 404 else str(error)
    headers = getattr(error, "headers", None)
    return failed(Refused(status, code, message, "the endpoints: /openapi.json", headers=headers))


async def _fault(_request: Request, _error: Exception) -> Response:
    return failed(Refused(500, "internal", "a bug in gitlease: see the gateway's log"))
