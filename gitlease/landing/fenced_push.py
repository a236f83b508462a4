"""The fenced push: work moves together with a renewal of the leases that it was done under.

1. The grants of a push are those that this clone believes in when it begins, whose paths or task
   files the commits touch, and those required by name. Each is identified by its nonce: a later
   grant does not make up for one that is lost on the way.
2. Touching what others hold, a lost grant, or a commit that a later grant supersedes, is refused
   before anything is sent. After that the swap decides: the work's refs move with the ledger or not
   at all, so that a grant to others that lands first, even at the very server, refuses the work.
3. Whether a push is refused never depends on what this clone has been told before: a grant that is
   gone stops it only if the ledger shows that it ran out, was revoked or granted to another lease,
   or if the caller must hold it by name. Commits without a trailer that are refused so are noted.
4. After an unrelated change of the ledger the push is decided, and tried, again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from typing import Literal

from gitlease.guard.pushed_work import blocking, superseded_in, vouching_leases
from gitlease.guard.reports import PushedWork
from gitlease.guard.whose import GrantHistory, override_notes
from gitlease.kernel.git.rejections import is_race
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.chores import Settled, open_changes, pending_messages
from gitlease.kernel.ledger.ledger_session import LedgerSession, of_damage
from gitlease.kernel.ledger.ports import Prepared, Snapshot, Swapped
from gitlease.kernel.ledger.transaction import LONGEST_TURN, Step, fresh_id, with_views
from gitlease.kernel.rules.errors import Denied, GitleaseError, Invalid, LeaseHeld, LeaseLost, Loss
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Actor,
    Lease,
    Relation,
    State,
    free_at,
    holder_has,
)
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Fate
from gitlease.kernel.rules.loss import still_held
from gitlease.kernel.rules.moves.operations import AddNote, Complete, Operation, Renew, grant_of
from gitlease.kernel.rules.moves.transitions import Decided
from gitlease.kernel.rules.resources import Resource, fold, parse_resource
from gitlease.kernel.rules.viewpoint import Cover, GuardFinding, Severity, Viewpoint
from gitlease.kernel.rules.work import Became, Named, WorkRef, trailer
from gitlease.landing.plan import GitWork, PlannedPush, PushRequest

# --- one push, judged against the ledgers -----------------------------------------------------


class PushCase:
    """One push, judged anew on every state of the ledgers."""

    def __init__(
        self,
        session: LedgerSession,
        work: GitWork,
        plan: PlannedPush,
        brought: PushedWork,
        require: Sequence[Resource],
        *,
        before: Mapping[str, Snapshot],
        along: Callable[[], Sequence[Operation]] = tuple,
        override: str = "",
    ) -> None:
        """``brought`` is what the push brings; ``before`` are the cached heads as it began.

        ``along`` gives what is done to the ledger after the renewals. ``override`` is why
        superseded commits are pushed all the same.
        """
        self._session = session
        self._actor = session.actor
        self._work = work
        self._touched = brought.touched
        self._lost = {path.path for path in brought.lost}
        self._naming = brought.naming
        self._require = require
        # Asked only when something would be refused: it costs a connection to the remote.
        self._carried = cache(lambda: work.carried(plan))
        self._along = along
        self._override = override
        self._believed: dict[str, dict[str, Lease]] = {}
        self.warnings: tuple[str, ...] = ()
        wanted = {resource.key for resource in require}
        for layer, head in before.items():
            # What this clone believes as it begins is enforced, not what it learns later.
            mine = [x for x in _leases(head) if x.answers_to(self._actor) and not x.parked]
            about = [x for x in mine if x.resource.key in wanted]
            # Whether they ran out or not: for an actor who is nobody, every lease is another's.
            nobody = Viewpoint(Actor(holder=""), DEFAULT_POLICY, session.moment(head))
            covering = (finding.lease for finding in nobody.judge(self._touched, mine))
            self._believe(layer, (*about, *dict.fromkeys(covering)))

    def decide(self, heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
        """The renewals that go with the push, by layer. Raises the reason to refuse it.

        A ledger that may not be everybody's warns, as it does in hooks, and fences nothing.
        """
        doubts = {
            x: doubt for x, head in heads.items() if (doubt := self._session.store.doubt(head))
        }
        if doubts and self._require:
            raise next(iter(doubts.values()))
        warnings = [doubt.message for doubt in doubts.values()]
        steps = {x: self._session.transaction.decided(heads[x], []) for x in doubts}
        heads = {layer: head for layer, head in heads.items() if layer not in doubts}
        for layer, head in heads.items():  # a lost grant is reported first
            warnings += self._drop_ended(head, layer)
            self._renewal(head, layer)
        notes = {layer: self._superseded(head) for layer, head in heads.items()}
        required = self._required(heads)
        refusals: list[GitleaseError] = []
        for layer, head in heads.items():
            moment, leases = self._session.moment(head), _leases(head)
            view = Viewpoint(self._actor, head.policy, moment)
            self._believe(layer, required.get(layer, ()))
            self._believe(layer, view.under(self._touched, leases))
            self._believe(layer, vouching_leases(head, self._naming, view))
            more = self._along() if layer == self._session.layer else ()
            steps[layer] = self._renewal(head, layer, [*more, *notes[layer]])
            blocks = list[GuardFinding]()
            for finding in view.judge(self._touched, leases):
                if finding.severity is Severity.BLOCK:
                    # The holder's own work, or work that has landed, may be carried along. Who made
                    # it does not matter where the push takes it away.
                    if finding.path in self._lost:
                        blocks.append(finding)
                    elif blocker := self._blocking(finding, layer):
                        blocks.append(blocker)
                    continue
                lease = finding.lease
                run = f", session {lease.session}" if lease.session else ""
                whose = f"{lease.resource} by {lease.holder}{run}"
                warnings.append(f"{finding.path} falls under a lease of {whose}")
            warnings += of_damage(head.ledger.damage()) if head.ledger else ()
            if blocks:
                first = blocks[0]
                name = first.lease.resource
                what = f"{first.place} falls under {name},"
                if first.path == name.text:
                    what = f"{first.place} is"
                held = tuple(dict.fromkeys(x.lease for x in blocks))
                refusal = LeaseHeld(
                    f"{what} held by {first.lease.holder}",
                    resource=name.text,
                    conflicts=held,
                    free_at=max(free_at(x, head.policy, moment) for x in held),
                )
                refusals.append(with_views(refusal, head, self._actor, moment))
        if refusals:
            raise refusals[0]
        self.warnings = tuple(dict.fromkeys(warnings))
        return steps

    def _blocking(self, finding: GuardFinding, layer: str) -> GuardFinding | None:
        carried = self._carried()
        emails = {finding.lease.holder, *(y for x in carried for y in (*x.emails, x.author) if y)}
        makers = self._work.makers(emails) if any(x.named or x.mentioned for x in carried) else None
        return blocking(finding, carried, layer, self._actor, makers)

    def _superseded(self, head: Snapshot) -> list[Operation]:
        """The notes that record an override. Raises LeaseLost for superseded commits without it."""
        naming = [x for x in self._naming if any(y.layer == head.layer for y in x.named)]
        if not naming:
            return []
        session = self._session
        moment = session.moment(head)
        view = Viewpoint(self._actor, head.policy, moment)
        found = superseded_in(head, session.store, self._naming, view, self._work.makers)
        # Of commits that the remote turns out to have landed, none is pushed now.
        brought = {commit.id for commit in self._carried()} if found else set()
        found = [x for x in found if x.commit in brought]
        if found and not self._override:
            raise with_views(found[-1].error, head, self._actor, moment)
        return [
            AddNote(id=fresh_id(), actor=self._actor, resource=parse_resource(name), text=text)
            for name, texts in override_notes(found, self._override).items()
            for text in texts
        ]

    def _drop_ended(self, head: Snapshot, layer: str) -> list[str]:
        """Forget believed grants that were only given back, by their own person elsewhere.

        The next push would not believe in them any more, and so would be judged otherwise. Those
        that others were granted since, or hold, are lost; so are those that ran out, as their
        records say. Returns warnings.
        """
        believed = self._believed.get(layer, {})
        ledger = head.ledger
        moment = self._session.moment(head)
        view = Viewpoint(self._actor, head.policy, moment)
        warnings = []
        for lease_id, lease in [*believed.items()]:
            try:
                if ledger is None:
                    continue
                still_held(ledger, grant_of(lease), self._actor.holder, moment)
            except LeaseLost as loss:
                now = ledger.leases_of(lease.resource) if ledger is not None else []
                if any(x.lease_id == lease_id and x.state is State.ACTIVE for x in now):
                    continue  # it ran out, or is another session's now
                if any(view.severity(x) is Severity.BLOCK for x in now if x.state is State.ACTIVE):
                    continue  # others hold it
                held = [x for x in now if view.as_own(x) is Relation.MINE]
                if not held and self._is_superseded(lease, layer):
                    continue
                del believed[lease_id]
                # What the caller holds by now vouches for the work of an earlier lease of it.
                self._believe(layer, held)
                warnings += [] if held else [f"{loss.message}: the push goes on without it"]
            except Invalid:
                continue
        return warnings

    def _is_superseded(self, lease: Lease, layer: str) -> bool:
        store, resource = self._session.store, lease.resource
        named = Named(resource.text, resource.key, lease.token, lease.scope, layer)
        history = GrantHistory(lambda limit: store.history(layer, limit, older=True))
        later = history.after(named)
        return bool(later.grants or later.revoked_by)

    def _required(self, heads: Mapping[str, Snapshot]) -> dict[str, list[Lease]]:
        # In the first layer that has them.
        leases_by_layer: dict[str, list[Lease]] = {}
        for resource in self._require:
            refusals: list[GitleaseError] = []
            for layer, head in heads.items():
                try:
                    renewal = Renew(id=fresh_id(), actor=self._actor, resource=resource)
                    step = self._session.transaction.decided(head, [renewal])
                    leases = [x for outcome in step.applied.outcomes for x in outcome.leases]
                    leases_by_layer.setdefault(layer, []).extend(leases)
                    break
                except GitleaseError as refusal:
                    refusals.append(refusal)
            else:
                raise refusals[0]
        return leases_by_layer

    def _renewal(self, head: Snapshot, layer: str, along: Sequence[Operation] = ()) -> Decided:
        # What the push completes need not be renewed along with it.
        ended = {x.resource for x in along if isinstance(x, Complete)}
        believed = self._believed.get(layer, {})
        grants = tuple(grant_of(x) for x in believed.values() if x.resource not in ended)
        renewal = Renew(id=fresh_id(), actor=self._actor, grants=grants)
        operations = [*([renewal] if grants else []), *along]
        step = self._session.transaction.decided(head, operations)
        for outcome in step.applied.outcomes:
            for refusal in outcome.refused:
                lost = believed.get(getattr(refusal, "lease_id", None) or "")
                cover = Cover([lost] if lost else [])
                under = [x.id for x in self._carried() if any(map(cover.matching, x.touched))]
                if lost is not None:
                    self._work.note_grant(under, trailer(lost, layer))
                more = f"; commit {under[-1][:10]} is work under it" if under else ""
                refusal = refusal.with_(message=refusal.message + more)
                raise with_views(refusal, head, self._actor, step.moment)
        return step

    def _believe(self, layer: str, leases: Iterable[Lease]) -> None:
        believed = self._believed.setdefault(layer, {})
        places = {x.key for x in believed.values()}
        for x in leases:
            if x.key not in places:  # a later grant of the same is another one
                believed[x.lease_id] = x


def _leases(head: Snapshot) -> list[Lease]:
    leases = head.ledger.every_lease() if head.ledger else []
    return [x for x in leases if x.state is State.ACTIVE]


# --- the push ---------------------------------------------------------------------------------

PushStatus = Literal["pushed", "up_to_date", "would_push"]

# What git makes over HTTP of the server's words for a lost race, which is tried again.
GARBLED = "fatal: protocol error: bad line length character: erro"
UNFENCED = "no lease of yours covers these commits: they are pushed without a fence"


class PushRefused(Denied):
    """git or the remote refused the work; ``refs`` has the outcome of each of its refs."""

    refs: tuple[WorkRef, ...] = ()

    @property
    def is_race(self) -> bool:
        """Return whether the refusal is in the words of a lost race."""
        return is_race(self.message)


@dataclass(frozen=True, kw_only=True)
class PushAnswer:
    """The outcome of a push: ``pushed``, ``up_to_date``, or ``would_push`` of a dry run.

    ``leases`` were renewed with it; without any there was no fence.
    """

    status: PushStatus
    remote: str
    refs: tuple[WorkRef, ...] = ()
    leases: tuple[LeaseView, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fenced(self) -> bool:
        return bool(self.leases)


def fence(
    session: LedgerSession, resource: Resource, token: int, *, scope: str | None = None
) -> Answer:
    """Return the live lease with this token, by the remote's ledger.

    Raises LeaseLost if there is none, without a ``loss`` if the token was never granted.
    """
    head = session.store.fetch(session.layer)
    warnings, moment = pending_messages(session.store, head), session.moment(head)
    leases = head.ledger.leases_of(resource) if head.ledger else []
    leases = [x for x in leases if scope is None or fold(x.scope) == fold(scope)]
    held = [x for x in leases if x.state is State.ACTIVE and holder_has(x, moment)]
    granted = next((x for x in leases if x.token == token), None)
    if granted is not None and granted in held and not granted.parked:
        views = session.views_in(head, [granted], moment)
        return Answer(status="held", leases=views, changed=False, warnings=warnings)
    loss: Loss | None = None  # only a notice in the ledger could tell
    if granted is not None:
        state = f"it is {granted.state.value}"
        if granted.state is State.ACTIVE:
            state = "an older gitlease parked it" if granted in held else "it expired"
        else:
            loss = Loss.RELEASED_ELSEWHERE
    elif held:
        state = f"{held[0].holder} has it with token {held[0].token}"
        same = held[0].same_holder(session.actor)
        loss = Loss.RELEASED_ELSEWHERE if same else Loss.TAKEN_OVER
    else:
        state = "nobody holds it"
    never = granted is None and not _was_granted(session, head, resource, token)
    if never:
        state = "it was never granted with this token"
    verb = "is not held" if granted is None else "is no longer held"
    refusal = LeaseLost(
        f"{resource} {verb} with token {token}: {state}",
        resource=resource.text,
        scope=scope,
        loss=None if never else loss,
        never=never,
        conflicts=tuple(x for x in leases if x.state in (State.ACTIVE, State.COMPLETED)),
    )
    raise with_views(refusal.with_(warnings=warnings), head, session.actor, moment)


def _was_granted(session: LedgerSession, head: Snapshot, resource: Resource, token: int) -> bool:
    """False if a ledger has never granted a resource with this token; True if that is unknown."""
    if head.ledger is None or not 0 < token <= head.ledger.header.token:
        return False
    if head.ledger.header.epoch > 0:
        return True  # its history may lack grants that a deletion or a rollback took away
    history = GrantHistory(lambda limit: session.store.history(session.layer, limit, older=True))
    return history.may_have(token, resource.key)


def _check_git_would_push(plan: PlannedPush) -> None:
    """Raise PushRefused if git refuses a ref of the plan, whatever the leases are."""
    refused = [x for x in plan.refs if x.reason]
    if not refused:
        return
    causes = [x for x in refused if "atomic push failed" not in x.reason]
    why = "; ".join(f"{x.ref}: {x.reason}" for x in causes or refused)
    way = "integrate the remote's commits first: git pull"
    hints = (way,) if "fetch first" in why or "non-fast-forward" in why else ()
    raise PushRefused(f"git would not push: {why}", refs=plan.refs, hints=hints)


def _work_refused(plan: PlannedPush, refusal: Denied) -> PushRefused:
    refs = tuple(
        replace(x, became=Became.REJECTED, reason=refusal.message) if x.moves else x
        for x in plan.refs
    )
    return PushRefused(refusal.message, refs=refs, hints=refusal.hints)


class FencedPush:
    """Fenced pushes: ``layers`` are checked besides the session's; ``quiet`` pauses heartbeats."""

    def __init__(
        self,
        session: LedgerSession,
        work: GitWork,
        *,
        layers: Sequence[str],
        quiet: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._session, self._work, self._quiet = session, work, quiet
        self._layers = tuple(dict.fromkeys([session.layer, *layers]))

    def push(
        self,
        request: PushRequest,
        *,
        require: Sequence[Resource] = (),
        dry_run: bool = False,
        along: Callable[[], Sequence[Operation]] = tuple,
        unfenced: bool = False,
        override: str = "",
        tell: Callable[[str], None] = lambda _line: None,
    ) -> PushAnswer:
        """Push work under the leases that it belongs to; ``require`` names some that must be held.

        ``along`` gives what is done to the ledger with it, after the renewals. ``unfenced``: the
        leases are only looked at right before, and the ledger stays as it is. ``override`` is why
        superseded commits are pushed all the same, and is recorded in the ledger with them.
        ``tell`` gets the lines that hooks and the server print. Raises LeaseLost or NotHolder if a
        grant is gone or a commit is superseded, LeaseHeld if the commits touch what another holds,
        PushRefused if git rejects a ref, and UsageError for refs that cannot be pushed together
        with the ledger.
        """
        settled = open_changes(self._session)
        known = {layer: self._session.store.known(layer) for layer in self._layers}
        before = {layer: head for layer, head in known.items() if head is not None}
        try:
            plan = self._work.plan(request, tell)
            answer = self._pushed(
                plan,
                before,
                require,
                dry_run=dry_run,
                along=along,
                unfenced=unfenced,
                override=override,
                tell=tell,
            )
        except GitleaseError as refusal:
            warnings = (*settled.messages, *refusal.warnings, *self._told_last(settled))
            raise refusal.with_(warnings=warnings) from None
        landed = () if dry_run else self._session.finish_landed().warnings
        warnings = (*settled.messages, *answer.warnings, *landed, *self._told_last(settled))
        return replace(answer, warnings=warnings)

    def _pushed(
        self,
        plan: PlannedPush,
        before: Mapping[str, Snapshot],
        require: Sequence[Resource],
        *,
        dry_run: bool,
        along: Callable[[], Sequence[Operation]],
        unfenced: bool,
        override: str,
        tell: Callable[[str], None],
    ) -> PushAnswer:
        _check_git_would_push(plan)
        brought = self._work.brought(plan)
        case = PushCase(
            self._session,
            self._work,
            plan,
            brought,
            require,
            before=before,
            along=along,
            override=override,
        )
        status: PushStatus = "pushed" if plan.push.refs else "up_to_date"
        if dry_run and plan.push.refs:
            status = "would_push"
        answer = PushAnswer(
            status=status, remote=plan.remote, refs=plan.refs, warnings=brought.warnings
        )
        if dry_run or unfenced or not plan.push.refs:
            if dry_run or unfenced or require:
                case.decide({layer: self._session.store.fetch(layer) for layer in self._layers})
            if status == "pushed":
                self._send_alone(plan, tell)
            if not dry_run:
                self._work.follow(plan)
            return replace(answer, warnings=answer.warnings + case.warnings)
        steps = self._send(plan, case, tell)
        changed = {layer: step for layer, step in steps.items() if step.applied.changed}
        # Nothing of the ledger goes along: the work is pushed alone, as by git.
        if not changed:
            self._send_alone(plan, tell)
        self._work.follow(plan)
        leases: list[LeaseView] = []
        for step in changed.values():
            head = replace(step.head, ledger=step.applied.ledger)
            renewed = [lease for outcome in step.applied.outcomes for lease in outcome.leases]
            leases += self._session.views_in(head, renewed)
        late = (
            f"your lease of {x.resource} expired during the push; the push has landed"
            for x in leases
            if x.state == "expired"
        )
        warnings = (*answer.warnings, *case.warnings, *late, *([] if leases else [UNFENCED]))
        return replace(answer, leases=tuple(leases), warnings=warnings)

    def _send_alone(self, plan: PlannedPush, tell: Callable[[str], None]) -> None:
        try:
            lines = self._work.land(plan.push)
        except Denied as refusal:
            raise _work_refused(plan, refusal) from None
        for line in lines:
            tell(line)

    def _send(
        self, plan: PlannedPush, case: PushCase, tell: Callable[[str], None]
    ) -> Mapping[str, Step]:
        push = plan.push
        is_quiet = False
        told: list[str] = []

        def send(prepared: Prepared) -> Swapped:
            nonlocal push, is_quiet, told
            swapped = self._session.store.swap(prepared, push)
            if swapped.fate is not Fate.APPLIED:
                push = replace(push, again=push.again or swapped.sent)
                if not is_quiet:  # no heartbeat of this clone is to interfere with the next try
                    is_quiet = True
                    stack.enter_context(self._quiet())
                    turn = self._session.store.turn(self._layers, LONGEST_TURN, lambda: None)
                    stack.enter_context(turn)
            took = swapped.fate is Fate.APPLIED
            lines: list[str] = []
            for line in swapped.said:
                race = line.startswith(GARBLED) or is_race(line)
                if took or not race:
                    lines.append(line)
            if took or lines != told:  # what it says of every try is told once
                for line in lines:
                    tell(line)
            told = lines
            return swapped

        with ExitStack() as stack:
            try:
                return self._session.transaction.carry_out_on(
                    self._layers, case.decide, what="this push", send=send
                )
            except PushRefused:
                raise
            except Denied as refusal:  # the refs move together or not at all
                raise _work_refused(plan, refusal) from None

    def _told_last(self, settled: Settled) -> tuple[str, ...]:
        head = self._session.store.known(self._session.layer)
        became = () if head is None else pending_messages(self._session.store, head, settled.open)
        return became + self._session.mailbox.messages(head)
