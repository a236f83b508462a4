"""What a holder does with what it holds: renew, extend, release, complete."""

from __future__ import annotations

from collections.abc import Callable

from gitlease.core.errors import GitleaseError, Invalid, LeaseLost, NotFound, NotHolder
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.frozen import replace
from gitlease.core.lease import Actor, Lease, State
from gitlease.core.ledger import Ledger, Note
from gitlease.core.loss import still_held
from gitlease.core.moves.claiming import event, fit_ttl, new_lease, prolonged, tell_session
from gitlease.core.moves.conflicts import (
    assigned_error,
    held_error,
    may_bind,
    named_in_file,
    relations,
)
from gitlease.core.moves.operations import Complete, Extend, Release, Renew
from gitlease.core.outcome import Event, Outcome
from gitlease.core.relation import TABLE, Relation, Verdict, Verdicts, relation
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource, scopes_overlap


def renew(ledger: Ledger, op: Renew, moment: Moment) -> tuple[Ledger, Outcome]:
    """Bump expiry to now + TTL; never re-acquire what was lost, never shorten."""
    policy, now = ledger.header.policy, moment.now.wall_ms
    if op.ttl is not None:
        fit_ttl(op.ttl, op.ttl, policy, op.resource)
    refused: tuple[GitleaseError, ...] = ()
    if op.grants:
        mine, refused = _of_grants(ledger, op, moment)
    elif op.resource is None:
        mine, refused = of_session(ledger, op.actor, moment)
        if refused and not mine:
            raise refused[0]
    else:
        mine = held_for(ledger, op.resource, op.scope, op.actor, moment)
    state, renewed, binds = ledger, [], False
    for lease in mine:
        ttl = min(lease.ttl, policy.ttl_max) if op.ttl is None else op.ttl
        fresh = prolonged(lease, op.id, ledger, moment, seconds=ttl)
        if op.ttl is not None:
            fresh = replace(fresh, ttl=op.ttl)
        if op.resource is not None and may_bind(ledger, lease, op.actor, moment):
            fresh = replace(fresh, session=op.actor.session)
            binds = True
        renewed.append(fresh)
        state = state.put(fresh)
    return state, Outcome(
        operation=op.id,
        status="renewed",
        leases=tuple(renewed),
        events=tuple(event("renewed", op.id, now, op.actor.holder, x) for x in renewed),
        refused=refused,
        changed=bool(renewed),
        is_renewal=not binds,
    )


def extend(ledger: Ledger, op: Extend, moment: Moment) -> tuple[Ledger, Outcome]:
    """Stretch to at least now + D, capped to the policy's maximum; never shorten."""
    policy, now = ledger.header.policy, moment.now.wall_ms
    seconds = min(op.seconds, policy.ttl_max)
    state, extended = ledger, []
    for lease in held_for(ledger, op.resource, op.scope, op.actor, moment):
        longer = prolonged(lease, op.id, ledger, moment, seconds=seconds)
        if may_bind(ledger, lease, op.actor, moment):
            longer = replace(longer, session=op.actor.session)
        extended.append(longer)
        state = state.put(longer)
    return state, Outcome(
        operation=op.id,
        status="extended",
        leases=tuple(extended),
        events=tuple(event("extended", op.id, now, op.actor.holder, x) for x in extended),
        capped_to_max=seconds < op.seconds,
    )


def release(ledger: Ledger, op: Release, moment: Moment) -> tuple[Ledger, Outcome]:
    """Drop one's own; with none it succeeds, and someone else's is refused."""
    now = moment.now.wall_ms
    state, ended = ledger, []
    for lease in _mine_to_end(ledger, op, moment):
        state = tell_session(state.remove(lease), lease, op, "released", now, op.note)
        ended.append(replace(lease, state=State.RELEASED))
    events = [event("released", op.id, now, op.actor.holder, x, reason=op.note) for x in ended]
    if op.note is not None:
        state = noted(state, op.resource, op.id, op.actor, now, op.note)
        if not ended:
            events.append(note_event(op.id, op.resource, op.actor, now, op.note))
    return state, Outcome(
        operation=op.id,
        status="released",
        leases=tuple(ended),
        events=tuple(events),
        changed=bool(ended) or op.note is not None,
    )


def complete(ledger: Ledger, op: Complete, moment: Moment) -> tuple[Ledger, Outcome]:
    """End as completed: the record stays for a while and refuses claims that do not reopen."""
    now, policy, actor = moment.now.wall_ms, ledger.header.policy, op.actor
    mine = _mine_to_end(ledger, op, moment)
    done_before = _completed(ledger, op.resource, op.scope, actor, moment)
    if not mine and done_before:
        return ledger, Outcome(
            operation=op.id, status="completed", leases=tuple(done_before), changed=False
        )
    if not mine and op.held_only:
        raise NotFound(
            f"nothing to finish: {op.resource} is not a task and you do not hold it",
            resource=op.resource.text,
            hints=("to use a name that is not a task, add --any",),
        )
    state, records = ledger, mine
    if not mine:
        # Finished without a lease: it takes a token like any grant.
        scope = op.scope or WHOLE
        state, record = new_lease(ledger, op, now, scope=scope, ttl=policy.ttl_min)
        records = [record]
    done = [
        replace(
            lease,
            state=State.COMPLETED,
            renewed_at=now,
            expires_at=now,
            operation=op.id,
            margins=policy.margins,
            parked=False,
            picked=False,
        )
        for lease in records
    ]
    for lease in done:
        state = tell_session(state.put(lease), lease, op, "completed", now)
    state = state.with_notes(op.resource, ())
    return state, Outcome(
        operation=op.id,
        status="completed",
        leases=tuple(done),
        events=tuple(event("completed", op.id, now, actor.holder, x) for x in done),
    )


def noted(
    ledger: Ledger, resource: Resource, op_id: str, actor: Actor, at: int, text: str
) -> Ledger:
    """With one more note for the next holder."""
    note = Note(op_id, resource, actor.holder, at, text)
    return ledger.with_notes(resource, (*ledger.notes(resource), note))


def note_event(op_id: str, resource: Resource, actor: Actor, at: int, text: str) -> Event:
    """The audit line of a note."""
    return Event(
        kind="noted",
        operation=op_id,
        at=at,
        by=actor.holder,
        resource=resource.text,
        session=actor.session,
        detail=text,
    )


def _in_scope(lease: Lease, scope: str | None) -> bool:
    return scope is None or fold(lease.scope) == fold(scope)


def _pick(
    stood: list[tuple[Lease, Relation]],
    scope: str | None,
    verb: Callable[[Verdicts], Verdict],
    moment: Moment,
) -> list[Lease]:
    def may(lease: Lease, verdict: Verdict) -> bool:
        if verdict is Verdict.WHILE_LIVE:
            return holder_has(lease, moment)
        return verdict is Verdict.YES

    return [x for x, how in stood if _in_scope(x, scope) and may(x, verb(TABLE[how]))]


def _blockers(
    stood: list[tuple[Lease, Relation]],
    scope: str | None,
    verb: Callable[[Verdicts], Verdict],
    verdict: Verdict,
) -> list[tuple[Lease, Relation]]:
    return [
        (x, how)
        for x, how in stood
        if verb(TABLE[how]) is verdict and (scope is None or scopes_overlap(x.scope, scope))
    ]


def held_for(
    ledger: Ledger,
    resource: Resource,
    scope: str | None,
    actor: Actor,
    moment: Moment,
    verb: Callable[[Verdicts], Verdict] = lambda row: row.renew,
) -> list[Lease]:
    """The caller's live leases of a resource that a verb may change.

    LeaseLost or NotHolder where there is none.
    """
    stood = relations(ledger, resource, actor, moment)
    mine = _pick(stood, scope, verb, moment)
    if mine:
        return mine
    kept = [x for x, how in stood if how is Relation.PARKED and _in_scope(x, scope)]
    if kept:
        raise LeaseLost(
            f"{kept[0].resource} is parked: no session holds it",
            resource=kept[0].resource.text,
            scope=kept[0].scope,
            conflicts=(kept[0],),
            hints=("claim it to resume",),
        )
    policy = ledger.header.policy
    theirs = _blockers(stood, scope, verb, Verdict.NOT_HOLDER)
    if theirs:
        raise held_error(resource, scope, theirs, policy, moment, error=NotHolder)
    raise _lost(resource, scope, tuple(x for x, _ in stood if _in_scope(x, scope)))


def of_session(
    ledger: Ledger, actor: Actor, moment: Moment
) -> tuple[list[Lease], tuple[LeaseLost, ...]]:
    """What a session renews: its live leases, and the refusals of those that ran out.

    Leases left behind by the end of a session are not reported as lost.
    """
    policy = ledger.header.policy
    mine: list[Lease] = []
    lost: list[LeaseLost] = []
    for lease in ledger.every_lease():
        if lease.state is not State.ACTIVE or lease.parked or not lease.answers_to(actor):
            continue
        if relation(lease, actor, policy, moment) is Relation.MINE:
            mine.append(lease)
        elif not lease.left_behind:
            lost.append(_lost(lease.resource, lease.scope, (lease,)))
    return mine, tuple(lost)


def _lost(resource: Resource, scope: str | None, left: tuple[Lease, ...]) -> LeaseLost:
    if not left:
        why = "it is free"
    elif left[0].state is State.COMPLETED:
        why = f"completed by {left[0].holder}"
    else:
        why = f"the lease of {left[0].holder} expired"
    return LeaseLost(
        f"you do not hold {resource}; {why}",
        resource=resource.text,
        scope=scope,
        conflicts=left,
    )


def _of_grants(
    ledger: Ledger, op: Renew, moment: Moment
) -> tuple[list[Lease], tuple[GitleaseError, ...]]:
    mine: list[Lease] = []
    refused: list[GitleaseError] = []
    for grant in op.grants:
        try:
            mine.append(still_held(ledger, grant, op.actor.holder, moment))
        except (LeaseLost, Invalid) as refusal:  # a damaged record keeps only its own from beating
            refused.append(refusal)
    return mine, tuple(refused)


def _mine_to_end(ledger: Ledger, op: Release | Complete, moment: Moment) -> list[Lease]:
    stood = relations(ledger, op.resource, op.actor, moment)
    mine = _pick(stood, op.scope, lambda row: row.end, moment)
    if mine:
        return mine
    theirs = _blockers(stood, op.scope, lambda row: row.end, Verdict.HELD)
    if theirs:
        raise held_error(op.resource, op.scope, theirs, ledger.header.policy, moment)
    named = named_in_file(ledger, op, moment)
    if named:
        raise assigned_error(op.resource, op.scope, named)
    return []


def _completed(
    ledger: Ledger, resource: Resource, scope: str | None, actor: Actor, moment: Moment
) -> list[Lease]:
    wanted = scope or WHOLE
    return [
        x
        for x, how in relations(ledger, resource, actor, moment)
        if how is Relation.COMPLETED and fold(x.scope) in (fold(wanted), WHOLE)
    ]
