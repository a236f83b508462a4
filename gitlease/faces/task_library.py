"""The library's verbs about tasks: the queue, the next of it, and the status in a task's file."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.answers import QueueReading, Terms
from gitlease.domain.edge import Progress, Task
from gitlease.domain.operations import MAX_REASON
from gitlease.domain.queue import Entry
from gitlease.domain.resource import WHOLE, parse_scope
from gitlease.domain.view import LeaseView
from gitlease.faces.opened import Duration, Opened, to_seconds, to_text
from gitlease.faces.statuses import read_status


class TaskVerbs(Opened):
    """What one may do with the tasks of a repository, beside leasing them."""

    def queue(self, *, ref: str | None = None, cached: bool = False) -> tuple[Entry, ...]:
        """Every task, best first, each with whether it may be claimed, and why not.

        ``ref`` reads the task files of a branch, tag or commit instead of the work tree's.
        """
        return self._heard(self._workspace.queue.queue(ref=ref, cached=cached)).entries

    def next_task(self, *, ref: str | None = None, cached: bool = False) -> Task:
        """The task to take up next. Raises NothingLeft; claims nothing."""
        reading = self._workspace.queue.next_task(ref=ref, cached=cached)
        return self._heard(reading).next_up[0].task

    def claim_next(
        self,
        *,
        ttl: Duration | None = None,
        reason: str | None = None,
        commit: bool | None = None,
    ) -> LeaseView:
        """Claim the next task: whoever asks at the same moment gets another. Raises NothingLeft."""
        terms = Terms(
            ttl=to_seconds(ttl, "ttl"), reason=to_text(reason, "reason", MAX_REASON), commit=commit
        )
        answer, _ = self._workspace.queue.claim_next(terms)
        return self._heard(answer).leases[0]

    def brief(self, *, ref: str | None = None, cached: bool = False) -> QueueReading:
        """What one carries, what was taken of late and why, notes, and what comes next."""
        return self._heard(self._workspace.queue.brief(ref=ref, cached=cached))

    def task(self, resource: str) -> Task:
        """A task as its file has it. Raises NotFound, and Invalid for a broken file."""
        return self._service.edges.task(self._resource(resource))

    def start(
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
        commit: bool | None = None,
    ) -> LeaseView:
        """Claim a task and set its status to in progress. Raises what ``claim`` does."""
        terms = Terms(
            scope=parse_scope(scope),
            ttl=to_seconds(ttl, "ttl"),
            paths=self._paths(paths),
            reason=to_text(reason, "reason", MAX_REASON),
            takeover=takeover,
            reopen=reopen,
            commit=commit,
        )
        answer = self._service.start(
            self._resource(resource), terms=terms, wait=to_seconds(wait, "wait")
        )
        return self._heard(answer).leases[0]

    def set_status(
        self, resource: str, status: str, *, commit: bool | None = None
    ) -> tuple[LeaseView, ...]:
        """Set a task's status: ``todo``, ``in_progress``, ``done``, or a word of the project.

        A word that means in progress claims it like ``start``, one that means done finishes it like
        ``done``; the leases that were claimed or ended are returned. Raises UsageError for a word
        that nobody knows, and LeaseHeld for another's task.
        """
        wanted = self._resource(resource)
        meant = read_status(status, self._service.edges)
        if meant.progress is Progress.IN_PROGRESS:
            answer = self._service.start(wanted, terms=Terms(commit=commit), status=meant.word)
        elif meant.progress is Progress.DONE:
            self._service.edges.task(wanted)
            answer = self._service.complete(wanted, commit=commit, status=meant.word)
        else:
            answer = self._service.set_status(wanted, meant.word, commit=commit)
        return self._heard(answer).leases
