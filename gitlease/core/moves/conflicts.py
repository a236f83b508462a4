"""Who stands in the way of a claim: the records that share work with it, and what that means."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.edge import Assignee
from gitlease.core.errors import GitleaseError, LeaseHeld, PolicyRefused
from gitlease.core.expiry import Moment, free_at
from gitlease.core.lease import Actor, Lease, State, same_person
from gitlease.core.ledger import Ledger
from gitlease.core.moves.operations import Claim, Complete, Release
from gitlease.core.policy import Policy
from gitlease.core.relation import TABLE, Relation, Verdict, relation
from gitlease.core.resources import pattern
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource, scopes_overlap


def rivals_of(
    ledger: Ledger, resource: Resource, scope: str, paths: tuple[str, ...]
) -> list[Lease]:
    """Every record that shares work with these: same name and scope, or a common file.

    Completed work stands in the way of its own name only, not of whatever its paths touched, and a
    part that is completed not of the whole, of which other parts are still to be done.
    """
    named = [x for x in ledger.leases_of(resource) if _shares(x, scope)]
    own = resource.pattern
    wanted = paths if own is None else (own, *paths)
    if not wanted:
        return named
    have = {x.key for x in named}
    pathy = (x for x in ledger.leases_with_paths() if x.key not in have)
    return named + [
        x for x in pathy if x.state is State.ACTIVE and pattern.any_overlap(wanted, x.patterns)
    ]


def relations(
    ledger: Ledger, resource: Resource, actor: Actor, moment: Moment
) -> list[tuple[Lease, Relation]]:
    """Every record of a resource, and how it stands to somebody."""
    policy = ledger.header.policy
    return [(x, relation(x, actor, policy, moment)) for x in ledger.leases_of(resource)]


def _shares(lease: Lease, scope: str) -> bool:
    if lease.state is State.COMPLETED and lease.scope != WHOLE:
        return fold(lease.scope) == fold(scope)
    return scopes_overlap(lease.scope, scope)


def may_bind(ledger: Ledger, lease: Lease, actor: Actor, moment: Moment) -> bool:
    """Whether an unbound lease may become this session's.

    Not where it shares work with a live lease of another session: while it is unbound the two are
    one person's, and bound they would be in conflict.
    """
    if actor.session is None or not actor.session_explicit or lease.session is not None:
        return False
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
        if how is Relation.THEIRS_ASSIGNED
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


def assigned_error(resource: Resource, scope: str | None, named: tuple[Assignee, ...]) -> LeaseHeld:
    """The refusal for a task that is another's by its file, without any lease."""
    return LeaseHeld(
        f"{resource} is assigned to {', '.join(a.known for a in named)}",
        resource=resource.text,
        scope=scope,
        holder=named[0].known,
    )


def has_edge(ledger: Ledger, op: Claim, moment: Moment) -> bool:
    """Whether the caller holds a lease of this task that came with an edge."""
    own = (Relation.MINE, Relation.PARKED)
    return any(x.edge and how in own for x, how in relations(ledger, op.resource, op.actor, moment))


def yields(how: Relation, op: Claim) -> bool:
    verdict = TABLE[how].claim
    return (
        verdict is Verdict.TAKE
        or (verdict is Verdict.NEEDS_TAKEOVER and op.takeover)
        or (verdict is Verdict.NEEDS_REOPEN and op.reopen)
    )


def refuse(op: Claim, stood: list[tuple[Lease, Relation]], policy: Policy, moment: Moment) -> None:
    in_the_way = [(x, how) for x, how in stood if TABLE[how].claim is not Verdict.YES]
    blocking = [(x, how) for x, how in in_the_way if not yields(how, op)]
    held = [(x, how) for x, how in blocking if how is not Relation.COMPLETED]
    if held:
        raise held_error(op.resource, op.scope, held, policy, moment)
    if blocking:
        done = blocking[0][0]
        raise PolicyRefused(
            f"{op.resource} is completed, by {done.holder}",
            resource=op.resource.text,
            scope=op.scope,
            conflicts=tuple(x for x, _ in blocking),
            hints=("a completed task is claimed again only by reopening it",),
        )


def held_error(
    resource: Resource,
    scope: str | None,
    held: Sequence[tuple[Lease, Relation]],
    policy: Policy,
    moment: Moment,
    *,
    error: type[GitleaseError] = LeaseHeld,
) -> GitleaseError:
    """The refusal that names the holder, the session, where, and when all of it is free.

    What an edge alone protects has no such time: then ``free_at`` is None.
    """
    edges = [how is Relation.THEIRS_ASSIGNED for _, how in held]
    verb = "is assigned to" if edges[0] else "is held by"
    leases = tuple(x for x, _ in held)
    return error(
        f"{resource} {verb} {leases[0].holder}",
        resource=resource.text,
        scope=scope,
        conflicts=leases,
        free_at=None if any(edges) else max(free_at(x, policy, moment) for x in leases),
    )
