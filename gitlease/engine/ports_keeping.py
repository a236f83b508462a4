"""What the heartbeat of a process needs of whoever decides: which grants, when, and what became."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.loss import Hold, Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What one heartbeat came to: ``renewed`` count anew, ``lost`` are lost for good.

    ``failure`` is why nothing is known of the others, which is to be tried again.
    """

    asked: tuple[Hold, ...]
    renewed: tuple[Hold, ...] = ()
    lost: tuple[Lost, ...] = ()
    failure: GitleaseError | None = None


class Keeping(Protocol):
    """Decides what a heartbeat does. Only ``renew`` takes time, and it changes nothing here."""

    def add(self, holds: Sequence[Hold]) -> None:
        """Keep these grants from now on; one that is kept already counts anew."""

    def drop(self, lease_ids: Sequence[str]) -> None:
        """Keep these grants no more."""

    def due_in(self) -> float | None:
        """Seconds until the next heartbeat; None where nothing is kept."""

    def batch(self) -> tuple[Hold, ...]:
        """What is to be renewed now, all in one push; nothing when it is not yet time."""

    def renew(self, batch: Sequence[Hold]) -> Beat:
        """Ask the ledger. Whatever goes wrong is the answer's ``failure``."""

    def settle(self, beat: Beat) -> tuple[Lost, ...]:
        """Take over what a heartbeat came to; what is lost with it is kept no more."""

    def ends_in(self) -> float | None:
        """Seconds until the first grant must be given up; None where nothing is kept."""

    def overdue(self) -> tuple[Lost, ...]:
        """What must be given up now, without having heard of it; it is kept no more."""

    def left_ms(self, lease_id: str) -> int:
        """Milliseconds until a grant must be given up; 0 for one that is not kept."""
