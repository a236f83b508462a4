"""What a clone does not have of the activity: branches, contents, task files of the work tree.

Only a clone that may lack branches asks its remote for their heads, and only for these.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from shlex import quote

from gitlease.adapters.activity_log import PATHS, SECONDS, answered
from gitlease.adapters.asking import ask
from gitlease.adapters.remote_branches import HEADS, heads_asked
from gitlease.adapters.repository import Repository, is_on
from gitlease.adapters.settings import Tasks
from gitlease.adapters.task_scan import OWN, Wanted
from gitlease.adapters.transport import TIME_LIMIT
from gitlease.domain.stale_unknown import Lack, lacking_branches

# --- branches -------------------------------------------------------------------------------------


def may_lack_branches(repository: Repository, remote: str) -> bool:
    """Whether not all branches of a remote come here with a fetch, or never all of them came.

    A clone that ``git clone`` made knows which branch is the remote's own. One that was put
    together by hand may have a setting for all branches, and still have been given one only.
    """
    if not _follows_all(repository.config.get_all(f"remote.{remote}.fetch")):
        return True
    return ask(repository, "symbolic-ref", "-q", f"refs/remotes/{remote}/HEAD").code != 0


def _follows_all(specs: Sequence[str]) -> bool:
    """Whether fetch settings bring every branch to where activity is looked for."""
    found = False
    for spec in specs:
        source, _, target = spec.removeprefix("+").partition(":")
        if source.startswith("^"):
            return False
        every = source.endswith("*") and HEADS.startswith(source[:-1])
        found = found or (every and target.startswith(("refs/remotes/", HEADS, "refs/*")))
    return found


def lack_of_branches(
    repository: Repository, remote: str, refs: Sequence[str], *, prefix: str, cached: bool
) -> Lack | None:
    """Which branches of a remote have commits that none of these refs has; one connection.

    With ``cached`` the remote is not asked, and nothing is known then. ``prefix`` is where ledgers
    lie. Raises Unavailable and Denied.
    """
    spec = quote(f"+{HEADS}*:refs/remotes/{remote}/*")
    way = f"git fetch {quote(remote)} {spec} brings the rest"
    if cached:
        said = f"whether all branches of {remote} are here is not known with --cached"
        return Lack(said, way)
    heads = {
        ref.removeprefix(HEADS): oid
        for ref, oid in heads_asked(repository, remote, seconds=TIME_LIMIT).items()
        if not ref.startswith(f"{prefix}/")
    }
    if not heads:
        return None
    listed = answered(
        ask(repository, "rev-list", *refs, "--", timeout=SECONDS), "the commits cannot be read"
    )
    here = frozenset(os.fsdecode(listed.out).split())
    missing = sorted(name for name, oid in heads.items() if oid not in here)
    return lacking_branches(remote, missing, way=way) if missing else None


# --- contents -------------------------------------------------------------------------------------


def lack_of_contents(repository: Repository) -> Lack | None:
    """That this is a partial clone, which is given contents only when git asks for them."""
    remote = _promisor(repository)
    if remote is None:
        return None
    way = f"git fetch --refetch --no-filter {quote(remote)} brings them"
    return Lack("contents are missing in this partial clone", way)


def _promisor(repository: Repository) -> str | None:
    """The remote that has what a partial clone lacks; None in any other clone."""
    for entry in repository.config.section("remote"):
        if entry.key.endswith(".promisor") and is_on(entry.value):
            return entry.key.removeprefix("remote.").removesuffix(".promisor")
    return repository.config.get("extensions.partialclone")


# --- the work tree --------------------------------------------------------------------------------


def left_out(repository: Repository, tasks: Tasks, places: Sequence[str]) -> list[str]:
    """The task files of the index that a sparse checkout leaves out of the work tree.

    ``places`` are pathspecs of where they lie, none where that may be anywhere.
    """
    root = repository.toplevel
    if root is None or not is_on(repository.config.get("core.sparsecheckout")):
        return []
    # From the root: a command asked in a folder would name what lies there only.
    words = ("ls-files", "-t", "-z", "--full-name", "--", *places)
    said = answered(ask(repository, *words, env=PATHS, timeout=SECONDS), "the index cannot be read")
    wanted, found = Wanted(tasks), []
    for line in said.out.split(b"\0"):
        kind, _, name = line.partition(b" ")
        path = os.fsdecode(name)
        if kind not in (b"S", b"s") or os.path.basename(path).startswith(OWN):
            continue
        covered = any(rule.covers(path) for rule in wanted.rules)
        if covered and not os.path.lexists(os.path.join(root, path)):
            found.append(path)
    return found
