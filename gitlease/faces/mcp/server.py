"""The server: which tools there are, and how a call becomes an answer. Every transport has it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from gitlease.core.errors import GitleaseError, LeaseLost, Unavailable
from gitlease.faces.http.fields import read_fields
from gitlease.faces.mcp.answering import answered, refused
from gitlease.faces.mcp.callers import Backend
from gitlease.faces.mcp.tools import LONGEST_WAIT, TOOLS, LeaseTool

INSTRUCTIONS = """Leases say who works on what in this repository: people and agents share it.
Claim before your first edit, with the paths you will change; renew while you work; release, with a
note on how far you got, when you stop. What another holds is theirs until it is free."""
THREADS = 32  # calls of one client that are worked on at the same time
EVERY = 5.0  # seconds between two words on a wait

Asked = ServerRequestContext[Any, Any]


class LeaseServer:
    """The tools for the callers of a backend. ``mcp`` is the server as transports run it."""

    def __init__(self, backend: Backend, *, threads: int = THREADS) -> None:
        self._backend, self._threads = backend, anyio.CapacityLimiter(threads)
        self.mcp: Server[Any] = Server(
            "gitlease",
            version=_version(),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
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
            said = f"unknown tool {params.name[:60]!r}; known tools: {known}"
            raise MCPError(types.INVALID_PARAMS, said)
        woken, arguments = threading.Event(), params.arguments or {}
        async with anyio.create_task_group() as group:
            group.start_soon(_notice_leaving, woken)
            if tool.name == "wait":
                group.start_soon(_tell_waiting, asked)
            result = await anyio.to_thread.run_sync(
                lambda: self._act(tool, arguments, asked, woken), limiter=self._threads
            )
            group.cancel_scope.cancel()
        return result

    def _act(
        self, tool: LeaseTool, arguments: Mapping[str, Any], asked: Asked, woken: threading.Event
    ) -> types.CallToolResult:
        values, meta = dict[str, Any](), dict[str, Any](asked.meta or {})
        try:
            values = read_fields(dict(arguments), tool.fields, what=tool.name, ignored=())
            with self._backend.caller(meta, asked.request, woken, writes=tool.writes) as caller:
                try:
                    return answered(tool.name, tool.act(caller, values))
                except LeaseLost as lost:
                    raise caller.explained(lost) from None
        except GitleaseError as error:
            return refused(tool.name, error, datetime.now(UTC), values)
        except InterruptedError:
            ended = Unavailable("this server is being stopped: the wait was ended")
            return refused(tool.name, ended, datetime.now(UTC), values)
        except Exception:
            logging.getLogger("gitlease").exception("%s", tool.name)
            said = "a fault of gitlease itself: the server's standard error has more"
            raise MCPError(types.INTERNAL_ERROR, said) from None


async def _notice_leaving(woken: threading.Event) -> None:
    """End a wait where its client cancels it or goes."""
    try:
        await anyio.sleep_forever()
    finally:
        woken.set()


async def _tell_waiting(asked: Asked) -> None:
    for told in range(int(LONGEST_WAIT / EVERY)):
        seconds = told * EVERY
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


def _version() -> str:
    from gitlease import __version__

    return __version__
