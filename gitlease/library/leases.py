"""The library: the verbs of the command line, for Python programs."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

from gitlease.kernel.ledger.heartbeat import in_a_run
from gitlease.kernel.ledger.watch import Part, Watcher
from gitlease.kernel.ledger.watch import WatchEvent as WatchEvent
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import GitleaseError, LeaseLost, UsageError
from gitlease.kernel.rules.loss import Lost
from gitlease.kernel.rules.resources import WHOLE, parse_scope
from gitlease.landing.fenced_push import PushAnswer as PushAnswer
from gitlease.landing.fenced_push import PushRefused as PushRefused
from gitlease.landing.opening import open_push
from gitlease.landing.push_options import override_reason, push_request
from gitlease.library.holding import HeldLeases, call_in_thread
from gitlease.library.lease_verbs import LeaseVerbs
from gitlease.library.methods import (
    CLONE_METHODS,
    ResourceLike,
    refusing_class,
    to_list,
    to_resources,
)
from gitlease.runs.child import CannotExecute as CannotExecute
from gitlease.runs.child import NoCommand as NoCommand
from gitlease.verbs.table import Result
from gitlease.wiring.doors import CloneDoor
from gitlease.wiring.workspace import Workspace, open_workspace

MOMENT = 2.0  # seconds
Callback = TypeVar("Callback", bound=Callable[[WatchEvent], Any])
Opener = Callable[[threading.Event], Workspace]
OnLost = Callable[["Session", LeaseLost], object]


@refusing_class
class Leases(LeaseVerbs):
    """The leases and tasks of one repository, for one holder and session: see ``gitlease.open``.

    Leaving the ``with`` block releases nothing: a lease ends by ``release``, ``done`` or time.
    ``warnings`` are those of the last answer.
    """

    _is_run = False  # whether its session is that of one run, which the commands it runs share

    def __init__(
        self,
        workspace: Workspace,
        *,
        layer: str | None = None,
        open_at: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        """``layer`` is the one named by the caller; ``open_at`` opens another folder likewise."""
        self._workspace, self._ledger = workspace, workspace.ledger
        self._door = CloneDoor(workspace, layer, open_at)
        self._layer, self._open_at = layer, open_at
        self.warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        holder = self.holder or "nobody"
        who = holder if self.session is None else f"{holder}, session {self.session}"
        name = type(self).__name__
        return f"<{name} of {who}: layer {self._ledger.layer} on {self._ledger.store.place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    @property
    def holder(self) -> str:
        """The person who claims: git's ``user.email``; empty if there is none."""
        return self._workspace.identity.actor.holder

    @property
    def session(self) -> str | None:
        """The holder's session, if any."""
        return self._workspace.identity.actor.session

    def push(
        self,
        remote: str | None = None,
        *refspecs: str,
        require: Iterable[ResourceLike] = (),
        upstream: bool = False,
        force: bool = False,
        tags: bool = False,
        delete: bool = False,
        options: Iterable[str] = (),
        hooks: bool = True,
        dry_run: bool = False,
        override: str | None = None,
    ) -> PushAnswer:
        """Push work and a renewal of its leases in one atomic push: both land, or neither.

        Remote and refspecs are those of ``git push``. The leases are your own that cover the
        commits, and those in ``require``; without any it is a plain push, with a warning.
        ``force`` replaces exactly the state that was read; ``options`` are push options for the
        server. ``override`` is why commits of superseded leases are pushed all the same, and is
        recorded. Raises LeaseLost, also for such commits, NotHolder, LeaseHeld if the commits touch
        what another holds, Denied (with ``refs``) if the remote refuses, Unavailable and
        UnknownOutcome.
        """
        self._ledger.check_holder()
        chosen = {"force": force, "tags": tags, "delete": delete, "push_option": tuple(options)}
        request = push_request(remote, refspecs, chosen, upstream=upstream, hooks=hooks)
        required = [self._door.resource(word) for word in to_list(require, "require")]
        with self._door.explaining("push"):
            answer = open_push(self._workspace).push(
                request, require=required, dry_run=dry_run, override=override_reason(override)
            )
        self.warnings = tuple(answer.warnings)
        return answer

    def task(self, resource: ResourceLike) -> Task:
        """A task as in its file. Raises NotFound, and Invalid for a broken file."""
        return self._ledger.edges.task(self._door.resource(resource))

    def on_available(
        self, *resources: ResourceLike, scope: str = WHOLE
    ) -> Callable[[Callback], Subscription[Callback]]:
        """Decorate a function to be called each time one of these becomes available.

        A lapse counts unless the task stays assigned; a resource that is free at the start does
        not. The function gets the ``WatchEvent`` in a daemon thread, one call at a time; its
        exceptions go to ``threading.excepthook`` and do not end the watch. The decorated function
        can still be called, and has ``stop()``: see ``Subscription``.
        """
        wanted = to_resources(self._door, resources)
        parts, opened = [(x, parse_scope(scope)) for x in wanted], _opener(self._workspace)
        return lambda function: Subscription(function, opened, parts)

    @overload
    def on_assignment(self) -> Callable[[Callback], Subscription[Callback]]: ...

    @overload
    def on_assignment(self, function: Callback) -> Subscription[Callback]: ...

    def on_assignment(
        self, function: Callback | None = None
    ) -> Subscription[Callback] | Callable[[Callback], Subscription[Callback]]:
        """Decorate a function to be called for each task that is newly assigned to this person.

        These are the person's own claims, in any session on any machine: see ``event.session``, and
        ``event.at`` for the time in the ledger's history. Tasks assigned at the start are not
        reported, nor claims of tasks assigned before, nor names written into a task file by hand,
        which the ledger does not have. The function is called as for ``on_available``.
        """
        self._ledger.check_holder()
        opened = _opener(self._workspace)
        if function is not None:
            return Subscription(function, opened)
        return lambda function: Subscription(function, opened)

    def _carry_out(self, name: str, given: Mapping[str, Any]) -> Any:
        """Carry out the method of this name with these arguments."""
        method = CLONE_METHODS[name]
        verb, door = method.declared, self._door
        if verb.runs:
            door = self._to_run(verb.name, alone=verb.session)
        result = verb.answer(door, **method.values(door, method.differing(given)))
        self._note(result)
        if result.refused:
            raise result.refused[0]
        if verb.runs and result.failure is not None:
            raise result.failure
        return method.answer_of(result)

    def _to_run(self, verb: str, *, alone: bool) -> CloneDoor:
        """The door for a verb that runs commands, with ``alone`` in a session of its own."""
        # Python lets no other thread handle signals.
        if threading.current_thread() is not threading.main_thread():
            raise UsageError(
                f"{verb} needs the main thread: it handles signals and a child process",
                hints=("in another thread, use gitlease.hold around your own command",),
            )
        if self._door.in_memory:
            raise UsageError(f"{verb} needs a real repository: this ledger is in memory")
        if not alone:
            _only_thread()
            return self._door
        # Within a session its own is taken: what runs under it is of the same run.
        space = self._workspace if self._is_run else in_a_run(self._workspace, verb)
        return CloneDoor(space, self._layer, self._open_at)

    def _note(self, result: Result) -> None:
        self.warnings = tuple(result.warnings)


@refusing_class
class Session(Leases):
    """The verbs of ``Leases``, for one run that lasts as long as a ``with`` block.

    ``lost`` is an event, set once any lease of it is lost.
    """

    _is_run = True

    def __init__(
        self,
        workspace: Workspace,
        *,
        on_lost: OnLost | None = None,
        layer: str | None = None,
        open_at: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        super().__init__(in_a_run(workspace, "session"), layer=layer, open_at=open_at)
        self.lost = threading.Event()
        self._on_lost = on_lost
        self._kept = HeldLeases(self._workspace, self.lost, self._report)

    def check(self) -> None:
        """Raise LeaseLost if any lease that was claimed here is lost."""
        self._kept.check()

    def __exit__(self, *raised: object) -> None:
        self._kept.release()
        error = next((x for x in raised if isinstance(x, BaseException)), None)
        self._kept.end(error)

    def _report(self, lost: Lost) -> None:
        if self._on_lost is not None:
            call_in_thread(self._on_lost, self, lost.error)

    def _note(self, result: Result) -> None:
        if result.answer is not None:
            self._kept.learn(result.answer)
        super()._note(result)


def _only_thread() -> None:
    # A fork has only the thread that forks, and the locks of the others as they were. Threads that
    # have renewed leases until now end within a moment.
    end = time.monotonic() + MOMENT
    others = [x for x in threading.enumerate() if x is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    if names := ", ".join(sorted(x.name for x in others if x.is_alive())):
        raise UsageError(
            f"work forks this program, which other threads would not survive: {names}",
            hints=("call it before they start, or after they end",),
        )


# --- callbacks ------------------------------------------------------------------------------------


def _opener(workspace: Workspace) -> Opener:
    actor = workspace.identity.actor
    session = actor.session if actor.session_explicit else None
    return lambda stopped: workspace.again(session=session, clock=workspace.waking_clock(stopped))


class Subscription(Generic[Callback]):
    """A function that is called for events, from now until ``stop``.

    ``error`` is the refusal that ended it, if any. ``ready`` waits for the first look at the
    remote, after which no event is missed.
    """

    def __init__(self, function: Callback, opened: Opener, parts: list[Part] | None = None) -> None:
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
        """Return whether the function will still be called."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the watch has begun, at most ``timeout`` seconds; return whether it has."""
        return self._ready.wait(timeout) and self.error is None

    def stop(self, timeout: float | None = None) -> None:
        """Stop, and wait for a call under way, at most ``timeout`` seconds."""
        self._stopped.set()
        # A function may stop its own subscription, and cannot wait for itself.
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._watch()
        except InterruptedError:
            return  # stopped
        except GitleaseError as error:
            # Told by ``ready`` and ``error``: no caller waits here who could get it.
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
            # As for any thread of the program's: a faulty listener must not end the watch.
            args = (type(error), error, error.__traceback__, self._thread)
            threading.excepthook(threading.ExceptHookArgs(args))

    def _name(self) -> str:
        if self._parts is None:
            return "on_assignment"
        return " ".join(("on_available", *(resource.text for resource, _ in self._parts)))
