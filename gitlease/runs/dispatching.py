"""What became of runs in the background, and which of them somebody means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gitlease.core.errors import LeaseHeld, NotFound
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource, parse_resource
from gitlease.runs.running import Ended
from gitlease.runs.runs import RunRecord, RunsFolder

RUNNING, ENDED, LOST, STOPPED = "running", "ended", "lost", "stopped"
FAILED, KILLED = "failed", "killed"


def state_of(record: RunRecord, runs: RunsFolder) -> str:
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


def latest(runs: RunsFolder, resource: Resource, layer: str, *, running: bool = False) -> RunRecord:
    """The newest run of a resource; ``running``: one that still runs, where there is one.

    NotFound where none is remembered.
    """
    found = [x for x in runs.every() if x.layer == layer and _is_of(x, resource)]
    if not found:
        raise NotFound(f"no run of {resource} is known in this clone", resource=resource.text)
    live = (x for x in found if state_of(x, runs) == RUNNING)
    return next(live, found[0]) if running else found[0]


def running_one(runs: RunsFolder, matches: Callable[[RunRecord], bool]) -> RunRecord | None:
    """The newest of some runs that still runs."""
    every = (record for record in runs.every() if matches(record))
    return next((record for record in every if state_of(record, runs) == RUNNING), None)


def _is_of(record: RunRecord, resource: Resource) -> bool:
    return any(parse_resource(text) == resource for text in record.resources)


def refuse_second(runs: RunsFolder, lease_ids: Sequence[str]) -> None:
    """Refuse a lease that a run has already: it was only joined. LeaseHeld names the run."""
    record = running_one(runs, lambda x: not set(lease_ids).isdisjoint(x.lease_ids))
    if record is not None:
        shared = next(x for x in record.lease_ids if x in lease_ids)
        resource = record.resources[record.lease_ids.index(shared)]
        raise LeaseHeld(
            f"{resource} is held by your own run of session {record.session}",
            resource=resource,
            holder=record.holder,
        )


def run_in_the_way(
    runs: RunsFolder, sessions: Sequence[str | None], resource: str | None, layer: str
) -> RunRecord | None:
    """The run in the background of this clone that a refusal is about, while it runs.

    ``sessions`` are those of the leases in the way. Without any it is one's own lease, refused by
    the run that has it and not by the ledger.
    """
    names = {fold(session) for session in sessions if session is not None}
    if sessions:
        return running_one(runs, lambda x: fold(x.session) in names)
    return running_one(runs, lambda x: x.layer == layer and resource in x.resources)
