"""The result of a check, as every format reports it."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.errors import clean
from gitlease.core.finding import Finding, Level
from gitlease.core.frozen import dataclass

LIMITS = {"error": Level.ERROR, "warning": Level.WARNING, "never": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings, and what was checked: the number of ``commits``, or None if none were.

    ``unread`` is what could not be checked: the check has not passed then. ``prefix`` is put before
    every file: the repository's place in what the host shows.
    """

    findings: tuple[Finding, ...] = ()
    shown: str = ""
    commits: int | None = None
    stale: bool = False
    fixed: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    prefix: str = ""

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [found for found in self.findings if found.level is level]

    def fails(self, limit: str) -> bool:
        """Whether any finding is at or above the level to fail on."""
        level = LIMITS[limit]
        return level is not None and any(x.level.rank >= level.rank for x in self.findings)

    @property
    def checked(self) -> str:
        """What was checked: ``3 commits of pull request #7``, ``stale claims``."""
        said = []
        if self.commits is not None:
            of = f" of {clean(self.shown)}" if self.shown else ""
            said.append(counted(self.commits, "commit") + of)
        if self.stale:
            said.append("stale claims")
        return " and ".join(said) or "nothing"

    @property
    def result(self) -> str:
        """``2 errors, 1 warning``, or ``nothing found``."""
        counts = [(level, len(self.of(level))) for level in (Level.ERROR, Level.WARNING)]
        said = [counted(number, level.value) for level, number in counts if number]
        said += [f"{len(self.fixed)} fixed"] if self.fixed else []
        said += ["not all could be checked"] if self.unread else []
        return ", ".join(said) or "nothing found"

    def place(self, found: Finding) -> str:
        """A finding's file as the host knows it, ``""`` if it has none."""
        if found.file is None:
            return ""
        return f"{self.prefix}/{found.file}" if self.prefix else found.file


def counted(number: int, what: str) -> str:
    """``1 commit``, ``2 commits``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """The errors before the warnings, else as they were found."""
    return sorted(findings, key=lambda found: -found.level.rank)


def details(found: Finding) -> list[str]:
    """The evidence and the next steps, a line each."""
    return [one_line(x) for x in (*found.evidence, *(f"next: {x}" for x in found.next_steps))]


def one_line(text: str) -> str:
    """A text on one line, without control characters."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")
