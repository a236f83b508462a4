"""What a check of the guard found, and how far what is known can be relied on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.duration import humanize_duration
from gitlease.core.frozen import dataclass, field, replace
from gitlease.core.view import LeaseView
from gitlease.guard.ports import CachedLedger, Unreachable
from gitlease.guard.rules import GuardFinding, Severity

if TYPE_CHECKING:
    from gitlease.core.ledger import Damage

DAMAGE_SHOWN = 3
BLIND = "the leases could not be checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReport:
    """What the guard found. ``views`` has the leases by their ids.

    ``offline`` says what is known, and why it is not as fresh as was asked for, when the remote did
    not answer; ``old`` are the ids of the leases that this is all that is known of.
    """

    findings: tuple[GuardFinding, ...] = ()
    views: Mapping[str, LeaseView] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    offline: str = ""
    old: frozenset[str] = frozenset()

    def lenient(self) -> GuardReport:
        """The same with a warning wherever only knowledge says so that is too old to stop anybody.

        The remote may have been asked in vain about one layer, and not be needed for another.
        """
        found = [
            replace(f, severity=Severity.WARN) if f.lease.lease_id in self.old else f
            for f in self.findings
        ]
        found.sort(key=lambda f: f.severity is not Severity.BLOCK)
        return replace(self, findings=tuple(found))


class Freshness:
    """What is noticed on the way of one check."""

    def __init__(self) -> None:
        self.failure: Unreachable | None = None
        self.warnings: list[str] = []
        self._blind, self._age = False, 0

    def noticed(self, known: CachedLedger, age: int) -> None:
        self.warnings += [f"{text}: what it covers is not guarded" for text in known.damage]
        self._age = max(self._age, age)

    def is_blind(self, fault: str = "") -> None:
        """Nothing is known of a ledger, or what is known is not to be relied on."""
        self._blind = True
        self.warnings += [f"{BLIND}: {fault}"] if fault else []

    def offline(self) -> str:
        if self.failure is None:
            return ""
        known = f"by what this clone knew {humanize_duration(self._age)} ago"
        return f"{BLIND if self._blind else known}: {self.failure.message}"


def damage_told(damage: Sequence[Damage]) -> tuple[str, ...]:
    """What there is to say of records that cannot be read."""
    if not damage:
        return ()
    from gitlease.engine.notices import of_damage

    return of_damage(damage, shown=DAMAGE_SHOWN)
