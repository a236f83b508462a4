"""The composition root of the fenced push: opened only for the verbs that need it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gitlease.core.resources import GLOBAL_LAYER
from gitlease.git.files import exclusive
from gitlease.push.fenced_push import FencedPush
from gitlease.push.plan import SECONDS, GitWork

if TYPE_CHECKING:
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


@contextlib.contextmanager
def _quiet(workspace: Workspace) -> Iterator[None]:
    """Pause the heartbeats of this process, and of others of this clone."""
    from gitlease.runs.heartbeat import heartbeat_of

    with ExitStack() as stack:
        stack.enter_context(_locked(workspace.repository.common_dir, shared=False))
        stack.enter_context(heartbeat_of(workspace).paused())
        yield


def after_push(common_dir: str) -> contextlib.AbstractContextManager[None]:
    """Wait, but not long, until no push of this clone is under way."""
    return _locked(common_dir, shared=True)


@contextlib.contextmanager
def _locked(common_dir: str, *, shared: bool) -> Iterator[None]:
    """Hold the lock, or go on without it: it only saves tries."""
    with ExitStack() as stack:
        with contextlib.suppress(OSError):
            lock = os.path.join(common_dir, "gitlease", LOCK)
            stack.enter_context(exclusive(lock, timeout=PATIENCE, shared=shared))
        yield
