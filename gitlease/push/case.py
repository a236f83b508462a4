"""One push, judged against the ledgers: the grants that it renews, and why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gitlease.core.errors import GitleaseError, LeaseHeld
from gitlease.core.lease import Actor, Lease, Moment, State, free_at
from gitlease.core.moves.operations import Grant, Renew, grant_of
from gitlease.core.moves.step_record import Decided
from gitlease.core.policy import DEFAULT_POLICY
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import of_damage
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Snapshot
from gitlease.engine.transaction import fresh_id, with_views
from gitlease.guard.rules import (
    GuardFinding,
    PushedCommit,
    Severity,
    Touched,
    Viewpoint,
    still_blocks,
)

NOBODY = Actor(holder="")


class PushCase:
    """One push, judged anew on every state of the ledgers."""

    def __init__(
        self,
        session: LedgerSession,
        touched: Sequence[Touched],
        require: Sequence[Resource],
        *,
        lost: Sequence[Touched],
        carried: Callable[[], Sequence[PushedCommit]],
        before: Mapping[str, Snapshot],
    ) -> None:
        """``lost`` are paths of ``touched`` that the push takes away; ``carried`` gets its commits.

        ``before`` has the cached heads of when the push began, by layer.
        """
        self._session, self._actor = session, session.actor
        self._touched, self._require = touched, require
        self._lost = {one.path for one in lost}
        self._ask_carried = carried
        self._carried: Sequence[PushedCommit] | None = None
        self._believed: dict[str, dict[str, Grant]] = {}
        self.warnings: tuple[str, ...] = ()
        wanted = {resource.key for resource in require}
        for layer, head in before.items():
            own = [x for x in _leases(head) if x.answers_to(self._actor) and not x.parked]
            about = [x for x in own if x.resource.key in wanted]
            moment = session.moment(head)
            self._believe(layer, (*about, *_covering(self._touched, own, moment)))

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
            self._renewal(head, layer)
        required = self._required(heads)
        refusals: list[LeaseHeld] = []
        for layer, head in heads.items():
            moment, leases = self._session.moment(head), _leases(head)
            view = Viewpoint(self._actor, head.policy, moment)
            self._believe(layer, required.get(layer, ()))
            self._believe(layer, view.under(self._touched, leases))
            steps[layer] = self._renewal(head, layer)
            found = view.judge(self._touched, leases)
            warnings += [_warning(f) for f in found if f.severity is Severity.WARN]
            warnings += of_damage(head.ledger.damage()) if head.ledger else ()
            blocks = [f for f in found if f.severity is Severity.BLOCK and self._blocks(f, layer)]
            if blocks:
                refusals.append(self._held_by_another(blocks, head, moment))
        if refusals:
            raise refusals[0]
        self.warnings = tuple(dict.fromkeys(warnings))
        return steps

    def _blocks(self, found: GuardFinding, layer: str) -> bool:
        # The holder's own work, or work that has landed, may be carried along.
        if found.path in self._lost:
            return True
        if self._carried is None:
            self._carried = self._ask_carried()
        return still_blocks(found, self._carried, layer=layer, actor=self._actor)

    def _required(self, heads: Mapping[str, Snapshot]) -> dict[str, list[Lease]]:
        # In the first layer that has them.
        found: dict[str, list[Lease]] = {}
        for resource in self._require:
            refusals: list[GitleaseError] = []
            for layer, head in heads.items():
                try:
                    renewal = Renew(id=fresh_id(), actor=self._actor, resource=resource)
                    step = self._session.transaction.decided(head, [renewal])
                    leases = [x for outcome in step.applied.outcomes for x in outcome.leases]
                    found.setdefault(layer, []).extend(leases)
                    break
                except GitleaseError as refusal:
                    refusals.append(refusal)
            else:
                raise refusals[0]
        return found

    def _renewal(self, head: Snapshot, layer: str) -> Decided:
        grants = tuple(self._believed.get(layer, {}).values())
        renewal = Renew(id=fresh_id(), actor=self._actor, grants=grants)
        step = self._session.transaction.decided(head, [renewal] if grants else [])
        for outcome in step.applied.outcomes:
            for refusal in outcome.refused:
                raise with_views(refusal, head, self._actor, step.moment)
        return step

    def _believe(self, layer: str, leases: Iterable[Lease]) -> None:
        believed = self._believed.setdefault(layer, {})
        places = {(g.resource.key, fold(g.scope)) for g in believed.values()}
        for x in leases:
            if x.key not in places:  # a later grant of the same is another one
                believed[x.lease_id] = grant_of(x)

    def _held_by_another(
        self, found: Sequence[GuardFinding], head: Snapshot, moment: Moment
    ) -> LeaseHeld:
        first, leases = found[0], tuple(dict.fromkeys(f.lease for f in found))
        name = first.lease.resource
        what = f"{name} is" if first.path == name.text else f"{first.path} falls under {name},"
        refusal = LeaseHeld(
            f"{what} held by {first.lease.holder}",
            resource=name.text,
            conflicts=leases,
            free_at=max(free_at(x, head.policy, moment) for x in leases),
        )
        with_views(refusal, head, self._actor, moment)
        return refusal


def _leases(head: Snapshot) -> list[Lease]:
    leases = head.ledger.every_lease() if head.ledger else []
    return [x for x in leases if x.state is State.ACTIVE]


def _covering(touched: Sequence[Touched], own: Sequence[Lease], moment: Moment) -> list[Lease]:
    # Whether they ran out or not: for an actor who is nobody, every lease is another's.
    found = Viewpoint(NOBODY, DEFAULT_POLICY, moment).judge(touched, own)
    return list(dict.fromkeys(f.lease for f in found))


def _warning(finding: GuardFinding) -> str:
    lease = finding.lease
    run = f", session {lease.session}" if lease.session else ""
    return f"{finding.path} falls under a lease of {lease.resource} by {lease.holder}{run}"
