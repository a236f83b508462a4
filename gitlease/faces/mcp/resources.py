"""The MCP resources: all leases, and those of the caller; and notifications of changes."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from gitlease.core.errors import GitleaseError, Unavailable
from gitlease.faces import wire
from gitlease.faces.mcp.callers import Backend
from gitlease.faces.mcp.results import put_in_words
from gitlease.faces.mcp.tools import TOOLS

BOARD, MINE = "lease://board", "lease://mine"
ABOUT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    BOARD: ("Who holds what, until when.", {}),
    MINE: ("What you hold.", {"mine": True}),
}
LISTENERS = 128  # streams of notifications, each with a thread that follows the ledger

Asked = ServerRequestContext[Any, Any]


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
                found = TOOLS["status"].act(caller, ABOUT[uri][1])
        except GitleaseError as error:
            put_in_words(error, self._backend.words)
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

        async def notice_leaving() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                woken.set()

        async with anyio.create_task_group() as group:
            group.start_soon(notice_leaving)
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
