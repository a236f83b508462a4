"""Which runs this clone started and which of them are dead: what a killed one bound comes back."""

from __future__ import annotations

import contextlib
import os
from hashlib import sha256
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError
from gitlease.core.lease import same_person
from gitlease.core.moves.operations import Grant
from gitlease.core.resources.resource import WHOLE, parse_resource
from gitlease.engine.answers import Answer
from gitlease.engine.sessions import unbind
from gitlease.git.processes import started_at
from gitlease.runs.runs import RunRecord, RunsFolder, runs_of

if TYPE_CHECKING:
    from gitlease.runs.place import RunPlace


def alive_in(place: RunPlace) -> RunsFolder:
    """A record of each run of this clone that has not given back its leases."""
    return runs_of(place, "alive")


def remember(place: RunPlace, answer: Answer, *, pid: int = 0) -> None:
    """Record that this process, and ``pid`` for it, runs under these leases. It never fails."""
    now, own = place.ledger.clock.now(), os.getpid()
    bound = [view for view in answer.leases if view.lease_id in answer.bound]
    record = RunRecord(
        id=_run_id(answer),
        holder=place.actor.holder,
        session=place.actor.session or "",
        layer=place.layer,
        resources=tuple(view.resource for view in bound),
        scope=bound[0].scope if bound else WHOLE,
        lease_ids=tuple(view.lease_id for view in bound),
        tokens=tuple(view.token for view in bound),
        command=(),
        log="",
        began_at=now.wall_ms,
        boot_id=now.boot_id,
        runner=own,
        runner_started=started_at(own),
        pid=pid,
    )
    runs = alive_in(place)
    with contextlib.suppress(OSError):
        runs.make()
        runs.save(record)
    place.note_run(record.id)


def forget(place: RunPlace, answer: Answer) -> None:
    """Forget a run that has given back its leases, or lost them. It never fails."""
    alive_in(place).forget(_run_id(answer))
    place.forget_run(_run_id(answer))


def is_dead(place: RunPlace, session: str) -> bool:
    """Whether this session is a run of this clone that is known to be dead on this machine."""
    runs = alive_in(place)
    records = [x for x in runs.every() if x.session == session and x.layer == place.layer]
    return bool(records) and all(map(runs.is_dead, records))


def unbind_dead(place: RunPlace) -> tuple[str, ...]:
    """Take back what dead runs of this clone bound; return warnings. It never fails."""
    runs, warnings = alive_in(place), []
    for record in runs.every():
        mine = same_person(record.holder, place.actor.holder)
        if not mine or record.layer != place.layer or not runs.is_dead(record):
            continue
        grants = [
            Grant(parse_resource(resource), record.scope, record.session, lease_id, token)
            for resource, lease_id, token in zip(
                record.resources, record.lease_ids, record.tokens, strict=False
            )
        ]
        try:
            freed = unbind(place.again(no_session=True).ledger, grants).leases
        except GitleaseError:  # the claim that follows reports it
            continue
        runs.forget(record.id)
        warnings += [
            f"{view.resource}: session {record.session} is dead, and no longer holds it"
            for view in freed
        ]
    return tuple(warnings)


def _run_id(answer: Answer) -> str:
    # Lease ids are untrusted, and this names a file.
    return sha256(answer.leases[0].lease_id.encode()).hexdigest()[:24]
