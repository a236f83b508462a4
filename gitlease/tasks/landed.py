"""Leases of tasks that have landed: the caller's are completed on the way to other verbs.

A task has landed once the main branch, as this clone knows it, says that it is done. What a contact
with the remote shows of that branch by the way counts as well: what it has moved on to is fetched
then. That changes no ref, since those are for ``git fetch`` to move. Nothing fails: what could not
be ended now is ended the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.repository import HEADS, Repository, commit_of
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.chores import Chore
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.ledger.stepping import change
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Lease, Relation, relation
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import MAX_STEP
from gitlease.kernel.rules.moves.operations import Complete
from gitlease.kernel.rules.resources import GLOBAL_LAYER, WHOLE
from gitlease.kernel.settings.schema import Location, Settings
from gitlease.tasks.files import landed, merged

if TYPE_CHECKING:
    from gitlease.kernel.ledger.ledger_session import LedgerSession
    from gitlease.kernel.store.transport import Watched

MERGED, NEVER = "merged", "never"  # of ``landing.release``
FETCH = 10.0  # seconds for a main branch that has moved on
OWN = (Relation.MINE, Relation.MINE_LAPSED)


class Clone(Protocol):
    """A clone with a session of the ledger, and what it knows of the main branch."""

    @property
    def repository(self) -> Repository: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def location(self) -> Location: ...
    @property
    def layer(self) -> str: ...
    def main_branch(self) -> str | None: ...
    def learn_main_branch(self) -> str | None: ...
    def learn_main(self, commit: str = "") -> None: ...


class LandedTasks(Chore):
    """Completes the caller's leases of landed tasks; no task file changes."""

    def __init__(
        self,
        clone: Clone,
        watched: Watched,
        *,
        running: Callable[[], Collection[str]],
        may_fetch: Callable[[str], bool],
    ) -> None:
        """``running`` gives the sessions of runs that may still work.

        ``may_fetch`` tells whether it is time again to fetch a branch that has moved on.
        """
        self._clone, self._watched = clone, watched
        self._running, self._may_fetch = running, may_fetch
        self._is_under_way = False  # completing is a step, which must not look for landed work
        self._main: str | None = None  # the ref of the branch that the remote is watched for
        self._newer = ""  # the commit that it has moved on to, if the ref has not
        self._judged: str | None = None  # the tip by which leases were last judged

    def watch(self, session: LedgerSession) -> None:
        self._follow()

    def has_landed(self, session: LedgerSession) -> bool:
        """Tell whether the last contact shows a main branch by which leases were not judged."""
        if self._is_under_way or self._main is None:
            return False
        before, self._judged = self._judged, self._watched.tip
        return self._has_moved(self._main, before) or before is None

    def landed(
        self, session: LedgerSession, leases: Sequence[Lease], *, ended: str | None = None
    ) -> Answer | None:
        """Complete them; more than one step carries are left for the next time."""
        self._is_under_way = True
        try:
            return self._complete(session, leases, ended)
        finally:
            self._is_under_way = False

    def remarks(self, session: LedgerSession, leases: Sequence[Lease]) -> tuple[str, ...]:
        # Only their holder's clone ends them, and it may not have fetched that branch yet.
        tasks = [lease for lease in leases if lease.edge]
        try:
            done, branch = self._landed_of(session, tasks)
        except GitleaseError:
            return ()
        return tuple(
            f"{lease.resource} is done on {branch}; {lease.holder}'s clone has not seen it yet"
            for lease in done
        )

    def _complete(
        self, session: LedgerSession, leases: Sequence[Lease], ended: str | None
    ) -> Answer | None:
        # The remote is asked only if something has landed, by this clone's copy: first whether the
        # very same leases are still there. One that ended meanwhile is among ``refused``.
        head = session.store.known(session.layer)
        if head is None or head.ledger is None:
            return None
        own = _own(session, head, leases)
        done, branch = self._landed_of(session, own, ended=ended) if own else ((), "")
        if not done:
            return None
        look, ids = session.look(), {lease.lease_id for lease in done}
        still = [x for x in _own(session, look.head, look.leases) if x.lease_id in ids][:MAX_STEP]
        if not still:
            return Answer(status="completed", changed=False, warnings=session.take_warnings())
        operations = [
            Complete(
                id=fresh_id(),
                actor=session.actor,
                resource=lease.resource,
                lease_id=fresh_id(),
                scope=lease.scope,
                held_only=True,
            )
            for lease in still
        ]
        answer = change(session, "completion", operations, together=False)
        messages = tuple(_message(view, branch) for view in answer.leases)
        warnings = tuple(dict.fromkeys((*answer.warnings, *messages)))
        return replace(answer, warnings=warnings)

    def _landed_of(
        self, session: LedgerSession, leases: Sequence[Lease], *, ended: str | None = None
    ) -> tuple[Sequence[Lease], str]:
        """Those of these leases whose task was finished since their claim, and the branch.

        Leases of commands that still run are left out: they would be stopped for the loss. The run
        of the session ``ended`` is over. Raises GitleaseError.
        """
        clone = self._clone
        rule = clone.settings.landing_release
        main = clone.learn_main_branch() if leases and rule != NEVER else None
        if main is None:
            return (), ""
        self._follow(main)
        running = {*self._running()} - {ended}
        free = [lease for lease in leases if lease.session not in running]
        done = landed(clone.repository, session.edges.files, self._newer or main, free)
        if rule == MERGED:
            done = merged(clone.repository, self._newer or main, clone.layer, done)
        return done, main.removeprefix("refs/remotes/")

    def _follow(self, main: str | None = None) -> None:
        """Have contacts show by the way whether the main branch moves on."""
        if self._main is not None or self._clone.settings.landing_release == NEVER:
            return
        main = main or self._clone.main_branch() or ""
        place = f"refs/remotes/{self._clone.location.name}/"
        if main.startswith(place):  # the ledger is where the work is
            self._main = main
            self._watched.ref = HEADS + main.removeprefix(place)

    def _has_moved(self, main: str, before: str | None) -> bool:
        """Fetch the branch if it is elsewhere than the tracking ref; return whether it is."""
        clone, tip = self._clone, self._watched.tip
        if tip in ("", before):
            return False
        repository, remote = clone.repository, clone.location.name or ""
        self._newer = ""
        if commit_of(repository, main) == tip:
            return False
        if not commit_of(repository, tip):
            if not self._may_fetch(main):
                return False
            branch = main.removeprefix(f"refs/remotes/{remote}/")
            Branches(repository).fetch_commits(remote, branch, seconds=FETCH)
        self._newer = tip if commit_of(repository, tip) else ""
        if self._newer:
            clone.learn_main(self._newer)
        return bool(self._newer)


def _own(session: LedgerSession, head: Snapshot, leases: Iterable[Lease]) -> list[Lease]:
    moment = session.moment(head)
    return [
        lease
        for lease in leases
        if lease.edge  # only a task file can say that it is done
        and relation(lease, session.actor, head.policy, moment) in OWN
    ]


def _message(view: LeaseView, branch: str) -> str:
    scope = "" if view.scope == WHOLE else f" (scope {view.scope})"
    layer = "" if view.layer == GLOBAL_LAYER else f" in layer {view.layer}"
    return f"{view.resource} is done on {branch}: your lease of it{scope}{layer} is completed"
