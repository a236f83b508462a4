"""The library's verbs about time to come: wait, watch, and callbacks for what becomes available."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from gitlease.bootstrap import Workspace
from gitlease.bootstrap_holding import waking_clock
from gitlease.domain.errors import GitleaseError
from gitlease.domain.resource import WHOLE, parse_scope
from gitlease.domain.watching import Part
from gitlease.faces.opened import Duration, Opened, to_seconds
from gitlease.watching import Watcher
from gitlease.watching import WatchEvent as WatchEvent

Callback = TypeVar("Callback", bound=Callable[[WatchEvent], Any])


class WatchVerbs(Opened):
    """What one may ask about leases of others, beside what they are now."""

    def wait(
        self,
        *resources: str,
        scope: str = WHOLE,
        timeout: Duration | None = None,
    ) -> None:
        """Return once a claim of all of these would be granted; nothing is claimed.

        Raises WaitTimeout after ``timeout`` (None: never), and PolicyRefused for completed work.
        """
        seconds = to_seconds(timeout, "timeout")
        wanted = self._resources(resources)
        self._heard(self._service.wait(wanted, scope=parse_scope(scope), seconds=seconds))

    def watch(
        self,
        *resources: str,
        scope: str = WHOLE,
        timeout: Duration | None = None,
    ) -> Iterator[WatchEvent]:
        """Yield what happens to leases, of these resources or of all, until ``timeout``.

        It begins with the first ``next``, which looks at the remote and raises what that raises;
        later a remote that cannot be reached is waited for.
        """
        parts = self._parts(resources, scope)
        seconds = to_seconds(timeout, "timeout")
        return Watcher(self._service, parts).events(seconds=seconds)

    def on_available(
        self, *resources: str, scope: str = WHOLE
    ) -> Callable[[Callback], Subscription[Callback]]:
        """Decorate a function to be called each time one of these becomes available.

        A lease that lapses counts like one that is released, unless the task stays assigned; what
        is free when the watch begins is not told. The function gets the ``WatchEvent``, in a daemon
        thread that has the repository opened for itself, one call after another; what it raises
        goes to ``threading.excepthook`` and does not end the watch. What the decorator leaves in
        the function's place can be called like it and has ``stop()``: see ``Subscription``.
        """
        parts = self._parts(self._resources(resources), scope)
        actor = self._workspace.identity.actor
        session = actor.session if actor.session_explicit else None

        def opened(stopped: threading.Event) -> Workspace:
            clock = waking_clock(stopped)
            return self._workspace.again(session=session, clock=clock)

        return lambda function: Subscription(function, parts, opened)

    def _parts(self, resources: Iterable[Any], scope: str) -> list[Part]:
        part = parse_scope(scope)
        return [(self._resource(str(word)), part) for word in resources]


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
        service = self._opened(self._stopped).service
        events = Watcher(service, self._parts, on_begin=self._ready.set).events()
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
