"""Callbacks of the library: a resource becomes available, or a task is assigned to a person."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.core.resources.resource import WHOLE, parse_scope
from gitlease.engine.watch import Part, Watcher
from gitlease.engine.watch import WatchEvent as WatchEvent
from gitlease.faces.library.refusals import ResourceLike, to_resources
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from gitlease.faces.library.leases import Leases

Callback = TypeVar("Callback", bound=Callable[[WatchEvent], Any])
Opener = Callable[[threading.Event], Workspace]


def on_available(
    self: Leases, *resources: ResourceLike, scope: str = WHOLE
) -> Callable[[Callback], Subscription[Callback]]:
    """Decorate a function to be called each time one of these becomes available.

    A lapse counts unless the task stays assigned; a resource that is free at the start does not.
    The function gets the ``WatchEvent`` in a daemon thread, one call at a time; its exceptions go
    to ``threading.excepthook`` and do not end the watch. The decorated function can still be
    called, and has ``stop()``: see ``Subscription``.
    """
    wanted = to_resources(self._door, resources)
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

    These are the person's own claims, in any session on any machine: see ``event.session``, and
    ``event.at`` for the time in the ledger's history. Tasks assigned at the start are not reported,
    nor claims of tasks assigned before, nor names written into a task file by hand, which the
    ledger does not have. The function is called as for ``on_available``.
    """
    self._ledger.check_holder()
    opened = _opener(self._workspace)
    if function is not None:
        return Subscription(function, opened)
    return lambda function: Subscription(function, opened)


def _opener(workspace: Workspace) -> Opener:
    actor = workspace.identity.actor
    session = actor.session if actor.session_explicit else None
    return lambda stopped: workspace.again(session=session, clock=workspace.waking_clock(stopped))


class Subscription(Generic[Callback]):
    """A function that is called for events, from now until ``stop``.

    ``error`` is the refusal that ended it, if any. ``ready`` waits for the first look at the
    remote, after which no event is missed.
    """

    def __init__(
        self,
        function: Callback,
        opened: Opener,
        parts: list[Part] | None = None,
    ) -> None:
        """``parts``: report their availability; None: report assignments."""
        if not callable(function):
            raise UsageError("a subscription needs a function")
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
        """The decorated function."""
        return self._function

    def __call__(self, event: WatchEvent) -> Any:
        return self._function(event)

    @property
    def running(self) -> bool:
        """Whether the function will still be called."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the watch has begun, at most ``timeout`` seconds; return whether it has."""
        return self._ready.wait(timeout) and self.error is None

    def stop(self, timeout: float | None = None) -> None:
        """Stop, and wait for a call under way, at most ``timeout`` seconds."""
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
            args = (type(error), error, error.__traceback__, self._thread)
            threading.excepthook(threading.ExceptHookArgs(args))

    def _name(self) -> str:
        if self._parts is None:
            return "on_assignment"
        return " ".join(("on_available", *(resource.text for resource, _ in self._parts)))
