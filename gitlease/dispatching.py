"""What became of runs in the background, and which of them somebody means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gitlease.domain.background import RunRecord
from gitlease.domain.errors import LeaseHeld, NotFound
from gitlease.domain.pattern import fold
from gitlease.domain.resource import Resource, parse_resource
from gitlease.ports_running import Runs
from gitlease.running import Ended

RUNNING, ENDED, LOST, STOPPED = "running", "ended", "lost", "stopped"
FAILED, KILLED = "failed", "killed"


def state_of(record: RunRecord, runs: Runs) -> str:
    """What a run is: ``killed`` is one whose runner is gone without a word."""
    if record.outcome is not None:
        return record.outcome
    return RUNNING if runs.runs(record) else KILLED


def outcome_of(ended: Ended) -> str:
    """How a run ended, in a word."""
    if ended.lost:
        return LOST
    if ended.failure is not None:
        return FAILED
    return STOPPED if ended.stopped else ENDED


def message_of(ended: Ended) -> str | None:
    """What more is to be said of how it ended."""
    return ended.lost[0].error.message if ended.lost else ended.failure


def latest(runs: Runs, resource: Resource, layer: str) -> RunRecord:
    """The newest run of a resource. NotFound where none is remembered."""
    for record in runs.every():
        if record.layer == layer and _is_of(record, resource):
            return record
    raise NotFound(f"no run of {resource} is known in this clone", resource=resource.text)


def running(runs: Runs, resource: Resource, layer: str) -> RunRecord:
    """The run of a resource that still runs, else the newest one. NotFound where there is none."""
    found = _running(runs, lambda x: x.layer == layer and _is_of(x, resource))
    return found or latest(runs, resource, layer)


def _running(runs: Runs, matches: Callable[[RunRecord], bool]) -> RunRecord | None:
    """The newest of some runs that still runs."""
    every = (record for record in runs.every() if matches(record))
    return next((record for record in every if state_of(record, runs) == RUNNING), None)


def _is_of(record: RunRecord, resource: Resource) -> bool:
    return any(parse_resource(text) == resource for text in record.resources)


def refuse_second(runs: Runs, lease_ids: Sequence[str]) -> None:
    """Refuse a lease that a run has already: it was only joined. LeaseHeld names the run."""
    record = _running(runs, lambda x: not set(lease_ids).isdisjoint(x.lease_ids))
    if record is not None:
        shared = next(x for x in record.lease_ids if x in lease_ids)
        resource = record.resources[record.lease_ids.index(shared)]
        raise LeaseHeld(
            f"{resource} is held by your own run of session {record.session}",
            resource=resource,
            holder=record.holder,
        )


def run_that_has(runs: Runs, resource: str | None, layer: str) -> RunRecord | None:
    """The run in the background of this clone that holds a resource, while it runs."""
    return _running(runs, lambda x: x.layer == layer and resource in x.resources)


def holder_run(runs: Runs, session: str | None) -> RunRecord | None:
    """The run in the background of this clone that is in a session, while it runs."""
    if session is None:
        return None
    return _running(runs, lambda x: fold(x.session) == fold(session))
