"""The library: the same verbs as the command line, for Python programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from gitlease.answers import QueueReading as QueueReading
from gitlease.answers import Taken as Taken
from gitlease.bootstrap import open_workspace
from gitlease.domain.errors import UsageError
from gitlease.domain.operations import MAX_NOTE, MAX_REASON, check_text
from gitlease.domain.resource import WHOLE, parse_scope
from gitlease.domain.view import LeaseView
from gitlease.faces.opened import Duration, to_scope, to_seconds, to_text
from gitlease.faces.push_library import PushAnswer as PushAnswer
from gitlease.faces.push_library import PushVerbs
from gitlease.faces.session_library import SessionVerbs
from gitlease.faces.task_library import TaskVerbs
from gitlease.faces.watch_library import WatchVerbs


def open(
    directory: str = ".",
    *,
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Leases:
    """Open the leases of the repository around ``directory``, without asking the remote.

    Raises NotARepository, and Invalid for bad settings or a missing ``user.email``.
    """
    return Leases(
        open_workspace(
            directory, session=session, layer=layer, local=local, remote=remote, environ=environ
        )
    )


class Leases(PushVerbs, SessionVerbs, WatchVerbs, TaskVerbs):
    """The leases and tasks of one repository, for one holder and session on one layer.

    Leaving the ``with`` block releases nothing: a lease ends by ``release``, ``done`` or time.
    ``warnings`` has what a person should know of the last answer.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def claim(
        self,
        resource: str,
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[str] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        reopen: bool = False,
        any: bool = False,
        commit: bool | None = None,
    ) -> LeaseView:
        """Take a lease, or renew one's own; ``wait`` blocks for at most that long.

        Of a task the edge in its file is written along with it: ``commit`` records that as a commit
        (None: as the settings say). ``any`` lets names pass that are no tasks. Raises LeaseHeld
        naming the holder and when it is free, WaitTimeout, PolicyRefused for a TTL outside the
        limits or completed work, NotFound for a name that is no task, Invalid for a task file that
        cannot be edited, Unavailable, Denied or UnknownOutcome.
        """
        return self.claim_all(
            [resource],
            scope=scope,
            ttl=ttl,
            paths=paths,
            reason=reason,
            wait=wait,
            takeover=takeover,
            reopen=reopen,
            any=any,
            commit=commit,
        )[0]

    def claim_all(
        self,
        resources: Iterable[str],
        *,
        scope: str = WHOLE,
        ttl: Duration | None = None,
        paths: Iterable[str] = (),
        reason: str | None = None,
        wait: Duration | None = None,
        takeover: bool = False,
        reopen: bool = False,
        any: bool = False,
        commit: bool | None = None,
    ) -> tuple[LeaseView, ...]:
        """Take every one of several leases, or none."""
        answer = self._service.claim(
            self._resources(resources),
            scope=parse_scope(scope),
            ttl=to_seconds(ttl, "ttl"),
            paths=self._paths(paths),
            reason=to_text(reason, "reason", MAX_REASON),
            wait=to_seconds(wait, "wait"),
            takeover=takeover,
            reopen=reopen,
            any_name=any,
            commit=commit,
        )
        return self._heard(answer).leases

    def renew(
        self, resource: str, *, scope: str | None = None, ttl: Duration | None = None
    ) -> LeaseView:
        """The heartbeat: expiry becomes now + TTL. Raises LeaseLost or NotHolder."""
        answer = self._service.renew(
            [self._resource(resource)], scope=to_scope(scope), ttl=to_seconds(ttl, "ttl")
        )
        return self._heard(answer).leases[0]

    def renew_all(self, *, ttl: Duration | None = None) -> tuple[LeaseView, ...]:
        """Renew everything this session holds, in one push. Raises LeaseLost when one is lost."""
        answer = self._heard(self._service.renew(ttl=to_seconds(ttl, "ttl")))
        if answer.refused:
            raise answer.refused[0]
        return answer.leases

    def extend(self, resource: str, duration: Duration, *, scope: str | None = None) -> LeaseView:
        """Stretch to at least now + ``duration``, capped to the policy's maximum."""
        seconds = to_seconds(duration, "duration")
        if seconds is None:
            raise UsageError("extend needs a duration")
        answer = self._service.extend(self._resource(resource), seconds, scope=to_scope(scope))
        return self._heard(answer).leases[0]

    def release(
        self,
        resource: str,
        *,
        scope: str | None = None,
        note: str | None = None,
        commit: bool | None = None,
    ) -> None:
        """Drop one's lease and edge; with none it succeeds. Raises LeaseHeld for someone else's."""
        text = to_text(note, "note", MAX_NOTE, lines=True)
        wanted = [self._resource(resource)]
        self._heard(self._service.release(wanted, scope=to_scope(scope), note=text, commit=commit))

    def done(self, resource: str, *, scope: str | None = None, commit: bool | None = None) -> None:
        """Finish: the lease ends completed, a task's status is done, and claims need ``reopen``."""
        self._heard(
            self._service.complete(self._resource(resource), scope=to_scope(scope), commit=commit)
        )

    def revoke(
        self,
        resource: str,
        *,
        reason: str,
        scope: str | None = None,
        expect_holder: str | None = None,
    ) -> tuple[LeaseView, ...]:
        """End someone else's lease: for the ledger's admins. Returns what was ended."""
        answer = self._service.revoke(
            self._resource(resource),
            reason=check_text(reason, what="reason", limit=MAX_REASON),
            scope=to_scope(scope),
            expect_holder=expect_holder,
        )
        return self._heard(answer).leases

    def note(self, resource: str, text: str) -> None:
        """Leave a note for the next holder."""
        said = check_text(text, what="note", limit=MAX_NOTE, lines=True)
        self._heard(self._service.note(self._resource(resource), said))

    def list(
        self, *, mine: bool = False, all: bool = False, cached: bool = False
    ) -> tuple[LeaseView, ...]:
        """The live leases; ``all`` adds expired and completed ones, ``mine`` leaves out others'."""
        reading = self._heard(self._service.read(cached=cached))
        return tuple(
            x for x in reading.leases if (all or x.state == "active") and (x.mine or not mine)
        )

    def show(self, resource: str, *, cached: bool = False) -> tuple[LeaseView, ...]:
        """What the ledger has of one resource: empty when it is free."""
        reading = self._service.read(resource=self._resource(resource), cached=cached)
        return self._heard(reading).leases
