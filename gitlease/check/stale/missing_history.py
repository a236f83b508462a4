"""What a clone lacks of the activity, and how to get it.

It may lack old commits, branches of the remote, contents, and task files of the work tree. Only a
clone that may lack branches asks its remote, and only for their heads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from shlex import quote

from gitlease.check.stale.facts import Lack
from gitlease.core.edge import Task, printable
from gitlease.git.history import PATHS, SECONDS
from gitlease.git.remote_branches import HEADS, heads_asked
from gitlease.git.repository import Repository, answered, ask, is_on
from gitlease.settings.sources import Tasks
from gitlease.store.transport import TIME_LIMIT
from gitlease.tasks.scan import Wanted

SHOWN = 5  # names in a sentence
SHALLOW = Lack(
    "this clone is shallow",
    "git fetch --unshallow gets the rest; in a workflow, add to actions/checkout `fetch-depth: 0`",
)


def may_lack_branches(repository: Repository, remote: str) -> bool:
    """Whether a fetch does not get all branches of a remote."""
    specs = repository.config.get_all(f"remote.{remote}.fetch")
    all_of_them = f"{HEADS}*:refs/remotes/{remote}/*" in [spec.removeprefix("+") for spec in specs]
    return not all_of_them or any(spec.startswith("^") for spec in specs)


def lack_of_branches(
    repository: Repository, remote: str, refs: Sequence[str], *, prefix: str, cached: bool
) -> Lack | None:
    """Which branches of a remote have commits that none of these refs has; one connection.

    With ``cached`` the remote is not asked, and that is unknown. ``prefix`` is where ledgers lie.
    Raises Unavailable and Denied.
    """
    spec = quote(f"+{HEADS}*:refs/remotes/{remote}/*")
    way = f"git fetch {quote(remote)} {spec} gets the rest"
    if cached:
        return Lack(f"with --cached it is unknown whether all branches of {remote} are here", way)
    heads = heads_asked(repository, remote, seconds=TIME_LIMIT).items()
    work = {ref: oid for ref, oid in heads if not ref.startswith(f"{prefix}/")}
    if not work:
        return None
    said = ask(repository, "rev-list", *refs, "--", timeout=SECONDS)
    here = frozenset(os.fsdecode(answered(said, "the commits cannot be read")).split())
    missing = sorted(ref.removeprefix(HEADS) for ref, oid in work.items() if oid not in here)
    if not missing:
        return None
    kind = "branch" if len(missing) == 1 else "branches"
    names = _some(map(printable, missing))
    return Lack(f"not all commits of the {kind} {names} of {printable(remote)} are here", way)


def lack_of_contents(repository: Repository) -> Lack | None:
    """That this is a partial clone, which gets contents only when git asks for them."""
    config = repository.config
    promised = (
        entry.key.removeprefix("remote.").removesuffix(".promisor")
        for entry in config.section("remote")
        if entry.key.endswith(".promisor") and is_on(entry.value)
    )
    remote = next(promised, config.get("extensions.partialclone"))
    if remote is None:
        return None
    way = f"git fetch --refetch --no-filter {quote(remote)} gets them"
    return Lack("contents are missing in this partial clone", way)


def left_out(repository: Repository, tasks: Tasks, places: Sequence[str]) -> list[str]:
    """The task files of the index that a sparse checkout leaves out of the work tree.

    ``places`` are pathspecs of where they lie, none if they may be anywhere.
    """
    root = repository.toplevel
    if root is None or not is_on(repository.config.get("core.sparsecheckout")):
        return []
    # From the root: a command asked in a folder would name what lies there only.
    words = ("ls-files", "-t", "-z", "--full-name", "--", *places)
    said = answered(ask(repository, *words, env=PATHS, timeout=SECONDS), "the index cannot be read")
    wanted, found = Wanted(tasks), []
    for line in said.split(b"\0"):
        kind, _, name = line.partition(b" ")
        path = os.fsdecode(name)
        skipped = kind in (b"S", b"s") and wanted.covers(path)
        if skipped and not os.path.lexists(os.path.join(root, path)):
            found.append(path)
    return found


def unknown_here(tasks: Sequence[Task], lack: Lack | None) -> tuple[str, ...]:
    """The sentence that it is unknown here who works on some tasks."""
    if not tasks:
        return ()
    why = "commits are missing here" if lack is None else f"{lack.what} ({lack.way})"
    names = _some(task.resource.text for task in tasks)
    return (f"cannot tell who works on {names}: {why}",)


def not_checked_out(files: Sequence[str]) -> tuple[str, ...]:
    """The sentence that task files were not checked, since a sparse checkout omits them."""
    if not files:
        return ()
    were = "was" if len(files) == 1 else "were"
    folder = files[0].rpartition("/")[0]
    add = f"git sparse-checkout add {quote(printable(folder))}, or for all files " if folder else ""
    return (
        f"{_some(map(printable, files))} {were} not checked: this checkout is sparse"
        f" ({add}git sparse-checkout disable)",
    )


def _some(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
