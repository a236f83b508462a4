"""Values that the guard exchanges with hooks and the work tree, and where it keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from gitlease.core.frozen import dataclass, field
from gitlease.core.instant import Instant
from gitlease.core.lease import Lease, Sighting
from gitlease.core.ledger import Notice
from gitlease.core.policy import DEFAULT_POLICY, Policy
from gitlease.core.resources.resource import Resource
from gitlease.guard.rules import Touched

if TYPE_CHECKING:
    from gitlease.core.lease_rows import LeaseRows


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLedger:
    """The live leases of one layer as they were ``received``, for hooks that have no time.

    ``damage`` names the unreadable records; ``notices`` are the holder's unread ones. ``version``
    is the head's, ``""`` if there was no ledger; ``seen`` returns when this clone first saw a
    record. ``doubt`` is why it may not be the ledger that everybody reads: then nothing is judged
    by it.
    """

    layer: str
    version: str
    received: Instant
    leases: LeaseRows
    policy: Policy = DEFAULT_POLICY
    damage: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    seen: Callable[[Lease], Sighting | None] = field(default=lambda _: None, compare=False)
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class IdleMarker:
    """What a shim may rely on without asking: seconds since the epoch, 0 for never.

    Until ``clear_until`` nobody else holds anything; until ``held_until`` something is held here,
    to be renewed from ``renew_at`` on. ``tasks``: a commit may claim a task, and ``below`` are the
    files and folders, relative to the root, that it would change then (none: anywhere).
    """

    clear_until: int = 0
    renew_at: int = 0
    held_until: int = 0
    tasks: bool = False
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A failure to reach the remote: when, and git's reason."""

    at: Instant
    message: str


class WatchFiles(Protocol):
    """Keeps the guard's state between two hooks. It only saves work, and never fails."""

    def load(self, layer: str) -> CachedLedger | None:
        """Return the kept state, if it is of the head that this clone has now."""

    def save(self, cached: CachedLedger) -> None:
        """Keep a state."""

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        """Write the marker for the shims, unless the heads of the layers are no longer these."""

    def unreachable(self) -> Unreachable | None:
        """Return the last failure to reach the remote; None if it was reached since."""

    def set_unreachable(self, failure: Unreachable | None) -> None:
        """Keep a failure, so that hooks do not each wait for the same remote; None: it answers."""


@dataclass(frozen=True, slots=True)
class Started:
    """A task that becomes one of work in progress, with the names of its assignees as written."""

    resource: Resource
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedChange:
    """The paths that a commit touches, the tasks that it starts, and unreadable task files."""

    touched: tuple[Touched, ...] = ()
    started: tuple[Started, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PushedWork:
    """The paths touched by the commits that a push would bring or take away.

    ``lost`` are those of what it takes away, ``ledgers`` the refs in it that only gitlease moves.
    ``unknown`` are the replaced branches whose commits are not in this clone.
    """

    touched: tuple[Touched, ...] = ()
    lost: tuple[Touched, ...] = ()
    ledgers: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
