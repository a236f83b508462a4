"""The claim: what is granted or renewed, and who is displaced by it."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.core.duration import LONGEST, format_duration
from gitlease.core.edge import Assignee
from gitlease.core.errors import Invalid, PolicyRefused, UsageError
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.core.lease import Lease, State, same_person
from gitlease.core.ledger import NEWEST_FORMAT, Ledger, Notice, count_token
from gitlease.core.moves.conflicts import (
    abandoned_by,
    assigned_error,
    assignees,
    has_edge,
    held_error,
    in_the_way,
    may_bind,
    named_in_file,
    refuse,
    rivals_of,
    shares,
    yields,
)
from gitlease.core.moves.operations import MAX_PATHS, MAX_PATHS_LENGTH, Claim, Complete, Operation
from gitlease.core.moves.tickets import give_way, served
from gitlease.core.outcome import LAPSED, Event, Outcome, mark_claims_after_lapse
from gitlease.core.policy import Policy
from gitlease.core.relation import Relation, relation
from gitlease.core.resources.resource import WHOLE, Resource

ABANDONED = "it was abandoned"


def claim(ledger: Ledger, op: Claim, moment: Moment) -> tuple[Ledger, Outcome]:
    """Grant, renew the caller's own, or refuse with every lease that stands in the way."""
    policy = ledger.header.policy
    if op.takeover and not (op.reason or "").strip():
        raise UsageError("a takeover needs a reason", resource=op.resource.text)
    if op.expect_holder is not None and not op.takeover:
        raise UsageError("an expected holder needs a takeover", resource=op.resource.text)
    ttl = granted_ttl(op, policy, op.resource)
    mine = ledger.lease(op.resource, op.scope)
    own = None if mine is None else relation(mine, op.actor, policy, moment)
    ours = own in (Relation.MINE, Relation.PARKED)
    paths = _check_paths(op.paths)
    if mine is not None and ours:
        paths = _check_paths(tuple(dict.fromkeys((*mine.paths, *paths))))
    rivals = rivals_of(ledger, op.resource, op.scope, paths)
    stood = in_the_way(ledger, op, rivals, moment)
    stood += assignees(ledger, op, rivals, moment)
    if op.new and mine is not None and own is Relation.MINE:
        raise held_error(op.resource, op.scope, [(mine, own)], policy, moment)
    refuse(op, stood, policy, moment)
    named = named_in_file(ledger, op, moment)
    apart = op.takeover or not has_edge(ledger, op, moment)
    _check_expected(op, stood, named, policy, moment)
    gone = abandoned_by(ledger, op, named, moment)
    if len(named) > len(gone) and apart and not op.takeover:
        raise assigned_error(op.resource, op.scope, tuple(a for a in named if a not in gone))
    if not ours:
        give_way(ledger, op, moment)
    # Of finished work that is opened again, what was done in other parts stays done.
    apart_done = {
        x.lease_id
        for x in rivals
        if x.state is State.COMPLETED and op.scope != WHOLE and not shares(x, op.scope)
    }
    displaced = [x for x, how in stood if yields(how, op) and x.lease_id not in apart_done]
    taken = named if apart else ()
    if mine is not None and own is Relation.PARKED:
        # A new promise, by a new grant: whoever still works under the parked one is fenced off.
        resumed = replace(
            op,
            paths=paths,
            reason=op.reason or mine.reason,
            edge=op.edge or mine.edge,
            picked=False,
        )
        ttl = min(mine.ttl, policy.ttl_max) if op.ttl is None else ttl
        state, done = _grant(ledger, resumed, [mine, *displaced], ttl, moment, named=taken)
    elif mine is not None and ours:
        state, done = _renew_own(
            ledger, op, mine, ttl, moment, paths=paths, displaced=displaced, named=taken
        )
    else:
        # What its person claimed by name stays theirs, whoever of them takes it from the queue.
        chosen = own is Relation.MINE_LAPSED and mine is not None and mine.edge_stays
        granted = replace(op, picked=op.picked and not chosen)
        state, done = _grant(ledger, granted, displaced, ttl, moment, named=taken)
    left = () if apart else tuple(a.name for a in named)
    state = served(state, op, moment)
    return state, replace(done, unassigned=tuple(a.name for a in taken), assigned=left)


def _check_expected(
    op: Claim,
    stood: list[tuple[Lease, Relation]],
    named: tuple[Assignee, ...],
    policy: Policy,
    moment: Moment,
) -> None:
    if (expected := op.expect_holder) is None:
        return
    others = [
        (x, how)
        for x, how in stood
        if yields(how, op)
        and x.state is State.ACTIVE
        and not x.same_holder(op.actor)
        and not same_person(x.holder, expected)
    ]
    failed = f"expected {expected}, but "
    if others:
        what = f"{failed}{op.resource}"
        raise held_error(op.resource, op.scope, others, policy, moment, what=what)
    if strangers := tuple(a for a in named if not a.is_holder(expected)):
        refusal = assigned_error(op.resource, op.scope, strangers)
        refusal.message = failed + refusal.message
        refusal.args = (refusal.message,)
        raise refusal


def _check_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    # A record with more would read as damaged.
    if len(paths) > MAX_PATHS or sum(map(len, paths)) > MAX_PATHS_LENGTH:
        raise UsageError(
            f"a lease covers at most {MAX_PATHS} paths of {MAX_PATHS_LENGTH} characters together",
            hints=("claim a folder or a pattern instead of its files",),
        )
    return paths


def granted_ttl(op: Claim, policy: Policy, resource: Resource | None) -> int:
    """The TTL of a claim, in seconds. A configured default is held to the limits like an option."""
    asked = op.ttl if op.ttl is not None or op.default_fits else op.default_ttl
    try:
        return fit_ttl(asked, op.default_ttl, policy, resource)
    except PolicyRefused as refusal:
        refusal.by_setting = op.ttl is None
        raise


def fit_ttl(asked: int | None, default: int, policy: Policy, resource: Resource | None) -> int:
    """The TTL to grant: what was asked when policy allows it, else the default made to fit."""
    if asked is None:
        return min(max(default, policy.ttl_min), policy.ttl_max)
    if not policy.ttl_min <= asked <= policy.ttl_max:
        raise PolicyRefused(
            f"ttl {format_duration(asked)} is outside the ledger's limits, "
            f"{format_duration(policy.ttl_min)} to {format_duration(policy.ttl_max)}",
            resource=resource.text if resource else None,
            hints=("the limits are the ledger's policy: `gitlease config --ledger` shows them",),
        )
    return asked


def _renew_own(
    ledger: Ledger,
    op: Claim,
    mine: Lease,
    ttl: int,
    moment: Moment,
    *,
    paths: tuple[str, ...],
    displaced: list[Lease],
    named: tuple[Assignee, ...],
) -> tuple[Ledger, Outcome]:
    policy, now = ledger.header.policy, moment.now.wall_ms
    keep_ttl = min(mine.ttl, policy.ttl_max) if op.ttl is None else ttl
    binds = may_bind(ledger, mine, op.actor, moment)
    lease = replace(
        prolonged(mine, op.id, ledger, moment, seconds=keep_ttl),
        session=op.actor.session if binds else mine.session,
        ttl=keep_ttl,
        paths=paths,
        reason=op.reason or mine.reason,
        # Where it was claimed first tells who else may work under it: until a session has it alone.
        host=(binds and op.actor.host) or mine.host or op.actor.host,
        branch=op.actor.branch or mine.branch,
        edge=mine.edge or op.edge,
        picked=mine.picked and op.picked,
    )
    state, taken, events = _displace(ledger, displaced, named, op, moment)
    # What others may come to rely on must not be forgotten with the next heartbeat.
    before = (mine.session, mine.paths, mine.reason, mine.picked)
    after = (lease.session, lease.paths, lease.reason, lease.picked)
    quiet = before == after and not displaced and not named
    status = "taken_over" if taken or named else "renewed"
    done = Outcome(
        operation=op.id,
        status=status,
        leases=(lease,),
        events=_with_details(op, event(status, op.id, now, op.actor.holder, lease), *events),
        displaced=taken,
        is_renewal=quiet,
    )
    return state.put(lease), done


def prolonged(
    lease: Lease,
    op_id: str,
    ledger: Ledger,
    moment: Moment,
    *,
    seconds: int,
    most: int | None = None,
) -> Lease:
    """The lease as an operation has it last for so many seconds from now on: never shorter.

    ``most``: the seconds that it may last from now on, where that is not the maximum of a TTL.
    Its duration from now on stays within what it was and what the policy allows, since everybody
    else waits for the duration: by a clock that was set back, the old end would be far away.
    """
    policy, now = ledger.header.policy, moment.now.wall_ms
    limit = policy.ttl_max if most is None else most
    longest = min(max(limit * MS, lease.duration_ms), LONGEST * MS)
    return replace(
        lease,
        renewed_at=now,
        expires_at=min(max(lease.expires_at, now + seconds * MS), now + longest),
        renewals=lease.renewals + 1,
        operation=op_id,
        margins=lease.margins.widest(policy.margins),
    )


def _displace(
    ledger: Ledger, displaced: list[Lease], named: tuple[Assignee, ...], op: Claim, moment: Moment
) -> tuple[Ledger, tuple[Lease, ...], tuple[Event, ...]]:
    # ``named`` lose their edge in the task file, and are notified even if they hold no lease. The
    # caller's own displaced leases have expired, except a parked one, which the new grant resumes.
    state, by, now = ledger, op.actor, moment.now.wall_ms
    why = ABANDONED if op.abandoned and not op.takeover else op.reason
    for old in displaced:
        state = state.remove(old)
    taken = tuple(x for x in displaced if x.state is State.ACTIVE and not x.same_holder(by))
    for old in taken:
        state = give_notice(state, old, op.id, "taken_over", by.holder, now, why)
    events = [event("displaced", op.id, now, by.holder, x, reason=why) for x in taken]
    about = Event("displaced", op.id, now, by.holder, op.resource.text, op.scope, reason=why)
    left = without(named, taken)
    state, told = tell_assignees(
        state, left, about, what="taken_over", word=f"{op.id}-", first=len(taken)
    )
    events += told
    for old in displaced:
        if old.state is State.ACTIVE and old.same_holder(by):
            state = tell_session(state, old, op, "replaced", now)
            if not holder_has(old, moment):
                events.append(event(LAPSED, op.id, now, by.holder, old))
    return state, taken, tuple(events)


def _with_details(op: Claim, *events: Event) -> tuple[Event, ...]:
    return mark_claims_after_lapse(events, [op.id] if op.replaces_edges else ())


def _grant(
    ledger: Ledger,
    op: Claim,
    displaced: list[Lease],
    ttl: int,
    moment: Moment,
    *,
    named: tuple[Assignee, ...],
) -> tuple[Ledger, Outcome]:
    now, actor = moment.now.wall_ms, op.actor
    ledger, lease = new_lease(ledger, op, now, scope=op.scope, ttl=ttl)
    lease = replace(lease, paths=op.paths, reason=op.reason, edge=op.edge, picked=op.picked)
    if op.picked:
        ledger = ledger.with_header(replace(ledger.header, format=NEWEST_FORMAT))
    if lease.token <= max((x.token for x in displaced), default=0):
        raise Invalid(
            f"the ledger's sequence is behind the token of {op.resource}: it was tampered with"
        )
    state, taken, events = _displace(ledger, displaced, named, op, moment)
    status = "taken_over" if taken or named else "claimed"
    outcome = Outcome(
        operation=op.id,
        status=status,
        leases=(lease,),
        events=_with_details(op, event(status, op.id, now, actor.holder, lease), *events),
        displaced=taken,
    )
    return state.put(lease), outcome


def new_lease(
    ledger: Ledger, op: Claim | Complete, now: int, *, scope: str, ttl: int
) -> tuple[Ledger, Lease]:
    """The ledger with one more token given, and the new lease that has it."""
    header = count_token(ledger.header)
    lease = Lease(
        # The first claimer's spelling, as long as the ledger has a record of the resource.
        resource=next((x.resource for x in ledger.leases_of(op.resource)), op.resource),
        scope=scope,
        holder=op.actor.holder,
        session=op.actor.session,
        lease_id=op.lease_id,
        token=header.token,
        ttl=ttl,
        claimed_at=now,
        renewed_at=now,
        expires_at=now + ttl * MS,
        renewals=0,
        paths=(),
        reason=None,
        host=op.actor.host,
        branch=op.actor.branch,
        state=State.ACTIVE,
        edge=False,
        operation=op.id,
        margins=header.policy.margins,
    )
    return ledger.with_header(header), lease


def give_notice(
    ledger: Ledger, old: Lease, op_id: str, what: str, by: str, at: int, reason: str | None
) -> Ledger:
    """Leave a notice for the holder of an ended lease, shown at their next command."""
    notice = Notice(
        id=f"{op_id}-{old.lease_id[:8]}",
        to=old.holder,
        session=old.session,
        what=what,
        resource=old.resource.text,
        scope=old.scope,
        by=by,
        at=at,
        reason=reason,
    )
    return ledger.with_notices(old.holder, (*ledger.notices(old.holder), notice))


def tell_session(
    ledger: Ledger, ended: Lease, op: Operation, what: str, at: int, reason: str | None = None
) -> Ledger:
    """Leave a notice for a session whose lease another session of its person ends.

    The caller's own session and those that it started get none.
    """
    session, own = ended.session, op.actor.session
    if session is None or (own is not None and f"{session}/".startswith(f"{own}/")):
        return ledger
    return give_notice(ledger, ended, op.id, what, op.actor.holder, at, reason)


def without(named: Iterable[Assignee], leases: Iterable[Lease]) -> list[Assignee]:
    """Those of some assignees who hold none of these leases."""
    holders = [x.holder for x in leases]
    return [a for a in named if not any(a.is_holder(holder) for holder in holders)]


def tell_assignees(
    ledger: Ledger, named: Iterable[Assignee], about: Event, *, what: str, word: str, first: int = 0
) -> tuple[Ledger, list[Event]]:
    """Leave notices for those who lose an edge, with an audit event like ``about`` for each.

    The ids of their notices begin with ``word`` and are numbered from ``first``.
    """
    events = []
    for number, assignee in enumerate(named, first):
        events.append(about._replace(holder=assignee.known))
        for place, holder in enumerate(assignee.holders):
            if same_person(holder, about.by):
                continue
            notice = Notice(
                id=f"{word}{number}.{place}",
                to=holder,
                session=None,
                what=what,
                resource=about.resource or "",
                scope=about.scope or WHOLE,
                by=about.by,
                at=about.at,
                reason=about.reason,
            )
            ledger = ledger.with_notices(holder, (*ledger.notices(holder), notice))
    return ledger, events


def event(
    kind: str, op_id: str, at: int, by: str, lease: Lease, *, reason: str | None = None
) -> Event:
    """A line of the audit trail about one lease."""
    return Event(
        kind=kind,
        operation=op_id,
        at=at,
        by=by,
        resource=lease.resource.text,
        scope=lease.scope,
        holder=lease.holder,
        session=lease.session,
        token=lease.token,
        reason=reason or lease.reason,
    )
