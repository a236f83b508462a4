"""What was finished, and what has been merged, on the main branch that this clone knows."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gitlease.core.instant import MS
from gitlease.core.lease import Lease
from gitlease.core.resources import fold
from gitlease.core.work import Named, read_lines
from gitlease.engine.ports import TaskFiles
from gitlease.git.repository import Repository, ask

MOST = 5_000  # commits since a claim that are read for trailers, on the main branch and elsewhere
SKEW = 60 * MS  # what another machine's commit may be dated before the claim that it was made under


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
        if lease.resource.key not in again
        and _was_open_when_claimed(repository, files, main, lease)
    ]


def _was_open_when_claimed(
    repository: Repository, files: TaskFiles, main: str, lease: Lease
) -> bool:
    before = lease.claimed_at // MS - 1  # a commit of the same second came after the claim
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


# --- merged ---------------------------------------------------------------------------------------


def merged(repository: Repository, main: str, layer: str, leases: Sequence[Lease]) -> list[Lease]:
    """The leases of ``layer`` with a commit of their token on ``main``, and none elsewhere.

    Elsewhere are this clone's branches, those that it knows of remotes, and what is checked out;
    a squash counts for the commits whose messages it repeats. Where more than ``MOST`` commits were
    made since the claim, too many to read, no lease has been merged. Asks no remote.
    """
    if not leases:
        return []
    since = min(lease.claimed_at for lease in leases) - SKEW
    there = _named_by_commits_since(repository, since, main)
    if not there or not any(_names(there, lease, layer) for lease in leases):
        return []
    elsewhere = ("--ignore-missing", "HEAD", "--branches", "--remotes", "--not", main)
    left = _named_by_commits_since(repository, since, *elsewhere)
    if left is None:
        return []
    return [x for x in leases if _names(there, x, layer) and not _names(left, x, layer)]


def _named_by_commits_since(repository: Repository, since: int, *refs: str) -> list[Named] | None:
    words = (f"--max-age={since // MS}", f"--max-count={MOST + 1}", "--encoding=none")
    said = ask(repository, "rev-list", *words, "--format=%x00%B", *refs, "--")
    text = said.out.decode("utf-8", "replace")
    if said.code != 0 or said.timed_out or text.count("\0") > MOST:
        return None
    return read_lines(text.replace("\0", "").split("\n"))


def _names(found: Sequence[Named], lease: Lease, layer: str) -> bool:
    wanted = (lease.resource.key, lease.token, fold(lease.scope), layer.lower())
    return any((x.key, x.token, fold(x.scope), x.layer) == wanted for x in found)
