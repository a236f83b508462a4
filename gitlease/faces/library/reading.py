"""The verbs of the library that read or set a repository up: methods of ``Leases``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from gitlease.core.errors import Unavailable, UsageError
from gitlease.core.finding import Finding, Level
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, moment_of
from gitlease.core.policy import check_change, policy_words
from gitlease.core.view import Lease
from gitlease.engine import acts
from gitlease.engine import sessions as own
from gitlease.engine.reading import read_leases, read_log
from gitlease.engine.sessions import OwnSession
from gitlease.faces.library.arguments import (
    Duration,
    OpenLeases,
    ResourceLike,
    layers_of,
    to_seconds,
)
from gitlease.wiring.workspace import Setting as Setting
from gitlease.wiring.workspace import (
    Workspace,
    open_workspace,
    record_ledger,
    write_default_settings,
    write_setting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """An entry of the audit trail: the operation (``kind``), by whom, and when by their clock.

    ``holder`` and ``session`` are those of the lease.
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
    """The ledger at a glance. ``leases`` are those that may block others.

    ``place`` is its remote, without secrets; ``id`` is None before the first claim.
    """

    place: str
    layer: str
    id: str | None
    revision: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAmI:
    """Your identity in the ledger, and where holder and session come from."""

    holder: str
    session: str | None
    holder_source: str
    session_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitResult:
    """The result of setting a repository up. ``settings_file`` is the written file, if any.

    ``id`` is None if the remote could not be reached: then the first claim makes the ledger.
    """

    settings_file: str | None
    place: str
    layer: str
    id: str | None
    revision: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check. ``unread`` is what could not be read: then it has not passed.

    ``fixed`` are findings that were resolved, in ``commit`` if their edges were committed.
    ``commits`` is the number of commits checked.
    """

    findings: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    commits: int = 0
    commit: str | None = None

    @property
    def passed(self) -> bool:
        """Whether no error was found and everything could be read."""
        return not self.unread and all(x.level is not Level.ERROR for x in self.findings)


def list(
    self: OpenLeases, *, mine: bool = False, all: bool = False, cached: bool = False
) -> tuple[Lease, ...]:
    """The live leases; ``all`` adds expired and completed ones, ``mine`` leaves out others'."""
    if mine:
        self._ledger.check_holder()
    reading = self._noted(read_leases(self._ledger, cached=cached))
    return tuple(x for x in reading.leases if (all or x.state == "active") and (x.mine or not mine))


def show(self: OpenLeases, resource: ResourceLike, *, cached: bool = False) -> tuple[Lease, ...]:
    """The leases of one resource; empty when it is free."""
    reading = read_leases(self._ledger, resource=self._resource(resource), cached=cached)
    return self._noted(reading).leases


def sessions(self: OpenLeases, *, cached: bool = False) -> tuple[OwnSession, ...]:
    """Your own sessions with live leases, and these, in every layer in use."""
    return self._noted(own.sessions(layers_of(self._workspace), cached=cached)).sessions


def log(
    self: OpenLeases,
    resource: ResourceLike | None = None,
    *,
    limit: int = 50,
    since: Duration | datetime | None = None,
    cached: bool = False,
) -> tuple[LogEntry, ...]:
    """The audit trail, newest first, ``since`` a time (UTC if it has no zone) or a duration ago.

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
    events = [x._asdict() | {"at": moment_of(x.at)} for x in self._noted(reading).events]
    return tuple(LogEntry(**{k: v for k, v in x.items() if k != "operation"}) for x in events)


def status(self: OpenLeases, *, cached: bool = False) -> LedgerStatus:
    """The ledger's location, and its leases."""
    reading = self._noted(read_leases(self._ledger, cached=cached))
    now = moment_of(self._ledger.clock.now().wall_ms)
    return LedgerStatus(
        place=self._ledger.store.place,
        layer=self._ledger.layer,
        id=reading.ledger_id,
        revision=reading.revision,
        leases=tuple(x for x in reading.leases if x.is_current(now)),
    )


def whoami(self: OpenLeases) -> WhoAmI:
    """Your identity in the ledger, without contacting the remote."""
    identity = self._workspace.identity
    return WhoAmI(
        holder=identity.actor.holder,
        session=identity.actor.session,
        holder_source=identity.holder_source,
        session_source=identity.session_source,
    )


def init(
    self: OpenLeases,
    *,
    undo_rollback: bool = False,
    accept_rollback: bool = False,
    new_ledger: bool = False,
) -> InitResult:
    """Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is none.

    Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises Rollback,
    unless the choice is given: restore what this clone has seen (``undo_rollback``), or accept the
    remote's state (``accept_rollback``); see `gitlease init --help`. A ledger that the settings do
    not record is refused, unless this remote is to have its own (``new_ledger``). An unreachable
    remote is a warning.
    """
    if undo_rollback and accept_rollback:
        raise UsageError("undo_rollback and accept_rollback exclude each other")
    self._ledger.check_holder()
    reading = None
    try:
        if undo_rollback:
            reading = acts.undo_rollback(self._ledger)
        else:
            reading = acts.confirm(self._ledger, rolled_back=accept_rollback, another=new_ledger)
        warnings = reading.warnings
    except Unavailable as error:
        warnings = (error.message,)
    written = write_default_settings(self._workspace.repository)
    _, unrecorded = record_ledger(self._workspace, reading.ledger_id if reading else None)
    self.warnings = (*(written[1].warnings if written else ()), *warnings, *unrecorded)
    return InitResult(
        settings_file=written[0] if written else None,
        place=self._ledger.store.place,
        layer=self._ledger.layer,
        id=reading.ledger_id if reading else None,
        revision=reading.revision if reading else None,
    )


def config(
    self: OpenLeases,
    key: str | None = None,
    value: str | None = None,
    *,
    ledger: bool = False,
    cached: bool = False,
) -> tuple[Setting, ...]:
    """The effective settings with their sources, or one ``key``, which ``value`` sets.

    A setting is written to this clone's git config (an empty value unsets it), and applies to
    whatever is opened from then on. With ``ledger`` it is the ledger's policy, for everyone, which
    only its admins may set, if there are any. Raises UsageError for an unknown key or a bad value,
    and PolicyRefused.
    """
    if value is not None and key is None:
        raise UsageError("a value needs a key")
    if not ledger and key is not None and value is not None:
        name = write_setting(self._workspace.repository, key, value)
        return (Setting(name, value or None, f"git config (local) {name}"),)
    if not ledger:
        return _of_key(key, self._workspace.settings.table())
    if key is not None and value is not None:
        check_change(key, value)  # before any network call
        self.warnings = acts.set_policy(self._ledger, {key: value}).warnings
        reading = read_leases(self._ledger, cached=True)
    else:
        reading = self._noted(read_leases(self._ledger, cached=cached))
    source = "ledger" if reading.ledger_id else "built-in"
    words = policy_words(reading.policy)
    return _of_key(key, [Setting(name, word, source) for name, word in words.items()])


def check_commits(
    self: OpenLeases, range: str | None = None, *, cached: bool = False
) -> CheckResult:
    """Check commits for changes to what others held then or hold now, as `gitlease check` does.

    ``range`` is like ``main..HEAD``; by default the pull request or push that CI runs for, else the
    commits of HEAD that the default branch lacks. The settings are those of the commit before the
    range. Raises UsageError for a bad range.
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


def check_stale(self: OpenLeases, *, fix: bool = False, cached: bool = False) -> CheckResult:
    """Look for abandoned claims, as `gitlease check --stale` does.

    ``fix`` releases those that the project's settings allow, without a question: the settings of
    the work tree, or in CI for a pull request those of its base branch. Raises UsageError for
    ``fix`` with ``cached``.
    """
    from gitlease.wiring.check import open_staleness

    if fix and cached:
        raise UsageError("fix and cached exclude each other: a fix needs the remote's state")
    service = open_staleness(_with_base_settings(self))
    found = service.find(cached=cached)
    if not fix:
        self.warnings = found.warnings
        return CheckResult(findings=found.findings, unread=found.unread, warnings=found.warnings)
    done = service.fix(found)
    warnings = (*found.warnings, *done.warnings, *done.undone)
    self.warnings = tuple(dict.fromkeys(warnings))
    return CheckResult(
        findings=done.findings,
        fixed=done.fixed,
        unread=found.unread,
        warnings=self.warnings,
        commit=done.commit,
    )


def _place(leases: OpenLeases) -> dict[str, Any]:
    # The arguments that open the same place again.
    repository, location = leases._workspace.repository, leases._workspace.location
    return {
        "directory": repository.toplevel or repository.git_dir,
        "layer": leases._layer,
        "local": location.url is None and location.explicit,
        "remote": location.name or location.url,
    }


def _with_base_settings(leases: OpenLeases) -> Workspace:
    # In CI for a pull request: with the settings of its base branch.
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


def _since(since: Duration | datetime | None, now: int) -> int | None:
    if isinstance(since, datetime):
        aware = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
        return round(aware.timestamp() * MS)
    seconds = to_seconds(since, "since")
    return None if seconds is None else now - seconds * MS
