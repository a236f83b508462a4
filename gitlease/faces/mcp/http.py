"""The MCP tools at a gateway's ``/mcp``, for the holders of its tokens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gitlease.core.errors import Denied, Unavailable
from gitlease.faces.http.access import Refused
from gitlease.faces.http.events import OpenStreams
from gitlease.faces.http.request_handler import (
    MOST_BYTES,
    SESSION_HEADER,
    RequestHandler,
    failed,
    session_in,
)
from gitlease.faces.mcp.callers import GatewayCaller, thread_of
from gitlease.faces.mcp.server import LeaseServer
from gitlease.gateway.follower import Follower
from gitlease.gateway.tokens import Token
from gitlease.wiring.agents import session_of_thread

CALLER = "gitlease.caller"  # the token of an admitted request
# Hosts and origins are the gateway's own to judge.
OPEN = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class GatewayBackend:
    """The leases behind a gateway, for the holders of its tokens."""

    def __init__(self, handler: RequestHandler, follower: Follower, streams: OpenStreams) -> None:
        self._handler, self._follower, self._streams = handler, follower, streams

    @contextlib.contextmanager
    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, *, writes: bool
    ) -> Iterator[GatewayCaller]:
        """Each step is made only while the token is good and the client there."""
        token: Token = request.scope[CALLER]
        if writes and "write" not in token.scopes:
            raise Denied(f"the token {token.name} has no write access")
        session = session_in(request.headers) or session_of_thread(thread_of(meta))

        def check() -> None:
            if woken.is_set():
                raise InterruptedError
            if self._handler.closing.is_set():
                raise Unavailable("this gateway is being stopped", hints=("try again",))
            self._handler.access.check_still_valid(request.headers)

        gateway = self._handler.gateway.since_now()
        opened = gateway.session(token.email, session, check=check)
        try:
            yield GatewayCaller(gateway, opened, self._follower, check)
        except Refused as refused:
            raise Denied(refused.message) from None

    def sender(self, request: Any) -> Hashable:
        token: Token = request.scope[CALLER]
        return (
            token.id,
            request.headers.get(SESSION_HEADER),
            request.client and request.client.host,
        )

    def waiting(self, request: Any) -> AbstractContextManager[None]:
        return _counted(self._handler.waiting(request.scope[CALLER].id))

    def listening(self, request: Any) -> AbstractContextManager[None]:
        return _counted(self._streams.opened(request.scope[CALLER].id))


@contextlib.contextmanager
def _counted(count: AbstractContextManager[None]) -> Iterator[None]:
    try:
        with count:
            yield
    except Refused as refused:
        raise Unavailable(refused.message) from None


class ToolsEndpoint:
    """The endpoint, stateless: it checks the token, then speaks the protocol."""

    def __init__(self, handler: RequestHandler, follower: Follower, streams: OpenStreams) -> None:
        self._handler = handler
        backend = GatewayBackend(handler, follower, streams)
        server = LeaseServer(backend, threads=handler.threads, waits=handler.waits)
        self._manager = StreamableHTTPSessionManager(
            server.mcp, stateless=True, security_settings=OPEN, max_request_body_size=MOST_BYTES
        )

    def serving(self) -> AbstractAsyncContextManager[None]:
        """The context in which requests are answered."""
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._handler.counts["mcp", message["status"]] += 1
            await send(message)

        headers = Request(scope).headers
        try:
            scope[CALLER] = self._handler.access.admit(headers, "read")
        except Refused as refused:
            await failed(refused)(scope, receive, counted)
            return
        await self._manager.handle_request(scope, receive, counted)
