"""What a fenced push needs of the user's repository, and of the store of the ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gitlease.core.frozen import dataclass
from gitlease.core.work_push import WorkPush, WorkRef
from gitlease.guard.ports import PushedWork
from gitlease.guard.rules import PushedCommit
from gitlease.push.work import PushRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPush:
    """What a push to ``remote`` would do now; ``refs`` has every ref, also those that stay.

    ``upstreams`` has the branches, each with the ref that is to become its upstream, ``tracking``
    the refs of the repository that git itself will not have follow, each with its new id.
    """

    push: WorkPush
    refs: tuple[WorkRef, ...]
    remote: str
    upstreams: tuple[tuple[str, str], ...] = ()
    tracking: tuple[tuple[str, str], ...] = ()


class Work(Protocol):
    """The user's repository as a push finds it. git itself says what a push does.

    Every method that asks the remote raises Unavailable when it cannot be reached and Denied when
    it, or a hook of the repository, refuses.
    """

    def plan(self, wish: PushRequest, tell: Callable[[str], None]) -> PlannedPush:
        """Find out what would be pushed, and run the repository's hooks. One connection.

        ``tell`` gets each line that hooks print, or that the server says.
        UsageError for what cannot be pushed at all, or not together with the ledger. A ref that git
        rejects is among the answer's.
        """

    def brought(self, plan: PlannedPush) -> PushedWork:
        """What the commits touch that a push would bring, or that it would take away.

        Asks the remote only where something is replaced or deleted: what else it has. Denied where
        it is not known here what that is.
        """

    def carried(self, plan: PlannedPush) -> Sequence[PushedCommit]:
        """The commits that such a push brings, without those that turn out to be there already.

        Asks the remote what it has.
        """

    def land(self, push: WorkPush) -> tuple[str, ...]:
        """Push without any ledger, all refs or none; the lines that the server printed.

        UnknownOutcome where it cannot be known whether that landed.
        """

    def follow(self, plan: PlannedPush) -> None:
        """Set the upstreams that were asked for, and what git has not had follow."""
