"""Taking something: ``claim``, ``start`` and the pick of ``next``, and waiting until it is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import LeaseHeld
from gitlease.core.frozen import replace
from gitlease.core.lease import LeaseKey
from gitlease.core.moves.operations import Claim, Pick
from gitlease.core.resources.resource import WHOLE, Resource
from gitlease.engine.answers import NO_TURN, Answer, ClaimOptions, Turn, several
from gitlease.engine.edges import Planned
from gitlease.engine.intents import HELD
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.stepping import change_with_edges
from gitlease.engine.transaction import fresh_id

OnWait = Callable[[LeaseHeld], None]
Plan = Callable[[], Sequence[Planned]]
PLAIN = ClaimOptions()


def claim(
    session: LedgerSession,
    resources: Sequence[Resource],
    options: ClaimOptions = PLAIN,
    *,
    wait: int | None = None,
    on_wait: OnWait = lambda _held: None,
) -> Answer:
    """Take every resource, or none, and write the edge of each that is a task.

    ``wait`` blocks for at most that many seconds. Raises LeaseHeld, WaitTimeout, PolicyRefused,
    NotFound, Invalid, and what the remote gives.
    """
    wanted = several(resources)
    return _claim_when_free(
        session, lambda: session.edges.plan_claim(wanted, options), wanted, options, wait, on_wait
    )


def start(
    session: LedgerSession,
    resource: Resource,
    options: ClaimOptions = PLAIN,
    *,
    status: str | None = None,
    wait: int | None = None,
    on_wait: OnWait = lambda _held: None,
) -> Answer:
    """Claim a task and set its status: ``status``, else the project's word for in progress."""
    edges = session.edges

    def word(task: Task) -> str | None:
        under_way = task.progress is Progress.IN_PROGRESS
        return status or (None if under_way else edges.rules.word(Progress.IN_PROGRESS))

    def plan() -> Sequence[Planned]:
        edges.task(resource)
        return edges.plan_claim([resource], options, status=word)

    return _claim_when_free(session, plan, [resource], options, wait, on_wait)


def pick(
    session: LedgerSession,
    planned: Sequence[Planned],
    options: ClaimOptions,
    *,
    scopes: Mapping[Resource, str],
    among: frozenset[str],
    parked: frozenset[LeaseKey],
) -> Answer:
    """Claim the first of these tasks that is free, whoever else picks. NothingLeft if none is.

    The plans have been checked; ``scopes`` has those of tasks that are resumed. Raises
    ParkedMeanwhile where the caller parked one ``among`` these names that is not in ``parked``.
    """
    claims = tuple(
        _claim_of(session, p, replace(options, scope=scopes.get(p.resource, options.scope)))
        for p in planned
    )
    op = Pick(id=fresh_id(), actor=session.actor, claims=claims, tasks=among, parked=parked)
    return change_with_edges(
        session, "next", lambda: ([op], planned), goal=HELD, commit=options.commit, checked=True
    )


def wait(
    session: LedgerSession,
    resources: Sequence[Resource],
    *,
    scope: str = WHOLE,
    seconds: int | None = None,
    on_wait: OnWait = lambda _held: None,
) -> Answer:
    """Return once a claim of all of these would be granted, and claim nothing.

    ``seconds`` is the limit (None: there is none). Raises WaitTimeout, and PolicyRefused for
    completed work, which no waiting makes free.
    """
    from gitlease.core.duration import LONGEST
    from gitlease.engine.waiting.wait_conditions import WaitCondition
    from gitlease.engine.waiting.waiting import Waiter

    wanted, options = several(resources), ClaimOptions(scope=scope, any_name=True, commit=False)
    condition = WaitCondition(
        session, _asked(session, lambda: session.edges.plan_claim(wanted, options), options)
    )
    limit = LONGEST if seconds is None else seconds
    return Waiter(session, condition, wanted, scope, seconds=limit, on_wait=on_wait).get()


def _claim_when_free(
    session: LedgerSession,
    plan: Plan,
    resources: Sequence[Resource],
    options: ClaimOptions,
    wait: int | None,
    on_wait: OnWait,
) -> Answer:
    asked = _asked(session, plan, options)

    def attempt(turn: Turn) -> Answer:
        return change_with_edges(
            session, "claim", lambda: asked(turn), goal=HELD, commit=options.commit
        )

    if wait is None:
        return attempt(NO_TURN)
    from gitlease.engine.waiting.wait_conditions import WaitCondition
    from gitlease.engine.waiting.waiting import Waiter

    condition = WaitCondition(session, asked, attempt)
    return Waiter(session, condition, resources, options.scope, seconds=wait, on_wait=on_wait).get()


def _asked(
    session: LedgerSession, plan: Plan, options: ClaimOptions
) -> Callable[[Turn], tuple[Sequence[Claim], Sequence[Planned]]]:
    def asked(turn: Turn) -> tuple[Sequence[Claim], Sequence[Planned]]:
        planned = plan()
        return [_claim_of(session, p, options, turn) for p in planned], planned

    return asked


def _claim_of(
    session: LedgerSession, planned: Planned, options: ClaimOptions, turn: Turn = NO_TURN
) -> Claim:
    return Claim(
        id=fresh_id(),
        actor=session.actor,
        resource=planned.resource,
        lease_id=fresh_id(),
        scope=options.scope,
        ttl=options.ttl,
        default_ttl=session.default_ttl,
        default_fits=session.ttl_is_default,
        paths=tuple(dict.fromkeys((*options.paths, *planned.paths))),
        reason=options.reason,
        takeover=options.takeover,
        reopen=options.reopen,
        edge=planned.task is not None,
        assigned=planned.others,
        ticket=turn.ticket,
        passing=turn.passing,
    )
