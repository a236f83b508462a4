"""What the check of commits needs of the world beside the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gitlease.domain.chronicle import Trail
from gitlease.domain.deeds import Deed
from gitlease.domain.frozen import dataclass

GITHUB, GITLAB = "github", "gitlab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What continuous integration says of the change that it runs for.

    ``base`` and ``head`` are full ids, ``""`` where unknown: the commits to check are those of the
    head that the base does not have. ``new``: the branch is new, and has no base. ``base_branch``
    is where they are to go, ``head_ref`` the ref of the remote that has the head, ``commits`` how
    many there are. ``nothing``: a branch was deleted. ``emails`` and ``logins`` are those of
    whoever pushed them, or with ``request`` of whoever opened the request to merge them or sent its
    event, who need not have made any of them. ``workspace`` is the folder that the host shows files
    relative to, ``summary`` the file that the job's summary is added to. ``problems`` are what
    could not be made out.
    """

    provider: str = ""
    base: str = ""
    head: str = ""
    new: bool = False
    nothing: bool = False
    base_branch: str = ""
    default_branch: str = ""
    head_ref: str = ""
    commits: int = 0
    shown: str = ""
    request: bool = False
    emails: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    workspace: str = ""
    summary: str = ""
    problems: tuple[str, ...] = ()

    @property
    def in_github(self) -> bool:
        """Whether this runs in GitHub Actions."""
        return self.provider == GITHUB


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The commits to check, the oldest first, with full ids.

    ``shown`` is what people call the range. ``base`` is a commit that was there before, whose
    mailmap and settings hold; ``""`` where there is none. ``place`` is the repository with their
    objects where that is not the user's own. ``cut`` says that there were more.
    """

    commits: tuple[str, ...]
    shown: str
    base: str = ""
    place: str = ""
    cut: bool = False
    warnings: tuple[str, ...] = ()


class Commits(Protocol):
    """Chosen commits, of the user's repository or of a store beside it. It asks nobody."""

    def read(self, chosen: Chosen) -> Sequence[Deed]:
        """What each of them did, in their order."""

    def canonical(self, chosen: Chosen, emails: Iterable[str]) -> Mapping[str, str]:
        """What the project's mailmap makes of addresses."""


class Trails(Protocol):
    """The history of ledgers, as this clone has it. It asks nobody."""

    def trail(self, layer: str, version: str, *, since: int, token: int | None) -> Trail:
        """What happened up to a version, at least since a time in wall-clock milliseconds.

        ``token``: and at least since this one was given.
        """
