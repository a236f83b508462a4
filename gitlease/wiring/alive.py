"""Which runs this clone started and which of them are dead: what a killed one bound comes back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from hashlib import sha256

from gitlease.core.errors import GitleaseError
from gitlease.core.instant import MS
from gitlease.core.lease import same_person
from gitlease.core.moves.operations import Grant
from gitlease.core.resources.resource import WHOLE, parse_resource
from gitlease.engine.answers import Answer
from gitlease.engine.sessions import unbind
from gitlease.git.processes import started_at
from gitlease.runs.runs import RunRecord, RunsFolder
from gitlease.wiring.sharing import forget_run, note_run
from gitlease.wiring.workspace import Workspace

FOLDER = "alive"


def alive_in(workspace: Workspace) -> RunsFolder:
    """A record of each run of this clone that has not given back its leases."""
    private = os.path.join(workspace.repository.common_dir, "gitlease")
    return RunsFolder(private, workspace.ledger.clock.now().boot_id, FOLDER)


def remember(workspace: Workspace, answer: Answer, *, pid: int = 0) -> None:
    """Remember that this process runs under these leases, ``pid`` for it. It never fails."""
    now, own = workspace.ledger.clock.now(), os.getpid()
    bound = [view for view in answer.leases if view.lease_id in answer.bound]
    actor = workspace.identity.actor
    runs = alive_in(workspace)
    record = RunRecord(
        id=_number(answer),
        holder=actor.holder,
        session=actor.session or "",
        layer=workspace.layer,
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
    with contextlib.suppress(OSError):
        runs.make()
        runs.save(record)
    note_run(workspace.repository, record.id, actor, now=now.wall_ms / MS)


def forget(workspace: Workspace, answer: Answer) -> None:
    """Forget a run that has given back its leases, or lost them. It never fails."""
    alive_in(workspace).forget(_number(answer))
    forget_run(workspace.repository, _number(answer))


def is_dead(workspace: Workspace, session: str) -> bool:
    """Whether this session is a run of this clone that is known to be dead on this machine."""
    runs = alive_in(workspace)
    found = [x for x in runs.every() if x.session == session and x.layer == workspace.layer]
    return bool(found) and all(map(runs.is_dead, found))


def unbind_dead(workspace: Workspace) -> tuple[str, ...]:
    """Have back what dead runs of this clone bound; what there is to say of it. It never fails."""
    runs, said = alive_in(workspace), []
    for record in runs.every():
        mine = same_person(record.holder, workspace.identity.actor.holder)
        if not mine or record.layer != workspace.layer or not runs.is_dead(record):
            continue
        try:
            freed = unbind(workspace.again(no_session=True).ledger, _grants(record)).leases
        except GitleaseError:  # a claim says what is wrong
            continue
        runs.forget(record.id)
        said += [
            f"{view.resource}: session {record.session} is dead, and does not hold it any more"
            for view in freed
        ]
    return tuple(said)


def _grants(record: RunRecord) -> Sequence[Grant]:
    return [
        Grant(parse_resource(resource), record.scope, record.session, lease_id, token)
        for resource, lease_id, token in zip(
            record.resources, record.lease_ids, record.tokens, strict=False
        )
    ]


def _number(answer: Answer) -> str:
    """A name for a file: ids of leases are whatever somebody wrote."""
    return sha256(answer.leases[0].lease_id.encode()).hexdigest()[:24]
