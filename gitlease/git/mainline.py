"""What this clone knows of a file on the remote's default branch: its bytes, that it is not there,
or nothing at all.

A clone may lack the branch (``--single-branch``), its trees or its blobs (``--filter``). Absence is
proven by a tree that was read; anything that could not be read is unknown, never absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from gitlease.core.frozen import dataclass
from gitlease.git.files import Unreadable
from gitlease.git.objects import (
    BLOB,
    COMMIT,
    FOLDER,
    GitObjects,
    TreeEntry,
    objects_of,
    read_tree,
)
from gitlease.git.repository import Repository, commit_of, main_branch

MAX_TREE = 16 * 1024 * 1024  # bytes of one folder's listing


class Presence(Enum):
    """What a clone knows of a file on the main branch."""

    KNOWN = "known"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MainFile:
    """One file of the main branch: ``data`` if it is known, ``why`` for people if it is unknown."""

    presence: Presence
    data: bytes = b""
    why: str = ""


ABSENT = MainFile(Presence.ABSENT)


def _unknown(why: str) -> MainFile:
    return MainFile(Presence.UNKNOWN, why=why)


def read_main_file(
    repository: Repository, remotes: Sequence[str], path: str, *, limit: int
) -> MainFile:
    """Read a file of the default branch of the first of these remotes that this clone tracks.

    ``path`` is relative to the root of the repository. A file of more than ``limit`` bytes is
    unknown. Asks no remote.
    """
    if not remotes:
        return ABSENT
    ref = main_branch(repository, remotes)
    if ref is None:
        return _unknown(f"the default branch of {remotes[0]} is not in this clone")
    return read_file_at(repository, commit_of(repository, ref), path, limit=limit)


def read_file_at(repository: Repository, commit: str, path: str, *, limit: int) -> MainFile:
    """Read a file of a commit, given by its full id, from the objects that this clone has."""
    objects = objects_of(repository)
    *folders, name = path.split("/")
    try:
        header = objects.read(commit, COMMIT, MAX_TREE)
        tree = header.partition(b"\n")[0].removeprefix(b"tree ").decode("ascii", "replace")
        for folder in folders:
            entry = _entry(objects, tree, folder)
            if entry is None or entry.mode != FOLDER:
                return ABSENT
            tree = entry.id
        entry = _entry(objects, tree, name)
        if entry is None:
            return ABSENT
        return MainFile(Presence.KNOWN, objects.read(entry.id, BLOB, limit))
    except Unreadable as why:
        return _unknown(f"{path} {why}")


def _entry(objects: GitObjects, tree: str, name: str) -> TreeEntry | None:
    return next((x for x in read_tree(objects, tree, MAX_TREE) if x.name == name), None)
