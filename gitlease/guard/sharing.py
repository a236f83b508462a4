"""A work tree in which several sessions work: who they are, and how to get one of one's own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection

from gitlease.core.frozen import dataclass
from gitlease.core.lease import Actor
from gitlease.git.repository import Repository
from gitlease.git.run import started_at, working_parent
from gitlease.git.worktrees import free_worktree
from gitlease.guard import presence
from gitlease.guard.known_clones import note_clone
from gitlease.guard.places import common_dir_of
from gitlease.guard.presence import RUN, Present, git_dirs_of
from gitlease.settings.identity import here


@dataclass(frozen=True, slots=True)
class SharedTree:
    """The other live sessions in a work tree; ``way_out`` is a command that adds another one."""

    others: tuple[Present, ...]
    way_out: str


def shared_with(
    repository: Repository,
    names: Collection[str],
    *,
    now: float,
    key: str = "",
    in_clone: bool = False,
) -> SharedTree | None:
    """Who else works in this work tree, as far as this machine knows; None for nobody.

    ``in_clone``: in any work tree of the clone.
    ``names`` are the sessions of the caller, and ``key`` is that of its note; ``now`` is in seconds
    since the epoch.
    """
    if repository.toplevel is None:
        return None
    host = here(0) or ""
    git_dirs = git_dirs_of(repository.common_dir) if in_clone else [repository.git_dir]
    found = [x for g in git_dirs for x in presence.others(g, names, host, now=now, key=key)]
    if not found:
        return None
    path = free_worktree(repository, min(names, key=len, default="") or "mine")
    words = ("git", "-C", repository.toplevel, "worktree", "add", path)
    return SharedTree(tuple(found), shlex.join(words))


def note_agent(
    git_dir: str, key: str, actor: Actor, names: Collection[str], *, by: str, now: float
) -> None:
    """Note that an agent's session works in the work tree of this git directory. Never fails."""
    pid, started = working_parent()
    present = _present(actor, by, now, names, pid, started)
    presence.arrive(git_dir, key, present, now=now)
    note_clone(key, common_dir_of(git_dir))


def note_run(repository: Repository, number: str, actor: Actor, *, now: float) -> None:
    """Note that this process runs something in a work tree until it ends. It never fails."""
    pid = os.getpid()
    names = [actor.session] if actor.session else []
    present = _present(actor, RUN, now, names, pid, started_at(pid), proven=True)
    presence.arrive(repository.git_dir, f"{RUN} {number}", present, now=now)


def forget_run(repository: Repository, number: str) -> None:
    """Forget a run that has ended. It never fails."""
    presence.leave(repository.common_dir, f"{RUN} {number}")


def _present(
    actor: Actor,
    by: str,
    now: float,
    names: Collection[str],
    pid: int,
    started: str,
    *,
    proven: bool = False,
) -> Present:
    return Present(
        holder=actor.holder,
        session=actor.session or "",
        host=here(0) or "",
        since=int(now),
        by=by,
        names=tuple(sorted(names)),
        pid=pid,
        started=started,
        proven=proven,
    )
