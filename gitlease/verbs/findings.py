"""What a check finds, in no particular output format."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from gitlease.kernel.rules.frozen import dataclass


class Level(Enum):
    """The severity. A run fails at or above the level that it was asked to fail on."""

    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Larger is worse."""
        return {Level.WARNING: 1, Level.ERROR: 2}[self]


@dataclass(frozen=True)
class CheckRule:
    """A kind of finding: a stable id in kebab case, its usual level, and what it means."""

    id: str
    level: Level
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding. ``message`` is one line of fact that names who, what, and since when.

    ``holder`` is whom it concerns (an email), ``since`` an aware UTC datetime. ``file`` and
    ``line`` (from 1) say where people look: the edge's line of a task file where there is one.
    ``evidence`` are further facts, a line each, and ``next_steps`` commands to type: none of them
    takes a lease from its holder.
    """

    rule: CheckRule
    level: Level
    message: str
    resource: str | None = None
    scope: str | None = None
    layer: str | None = None
    holder: str | None = None
    since: datetime | None = None
    commit: str | None = None
    file: str | None = None
    line: int | None = None
    evidence: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
