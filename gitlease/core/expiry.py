"""Whose time is up: the rules of time, as judged by one reader at one instant.

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
from gitlease.core.policy import Policy, Rule

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
    """What a decision may know of time: both clocks now, and what this clone saw when.

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
        """The sighting of a record that was there before the step; None where there is none."""
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
    if moment.now.wall_ms > free_at(lease, policy, moment) and _waited(lease, policy, moment):
        return Standing.LAPSED
    return Standing.EXPIRED if _ran_out(lease, policy, moment) else Standing.LIVE


def clock_skewed(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Whether the record is from the future by more than the allowance: a clock is wrong."""
    allowance = policy.margins.widest(lease.margins).skew
    return lease.renewed_at > moment.now.wall_ms + allowance * MS


def free_at(lease: Lease, policy: Policy, moment: Moment) -> int:
    """Wall-clock milliseconds, on this reader's clock, after which anyone may take it."""
    seen, duration = moment.sighting(lease), _duration(lease, policy, moment)
    ends = [seen.at.wall_ms + wait for wait in _waits(lease, policy, moment, seen, duration)]
    if Rule.WALL in _rules(lease, policy, moment):
        ends.append(lease.expires_at + policy.margins.widest(lease.margins).skew * MS)
    return max(ends)


def _waited(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Whether every wait counted from the sighting is over by the smaller of the clocks."""
    seen, duration = moment.sighting(lease), _duration(lease, policy, moment)
    elapsed = seen.at.elapsed_at_least(moment.now)
    return all(elapsed >= wait for wait in _waits(lease, policy, moment, seen, duration))


def _waits(
    lease: Lease, policy: Policy, moment: Moment, seen: Sighting, duration: int
) -> list[int]:
    """Milliseconds that must pass since the sighting, by rule.

    Under ``wall`` only a change seen here counts: it proves that the holder was alive then.
    """
    margins = policy.margins.widest(lease.margins)
    waits = []
    if Rule.OBSERVED in _rules(lease, policy, moment):
        waits.append(duration + -(-duration * margins.drift // MILLION) + margins.grace * MS)
    elif seen.changed:
        waits.append(duration)
    return waits


def _rules(lease: Lease, policy: Policy, moment: Moment) -> set[Rule]:
    """The rules that must all agree: the policy's and the record's own."""
    if clock_skewed(lease, policy, moment):
        return {Rule.OBSERVED}  # its timestamps mean nothing on this clock
    return {policy.rule, lease.margins.rule}


def _duration(lease: Lease, policy: Policy, moment: Moment) -> int:
    if clock_skewed(lease, policy, moment):
        longest = max(policy.ttl_max, policy.park_max) if lease.parked else policy.ttl_max
        return min(lease.duration_ms, longest * MS)
    return lease.duration_ms


def _ran_out(lease: Lease, policy: Policy, moment: Moment) -> bool:
    if Rule.WALL in _rules(lease, policy, moment) and moment.now.wall_ms < lease.expires_at:
        return False
    if Rule.OBSERVED in _rules(lease, policy, moment):
        seen, duration = moment.sighting(lease), _duration(lease, policy, moment)
        return seen.at.elapsed_at_least(moment.now) >= duration
    return True
