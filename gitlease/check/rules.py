"""Every rule of the check: its id, its level, and its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.core.edge import Task
from gitlease.core.errors import clean
from gitlease.core.frozen import dataclass, field
from gitlease.core.instant import moment_of
from gitlease.core.view import LeaseView
from gitlease.core.work import CheckRule, Finding, Level
from gitlease.engine.acts import RetirePlan

ERROR, WARNING = Level.ERROR, Level.WARNING

COMMIT_RULES = (
    HELD_THEN := CheckRule(
        "held-then", ERROR, "a commit touches what another person held when it was made"
    ),
    HELD_NOW := CheckRule("held-now", ERROR, "a commit touches what another person holds now"),
    UNPROVEN := CheckRule(
        "held-unproven",
        WARNING,
        "a commit touches what its author or committer holds now, and nothing but that address,"
        " which anybody may write, shows that the holder made it",
    ),
    SUPERSEDED := CheckRule(
        "token-superseded",
        ERROR,
        "a commit names a token after somebody else had been granted the same",
    ),
    UNKNOWN := CheckRule(
        "token-unknown",
        ERROR,
        "a commit names a token that was never given for that, or to its people",
    ),
    NO_TRAILER := CheckRule(
        "no-trailer", ERROR, "a commit names no lease, and the project requires one"
    ),
    UNREADABLE := CheckRule(
        "trailer-unreadable", WARNING, "a trailer of a commit names no lease that can be read"
    ),
    NO_LEDGER := CheckRule(
        "no-ledger", WARNING, "there is no ledger: nobody has claimed yet, or it was deleted"
    ),
)
STALE_RULES = (
    STALE_EDGE := CheckRule(
        "stale-edge",
        ERROR,
        "a task is assigned to somebody who has no lease of it, and of whom the ledger has seen"
        " nothing for longer than stale.after",
    ),
    LAPSED_LEASE := CheckRule(
        "lapsed-lease", WARNING, "a lease lapsed, and nobody cleaned it up or took it over"
    ),
    LEASE_ON_DONE := CheckRule(
        "lease-on-done", WARNING, "a task is done, and a lease of it is left"
    ),
    LEASE_ON_GONE := CheckRule(
        "lease-on-gone", WARNING, "the file of a task was deleted, and a lease of it is left"
    ),
    LEASE_WITHOUT_EDGE := CheckRule(
        "lease-without-edge",
        WARNING,
        "somebody holds a task whose file does not say so, on no branch that this clone knows",
    ),
    UNKNOWN_ASSIGNEE := CheckRule(
        "unknown-assignee",
        WARNING,
        "a task is assigned to a name that is nobody's: not in people, no author, no holder",
    ),
    DUPLICATE_ID := CheckRule("duplicate-id", ERROR, "several task files have one id"),
    BAD_TASK_FILE := CheckRule("bad-task-file", ERROR, "a task file cannot be used"),
)
RULES = COMMIT_RULES + STALE_RULES


LIMITS = {"error": Level.ERROR, "warning": Level.WARNING, "never": None}


@dataclass(frozen=True, slots=True)
class Action:
    """The release of one stale claim, and the findings that it settles."""

    findings: tuple[Finding, ...]
    plan: RetirePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check. ``unread`` is what could not be checked: then it has not passed.

    ``stale``: claims were checked as well. Their ``_actions`` are what may be done about findings,
    and ``_stays`` says why those without one stay. Once actions were taken, ``fixed`` is what they
    settled, the other ``findings`` say why they stay, ``leases`` are those released, and ``commit``
    is the last commit of an edge. ``undone`` are the failed edits of task files, or their failed
    commits: the ledger is ahead of them. ``commits`` is the number of commits checked, ``shown``
    what they are. ``waiting`` are the parked tasks that wait for a person, and why. ``prefix`` is
    put before every file: the repository's place in what a host of CI
    shows.
    """

    findings: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commits: int = 0
    commit: str | None = None
    shown: str = ""
    stale: bool = False
    _actions: tuple[Action, ...] = field(default=(), repr=False, compare=False)
    _stays: Mapping[Finding, str] = field(default_factory=dict, repr=False, compare=False)
    leases: tuple[LeaseView, ...] = ()
    prefix: str = ""

    @property
    def passed(self) -> bool:
        """Whether no error was found and everything could be read."""
        return not self.unread and not self.fails("error")

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [found for found in self.findings if found.level is level]

    def fails(self, limit: str) -> bool:
        """Whether any finding is at or above the level to fail on."""
        level = LIMITS[limit]
        return level is not None and any(x.level.rank >= level.rank for x in self.findings)

    @property
    def of_commits(self) -> bool:
        """Whether commits were checked, be it none."""
        return bool(self.shown) or not self.stale

    @property
    def checked(self) -> str:
        """What was checked: ``3 commits of pull request #7``, ``stale claims``."""
        commits = counted(self.commits, "commit")
        commits += f" of {clean(self.shown)}" if self.shown else ""
        return " and ".join([commits] * self.of_commits + ["stale claims"] * self.stale)

    @property
    def outcome(self) -> str:
        """``2 errors, 1 warning``, or ``nothing found``."""
        counts = [(level, len(self.of(level))) for level in (Level.ERROR, Level.WARNING)]
        words = [counted(number, level.value) for level, number in counts if number]
        words += [f"{len(self.fixed)} fixed"] if self.fixed else []
        words += ["not all could be checked"] if self.unread else []
        return ", ".join(words) or "nothing found"

    def place(self, found: Finding) -> str:
        """A finding's file as the host knows it, ``""`` if it has none."""
        if found.file is None:
            return ""
        return f"{self.prefix}/{found.file}" if self.prefix else found.file


def counted(number: int, what: str) -> str:
    """``1 commit``, ``2 commits``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def finding_of(
    rule: CheckRule,
    message: str,
    task: Task | None = None,
    *,
    since: int | None = None,
    **about: Any,
) -> Finding:
    """A finding by a rule, at the edge's line of a task's file; ``since`` in wall-clock ms."""
    place = {} if task is None else {"file": task.file, "line": task.line}
    when = None if since is None else moment_of(since)
    return Finding(
        **{"rule": rule, "message": message, "since": when, "level": rule.level, **place, **about}
    )


def no_ledger(layers: Sequence[str], place: str) -> Finding:
    """The finding that there is no ledger: a fresh clone cannot know whether there ever was one."""
    names = " or ".join(dict.fromkeys(layers))
    return finding_of(
        NO_LEDGER,
        f"there is no ledger {names} on {place}, so nothing could be checked: nobody has claimed"
        " yet, or it was deleted",
    )
