"""What the guard and git's hooks need of the world beside the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from gitlease.core.expiry import Sighting
from gitlease.core.frozen import dataclass, field
from gitlease.core.instant import Instant
from gitlease.core.lease import Lease
from gitlease.core.ledger import Notice
from gitlease.core.policy import DEFAULT_POLICY, Policy
from gitlease.core.resources.resource import Resource
from gitlease.guard.rules import PushedCommit, Touched

if TYPE_CHECKING:
    from gitlease.core.lease_rows import LeaseRows


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLedger:
    """The live leases of one layer as they were ``received``, for hooks that have no time.

    ``damage`` says which records cannot be read, and ``notices`` what the holder who read it has
    yet to be told.

    ``version`` is the head's, ``""`` where there was no ledger; ``seen`` tells when this clone
    first saw a record.
    """

    layer: str
    version: str
    received: Instant
    leases: LeaseRows
    policy: Policy = DEFAULT_POLICY
    damage: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    seen: Callable[[Lease], Sighting | None] = field(default=lambda _: None, compare=False)


@dataclass(frozen=True, slots=True)
class IdleMarker:
    """What a shim may know without asking: seconds since the epoch, 0 for never.

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
    """That a remote could not be reached, when, and what was said of it."""

    at: Instant
    message: str


class WatchFiles(Protocol):
    """Keeps what the guard knows between two hooks. It only saves work, and never fails."""

    def load(self, layer: str) -> CachedLedger | None:
        """What was kept, if it is of the head that this clone knows now."""

    def save(self, watched: CachedLedger) -> None:
        """Keep it."""

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        """Tell the shims, unless the heads of the layers are no longer these."""

    def unreachable(self) -> Unreachable | None:
        """The last failure to reach the remote, None where it was reached since."""

    def set_unreachable(self, failure: Unreachable | None) -> None:
        """Remember it, so that not every hook has to wait for the same remote; None: it answers."""


@dataclass(frozen=True, slots=True)
class Started:
    """A task that becomes one of work in progress, with the names of its assignees as written."""

    resource: Resource
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedChange:
    """What a commit would change: the paths it touches, and the tasks that it starts.

    ``problems`` are the task files that cannot be read.
    """

    touched: tuple[Touched, ...] = ()
    started: tuple[Started, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PushedWork:
    """The paths that commits touch which a push would bring, or which it would take away.

    ``lost`` are those of what it takes away, ``ledgers`` the refs in it that only gitlease moves.
    ``unknown`` are the branches of which it is not known here what they have.
    """

    touched: tuple[Touched, ...] = ()
    lost: tuple[Touched, ...] = ()
    ledgers: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Worktree(Protocol):
    """The user's repository as a hook of git finds it.

    Raises Invalid where git does not answer, and TooMuch for more than can be judged.
    """

    def staged(self, *, amended: bool | None = False) -> StagedChange:
        """What is about to be committed, by the index that git gives its hook.

        ``amended``: with what the commit changed that is being replaced. None asks to find out
        whether there is one; an index without any change is taken for that.
        """

    def pushed(self, lines: Sequence[str], remote: str) -> PushedWork:
        """What is about to be pushed, by the lines that git gives its pre-push hook.

        It takes away what the main branches of the remote of the ledger have not any more then.
        """

    def carried(self, lines: Sequence[str], remote: str) -> Sequence[PushedCommit]:
        """The commits of such a push, without those that turn out to be there already.

        Asks the remote what it has, and goes by what is known here where it does not answer.
        """

    def set_trailers(
        self, message_file: str, trailers: Sequence[str], *, stale: Sequence[str] = ()
    ) -> None:
        """Have a message end with these trailers, in the place of older ones of the same leases.

        ``stale`` ones go: the message was that of another change.
        """

    def empty_if_bare(self, message_file: str) -> None:
        """Empty a message that says nothing but trailers, so that git makes no commit of it.

        The template of the settings, as it was, says nothing either.
        """
