"""The verbs of the library that look, and those that set a repository up: methods of ``Leases``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gitlease.core.duration import LONGEST
from gitlease.core.errors import Unavailable, UsageError
from gitlease.core.finding import Finding, Level
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, moment_of
from gitlease.core.policy import Policy, change_policy, policy_words
from gitlease.core.view import Lease
from gitlease.engine import govern
from gitlease.engine import sessions as own
from gitlease.engine.reading import read_leases, read_log
from gitlease.engine.sessions import OwnSession
from gitlease.faces.library.arguments import Duration, ResourceLike, layers_of, to_seconds
from gitlease.wiring.workspace import Setting as Setting
from gitlease.wiring.workspace import (
    Workspace,
    open_workspace,
    write_default_settings,
    write_setting,
)

if TYPE_CHECKING:
    from gitlease.faces.library.leases import Leases


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A line of the audit trail: what was done (``kind``), by whom, and when by their clock.

    ``holder`` and ``session`` are those of the lease. ``detail`` is what else there is to say.
    """

    kind: str
    at: datetime
    by: str
    resource: str | None
    scope: str | None
    holder: str | None
    session: str | None
    token: int | None
    reason: str | None
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatus:
    """The ledger at a glance. ``leases`` are those that stand in anyone's way.

    ``place`` is where it is, without secrets; without an ``id`` nobody has claimed anything yet.
    """

    place: str
    layer: str
    id: str | None
    revision: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAmI:
    """Who one is to the ledger, and in words where holder and session come from."""

    holder: str
    session: str | None
    holder_source: str
    session_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitResult:
    """A repository that was set up. ``settings_file`` is the file that was written, if any.

    Without an ``id`` the remote could not be reached: the first claim makes the ledger.
    """

    settings_file: str | None
    place: str
    layer: str
    id: str | None
    revision: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found. ``unread`` is what could not be looked at: it is no pass then.

    ``fixed`` are findings that are none any more, ``commit`` the one that records their edges.
    ``commits`` is how many commits were checked.
    """

    findings: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commits: int = 0
    commit: str | None = None

    @property
    def passed(self) -> bool:
        """Whether no error was found, and everything could be looked at."""
        return not self.unread and all(x.level is not Level.ERROR for x in self.findings)


def list(
    self: Leases, *, mine: bool = False, all: bool = False, cached: bool = False
) -> tuple[Lease, ...]:
    """The live leases; ``all`` adds expired and completed ones, ``mine`` leaves out others'."""
    reading = self._heard(read_leases(self._ledger, cached=cached))
    return tuple(x for x in reading.leases if (all or x.state == "active") and (x.mine or not mine))


def show(self: Leases, resource: ResourceLike, *, cached: bool = False) -> tuple[Lease, ...]:
    """What the ledger has of one resource: empty when it is free."""
    reading = read_leases(self._ledger, resource=self._resource(resource), cached=cached)
    return self._heard(reading).leases


def sessions(self: Leases, *, cached: bool = False) -> tuple[OwnSession, ...]:
    """One's own sessions that have live leases, each with them, in every layer in use."""
    return self._heard(own.sessions(layers_of(self._workspace), cached=cached)).sessions


def log(
    self: Leases,
    resource: ResourceLike | None = None,
    *,
    limit: int = 50,
    since: Duration | datetime | None = None,
    cached: bool = False,
) -> tuple[LogEntry, ...]:
    """The audit trail, newest first; ``since`` a time (UTC where it has no zone), or so long ago.

    Raises UsageError for a ``limit`` below 1.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise UsageError(f"limit {limit!r} is not a positive number")
    reading = read_log(
        self._ledger,
        resource=None if resource is None else self._resource(resource),
        limit=limit,
        since=_since(since, self._ledger.clock.now().wall_ms),
        cached=cached,
    )
    events = [x._asdict() | {"at": moment_of(x.at)} for x in self._heard(reading).events]
    return tuple(LogEntry(**{k: v for k, v in x.items() if k != "operation"}) for x in events)


def status(self: Leases, *, cached: bool = False) -> LedgerStatus:
    """Where the ledger is, and what is leased there."""
    reading = self._heard(read_leases(self._ledger, cached=cached))
    now = moment_of(self._ledger.clock.now().wall_ms)
    return LedgerStatus(
        place=self._ledger.store.place,
        layer=self._ledger.layer,
        id=reading.ledger_id,
        revision=reading.revision,
        leases=tuple(x for x in reading.leases if x.is_current(now)),
    )


def whoami(self: Leases) -> WhoAmI:
    """Who one is to the ledger. Asks nobody."""
    identity = self._workspace.identity
    return WhoAmI(
        holder=identity.actor.holder,
        session=identity.actor.session,
        holder_source=identity.holder_source,
        session_source=identity.session_source,
    )


def init(self: Leases, *, undo_rollback: bool = False, accept_rollback: bool = False) -> InitResult:
    """Set the repository up: make the ledger, and write ``.gitlease.yaml`` where there is none.

    It may be repeated, and accepts a ledger that was replaced. Of one that was rolled back it
    raises Rollback, unless told which past counts: what this clone has seen (``undo_rollback``), or
    what is there now (``accept_rollback``); `gitlease init --help` says more. A remote that cannot
    be reached is a warning.
    """
    if undo_rollback and accept_rollback:
        raise UsageError("either undo_rollback or accept_rollback: only one past can count")
    written = write_default_settings(self._workspace.repository)
    warnings, reading = written[1].warnings if written else (), None
    try:
        if undo_rollback:
            reading = govern.undo_rollback(self._ledger)
        else:
            reading = govern.confirm(self._ledger, rolled_back=accept_rollback)
        self.warnings = (*warnings, *reading.warnings)
    except Unavailable as error:
        self.warnings = (*warnings, error.message)
    return InitResult(
        settings_file=written[0] if written else None,
        place=self._ledger.store.place,
        layer=self._ledger.layer,
        id=reading.ledger_id if reading else None,
        revision=reading.revision if reading else None,
    )


def config(
    self: Leases,
    key: str | None = None,
    value: str | None = None,
    *,
    ledger: bool = False,
    cached: bool = False,
) -> tuple[Setting, ...]:
    """The settings that hold here, each with its source; of ``key`` alone; set to ``value``.

    A setting is written to this clone's git config (an empty value unsets it), and holds for what
    is opened from then on. With ``ledger`` it is the ledger's policy, for everybody: only its
    admins may set that, where there are any. Raises UsageError for an unknown key or a bad value,
    and PolicyRefused.
    """
    if value is not None and key is None:
        raise UsageError("name what is to be set to that value")
    if not ledger and key is not None and value is not None:
        name = write_setting(self._workspace.repository, key, value)
        return (Setting(name, value or None, f"git config (local) {name}"),)
    if not ledger:
        return _of_key(key, self._workspace.settings.table())
    if key is not None and value is not None:
        change_policy(Policy(ttl_min=1, ttl_max=LONGEST), {key: value})  # before anybody is asked
        self.warnings = govern.set_policy(self._ledger, {key: value}).warnings
        reading = read_leases(self._ledger, cached=True)
    else:
        reading = self._heard(read_leases(self._ledger, cached=cached))
    source = "ledger" if reading.ledger_id else "built-in"
    words = policy_words(reading.policy)
    return _of_key(key, [Setting(name, said, source) for name, said in words.items()])


def check_commits(self: Leases, range: str | None = None, *, cached: bool = False) -> CheckResult:
    """Check commits for what others held when they were made, or hold now: as `gitlease check`.

    ``range`` is like ``main..HEAD``; None: the pull request or push that CI runs for, else what
    HEAD has and the default branch has not. The settings are those of the commit before it. Raises
    UsageError for a bad range.
    """
    from gitlease.wiring.check import open_check

    opened = open_check(**_place(self))
    found = opened.service(opened.choose(range)).check(cached=cached)
    self.warnings = found.warnings
    return CheckResult(
        findings=tuple(found.findings),
        unread=found.unread,
        warnings=found.warnings,
        commits=found.commits,
    )


def check_stale(self: Leases, *, fix: bool = False, cached: bool = False) -> CheckResult:
    """Look for claims that nobody works under any more: as `gitlease check --stale`.

    ``fix`` retires those that the project's settings allow: those of the work tree, and where CI
    runs for a pull request those of what it is to be merged into, which it cannot bring along.
    Raises UsageError for that ``cached``.
    """
    from gitlease.wiring.stale import open_staleness

    if fix and cached:
        raise UsageError("what is to be fixed is asked of the remote: it is not to be cached")
    service = open_staleness(_judging(self))
    found = service.find(cached=cached, sure=fix)
    if not fix:
        self.warnings = found.warnings
        return CheckResult(findings=found.findings, unread=found.unread, warnings=found.warnings)
    done = service.fix(found)
    said = (*found.warnings, *done.warnings, *(x.message for x in done.refused), *done.undone)
    self.warnings = tuple(dict.fromkeys(said))
    return CheckResult(
        findings=done.findings,
        fixed=done.fixed,
        unread=found.unread,
        warnings=self.warnings,
        commit=done.commit,
    )


def _place(leases: Leases) -> dict[str, Any]:
    """How to open the same place again, with other settings."""
    repository, location = leases._workspace.repository, leases._workspace.location
    return {
        "directory": repository.toplevel or repository.git_dir,
        "layer": leases._layer,
        "local": location.url is None and location.explicit,
        "remote": location.name or location.url,
    }


def _judging(leases: Leases) -> Workspace:
    """The workspace; in CI for a pull request with the settings of what was there before."""
    from gitlease.wiring.check import open_check, read_context

    workspace, actor = leases._workspace, leases._workspace.identity.actor
    if not read_context().base_branch or getattr(workspace.ledger.store, "in_memory", False):
        return workspace
    opened = open_check(**_place(leases))
    return open_workspace(
        **_place(leases),
        session=actor.session if actor.session_explicit else None,
        committed=opened.committed(opened.choose()),
        repository=opened.repository,
    )


def _of_key(key: str | None, table: Sequence[Setting]) -> tuple[Setting, ...]:
    shown = tuple(x for x in table if key is None or x.key.lower() == key.lower())
    if not shown:
        known = ", ".join(x.key for x in table)
        raise UsageError(f"unknown setting {key!r:.60}", hints=(f"known settings: {known}",))
    return shown


def _since(word: Duration | datetime | None, now: int) -> int | None:
    if isinstance(word, datetime):
        known = word if word.tzinfo is not None else word.replace(tzinfo=UTC)
        return round(known.timestamp() * MS)
    seconds = to_seconds(word, "since")
    return None if seconds is None else now - seconds * MS
