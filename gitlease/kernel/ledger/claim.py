"""Taking something: ``claim``, ``start`` and the pick of ``next``, and waiting until it is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from gitlease.kernel.ledger.answers import NO_TURN, Answer, ClaimOptions, Turn, several
from gitlease.kernel.ledger.chores import remarks
from gitlease.kernel.ledger.edges import HELD, Planned
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.stepping import change_with_edges
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.edge import Assignee, Progress, Task
from gitlease.kernel.rules.errors import GitleaseError, Invalid, LeaseHeld
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import LONGEST, MS, humanize_duration
from gitlease.kernel.rules.lease import Relation, State, place, relation
from gitlease.kernel.rules.ledger import Ticket
from gitlease.kernel.rules.moves.claiming import rivals_of
from gitlease.kernel.rules.moves.operations import Bind, Claim, LeaveTicket, Operation, Pick
from gitlease.kernel.rules.moves.tickets import WINDOW, NotYourTurn, before, may_pass
from gitlease.kernel.rules.resources import WHOLE, Resource, parse_resource

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
    """Claim all of these resources or none, and write the edge of each that is a task.

    With ``one`` among the options, claim the first of them that is free, or that becomes free.
    ``wait`` blocks for at most that many seconds. Raises LeaseHeld, WaitTimeout, PolicyRefused,
    NotFound, Invalid, and what the remote gives.
    """
    wanted = several(resources, besides=options.bind)
    edges = session.edges
    messages: list[str] = []

    def plan() -> Sequence[Planned]:
        if not options.one:
            return edges.plan_claim(wanted, options)
        # A task that is done, or whose file cannot be edited, is none of those that are free.
        planned, against = edges.writable(
            wanted, lambda some: edges.plan_claim(some, options), commit=options.commit
        )
        if not planned:
            raise against[0][1]
        messages[:] = (f"passed over: {error.message}" for _, error in against)
        return planned

    try:
        answer = _claim(ClaimPlan(session, plan, wanted, options), wait=wait, on_wait=on_wait)
    except GitleaseError as refusal:
        raise refusal.with_(warnings=(*refusal.warnings, *messages)) from None
    return replace(answer, warnings=(*answer.warnings, *messages))


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
        # A project may have several words for it: the one that is there stays.
        under_way = task.progress is Progress.IN_PROGRESS
        return status or (None if under_way else edges.rules.word(Progress.IN_PROGRESS))

    def plan() -> Sequence[Planned]:
        edges.task(resource)
        return edges.plan_claim([resource], options, status=word)

    return _claim(ClaimPlan(session, plan, [resource], options), wait=wait, on_wait=on_wait)


def pick(
    session: LedgerSession,
    planned: Sequence[Planned],
    options: ClaimOptions,
    *,
    abandoned: bool,
) -> Answer:
    """Claim the first of these tasks that is free. Raises NothingLeft if none is.

    The plans have been checked. ``abandoned``: the tasks are.
    """
    claims = tuple(_claim_of(session, p, options, abandoned=abandoned) for p in planned)
    claims = tuple(replace(x, passing=left_to(session, x)[1] or None) for x in claims)
    if options.before_sending is not None and not session.is_dry:
        options.before_sending(claims)
    op = Pick(id=fresh_id(), actor=session.actor, claims=claims)
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
    """Return once a claim of all of these would be granted, without claiming.

    ``seconds`` is the limit (None: no limit). Raises WaitTimeout, and PolicyRefused for completed
    work, which waiting does not free.
    """
    # Nothing is claimed, so a name need not be a task's.
    from gitlease.kernel.ledger.wait import Waiter

    wanted = several(resources)
    options = ClaimOptions(scope=scope, any_name=True, commit=False, default_fits=True)
    plan = ClaimPlan(session, lambda: session.edges.plan_claim(wanted, options), wanted, options)
    limit = LONGEST if seconds is None else seconds
    session.learn()
    waiter = Waiter(plan, seconds=limit, on_wait=on_wait, claims=False)
    for attempt in waiter.attempts():
        with attempt:
            attempt.answer = waiter.check_free(attempt)
    answer = attempt.answer
    messages = session.messages.take()
    # Somebody may have what is free of leases, on a branch that cannot be read.
    warnings = (*messages, *answer.warnings, *session.edges.doubts_of(wanted))
    return replace(answer, warnings=tuple(dict.fromkeys(warnings)))


def _claim(plan: ClaimPlan, *, wait: int | None, on_wait: OnWait) -> Answer:
    session, options = plan.session, plan.options
    attempts = plan.attempts(NO_TURN)
    if wait is not None:
        from gitlease.kernel.ledger.wait import Waiter

        attempts = Waiter(plan, seconds=wait, on_wait=on_wait).attempts()
    for attempt in attempts:
        with attempt:
            try:
                attempt.answer = change_with_edges(
                    session,
                    "claim",
                    partial(plan.operations, attempt.turn),
                    goal=HELD,
                    commit=options.commit,
                    checked=options.one,
                )
            except LeaseHeld as held:
                hints = (*held.hints, *remarks(session, held.conflicts))
                raise held.with_(hints=hints) from None
    answer = attempt.answer
    return replace(answer, warnings=(*answer.warnings, *_claimed_elsewhere(session, answer)))


class Attempt:
    """One attempt to claim what is planned, in one turn; its block carries it out.

    It keeps any error of the block: the iterator that yielded the attempt raises it again, or
    yields another attempt.
    """

    answer: Answer
    error: BaseException | None = None

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> bool:
        self.error = error
        return error is not None


# An entry of this clone's memory: what was found free, for whom it was left, and since when.
_LEFT_TO = "left to"


def _may_pass(session: LedgerSession, resource: str, waiting: Sequence[str]) -> int:
    """How many who wait longer may be passed over: what is free was left to each for a while."""
    # No record says since when it is free: it counts from when this clone first found it so.
    now, name = session.clock.now().wall_ms, f"{_LEFT_TO} {waiting[0]} {resource}"
    most = round((len(waiting) + 6) * WINDOW * MS)
    before = (x.rpartition(" ") for x in session.store.shown(session.layer, ()))
    known = [int(at) for key, _, at in before if key == name and at.isdigit()]
    since = min((at for at in known if 0 <= now - at <= most), default=None)
    if since is None:
        if not session.is_dry:
            session.store.shown(session.layer, [f"{name} {now}"])
        return 0
    return may_pass((now - since) / MS)


def left_to(session: LedgerSession, wanted: Claim) -> tuple[Sequence[Ticket], int]:
    """The tickets that come before this claim, and how many of them it may pass.

    By this clone's copy of the ledger; none while somebody holds what is wanted.
    """
    head = session.store.known(session.layer)
    if head is None or head.ledger is None:
        return (), 0
    now = session.clock.now().wall_ms
    try:
        if not (waiting := before(head.ledger, wanted, now)):
            return (), 0
        rivals = rivals_of(head.ledger, wanted.resource, wanted.scope, wanted.paths)
    except Invalid:  # the claim says so
        return (), 0
    # Held things are left to nobody: the refusal names the holder.
    if any(x.state is State.ACTIVE and x.expires_at > now for x in rivals):
        return (), 0
    return waiting, _may_pass(session, wanted.resource.text, [t.id for t in waiting])


class ClaimPlan:
    """The operations of a claim by the task files as they are now, and which refusals it heeds."""

    def __init__(
        self,
        session: LedgerSession,
        plan: Plan,
        resources: Sequence[Resource],
        options: ClaimOptions,
    ) -> None:
        self.session, self._plan, self.options = session, plan, options
        self.resources = tuple(resources)
        self._abandoned: set[Resource] = set()
        self._under: dict[Resource, str] = {}  # what the caller has under another address
        self.paths: dict[Resource, tuple[str, ...]] = {}
        """Those of each resource, as they were planned last."""

    def operations(self, turn: Turn) -> tuple[Sequence[Operation], Sequence[Planned]]:
        gone, options = self._abandoned, self.options
        planned = [p.alone if p.resource in gone else p for p in self._plan()]
        planned = [self._moved(p) if p.resource in self._under else p for p in planned]
        claims = [
            _claim_of(
                self.session,
                p,
                self._options_for(p.resource) if p.resource in self._under else options,
                turn,
                abandoned=p.resource in gone,
            )
            for p in planned
        ]
        self.paths = {x.resource: x.paths for x in claims}
        if options.before_sending is not None and not self.session.is_dry:
            options.before_sending(claims)
        if options.one:
            return self._pick_of(claims, turn), planned
        if not options.bind or options.new:  # which refuses what would be bound
            return claims, planned
        resources, actor = tuple(p.resource for p in planned), self.session.actor
        bind = Bind(id=fresh_id(), actor=actor, resources=resources, scope=options.scope)
        return [bind, *claims], planned

    def _pick_of(self, claims: Sequence[Claim], turn: Turn) -> Sequence[Operation]:
        actor = self.session.actor
        # Each line has its own age: what was left to others long enough in one, is not in another.
        named = tuple(replace(x, passing=left_to(self.session, x)[1] or None) for x in claims)
        pick = Pick(id=fresh_id(), actor=actor, claims=named, named=True)
        if turn.ticket is None:
            return [pick]
        # The grant gives up the place in its own line alone.
        leave = LeaveTicket(id=fresh_id(), actor=actor, resources=turn.lines, ticket=turn.ticket)
        return [pick, leave]

    def _options_for(self, resource: Resource) -> ClaimOptions:
        former = self._under[resource]
        # Only from that address: somebody else may have been faster.
        reason = self.options.reason or f"{former} is the same person"
        return replace(self.options, takeover=True, expect_holder=former, reason=reason)

    def _moved(self, planned: Planned) -> Planned:
        """The plan that writes the caller's present name for the one of their other address."""
        people, actor = self.session.edges.rules.people, self.session.actor
        if not planned.mine or planned.task is None:
            return planned
        former = tuple(Assignee(x, people.holders_of(x), people.handles) for x in planned.mine)
        edit = replace(planned.edit, add=people.name_of(actor.holder))
        return replace(planned, others=former, mine=(), edit=edit)

    def attempts(self, turn: Turn) -> Iterator[Attempt]:
        """Yield one attempt after another until one succeeds; raise the refusal that stays."""
        while True:
            attempt = Attempt(turn)
            yield attempt
            if attempt.error is None:
                return
            if not isinstance(attempt.error, LeaseHeld):
                raise attempt.error
            held = attempt.error
            further = self._turn_after(held, turn)
            refusals = held.each or (held,)
            if further is not None:
                turn = further
            elif not any(self._again(x) or self._under_another_address(x) for x in refusals):
                raise held
            # The refusal is not raised, so the next answer reports its messages.
            self.session.messages.add(held.warnings)

    def _turn_after(self, held: LeaseHeld, turn: Turn) -> Turn | None:
        """The turn with which to try once more, as those who wait had their time; else None."""
        if not isinstance(held, NotYourTurn):
            return None
        passing = _may_pass(self.session, held.resource or "", held.waiting)
        enough = passing >= len(held.waiting) and passing > (turn.passing or 0)
        return replace(turn, passing=passing) if enough else None

    def _again(self, held: GitleaseError) -> bool:
        """True if to claim once more, now that by its records a task turned out to be abandoned."""
        session = self.session
        head = session.store.known(session.layer) if held.by_edge else None
        if head is None or held.resource is None:
            return False
        resource, moment = parse_resource(held.resource), session.moment(head)
        over = {
            x.resource == resource
            and relation(x, session.actor, head.policy, moment) is Relation.THEIRS_ABANDONED
            for x in held.conflicts
        }
        if resource in self._abandoned or over != {True}:
            return False
        self._abandoned.add(resource)
        return True

    def _under_another_address(self, held: GitleaseError) -> bool:
        """True if to claim once more what turned out to be the caller's, by another address."""
        session = self.session
        head = session.store.known(session.layer) if held.by_edge else None
        if head is None or held.resource is None or self.options.takeover:
            return False
        resource, moment = parse_resource(held.resource), session.moment(head)
        people, holder = session.edges.rules.people, session.actor.holder
        former = {x.holder for x in held.conflicts}
        theirs = all(
            x.resource == resource
            and relation(x, session.actor, head.policy, moment) is Relation.THEIRS_ASSIGNED
            and people.is_same(x.holder, holder)
            for x in held.conflicts
        )
        if resource in self._under or len(former) != 1 or not theirs:
            return False
        self._under[resource] = former.pop()
        return True


# What a claim has of its options as they are.
_SAME = [name for name in ClaimOptions.__annotations__ if name in Claim.__annotations__]


def _claim_of(
    session: LedgerSession,
    planned: Planned,
    options: ClaimOptions,
    turn: Turn = NO_TURN,
    *,
    abandoned: bool = False,
) -> Claim:
    paths = options.paths
    if not paths:  # of one's own lapsed lease they go on, as those of a live one do
        own = (
            x for x in session.decisions.own_records(planned.resource) if x.scope == options.scope
        )
        paths = next((x.paths for x in own), ())
    terms = {name: getattr(options, name) for name in _SAME}
    terms["paths"] = tuple(dict.fromkeys((*paths, *planned.paths)))
    # Unless the task is the caller's by its file, and not by an earlier pick.
    chosen = planned.mine and not any(
        x.picked for x in session.decisions.own_records(planned.resource)
    )
    terms["picked"] = options.picked and not chosen
    terms["default_fits"] |= session.terms.ttl_is_default
    return Claim(
        **terms,
        id=fresh_id(),
        actor=session.actor,
        resource=planned.resource,
        lease_id=fresh_id(),
        default_ttl=session.terms.default_ttl,
        abandoned=abandoned,
        edge=(planned.task or planned.away) is not None,
        assigned=planned.others,
        ticket=turn.ticket,
        passing=turn.passing,
    )


def _claimed_elsewhere(session: LedgerSession, answer: Answer) -> tuple[str, ...]:
    # Without a session, the same person may still be using it in another terminal.
    here, pid, _ = place(session.actor.host)
    now, messages = session.clock.now().wall_ms, []
    for view in answer.leases:
        if not view.renewals or view.session is not None or view.host is None:
            continue
        other_terminal = None not in (view.pid, pid) and view.pid != pid
        if view.host == here and not other_terminal:
            continue
        where = f"(pid {view.pid} on {view.host})" if view.pid else f"on {view.host}"
        age = max(0, (now - round(view.claimed_at.timestamp() * MS)) // MS)
        messages.append(
            f"{view.resource}: renewed your own lease, claimed {humanize_duration(age)} ago "
            f"in another terminal {where}"
        )
    return tuple(messages)
