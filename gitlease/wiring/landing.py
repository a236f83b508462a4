"""Ends leases of work that has landed, for commands and for heartbeats in the background.

It never fails: what could not be ended now is ended the next time.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitlease import guard
from gitlease.core.instant import MS
from gitlease.core.lease import Lease
from gitlease.engine.stepping import settle_landed
from gitlease.git.pushes import HEADS, commit_of, fetch_commits
from gitlease.guard.notes import is_due
from gitlease.runs.records import runs_of
from gitlease.store.transport import Watched
from gitlease.tasks.files import landed, merged
from gitlease.wiring.workspace import Workspace

MERGED, NEVER = "merged", "never"
FETCH = 10.0  # seconds for a main branch that has moved on
FETCH_EVERY = 60  # seconds between two tries


def end_landed(workspace: Workspace) -> tuple[str, ...]:
    """Complete the caller's leases of landed tasks in every layer in use; return messages."""
    return tuple(x for space in workspace.in_use for x in settle_landed(space.ledger).warnings)


def end_at_start(workspace: Workspace) -> tuple[str, ...]:
    """Complete them within the time that a hook has."""
    limit = float(workspace.settings.guard_timeout)
    return end_landed(workspace.again(time_limit=limit, patience=limit))


def beat(
    workspace: Workspace, service: guard.GuardService, renewable: Sequence[tuple[str, Lease]]
) -> None:
    """Renew those of these leases, given with their layers, whose layer is due.

    What has landed is completed instead. Nobody waits for it: messages go to the inbox.
    """
    due = service.due(renewable)
    for space in workspace.in_use if due else ():
        ended = settle_landed(space.ledger)
        workspace.inbox.leave(ended.warnings)
        ids = {view.lease_id for view in ended.leases}
        here = [lease for layer, lease in renewable if layer == space.layer and layer in due]
        leases = [lease for lease in here if lease.lease_id not in ids]
        messages = guard.renew_known(space.ledger, leases) if leases else []
        if leases or ids:
            service.refresh()
            workspace.inbox.leave([*messages, *service.lost()])


class Landing:
    """Tells the leases of landed work (LandedWork), by the main branch as this clone knows it.

    What a contact with the remote shows of that branch by the way counts as well: what it has moved
    on to is fetched then. That changes no ref, since those are for ``git fetch`` to move.
    """

    def __init__(self, workspace: Workspace, watched: Watched) -> None:
        self._workspace, self._watched = workspace, watched
        self._main: str | None = None  # the ref of the branch that the remote is watched for
        self._newer = ""  # the commit that it has moved on to, if the ref has not
        self._judged: str | None = None  # the tip by which leases were last judged

    def __call__(
        self, leases: Sequence[Lease], *, ended: str | None = None
    ) -> tuple[Sequence[Lease], str]:
        """Return them; nothing if the project's ``landing.release`` is never."""
        workspace = self._workspace
        rule = workspace.settings.landing_release
        main = workspace.learn_main_branch() if leases and rule != NEVER else None
        if main is None:
            return (), ""
        self.watch(main)
        runs = runs_of(workspace)
        running = {run.session for run in runs.alive() if not runs.is_dead(run)} - {ended}
        free = [lease for lease in leases if lease.session not in running]
        files = workspace.ledger.edges.files
        done = landed(workspace.repository, files, self._newer or main, free)
        if rule == MERGED:
            done = merged(workspace.repository, self._newer or main, workspace.layer, done)
        return done, main.removeprefix("refs/remotes/")

    def watch(self, main: str | None = None) -> None:
        """Have contacts show by the way whether the main branch moves on."""
        if self._main is not None or self._workspace.settings.landing_release == NEVER:
            return
        main = main or self._workspace.main_branch() or ""
        place = f"refs/remotes/{self._workspace.location.name}/"
        if main.startswith(place):  # the ledger is where the work is
            self._main = main
            self._watched.ref = HEADS + main.removeprefix(place)

    def is_to_judge(self) -> bool:
        """Tell whether the last contact shows a main branch by which leases were not judged."""
        if self._main is None:
            return False
        before, self._judged = self._judged, self._watched.tip
        return self._has_moved(self._main, before) or before is None

    def _has_moved(self, main: str, before: str | None) -> bool:
        """Fetch the branch if it is elsewhere than the tracking ref; return whether it is."""
        workspace, tip = self._workspace, self._watched.tip
        if tip in ("", before):
            return False
        repository, remote = workspace.repository, workspace.location.name or ""
        self._newer = ""
        if commit_of(repository, main) == tip:
            return False
        if not commit_of(repository, tip):
            private, now = workspace.place.private, workspace.ledger.clock.now().wall_ms
            if not is_due(private, f"main {main}", every=FETCH_EVERY, now=now / MS):
                return False
            branch = main.removeprefix(f"refs/remotes/{remote}/")
            fetch_commits(repository, remote, branch, seconds=FETCH)
        self._newer = tip if commit_of(repository, tip) else ""
        return bool(self._newer)
