"""The retirement: what lapsed is cleaned up, by anyone, and its holder is told.

A lease that lapsed is nobody's: whoever claims it has it, so whoever cleans up may drop it. What an
edge still keeps for its holder goes only where that is asked for, with a reason, as a takeover may
have it; whether it is asked for is the policy of the project. A live lease is never touched, and
neither is a grant that was not named: a claim that came in between stays. So a retirement takes
nothing from anyone that a claim could not have taken, and it gives nothing to anyone.
"""

from __future__ import annotations

from gitlease.core.errors import Invalid, LeaseHeld, PolicyRefused, UsageError
from gitlease.core.expiry import Moment
from gitlease.core.frozen import replace
from gitlease.core.lease import Lease, State, lease_key
from gitlease.core.ledger import Ledger
from gitlease.core.moves.claiming import event, give_notice, tell_assignees, without
from gitlease.core.moves.conflicts import finishing, held_error, relations
from gitlease.core.moves.holding import noted
from gitlease.core.moves.operations import Retire, Retirement
from gitlease.core.outcome import Event, Outcome
from gitlease.core.relation import Relation
from gitlease.core.resources.resource import WHOLE

RETIRED = "retired"
_LIVE = {
    Relation.MINE,
    Relation.PARKED,
    Relation.MY_RUN,
    Relation.MY_OTHER_RUN,
    Relation.THEIRS,
}


def may_retire(how: Relation, *, assigned: bool) -> bool:
    """Whether a record may be retired; ``assigned``: also what an edge keeps for its holder."""
    lapsed = how in (Relation.MINE_LAPSED, Relation.THEIRS_LAPSED)
    return lapsed or (assigned and how in (Relation.THEIRS_ASSIGNED, Relation.THEIRS_ABANDONED))


def retire(ledger: Ledger, op: Retire, moment: Moment) -> tuple[Ledger, Outcome]:
    """Drop lapsed grants, with notices for their holders and notes for the next ones.

    Each item is retired whole or not at all, then with its error in ``refused``. Grants that are
    gone already are skipped. Raises UsageError for an item without a reason.
    """
    state, now, by = ledger, moment.now.wall_ms, op.actor.holder
    ended: list[Lease] = []
    events: list[Event] = []
    done: list[Retirement] = []
    refused: list[LeaseHeld | PolicyRefused | Invalid] = []
    for number, item in enumerate(op.items):
        if not item.reason.strip():
            raise UsageError("a retirement needs a reason", resource=item.resource.text)
        try:
            found = _lapsed(state, item, op, moment)
        except (LeaseHeld, PolicyRefused, Invalid) as refusal:  # each keeps only its own
            refused.append(refusal)
            continue
        if not found and not item.unassigned:
            continue
        done.append(item)
        for lease in found:
            state = state.remove(lease)
            ended.append(replace(lease, state=State.EXPIRED))
            events.append(event(RETIRED, op.id, now, by, lease, reason=item.reason))
            if not lease.same_holder(op.actor):
                state = give_notice(state, lease, op.id, RETIRED, by, now, item.reason)
        word, name = f"{op.id}-{number}", item.resource.text
        about = Event(RETIRED, op.id, now, by, name, WHOLE, reason=item.reason)
        left = without(item.unassigned, found)
        state, said = tell_assignees(state, left, about, what=RETIRED, word=f"{word}.")
        events += said
        if item.note is not None:
            state = noted(state, item.resource, word, op.actor, now, item.note)
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


def _lapsed(ledger: Ledger, item: Retirement, op: Retire, moment: Moment) -> list[Lease]:
    stood = relations(ledger, item.resource, op.actor, moment)
    asked = {(lease_key(g.resource, g.scope), g.lease_id) for g in item.grants}
    found = [(x, how) for x, how in stood if (x.key, x.lease_id) in asked]
    kept = [(x, how) for x, how in found if not may_retire(how, assigned=item.assigned)]
    kept += [
        (x, how)
        for x, how in stood
        if how in _LIVE
        and (x, how) not in kept
        and any(a.is_holder(x.holder) for a in item.unassigned)
    ]
    whole = {x.lease_id for x in finishing([x for x, _ in stood])}
    finished = next(
        (x for x, how in stood if how is Relation.COMPLETED and x.lease_id in whole), None
    )
    if kept:
        raise held_error(item.resource, None, kept, ledger.header.policy, moment)
    if finished is not None and item.unassigned:
        raise PolicyRefused(
            f"{item.resource} is completed, by {finished.holder}",
            resource=item.resource.text,
            conflicts=(finished,),
        )
    return [x for x, _ in found]
