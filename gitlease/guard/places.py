"""Where a repository is, by its files alone: for hooks that have no time to ask git.

What git itself would ask of the environment is not looked at: hooks of agents have none of it.
"""

from __future__ import annotations

import contextlib
import os

from gitlease.git.files import make_folders, read_small, replace_file

LONGEST_POINTER = 8_192
NS = 1_000_000_000
# In the private folder, a note that the remote was asked for a ledger. Alone it is no trace of use.
ASKED = "asked"


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


def has_traces(common_dir: str) -> bool:
    """Whether any command of gitlease has left private state in a clone, if only its folder."""
    with contextlib.suppress(OSError):
        return os.listdir(os.path.join(common_dir, "gitlease")) != [ASKED]
    return False


def ask_is_due(common_dir: str, *, every: int, now: float) -> bool:
    """Whether the remote was not asked for a ledger for so long; notes that it is asked now."""
    file = os.path.join(common_dir, "gitlease", ASKED)
    with contextlib.suppress(OSError):
        if 0 <= now - os.stat(file).st_mtime < every:
            return False
    with contextlib.suppress(OSError):
        make_folders(os.path.dirname(file))
        replace_file(file, b"asking\n", dated=int(now * NS))
    return True


def is_asking(common_dir: str) -> bool:
    """Whether the answer of the remote is still to come."""
    return first_line(os.path.join(common_dir, "gitlease", ASKED)) == "asking"


def note_asked(common_dir: str, *, answered: bool) -> None:
    """Note that the remote has no ledger; where it did not answer, it is asked again soon."""
    file = os.path.join(common_dir, "gitlease", ASKED)
    with contextlib.suppress(OSError):
        if answered:
            asked_at = os.stat(file).st_mtime_ns
            replace_file(file, b"no ledger\n", dated=asked_at)
        else:
            os.unlink(file)
            os.rmdir(os.path.dirname(file))


def _root_around(folder: str) -> str | None:
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return None
    return folder


def first_line(file: str) -> str:
    """The first line of a small file, ``""`` where it has none."""
    return os.fsdecode(read_small(file, LONGEST_POINTER) or b"").partition("\n")[0].strip()
