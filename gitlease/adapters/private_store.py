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
TIDY_AFTER = 86_400  # seconds after which unreachable objects leave
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")


def make_bare(path: str) -> None:
    """Make an empty bare repository, without a git process; what is there already stays.

    It is built aside and moved into place, so that a kill never leaves half of one.
    """
    if os.path.isfile(os.path.join(path, "config")):
        return
    import shutil

    aside = f"{path}.{os.getpid()}.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    for folder in _FOLDERS:
        os.makedirs(os.path.join(aside, folder))
    with open(os.path.join(aside, "HEAD"), "w", encoding="ascii") as file:
        file.write("ref: refs/heads/main\n")
    with open(os.path.join(aside, "config"), "w", encoding="ascii") as file:
        file.write(CONFIG)
    try:
        os.rename(aside, path)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isfile(os.path.join(path, "config")):
            # Something is in the way that is no repository.
            os.rename(path, f"{path}.damaged-{int(time.time())}")
            make_bare(path)


class PrivateStore:
    """Opens the store, makes it where it is missing, and makes it anew where it is damaged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._repo: pygit2.Repository | None = None

    @property
    def repo(self) -> pygit2.Repository:
        load_pygit2()
        import pygit2

        if self._repo is None:
            make_folder(os.path.dirname(self.path))
            make_bare(self.path)
            try:
                self._repo = pygit2.Repository(self.path, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
            except (pygit2.GitError, KeyError):
                self.rebuild()
                self._repo = pygit2.Repository(self.path, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        return self._repo

    def rebuild(self) -> None:
        """Move a damaged store aside and make an empty one; the next contact fills it."""
        self._repo = None
        with contextlib.suppress(OSError):
            os.rename(self.path, f"{self.path}.damaged-{time.time_ns()}")
        make_bare(self.path)

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
