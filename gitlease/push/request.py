"""A push of the user's work: as requested, and as git says that it would go."""

from __future__ import annotations

from gitlease.core.frozen import dataclass
from gitlease.core.work_push import WorkPush, WorkRef

JUDGED = "GITLEASE_PUSHING"
"""Names, in the environment of hooks, the remote of a push that ``gitlease push`` itself judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """A push in the words of ``git push``.

    ``choosing`` are options that select what is pushed, ``sending`` those that say how;
    ``upstream`` is ``--set-upstream``. Without ``remote`` and ``refspecs`` git's settings decide.
    ``hooks``: run those of the repository.
    """

    remote: str | None = None
    refspecs: tuple[str, ...] = ()
    choosing: tuple[str, ...] = ()
    sending: tuple[str, ...] = ()
    upstream: bool = False
    hooks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPush:
    """A push to ``remote`` as it would go now; ``refs`` has every ref, also those that stay.

    ``upstreams`` has branches with the ref that is to become their upstream, ``tracking`` the
    repository's own refs that git will not update, with their new ids.
    """

    push: WorkPush
    refs: tuple[WorkRef, ...]
    remote: str
    upstreams: tuple[tuple[str, str], ...] = ()
    tracking: tuple[tuple[str, str], ...] = ()
