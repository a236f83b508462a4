"""``gitlease.connect_async``: the verbs of a connection to a gateway, for event loops."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from socket import SHUT_RDWR, socket
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gitlease.core.errors import GitleaseError
from gitlease.faces.library.connection import Connection, connect
from gitlease.faces.library.gateway_answers import GatewayEvent

P = ParamSpec("P")
T = TypeVar("T")
MOST_AT_ONCE = 256  # calls at the same time


class AwaitedVerb(Generic[P, T]):
    """A verb, to be awaited, with its own parameters and answer.

    ``grants``: the leases it returns are released if the call was cancelled.
    """

    def __init__(self, verb: Callable[Concatenate[Any, P], T], *, grants: bool = False) -> None:
        self._verb, self._grants = verb, grants

    def __get__(self, owner: Any, kind: type) -> Callable[P, Coroutine[Any, Any, T]]:
        def call(*args: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
            return owner._call(self._verb, args, options, grants=self._grants)  # type: ignore[no-any-return]

        return functools.update_wrapper(call, self._verb)


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

    claim = AwaitedVerb(Connection.claim)
    claim_all = AwaitedVerb(Connection.claim_all)
    renew = AwaitedVerb(Connection.renew)
    extend = AwaitedVerb(Connection.extend)
    release = AwaitedVerb(Connection.release)
    done = AwaitedVerb(Connection.done)
    show = AwaitedVerb(Connection.show)
    list = AwaitedVerb(Connection.list)
    claim_next = AwaitedVerb(Connection.claim_next)
    held_paths = AwaitedVerb(Connection.held_paths)

    async def _call(self, verb: Callable[..., T], args: Any, options: Any, *, grants: bool) -> T:
        work = functools.partial(verb, self.connection, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

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
