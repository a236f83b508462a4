"""Who may do what: how a record relates to a caller, and what each verb does then.

The table is the whole of it. Nothing else in gitlease decides whose lease it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from gitlease.core.expiry import Moment, Standing, abandoned_at, holder_has, standing
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.lease import Actor, Lease, State
from gitlease.core.policy import Policy


class Relation(Enum):
    """How one record relates to one caller at one moment."""

    MINE = "live, and the caller's: same person, unbound or same session"
    PARKED = "live, and the caller's: parked for any later run of the same person"
    MINE_LAPSED = "the caller's own, run out"
    MY_RUN = "the caller's own, bound to a session, and the caller speaks without one"
    MY_OTHER_RUN = "the caller's own, bound to another session"
    THEIRS = "another person's, live or expired but not lapsed"
    THEIRS_LAPSED = "another person's, lapsed, no edge"
    THEIRS_ASSIGNED = "another person's, lapsed, the task still assigned to them"
    THEIRS_ABANDONED = "another person's, lapsed, and its edge protects no longer"
    COMPLETED = "completed work"
    GONE = "completed so long ago that it no longer counts"


class Verdict(Enum):
    """What a verb does about a record."""

    YES = "yes"
    WHILE_LIVE = "yes, and lost once it ran out"
    FREE = "nothing stands in the way"
    TAKE = "the record may be taken over"
    HELD = "held"
    NEEDS_TAKEOVER = "held, unless taken over with a reason"
    NEEDS_LOOK = "held, unless nobody was seen at work, or taken over with a reason"
    LOST = "lost"
    NOT_HOLDER = "not_holder"
    NEEDS_REOPEN = "policy, unless reopened"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One row: what claim, renew (and extend), release (and done), and park do."""

    claim: Verdict
    renew: Verdict
    end: Verdict
    park: Verdict


TABLE: Mapping[Relation, Verdicts] = {
    Relation.MINE: Verdicts(Verdict.YES, Verdict.YES, Verdict.YES, Verdict.YES),
    Relation.PARKED: Verdicts(Verdict.YES, Verdict.LOST, Verdict.YES, Verdict.YES),
    Relation.MINE_LAPSED: Verdicts(Verdict.TAKE, Verdict.LOST, Verdict.YES, Verdict.LOST),
    Relation.MY_RUN: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.YES, Verdict.WHILE_LIVE),
    Relation.MY_OTHER_RUN: Verdicts(
        Verdict.HELD, Verdict.NOT_HOLDER, Verdict.HELD, Verdict.NOT_HOLDER
    ),
    Relation.THEIRS: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.HELD, Verdict.NOT_HOLDER),
    Relation.THEIRS_LAPSED: Verdicts(Verdict.TAKE, Verdict.LOST, Verdict.FREE, Verdict.LOST),
    Relation.THEIRS_ASSIGNED: Verdicts(
        Verdict.NEEDS_TAKEOVER, Verdict.LOST, Verdict.HELD, Verdict.LOST
    ),
    Relation.THEIRS_ABANDONED: Verdicts(
        Verdict.NEEDS_LOOK, Verdict.LOST, Verdict.HELD, Verdict.LOST
    ),
    Relation.COMPLETED: Verdicts(Verdict.NEEDS_REOPEN, Verdict.LOST, Verdict.FREE, Verdict.LOST),
    Relation.GONE: Verdicts(Verdict.TAKE, Verdict.LOST, Verdict.FREE, Verdict.LOST),
}


def relation(lease: Lease, actor: Actor, policy: Policy, moment: Moment) -> Relation:
    """How ``lease`` stands to ``actor`` now: always exactly one row of the table."""
    if lease.state is State.COMPLETED:
        gone = moment.now.wall_ms >= lease.renewed_at + policy.keep_completed * MS
        return Relation.GONE if gone else Relation.COMPLETED
    if lease.answers_to(actor):
        if not holder_has(lease, moment):
            return Relation.MINE_LAPSED
        return Relation.PARKED if lease.parked else Relation.MINE
    lapsed = standing(lease, policy, moment) is Standing.LAPSED
    if lease.same_holder(actor):
        if lapsed:
            return Relation.MINE_LAPSED
        return Relation.MY_RUN if actor.session is None else Relation.MY_OTHER_RUN
    if not lapsed:
        return Relation.THEIRS
    if not lease.edge:
        return Relation.THEIRS_LAPSED
    gone = lease.picked or is_abandoned(lease, policy, moment)
    return Relation.THEIRS_ABANDONED if gone else Relation.THEIRS_ASSIGNED


def is_abandoned(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Whether a lease ran out so long ago that its edge protects no longer."""
    until = abandoned_at(lease, policy)
    return until is not None and moment.now.wall_ms > until


def state_of(lease: Lease, policy: Policy, moment: Moment, *, mine: bool) -> State:
    """The state to show: a record that ran out reads as expired, for its holder at once."""
    if lease.state is not State.ACTIVE:
        return lease.state
    if mine:
        return State.ACTIVE if holder_has(lease, moment) else State.EXPIRED
    live = standing(lease, policy, moment) is Standing.LIVE
    return State.ACTIVE if live else State.EXPIRED
