"""The fenced push: work moves together with a renewal of the leases that it was done under.

1. The grants of a push are those that this clone believes in when it begins, whose paths or task
   files the commits touch, and those that were asked for by name. Each is named by its nonce: one
   that is lost on the way is not made good by a later one.
2. What others hold, or what is lost, is refused before anything is sent. What the ledger comes to
   after that is in the swap: the work's refs move in it or not at all, so that a takeover that
   lands first, even at the very server, refuses the work.
3. An unrelated change of the ledger means to decide, and to push, again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Literal, cast

from gitlease.core.errors import Denied, GitleaseError, LeaseLost
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import Actor, State
from gitlease.core.lease import Lease as LeaseRecord
from gitlease.core.ledger import Fate
from gitlease.core.loss import Loss
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.core.view import Lease
from gitlease.core.work_push import Became, WorkPush, WorkRef
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.notices import Settled, told_by
from gitlease.engine.ports import Prepared, Snapshot, Swapped, WorkStore
from gitlease.engine.transaction import Step, with_views
from gitlease.push.case import PushCase
from gitlease.push.ports import PlannedPush, Work
from gitlease.push.work import PushRequest

PushStatus = Literal["pushed", "up_to_date", "would_push"]

UNFENCED = "no lease of yours covers these commits: they are pushed without a fence"


class PushRefused(Denied):
    """git or the remote refused the work; ``refs`` says what became of each of its refs."""

    def __init__(
        self, message: str, *, refs: tuple[WorkRef, ...] = (), hints: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hints=hints)
        self.refs = refs


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswer:
    """What a push came to: ``pushed``, ``up_to_date``, or ``would_push`` of a dry run.

    ``leases`` were renewed with it; without any there was no fence.
    """

    status: PushStatus
    remote: str
    refs: tuple[WorkRef, ...] = ()
    leases: tuple[Lease, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fenced(self) -> bool:
        return bool(self.leases)


class FencedPush:
    """Fenced pushes, and the check of a token, for one actor.

    ``layers`` are those whose leases are looked at besides the session's own.
    ``quiet`` keeps the heartbeats of this clone from changing the ledger meanwhile.
    """

    def __init__(
        self,
        session: LedgerSession,
        work: Work,
        *,
        layers: Sequence[str],
        quiet: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._session, self._work, self._quiet = session, work, quiet
        self._layers = tuple(dict.fromkeys([session.layer, *layers]))

    # --- the check of a token ---------------------------------------------------------------------

    def fence(
        self, resource: Resource, token: int, *, scope: str | None = None
    ) -> tuple[Lease, tuple[str, ...]]:
        """The live lease of a resource, if it has exactly this token now. LeaseLost where not.

        With it what became of earlier changes. Asks the remote whatever is known. Raises Invalid
        where the record is damaged.
        """
        session = self._session
        head = session.store.fetch(session.layer)
        warnings = told_by(session.store, head)
        moment = session.moment(head)
        leases = head.ledger.leases_of(resource) if head.ledger else []
        asked = [x for x in leases if scope is None or fold(x.scope) == fold(scope)]
        found = next((x for x in asked if x.token == token), None)
        if found is not None and _is_live(found, moment):
            return session.views_in(head, [found], moment)[0], warnings
        refusal = LeaseLost(
            f"{resource} is not held with token {token} any more: {_instead(found, asked, moment)}",
            resource=resource.text,
            scope=scope,
            loss=_loss_of(found, [x for x in asked if _is_live(x, moment)], session.actor),
            conflicts=tuple(x for x in asked if x.state in (State.ACTIVE, State.COMPLETED)),
        )
        refusal.warnings = warnings
        raise with_views(refusal, head, session.actor, moment)

    # --- the push -------------------------------------------------------------------------------

    def push(
        self,
        wish: PushRequest,
        *,
        require: Sequence[Resource] = (),
        dry_run: bool = False,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> PushAnswer:
        """Push work under the leases that it belongs to; ``require`` names some that must be held.

        ``tell`` gets what the hooks of the repository print, and the server says, line by line.
        Raises LeaseLost or NotHolder where a grant is gone, LeaseHeld where the commits touch what
        another holds, PushRefused where git rejects a ref, UsageError for what cannot be pushed
        together with the ledger, Unavailable, Denied and UnknownOutcome.
        """
        settled, before = self._session.settled(), self._known_heads()
        try:
            plan = self._work.plan(wish, tell)
            answer = self._pushed(plan, before, require, dry_run=dry_run, tell=tell)
        except GitleaseError as refusal:
            refusal.warnings = (*settled.said, *refusal.warnings, *self._told_last(settled))
            raise
        warnings = (*settled.said, *answer.warnings, *self._told_last(settled))
        return replace(answer, warnings=warnings)

    def _pushed(
        self,
        plan: PlannedPush,
        before: Mapping[str, Snapshot],
        require: Sequence[Resource],
        *,
        dry_run: bool,
        tell: Callable[[str], None],
    ) -> PushAnswer:
        if any(one.reason for one in plan.refs):
            raise _rejected(plan.refs)
        brought = self._work.brought(plan)
        case = PushCase(
            self._session,
            brought.touched,
            require,
            lost=brought.lost,
            carried=lambda: self._work.carried(plan),
            before=before,
        )
        answer = PushAnswer(
            status="pushed", remote=plan.remote, refs=plan.refs, warnings=brought.warnings
        )
        if dry_run or not plan.push.refs:
            if dry_run or require:
                case.decide(self._fetched_heads())
            if not dry_run:
                self._work.follow(plan)
            status: PushStatus = "would_push" if plan.push.refs else "up_to_date"
            return replace(answer, status=status, warnings=answer.warnings + case.warnings)
        with ExitStack() as stack:
            store = cast("WorkStore", self._session.store)  # the store of a repository is one
            trip = _Trip(store, plan.push, tell, lambda: stack.enter_context(self._quiet()))
            try:
                steps = self._session.transaction.carry_out_on(
                    self._layers, case.decide, what="this push", send=trip.send
                )
            except Denied as refusal:
                if isinstance(refusal, PushRefused):
                    raise
                refs = tuple(_turned_down(x, refusal.message) for x in plan.refs)
                raise PushRefused(refusal.message, refs=refs, hints=refusal.hints) from None
        changed = {layer: step for layer, step in steps.items() if step.applied.changed}
        if not changed:
            for line in self._work.land(plan.push):
                tell(line)
        self._work.follow(plan)
        leases = [view for step in changed.values() for view in self._renewed(step)]
        warnings = answer.warnings + case.warnings + _late(leases)
        warnings += () if leases else (UNFENCED,)
        return replace(answer, leases=tuple(leases), warnings=warnings)

    def _renewed(self, step: Step) -> tuple[Lease, ...]:
        head = replace(step.head, ledger=step.applied.ledger)
        leases = [lease for outcome in step.applied.outcomes for lease in outcome.leases]
        return self._session.views_in(head, leases)

    def _told_last(self, settled: Settled) -> tuple[str, ...]:
        head = self._session.store.known(self._session.layer)
        return self._session.came_of(settled, head) + self._session.news(head)

    def _known_heads(self) -> dict[str, Snapshot]:
        known = {layer: self._session.store.known(layer) for layer in self._layers}
        return {layer: head for layer, head in known.items() if head is not None}

    def _fetched_heads(self) -> dict[str, Snapshot]:
        return {layer: self._session.store.fetch(layer) for layer in self._layers}


class _Trip:
    """The way of one push to the remote, however often it is tried."""

    def __init__(
        self,
        store: WorkStore,
        push: WorkPush,
        tell: Callable[[str], None],
        hush: Callable[[], object],
    ) -> None:
        self._store, self._push, self._tell, self._hush = store, push, tell, hush

    def send(self, prepared: Prepared) -> Swapped:
        """Move ledgers and work; after the first try nothing of this clone is to come between."""
        swapped = self._store.swap_with(prepared, self._push)
        if swapped.fate is not Fate.APPLIED:
            self._push = replace(self._push, again=self._push.again or swapped.sent)
            hush, self._hush = self._hush, lambda: None
            hush()
        for line in swapped.said:
            self._tell(line)
        return swapped


def _rejected(refs: tuple[WorkRef, ...]) -> PushRefused:
    """What git itself would not push, before anything was sent."""
    own = [x for x in refs if x.reason and "atomic push failed" not in x.reason] or list(refs)
    behind = any(word in x.reason for x in own for word in ("fetch first", "non-fast-forward"))
    hints = ("take in first what the remote has: git pull",) if behind else ()
    said = "; ".join(f"{x.ref}: {x.reason}" for x in own if x.reason)
    return PushRefused(f"git would not push: {said}", refs=refs, hints=hints)


def _turned_down(ref: WorkRef, reason: str) -> WorkRef:
    """What a ref became of a push that moved none of them: they move together or not at all."""
    return replace(ref, became=Became.REJECTED, reason=reason) if ref.moves else ref


def _is_live(lease: LeaseRecord, moment: Moment) -> bool:
    """Whether a run still has it: what is parked is kept for a later one."""
    return lease.state is State.ACTIVE and not lease.parked and holder_has(lease, moment)


def _instead(found: LeaseRecord | None, asked: Sequence[LeaseRecord], moment: Moment) -> str:
    """What there is in the place of a live lease with the token asked for."""
    if found is not None:
        ended = "it is parked" if found.parked else "it ran out"
        return ended if found.state is State.ACTIVE else f"it is {found.state.value}"
    live = [x for x in asked if _is_live(x, moment)]
    if live:
        return f"{live[0].holder} has it with token {live[0].token}"
    return "nobody holds it"


def _loss_of(found: LeaseRecord | None, live: Sequence[LeaseRecord], actor: Actor) -> Loss | None:
    """Why a token is worth nothing; None where only the word that was left of it can tell."""
    if found is None and live:
        return Loss.RELEASED_ELSEWHERE if live[0].same_holder(actor) else Loss.TAKEN_OVER
    return None if found is None or found.state is State.ACTIVE else Loss.RELEASED_ELSEWHERE


def _late(leases: Sequence[Lease]) -> tuple[str, ...]:
    return tuple(
        f"your lease of {x.resource} ran out while it was pushed; what was pushed has landed"
        for x in leases
        if x.state != "active"
    )
