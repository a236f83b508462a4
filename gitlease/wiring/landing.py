"""Ends leases of work that has landed, for commands and for heartbeats in the background.

It never fails: what could not be ended now is ended the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.lease import Lease
from gitlease.core.resources.resource import WHOLE
from gitlease.core.view import LeaseView
from gitlease.engine.landing import complete_landed
from gitlease.runs.registry import alive_in
from gitlease.tasks.landed import landed, merged
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from gitlease.guard.service import GuardService

MERGED, NEVER = "merged", "never"


@dataclass(frozen=True, slots=True)
class EndedByLanding:
    """The ids of the leases that were completed, and messages about that."""

    lease_ids: frozenset[str] = frozenset()
    said: tuple[str, ...] = ()


def end_landed(workspace: Workspace) -> EndedByLanding:
    """Complete the caller's leases in this layer of tasks that are done on the main branch.

    Does nothing if the project's ``landing.release`` is never. Never raises GitleaseError.
    """
    if workspace.settings.landing_release == NEVER:
        return EndedByLanding()
    ledger, usual = workspace.ledger, workspace.ledger.store.warnings
    main: list[str] = []
    try:
        answer = complete_landed(ledger, partial(_landed, workspace, main))
    except GitleaseError as error:
        return EndedByLanding(said=tuple(x for x in error.warnings if x not in usual))
    done = [_told(view, main[0], workspace.settings.layer) for view in answer.leases]
    said = (*(x for x in answer.warnings if x not in usual), *done)
    ended = frozenset(view.lease_id for view in answer.leases)
    return EndedByLanding(ended, tuple(dict.fromkeys(said)))


def end_at_start(workspace: Workspace) -> tuple[str, ...]:
    """Do so in every layer in use, within the time that a hook has; return messages."""
    if workspace.settings.landing_release == NEVER:
        return ()
    limit = float(workspace.settings.guard_timeout)
    spaces = workspace.again(time_limit=limit, patience=limit).in_use
    return tuple(text for space in spaces for text in end_landed(space).said)


def beat(workspace: Workspace, guard: GuardService, renewable: Sequence[tuple[str, Lease]]) -> None:
    """Renew those of these leases, given with their layers, whose layer is due.

    What has landed is completed instead. Nobody waits for it: messages go to the inbox.
    """
    from gitlease.guard.heartbeat import renew_known

    due = guard.due(renewable)
    for space in workspace.in_use if due else ():
        ended = end_landed(space)
        workspace.inbox.leave(ended.said)
        here = [lease for layer, lease in renewable if layer == space.layer and layer in due]
        leases = [lease for lease in here if lease.lease_id not in ended.lease_ids]
        messages = renew_known(space.ledger, leases) if leases else []
        if leases or ended.lease_ids:
            guard.refresh()
            workspace.inbox.leave([*messages, *guard.lost()])


def _landed(workspace: Workspace, main: list[str], leases: Sequence[Lease]) -> Sequence[Lease]:
    # Not the leases of commands that still run: they would be stopped for the loss, and give them
    # back at their own end.
    if not any(not lease.resource.is_path for lease in leases):
        return ()
    runs = alive_in(workspace)
    running = {run.session for run in runs.every() if not runs.is_dead(run)}
    ref = workspace.main_branch()
    if ref is None:
        return ()
    main.append(ref)
    free = [lease for lease in leases if lease.session not in running]
    found = landed(workspace.repository, workspace.ledger.edges.files, ref, free)
    if workspace.settings.landing_release != MERGED:
        return found
    return merged(workspace.repository, ref, workspace.settings.layer, found)


def _told(view: LeaseView, main: str, usual: str) -> str:
    scope = "" if view.scope == WHOLE else f" (scope {view.scope})"
    layer = "" if view.layer == usual else f" in layer {view.layer}"
    branch = main.removeprefix("refs/remotes/")
    return f"{view.resource} is done on {branch}: your lease of it{scope}{layer} is completed"
