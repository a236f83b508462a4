"""A client of the tools, called without an event loop."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import StdioServerParameters, types
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from gitlease.mcp.server import LeaseServer
from gitlease.mcp.stdio import CloneBackend
from support.fences import clean_env
from support.running import LONG, ROOT

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")


@dataclass
class ToolClient:
    """A client that is connected, and the event loop it lives in."""

    client: Client
    portal: BlockingPortal

    def ask(self, tool: str, meta: Any = None, **arguments: Any) -> types.CallToolResult:
        """What a call came to."""
        return self.portal.call(partial(self.client.call_tool, tool, arguments, meta=meta))

    def document(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Its document."""
        found = self.ask(tool, **arguments)
        assert isinstance(found.structured_content, dict)
        assert found.is_error == (not found.structured_content["ok"])
        return found.structured_content

    def text(self, tool: str, **arguments: Any) -> str:
        """What an agent reads of it."""
        (content,) = self.ask(tool, **arguments).content
        assert isinstance(content, types.TextContent)
        return content.text


@contextlib.contextmanager
def talking(made: AbstractAsyncContextManager[Client]) -> Iterator[ToolClient]:
    """A client in an event loop of its own, until the block ends."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(made) as client:
        yield ToolClient(client, portal)


@contextlib.contextmanager
def in_memory(clone: Path, era: Era = "auto") -> Iterator[ToolClient]:
    """The tools of a clone, in this process."""
    backend = CloneBackend(str(clone))
    with talking(Client(LeaseServer(backend).mcp, mode=era)) as client:
        yield client
    backend.close()


@contextlib.contextmanager
def over_http(url: str, token: str, era: Era = "auto", **headers: str) -> Iterator[ToolClient]:
    """The tools of a gateway."""
    given = {"Authorization": f"Bearer {token}", **headers}

    @contextlib.asynccontextmanager
    async def made() -> AsyncIterator[Client]:
        async with httpx2.AsyncClient(
            headers=given, timeout=LONG, trust_env=False, verify=False
        ) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, mode=era) as client:
                yield client

    with talking(made()) as client:
        yield client


@contextlib.contextmanager
def over_stdio(clone: Path, era: Era = "auto", *, words: Sequence[str]) -> Iterator[ToolClient]:
    """The tools of a clone, in a process of their own."""
    started = StdioServerParameters(
        command=sys.executable,
        args=list(words),
        cwd=clone,
        env=clean_env({"PYTHONPATH": ROOT}),
    )
    with talking(Client(stdio_client(started), mode=era)) as client:
        yield client
