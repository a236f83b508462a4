"""Which tasks were finished on the main branch of the remote, as this clone knows it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.instant import MS
from gitlease.core.lease import Lease
from gitlease.engine.ports import TaskFiles
from gitlease.git.query import ask
from gitlease.git.repository import Repository


def landed(
    repository: Repository, files: TaskFiles, main: str, leases: Sequence[Lease]
) -> list[Lease]:
    """The leases whose task says done on ``main``, a full ref, and did not when they were claimed.

    What was done before is worked on again, and so is what this work tree has open although it has
    all of ``main``. Where a shallow clone cannot tell, nothing has landed. Asks no remote; raises
    NotFound where there is no such ref.
    """
    named = [lease for lease in leases if not lease.resource.is_path]
    done = _done(files, main) if named else frozenset()
    found = [lease for lease in named if lease.resource.key in done]
    if not found:
        return []
    again = {task.resource.key for task in files.read().tasks if not task.is_done}
    again &= {lease.resource.key for lease in found}
    if again and ask(repository, "merge-base", "--is-ancestor", main, "HEAD").code != 0:
        again = set()
    return [
        lease
        for lease in found
        if lease.resource.key not in again and _was_open(repository, files, main, lease)
    ]


def _was_open(repository: Repository, files: TaskFiles, main: str, lease: Lease) -> bool:
    """Whether the task was still to be done on the main branch when it was claimed.

    Commits are dated to whole seconds: one of the same second came after the claim.
    """
    before = lease.claimed_at // MS - 1
    words = ("rev-list", "-1", "--first-parent", f"--min-age={before}", main, "--")
    said = ask(repository, *words)
    commit = os.fsdecode(said.out).strip()
    if said.code != 0 or said.timed_out:
        return False
    if not commit:
        return not os.path.exists(os.path.join(repository.common_dir, "shallow"))
    return lease.resource.key not in _done(files, commit)


def _done(files: TaskFiles, ref: str) -> frozenset[str]:
    return frozenset(task.resource.key for task in files.read(ref).tasks if task.is_done)
