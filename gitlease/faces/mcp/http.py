"""The tools at a gateway's ``/mcp``, for the holders of its tokens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gitlease.core.errors import Denied, Unavailable
from gitlease.faces.http.access import Caller, Refused
from gitlease.faces.http.events import OpenStreams
from gitlease.faces.http.request_handler import (
    MOST_BYTES,
    SESSION_HEADER,
    Door,
    problem,
    session_in,
)
from gitlease.faces.mcp.callers import GatewayCaller, thread_of
from gitlease.faces.mcp.server import LeaseServer
from gitlease.gateway.follower import Follower
from gitlease.wiring.agents import session_of_thread

CALLER = "gitlease.caller"  # of a request that was let in
# Hosts and origins are the gateway's own to judge.
OPEN = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class GatewayBackend:
    """The leases behind a gateway, for whoever its door lets in."""

    def __init__(self, door: Door, follower: Follower, streams: OpenStreams) -> None:
        self._door, self._follower, self._streams = door, follower, streams

    @contextlib.contextmanager
    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, *, writes: bool
    ) -> Iterator[GatewayCaller]:
        """Each step is made only while the token is good and the client there."""
        known: Caller = request.scope[CALLER]
        if writes and "write" not in known.scopes:
            raise Denied(f"the token {known.name} may not write")
        session = session_in(request.headers) or session_of_thread(thread_of(meta))

        def check() -> None:
            if woken.is_set():
                raise InterruptedError
            if self._door.closing.is_set():
                raise Unavailable("this gateway is being stopped", hints=("ask again",))
            self._door.access.check_still_known(request.headers)

        gateway = self._door.gateway
        opened = gateway.session(known.holder, session, check=check)
        try:
            yield GatewayCaller(gateway, opened, self._follower, check)
        except Refused as refused:
            raise Denied(str(refused)) from None

    def sender(self, request: Any) -> Hashable:
        known: Caller = request.scope[CALLER]
        return (
            known.token_id,
            request.headers.get(SESSION_HEADER),
            request.client and request.client.host,
        )

    @contextlib.contextmanager
    def waiting(self, request: Any) -> Iterator[None]:
        known: Caller = request.scope[CALLER]
        try:
            with self._door.waiting(known.token_id):
                yield
        except Refused as refused:
            raise Unavailable(str(refused)) from None

    @contextlib.contextmanager
    def listening(self, request: Any) -> Iterator[None]:
        known: Caller = request.scope[CALLER]
        try:
            with self._streams.opened(known.token_id):
                yield
        except Refused as refused:
            raise Unavailable(str(refused)) from None


class ToolsEndpoint:
    """The endpoint: tokens first, then the protocol, which keeps nothing between two requests."""

    def __init__(self, door: Door, follower: Follower, streams: OpenStreams) -> None:
        self._door, self._access = door, door.access
        backend = GatewayBackend(door, follower, streams)
        server = LeaseServer(backend, threads=door.threads, waits=door.waits)
        self._manager = StreamableHTTPSessionManager(
            server.mcp, stateless=True, security_settings=OPEN, max_request_body_size=MOST_BYTES
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer while the block lasts."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._door.count("mcp", message["status"])
            await send(message)

        request = Request(scope)
        try:
            scope[CALLER] = self._access.caller(request.headers, "read")
        except Refused as refused:
            answer = problem(refused.status, refused.document, refused.headers)
            await answer(scope, receive, counted)
            return
        await self._manager.handle_request(scope, receive, counted)
