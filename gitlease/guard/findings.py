"""The report of one check of the guard, and how recent the state is that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass, field, replace
from gitlease.core.instant import humanize_duration
from gitlease.core.view import LeaseView
from gitlease.guard.ports import CachedLedger, Unreachable
from gitlease.guard.rules import GuardFinding, Severity

if TYPE_CHECKING:
    from gitlease.core.ledger import Damage

DAMAGE_SHOWN = 3
BLIND = "the leases could not be checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReport:
    """The findings of one check. ``views`` has the leases by their ids.

    ``offline`` says why the state is not as fresh as was asked for, and how old it is, when the
    remote did not answer; ``old`` are the ids of the leases known only from such a state.
    """

    findings: tuple[GuardFinding, ...] = ()
    views: Mapping[str, LeaseView] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    offline: str = ""
    old: frozenset[str] = frozenset()

    def lenient(self) -> GuardReport:
        """Turn findings that rest only on a state too old to block anybody into warnings.

        The remote may have failed to answer for one layer only.
        """
        found = [
            replace(f, severity=Severity.WARN) if f.lease.lease_id in self.old else f
            for f in self.findings
        ]
        found.sort(key=lambda f: f.severity is not Severity.BLOCK)
        return replace(self, findings=tuple(found))


class Freshness:
    """Collects, during one check, how recent the states of the ledgers are."""

    def __init__(self) -> None:
        self.failure: Unreachable | None = None
        self.warnings: list[str] = []
        self._unknown, self._age = False, 0

    def add_ledger(self, cached: CachedLedger, age: int) -> None:
        self.warnings += [f"{text}: what it covers is not guarded" for text in cached.damage]
        if cached.doubt:
            self.mark_unknown(cached.doubt)
        self._age = max(self._age, age)

    def mark_unknown(self, fault: str = "") -> None:
        """Note that a ledger's state is unknown, or cannot be relied on."""
        self._unknown = True
        self.warnings += [f"{BLIND}: {fault}"] if fault else []

    def offline(self) -> str:
        if self.failure is None:
            return ""
        known = f"by what this clone knew {humanize_duration(self._age)} ago"
        return f"{BLIND if self._unknown else known}: {self.failure.message}"


def damage_warnings(damage: Sequence[Damage]) -> tuple[str, ...]:
    if not damage:
        return ()
    from gitlease.engine.answers import of_damage  # not loaded by a hook without need

    return of_damage(damage, shown=DAMAGE_SHOWN)
