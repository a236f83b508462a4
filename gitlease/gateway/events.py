"""The ledger's events as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gitlease.gateway.follower import GAP, LAPSED, FollowedEvent, Follower
from gitlease.gateway.request_handler import Access, Refused
from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.instant import rfc3339
from gitlease.verbs import wire

LOOK = 0.5  # seconds between two checks of the token and of the gateway's end
SILENT = 15.0  # seconds of silence after which a comment is sent, so that proxies stay connected
READERS = 16  # listeners that may begin at the same time
MOST_STREAMS = 32  # per token
MOST_WAITING = 10_000  # events that a slow listener may be behind; then it must reconnect


class EventStream(StreamingResponse):
    """Lines until the listener leaves, which calls ``end`` even if none was sent."""

    def __init__(self, lines: AsyncIterator[str], end: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # The listener may leave before the first line: the generator itself would never begin
            # or end.
            await super().__call__(scope, receive, send)
        finally:
            self._end()


class OpenStreams:
    """Counts the open streams of each token."""

    def __init__(self) -> None:
        self._open = Counter[str]()

    @contextlib.contextmanager
    def opened(self, token_id: str) -> Iterator[None]:
        """Count one more during the block. Raises Refused if the token has too many."""
        if self._open[token_id] >= MOST_STREAMS:
            message = f"{MOST_STREAMS} streams of this token are open: close one of them"
            raise Refused(429, "too_many_requests", message)
        self._open[token_id] += 1
        try:
            yield
        finally:
            self._open[token_id] -= 1


def stream(
    follower: Follower, access: Access, streams: OpenStreams, closing: asyncio.Event
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of the stream, which ends when ``closing`` is set."""
    threads = anyio.CapacityLimiter(READERS)

    async def answer(request: Request) -> Response:
        token = access.admit(request.headers, "read")
        if "layer" in request.query_params:
            raise UsageError("events are those of the gateway's own layer: leave out layer")
        after = _last_seen(request.headers.get("last-event-id"))
        with contextlib.ExitStack() as stack:
            stack.enter_context(streams.opened(token.id))
            events, leave = await _listen(follower, after, threads)
            stack.callback(leave)
            # The stream outlives this call, and ends what it has opened itself.
            end = stack.pop_all().close
        return EventStream(
            _lines(events, closing, lambda: access.is_still_valid(request.headers)), end
        )

    return answer


def _last_seen(event_id: str | None) -> tuple[int, int] | None:
    if not event_id:
        return None
    revision, _, n = event_id.partition("-")
    if not (revision.isascii() and revision.isdigit() and n.isascii() and n.isdigit()):
        raise UsageError("Last-Event-ID must be the id of an event: REVISION-N")
    # No revision has so many digits, and int() refuses very long ones.
    return int(revision[:18]), int(n[:9])


async def _listen(
    follower: Follower, after: tuple[int, int] | None, threads: anyio.CapacityLimiter
) -> tuple[asyncio.Queue[FollowedEvent | None], Callable[[], None]]:
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[FollowedEvent | None] = asyncio.Queue()

    def put(event: FollowedEvent) -> None:
        if events.qsize() < MOST_WAITING:
            events.put_nowait(event)
        elif events.qsize() == MOST_WAITING:
            events.put_nowait(None)

    def notify(event: FollowedEvent) -> None:
        # From the follower's thread, which must not touch a queue of the loop.
        loop.call_soon_threadsafe(put, event)

    leave = await anyio.to_thread.run_sync(lambda: follower.listen(notify, after), limiter=threads)
    return events, leave


async def _lines(
    events: asyncio.Queue[FollowedEvent | None],
    closing: asyncio.Event,
    may_listen: Callable[[], bool],
) -> AsyncIterator[str]:
    silent = 0.0
    yield "retry: 2000\n: listening\n\n"
    while not closing.is_set() and may_listen():
        event: FollowedEvent | None = None
        with anyio.move_on_after(LOOK) as waited:
            event = await events.get()
        if waited.cancelled_caught:
            silent += LOOK
            if silent >= SILENT:
                silent = 0.0
                yield ": still here\n\n"
            continue
        # Too slow: the client reconnects, and continues after its last event.
        if event is None:
            return
        yield _event(event)


def _event(event: FollowedEvent) -> str:
    if event.lapsed is not None:
        lease = event.lapsed
        data = {
            "kind": LAPSED,
            "resource": lease.resource.text,
            "scope": lease.scope,
            "holder": lease.holder,
            "session": lease.session,
            "token": lease.token,
            "at": rfc3339(event.at),
        }
        return f"event: {LAPSED}\ndata: {json.dumps(data)}\n\n"
    if event.event is None or event.number is None:
        data = {"kind": GAP, "at": rfc3339(event.at)}
        return f"event: {GAP}\ndata: {json.dumps(data)}\n\n"
    revision, n = event.number
    data = wire.event(event.event)
    return f"event: {event.event.kind}\nid: {revision}-{n}\ndata: {json.dumps(data)}\n\n"
