"""What hooks know of ledgers, what they read of a change, and what their check found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.instant import Instant, humanize_duration
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Lease, Policy, Sighting
from gitlease.kernel.rules.lease_rows import LeaseRows, Reach
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Notice
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.kernel.rules.viewpoint import GuardFinding, Severity, Touched
from gitlease.kernel.rules.work import Named

if TYPE_CHECKING:
    from gitlease.guard.whose import Naming, Superseded

DAMAGE_SHOWN = 3
BLIND = "the leases could not be checked"


@dataclass(frozen=True, kw_only=True)
class CachedLedger:
    """The live leases of one layer as they were ``received``, for hooks that have no time.

    ``damage`` names the unreadable records; ``notices`` are the holder's unread ones. ``version``
    is the head's, ``""`` if there was no ledger; ``seen`` returns when this clone first saw a
    record.
    """

    layer: str
    version: str
    received: Instant
    leases: LeaseRows
    policy: Policy = DEFAULT_POLICY
    damage: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    seen: Callable[[Lease], Sighting | None] = field(default=lambda _: None, compare=False)
    # Why it may not be the ledger that everybody reads: then nothing is judged by it.
    doubt: str = ""


@dataclass(frozen=True)
class Unreachable:
    """A failure to reach the remote: when, and git's reason."""

    at: Instant
    message: str


@dataclass(frozen=True)
class Started:
    """A task that becomes one of work in progress, with the names of its assignees as written."""

    resource: Resource
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class StagedChange:
    """The paths that a commit touches, the tasks that it starts, and unreadable task files."""

    touched: tuple[Touched, ...] = ()
    started: tuple[Started, ...] = ()
    problems: tuple[str, ...] = ()


def reach_of(touched: Sequence[Touched]) -> tuple[Reach, frozenset[str]]:
    """Return the paths of a lease that covers any of these, and the tasks of one that does."""
    folders = [fold(path.path).split("/") for path in touched if path.folder]
    files = [fold(path.path).split("/") for path in touched if not path.folder]
    return Reach(folders, files), frozenset(name for path in touched for name in path.tasks)


@dataclass(frozen=True, kw_only=True)
class GuardReport:
    """The findings of one check. ``views`` has the leases by their ids.

    ``offline`` says why the state is not as fresh as was asked for, and how old it is, when the
    remote did not answer; ``old`` are the ids of the leases known only from such a state.
    ``superseded`` are the commits of a push whose leases others have been granted since.
    """

    findings: tuple[GuardFinding, ...] = ()
    views: Mapping[str, LeaseView] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    offline: str = ""
    old: frozenset[str] = frozenset()
    superseded: tuple[Superseded, ...] = ()

    def lenient(self) -> GuardReport:
        """Turn findings that rest only on a state too old to block anybody into warnings."""
        # One by one: the remote may have failed to answer for one layer only.
        findings = [
            replace(f, severity=Severity.WARN) if f.lease.lease_id in self.old else f
            for f in self.findings
        ]
        findings.sort(key=lambda f: f.severity is not Severity.BLOCK)
        return replace(self, findings=tuple(findings))


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


@dataclass(frozen=True)
class PushedWork:
    """The paths touched by the commits that a push would bring or take away.

    ``lost`` are those of what it takes away, ``ledgers`` the refs in it that only gitlease moves.
    ``unknown`` are the replaced branches whose commits are not in this clone. ``naming`` are those
    of its commits that name leases.
    """

    touched: tuple[Touched, ...] = ()
    lost: tuple[Touched, ...] = ()
    ledgers: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    naming: tuple[Naming, ...] = ()


@dataclass(frozen=True)
class PushedCommit:
    """A commit of a push: the paths it touches, the grants it names, and when it was committed.

    ``emails`` are those of its author and committer, ``author`` is the author's as it was written.
    """

    id: str
    touched: tuple[Touched, ...]
    named: tuple[Named, ...] = ()
    recorded: int | None = None
    emails: tuple[str, ...] = ()
    author: str = ""
    parents: tuple[str, ...] = ()
    mentioned: tuple[Named, ...] = ()
