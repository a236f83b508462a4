"""The runs of this clone that have not given back their leases, and which of them are dead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from gitlease.core.lease import Actor, same_person
from gitlease.core.moves.operations import Grant
from gitlease.core.resources.resource import WHOLE, parse_resource
from gitlease.engine.answers import Answer
from gitlease.engine.ports import DeadRun
from gitlease.git.repository import LIVE_RUNS, short_host
from gitlease.git.run import numbered_in, started_at
from gitlease.runs.runs import RunRecord, RunsFolder, runs_of

if TYPE_CHECKING:
    from gitlease.core.view import LeaseView
    from gitlease.runs.place import RunPlace


def alive_in(place: RunPlace) -> RunsFolder:
    """A record of each run of this clone that has not given back its leases."""
    return runs_of(place, LIVE_RUNS)


def remember(place: RunPlace, answer: Answer, *, pid: int = 0, present: bool = True) -> None:
    """Record that this process, and ``pid`` for it, runs under these leases. It never fails.

    ``present``: other sessions of the work tree see it, too.
    """
    now, own, leases = place.ledger.clock.now(), os.getpid(), answer.leases
    record = RunRecord(
        id=_run_id(answer),
        holder=place.actor.holder,
        session=place.actor.session or "",
        layer=place.layer,
        resources=tuple(view.resource for view in leases),
        scope=leases[0].scope if leases else WHOLE,
        lease_ids=tuple(view.lease_id for view in leases),
        tokens=tuple(view.token for view in leases),
        command=(),
        log="",
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        runner=own,
        runner_started=started_at(own),
        pid=pid,
        pid_started=started_at(pid) if pid else "",
        namespace=numbered_in(),
        granted=tuple(x.lease_id for x in leases if not x.renewals),
        joined=tuple(x.lease_id for x in leases if x.renewals and x.lease_id not in answer.bound),
        alone=not place.actor.session_explicit,
    )
    runs = alive_in(place)
    with contextlib.suppress(OSError):
        runs.make()
        runs.save(record)
    if present:
        place.note_run(record.id)


def forget(place: RunPlace, answer: Answer) -> None:
    """Forget a run that has given back its leases, or lost them. It never fails."""
    alive_in(place).forget(_run_id(answer))
    place.forget_run(_run_id(answer))


def has_ended(view: LeaseView) -> bool:
    """Whether the process that a lease names is known to have ended on this machine."""
    return view.pid is not None and view.host == short_host() and not started_at(view.pid)


def still_runs(view: LeaseView) -> bool:
    """Whether this machine has a process with the number that a lease names."""
    return view.pid is not None and view.host == short_host() and bool(started_at(view.pid))


class ClonesRuns:
    """The runs of one layer of a clone, as the engine asks for them."""

    def __init__(self, runs: RunsFolder, layer: str) -> None:
        self._runs, self._layer = runs, layer

    def live(self) -> frozenset[str]:
        """The ids of the leases that live runs have."""
        records = (x for x in self._here() if self._runs.is_alive(x))
        return frozenset(lease_id for record in records for lease_id in record.lease_ids)

    def dead(self, actor: Actor) -> tuple[DeadRun, ...]:
        """The dead runs of this person."""
        records = (x for x in self._here() if same_person(x.holder, actor.holder))
        return tuple(_dead_run(x, self._runs.forget) for x in records if self._runs.is_dead(x))

    def _here(self) -> Iterable[RunRecord]:
        return (record for record in self._runs.every() if record.layer == self._layer)


def _dead_run(record: RunRecord, forget: Callable[[str], None]) -> DeadRun:
    grants = [
        Grant(parse_resource(resource), record.scope, record.session, lease_id, token)
        for resource, lease_id, token in zip(
            record.resources, record.lease_ids, record.tokens, strict=False
        )
    ]
    granted = tuple(x for x in grants if x.lease_id in record.granted)
    kept = {*record.granted, *record.joined}
    return DeadRun(
        session=record.session,
        granted=granted,
        bound=tuple(x for x in grants if x.lease_id not in kept),
        alone=record.alone,
        forget=lambda: forget(record.id),
    )


def _run_id(answer: Answer) -> str:
    # Lease ids are untrusted, and this names a file.
    return sha256(answer.leases[0].lease_id.encode()).hexdigest()[:24]
