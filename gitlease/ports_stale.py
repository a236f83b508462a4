"""What a check of stale claims needs of the repository: who worked on what, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gitlease.domain.edge import Task
from gitlease.domain.frozen import dataclass, field
from gitlease.domain.stale_facts import Past, Works
from gitlease.domain.stale_found import Deleted
from gitlease.domain.stale_unknown import Lack


@dataclass(frozen=True, slots=True)
class Asked:
    """The file of a task whose past is asked for, by the names that are looked for in it."""

    task: Task
    names: frozenset[str] = field(default_factory=frozenset)


class Activity(Protocol):
    """The commits of all branches that this clone knows. No remote is asked, but for ``cut_off``.

    The number of processes is small, and the same for one task and for thousands. Raises Invalid
    where git does not answer.
    """

    def cut_off(self, *, cached: bool, sure: bool = False) -> Lack | None:
        """Why commits are missing: of old ones, or of whole branches; None where all are here.

        Only a clone that may lack branches asks the remote, any with ``sure``, none with
        ``cached``. Raises
        Unavailable and Denied.
        """

    def partial(self) -> Lack | None:
        """Why contents of old versions may be missing; None where all are here."""

    def left_out(self) -> Sequence[str]:
        """The task files that this work tree does not have, though its index does."""

    def authors(self) -> Mapping[str, str]:
        """The addresses of everybody who committed, each with the one that stands for it."""

    def usual(self, emails: Iterable[str]) -> Mapping[str, str]:
        """The address that the mailmap has for each of these: itself where it has none."""

    def pasts(self, asked: Sequence[Asked]) -> Mapping[str, Past]:
        """The past of task files, by file. Of each version it tells no names but those asked for.

        Where there is no commit yet, there is no past.
        """

    def works(self) -> Works:
        """The commits of everybody, the newest first."""

    def deleted(self, keys: frozenset[str]) -> Mapping[str, Deleted]:
        """Which tasks of these folded names were deleted on the current branch, by key."""
