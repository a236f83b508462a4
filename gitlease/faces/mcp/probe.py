"""Starts a server as an agent's host would, and checks that it answers."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence

import anyio
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from gitlease.core.errors import Unavailable, clean

SECONDS = 10.0  # the shortest time that hosts give a server to start


def probe(command: Sequence[str], folder: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the tools of a server, which is started in a folder and stopped again.

    It gets the few variables that hosts pass on, and ``env``. Raises Unavailable, with the last
    line of its standard error, if it does not answer.
    """
    return anyio.run(_probe, command, folder, env)


async def _probe(command: Sequence[str], folder: str, env: Mapping[str, str]) -> tuple[str, ...]:
    started = StdioServerParameters(
        command=command[0], args=list(command[1:]), cwd=folder, env=dict(env)
    )
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        why = f"it did not answer within {SECONDS:g}s"
        try:
            with anyio.fail_after(SECONDS):
                async with Client(stdio_client(started, errlog=stderr)) as client:
                    return tuple(tool.name for tool in (await client.list_tools()).tools)
        except TimeoutError:
            pass
        except Exception as error:  # the SDK raises groups of whatever went wrong
            why = f"{_innermost(error)}"
        with contextlib.suppress(OSError):
            stderr.seek(0)
            why = next(reversed([x for x in stderr.read().splitlines() if x.strip()]), why)
    raise Unavailable(f"{' '.join(command)} does not answer: {clean(why)[:200]}")


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
