"""What a run needs of the command that it runs, and of the heartbeat that it runs under; and what
is kept of runs in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gitlease.core.loss import Hold, Lost
from gitlease.runs.background_rules import RunRecord


class Command(Protocol):
    """A command that was started, with everything it starts in its process group."""

    def wait(self, seconds: float) -> int | None:
        """Wait for its end: its exit status, 128 + n when signal n ended it.

        None after so many seconds, or earlier when something is to be decided.
        """

    def wait_for_group(self, seconds: float) -> bool:
        """After its end, wait for the rest of its group; whether nothing is left of it."""

    def ask(self) -> None:
        """Ask its group to end (TERM), stopped ones too."""

    def kill(self) -> None:
        """End its group (KILL)."""

    def guard(self, until_ms: int) -> bool:
        """Let its guardian know until when, by the boot clock, it may live without another word.

        False where it is not guarded any more, and cannot be.
        """

    @property
    def to_stop(self) -> bool:
        """Whether this run was told to stop it, rather than to pass a signal on."""

    @property
    def told_to_end(self) -> bool:
        """Whether a signal that ends has come, for this run or to be passed on."""

    def wake(self) -> None:
        """Have ``wait`` return now. Safe for threads."""


class Pulse(Protocol):
    """A heartbeat, as whoever relies on grants knows it."""

    def keep(self, holds: Sequence[Hold], listener: Callable[[Lost], None]) -> None:
        """Keep grants until they are dropped or lost; a loss is told once each."""

    def drop(self, lease_ids: Sequence[str], listener: Callable[[Lost], None]) -> None:
        """Rely on these grants no more."""

    def look(self) -> None:
        """See now whether anything must be given up, and tell before this returns."""

    def left_ms(self, lease_id: str) -> int:
        """Milliseconds for which a grant may be relied on; 0 for one that is not kept."""


class Runs(Protocol):
    """The runs in the background of one clone."""

    def every(self) -> Sequence[RunRecord]:
        """All that are remembered, the newest first."""

    def runs(self, record: RunRecord) -> bool:
        """Whether its runner still runs."""
