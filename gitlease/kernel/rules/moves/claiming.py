"""The claim: who stands in its way, what is granted or renewed, and who is displaced by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gitlease.kernel.rules import resources
from gitlease.kernel.rules.edge import Assignee
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    NothingLeft,
    PolicyRefused,
    UsageError,
    hint,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import LONGEST, MS, format_duration, rfc3339
from gitlease.kernel.rules.lease import (
    TABLE,
    Actor,
    Lease,
    Moment,
    Policy,
    Relation,
    Standing,
    State,
    Verdict,
    abandoned_at,
    free_at,
    holder_has,
    relation,
    same_person,
    standing,
)
from gitlease.kernel.rules.ledger import PICKED_FORMAT, Ledger, Notice, count_token
from gitlease.kernel.rules.moves import operations as ops
from gitlease.kernel.rules.moves.closing import check_open
from gitlease.kernel.rules.moves.operations import Claim, Event, Operation, Outcome
from gitlease.kernel.rules.moves.tickets import give_way, served
from gitlease.kernel.rules.resources import WHOLE, Resource, fold, scopes_overlap

Relations = Sequence[tuple[Lease, Relation]]
ASSIGNED = (Relation.THEIRS_ASSIGNED, Relation.THEIRS_ABANDONED)
"""The lease has lapsed, but an edge still blocks."""


def rivals_of(
    ledger: Ledger, resource: Resource, scope: str, paths: tuple[str, ...]
) -> list[Lease]:
    """Every record that shares work with these: same name and scope, or a common file.

    What two scopes of one task both cover, as the paths of their task, they have in common.
    Completed work stands in the way of its own name only, not of whatever its paths touched, and a
    part that is completed not of the whole, of which other parts are still to be done.
    """
    records = ledger.leases_of(resource)
    done = {x.lease_id for x in completed_records(records)}
    named = [x for x in records if x.lease_id in done or shares(x, scope)]
    pattern = resource.pattern
    wanted = paths if pattern is None else (pattern, *paths)
    if not wanted:
        return named
    have = {x.key for x in named}
    pathy = (x for x in ledger.leases_with_paths(wanted) if x.key not in have)
    return named + [x for x in pathy if x.state is State.ACTIVE and overlaps(resource, wanted, x)]


def in_the_way(ledger: Ledger, op: Claim, rivals: Sequence[Lease], moment: Moment) -> Relations:
    """Those of the rivals that a claim must displace or give way to."""
    policy = ledger.header.policy
    related = [(x, relation(x, op.actor, policy, moment)) for x in rivals]
    # An edge protects the name of its task alone: once the lease has lapsed, its paths are free,
    # and a claim of them leaves the record to its holder.
    return [(x, how) for x, how in related if x.resource == op.resource or not only_edge(x, how)]


def only_edge(lease: Lease, how: Relation) -> bool:
    """Return whether nothing is left of a lease but the edge that came with it."""
    return lease.edge and how in (*ASSIGNED, Relation.MINE_LAPSED)


def overtaken_by(ledger: Ledger, lease: Lease) -> Lease | None:
    """The later lease of paths that were free once this one had lapsed; None if there is none."""
    # The record stayed for its edge. A clone that saw it later than others did still counts it as
    # live, and must not have it go on beside that lease.
    if not lease.edge or not lease.patterns:
        return None
    person = Actor(lease.holder, lease.session)
    for other in rivals_of(ledger, lease.resource, lease.scope, lease.paths):
        theirs = not (other.same_holder(person) and (other.answers_to(person) or not lease.session))
        if other.resource != lease.resource and other.token > lease.token and theirs:
            return other
    return None


def completed_records(records: Sequence[Lease]) -> list[Lease]:
    """The completed records of one resource by which all of it is done; none where it is not.

    That is one of the whole; or those of several parts, where nobody is on any other.
    """
    done = [x for x in records if x.state is State.COMPLETED]
    if whole := [x for x in done if x.scope == WHOLE]:
        return whole
    # One finished part says nothing of the parts that nobody has begun.
    return done if len(done) > 1 and len(done) == len(records) else []


def overlaps(resource: Resource, wanted: tuple[str, ...], lease: Lease) -> tuple[str, str] | None:
    """A path of these and one of a lease that can match a common file; None where none can."""
    same_task = resource.pattern is None and lease.resource == resource
    # Two scopes of one task share the task's own paths: those divide no work.
    both = set(wanted).intersection(lease.patterns) if same_task else set()
    mine, theirs = ([x for x in some if x not in both] for some in (wanted, lease.patterns))
    pairs = ((a, b) for a in mine for b in theirs)
    return next((pair for pair in pairs if resources.any_overlap(pair[:1], pair[1:])), None)


def relations(ledger: Ledger, resource: Resource, actor: Actor, moment: Moment) -> Relations:
    """Every record of a resource, and how it stands to somebody."""
    policy = ledger.header.policy
    return [(x, relation(x, actor, policy, moment)) for x in ledger.leases_of(resource)]


def shares(lease: Lease, scope: str) -> bool:
    """Return whether a record and a claim of a scope of the same resource are about common work."""
    # A finished part is in the way of that part alone, not of the whole.
    if lease.state is State.COMPLETED and lease.scope != WHOLE:
        return fold(lease.scope) == fold(scope)
    return scopes_overlap(lease.scope, scope)


def may_bind(ledger: Ledger, lease: Lease, actor: Actor, moment: Moment) -> bool:
    """Return whether a session that acts on an unbound lease binds it to itself."""
    if actor.session is None or not actor.session_explicit or lease.session is not None:
        return False
    return fits_session(ledger, lease, actor, moment)


def fits_session(ledger: Ledger, lease: Lease, actor: Actor, moment: Moment) -> bool:
    """True if an unbound lease shares no work with a live one of another session of its person."""
    # While it is unbound the two are one person's, and bound they would be in conflict.
    rivals = rivals_of(ledger, lease.resource, lease.scope, lease.paths)
    policy = ledger.header.policy
    return not any(
        relation(x, actor, policy, moment) is Relation.MY_OTHER_RUN
        for x in rivals
        if x.key != lease.key
    )


def assignees(task: Relations, op: Claim, rivals: list[Lease]) -> Relations:
    """The others who have the whole task, by a lapsed lease on another scope of it."""
    asked = {x.lease_id for x in rivals}
    # Where scopes divide a task every holder of a scope is an assignee: fellow assignees do not
    # block each other, nor does one with a live lease on another scope.
    if any(x.edge and x.same_holder(op.actor) for x, _ in task):
        return []
    live = [x for x, how in task if how is Relation.THEIRS]
    return [
        (x, how)
        for x, how in task
        if how in ASSIGNED
        and x.lease_id not in asked
        and not any(same_person(x.holder, other.holder) for other in live)
    ]


def named_in_file(task: Relations, assigned: tuple[Assignee, ...]) -> tuple[Assignee, ...]:
    """The task's assignees by its file alone: those with no live lease on another scope of it."""
    live = [x.holder for x, how in task if how is Relation.THEIRS]
    return tuple(a for a in assigned if not any(a.is_holder(holder) for holder in live))


def assigned_error(resource: Resource, scope: str | None, named: tuple[Assignee, ...]) -> LeaseHeld:
    """The refusal for a task that is another's by its file, without any lease."""
    known = tuple(dict.fromkeys(a.known for a in named))
    return LeaseHeld(
        f"{resource} is assigned to {', '.join(known)}",
        resource=resource.text,
        scope=scope,
        holder=known[0],
        by_edge=True,
        assignees=known,
    )


def gives_way_to(op: Claim, how: Relation) -> bool:
    verdict = TABLE[how].claim
    return (
        verdict is Verdict.TAKE
        or (verdict is Verdict.NEEDS_TAKEOVER and op.takeover)
        or (verdict is Verdict.NEEDS_LOOK and (op.takeover or op.abandoned))
        or (verdict is Verdict.NEEDS_REOPEN and op.reopen)
    )


def _refuse_unless_free(op: Claim, blocking: Relations, policy: Policy, moment: Moment) -> None:
    stays = [(x, y) for x, y in blocking if TABLE[y].claim is not Verdict.YES]
    stays = [(x, y) for x, y in stays if not gives_way_to(op, y)]
    held = [(x, y) for x, y in stays if y is not Relation.COMPLETED]
    if held:
        first = held[0][0]
        what = _through_paths(op, first)
        if op.expect_holder is not None and not same_person(first.holder, op.expect_holder):
            what = f"expected {op.expect_holder}, but {what or op.resource}"
        edges = [x for x, how in held if how in ASSIGNED]
        hints: tuple[str, ...] = ()
        if ends := [at for x in edges if (at := abandoned_at(x, policy)) is not None]:
            hints = (f"after {rfc3339(max(ends), round_up=True)} anyone may claim it",)
        elif edges:
            hints = ("this ledger never treats a task as abandoned",)
        if op.takeover:
            hints += ("a takeover replaces an assignment, never a live lease",)
        raise held_error(op.resource, op.scope, held, policy, moment, what=what, hints=hints)
    if stays:
        done = stays[0][0]
        raise PolicyRefused(
            f"{op.resource} is completed, by {done.holder}",
            resource=op.resource.text,
            scope=op.scope,
            conflicts=tuple(x for x, _ in stays),
            hints=(hint("to claim a completed task again, use {}", reopen=True),),
        )


def _through_paths(op: Claim, lease: Lease) -> str:
    pattern, named = op.resource.pattern, lease.resource == op.resource
    if named and scopes_overlap(lease.scope, op.scope):
        return ""
    pair = overlaps(op.resource, op.paths if pattern is None else (pattern, *op.paths), lease)
    if pair is None or pair == (pattern, lease.resource.pattern):
        return ""
    theirs = f"{pair[1]} of {lease.resource}" if pair[1] != lease.resource.pattern else pair[1]
    if pair[0] == pair[1]:
        return f"{op.resource} covers {theirs}, which"
    ours = op.resource if pair[0] == pattern else f"{pair[0]} of {op.resource}"
    return f"{ours} overlaps {theirs}, which"


def held_error(
    resource: Resource,
    scope: str | None,
    held: Sequence[tuple[Lease, Relation]],
    policy: Policy,
    moment: Moment,
    *,
    error: type[GitleaseError] = LeaseHeld,
    what: str = "",
    hints: tuple[str, ...] = (),
) -> GitleaseError:
    """The refusal that names the holder, the session, where, and when all of it is free."""
    # What an edge protects, now or once the lease has lapsed, has no such time.
    edges = [how in ASSIGNED for _, how in held]
    kept = (*ASSIGNED, Relation.THEIRS)
    verb = "is assigned to" if edges[0] else "is held by"
    leases = tuple(x for x, _ in held)
    return error(
        f"{what or resource} {verb} {leases[0].holder}",
        resource=resource.text,
        scope=scope,
        conflicts=leases,
        free_at=None
        if any(x.edge_stays and how in kept and x.resource == resource for x, how in held)
        else max(free_at(x, policy, moment) for x in leases),
        hints=hints,
        by_edge=any(edges),
    )


ABANDONED = "it was abandoned"


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """A claim that nothing stands against, and what it displaces.

    ``own`` is the caller's record of the same part, and ``how`` it stands. Of those whom the task
    file names, the ``unassigned`` lose their edge, and the ``assigned`` keep it.
    """

    ttl: int
    paths: tuple[str, ...]
    own: Lease | None
    how: Relation | None
    displaced: list[Lease]
    unassigned: tuple[Assignee, ...]
    assigned: tuple[Assignee, ...]


def claim(ledger: Ledger, op: Claim, moment: Moment) -> tuple[Ledger, Outcome]:
    """Grant, renew the caller's own, or refuse with every lease that stands in the way."""
    decision, asked = _decide(ledger, op, moment), op
    own = decision.own
    if own is not None and decision.how is Relation.MINE and not own.parked:
        if set(decision.paths) - set(own.paths):
            check_open(ledger.header, moment, op.resource.text)
        binds = may_bind(ledger, own, op.actor, moment)
        status, state = "renewed", ledger
        lease = replace(
            prolonged(own, op.id, ledger, moment, seconds=decision.ttl),
            session=op.actor.session if binds else own.session,
            ttl=decision.ttl,
            paths=decision.paths,
            reason=op.reason or own.reason,
            # Where it was claimed tells who else may work under it, until one session has it alone.
            host=(binds and op.actor.host) or own.host or op.actor.host,
            branch=op.actor.branch or own.branch,
            edge=own.edge or op.edge,
            picked=own.picked and op.picked,
        )
    else:
        if own is not None and decision.how is Relation.MINE:
            # An older version parked it, and goes on with it by a new grant.
            reason, edge = op.reason or own.reason, op.edge or own.edge
            asked = replace(op, reason=reason, edge=edge, picked=False)
        elif own is not None and decision.how is Relation.MINE_LAPSED and own.edge_stays:
            # What its person claimed by name stays theirs, whoever of them takes it from the queue.
            asked = replace(op, picked=False)
        status = "claimed"
        state, lease = _granted(ledger, asked, decision, moment)
    state, others, events = _displace(state, asked, decision, moment)
    status = "taken_over" if others or decision.unassigned else status
    first = event(status, op.id, moment.now.wall_ms, op.actor.holder, lease)
    # What others may come to rely on must not be forgotten with the next heartbeat.
    only_renews = status == "renewed" and not decision.displaced
    done = Outcome(
        operation=op.id,
        status=status,
        leases=(lease,),
        events=ops.mark_claims_after_lapse((first, *events), [op.id] if op.replaces_edges else ()),
        displaced=others,
        unassigned=tuple(a.name for a in decision.unassigned),
        assigned=tuple(a.name for a in decision.assigned),
        is_renewal=only_renews and _relied_on(own) == _relied_on(lease),
    )
    return served(state.put(lease), op, moment), done


def _decide(ledger: Ledger, op: Claim, moment: Moment) -> _Decision:
    policy = ledger.header.policy
    if op.takeover and not (op.reason or "").strip():
        raise UsageError("a takeover needs a reason", resource=op.resource.text)
    if op.expect_holder is not None and not op.takeover:
        raise UsageError("an expected holder needs a takeover", resource=op.resource.text)
    ttl, paths = granted_ttl(op, policy, op.resource), _check_paths(op.paths)
    own = ledger.lease(op.resource, op.scope)
    how = None if own is None else relation(own, op.actor, policy, moment)
    goes_on = how is Relation.MINE
    if own is not None and goes_on:
        # A renewal adds paths and drops none: somebody relies on those that are covered.
        paths = _check_paths(tuple(dict.fromkeys((*own.paths, *paths))))
        # Without a TTL of its own it asks for what was granted, not for a default.
        ttl = min(own.ttl, policy.ttl_max) if op.ttl is None else ttl
    task = relations(ledger, op.resource, op.actor, moment)
    rivals = rivals_of(ledger, op.resource, op.scope, paths)
    blocking = [*in_the_way(ledger, op, rivals, moment), *assignees(task, op, rivals)]
    if op.new and own is not None and how is Relation.MINE and not own.parked:
        raise held_error(op.resource, op.scope, [(own, how)], policy, moment)
    _refuse_unless_free(op, blocking, policy, moment)
    # A task file may name people who hold no lease. They block like holders, unless the records
    # say that they abandoned the task, or the caller already owns an edge of it.
    named = named_in_file(task, op.assigned)
    has_edge = any(x.edge and y is Relation.MINE for x, y in task)
    if op.expect_holder is not None:
        _check_expected(op, op.expect_holder, blocking, named, policy, moment)
    present = tuple(a for a in named if not (op.abandoned and _has_abandoned(a, task)))
    if present and not has_edge and not op.takeover:
        raise assigned_error(op.resource, op.scope, present)
    # Who holds it already takes nothing from those who wait.
    if not goes_on:
        give_way(ledger, op, moment)
    displaced = [x for x, y in blocking if gives_way_to(op, y) and not _stays_completed(x, op)]
    if own is not None and goes_on and own.parked:
        displaced = [own, *displaced]
    replaces_edges = op.takeover or not has_edge
    return _Decision(
        ttl=ttl,
        paths=paths,
        own=own,
        how=how,
        displaced=displaced,
        unassigned=named if replaces_edges else (),
        assigned=() if replaces_edges else named,
    )


def _stays_completed(lease: Lease, op: Claim) -> bool:
    # Of finished work that is opened again, what was done in other parts stays done.
    done = lease.state is State.COMPLETED and op.scope != WHOLE
    return done and not shares(lease, op.scope)


def _relied_on(lease: Lease | None) -> tuple[object, ...]:
    return () if lease is None else (lease.session, lease.paths, lease.reason, lease.picked)


def _has_abandoned(assignee: Assignee, task: Relations) -> bool:
    """Return whether an assignee has records of this task, all of them abandoned."""
    standings = {how for x, how in task if assignee.is_holder(x.holder)}
    return standings == {Relation.THEIRS_ABANDONED}


def refuse_unexpected(
    op: Claim | ops.Revoke, held: Relations, policy: Policy, moment: Moment
) -> None:
    """Raise LeaseHeld where any of these is not of the holder whom the caller expects."""
    expected = op.expect_holder
    others = [(x, how) for x, how in held if expected and not same_person(x.holder, expected)]
    if others:
        what = f"expected {expected}, but {op.resource}"
        raise held_error(op.resource, op.scope, others, policy, moment, what=what)


def _check_expected(
    op: Claim,
    expected: str,
    blocking: Relations,
    named: tuple[Assignee, ...],
    policy: Policy,
    moment: Moment,
) -> None:
    taken = [(x, how) for x, how in blocking if gives_way_to(op, how) and x.state is State.ACTIVE]
    others = [(x, how) for x, how in taken if not x.same_holder(op.actor)]
    refuse_unexpected(op, others, policy, moment)
    if strangers := tuple(a for a in named if not a.is_holder(expected)):
        refusal = assigned_error(op.resource, op.scope, strangers)
        raise refusal.with_(message=f"expected {expected}, but {refusal.message}")
    # A takeover that is repeated finds the caller; what they had once, and lost, is nobody's.
    known = [x.holder for x, how in blocking if x.edge or how is not Relation.MINE_LAPSED]
    if not named and not any(same_person(x, y) for x in known for y in (expected, op.actor.holder)):
        text, hints = f"expected {expected}, but {op.resource} is free", ("claim it as usual",)
        # Waiting would not change it, as with an edge.
        raise LeaseHeld(text, resource=op.resource.text, scope=op.scope, by_edge=True, hints=hints)


def _check_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    # A record with more would read as damaged.
    if len(paths) > ops.MAX_PATHS or sum(map(len, paths)) > ops.MAX_PATHS_LENGTH:
        raise UsageError(
            f"a lease covers at most {ops.MAX_PATHS} paths "
            f"of {ops.MAX_PATHS_LENGTH} characters together",
            hints=("claim a folder or a pattern instead of its files",),
        )
    return paths


def granted_ttl(op: Claim, policy: Policy, resource: Resource | None) -> int:
    """The TTL of a claim, in seconds. A configured default is held to the limits like an option."""
    asked = op.ttl if op.ttl is not None or op.default_fits else op.default_ttl
    try:
        return fit_ttl(asked, op.default_ttl, policy, resource)
    except PolicyRefused as refusal:
        raise refusal.with_(by_setting=op.ttl is None) from None


def fit_ttl(asked: int | None, default: int, policy: Policy, resource: Resource | None) -> int:
    """The TTL to grant: what was asked when policy allows it, else the default made to fit."""
    if asked is None:
        return min(max(default, policy.ttl_min), policy.ttl_max)
    if not policy.ttl_min <= asked <= policy.ttl_max:
        raise PolicyRefused(
            f"ttl {format_duration(asked)} is outside the ledger's limits, "
            f"{format_duration(policy.ttl_min)} to {format_duration(policy.ttl_max)}",
            resource=resource.text if resource else None,
            hints=(
                hint("the limits are the ledger's policy: `{}` shows them", "config", ledger=True),
            ),
        )
    return asked


def prolonged(
    lease: Lease,
    op_id: str,
    ledger: Ledger,
    moment: Moment,
    *,
    seconds: int,
    most: int | None = None,
) -> Lease:
    """Return the lease extended to at least so many seconds from now. Never shortens it.

    ``most``: the seconds that it may last from now on, where that is not the maximum of a TTL.
    """
    policy, now = ledger.header.policy, moment.now.wall_ms
    limit = policy.ttl_max if most is None else most
    # Everybody else waits for the duration: by a clock that was set back, the old end would be far
    # away.
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
    ledger: Ledger, op: Claim, decision: _Decision, moment: Moment
) -> tuple[Ledger, tuple[Lease, ...], tuple[Event, ...]]:
    # The unassigned are notified even if they hold no lease. The caller's own displaced leases have
    # expired, except one that an older version parked.
    state, by, now, displaced = ledger, op.actor, moment.now.wall_ms, decision.displaced
    why = ABANDONED if op.abandoned and not op.takeover else op.reason
    for old in displaced:
        state = state.remove(old)
    taken = tuple(x for x in displaced if x.state is State.ACTIVE and not x.same_holder(by))
    for old in taken:
        state = give_notice(state, old, op.id, "taken_over", by.holder, now, why)
    events = [event("displaced", op.id, now, by.holder, x, reason=why) for x in taken]
    if decision.unassigned:
        about = Event("displaced", op.id, now, by.holder, op.resource.text, op.scope, reason=why)
        # Whoever held a lease of it has been told above.
        unheld = without(decision.unassigned, taken)
        state, told_events = tell_assignees(
            state, unheld, about, what="taken_over", word=f"{op.id}-", first=len(taken)
        )
        events += told_events
    for old in displaced:
        if old.state is State.ACTIVE and old.same_holder(by):
            state = tell_session(state, old, op, "replaced", now)
            if not holder_has(old, moment):
                events.append(event(ops.LAPSED, op.id, now, by.holder, old))
    return state, taken, tuple(events)


def _granted(
    ledger: Ledger, op: Claim, decision: _Decision, moment: Moment
) -> tuple[Ledger, Lease]:
    check_open(ledger.header, moment, op.resource.text)
    ledger, lease = new_lease(ledger, op, moment.now.wall_ms, scope=op.scope, ttl=decision.ttl)
    if op.picked:
        # Older clients would drop the mark, so they must refuse the ledger from now on.
        form = max(ledger.header.format, PICKED_FORMAT)
        ledger = ledger.with_header(replace(ledger.header, format=form))
    # Tokens grow by construction, unless somebody has set the sequence back by hand (S4).
    if lease.token <= max((x.token for x in decision.displaced), default=0):
        raise Invalid(
            f"the ledger's sequence is behind the token of {op.resource}: it was tampered with"
        )
    paths, picked = decision.paths, op.picked
    return ledger, replace(lease, paths=paths, reason=op.reason, edge=op.edge, picked=picked)


def new_lease(
    ledger: Ledger, op: Claim | ops.Complete, now: int, *, scope: str, ttl: int
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
    """Leave a notice for a session whose lease another session of its person ends."""
    session, caller = ended.session, op.actor.session
    # The caller's own session and those that it started are no others.
    if session is None or (caller is not None and f"{session}/".startswith(f"{caller}/")):
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


def outcome(
    op: Operation,
    status: str,
    leases: Sequence[Lease],
    moment: Moment,
    *,
    before: Sequence[Lease] | None = None,
    reason: str | None = None,
) -> Outcome:
    """The outcome for some leases, with an event for each as it is, or was ``before``."""
    now, by = moment.now.wall_ms, op.actor.holder
    shown = leases if before is None else before
    return Outcome(
        operation=op.id,
        status=status,
        leases=tuple(leases),
        events=tuple(event(status, op.id, now, by, x, reason=reason) for x in shown),
        changed=bool(leases),
    )


def pick(ledger: Ledger, op: ops.Pick, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make the first claim that can be made. NothingLeft when there is none, or for resources that
    were ``named`` the refusal of the one that becomes free first.

    A loser of the swap decides again, on the winner's ledger, and comes to the next one: so each of
    many workers gets work of its own (S1).
    """
    policy = ledger.header.policy
    for wanted in op.claims[:1]:  # or else each of them would be passed over
        check_open(ledger.header, moment, wanted.resource.text)
    refusals = list[GitleaseError]()
    for wanted in op.claims:
        granted_ttl(wanted, policy, None)  # or else each of them would be passed over
        if not op.named and _is_passed_over(ledger, wanted, moment):
            continue
        try:
            if op.named:
                _refuse_own(ledger, wanted, moment)
            return claim(ledger, replace(wanted, id=op.id), moment)
        # Held, completed, or a record or paths that no claim can be made with.
        except (LeaseHeld, PolicyRefused, UsageError, Invalid) as refusal:
            refusals.append(refusal)
    if op.named:
        raise _none_free([x.resource.text for x in op.claims], refusals)
    raise NothingLeft("nothing is left to claim")


def _refuse_own(ledger: Ledger, op: Claim, moment: Moment) -> None:
    """Raise LeaseHeld if a live lease of the caller's own shares work with a claim.

    It is live as long as it would be for anybody else: another terminal of the same person may rely
    on it, and its clock may be behind.
    """
    policy = ledger.header.policy
    own = [
        (x, relation(x, op.actor, policy, moment))
        for x in rivals_of(ledger, op.resource, op.scope, op.paths)
        if x.state is State.ACTIVE and x.same_holder(op.actor) and not x.left_behind
    ]
    own = [(x, how) for x, how in own if standing(x, policy, moment) is not Standing.LAPSED]
    if own:
        what = _through_paths(op, own[0][0])
        raise held_error(op.resource, op.scope, own, policy, moment, what=what)


_NAMED = 5  # resources of which none is free that a refusal names


def _none_free(names: Sequence[str], refusals: Sequence[GitleaseError]) -> GitleaseError:
    """The refusal of several resources of which any would have done."""
    first = min(refusals, key=_how_soon)
    if len(refusals) == 1:
        return first
    more = len(names) - _NAMED
    listed = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return first.with_(message=f"none of {listed} is free: {first.message}", each=tuple(refusals))


def _how_soon(refusal: GitleaseError) -> tuple[int, float]:
    # What is left to others for a moment comes first, then leases by their end, then what no wait
    # frees.
    if not isinstance(refusal, LeaseHeld):
        return 4, 0
    if refusal.by_edge:
        return 3, 0
    if refusal.waiting:
        return 0, 0
    at = refusal.free_at_ms
    return (2, 0) if at is None else (1, at)


def _is_passed_over(ledger: Ledger, wanted: Claim, moment: Moment) -> bool:
    """Return whether the queue does not hand out a task: the caller is at it, or it failed."""
    if _is_at_it(ledger, wanted, moment):
        return True
    # Decided in this step, since another pool may have failed at it a moment ago (S1).
    setback = ledger.setback(wanted.resource)
    return setback is not None and setback.is_left_alone(moment.now.wall_ms)


def _is_at_it(ledger: Ledger, wanted: Claim, moment: Moment) -> bool:
    try:
        task = relations(ledger, wanted.resource, wanted.actor, moment)
    except Invalid:
        return True
    # What an older version parked is no run's.
    mine = [x for x, how in task if how is Relation.MINE and not x.parked]
    return any(scopes_overlap(x.scope, wanted.scope) for x in mine)
