"""The MCP tools at a gateway's ``/mcp``, for the holders of its tokens.

A session of the protocol is a session of the token's holder. When it ends, or ``GRACE`` seconds
after its stream of notifications has closed for good, what was claimed in it is let go. A session
that the client names itself, by the header or as a Codex thread, may outlive that. The protocol's
newest version has no sessions: each claim of such a client begins one, unless it names one. The
answer names it, and so does a later renewal or release: without a session, a client may be any of
those with its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gitlease.agents.opening import session_of_thread
from gitlease.gateway.events import LOOK, OpenStreams
from gitlease.gateway.follower import Follower
from gitlease.gateway.gateway import Gateway
from gitlease.gateway.request_handler import (
    MOST_BYTES,
    Refused,
    RequestHandler,
    failed,
    session_in,
    without_paths,
)
from gitlease.gateway.routes import GatewayDoor
from gitlease.gateway.tokens import Token
from gitlease.kernel.ledger.sessions import end_session
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import Denied, GitleaseError, Unavailable, UsageError
from gitlease.mcp.server import AskedPlace, Backend, LeaseServer, thread_of

CALLER = "gitlease.caller"  # the token of an admitted request
# Hosts and origins are the gateway's own to judge.
OPEN = TransportSecuritySettings(enable_dns_rebinding_protection=False)
GRACE = 60.0  # seconds for a client to come back
IDLE = 8 * 3_600.0  # seconds without a request after which the protocol's session ends
MOST_SESSIONS = 256  # of one token


class ClientSession:
    """A session of the protocol: its holder, its name in the ledger, and its open requests."""

    def __init__(self, token: Token, id: str) -> None:
        self.token, self.name = token, f"mcp:{hashlib.sha256(id.encode()).hexdigest()[:12]}"
        self.streamed, self.ended = False, False
        self.layers = set[str]()  # in which it may have claimed something
        self.open, self.seen = 0, time.monotonic()

    def gone_since(self) -> float | None:
        """Seconds since its connection is gone; None while it is there, or nothing tells."""
        return None if self.open or not self.streamed else time.monotonic() - self.seen


class ClientSessions:
    """The sessions of the clients of ``/mcp``, and the end of what was claimed in them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._sessions = gateway, dict[str, ClientSession]()

    def of(self, headers: Mapping[str, str]) -> ClientSession | None:
        """The session that a request belongs to; None if it names none."""
        return self._sessions.get(headers.get(MCP_SESSION_ID_HEADER, ""))

    def check_room(self, token: Token) -> None:
        """Raise Refused if a token has too many sessions."""
        for id, session in [*self._sessions.items()]:
            if not session.open and time.monotonic() - session.seen >= IDLE:
                self._sessions.pop(id, None)
        if Counter(x.token.id for x in self._sessions.values())[token.id] >= MOST_SESSIONS:
            message = f"{MOST_SESSIONS} sessions of this token are open: close one of them"
            raise Refused(429, "too_many_requests", message, headers={"Retry-After": "60"})

    def begin(self, token: Token, id: str) -> None:
        self._sessions.setdefault(id, ClientSession(token, id))

    @contextlib.contextmanager
    def present(self, session: ClientSession | None, *, streams: bool) -> Iterator[None]:
        """Keep a session present during the block, and end it if its client never comes back."""
        if session is None:
            yield
            return
        session.open += 1
        session.streamed = session.streamed or streams
        try:
            yield
        finally:
            session.open, session.seen = session.open - 1, time.monotonic()
            if session.gone_since() is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(GRACE, self._end_if_gone, session)

    def _end_if_gone(self, session: ClientSession) -> None:
        # Each return of the client sets a timer of its own.
        seconds = session.gone_since()
        if seconds is not None and seconds >= GRACE:
            self._let_go(session)

    def end(self, headers: Mapping[str, str]) -> None:
        """End a session: what was claimed in it is let go, in the background."""
        session = self._sessions.pop(headers.get(MCP_SESSION_ID_HEADER, ""), None)
        if session is not None:
            # A claim under way is let go as soon as it has landed.
            session.ended = True
            self._let_go(session)

    def _let_go(self, session: ClientSession) -> None:
        if session.layers:
            # In the background: it pushes, and no request waits for it.
            asyncio.get_running_loop().run_in_executor(None, self.run_out, session)

    def run_out(self, session: ClientSession) -> None:
        """Let go of what was claimed in a session; a failure is only logged."""
        layers, session.layers = session.layers, set()
        for layer in layers:
            try:
                gateway = self._gateway.in_layer(layer)
                end_session([gateway.session(session.token.email, session.name)])
            except GitleaseError as error:
                logging.getLogger("gitlease").warning("leases will expire by themselves: %s", error)


class GatewayBackend(Backend):
    """The leases behind a gateway, for the holders of its tokens."""

    in_clone = False
    place = ("layer", "session")

    def __init__(
        self,
        handler: RequestHandler,
        follower: Follower,
        streams: OpenStreams,
        sessions: ClientSessions,
    ) -> None:
        self._handler, self._follower, self._streams = handler, follower, streams
        self._sessions = sessions

    @contextlib.contextmanager
    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, place: AskedPlace
    ) -> Iterator[GatewayDoor]:
        token: Token = request.scope[CALLER]
        if place.writes and "write" not in token.scopes:
            raise Denied(f"the token {token.name} has no write access")
        gateway = self._handler.gateway.since_now().in_layer(place.layer)
        # Unless it names one, each client has its own: two with one token exclude each other.
        begun = False
        session = place.session or session_in(request.headers)
        session = session or session_of_thread(thread_of(meta))
        client = self._sessions.of(request.headers) if session is None else None
        if client is not None:
            session = client.name
            if place.writes:
                client.layers.add(gateway.layer)
        elif session is None and place.writes:
            # The protocol's newest version has no sessions: nothing else tells which leases of the
            # token's holder are this client's.
            if place.own:
                raise UsageError(
                    "this client names no session, so its leases cannot be told from those of "
                    "others with its token",
                    hints=(
                        "add the session that your claim answered with",
                        "or have the client send it as the header Gitlease-Session",
                    ),
                )
            session, begun = f"mcp-{fresh_id()[:12]}", True

        # Before each step: it is made only while the token is good and the client there.
        def check() -> None:
            if woken.is_set():
                raise InterruptedError
            if self._handler.closing.is_set():
                raise Unavailable("this gateway is being stopped", hints=("try again",))
            self._handler.access.check_still_valid(request.headers)

        try:
            yield GatewayDoor(
                gateway, token, session, check=check, follower=self._follower, begun=begun
            )
        except Refused as refused:
            raise Denied(refused.message) from None
        finally:
            if client is not None and client.ended and place.writes:
                client.layers.add(gateway.layer)
                self._sessions.run_out(client)

    def words(self, text: str) -> str:
        return without_paths(text)

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
    """The endpoint: it checks the token, then speaks the protocol."""

    def __init__(self, handler: RequestHandler, follower: Follower, streams: OpenStreams) -> None:
        self._handler, self._streams = handler, streams
        self._sessions = ClientSessions(handler.gateway)
        backend = GatewayBackend(handler, follower, streams, self._sessions)
        server = LeaseServer(backend, threads=handler.threads, waits=handler.waits)
        self._manager = StreamableHTTPSessionManager(
            server.mcp,
            security_settings=OPEN,
            session_idle_timeout=IDLE,
            max_request_body_size=MOST_BYTES,
        )

    def serving(self) -> AbstractAsyncContextManager[None]:
        """The context in which requests are answered."""
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, finished = 0, False

        async def counted(message: Message) -> None:
            nonlocal status, finished
            if message["type"] == "http.response.start":
                status = message["status"]
                self._handler.counts["mcp", status] += 1
                id = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                if id is not None and MCP_SESSION_ID_HEADER not in headers and status < 400:
                    self._sessions.begin(token, id)
            finished = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        headers, method = Request(scope).headers, scope["method"]
        try:
            token = self._handler.access.admit(headers, "read")
            # Only such a request begins a session.
            if method == "POST" and MCP_SESSION_ID_HEADER not in headers:
                self._sessions.check_room(token)
            stream = self._streams.opened(token.id) if method == "GET" else contextlib.nullcontext()
            with (
                stream,
                self._sessions.present(self._sessions.of(headers), streams=method == "GET"),
            ):
                scope[CALLER] = token
                # A session answers only the token that began it.
                access = AccessToken(token="", client_id=token.id, scopes=[])
                scope["user"] = AuthenticatedUser(access)
                async with anyio.create_task_group() as group:
                    if method == "GET":
                        group.start_soon(self._end_stream, headers, group.cancel_scope)
                    await self._manager.handle_request(scope, receive, counted)
                    group.cancel_scope.cancel()
        except Refused as refused:
            await failed(refused)(scope, receive, counted)
            return
        # A stream that was cancelled has no last part yet; its client may have left.
        if method == "GET" and status and not finished:
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if method == "DELETE" and status == 200:
            self._sessions.end(headers)

    async def _end_stream(self, headers: Headers, stream: anyio.CancelScope) -> None:
        """End a stream of notifications with the gateway, or with its token."""
        while self._handler.access.is_still_valid(headers) and not self._handler.closing.is_set():
            await anyio.sleep(LOOK)
        stream.cancel()
