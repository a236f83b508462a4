"""The rules of time: when a lease has expired or lapsed, for one reader at one instant.

A lease passes through three standings. *Live*: its holder has it. *Expired*: the holder no longer
has it, and nobody else may take it yet. *Lapsed*: anyone may take it. The gap between the last two
is what makes two correct clients never believe in conflicting leases at once, within the stated
bounds on their clocks: a holder stops by the larger of its clocks, a contender waits by the
smaller of its own, plus margins. Margins are the larger of the policy's and the record's own, so a
new policy never shortens what was granted.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, Instant
from gitlease.core.lease import Lease
from gitlease.core.policy import Margins, Policy, Rule

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Sighting:
    """When this clone first saw these very record bytes, and whether they replaced others.

    A first sighting of a resource is not a change: it says nothing of when it was written. A holder
    counts from ``since``, which stays where a clock that was set back makes ``at`` start again.
    """

    at: Instant
    changed: bool
    since: Instant | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a decision knows of time: both clocks now, and when this clone saw which records.

    ``step`` has the ids of the operations that are being applied. A record that one of them wrote
    is of now, by construction: ``seen`` knows only what was there before the step.
    """

    now: Instant
    seen: Callable[[Lease], Sighting | None] = lambda _lease: None
    step: frozenset[str] = frozenset()

    def sighting(self, lease: Lease) -> Sighting:
        """The sighting of this record; one never seen is seen now."""
        return self.seen_before(lease) or Sighting(at=self.now, changed=False)

    def seen_before(self, lease: Lease) -> Sighting | None:
        """The sighting of a record that was there before the step; None if there is none."""
        return None if lease.operation in self.step else self.seen(lease)


class Standing(Enum):
    """Where a lease is on its way out, for one reader."""

    LIVE = "live"
    EXPIRED = "expired"
    LAPSED = "lapsed"


def holder_has(lease: Lease, moment: Moment) -> bool:
    """Whether its own holder may still act on it: by the larger of elapsed boot and wall time."""
    if moment.now.wall_ms >= lease.expires_at:
        return False
    seen = moment.seen_before(lease)
    return seen is None or (seen.since or seen.at).elapsed_at_most(moment.now) < lease.duration_ms


def standing(lease: Lease, policy: Policy, moment: Moment) -> Standing:
    """How a contender must see this lease now."""
    terms = _terms(lease, policy, moment)
    elapsed = terms.seen.at.elapsed_at_least(moment.now)
    # Every wait must be over by the smaller of the clocks, too.
    if moment.now.wall_ms > terms.ends and elapsed >= terms.wait:
        return Standing.LAPSED
    if terms.by_wall and moment.now.wall_ms < lease.expires_at:
        return Standing.LIVE
    return Standing.LIVE if terms.observed and elapsed < terms.duration else Standing.EXPIRED


def clock_skewed(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Whether the record is from the future by more than the allowance: a clock is wrong."""
    return _is_future(lease, policy.margins.widest(lease.margins), moment)


def free_at(lease: Lease, policy: Policy, moment: Moment) -> int:
    """Wall-clock milliseconds, on this reader's clock, after which anyone may take it."""
    return _terms(lease, policy, moment).ends


def abandoned_at(lease: Lease, policy: Policy) -> int | None:
    """Wall-clock milliseconds after which its edge protects no longer; None where it always does.

    The record alone says so: it counts from when the lease ran out. Of what was picked from the
    queue the edge ends with the lease.
    """
    if not lease.edge or not (policy.abandoned_after or lease.picked):
        return None
    margin = policy.margins.widest(lease.margins).skew
    after = 0 if lease.picked else policy.abandoned_after
    return lease.expires_at + (after + margin) * MS


@dataclass(frozen=True, slots=True)
class _Terms:
    # What a contender judges a lease by. ``by_wall`` and ``observed``: the rules that must agree.
    # ``duration`` and ``wait`` are milliseconds; ``wait`` must pass since the record was ``seen``,
    # and the reader's wall clock must pass ``ends``.

    seen: Sighting
    by_wall: bool
    observed: bool
    duration: int
    wait: int
    ends: int


def _terms(lease: Lease, policy: Policy, moment: Moment) -> _Terms:
    margins, seen, duration = (
        policy.margins.widest(lease.margins),
        moment.sighting(lease),
        lease.duration_ms,
    )
    future = _is_future(lease, margins, moment)
    if future:
        longest = max(policy.ttl_max, policy.park_max) if lease.parked else policy.ttl_max
        duration = min(duration, longest * MS)
    # The timestamps of a record from the future mean nothing on this clock.
    by_wall = not future and Rule.WALL in (policy.rule, lease.margins.rule)
    observed = future or margins.rule is Rule.OBSERVED
    wait = 0
    if observed:
        wait = duration + -(-duration * margins.drift // MILLION) + margins.grace * MS
    elif seen.changed:
        wait = duration  # under ``wall`` only a change seen here proves that the holder was alive
    ends = [seen.at.wall_ms + wait] if wait else []
    if by_wall:
        ends.append(lease.expires_at + margins.skew * MS)
    return _Terms(seen, by_wall, observed, duration, wait, max(ends))


def _is_future(lease: Lease, margins: Margins, moment: Moment) -> bool:
    return lease.renewed_at > moment.now.wall_ms + margins.skew * MS
