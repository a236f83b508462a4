"""``gitlease.connect_async``: the verbs of a connection to a gateway, for event loops."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from socket import SHUT_RDWR, socket
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gitlease.core.errors import GitleaseError
from gitlease.faces.library.connection import Connection, connect
from gitlease.faces.library.gateway_answers import GatewayEvent

P = ParamSpec("P")
T = TypeVar("T")
MOST_AT_ONCE = 256  # calls at the same time


class _Awaited(Generic[P, T]):
    """A verb of ``Connection``, to be awaited, with its own parameters and answer."""

    def __init__(self, verb: Callable[Concatenate[Connection, P], T]) -> None:
        self._verb = verb

    def __get__(self, made: AsyncConnection, owner: type) -> Callable[P, Any]:
        async def call(*args: P.args, **options: P.kwargs) -> T:
            work = functools.partial(self._verb, made.connection, *args, **options)
            return await asyncio.get_running_loop().run_in_executor(made.threads, work)

        return call


class AsyncConnection:
    """The verbs of ``Connection``, awaited, each in a thread of its own.

    A cancelled call goes on in its thread: its outcome is unknown until you read it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.threads = ThreadPoolExecutor(MOST_AT_ONCE, "gitlease")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Nothing is released: a lease ends by ``release``, ``done`` or time."""
        self.threads.shutdown(wait=False)

    claim = _Awaited(Connection.claim)
    claim_all = _Awaited(Connection.claim_all)
    renew = _Awaited(Connection.renew)
    extend = _Awaited(Connection.extend)
    release = _Awaited(Connection.release)
    done = _Awaited(Connection.done)
    show = _Awaited(Connection.show)
    list = _Awaited(Connection.list)
    claim_next = _Awaited(Connection.claim_next)
    held_paths = _Awaited(Connection.held_paths)

    async def events(self, *, after: str | None = None) -> AsyncGenerator[GatewayEvent, None]:
        """Events as they happen, as from ``Connection.events``."""
        loop, opened, left = asyncio.get_running_loop(), list[socket](), threading.Event()
        events: asyncio.Queue[GatewayEvent | GitleaseError | None] = asyncio.Queue()

        def put(one: GatewayEvent | GitleaseError | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(events.put_nowait, one)

        def begin(connected: socket) -> None:
            opened.append(connected)
            if left.is_set():
                raise ConnectionAbortedError

        def read() -> None:
            try:
                for event in self.connection._events(after, begin):
                    put(event)
            except GitleaseError as error:
                put(error)
            finally:
                put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            while (one := await events.get()) is not None:
                if isinstance(one, GitleaseError):
                    raise one
                yield one
        finally:
            left.set()
            for connected in opened:
                with contextlib.suppress(OSError):  # ends the thread that reads it
                    connected.shutdown(SHUT_RDWR)


def connect_async(url: str, *, token: str, session: str | None = None) -> AsyncConnection:
    """The same for programs with an event loop: every verb is awaited."""
    return AsyncConnection(connect(url, token=token, session=session))
