"""Callbacks of the library: for what becomes available, and for what is assigned to a person."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.resources.resource import WHOLE, parse_scope
from gitlease.engine.waiting.events import Part
from gitlease.engine.waiting.watching import Watcher
from gitlease.engine.waiting.watching import WatchEvent as WatchEvent
from gitlease.faces.library.arguments import ResourceLike, to_resources
from gitlease.runs.holding import waking_clock
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from gitlease.faces.library.leases import Leases

Callback = TypeVar("Callback", bound=Callable[[WatchEvent], Any])
Opener = Callable[[threading.Event], Workspace]


def on_available(
    self: Leases, *resources: ResourceLike, scope: str = WHOLE
) -> Callable[[Callback], Subscription[Callback]]:
    """Decorate a function to be called each time one of these becomes available.

    That a lease lapses counts too, unless the task stays assigned; what is free at the start
    does not. The function gets the ``WatchEvent`` in a daemon thread, one call after another;
    what it raises goes to ``threading.excepthook`` and does not end the watch. The decorated
    function can still be called, and has ``stop()``: see ``Subscription``.
    """
    wanted = to_resources(self._workspace, resources)
    parts, opened = [(x, parse_scope(scope)) for x in wanted], _opener(self._workspace)
    return lambda function: Subscription(function, opened, parts)


@overload
def on_assignment(self: Leases) -> Callable[[Callback], Subscription[Callback]]: ...


@overload
def on_assignment(self: Leases, function: Callback) -> Subscription[Callback]: ...


def on_assignment(
    self: Leases, function: Callback | None = None
) -> Subscription[Callback] | Callable[[Callback], Subscription[Callback]]:
    """Decorate a function to be called for each task that is newly assigned to this person.

    A claim assigns a task to whoever makes it, so these are the person's own claims, by whichever
    session and on whichever machine: ``event.holder`` and ``event.session`` say by whom, and
    ``event.at`` when, as the ledger's history has it. What is assigned at the start is not told,
    nor a claim of what was assigned before, nor a name that was written into a task file by hand:
    the ledger knows nothing of that. The calls are made as those of ``on_available``.
    """
    opened = _opener(self._workspace)
    if function is not None:
        return Subscription(function, opened)
    return lambda function: Subscription(function, opened)


def _opener(workspace: Workspace) -> Opener:
    actor = workspace.identity.actor
    session = actor.session if actor.session_explicit else None
    return lambda stopped: workspace.again(session=session, clock=waking_clock(workspace, stopped))


class Subscription(Generic[Callback]):
    """A function that is called for what it was subscribed to, until it is stopped.

    ``error`` is the refusal that ended it, where one did. It begins when it is made: ``ready``
    waits until the first look at the remote is done, after which nothing is missed.
    """

    def __init__(
        self,
        function: Callback,
        opened: Opener,
        parts: list[Part] | None = None,
    ) -> None:
        """``parts`` are those whose availability is told; None: what is assigned is."""
        if not callable(function):
            raise UsageError("only a function can be called with what happens")
        functools.update_wrapper(self, function)
        self._function, self._parts, self._opened = function, parts, opened
        self._stopped, self._ready = threading.Event(), threading.Event()
        self.error: GitleaseError | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"gitlease {self._name()}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped" if self.error is None else "failed"
        return f"<Subscription {self._name()}: {state}>"

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
        wanted = "assigned" if self._parts is None else "available"
        watcher = Watcher(
            ledger,
            self._parts or (),
            assignments=self._parts is None,
            on_begin=lambda _head: self._ready.set(),
        )
        for event in watcher.events():
            if self._stopped.is_set():
                return
            if event.kind == wanted:
                self._call(event)

    def _call(self, event: WatchEvent) -> None:
        try:
            self._function(event)
        except Exception as error:
            said = (type(error), error, error.__traceback__, self._thread)
            threading.excepthook(threading.ExceptHookArgs(said))

    def _name(self) -> str:
        if self._parts is None:
            return "on_assignment"
        return " ".join(("on_available", *(resource.text for resource, _ in self._parts)))
