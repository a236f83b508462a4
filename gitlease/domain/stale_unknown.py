"""What a check of stale claims cannot tell in a clone that does not have all, and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote

from gitlease.domain.edge import Task, printable
from gitlease.domain.frozen import dataclass
from gitlease.domain.stale_facts import Edge

SHOWN = 5  # names in a sentence


@dataclass(frozen=True, slots=True)
class Lack:
    """What a clone does not have, and how to get it: both as people are told."""

    what: str
    way: str


def lacking_branches(remote: str, branches: Sequence[str], *, way: str) -> Lack:
    """That commits of these branches of a remote are not here."""
    names = some(map(printable, branches))
    kind = "branch" if len(branches) == 1 else "branches"
    return Lack(f"not all commits of the {kind} {names} of {printable(remote)} are here", way)


def unknown_here(
    edges: Sequence[Edge], nobodys: Sequence[Edge], hidden: Sequence[Task], lack: Lack | None
) -> tuple[str, ...]:
    """What cannot be known of some edges, of names that may be nobody's, and of hidden edges."""
    said = []
    if edges:
        said.append(f"since when nobody works on {_tasks(e.task for e in edges)}")
    if nobodys:
        said.append(f"whether anybody is who {_tasks(e.task for e in nobodys)} is assigned to")
    if hidden:
        said.append(f"whether a branch says who holds {_tasks(hidden)}")
    why = "commits are missing here" if lack is None else f"{lack.what} ({lack.way})"
    return tuple(f"{text} cannot be known here: {why}" for text in said)


def not_checked_out(files: Sequence[str]) -> tuple[str, ...]:
    """That task files were not looked at, since a sparse checkout leaves them out."""
    if not files:
        return ()
    are = "is" if len(files) == 1 else "are"
    folder = files[0].rpartition("/")[0]
    add = f"git sparse-checkout add {quote(printable(folder))} brings such, " if folder else ""
    return (
        f"{some(map(printable, files))} {are} not looked at: this checkout is sparse"
        f" ({add}git sparse-checkout disable brings all)",
    )


def some(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _tasks(tasks: Iterable[Task]) -> str:
    return some(task.resource.text for task in tasks)
