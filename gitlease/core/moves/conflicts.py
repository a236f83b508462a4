"""Who stands in the way of a claim: the records that share work with it, and what that means."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.edge import Assignee
from gitlease.core.errors import GitleaseError, LeaseHeld, PolicyRefused
from gitlease.core.expiry import Moment, abandoned_at, free_at
from gitlease.core.instant import rfc3339
from gitlease.core.lease import Actor, Lease, State, same_person
from gitlease.core.ledger import Ledger
from gitlease.core.moves.operations import Claim, Complete, Release
from gitlease.core.policy import Policy
from gitlease.core.relation import TABLE, Relation, Verdict, relation
from gitlease.core.resources import pattern
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource, scopes_overlap

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
    done = {x.lease_id for x in finishing(records)}
    named = [x for x in records if x.lease_id in done or shares(x, scope)]
    own = resource.pattern
    wanted = paths if own is None else (own, *paths)
    if not wanted:
        return named
    have = {x.key for x in named}
    pathy = (x for x in ledger.leases_with_paths(wanted) if x.key not in have)
    return named + [x for x in pathy if x.state is State.ACTIVE and overlaps(resource, wanted, x)]


def in_the_way(
    ledger: Ledger, op: Claim, rivals: Sequence[Lease], moment: Moment
) -> list[tuple[Lease, Relation]]:
    """Those of the rivals that a claim must displace or give way to.

    An edge protects the name of its task alone: once the lease has lapsed, its paths are free, and
    a claim of them leaves the record to its holder.
    """
    policy = ledger.header.policy
    found = [(x, relation(x, op.actor, policy, moment)) for x in rivals]
    return [(x, how) for x, how in found if x.resource == op.resource or not only_edge(x, how)]


def only_edge(lease: Lease, how: Relation) -> bool:
    """Whether nothing is left of a lease but the edge that came with it."""
    return lease.edge and how in (*ASSIGNED, Relation.MINE_LAPSED)


def finishing(records: Sequence[Lease]) -> list[Lease]:
    """The completed records of one resource by which all of it is done; none where it is not.

    That is one of the whole; or those of several parts, where nobody is on any other.
    """
    done = [x for x in records if x.state is State.COMPLETED]
    if whole := [x for x in done if x.scope == WHOLE]:
        return whole
    return done if len(done) > 1 and len(done) == len(records) else []


def overlaps(resource: Resource, wanted: tuple[str, ...], lease: Lease) -> tuple[str, str] | None:
    """A path of these and one of a lease that can match a common file; None where none can."""
    same_task = resource.pattern is None and lease.resource == resource
    both = set(wanted).intersection(lease.patterns) if same_task else set()
    mine, theirs = ([x for x in some if x not in both] for some in (wanted, lease.patterns))
    pairs = ((a, b) for a in mine for b in theirs)
    return next((pair for pair in pairs if pattern.any_overlap(pair[:1], pair[1:])), None)


def relations(
    ledger: Ledger, resource: Resource, actor: Actor, moment: Moment
) -> list[tuple[Lease, Relation]]:
    """Every record of a resource, and how it stands to somebody."""
    policy = ledger.header.policy
    return [(x, relation(x, actor, policy, moment)) for x in ledger.leases_of(resource)]


def shares(lease: Lease, scope: str) -> bool:
    """Whether a record and a claim of a scope of the same resource are about common work."""
    if lease.state is State.COMPLETED and lease.scope != WHOLE:
        return fold(lease.scope) == fold(scope)
    return scopes_overlap(lease.scope, scope)


def may_bind(ledger: Ledger, lease: Lease, actor: Actor, moment: Moment) -> bool:
    """Whether a session that acts on an unbound lease binds it to itself."""
    if actor.session is None or not actor.session_explicit or lease.session is not None:
        return False
    return fits_session(ledger, lease, actor, moment)


def fits_session(ledger: Ledger, lease: Lease, actor: Actor, moment: Moment) -> bool:
    """Whether an unbound lease shares no work with a live lease of another session of its holder's.

    While it is unbound the two are one person's, and bound they would be in conflict.
    """
    rivals = rivals_of(ledger, lease.resource, lease.scope, lease.paths)
    policy = ledger.header.policy
    return not any(
        relation(x, actor, policy, moment) is Relation.MY_OTHER_RUN
        for x in rivals
        if x.key != lease.key
    )


def assignees(
    ledger: Ledger, op: Claim, rivals: list[Lease], moment: Moment
) -> list[tuple[Lease, Relation]]:
    """Who else the whole task is assigned to, by a lapsed lease on another scope of it.

    Where scopes divide a task every holder of a scope is an assignee: one with a live lease on
    another scope does not block, and fellow assignees do not block each other.
    """
    asked = {x.lease_id for x in rivals}
    task = relations(ledger, op.resource, op.actor, moment)
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


def named_in_file(
    ledger: Ledger, op: Claim | Release | Complete, moment: Moment
) -> tuple[Assignee, ...]:
    """Whose the task is by its file alone: those with no live lease on another scope of it."""
    if not op.assigned:
        return ()
    task = relations(ledger, op.resource, op.actor, moment)
    live = [x.holder for x, how in task if how is Relation.THEIRS]
    return tuple(a for a in op.assigned if not any(a.is_holder(holder) for holder in live))


def abandoned_by(
    ledger: Ledger, op: Claim, named: tuple[Assignee, ...], moment: Moment
) -> tuple[Assignee, ...]:
    """The assignees who have records of this task, all of them abandoned."""
    if not named or not op.abandoned:
        return ()
    task = relations(ledger, op.resource, op.actor, moment)
    return tuple(
        a
        for a in named
        if {how for x, how in task if a.is_holder(x.holder)} == {Relation.THEIRS_ABANDONED}
    )


def assigned_error(resource: Resource, scope: str | None, named: tuple[Assignee, ...]) -> LeaseHeld:
    """The refusal for a task that is another's by its file, without any lease."""
    known = tuple(dict.fromkeys(a.known for a in named))
    refusal = LeaseHeld(
        f"{resource} is assigned to {', '.join(known)}",
        resource=resource.text,
        scope=scope,
        holder=known[0],
    )
    refusal.by_edge, refusal.assignees = True, known
    return refusal


def has_edge(ledger: Ledger, op: Claim, moment: Moment) -> bool:
    """Whether the caller holds a lease of this task that came with an edge."""
    own = (Relation.MINE, Relation.PARKED)
    return any(x.edge and how in own for x, how in relations(ledger, op.resource, op.actor, moment))


def yields(how: Relation, op: Claim) -> bool:
    verdict = TABLE[how].claim
    return (
        verdict is Verdict.TAKE
        or (verdict is Verdict.NEEDS_TAKEOVER and op.takeover)
        or (verdict is Verdict.NEEDS_LOOK and (op.takeover or op.abandoned))
        or (verdict is Verdict.NEEDS_REOPEN and op.reopen)
    )


def refuse(op: Claim, stood: list[tuple[Lease, Relation]], policy: Policy, moment: Moment) -> None:
    in_the_way = [(x, how) for x, how in stood if TABLE[how].claim is not Verdict.YES]
    blocking = [(x, how) for x, how in in_the_way if not yields(how, op)]
    held = [(x, how) for x, how in blocking if how is not Relation.COMPLETED]
    if held:
        first = held[0][0]
        what = _through_paths(op, first)
        if op.expect_holder is not None and not same_person(first.holder, op.expect_holder):
            what = f"expected {op.expect_holder}, but {what or op.resource}"
        error = held_error(op.resource, op.scope, held, policy, moment, what=what)
        edges = [x for x, how in held if how in ASSIGNED]
        error.hints = _until(edges, policy) if edges else ()
        if op.takeover:
            error.hints += ("a takeover replaces an assignment, never a live lease",)
        raise error
    if blocking:
        done = blocking[0][0]
        raise PolicyRefused(
            f"{op.resource} is completed, by {done.holder}",
            resource=op.resource.text,
            scope=op.scope,
            conflicts=tuple(x for x, _ in blocking),
            hints=("to claim a completed task again, use --reopen",),
        )


def _through_paths(op: Claim, lease: Lease) -> str:
    own, named = op.resource.pattern, lease.resource == op.resource
    if named and scopes_overlap(lease.scope, op.scope):
        return ""
    pair = overlaps(op.resource, op.paths if own is None else (own, *op.paths), lease)
    if pair is None or pair == (own, lease.resource.pattern):
        return ""
    theirs = f"{pair[1]} of {lease.resource}" if pair[1] != lease.resource.pattern else pair[1]
    if pair[0] == pair[1]:
        return f"{op.resource} covers {theirs}, which"
    ours = op.resource if pair[0] == own else f"{pair[0]} of {op.resource}"
    return f"{ours} overlaps {theirs}, which"


def _until(edges: Sequence[Lease], policy: Policy) -> tuple[str, ...]:
    ends = [at for x in edges if (at := abandoned_at(x, policy)) is not None]
    if not ends:
        return ("this ledger never treats a task as abandoned",)
    when = rfc3339(max(ends), round_up=True)
    return (f"after {when} anyone may claim it, unless its assignee was seen at work",)


def held_error(
    resource: Resource,
    scope: str | None,
    held: Sequence[tuple[Lease, Relation]],
    policy: Policy,
    moment: Moment,
    *,
    error: type[GitleaseError] = LeaseHeld,
    what: str = "",
) -> GitleaseError:
    """The refusal that names the holder, the session, where, and when all of it is free.

    What an edge protects, now or once the lease has lapsed, has no such time: then ``free_at`` is
    None.
    """
    edges = [how in ASSIGNED for _, how in held]
    kept = (*ASSIGNED, Relation.THEIRS)  # by an edge, now or once the lease has lapsed
    verb = "is assigned to" if edges[0] else "is held by"
    leases = tuple(x for x, _ in held)
    refusal = error(
        f"{what or resource} {verb} {leases[0].holder}",
        resource=resource.text,
        scope=scope,
        conflicts=leases,
        free_at=None
        if any(x.edge_stays and how in kept and x.resource == resource for x, how in held)
        else max(free_at(x, policy, moment) for x in leases),
    )
    refusal.by_edge = any(edges)
    return refusal
