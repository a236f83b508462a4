"""Moves of held leases (renewed, ended, bound, cleaned up, revoked), and of policy, notes and
notices.

A session that ends without having finished its work has its leases run out now, and keeps edges:
the record stays, bound to no session, so that a clone that cannot see the edge yet respects it.
Whatever another session of the same person ends, or the person, leaves word for whose it was.

What a run binds of its person's is that run's alone: a second one is refused, wherever it is
started. At its end the run gives it back, unbound and not released, since it was the person's
before. A run that is killed leaves it bound until it lapses, or until its person unbinds it: the
ledger cannot know that a process is dead, so whoever asks as the person has made sure of that.

A lease that lapsed is nobody's, so whoever cleans up may drop it. What an edge still keeps for its
holder is retired only where that is asked for, with a reason. A live lease is never touched, and
neither is a grant that was not named: a claim that came in between stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gitlease.kernel.rules.errors import (
    ADMINS,
    USE_ANY,
    GitleaseError,
    Invalid,
    LeaseHeld,
    LeaseLost,
    Loss,
    NotFound,
    NotHolder,
    PolicyRefused,
    UsageError,
    hint,
)
from gitlease.kernel.rules.frozen import non_defaults, replace
from gitlease.kernel.rules.instant import format_duration
from gitlease.kernel.rules.lease import (
    MAX_REASON,
    TABLE,
    Actor,
    Lease,
    Moment,
    Policy,
    Relation,
    State,
    Verdict,
    Verdicts,
    lease_key,
    relation,
    same_person,
    without_process,
)
from gitlease.kernel.rules.ledger import (
    EPOCH_SIZE,
    MAX_STEP,
    NOTED,
    NOTICES_KEPT,
    PICKED_FORMAT,
    Ledger,
    Note,
)
from gitlease.kernel.rules.loss import no_longer, reason_text, still_held
from gitlease.kernel.rules.moves import claiming
from gitlease.kernel.rules.moves import operations as ops
from gitlease.kernel.rules.moves.claiming import Relations, event, outcome, relations
from gitlease.kernel.rules.moves.closing import check_open
from gitlease.kernel.rules.moves.operations import Event, Grant, Operation, Outcome
from gitlease.kernel.rules.policy import NO_ADMINS, admin_words, change_policy
from gitlease.kernel.rules.resources import (
    WHOLE,
    Issues,
    Resource,
    fold,
    issue_resource,
    reads_as_issue,
    scopes_overlap,
)

UNASSIGNED = "unassigned"
Verb = Callable[[Verdicts], Verdict]
"""The column of the table that a verb reads."""


def renew(ledger: Ledger, op: ops.Renew, moment: Moment) -> tuple[Ledger, Outcome]:
    """Bump expiry to now + TTL; never re-acquire what was lost, never shorten."""
    policy = ledger.header.policy
    if op.ttl is not None:
        claiming.fit_ttl(op.ttl, op.ttl, policy, op.resource)
    mine, refused = list[Lease](), list[GitleaseError]()
    for grant in op.grants:
        try:
            mine.append(unshared(ledger, still_held(ledger, grant, op.actor.holder, moment)))
        except (LeaseLost, Invalid) as refusal:  # a damaged record keeps only its own from beating
            refused.append(refusal)
    if not op.grants and op.resource is not None:
        mine = held_for(ledger, op.resource, op.scope, op.actor, moment)
    elif not op.grants:
        mine, lost = of_session(ledger, op.actor, moment)
        refused += lost
        if refused and not mine:
            raise refused[0]
    state, renewed, binds = ledger, [], False
    for lease in mine:
        # The policy may have become stricter since the grant.
        ttl = min(lease.ttl, policy.ttl_max) if op.ttl is None else op.ttl
        fresh = claiming.prolonged(lease, op.id, ledger, moment, seconds=ttl)
        if op.ttl is not None:
            fresh = replace(fresh, ttl=op.ttl)
        # Only by name: a heartbeat of all that a person holds must not bind it to one session.
        if op.resource is not None and claiming.may_bind(ledger, lease, op.actor, moment):
            fresh = replace(fresh, session=op.actor.session)
            binds = True
        renewed.append(fresh)
        state = state.put(fresh)
    done = outcome(op, "renewed", renewed, moment)
    return state, replace(done, refused=tuple(refused), is_renewal=not binds)


def extend(ledger: Ledger, op: ops.Extend, moment: Moment) -> tuple[Ledger, Outcome]:
    """Stretch to at least now + D, capped to the policy's maximum; never shorten."""
    policy = ledger.header.policy
    seconds = min(op.seconds, policy.ttl_max)
    state, extended = ledger, []
    for lease in held_for(ledger, op.resource, op.scope, op.actor, moment):
        longer = claiming.prolonged(lease, op.id, ledger, moment, seconds=seconds)
        if claiming.may_bind(ledger, lease, op.actor, moment):
            longer = replace(longer, session=op.actor.session)
        extended.append(longer)
        state = state.put(longer)
    done = outcome(op, "extended", extended, moment)
    return state, replace(done, capped_to_max=seconds < op.seconds)


def release(ledger: Ledger, op: ops.Release, moment: Moment) -> tuple[Ledger, Outcome]:
    """Drop one's own; with none it succeeds, and someone else's is refused."""
    now = moment.now.wall_ms
    state, ended = ledger, []
    for lease in _mine_to_end(ledger, op, moment):
        state = claiming.tell_session(state.remove(lease), lease, op, "released", now, op.note)
        ended.append(replace(lease, state=State.RELEASED))
    done = outcome(op, "released", ended, moment, reason=op.note)
    if op.note is not None:
        state, noting = noted(state, op, op.resource, now, op.note)
        if not ended:
            done = replace(done, events=(noting,), changed=True)
    return state, done


def unassign(ledger: Ledger, op: ops.Unassign, moment: Moment) -> tuple[Ledger, Outcome]:
    """Write down that the caller is not assigned any more; a lease of the caller's own keeps it."""
    by, told = op.actor.holder, tuple[Event, ...]()
    records = ledger.leases_of(op.resource)
    if not any(x.state is State.ACTIVE and x.same_holder(op.actor) for x in records):
        named = next((x.resource for x in records), op.resource).text
        run, at = op.actor.session, moment.now.wall_ms
        told = (Event(UNASSIGNED, op.id, at, by, named, WHOLE, holder=by, session=run),)
    done = Outcome(operation=op.id, status=UNASSIGNED, events=told, changed=bool(told))
    return ledger, done


def complete(ledger: Ledger, op: ops.Complete, moment: Moment) -> tuple[Ledger, Outcome]:
    """End as completed: the record stays for a while and refuses most claims."""
    now, policy = moment.now.wall_ms, ledger.header.policy
    mine = _mine_to_end(ledger, op, moment)
    scopes = (fold(op.scope or WHOLE), WHOLE)
    related = relations(ledger, op.resource, op.actor, moment)
    done_before = [x for x, y in related if y is Relation.COMPLETED and fold(x.scope) in scopes]
    # Asked twice, it is the same answer.
    if not mine and done_before:
        return ledger, Outcome(
            operation=op.id, status="completed", leases=tuple(done_before), changed=False
        )
    if not mine and op.held_only:
        raise NotFound(
            f"nothing to finish: {op.resource} is not a task and you do not hold it",
            resource=op.resource.text,
            hints=(USE_ANY,),
        )
    state, records = ledger, mine
    if not mine:
        # Finished without a lease: it takes a token like any grant.
        check_open(ledger.header, moment, op.resource.text)
        scope = op.scope or WHOLE
        state, record = claiming.new_lease(ledger, op, now, scope=scope, ttl=policy.ttl_min)
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
        state = claiming.tell_session(state.put(lease), lease, op, "completed", now)
    # Notes are shown until the task is done.
    return state.with_notes(op.resource, ()), outcome(op, "completed", done, moment)


def noted(
    ledger: Ledger, op: Operation, resource: Resource, at: int, text: str, *, part: str = ""
) -> tuple[Ledger, Event]:
    """With one more note for the next holder, and the audit line of it.

    ``part`` tells apart the notes of one operation.
    """
    by, session = op.actor.holder, op.actor.session
    note = Note(op.id + part, resource, by, at, text)
    noting = Event("noted", op.id, at, by, resource.text, session=session, detail=text)
    return ledger.with_notes(resource, (*ledger.notes(resource), note)), noting


def in_scope(lease: Lease, scope: str | None) -> bool:
    return scope is None or fold(lease.scope) == fold(scope)


def _pick(related: Relations, scope: str | None, verb: Verb) -> list[Lease]:
    return [x for x, how in related if in_scope(x, scope) and verb(TABLE[how]) is Verdict.YES]


def _blockers(related: Relations, scope: str | None, verb: Verb, verdict: Verdict) -> Relations:
    return [
        (x, how)
        for x, how in related
        if verb(TABLE[how]) is verdict and (scope is None or scopes_overlap(x.scope, scope))
    ]


def held_for(
    ledger: Ledger, resource: Resource, scope: str | None, actor: Actor, moment: Moment
) -> list[Lease]:
    """The caller's live leases of a resource that may be renewed.

    LeaseLost or NotHolder where there is none.
    """
    related = relations(ledger, resource, actor, moment)
    live = _pick(related, scope, lambda row: row.renew)
    mine = [x for x in live if not x.parked]
    if mine:
        return [unshared(ledger, x) for x in mine]
    if live:
        raise LeaseLost(
            f"an older gitlease parked {live[0].resource}, so nothing renews it",
            resource=live[0].resource.text,
            scope=live[0].scope,
            conflicts=(live[0],),
            hints=("claim it to resume",),
        )
    policy = ledger.header.policy
    theirs = _blockers(related, scope, lambda row: row.renew, Verdict.NOT_HOLDER)
    if theirs:
        raise claiming.held_error(resource, scope, theirs, policy, moment, error=NotHolder)
    raise lost(resource, scope, tuple(x for x, _ in related if in_scope(x, scope)), actor)


def of_session(
    ledger: Ledger, actor: Actor, moment: Moment
) -> tuple[list[Lease], tuple[LeaseLost, ...]]:
    """Return a session's live leases, and the refusals of those that ran out."""
    policy = ledger.header.policy
    mine: list[Lease] = []
    over: list[LeaseLost] = []
    for lease in ledger.every_lease():
        if lease.state is not State.ACTIVE or lease.parked or not lease.answers_to(actor):
            continue
        if relation(lease, actor, policy, moment) is Relation.MINE:
            try:
                mine.append(unshared(ledger, lease))
            except LeaseLost as refusal:
                over.append(refusal)
        # What the end of a session left behind ran out on purpose, and is no loss.
        elif not lease.left_behind:
            over.append(lost(lease.resource, lease.scope, (lease,), actor))
    return mine, tuple(over)


def unshared(ledger: Ledger, lease: Lease) -> Lease:
    """The same lease. Raises LeaseLost if others were granted its paths after it had lapsed."""
    if (other := claiming.overtaken_by(ledger, lease)) is None:
        return lease
    loss, by = Loss.EXPIRED, other.holder
    how = f"{reason_text(loss, by)}, and {by} has {other.resource} since, which overlaps it"
    name, of = lease.resource.text, lease.lease_id
    raise no_longer(name, lease.scope, loss, by, how, conflicts=(other,), lease_id=of)


def lost(of: Resource, scope: str | None, records: tuple[Lease, ...], actor: Actor) -> LeaseLost:
    if not records:
        why = "it is free"
    elif records[0].state is State.COMPLETED:
        why = f"completed by {records[0].holder}"
    else:
        mine = records[0].same_holder(actor)
        why = f"{'your lease' if mine else f'the lease of {records[0].holder}'} expired"
    message = f"you do not hold {of}; {why}"
    return LeaseLost(message, resource=of.text, scope=scope, conflicts=records)


def _mine_to_end(ledger: Ledger, op: ops.Release | ops.Complete, moment: Moment) -> list[Lease]:
    related = relations(ledger, op.resource, op.actor, moment)
    mine = _pick(related, op.scope, lambda row: row.end)
    if mine:
        return mine
    theirs = _blockers(related, op.scope, lambda row: row.end, Verdict.HELD)
    if theirs:
        raise claiming.held_error(op.resource, op.scope, theirs, ledger.header.policy, moment)
    named = claiming.named_in_file(related, op.assigned)
    if named:
        raise claiming.assigned_error(op.resource, op.scope, named)
    return []


RELEASED, RUN_OUT = "released", "run_out"
BOUND, UNBOUND = "bound", "unbound"


def end_session(
    ledger: Ledger, op: ops.EndSession | ops.RunOut, moment: Moment
) -> tuple[Ledger, Outcome]:
    """End those of these grants that are still held; the others are skipped."""
    now, by = moment.now.wall_ms, op.actor.holder
    state, ended, events = ledger, [], []
    refused: list[GitleaseError] = []
    for number, lease in still_bound(ledger, op.grants, refused):
        if not lease.same_holder(op.actor):
            continue
        how, last = _last(lease, op, moment)
        state = state.remove(lease) if last.state is State.RELEASED else state.put(last)
        state = claiming.tell_session(state, lease, op, how, now, op.note)
        ended.append(last)
        events.append(event(how, op.id, now, by, lease, reason=op.note))
        if op.note is not None:
            state, _ = noted(state, op, lease.resource, now, op.note, part=f"-{number}")
    return state, Outcome(
        operation=op.id,
        status=RUN_OUT if isinstance(op, ops.RunOut) else RELEASED,
        leases=tuple(ended),
        events=tuple(events),
        refused=tuple(refused),
        changed=bool(ended),
    )


def _last(lease: Lease, op: ops.EndSession | ops.RunOut, moment: Moment) -> tuple[str, Lease]:
    if isinstance(op, ops.RunOut) and lease.edge:
        now = moment.now.wall_ms
        # Its record stays for the edge, bound to no session: a clone that has not the file yet
        # respects it.
        over = lease if lease.expires_at <= now else replace(lease, renewed_at=now, expires_at=now)
        return RUN_OUT, replace(over, session=None, operation=op.id)
    return RELEASED, replace(lease, state=State.RELEASED)


def still_bound(
    ledger: Ledger, grants: Sequence[Grant], refused: list[GitleaseError]
) -> Iterator[tuple[int, Lease]]:
    """Yield the leases of these grants that are still theirs, each with its number."""
    for number, grant in enumerate(grants):
        try:
            lease = ledger.lease(grant.resource, grant.scope)
        except Invalid as damage:  # a damaged record keeps only its own
            refused.append(damage)
            continue
        if lease is None or lease.state is not State.ACTIVE:
            continue
        # A claim that came in between has another nonce, and stays.
        if (lease.lease_id, lease.session) == (grant.lease_id, grant.session):
            yield number, lease


# --- a run binds ----------------------------------------------------------------------------------


def bind(ledger: Ledger, op: ops.Bind, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make live leases that are bound to no session the caller's session's.

    Whatever else there is of these resources stays as it is: a claim in the same step decides on
    it. Raises UsageError without a session.
    """
    if op.actor.session is None:
        raise UsageError("only a session can bind what its person holds")
    policy = ledger.header.policy
    state, bound = ledger, []
    for resource in op.resources:
        lease = state.lease(resource, op.scope)
        if lease is None or lease.session is not None:
            continue
        how = relation(lease, op.actor, policy, moment)
        live = how is Relation.MINE and not lease.parked
        if live and claiming.fits_session(state, lease, op.actor, moment):
            where = op.actor.host or lease.host
            bound.append(replace(lease, session=op.actor.session, host=where, operation=op.id))
            state = state.put(bound[-1])
    return state, outcome(op, BOUND, bound, moment)


def unbind(ledger: Ledger, op: ops.Unbind, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make what a run bound its person's again: for that run, or the person without a session.

    Grants no longer bound to that run are skipped. Raises NotHolder for anybody else.
    """
    state, freed, before = ledger, list[Lease](), list[Lease]()
    refused: list[GitleaseError] = []
    policy = ledger.header.policy
    for _, lease in still_bound(ledger, op.grants, refused):
        if lease.session is None:
            continue
        # The ledger cannot know that a run is dead: its person has made sure of that.
        if not lease.same_holder(op.actor) or op.actor.session not in (None, lease.session):
            related = [(lease, relation(lease, op.actor, policy, moment))]
            raise claiming.held_error(
                lease.resource, lease.scope, related, policy, moment, error=NotHolder
            )
        # The process that had it is over, so nothing is to be found there.
        freed.append(
            replace(lease, session=None, host=without_process(lease.host), operation=op.id)
        )
        state = state.put(freed[-1])
        before.append(lease)
    done = outcome(op, UNBOUND, freed, moment, before=before)
    return state, replace(done, refused=tuple(refused))


RETIRED = "retired"
_LIVE = {Relation.MINE, Relation.MY_RUN, Relation.MY_OTHER_RUN, Relation.THEIRS}


def may_retire(how: Relation, *, assigned: bool) -> bool:
    """True if a record may be retired; ``assigned``: also what an edge keeps for its holder."""
    lapsed = how in (Relation.MINE_LAPSED, Relation.THEIRS_LAPSED)
    return lapsed or (assigned and how in (Relation.THEIRS_ASSIGNED, Relation.THEIRS_ABANDONED))


def retire(ledger: Ledger, op: ops.Retire, moment: Moment) -> tuple[Ledger, Outcome]:
    """Drop lapsed grants, with notices for their holders and notes for the next ones.

    Each item is retired whole or not at all, then with its error in ``refused``. Grants that are
    gone already are skipped. Raises UsageError for an item without a reason.
    """
    state, now, by = ledger, moment.now.wall_ms, op.actor.holder
    ended: list[Lease] = []
    events: list[Event] = []
    done: list[ops.Retirement] = []
    refused: list[LeaseHeld | PolicyRefused | Invalid] = []
    for number, item in enumerate(op.items):
        if not item.reason.strip():
            raise UsageError("a retirement needs a reason", resource=item.resource.text)
        try:
            lapsed = _lapsed(state, item, op, moment)
        except (LeaseHeld, PolicyRefused, Invalid) as refusal:  # each keeps only its own
            refused.append(refusal)
            continue
        if not lapsed and not item.unassigned:
            continue
        done.append(item)
        for lease in lapsed:
            state = state.remove(lease)
            ended.append(replace(lease, state=State.EXPIRED))
            events.append(event(RETIRED, op.id, now, by, lease, reason=item.reason))
            if not lease.same_holder(op.actor):
                state = claiming.give_notice(state, lease, op.id, RETIRED, by, now, item.reason)
        word, name = f"{op.id}-{number}", item.resource.text
        about = Event(RETIRED, op.id, now, by, name, WHOLE, reason=item.reason)
        unheld = claiming.without(item.unassigned, lapsed)
        state, told_events = claiming.tell_assignees(
            state, unheld, about, what=RETIRED, word=f"{word}."
        )
        events += told_events
        if item.note is not None:
            state, _ = noted(state, op, item.resource, now, item.note, part=f"-{number}")
    return state, Outcome(
        operation=op.id,
        status=RETIRED,
        leases=tuple(ended),
        events=tuple(events),
        displaced=tuple(x for x in ended if not x.same_holder(op.actor)),
        unassigned=tuple(a.name for item in done for a in item.unassigned),
        retired=tuple(item.resource for item in done),
        refused=tuple(refused),
        changed=bool(done),
    )


def _lapsed(ledger: Ledger, item: ops.Retirement, op: ops.Retire, moment: Moment) -> list[Lease]:
    related = relations(ledger, item.resource, op.actor, moment)
    asked = {(lease_key(g.resource, g.scope), g.lease_id) for g in item.grants}
    asked_for = [(x, how) for x, how in related if (x.key, x.lease_id) in asked]
    kept = [(x, how) for x, how in asked_for if not may_retire(how, assigned=item.assigned)]
    # Whoever would lose an assignment while they hold another part of the task is in the way.
    kept += [
        (x, how)
        for x, how in related
        if how in _LIVE
        and (x, how) not in kept
        and any(a.is_holder(x.holder) for a in item.unassigned)
    ]
    whole = {x.lease_id for x in claiming.completed_records([x for x, _ in related])}
    finished = next(
        (x for x, how in related if how is Relation.COMPLETED and x.lease_id in whole), None
    )
    if kept:
        raise claiming.held_error(item.resource, None, kept, ledger.header.policy, moment)
    if finished is not None and item.unassigned:
        raise PolicyRefused(
            f"{item.resource} is completed, by {finished.holder}",
            resource=item.resource.text,
            conflicts=(finished,),
        )
    return [x for x, _ in asked_for]


# --- governance and housekeeping ------------------------------------------------------------------
# Where the policy names a host of issues, whoever decides a step spells issue numbers as it does,
# and the table takes no other spelling: no two clients can hold one issue under two names (S1).


def revoke(ledger: Ledger, op: ops.Revoke, moment: Moment) -> tuple[Ledger, Outcome]:
    """End leases of a resource, whoever holds them, and leave word for their holders."""
    _need_admin(ledger, op.actor, "revoke a lease")
    if not op.reason.strip():
        raise UsageError("a revocation needs a reason", resource=op.resource.text)
    now = moment.now.wall_ms
    held = [
        (x, how)
        for x, how in relations(ledger, op.resource, op.actor, moment)
        if x.state is State.ACTIVE and (op.scope is None or fold(x.scope) == fold(op.scope))
    ]
    claiming.refuse_unexpected(op, held, ledger.header.policy, moment)
    leases = [x for x, _ in held]
    state = ledger
    for lease in leases:
        state = state.remove(lease)
        if not lease.same_holder(op.actor):
            state = claiming.give_notice(
                state, lease, op.id, "revoked", op.actor.holder, now, op.reason
            )
    ended = [replace(x, state=State.REVOKED) for x in leases]
    done = outcome(op, "revoked", ended, moment, reason=op.reason)
    return state, replace(done, displaced=tuple(leases))


_AT_WORK = {Relation.THEIRS, Relation.MY_RUN, Relation.MY_OTHER_RUN}


def add_note(ledger: Ledger, op: ops.AddNote, moment: Moment) -> tuple[Ledger, Outcome]:
    """Leave a note for the next holder, and word of it for those who hold it: anyone may."""
    now, by, held, events = moment.now.wall_ms, op.actor.holder, list[Lease](), list[Event]()
    if op.to_holder:
        rivals = claiming.rivals_of(ledger, op.resource, WHOLE, ())
        related = [(x, relation(x, op.actor, ledger.header.policy, moment)) for x in rivals]
        held = [x for x, how in related if how in _AT_WORK]
        if not held:
            who = "only you hold" if any(x is Relation.MINE for _, x in related) else "nobody holds"
            left_out = hint("to leave it for the next holder, leave out {}", to_holder=True)
            message = f"{who} {op.resource} now"
            raise NotFound(message, resource=op.resource.text, hints=(left_out,))
        if len(held) > MAX_STEP:
            raise UsageError(f"{len(held)} leases overlap {op.resource}: name fewer")
    words, state = " ".join(op.text.split()), ledger
    short = words if len(words) <= MAX_REASON else words[: MAX_REASON - 1] + "…"
    for number, place in enumerate(dict.fromkeys((op.resource, *(x.resource for x in held)))):
        part = f"-{number}" if number else ""
        state, noting = noted(state, op, place, now, op.text, part=part)
        events.append(noting)
    for lease in held:
        state = claiming.give_notice(state, lease, op.id, NOTED, by, now, short)
    return state, Outcome(operation=op.id, status="noted", leases=tuple(held), events=tuple(events))


def set_policy(ledger: Ledger, op: ops.SetPolicy, moment: Moment) -> tuple[Ledger, Outcome]:
    """Change the policy: anyone until there are admins, who must include whoever sets them."""
    before = ledger.header.policy
    if before.admins:
        _need_admin(ledger, op.actor, "change its policy")
    after = change_policy(before, dict(op.changes))
    if before.admins and not after.admins:
        by = op.actor.holder
        text = next(value for key, value in reversed(op.changes) if key == "admins")
        if not any(same_person(word, by) for word in admin_words(text)[1:]):
            raise PolicyRefused(
                "without admins, anyone may change the policy and make themselves the admin",
                hints=(f"to remove them all anyway, confirm it with '{NO_ADMINS} {by}'",),
            )
    if after.issues is not before.issues:
        check_spelt(ledger, before.issues, after.issues)
    if after.admins != before.admins and after.admins and not after.is_admin(op.actor.holder):
        raise PolicyRefused(
            f"the admins must include you, {op.actor.holder}",
            hints=("otherwise a mistake could not be undone",),
        )
    words = ", ".join(f"{key} = {value}" for key, value in op.changes)
    changed = Event("policy", op.id, moment.now.wall_ms, op.actor.holder, detail=words)
    # Older clients would call such a policy damaged.
    form = ledger.header.format
    form = max(form, PICKED_FORMAT) if after.abandons_early else form
    state = ledger.with_header(replace(ledger.header, policy=after, format=form))
    return state, Outcome(
        operation=op.id, status="policy_changed", events=(changed,), changed=after != before
    )


def acknowledge(ledger: Ledger, op: ops.Acknowledge, moment: Moment) -> tuple[Ledger, Outcome]:
    """Drop notices that their holder has been shown; only one's own."""
    if len(op.notices) > NOTICES_KEPT:
        raise UsageError(f"one step drops at most {NOTICES_KEPT} notices")
    before = ledger.notices(op.actor.holder)
    kept = tuple(n for n in before if n.id not in op.notices)
    state = ledger if kept == before else ledger.with_notices(op.actor.holder, kept)
    return state, Outcome(
        operation=op.id, status="acknowledged", changed=kept != before, is_renewal=True
    )


def barrier(ledger: Ledger, op: ops.Barrier, moment: Moment) -> tuple[Ledger, Outcome]:
    """Move the ledger on by one revision, so that an undecided push can never land."""
    noted_event = Event(ops.BARRIER, op.id, moment.now.wall_ms, op.actor.holder)
    return ledger, Outcome(operation=op.id, status=ops.BARRIER, events=(noted_event,))


def restore(ledger: Ledger, op: ops.Restore, moment: Moment) -> tuple[Ledger, Outcome]:
    """Give tokens above those of another past from now on, by beginning the next epoch: anyone."""
    header = ledger.header
    behind = header.token < op.above
    if behind:
        # One epoch a step: nobody can use all of them up by one wrong number.
        if op.above >= (header.epoch + 2) * EPOCH_SIZE:
            raise Invalid(f"token {op.above} is of an epoch that this ledger cannot have reached")
        header = replace(header, epoch=op.above // EPOCH_SIZE + 1, sequence=0)
    restored = Event("restored", op.id, moment.now.wall_ms, op.actor.holder)
    return ledger.with_header(header), Outcome(
        operation=op.id, status="restored", events=(restored,), changed=behind
    )


def restore_hint(way: str = "undo") -> str:
    """How one of those who may begin an epoch does it."""
    return hint("one of them can do it: `{}`", "init", **{f"{way}_rollback": True})


def drop_record(ledger: Ledger, op: ops.DropRecord, moment: Moment) -> tuple[Ledger, Outcome]:
    """Remove a record that cannot be read; a readable one is never dropped this way."""
    _need_admin(ledger, op.actor, "drop a damaged record")
    damage = next((d for d in ledger.damage() if op.file in (d.file, d.shown)), None)
    if damage is None:
        raise NotFound(f"the ledger has no damaged record {op.file}")
    dropped = Event(
        "dropped", op.id, moment.now.wall_ms, op.actor.holder, reason=op.reason, detail=op.file
    )
    return ledger.drop([damage.file]), Outcome(operation=op.id, status="dropped", events=(dropped,))


def _need_admin(ledger: Ledger, actor: Actor, what: str) -> None:
    policy = ledger.header.policy
    if policy.is_admin(actor.holder):
        return
    if policy.admins:
        raise PolicyRefused(
            f"only the ledger's admins may {what}, and {actor.holder} is not one of them",
            hints=(
                "they are " + ", ".join(policy.admins),
                hint("one of them can add you: `{}` takes the whole list", "config", **ADMINS),
            ),
        )
    limit = format_duration(policy.ttl_max)
    raise PolicyRefused(
        f"nobody may {what}: the ledger has no admins yet",
        hints=(
            f"a lease that is not renewed lapses by itself, after {limit} at most",
            hint("until there are admins, anyone may set them: `{}`", "config", **ADMINS),
        ),
    )


_SHOWN = 5


def spelt(operation: Operation, policy: Policy) -> Operation:
    """The operation with the host's spelling of each issue that it names."""
    changed: Operation = _named(operation, lambda name: issue_resource(name, policy.issues))
    return changed


def check_spelling(operation: Operation, policy: Policy) -> None:
    """UsageError for an operation that names an issue in another spelling than the ledger's."""

    def check(name: Resource) -> Resource:
        if (right := issue_resource(name, policy.issues)) != name:
            raise UsageError(f"{name} is the issue {right} in this ledger", resource=name.text)
        return name

    _named(operation, check)


def check_spelt(ledger: Ledger, was: Issues, host: Issues) -> None:
    """PolicyRefused where a record's name would be another resource by another host's spellings."""
    resources = dict.fromkeys(x.resource for x in ledger.every_lease())
    names = [
        x.text
        for x in resources
        if reads_as_issue(x.text) and (was is not Issues.NONE or issue_resource(x, host) != x)
    ]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise PolicyRefused(
            f"the ledger has records of {', '.join(names[:_SHOWN])}{more}, "
            "which would then name other resources",
            hints=(
                hint(
                    "release them first; claim a completed one with {} to release it", reopen=True
                ),
            ),
        )


def _named(value: Any, name: Callable[[Resource], Resource]) -> Any:
    # The same with every resource that it names as ``name`` has it.
    if isinstance(value, Resource):
        return name(value)
    if isinstance(value, tuple):
        return tuple(_named(part, name) for part in value)
    if isinstance(value, Operation | ops.Retirement | Grant):
        fields = non_defaults(value).items()
        return replace(value, **{field: _named(part, name) for field, part in fields})
    return value
