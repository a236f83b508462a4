"""The MCP server: its tools and resources, and how a call becomes a result, over any transport."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from gitlease import __version__
from gitlease.core.errors import GitleaseError, Unavailable, UsageError
from gitlease.core.frozen import replace
from gitlease.faces.mcp.tools import (
    LONGEST_WAIT,
    TOOLS,
    LeaseTool,
    ToolCaller,
    answered,
    put_in_words,
    refused,
)
from gitlease.verbs import wire
from gitlease.verbs.table import Result, check_names, read_values

BOARD, MINE = "lease://board", "lease://mine"
ABOUT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    BOARD: ("Who holds what, until when.", {}),
    MINE: ("What you hold.", {"mine": True}),
}
LISTENERS = 128  # streams of notifications, each with a thread that follows the ledger

TURN = "x-codex-turn-metadata"  # sent by Codex with each call

Asked = ServerRequestContext[Any, Any]


class Backend(Protocol):
    """The leases that a server serves: those of a clone, or those behind a gateway."""

    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, *, writes: bool
    ) -> AbstractContextManager[ToolCaller]:
        """The caller of a request, for the duration of the call; ``woken`` ends its waits.

        Raises Denied without the access needed, and what opening a clone may raise.
        """

    def words(self, text: str) -> str:
        """A message as the clients of this server may read it."""

    def sender(self, request: Any) -> Hashable:
        """Identifies the client of a request, as far as possible."""

    def waiting(self, request: Any) -> AbstractContextManager[None]:
        """Count the block as a wait. Raises Unavailable if there are too many."""

    def listening(self, request: Any) -> AbstractContextManager[None]:
        """Count the block as a listener. Raises Unavailable if there are too many."""


def thread_of(meta: Mapping[str, Any]) -> str:
    """The id of the calling Codex thread, else an empty string."""
    data = meta.get(TURN)
    try:
        turn = json.loads(data) if isinstance(data, str) else data
    except (ValueError, RecursionError):
        return ""
    thread = turn.get("thread_id") if isinstance(turn, Mapping) else None
    return thread if isinstance(thread, str) else ""


class LeaseResources:
    """The resources for the callers of a backend, and notifications that they changed."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._listeners = backend, anyio.CapacityLimiter(LISTENERS)

    async def listed(
        self, _asked: Asked, _page: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        found = [
            types.Resource(
                uri=uri,
                name=uri.removeprefix("lease://"),
                description=about,
                mime_type="application/json",
            )
            for uri, (about, _) in ABOUT.items()
        ]
        return types.ListResourcesResult(resources=found)

    async def read(
        self, asked: Asked, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The document of a resource, as ``status`` returns it. Raises MCPError."""
        uri = str(params.uri)
        if uri not in ABOUT:
            known = ", ".join(ABOUT)
            message = f"unknown resource {uri[:60]!r}; known resources: {known}"
            raise MCPError(types.INVALID_PARAMS, message)
        text = await anyio.to_thread.run_sync(lambda: self._read(asked, uri))
        part = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[part])

    def _read(self, asked: Asked, uri: str) -> str:
        meta = dict[str, Any](asked.meta or {})
        try:
            with self._backend.caller(
                meta, asked.request, threading.Event(), writes=False
            ) as caller:
                found = TOOLS["status"].act(caller, **ABOUT[uri][1])
        except GitleaseError as error:
            error = put_in_words(error, self._backend.words)
            refusal = wire.refusal(error, now=datetime.now(UTC))
            raise MCPError(types.INTERNAL_ERROR, refusal["message"], refusal) from None
        warnings = [*map(self._backend.words, found.warnings)]
        return json.dumps(wire.success("status", body=found.body, warnings=warnings))

    async def listen(
        self, asked: Asked, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Notify a client of changes; the stream ends if they cannot be followed."""
        if self._listeners.available_tokens < 1:
            raise MCPError(types.INTERNAL_ERROR, f"there are {LISTENERS} listeners already")
        try:
            with self._backend.listening(asked.request):
                return await self._listen(asked, params)
        except Unavailable as busy:
            raise MCPError(types.INTERNAL_ERROR, busy.message) from None

    async def _listen(
        self, asked: Asked, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        bus, woken = InMemorySubscriptionBus(), threading.Event()
        handler = ListenHandler(bus)

        async def follow() -> None:
            try:
                await anyio.to_thread.run_sync(
                    lambda: self._follow(asked, bus, woken), limiter=self._listeners
                )
            finally:
                handler.close()

        async with anyio.create_task_group() as group:
            group.start_soon(_notice_leaving, woken)
            if {*(params.notifications.resource_subscriptions or ())} & {*ABOUT}:
                group.start_soon(follow)
            result = await handler(asked, params)
            group.cancel_scope.cancel()
        return result

    def _follow(self, asked: Asked, bus: InMemorySubscriptionBus, woken: threading.Event) -> None:
        def tell() -> None:
            for uri in ABOUT:
                anyio.from_thread.run(bus.publish, ResourceUpdated(uri))

        meta = dict[str, Any](asked.meta or {})
        try:
            with self._backend.caller(meta, asked.request, woken, writes=False) as caller:
                caller.follow(tell)
        except InterruptedError:
            return
        except GitleaseError as error:
            logging.getLogger("gitlease").warning("changes cannot be followed: %s", error)


INSTRUCTIONS = """Leases say who works on what in this repository: people and agents share it.
Claim before your first edit, with the paths you will change; renew while you work; release, with a
note on how far you got, when you stop. What another holds is theirs until it is free."""
THREADS, WAITS = 32, 16  # calls at the same time, and waiting ones
BUG = "a bug in gitlease: see the server's standard error"
EVERY = 5.0  # seconds between two progress notifications of a wait


class LeaseServer:
    """The tools for the callers of a backend. ``mcp`` is the server that transports run.

    Waiting calls have a limit of their own, ``waits``, so that they never delay a renewal.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        threads: anyio.CapacityLimiter | None = None,
        waits: anyio.CapacityLimiter | None = None,
    ) -> None:
        self._backend = backend
        self._threads = threads or anyio.CapacityLimiter(THREADS)
        self._waits = waits or anyio.CapacityLimiter(WAITS)
        self._cancellable: dict[Hashable, set[threading.Event]] = {}
        resources = LeaseResources(backend)
        self.mcp: Server[Any] = Server(
            "gitlease",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=resources.listed,
            on_read_resource=resources.read,
            on_subscriptions_listen=resources.listen,
        )
        self.mcp.add_notification_handler(
            "notifications/cancelled", types.CancelledNotificationParams, self._cancelled
        )

    async def _list_tools(
        self, _asked: Asked, _page: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_shown(tool) for tool in TOOLS.values()])

    async def _call_tool(
        self, asked: Asked, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            known = ", ".join(TOOLS)
            message = f"unknown tool {params.name[:60]!r}; known tools: {known}"
            raise MCPError(types.INVALID_PARAMS, message)
        woken, arguments = threading.Event(), params.arguments or {}
        if tool.name != "wait":
            return await self._called(tool, arguments, asked, woken, self._threads)
        try:
            with self._backend.waiting(asked.request), self._cancels(woken, asked):
                return await self._called(tool, arguments, asked, woken, self._waits)
        except Unavailable as busy:
            return refused(tool.name, busy, datetime.now(UTC), {})

    @contextlib.contextmanager
    def _cancels(self, woken: threading.Event, asked: Asked) -> Iterator[None]:
        """Let a cancellation that arrives as a request of its own end a wait; the SDK cannot.

        If two waits have the same id, it is ambiguous, and neither ends.
        """
        key = self._backend.sender(asked.request), str(asked.request_id)
        waits = self._cancellable.setdefault(key, set())
        waits.add(woken)
        try:
            yield
        finally:
            waits.discard(woken)
            if not waits:
                self._cancellable.pop(key, None)

    async def _cancelled(self, asked: Asked, params: types.CancelledNotificationParams) -> None:
        key = self._backend.sender(asked.request), str(params.request_id)
        waits = self._cancellable.get(key, set())
        if len(waits) == 1:
            next(iter(waits)).set()

    async def _called(
        self,
        tool: LeaseTool,
        arguments: Mapping[str, Any],
        asked: Asked,
        woken: threading.Event,
        threads: anyio.CapacityLimiter,
    ) -> types.CallToolResult:
        async with anyio.create_task_group() as group:
            group.start_soon(_notice_leaving, woken)
            if threads is self._waits:
                group.start_soon(_tell_waiting, asked)
            result = await anyio.to_thread.run_sync(
                lambda: self._act(tool, arguments, asked, woken), limiter=threads
            )
            group.cancel_scope.cancel()
        if result is None:  # raised here, since a group would wrap it
            raise MCPError(types.INTERNAL_ERROR, BUG)
        return result

    def _act(
        self, tool: LeaseTool, arguments: Mapping[str, Any], asked: Asked, woken: threading.Event
    ) -> types.CallToolResult | None:
        """The result of a call; None for a bug in gitlease."""
        meta = dict[str, Any](asked.meta or {})
        try:
            _check_encodes(arguments)
            check_names(tool.takes, arguments, what=tool.name)
            writes = tool.writes and not tool.only_reads(arguments)
            with self._backend.caller(meta, asked.request, woken, writes=writes) as caller:
                values = read_values(tool.takes, caller, arguments, what=tool.name)
                done = tool.act(caller, **values)
                return answered(tool.name, self._readable(done), datetime.now(UTC))
        except GitleaseError as error:
            shown = put_in_words(error, self._backend.words, tool.takes)
            return refused(tool.name, shown, datetime.now(UTC), arguments)
        except InterruptedError:
            ended = Unavailable("the wait was cancelled, or this server is being stopped")
            return refused(tool.name, ended, datetime.now(UTC), arguments)
        except Exception:
            logging.getLogger("gitlease").exception("%s", tool.name)
            return None

    def _readable(self, result: Result) -> Result:
        words = self._backend.words
        refused = [put_in_words(error, words) for error in result.refused]
        return replace(result, refused=refused, warnings=[*map(words, result.warnings)])


def _check_encodes(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for a lone surrogate, which no answer could repeat."""
    try:
        json.dumps(dict(arguments), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError("the arguments have a lone surrogate") from None


async def _notice_leaving(woken: threading.Event) -> None:
    # Ends a wait when its client cancels it or disconnects.
    try:
        await anyio.sleep_forever()
    finally:
        woken.set()


async def _tell_waiting(asked: Asked) -> None:
    for number in range(int(LONGEST_WAIT / EVERY)):
        seconds = number * EVERY
        await asked.session.report_progress(seconds, LONGEST_WAIT, f"waiting for {seconds:g}s")
        await anyio.sleep(EVERY)


def _shown(tool: LeaseTool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=not tool.writes,
        destructive_hint=tool.destroys if tool.writes else None,
        idempotent_hint=tool.again if tool.writes else None,
        open_world_hint=False,
    )
    return types.Tool(
        name=tool.name, description=tool.about, input_schema=tool.schema(), annotations=hints
    )
