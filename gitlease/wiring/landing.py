"""Ends leases of work that has landed, for commands and for heartbeats in the background.

It never fails: what could not be ended now is ended the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gitlease.core.lease import Lease
from gitlease.engine.stepping import settle_landed
from gitlease.runs.records import alive_in
from gitlease.tasks.landed import landed, merged
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from gitlease.guard.service import GuardService

MERGED, NEVER = "merged", "never"


def end_landed(workspace: Workspace) -> tuple[str, ...]:
    """Complete the caller's leases of landed tasks in every layer in use; return messages."""
    return tuple(x for space in workspace.in_use for x in settle_landed(space.ledger).warnings)


def end_at_start(workspace: Workspace) -> tuple[str, ...]:
    """Do so within the time that a hook has."""
    limit = float(workspace.settings.guard_timeout)
    return end_landed(workspace.again(time_limit=limit, patience=limit))


def beat(workspace: Workspace, guard: GuardService, renewable: Sequence[tuple[str, Lease]]) -> None:
    """Renew those of these leases, given with their layers, whose layer is due.

    What has landed is completed instead. Nobody waits for it: messages go to the inbox.
    """
    from gitlease.guard.service import renew_known

    due = guard.due(renewable)
    for space in workspace.in_use if due else ():
        ended = settle_landed(space.ledger)
        workspace.inbox.leave(ended.warnings)
        ids = {view.lease_id for view in ended.leases}
        here = [lease for layer, lease in renewable if layer == space.layer and layer in due]
        leases = [lease for lease in here if lease.lease_id not in ids]
        messages = renew_known(space.ledger, leases) if leases else []
        if leases or ids:
            guard.refresh()
            workspace.inbox.leave([*messages, *guard.lost()])


def landed_leases(
    workspace: Workspace, leases: Sequence[Lease], ended: str | None
) -> tuple[Sequence[Lease], str]:
    """Return what LandedWork asks for; nothing if the project's ``landing.release`` is never."""
    rule = workspace.settings.landing_release
    main = workspace.learn_main_branch() if leases and rule != NEVER else None
    if main is None:
        return (), ""
    runs = alive_in(workspace)
    running = {run.session for run in runs.every() if not runs.is_dead(run)} - {ended}
    free = [lease for lease in leases if lease.session not in running]
    done = landed(workspace.repository, workspace.ledger.edges.files, main, free)
    if rule == MERGED:
        done = merged(workspace.repository, main, workspace.layer, done)
    return done, main.removeprefix("refs/remotes/")
