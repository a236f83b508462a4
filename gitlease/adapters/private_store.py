"""The private bare repository under the clone's git common directory: a cache of objects.

Linked worktrees share it and the user's repository is never touched. Whatever is in it can be
fetched again, so a damaged one is moved aside and made anew.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

from gitlease.adapters.git import clean_environment
from gitlease.adapters.libgit2 import load_pygit2
from gitlease.adapters.local_lock import exclusive
from gitlease.domain.errors import Invalid

if TYPE_CHECKING:
    import pygit2

CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tautogc = false
"""
REBUILD_PATIENCE = 5.0
TIDY_AFTER = 86_400  # seconds after which unreachable objects leave
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")


def make_bare(path: str) -> None:
    """Make an empty bare repository, without a git process; what is there already stays.

    It is built aside and moved into place, so that a kill never leaves half of one.
    """
    if os.path.isfile(os.path.join(path, "config")):
        return
    import shutil

    aside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    for folder in _FOLDERS:
        os.makedirs(os.path.join(aside, folder))
    with open(os.path.join(aside, "HEAD"), "w", encoding="ascii") as file:
        file.write("ref: refs/heads/main\n")
    with open(os.path.join(aside, "config"), "w", encoding="ascii") as file:
        file.write(CONFIG)
    if _take_place(aside, path):
        return
    if not os.path.isfile(os.path.join(path, "config")):
        remove(path)  # something that is no repository is in the way
        _take_place(aside, path)
    shutil.rmtree(aside, ignore_errors=True)


def _take_place(aside: str, path: str) -> bool:
    try:
        os.rename(aside, path)
    except OSError:
        return False
    return True


def remove(path: str) -> None:
    """Remove a file or folder at once for others, and then its contents."""
    import shutil

    gone = f"{path}.{os.getpid()}.{time.time_ns()}.damaged"
    with contextlib.suppress(OSError):
        os.rename(path, gone)
        shutil.rmtree(gone, ignore_errors=True)
        os.unlink(gone)


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


class PrivateStore:
    """Opens the store, makes it where it is missing, and makes it anew where it is damaged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._repo: pygit2.Repository | None = None
        self._inode: int | None = None

    @property
    def repo(self) -> pygit2.Repository:
        load_pygit2()
        import pygit2

        if self._repo is None:
            make_folder(os.path.dirname(self.path))
            make_bare(self.path)
            self._inode = _inode(self.path)
            try:
                self._repo = pygit2.Repository(self.path, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
            except (pygit2.GitError, KeyError):
                self.rebuild()
                self._repo = pygit2.Repository(self.path, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        return self._repo

    def rebuild(self) -> None:
        """Replace a damaged store by an empty one; the next contact fills it.

        Whoever comes second finds another one than the one that was damaged, and leaves it.
        """
        damaged, self._repo, self._inode = self._inode, None, None
        try:
            with exclusive(f"{self.path}.lock", timeout=REBUILD_PATIENCE):
                if damaged is None or damaged == _inode(self.path):
                    remove(self.path)
                make_bare(self.path)
        except OSError as error:
            raise Invalid(
                f"gitlease cannot keep its state in {self.path}: {error.strerror}",
                hints=("it needs to write below the clone's git directory",),
            ) from None

    def tidy(self) -> None:
        """Let unreachable objects leave, at most once a day and in the background."""
        marker = os.path.join(self.path, "tidied")
        try:
            if time.time() - os.stat(marker).st_mtime < TIDY_AFTER:
                return
        except OSError:
            with contextlib.suppress(OSError), open(marker, "w", encoding="ascii"):
                pass
            return
        os.utime(marker)
        self._drop_leftovers()
        with contextlib.suppress(OSError):
            subprocess.Popen(
                ["git", f"--git-dir={self.path}", "gc", "--quiet", "--prune=1.day.ago"],
                env=clean_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _drop_leftovers(self) -> None:
        """Refs of fetches that were killed keep objects alive for nothing."""
        folder = os.path.join(self.path, "refs", "fetched")
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                file = os.path.join(folder, name)
                if time.time() - os.stat(file).st_mtime > TIDY_AFTER:
                    os.unlink(file)


def make_folder(folder: str) -> None:
    """Make a folder for private state; Invalid where that is not allowed."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Invalid(
            f"gitlease cannot keep its state in {folder}: {error.strerror}",
            hints=("it needs to write below the clone's git directory",),
        ) from None
