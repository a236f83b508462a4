"""The library: the verbs of the command line, for Python programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Self

from gitlease.core.errors import LeaseHeld, LeaseLost, UsageError
from gitlease.core.frozen import replace
from gitlease.core.loss import Lost, explained
from gitlease.core.resources.resource import WHOLE, Resource, parse_scope
from gitlease.core.view import Lease
from gitlease.engine import acts, claim, sessions
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.engine.watch import Watcher, WatchEvent
from gitlease.faces.library import reading, running, tasks, watching
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
from gitlease.faces.library.held_leases import HeldLeases, call_in_thread
from gitlease.faces.library.refusals import refusing_class, refusing_events
from gitlease.faces.push_options import push_request
from gitlease.push.fenced_push import PushAnswer as PushAnswer
from gitlease.push.fenced_push import PushRefused as PushRefused
from gitlease.runs.heartbeat import in_a_run
from gitlease.wiring.push import open_push
from gitlease.wiring.workspace import Workspace, open_workspace

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
        before = self._ledger.untold()  # a refused renewal marks them as told
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

    # Verbs that read, are about tasks, run commands or call back have modules of their own.
    list = reading.list
    show = reading.show
    sessions = reading.sessions
    log = reading.log
    status = reading.status
    whoami = reading.whoami
    init = reading.init
    config = reading.config
    check_commits = reading.check_commits
    check_stale = reading.check_stale
    on_available = watching.on_available
    on_assignment = watching.on_assignment
    queue = tasks.queue
    next_task = tasks.next_task
    claim_next = tasks.claim_next
    brief = tasks.brief
    task = tasks.task
    start = tasks.start
    set_status = tasks.set_status
    run = running.run
    work = running.work

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
