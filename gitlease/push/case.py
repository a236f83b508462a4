"""What a push brings and whose that is: the grants that go with it, and what stands against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gitlease.core.errors import GitleaseError, LeaseHeld
from gitlease.core.expiry import Moment, free_at
from gitlease.core.lease import Actor, Lease, State
from gitlease.core.moves.operations import Grant, Renew, grant_of
from gitlease.core.moves.step_record import Decided
from gitlease.core.policy import DEFAULT_POLICY, Policy
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.notices import of_damage
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
    """What a push brings and whose it is, judged anew on every state of the ledgers."""

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
        """``touched`` is all of it, ``lost`` what it takes away; ``carried`` tells its commits.

        ``before`` is what this clone knew when the push began: what it believed in."""
        self._session, self._actor = session, session.actor
        self._touched, self._require = touched, require
        self._gone = {one.path for one in lost}
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
        """The renewals that go with the push, by layer. Raises what stands against it."""
        for layer, head in heads.items():  # what was believed and is lost is said first
            self._renewal(head, layer)
        named = self._named(heads)
        steps: dict[str, Decided] = {}
        said: list[str] = []
        against: list[LeaseHeld] = []
        for layer, head in heads.items():
            moment, leases = self._session.moment(head), _leases(head)
            view = Viewpoint(self._actor, _policy(head), moment)
            self._believe(layer, named.get(layer, ()))
            self._believe(layer, view.under(self._touched, leases))
            steps[layer] = self._renewal(head, layer)
            found = view.judge(self._touched, leases)
            said += [_warning(f) for f in found if f.severity is Severity.WARN]
            said += of_damage(head.ledger.damage()) if head.ledger else ()
            stops = [f for f in found if f.severity is Severity.BLOCK and self._stops(f, layer)]
            if stops:
                against.append(self._against(stops, head, moment))
        if against:  # what is lost has been said before: it is the graver of the two
            raise against[0]
        self.warnings = tuple(dict.fromkeys(said))
        return steps

    def _stops(self, found: GuardFinding, layer: str) -> bool:
        """Whether it is not only carried along: the holder's own work, or what has landed."""
        if found.path in self._gone:
            return True
        if self._carried is None:
            self._carried = self._ask_carried()
        return still_blocks(found, self._carried, layer=layer, actor=self._actor)

    def _named(self, heads: Mapping[str, Snapshot]) -> dict[str, list[Lease]]:
        """The leases of what was asked for by name, in the first layer that has them."""
        found: dict[str, list[Lease]] = {}
        for resource in self._require:
            refusals: list[GitleaseError] = []
            for layer, head in heads.items():
                try:
                    found.setdefault(layer, []).extend(self._held(head, resource))
                    break
                except GitleaseError as refusal:
                    refusals.append(refusal)
            else:
                raise refusals[0]
        return found

    def _held(self, head: Snapshot, resource: Resource) -> tuple[Lease, ...]:
        """The caller's live leases of a resource. LeaseLost or NotHolder where there is none."""
        ask = Renew(id=fresh_id(), actor=self._actor, resource=resource)
        step = self._session.transaction.decided(head, [ask])
        return tuple(lease for outcome in step.applied.outcomes for lease in outcome.leases)

    def _renewal(self, head: Snapshot, layer: str) -> Decided:
        """The renewal of all grants of a layer, or a refusal; nothing where there are none."""
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

    def _against(self, found: Sequence[GuardFinding], head: Snapshot, moment: Moment) -> LeaseHeld:
        first, leases = found[0], tuple(dict.fromkeys(f.lease for f in found))
        name = first.lease.resource
        is_it = first.path == name.text
        what = f"{name} is" if is_it else f"{first.path} falls under {name},"
        refusal = LeaseHeld(
            f"{what} held by {first.lease.holder}",
            resource=name.text,
            conflicts=leases,
            free_at=max(free_at(x, _policy(head), moment) for x in leases),
        )
        with_views(refusal, head, self._actor, moment)
        return refusal


def _leases(head: Snapshot) -> list[Lease]:
    leases = head.ledger.every_lease() if head.ledger else []
    return [x for x in leases if x.state is State.ACTIVE]


def _policy(head: Snapshot) -> Policy:
    return head.ledger.header.policy if head.ledger else DEFAULT_POLICY


def _covering(touched: Sequence[Touched], own: Sequence[Lease], moment: Moment) -> list[Lease]:
    """Those of one's own leases that cover something touched, whether they ran out or not.

    To the guard every lease is somebody's, in the eyes of nobody.
    """
    found = Viewpoint(NOBODY, DEFAULT_POLICY, moment).judge(touched, own)
    return list(dict.fromkeys(f.lease for f in found))


def _warning(finding: GuardFinding) -> str:
    lease = finding.lease
    run = f", session {lease.session}" if lease.session else ""
    return f"{finding.path} falls under a lease of {lease.resource} by {lease.holder}{run}"
