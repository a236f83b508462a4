"""The library: the verbs of the command line, for Python programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import LeaseHeld, LeaseLost, Unavailable, UsageError
from gitlease.core.frozen import replace
from gitlease.core.instant import MS, moment_of
from gitlease.core.loss import Lost, explained
from gitlease.core.policy import check_change, policy_words
from gitlease.core.resources.resource import WHOLE, Resource, parse_scope
from gitlease.core.view import Lease
from gitlease.engine import acts, claim, sessions
from gitlease.engine.acts import loss_of
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.engine.reading import read_leases, read_log
from gitlease.engine.sessions import OwnSession
from gitlease.engine.watch import Watcher, WatchEvent
from gitlease.faces.library import running, watching
from gitlease.faces.library.arguments import (
    Duration,
    ResourceLike,
    StrPath,
    WithWarnings,
    layers_of,
    to_claim,
    to_list,
    to_note,
    to_reason,
    to_resource,
    to_resources,
    to_scope,
    to_seconds,
    to_terms,
)
from gitlease.faces.library.holding import HeldLeases, call_in_thread
from gitlease.faces.library.refusals import refusing_class, refusing_events
from gitlease.faces.library.values import (
    CheckResult,
    Entry,
    InitResult,
    LedgerStatus,
    LogEntry,
    QueueReading,
    WhoAmI,
    briefing,
    entries,
)
from gitlease.push.fenced_push import PushAnswer as PushAnswer
from gitlease.push.fenced_push import PushRefused as PushRefused
from gitlease.runs.heartbeat import in_a_run
from gitlease.verbs.push_options import push_request
from gitlease.verbs.statuses import set_status as set_task_status
from gitlease.wiring.push import open_push
from gitlease.wiring.words import dead_hooks
from gitlease.wiring.workspace import (
    Setting,
    Workspace,
    open_workspace,
    record_ledger,
    write_default_settings,
    write_setting,
)

OnLost = Callable[["Session", LeaseLost], object]


@refusing_class
class Leases:
    """The leases and tasks of one repository, for one holder and session: see ``gitlease.open``.

    Leaving the ``with`` block releases nothing: a lease ends by ``release``, ``done`` or time.
    ``warnings`` are those of the last answer.
    """

    _is_run = False  # whether its session is that of one run, which the commands it runs share

    def __init__(
        self,
        workspace: Workspace,
        *,
        layer: str | None = None,
        open_at: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        """``layer`` is the one named by the caller; ``open_at`` opens another folder likewise."""
        self._workspace, self._ledger = workspace, workspace.ledger
        self._layer, self._open_at = layer, open_at
        self.warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        holder = self.holder or "nobody"
        who = holder if self.session is None else f"{holder}, session {self.session}"
        name = type(self).__name__
        return f"<{name} of {who}: layer {self._ledger.layer} on {self._ledger.store.place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    @property
    def holder(self) -> str:
        """The person who claims: git's ``user.email``; empty if there is none."""
        return self._workspace.identity.actor.holder

    @property
    def session(self) -> str | None:
        """The holder's session, if any."""
        return self._workspace.identity.actor.session

    def claim(
        self,
        resource: ResourceLike,
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[StrPath] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        new: bool = False,
        any: bool = False,
        commit: bool | None = None,
    ) -> Lease:
        """Take a lease, or renew your own; ``wait`` blocks for at most that long.

        The assignee of a task is written to its file; ``commit`` records that as a commit (default:
        by the settings). ``any`` accepts names that are not tasks, ``new`` refuses to renew, and
        ``takeover`` may require an ``expect_holder``. Raises LeaseHeld with the holder and when
        it is free, WaitTimeout, PolicyRefused for a TTL outside the limits or completed work,
        NotFound for a name that is not a task, Invalid for a task file that cannot be edited,
        Unavailable, Denied or UnknownOutcome.
        """
        given = (scope, ttl, paths, reason, takeover, reopen, any, commit)
        terms = to_terms(self._workspace, *given, expect_holder=expect_holder, new=new)
        return self._claimed([resource], terms, wait)[0]

    def claim_all(
        self,
        resources: Iterable[ResourceLike],
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[StrPath] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        new: bool = False,
        any: bool = False,
        commit: bool | None = None,
    ) -> tuple[Lease, ...]:
        """Take several leases, all or none."""
        given = (scope, ttl, paths, reason, takeover, reopen, any, commit)
        terms = to_terms(self._workspace, *given, expect_holder=expect_holder, new=new)
        return self._claimed(resources, terms, wait)

    def renew(
        self, resource: ResourceLike, *, scope: str | None = None, ttl: Duration | None = None
    ) -> Lease:
        """The heartbeat: expiry becomes now + TTL. Raises LeaseLost or NotHolder."""
        wanted, seconds = [self._resource(resource)], to_seconds(ttl, "ttl")
        before = self._ledger.unread_notices()  # a refused renewal marks them as told
        try:
            answer = acts.renew(self._ledger, wanted, scope=to_scope(scope), ttl=seconds)
        except LeaseLost as lost:
            raise explained(lost, before) from None
        return self._noted(answer).leases[0]

    def renew_all(self, *, ttl: Duration | None = None) -> tuple[Lease, ...]:
        """Renew everything of this session in every layer that this clone uses, a push for each.

        Raises LeaseLost if any was lost; the rest is renewed first.
        """
        answer = acts.renew_all(layers_of(self._workspace), ttl=to_seconds(ttl, "ttl"))
        return _none_refused(self._noted(answer))

    def extend(
        self, resource: ResourceLike, duration: Duration, *, scope: str | None = None
    ) -> Lease:
        """Stretch to at least now + ``duration``; ``capped`` if the policy's maximum is less."""
        if (seconds := to_seconds(duration, "duration")) is None:
            raise UsageError("extend needs a duration")
        answer = acts.extend(self._ledger, self._resource(resource), seconds, scope=to_scope(scope))
        return replace(self._noted(answer).leases[0], capped=answer.capped_to_max)

    def park(
        self,
        resource: ResourceLike,
        duration: Duration | None = None,
        *,
        scope: str | None = None,
        reason: str | None = None,
        note: str | None = None,
    ) -> Lease:
        """Keep a lease for a later session of its holder: others are refused for ``duration``.

        The policy's ``park_max`` is the maximum and the default. Nothing renews it; a ``claim`` by
        any session of the person resumes it, under a new token. Raises LeaseLost, NotHolder, and
        PolicyRefused if the policy forbids it.
        """
        wanted, part = [self._resource(resource)], to_scope(scope)
        seconds, why, text = to_seconds(duration, "duration"), to_reason(reason), to_note(note)
        answer = sessions.park(
            self._ledger, wanted, seconds=seconds, scope=part, reason=why, note=text
        )
        return self._noted(answer).leases[0]

    def release(
        self,
        resource: ResourceLike,
        *,
        scope: str | None = None,
        note: str | None = None,
        keep_status: bool = False,
        commit: bool | None = None,
    ) -> None:
        """Drop your lease and edge, if any. Raises LeaseHeld for someone else's."""
        drop = partial(
            acts.release, self._ledger, [self._resource(resource)], scope=to_scope(scope)
        )
        self._noted(drop(note=to_note(note), keep_status=keep_status, commit=commit))

    def done(
        self,
        resource: ResourceLike,
        *,
        scope: str | None = None,
        commit: bool | None = None,
        any: bool = False,
    ) -> None:
        """Finish: the lease ends completed, the task's status is done, and claims need ``reopen``.

        Raises NotFound for a name in no task file and no record, unless ``any``, LeaseLost if
        others ended your lease and one of them has it, and LeaseHeld for another's.
        """
        wanted, part = self._resource(resource), to_scope(scope)
        try:
            done = acts.complete(self._ledger, wanted, scope=part, commit=commit, any_name=any)
        except LeaseHeld as held:
            raise acts.loss_of(self._ledger, held) or held from None
        self._noted(done)

    def revoke(
        self,
        resource: ResourceLike,
        *,
        reason: str,
        scope: str | None = None,
        expect_holder: str | None = None,
    ) -> tuple[Lease, ...]:
        """End someone else's lease, as an admin of the ledger. Returns the ended leases."""
        wanted, part, why = self._resource(resource), to_scope(scope), to_reason(reason)
        answer = acts.revoke(
            self._ledger, wanted, reason=why or "", scope=part, expect_holder=expect_holder
        )
        return self._noted(answer).leases

    def note(self, resource: ResourceLike, text: str) -> None:
        """Leave a note for the next holder."""
        self._noted(acts.note(self._ledger, self._resource(resource), to_note(text) or ""))

    def end_session(
        self,
        id: str | None = None,
        *,
        release: bool = False,
        park: bool | Duration = False,
        note: str | None = None,
        commit: bool | None = None,
    ) -> tuple[Lease, ...]:
        """Let all leases of one of your sessions (default: this one) expire now, in every layer.

        Tasks stay assigned, other names are released. ``release`` gives tasks back too; ``park``
        keeps everything, for a duration or, with True, as long as the policy allows. Returns the
        ended leases. Raises UsageError without a session, Invalid if a task file cannot be edited.
        """
        seconds = None if isinstance(park, bool) else to_seconds(park, "park")
        layers, parks, text = layers_of(self._workspace), park is not False, to_note(note)
        answer = sessions.end_session(
            layers, id, release=release, park=parks, seconds=seconds, note=text, commit=commit
        )
        return _none_refused(self._noted(answer))

    def push(
        self,
        remote: str | None = None,
        *refspecs: str,
        require: Iterable[ResourceLike] = (),
        upstream: bool = False,
        force: bool = False,
        tags: bool = False,
        delete: bool = False,
        options: Iterable[str] = (),
        hooks: bool = True,
        dry_run: bool = False,
    ) -> PushAnswer:
        """Push work and a renewal of its leases in one atomic push: both land, or neither.

        Remote and refspecs are those of ``git push``. The leases are your own that cover the
        commits, and those in ``require``; without any it is a plain push, with a warning.
        ``force`` replaces exactly the state that was read; ``options`` are push options for the
        server. Raises LeaseLost, NotHolder, LeaseHeld if the commits touch what another holds,
        Denied (with ``refs``) if the remote refuses, Unavailable and UnknownOutcome.
        """
        self._ledger.check_holder()
        chosen = {"force": force, "tags": tags, "delete": delete, "push_option": tuple(options)}
        request = push_request(remote, refspecs, chosen, upstream=upstream, hooks=hooks)
        required = [self._resource(word) for word in to_list(require, "require")]
        answer = open_push(self._workspace).push(request, require=required, dry_run=dry_run)
        self.warnings = answer.warnings
        return answer

    def fence(self, resource: ResourceLike, token: int, *, scope: str | None = None) -> Lease:
        """The live lease if it has this token now, before an irreversible step; else LeaseLost."""
        if isinstance(token, bool) or not isinstance(token, int) or token < 1:
            raise UsageError("a token is a positive whole number", resource=str(resource))
        wanted, part = self._resource(resource), to_scope(scope)
        view, self.warnings = open_push(self._workspace).fence(wanted, token, scope=part)
        return view

    def wait(
        self, *resources: ResourceLike, scope: str = WHOLE, timeout: Duration | None = None
    ) -> None:
        """Return once all of these could be claimed. Raises WaitTimeout after ``timeout``, if
        given, and PolicyRefused for completed work."""
        wanted, seconds = to_resources(self._workspace, resources), to_seconds(timeout, "timeout")
        self._noted(claim.wait(self._ledger, wanted, scope=parse_scope(scope), seconds=seconds))

    def watch(
        self, *resources: ResourceLike, scope: str = WHOLE, timeout: Duration | None = None
    ) -> Iterator[WatchEvent]:
        """Yield events of leases, of these resources or of all, until ``timeout``.

        The first ``next`` reads the remote, and raises what that raises; later an unreachable
        remote is waited for.
        """
        parts = [(self._resource(word), parse_scope(scope)) for word in resources]
        seconds = to_seconds(timeout, "timeout")
        return refusing_events(Watcher(self._ledger, parts).events(seconds=seconds))

    def queue(self, *, ref: str | None = None, cached: bool = False) -> tuple[Entry, ...]:
        """Every task, best first, and whether it may be claimed; ``ref``: of a branch or commit."""
        return entries(self._noted(self._workspace.queue.queue(ref=ref, cached=cached)))

    def next_task(self, *, ref: str | None = None, cached: bool = False) -> Task:
        """The next task of the queue, without claiming it. Raises NothingLeft."""
        reading = self._workspace.queue.next_task(ref=ref, cached=cached)
        return self._noted(reading).next_up[0].task

    def claim_next(
        self,
        *,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> Lease:
        """Claim the next task atomically: two callers never get the same. Raises NothingLeft."""
        terms = to_terms(self._workspace, ttl=ttl, reason=reason, commit=commit)
        return self._first_lease(self._workspace.queue.claim_next(terms)[0])

    def brief(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """Your tasks and leases, those taken from you and why, notes, and the next tasks."""
        return briefing(self._noted(self._workspace.queue.brief(ref=ref, cached=cached)))

    def task(self, resource: ResourceLike) -> Task:
        """A task as in its file. Raises NotFound, and Invalid for a broken file."""
        return self._ledger.edges.task(self._resource(resource))

    def start(
        self,
        resource: ResourceLike,
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[StrPath] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        expect_holder: str | None = None,
        reopen: bool = False,
        commit: bool | None = None,
    ) -> Lease:
        """Claim a task and set its status to in progress. Raises what ``claim`` does."""
        terms = to_terms(
            self._workspace,
            scope,
            ttl,
            paths,
            reason,
            takeover,
            reopen,
            commit=commit,
            expect_holder=expect_holder,
        )
        wanted, seconds = self._resource(resource), to_seconds(wait, "wait")
        return self._first_lease(claim.start(self._ledger, wanted, terms, wait=seconds))

    def set_status(
        self, resource: ResourceLike, status: str, *, commit: bool | None = None
    ) -> tuple[Lease, ...]:
        """Set a task's status: ``todo``, ``in_progress``, ``done``, or a word of the project.

        An in-progress status claims it, a done status finishes it; the leases concerned are
        returned. Raises UsageError for an unknown status, LeaseHeld for another's task, and
        LeaseLost if a task is to be finished whose lease others ended.
        """
        try:
            answer = set_task_status(self._ledger, self._resource(resource), status, commit=commit)
        except LeaseHeld as held:
            finishes = self._ledger.edges.rules.progress(status) is Progress.DONE
            raise (finishes and loss_of(self._ledger, held)) or held from None
        return self._noted(answer).leases

    def list(
        self, *, mine: bool = False, all: bool = False, cached: bool = False
    ) -> tuple[Lease, ...]:
        """The live leases; ``all`` adds expired and completed ones, ``mine`` leaves out others'."""
        if mine:
            self._ledger.check_holder()
        reading = self._noted(read_leases(self._ledger, cached=cached))
        return tuple(
            x for x in reading.leases if (all or x.state == "active") and (x.mine or not mine)
        )

    def show(self, resource: ResourceLike, *, cached: bool = False) -> tuple[Lease, ...]:
        """The leases of one resource; empty when it is free."""
        reading = read_leases(self._ledger, resource=self._resource(resource), cached=cached)
        return self._noted(reading).leases

    def sessions(self, *, cached: bool = False) -> tuple[OwnSession, ...]:
        """Your own sessions with live leases, and these, in every layer in use."""
        return self._noted(sessions.sessions(layers_of(self._workspace), cached=cached)).sessions

    def log(
        self,
        resource: ResourceLike | None = None,
        *,
        limit: int = 50,
        since: Duration | datetime | None = None,
        cached: bool = False,
    ) -> tuple[LogEntry, ...]:
        """The audit trail, newest first, ``since`` a time (UTC without a zone) or a duration ago.

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

    def status(self, *, cached: bool = False) -> LedgerStatus:
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

    def whoami(self) -> WhoAmI:
        """Your identity in the ledger, without contacting the remote."""
        identity = self._workspace.identity
        return WhoAmI(
            holder=identity.actor.holder,
            session=identity.actor.session,
            holder_source=identity.holder_source,
            session_source=identity.session_source,
        )

    def init(
        self,
        *,
        undo_rollback: bool = False,
        accept_rollback: bool = False,
        new_ledger: bool = False,
    ) -> InitResult:
        """Set the repository up: make the ledger, and write ``.gitlease.yaml`` if there is none.

        Idempotent; accepts a ledger that was replaced. For one that was rolled back it raises
        Rollback, unless the choice is given: restore what this clone has seen (``undo_rollback``),
        or accept the remote's state (``accept_rollback``); see `gitlease init --help`. A ledger
        that the settings do not record is refused, unless this remote is to have its own
        (``new_ledger``). An unreachable remote is a warning.
        """
        if undo_rollback and accept_rollback:
            raise UsageError("undo_rollback and accept_rollback exclude each other")
        self._ledger.check_holder()
        reading = None
        try:
            if undo_rollback:
                reading = acts.undo_rollback(self._ledger)
            else:
                reading = acts.confirm(
                    self._ledger, rolled_back=accept_rollback, another=new_ledger
                )
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
        self,
        key: str | None = None,
        value: str | None = None,
        *,
        ledger: bool = False,
        cached: bool = False,
    ) -> tuple[Setting, ...]:
        """The effective settings with their sources, or one ``key``, which ``value`` sets.

        A setting is written to this clone's git config (an empty value unsets it), and applies to
        whatever is opened from then on. With ``ledger`` it is the ledger's policy, for everyone,
        which only its admins may set, if there are any. Raises UsageError for an unknown key or a
        bad value, and PolicyRefused.
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

    def check_commits(self, range: str | None = None, *, cached: bool = False) -> CheckResult:
        """Check commits for changes to what others held then or hold now, as `gitlease check` does.

        ``range`` is like ``main..HEAD``; by default the pull request or push that CI runs for, else
        the commits of HEAD that the default branch lacks. The settings are those of the commit
        before the range. Raises UsageError for a bad range.
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

    def check_stale(self, *, fix: bool = False, cached: bool = False) -> CheckResult:
        """Look for abandoned claims, as `gitlease check --stale` does.

        ``fix`` releases those that the project's settings allow, without a question: the settings
        of the work tree, or in CI for a pull request those of its base branch. Raises UsageError
        for ``fix`` with ``cached``.
        """
        from gitlease.wiring.check import open_staleness

        if fix and cached:
            raise UsageError("fix and cached exclude each other: a fix needs the remote's state")
        service = open_staleness(_with_base_settings(self))
        found = service.find(cached=cached)
        if not fix:
            self.warnings = found.warnings
            return CheckResult(
                findings=found.findings, unread=found.unread, warnings=found.warnings
            )
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

    on_available = watching.on_available
    on_assignment = watching.on_assignment
    run = running.run
    work = running.work

    def _first_lease(self, answer: Answer) -> Lease:
        warnings = (*answer.warnings, *dead_hooks(self._workspace))
        return self._noted(replace(answer, warnings=warnings)).leases[0]

    def _claimed(
        self, words: Iterable[ResourceLike], terms: ClaimOptions, wait: Duration | None
    ) -> tuple[Lease, ...]:
        seconds = to_seconds(wait, "wait")
        wanted, warnings = to_claim(self._workspace, words, terms)
        answer = claim.claim(self._ledger, wanted, terms, wait=seconds)
        return self._noted(replace(answer, warnings=(*warnings, *answer.warnings))).leases

    def _resource(self, word: ResourceLike) -> Resource:
        return to_resource(self._workspace, word)

    def _noted(self, answer: WithWarnings) -> WithWarnings:
        self.warnings = answer.warnings
        return answer


def _none_refused(answer: Answer) -> tuple[Lease, ...]:
    if answer.refused:
        raise answer.refused[0]
    return answer.leases


def _place(leases: Leases) -> dict[str, Any]:
    # The arguments that open the same place again.
    repository, location = leases._workspace.repository, leases._workspace.location
    return {
        "directory": repository.toplevel or repository.git_dir,
        "layer": leases._layer,
        "local": location.url is None and location.explicit,
        "remote": location.name or location.url,
    }


def _with_base_settings(leases: Leases) -> Workspace:
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


@refusing_class
class Session(Leases):
    """The verbs of ``Leases``, for one run that lasts as long as a ``with`` block.

    ``lost`` is an event, set once any lease of it is lost.
    """

    _is_run = True

    def __init__(
        self,
        workspace: Workspace,
        *,
        on_lost: OnLost | None = None,
        layer: str | None = None,
        open_at: Callable[[str], Workspace] = open_workspace,
    ) -> None:
        super().__init__(in_a_run(workspace, "session"), layer=layer, open_at=open_at)
        self.lost = threading.Event()
        self._on_lost = on_lost
        self._kept = HeldLeases(self._workspace, self.lost, self._report)

    def check(self) -> None:
        """Raise LeaseLost if any lease that was claimed here is lost."""
        self._kept.check()

    def __exit__(self, *raised: object) -> None:
        self._kept.release()
        error = next((x for x in raised if isinstance(x, BaseException)), None)
        self._kept.end(error)

    def _report(self, lost: Lost) -> None:
        if self._on_lost is not None:
            call_in_thread(self._on_lost, self, lost.error)

    def _noted(self, answer: WithWarnings) -> WithWarnings:
        if isinstance(answer, Answer):
            self._kept.learn(answer)
        return super()._noted(answer)
