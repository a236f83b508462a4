"""Callbacks of the library for what becomes available."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gitlease.core.errors import GitleaseError
from gitlease.engine.waiting.events import Part
from gitlease.engine.waiting.watching import Watcher
from gitlease.engine.waiting.watching import WatchEvent as WatchEvent
from gitlease.wiring.holding import waking_clock
from gitlease.wiring.workspace import Workspace

Callback = TypeVar("Callback", bound=Callable[[WatchEvent], Any])


def subscribing(
    workspace: Workspace, parts: list[Part]
) -> Callable[[Callback], Subscription[Callback]]:
    """A decorator that has a function called for what becomes available."""
    actor = workspace.identity.actor
    session = actor.session if actor.session_explicit else None

    def opened(stopped: threading.Event) -> Workspace:
        return workspace.again(session=session, clock=waking_clock(stopped))

    return lambda function: Subscription(function, parts, opened)


class Subscription(Generic[Callback]):
    """A function that is called for what becomes available, until it is stopped.

    ``error`` is the refusal that ended it, where one did. It begins when it is made: ``ready``
    waits until the first look at the remote is done, after which nothing is missed.
    """

    def __init__(
        self,
        function: Callback,
        parts: list[Part],
        opened: Callable[[threading.Event], Workspace],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._parts, self._opened = function, parts, opened
        self._stopped, self._ready = threading.Event(), threading.Event()
        self.error: GitleaseError | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"gitlease on_available {self._name()}", daemon=True
        )
        self._thread.start()

    @property
    def function(self) -> Callback:
        """What is called."""
        return self._function

    def __call__(self, event: WatchEvent) -> Any:
        return self._function(event)

    @property
    def running(self) -> bool:
        """Whether the function will still be called."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the watch has begun, at most ``timeout`` seconds; whether it has."""
        return self._ready.wait(timeout) and self.error is None

    def stop(self, timeout: float | None = None) -> None:
        """Stop, and wait for the call that is under way, at most ``timeout`` seconds."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._watch()
        except InterruptedError:
            return  # stopped
        except GitleaseError as error:
            self.error = error
        finally:
            self._ready.set()

    def _watch(self) -> None:
        ledger = self._opened(self._stopped).ledger
        events = Watcher(ledger, self._parts, on_begin=lambda _head: self._ready.set()).events()
        for event in events:
            if self._stopped.is_set():
                return
            if event.kind == "available":
                self._call(event)

    def _call(self, event: WatchEvent) -> None:
        try:
            self._function(event)
        except Exception as error:
            said = (type(error), error, error.__traceback__, self._thread)
            threading.excepthook(threading.ExceptHookArgs(said))

    def _name(self) -> str:
        return " ".join(resource.text for resource, _ in self._parts)
