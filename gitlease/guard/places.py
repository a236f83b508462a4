"""Where a repository is, by its files alone: for hooks that have no time to ask git.

What git itself would ask of the environment is not looked at: hooks of agents have none of it.
"""

from __future__ import annotations

import os

from gitlease.git.files import read_small

LONGEST_POINTER = 8_192


def find_work_tree(path: str) -> str | None:
    """The root of the work tree that a path lies in; the path need not exist.

    Links count as what they lead to.
    """
    return _root_around(os.path.dirname(os.path.realpath(path)))


def find_git_dir(start: str) -> str | None:
    """The git directory of the work tree around a folder, None where there is none."""
    root = _root_around(os.path.abspath(start))
    if root is None:
        return None
    found = os.path.join(root, ".git")
    if os.path.isdir(found):
        return found
    pointer = first_line(found)
    if not pointer.startswith("gitdir:"):
        return None
    return os.path.join(root, pointer.removeprefix("gitdir:").strip())


def find_common_dir(start: str) -> str | None:
    """The common git directory of the work tree around a folder, likewise."""
    git_dir = find_git_dir(start)
    return None if git_dir is None else common_dir_of(git_dir)


def common_dir_of(git_dir: str) -> str:
    """The common git directory that a git directory belongs to."""
    common = first_line(os.path.join(git_dir, "commondir"))
    return os.path.normpath(os.path.join(git_dir, common)) if common else git_dir


def _root_around(folder: str) -> str | None:
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return None
    return folder


def first_line(file: str) -> str:
    """The first line of a small file, ``""`` where it has none."""
    return os.fsdecode(read_small(file, LONGEST_POINTER) or b"").partition("\n")[0].strip()
