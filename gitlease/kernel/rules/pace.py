"""The pace of a remote: how long it takes, and how often others change the ledger there.

Each clone measures it for itself, since its proxy or VPN is its own; none of it goes into the
ledger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS

SAMPLES = 5  # of which the median counts
LONGEST_SAMPLE = 30_000  # milliseconds: a machine that was suspended says nothing of the remote
MEMORY = 600.0  # seconds after which a change counts for 1/e
PRIOR = 10.0  # seconds: one change right after the first contact is not yet one a second
USUAL_PUSH = 1.2  # seconds: limits of time are made for pushes that take no longer
LEAST_GAIN = 0.1  # seconds that reading first has to save: on a fast remote it never does


@dataclass(frozen=True)
class RemotePace:
    """What a clone has measured.

    ``pushes`` and ``reads`` are the milliseconds that the last few successful ones took.
    ``changes`` counts steps by others, and ``watched`` the seconds in which they were seen; older
    ones count for less in both.
    """

    pushes: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    changes: float = 0.0
    watched: float = 0.0

    @property
    def push(self) -> float:
        """The seconds of an accepted push; 0 if unknown."""
        return _median(self.pushes) / MS

    @property
    def read(self) -> float:
        """The seconds of a read; 0 if unknown."""
        return _median(self.reads) / MS

    @property
    def slowness(self) -> float:
        """By what limits of time are multiplied, 1 at least: a slow host is no contended one."""
        return max(1.0, self.push / USUAL_PUSH)

    @property
    def rate(self) -> float:
        """How many times a second others change the ledger."""
        return self.changes / (self.watched + PRIOR)

    def after(
        self, *, others: int = 0, elapsed: int = 0, push: int = 0, read: int = 0
    ) -> RemotePace:
        """The pace after a contact.

        ``elapsed`` are the milliseconds since the last one, in which others made so many steps.
        ``push`` and ``read`` are how long that took; 0 if it was not measured.
        """
        seconds = max(0, elapsed) / MS
        kept = math.exp(-seconds / MEMORY)
        return replace(
            self,
            pushes=(*self.pushes, min(LONGEST_SAMPLE, push))[-SAMPLES:] if push else self.pushes,
            reads=(*self.reads, min(LONGEST_SAMPLE, read))[-SAMPLES:] if read else self.reads,
            changes=self.changes * kept + max(0, others),
            watched=self.watched * kept + seconds,
        )


def reads_first(pace: RemotePace, age: float, weight: float = 1.0) -> bool:
    """Whether to read before a push, if this clone's copy of the ledger is ``age`` seconds old.

    Others change the ledger ``rate`` times a second, so the copy is stale when the server compares
    with p = 1 - exp(-rate * (age + read)). A push on a stale copy costs a connection for nothing
    and a read after it, 2 * read: git itself sees that the copy is stale, and sends no pack. To
    read first costs one read in any case. So reading first saves weight * p * 2 * read - read.

    ``weight`` is 2 if others may be waiting for this step, since the delay is theirs as well.
    """
    stale = 1.0 - math.exp(-pace.rate * (max(0.0, age) + pace.read))
    return weight * stale * 2.0 * pace.read - pace.read >= LEAST_GAIN


def _median(samples: Sequence[int]) -> float:
    return sorted(samples)[len(samples) // 2] if samples else 0
