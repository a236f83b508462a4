"""How a holder learns that it lost a lease: the closed list of reasons, and how one is found.

A loss is final: what was lost is claimed again, never renewed. So a holder names the grant
that it renews, by its nonce; a later grant of the same resource is another one, even to the same
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gitlease.kernel.rules.errors import LeaseLost, Loss
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import Actor, Lease, Moment, State, holder_has, same_person
from gitlease.kernel.rules.ledger import WAITS, Ledger, Notice, is_of_kept
from gitlease.kernel.rules.moves.operations import LAPSED, Event, Grant
from gitlease.kernel.rules.resources import fold


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A grant and the time for which its holder may rely on it.

    It counts from ``since``, the instant that was read before the change was built, for
    ``duration_ms``, by the larger of elapsed boot and wall time.
    """

    grant: Grant
    since: Instant
    duration_ms: int

    def left_ms(self, now: Instant) -> int:
        """Milliseconds for which its holder may still rely on it; not positive once it is over.

        By the clocks alone: newer changes of the ledger are learnt with the next renewal.
        """
        return self.duration_ms - self.since.elapsed_at_most(now)

    def early_ms(self) -> int:
        """Milliseconds before its end at which a holder is told to stop, which takes time."""
        return min(2 * MS, self.duration_ms // 20)


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A lost grant: why, and who caused it if that is known.

    ``by_own``: its own session released, finished or kept it by name.
    """

    hold: Hold
    loss: Loss
    by: str | None = None
    detail: str = ""
    by_own: bool = False

    @property
    def error(self) -> LeaseLost:
        """The refusal to raise wherever the grant is relied on."""
        grant = self.hold.grant
        why = reason_text(self.loss, self.by) + (f" ({self.detail})" if self.detail else "")
        return LeaseLost(
            f"{grant.resource} was lost: {why}",
            resource=grant.resource.text,
            scope=grant.scope,
            loss=self.loss,
            lease_id=grant.lease_id,
        )


def reason_text(loss: Loss, by: str | None) -> str:
    """The reason in words, after "you no longer hold F001: "."""
    who = by or "another"
    return {
        Loss.TAKEN_OVER: f"{who} has it now",  # deliberately, or after a lapse
        Loss.REVOKED: f"{who} revoked it",
        Loss.EXPIRED: "it expired before it was renewed",
        Loss.RELEASED_ELSEWHERE: "it was ended elsewhere",
        Loss.UNREACHABLE: "it could not be renewed before it expired",
    }[loss]


def still_held(ledger: Ledger, grant: Grant, holder: str, moment: Moment) -> Lease:
    """The live lease of exactly this grant. Raises LeaseLost with the reason if there is none."""
    lease = ledger.lease(grant.resource, grant.scope)
    loss, by = _judged(ledger, lease, grant, holder, moment)
    if loss is None and lease is not None:
        return lease
    loss = loss or Loss.RELEASED_ELSEWHERE
    stands = () if lease is None else (lease,)
    name, of = grant.resource.text, grant.lease_id
    raise no_longer(name, grant.scope, loss, by, conflicts=stands, lease_id=of)


def no_longer(
    resource: str | None, scope: str | None, loss: Loss, by: str | None, how: str = "", **about: Any
) -> LeaseLost:
    """Make the refusal for a lost lease; ``how`` in place of the reason's own words."""
    why = how or reason_text(loss, by)
    message = f"you no longer hold {resource}: {why}"
    return LeaseLost(message, resource=resource, scope=scope, holder=by, loss=loss, **about)


def lost_by(notice: Notice) -> LeaseLost:
    """The error for a lease that ended as this notice says."""
    loss = _TOLD[notice.what]
    why = f': "{notice.reason}"' if notice.reason else ""
    what = "kept it for later" if is_of_kept(notice) else _ENDED.get(notice.what)
    if loss is Loss.TAKEN_OVER and why:  # taken over deliberately: a claim after a lapse has none
        what = "took it over"
    how = reason_text(loss, notice.by) if what is None else f"{notice.by} {what}"
    return no_longer(notice.resource, notice.scope, loss, notice.by, how + why)


def explained(error: LeaseLost, notices: Sequence[Notice]) -> LeaseLost:
    """The same error, with the reason from a notice if its own was only inferred."""
    for notice in reversed(notices):
        at_it = fold(notice.resource) == fold(error.resource or "")
        at_it = at_it and (error.scope is None or fold(notice.scope) == fold(error.scope))
        if error.guessed and at_it:
            return lost_by(notice).with_(views=error.views, warnings=error.warnings)
    return error


_ENDED = {
    "released": "released it",
    "completed": "finished it",
    "parked": "parked it",
    "run_out": "ended its session",
}
ENDED_BY_NAME = frozenset(_ENDED) - {"run_out"}
ENDINGS = {
    "displaced": Loss.TAKEN_OVER,
    "revoked": Loss.REVOKED,
    "retired": Loss.EXPIRED,  # it had run out long before
    LAPSED: Loss.EXPIRED,
    **dict.fromkeys(_ENDED, Loss.RELEASED_ELSEWHERE),
}
"""The events that end a grant."""
_TOLD = {**ENDINGS, "taken_over": Loss.TAKEN_OVER, "replaced": Loss.EXPIRED}


def _judged(
    ledger: Ledger, lease: Lease | None, grant: Grant, holder: str, moment: Moment
) -> tuple[Loss | None, str | None]:
    if lease is not None and lease.lease_id == grant.lease_id:
        live = holder_has(lease, moment)
        # By its session, or to keep the task.
        unbound = lease.session is None and grant.session is not None
        ended = (unbound or lease.left_behind) and not live
        if lease.state is not State.ACTIVE or lease.parked or ended:
            return Loss.RELEASED_ELSEWHERE, lease.holder
        if not lease.answers_to(Actor(holder, grant.session)):
            return Loss.TAKEN_OVER, lease.holder  # bound to another run since
        return (None, None) if live else (Loss.EXPIRED, None)
    for notice in reversed(ledger.losses(holder)):
        about = (notice.resource, notice.scope, notice.session)
        if about == (grant.resource.text, grant.scope, grant.session):
            return _TOLD[notice.what], notice.by
    if lease is None or lease.state is not State.ACTIVE or lease.token < grant.token:
        return Loss.RELEASED_ELSEWHERE, None
    if same_person(lease.holder, holder) and lease.session == grant.session:
        return Loss.RELEASED_ELSEWHERE, None  # and claimed anew by the same run
    return Loss.TAKEN_OVER, lease.holder


def lost_in(event: Event) -> LeaseLost:
    """The error for a lease that others ended by this event."""
    return no_longer(event.resource, event.scope, ENDINGS[event.kind], event.by)


def ending(events: Iterable[Event], token: int) -> tuple[Loss, str] | None:
    """How the grant of a token ended, and who ended it; None if the events do not tell."""
    for event in events:
        if event.token == token and event.kind in ENDINGS:
            return ENDINGS[event.kind], event.by
    return None


def keeps_task(event: Event) -> bool:
    """Return whether a lease was ended so that its holder keeps the task."""
    return event.kind == "run_out" and event.operation.endswith(WAITS)


def was_ended_by_own(ledger: Ledger, events: Iterable[Event], grant: Grant, holder: str) -> bool:
    """True if a grant's own session ended it by name: any other of its person leaves a notice."""
    last = next((event for event in events if event.token == grant.token), None)
    if last is None:
        return False
    # A session's end names no resource, and is not among these.
    if last.kind not in ENDED_BY_NAME and not keeps_task(last):
        return False
    about = (grant.resource.text, grant.scope, grant.session)
    return about not in {(n.resource, n.scope, n.session) for n in ledger.losses(holder)}
