"""A lease as one caller sees it at one moment: the public face of a record."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import MS, moment_of, utc_text
from gitlease.kernel.rules.lease import (
    Actor,
    Lease,
    Moment,
    Policy,
    State,
    clock_skewed,
    free_at,
    is_abandoned,
    state_of,
)
from gitlease.kernel.rules.resources import WHOLE

# A dry run's lease is planned: its token is 0 and its id empty, unless it would renew one.
LeaseState = Literal["active", "expired", "released", "completed", "revoked", "planned"]


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """A lease with what follows from the clock: state, time left, and whether it is the caller's.

    Times are aware UTC datetimes. ``expires_in`` is whole seconds rounded down, negative when
    past. ``lapses_at`` is when it stops blocking others, who allow for clocks that differ; None
    once it has ended. ``free_at`` is the same time, but None where an edge keeps them out still.
    ``assigned``: the task is its holder's by an edge as well, and stays so when it lapses, until
    it is ``abandoned``.
    ``skewed`` says that its times lie in the future: a clock is wrong. ``pid`` leads the terminal
    session on ``host``, or is the run's own, and ``worktree`` names the linked work tree of the
    claim.
    ``capped``: it was to be extended beyond the policy's maximum, which is ``max_ttl_seconds``
    then (None otherwise).
    """

    resource: str
    scope: str
    layer: str
    holder: str
    session: str | None
    lease_id: str
    token: int
    state: LeaseState
    ttl_seconds: int
    claimed_at: datetime
    renewed_at: datetime
    expires_at: datetime
    expires_in: int
    free_at: datetime | None
    renewals: int
    paths: tuple[str, ...]
    reason: str | None
    host: str | None
    branch: str | None
    mine: bool
    assigned: bool = False
    skewed: bool = False
    pid: int | None = None
    capped: bool = False
    max_ttl_seconds: int | None = None
    abandoned: bool = False
    lapses_at: datetime | None = None
    worktree: str | None = None

    @property
    def seconds_left(self) -> float:
        """For how long it was to last when it was read; 0.0 where it is over."""
        return float(max(0, self.expires_in))

    def is_current(self, now: datetime) -> bool:
        """Return whether it still stands in anyone's way: not ended, not lapsed."""
        return self.state == "active" or self.is_lapsing(now)

    def is_lapsing(self, now: datetime) -> bool:
        """Return whether it has expired for its holder, and still counts for everybody else."""
        over = self.state == "expired" or (self.state == "active" and self.expires_in <= 0)
        return over and self.lapses_at is not None and self.lapses_at >= now

    def __repr__(self) -> str:
        part = "" if self.scope == WHOLE else f"/{self.scope}"
        who = self.holder if self.session is None else f"{self.holder}, session {self.session}"
        until = f"until {utc_text(self.expires_at)}"
        return f"<Lease {self.resource}{part} of {who}: {self.state}, token {self.token}, {until}>"


# Inside gitlease a `Lease` is the ledger's record. The public API has this one alone, as
# `gitlease.Lease`, so help, reprs and pickles use that name.
LeaseView.__module__, LeaseView.__name__, LeaseView.__qualname__ = "gitlease", "Lease", "Lease"


_SAME = ["scope", "holder", "session", "lease_id", "token", "renewals", "paths", "reason", "branch"]


def view_lease(
    lease: Lease, *, layer: str, actor: Actor, policy: Policy, moment: Moment
) -> LeaseView:
    """The view of a record for this caller."""
    mine = lease.answers_to(actor)
    active = lease.state is State.ACTIVE
    lapses_at = moment_of(free_at(lease, policy, moment)) if active else None
    same = {name: getattr(lease, name) for name in _SAME}
    return LeaseView(
        **same,
        resource=lease.resource.text,
        layer=layer,
        state=state_of(lease, policy, moment, mine=mine).value,
        ttl_seconds=lease.ttl,
        claimed_at=moment_of(lease.claimed_at),
        renewed_at=moment_of(lease.renewed_at),
        expires_at=moment_of(lease.expires_at),
        expires_in=(lease.expires_at - moment.now.wall_ms) // MS,
        free_at=None if lease.edge_stays else lapses_at,
        lapses_at=lapses_at,
        host=lease.place.host,
        pid=lease.place.pid,
        worktree=lease.place.worktree,
        mine=mine,
        assigned=active and lease.edge,
        skewed=active and not mine and clock_skewed(lease, policy, moment),
        abandoned=active and is_abandoned(lease, policy, moment),
    )
