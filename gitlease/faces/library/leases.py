"""The library: the verbs of the command line, for Python programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from gitlease.core.edge import Task
from gitlease.core.errors import LeaseLost, Unavailable, UsageError
from gitlease.core.loss import Lost
from gitlease.core.resources.resource import WHOLE, parse_scope
from gitlease.engine import acts
from gitlease.engine.watch import Watcher, WatchEvent
from gitlease.faces.library import running, watching
from gitlease.faces.library.holding import HeldLeases, call_in_thread
from gitlease.faces.library.made import LeaseVerbs
from gitlease.faces.library.methods import Method
from gitlease.faces.library.refusals import (
    Duration,
    ResourceLike,
    refusing_class,
    refusing_events,
    to_list,
    to_seconds,
)
from gitlease.faces.library.values import InitResult
from gitlease.push.fenced_push import PushAnswer as PushAnswer
from gitlease.push.fenced_push import PushRefused as PushRefused
from gitlease.runs.heartbeat import in_a_run
from gitlease.verbs.doors import CloneDoor
from gitlease.verbs.push_options import push_request
from gitlease.verbs.table import Result
from gitlease.wiring.push import open_push
from gitlease.wiring.workspace import (
    Workspace,
    open_workspace,
    record_ledger,
    write_default_settings,
)

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
        self._door = CloneDoor(workspace, layer)
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
    ) -> PushAnswer:
        """Push work and a renewal of its leases in one atomic push: both land, or neither.

        Remote and refspecs are those of ``git push``. The leases are your own that cover the
        commits, and those in ``require``; without any it is a plain push, with a warning.
        ``force`` replaces exactly the state that was read; ``options`` are push options for the
        server. Raises LeaseLost, NotHolder, LeaseHeld if the commits touch what another holds,
        Denied (with ``refs``) if the remote refuses, Unavailable and UnknownOutcome.
        """
        self._ledger.check_holder()
        chosen = {"force": force, "tags": tags, "delete": delete, "push_option": tuple(options)}
        request = push_request(remote, refspecs, chosen, upstream=upstream, hooks=hooks)
        required = [self._door.resource(word) for word in to_list(require, "require")]
        with self._door.explaining("push"):
            answer = open_push(self._workspace).push(request, require=required, dry_run=dry_run)
        self.warnings = tuple(answer.warnings)
        return answer

    def watch(
        self, *resources: ResourceLike, scope: str = WHOLE, timeout: Duration | None = None
    ) -> Iterator[WatchEvent]:
        """Yield events of leases, of these resources or of all, until ``timeout``.

        The first ``next`` reads the remote, and raises what that raises; later an unreachable
        remote is waited for.
        """
        parts = [(self._door.resource(word), parse_scope(scope)) for word in resources]
        seconds = to_seconds(timeout, "timeout")
        return refusing_events(Watcher(self._ledger, parts).events(seconds=seconds))

    def task(self, resource: ResourceLike) -> Task:
        """A task as in its file. Raises NotFound, and Invalid for a broken file."""
        return self._ledger.edges.task(self._door.resource(resource))

    def init(
        self,
        *,
        undo_rollback: bool = False,
        accept_rollback: bool = False,
        new_ledger: bool = False,
    ) -> InitResult:
        """Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is none.

        Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises
        Rollback, unless the choice is given: restore what this clone has seen (``undo_rollback``),
        or accept the remote's state (``accept_rollback``); see `gitlease init --help`. A ledger
        that the settings do not record is refused, unless this remote is to have its own
        (``new_ledger``). An unreachable remote is a warning.
        """
        if undo_rollback and accept_rollback:
            raise UsageError("undo_rollback and accept_rollback exclude each other")
        self._ledger.check_holder()
        reading = None
        try:
            if undo_rollback:
                reading = acts.undo_rollback(self._ledger)
            else:
                reading = acts.confirm(
                    self._ledger, rolled_back=accept_rollback, another=new_ledger
                )
            warnings = reading.warnings
        except Unavailable as error:
            warnings = (error.message,)
        written = write_default_settings(self._workspace.repository)
        _, unrecorded = record_ledger(self._workspace, reading.ledger_id if reading else None)
        self.warnings = (*(written[1].warnings if written else ()), *warnings, *unrecorded)
        return InitResult(
            settings_file=written[0] if written else None,
            place=self._ledger.store.place,
            layer=self._ledger.layer,
            id=reading.ledger_id if reading else None,
            revision=reading.revision if reading else None,
        )

    on_available = watching.on_available
    on_assignment = watching.on_assignment
    run = running.run
    work = running.work

    def _carry_out(self, method: Method, given: Mapping[str, Any]) -> Any:
        """Carry out a verb of the table with these arguments."""
        values = method.values(self._door, given)
        result = method.declared.function(self._door, **values)
        self._note(result)
        if result.refused:
            raise result.refused[0]
        return method.answer_of(result)

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
