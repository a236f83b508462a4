"""Completing leases whose tasks were finished on the main branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import replace
from gitlease.core.lease import Lease, Relation, relation
from gitlease.core.resources.resource import GLOBAL_LAYER, WHOLE, Resource
from gitlease.core.view import LeaseView
from gitlease.engine.answers import MAX_RESOURCES, Answer
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot

OWN = (Relation.MINE, Relation.PARKED, Relation.MINE_LAPSED)
NOTHING = Answer(status="completed", changed=False)


def complete_landed(
    session: LedgerSession,
    leases: Iterable[Lease] | None = None,
    *,
    ended: str | None = None,
) -> Answer:
    """Complete the caller's leases of landed tasks, lapsed ones too; no task file changes.

    ``leases``: only of these; None: of all in this clone's copy.

    The remote is asked only if something has landed, by this clone's copy: first whether the very
    same leases are still there. A lease that ended meanwhile is among ``refused``; more leases than
    one step carries are left for the next time. ``ended`` is as in LandedWork.
    """
    head = session.store.known(session.layer)
    if session.landed is None or head is None or head.ledger is None:
        return NOTHING
    if leases is None:  # without reading the records of everybody else
        leases = head.ledger.live()[0].of_person(session.actor.holder)
    own = _own(session, head, leases)
    landed, branch = session.landed(own, ended=ended) if own else ((), "")
    if not landed:
        return NOTHING
    # Not at the top: readers come here too, and change nothing as a rule.
    from gitlease.core.moves.operations import Complete
    from gitlease.engine.stepping import change
    from gitlease.engine.transaction import fresh_id

    look, ids = session.look(), {lease.lease_id for lease in landed}
    still = [x for x in _own(session, look.head, look.leases) if x.lease_id in ids][:MAX_RESOURCES]
    if not still:
        return replace(NOTHING, warnings=look.warnings)
    operations = [
        Complete(
            id=fresh_id(),
            actor=session.actor,
            resource=lease.resource,
            lease_id=fresh_id(),
            scope=lease.scope,
            held_only=True,
        )
        for lease in still
    ]
    answer = change(session, "completion", operations, together=False)
    messages = tuple(_message(view, branch) for view in answer.leases)
    warnings = tuple(dict.fromkeys((*look.warnings, *answer.warnings, *messages)))
    return replace(answer, warnings=warnings)


def settle_landed(
    session: LedgerSession,
    leases: Iterable[Lease] | None = None,
    *,
    ended: str | None = None,
) -> Answer:
    """Complete landed leases before another verb; a failure is left for the next time."""
    try:
        answer = complete_landed(session, leases, ended=ended)
    except GitleaseError as error:
        answer = replace(NOTHING, warnings=error.warnings)
    usual = session.store.warnings  # of the place itself, nothing new
    return replace(answer, warnings=tuple(x for x in answer.warnings if x not in usual))


def settle_named(
    session: LedgerSession, resources: Iterable[Resource], *, ended: str | None = None
) -> Answer:
    """Do so for leases of these resources."""
    leases = [x for resource in resources for x in session.own_records(resource)]
    return settle_landed(session, leases, ended=ended)


def settle_for_reader(layers: Sequence[LedgerSession]) -> tuple[str, ...]:
    """Do so before a verb that reads every record anyway, in these layers; return messages."""
    messages: list[str] = []
    for session in layers:
        try:
            look = session.known_look()
        except GitleaseError:  # the verb itself reports it
            continue
        if look is not None:
            messages += settle_landed(session, look.leases).warnings
    return tuple(messages)


def landed_for_others(session: LedgerSession, conflicts: Sequence[Lease]) -> tuple[str, ...]:
    """Describe leases in the way whose task is done on the main branch; never fails.

    Only their holder's clone ends them: it may not have fetched that branch yet.
    """
    tasks = [lease for lease in conflicts if lease.edge]
    if session.landed is None or not tasks:
        return ()
    try:
        landed, branch = session.landed(tasks)
    except GitleaseError:
        return ()
    return tuple(
        f"{lease.resource} is done on {branch}; {lease.holder}'s clone has not seen it yet"
        for lease in landed
    )


def _own(session: LedgerSession, head: Snapshot, leases: Iterable[Lease]) -> list[Lease]:
    moment = session.moment(head)
    return [
        lease
        for lease in leases
        if lease.edge  # only a task file can say that it is done
        and relation(lease, session.actor, head.policy, moment) in OWN
    ]


def _message(view: LeaseView, branch: str) -> str:
    scope = "" if view.scope == WHOLE else f" (scope {view.scope})"
    layer = "" if view.layer == GLOBAL_LAYER else f" in layer {view.layer}"
    return f"{view.resource} is done on {branch}: your lease of it{scope}{layer} is completed"
