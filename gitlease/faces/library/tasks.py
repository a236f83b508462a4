"""The verbs of the library that are about tasks: methods of ``Leases``."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import LeaseHeld
from gitlease.core.frozen import replace
from gitlease.core.resources.resource import WHOLE
from gitlease.core.view import Lease
from gitlease.engine import claim
from gitlease.engine.acts import loss_of
from gitlease.engine.answers import Answer
from gitlease.faces.library.arguments import (
    Duration,
    OpenLeases,
    ResourceLike,
    StrPath,
    to_seconds,
    to_terms,
)
from gitlease.faces.library.queue_types import Entry, QueueReading, briefing, entries
from gitlease.faces.statuses import set_status as set_task_status
from gitlease.wiring.words import dead_hooks


def queue(self: OpenLeases, *, ref: str | None = None, cached: bool = False) -> tuple[Entry, ...]:
    """Every task, best first, and whether it may be claimed; ``ref``: of a branch or commit."""
    return entries(self._noted(self._workspace.queue.queue(ref=ref, cached=cached)))


def next_task(self: OpenLeases, *, ref: str | None = None, cached: bool = False) -> Task:
    """The next task of the queue, without claiming it. Raises NothingLeft."""
    reading = self._workspace.queue.next_task(ref=ref, cached=cached)
    return self._noted(reading).next_up[0].task


def claim_next(
    self: OpenLeases,
    *,
    ttl: Duration | None = None,
    reason: str | None = None,
    commit: bool | None = None,
) -> Lease:
    """Claim the next task atomically: two callers never get the same. Raises NothingLeft."""
    terms = to_terms(self._workspace, ttl=ttl, reason=reason, commit=commit)
    return _claimed(self, self._workspace.queue.claim_next(terms)[0])


def brief(self: OpenLeases, *, ref: str | None = None, cached: bool = False) -> QueueReading:
    """Your tasks and leases, those taken from you and why, notes, and the next tasks."""
    return briefing(self._noted(self._workspace.queue.brief(ref=ref, cached=cached)))


def task(self: OpenLeases, resource: ResourceLike) -> Task:
    """A task as in its file. Raises NotFound, and Invalid for a broken file."""
    return self._ledger.edges.task(self._resource(resource))


def start(
    self: OpenLeases,
    resource: ResourceLike,
    *,
    scope: str = WHOLE,
    ttl: Duration | None = None,
    paths: Iterable[StrPath] = (),
    reason: str | None = None,
    wait: Duration | None = None,
    takeover: bool = False,
    expect_holder: str | None = None,
    reopen: bool = False,
    commit: bool | None = None,
) -> Lease:
    """Claim a task and set its status to in progress. Raises what ``claim`` does."""
    terms = to_terms(
        self._workspace,
        scope,
        ttl,
        paths,
        reason,
        takeover,
        reopen,
        commit=commit,
        expect_holder=expect_holder,
    )
    wanted, seconds = self._resource(resource), to_seconds(wait, "wait")
    return _claimed(self, claim.start(self._ledger, wanted, terms, wait=seconds))


def _claimed(leases: OpenLeases, answer: Answer) -> Lease:
    warnings = (*answer.warnings, *dead_hooks(leases._workspace))
    return leases._noted(replace(answer, warnings=warnings)).leases[0]


def set_status(
    self: OpenLeases, resource: ResourceLike, status: str, *, commit: bool | None = None
) -> tuple[Lease, ...]:
    """Set a task's status: ``todo``, ``in_progress``, ``done``, or a word of the project.

    An in-progress status claims it, a done status finishes it; the leases concerned are returned.
    Raises UsageError for an unknown status, LeaseHeld for another's task, and LeaseLost if a task
    is to be finished whose lease others ended.
    """
    try:
        answer = set_task_status(self._ledger, self._resource(resource), status, commit=commit)
    except LeaseHeld as held:
        finishes = self._ledger.edges.rules.progress(status) is Progress.DONE
        raise (finishes and loss_of(self._ledger, held)) or held from None
    return self._noted(answer).leases
