"""The composition root of the fenced push: opened only for the verbs that need it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gitlease.core.frozen import replace
from gitlease.core.resources import GLOBAL_LAYER
from gitlease.git.files import exclusive
from gitlease.push.fenced_push import FencedPush
from gitlease.push.plan import SECONDS, GitWork

if TYPE_CHECKING:
    from gitlease.core.resources import Resource
    from gitlease.push.landing import Landed, LandOptions
    from gitlease.wiring.workspace import Workspace

LOCK = "pushing.lock"
PATIENCE = 10.0  # seconds for which pushes and heartbeats of one clone wait for each other


def open_push(workspace: Workspace, *, seconds: float = SECONDS) -> FencedPush:
    """The fenced push of an opened repository; a push is given up after so many ``seconds``."""
    repository, settings = workspace.repository, workspace.settings
    work = GitWork(
        repository,
        settings.tasks,
        workspace.location,
        ref_prefix=settings.ref_prefix,
        holder=workspace.identity.actor.holder,
        seconds=seconds,
    )
    return FencedPush(
        workspace.ledger,
        work,
        layers=[] if workspace.location.url is None else [GLOBAL_LAYER],
        quiet=lambda: _quiet(workspace),
    )


def land(
    workspace: Workspace,
    resource: Resource | None,
    options: LandOptions,
    tell: Callable[[str], None],
) -> Landed:
    """Land a task of an opened repository."""
    from gitlease.push.landing import Lander

    settings = workspace.settings
    return Lander(
        workspace.ledger,
        open_push(workspace),
        workspace.repository,
        settings.tasks,
        workspace.location,
        replace(options, by=options.by or settings.landing_by),
        main=workspace.learn_main_branch,
        tell=tell,
    ).land(resource)


@contextlib.contextmanager
def _quiet(workspace: Workspace) -> Iterator[None]:
    """Pause the heartbeats of this process, and of others of this clone."""
    from gitlease.runs.heartbeat import heartbeat_of

    with _lock(workspace.repository.common_dir), heartbeat_of(workspace).paused():
        yield


def after_push(common_dir: str) -> contextlib.AbstractContextManager[object]:
    """Wait, but not long, until no push of this clone is under way."""
    return _lock(common_dir, shared=True)


def _lock(common_dir: str, *, shared: bool = False) -> contextlib.AbstractContextManager[object]:
    """The lock, without which a push goes on: it only saves tries."""
    return exclusive(os.path.join(common_dir, "gitlease", LOCK), timeout=PATIENCE, shared=shared)
