"""The library: the same verbs as the command line, for Python programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

from gitlease.answers import Answer, Reading
from gitlease.bootstrap import Workspace, open_workspace
from gitlease.domain.duration import parse_duration
from gitlease.domain.errors import UsageError
from gitlease.domain.operations import MAX_NOTE, MAX_REASON, check_text
from gitlease.domain.resource import WHOLE, Resource, parse_resource, parse_scope, resolve_path
from gitlease.domain.view import LeaseView

_Said = TypeVar("_Said", Answer, Reading)

Duration = str | int | timedelta
"""``"15m"``, a number of seconds, or a timedelta."""


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


class Leases:
    """The leases of one repository, for one holder and session on one layer.

    Leaving the ``with`` block releases nothing: a lease ends by ``release``, ``done`` or time.
    ``warnings`` has what a person should know of the last answer.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._service = workspace, workspace.service
        self.warnings: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    @property
    def holder(self) -> str:
        """The person that claims are made for: git's ``user.email``."""
        return self._workspace.identity.actor.holder

    @property
    def session(self) -> str | None:
        """Which run of the holder this is, where it is known."""
        return self._workspace.identity.actor.session

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
    ) -> LeaseView:
        """Take a lease, or renew one's own; ``wait`` blocks for at most that long.

        Raises LeaseHeld naming the holder and when it is free, WaitTimeout, PolicyRefused for a TTL
        outside the limits or completed work, Unavailable, Denied or UnknownOutcome.
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
    ) -> tuple[LeaseView, ...]:
        """Take every one of several leases, or none."""
        answer = self._service.claim(
            self._resources(resources),
            scope=parse_scope(scope),
            ttl=_seconds(ttl, "ttl"),
            paths=self._paths(paths),
            reason=_text(reason, "reason", MAX_REASON),
            wait=_seconds(wait, "wait"),
            takeover=takeover,
            reopen=reopen,
        )
        return self._heard(answer).leases

    def renew(
        self, resource: str, *, scope: str | None = None, ttl: Duration | None = None
    ) -> LeaseView:
        """The heartbeat: expiry becomes now + TTL. Raises LeaseLost or NotHolder."""
        answer = self._service.renew(
            [self._resource(resource)], scope=_scope(scope), ttl=_seconds(ttl, "ttl")
        )
        return self._heard(answer).leases[0]

    def renew_all(self, *, ttl: Duration | None = None) -> tuple[LeaseView, ...]:
        """Renew everything this session holds, in one push. Raises LeaseLost when one is lost."""
        answer = self._heard(self._service.renew(ttl=_seconds(ttl, "ttl")))
        if answer.refused:
            raise answer.refused[0]
        return answer.leases

    def extend(self, resource: str, duration: Duration, *, scope: str | None = None) -> LeaseView:
        """Stretch to at least now + ``duration``, capped to the policy's maximum."""
        seconds = _seconds(duration, "duration")
        if seconds is None:
            raise UsageError("extend needs a duration")
        answer = self._service.extend(self._resource(resource), seconds, scope=_scope(scope))
        return self._heard(answer).leases[0]

    def release(self, resource: str, *, scope: str | None = None, note: str | None = None) -> None:
        """Drop one's lease; with none it succeeds. Raises LeaseHeld for someone else's."""
        text = _text(note, "note", MAX_NOTE, lines=True)
        self._heard(
            self._service.release([self._resource(resource)], scope=_scope(scope), note=text)
        )

    def done(self, resource: str, *, scope: str | None = None) -> None:
        """Finish: the lease ends completed, and claims need ``reopen`` from then on."""
        self._heard(self._service.complete(self._resource(resource), scope=_scope(scope)))

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
            scope=_scope(scope),
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

    def _resource(self, word: str) -> Resource:
        repository = self._workspace.repository
        return parse_resource(word, folder=repository.folder, root=repository.toplevel)

    def _resources(self, words: Iterable[str]) -> tuple[Resource, ...]:
        if isinstance(words, str):
            raise UsageError("several resources are given as a list", resource=words)
        found = tuple(self._resource(word) for word in words)
        if not found:
            raise UsageError("name at least one resource")
        return found

    def _paths(self, words: Iterable[str]) -> tuple[str, ...]:
        if isinstance(words, str):
            raise UsageError("paths are given as a list", resource=words)
        return tuple(self._path(word) for word in words)

    def _path(self, word: str) -> str:
        repository = self._workspace.repository
        return resolve_path(word, folder=repository.folder, root=repository.toplevel)

    def _heard(self, answer: _Said) -> _Said:
        self.warnings = answer.warnings
        return answer


def _seconds(value: Duration | None, what: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        return parse_duration(f"{value.total_seconds():f}", what=what)
    return parse_duration(str(value), what=what)


def _scope(word: str | None) -> str | None:
    return None if word is None else parse_scope(word)


def _text(value: str | None, what: str, limit: int, *, lines: bool = False) -> str | None:
    return None if value is None else check_text(value, what=what, limit=limit, lines=lines)
