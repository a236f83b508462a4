"""The private bare repository under the clone's git common directory: a cache of objects.

Linked worktrees share it and the user's repository is never touched. Whatever is in it can be
fetched again, so a damaged one is moved aside and made anew.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gitlease.git.files import cannot_keep
from gitlease.git.libgit2 import as_lost, load_pygit2
from gitlease.git.local_lock import exclusive
from gitlease.git.run import clean_environment
from gitlease.store.damage import CacheDamaged

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
_PLACES = re.compile(  # of folders in a bare repository, as git makes it in time
    r"(?:refs|logs|objects/tmp_[^/]*)/.*|(?:info|hooks|branches)/"
    r"|objects/(?:(?:[0-9a-f]{2}|pack|info|info/commit-graphs)/)?"
)
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
        if os.path.isdir(gone) and not os.path.islink(gone):
            shutil.rmtree(gone, ignore_errors=True)
        else:
            os.unlink(gone)  # rmtree would open a pipe, and wait


class PrivateStore:
    """Opens the store, makes it where it is missing, and makes it anew where it is damaged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._repo: pygit2.Repository | None = None
        self._folder: int | None = None  # kept open, so that its inode number is not used again

    def __del__(self) -> None:
        self._close()

    @property
    def repo(self) -> pygit2.Repository:
        load_pygit2()
        import pygit2

        if self._repo is None:
            make_folder(os.path.dirname(self.path))
            self._open()
            if not _is_plain(self.path):
                self.rebuild()
                self._open()
            try:
                with as_lost():
                    flag = pygit2.enums.RepositoryOpenFlag.NO_SEARCH
                    self._repo = pygit2.Repository(self.path, flag)
            except (pygit2.GitError, KeyError):
                self.rebuild()
                self._open()
                self._repo = pygit2.Repository(self.path, flag)
        return self._repo

    def ready(self) -> None:
        """See that there is a store, for git to run in; nothing of it is opened."""
        make_folder(os.path.dirname(self.path))
        if os.path.lexists(self.path) and not _is_plain(self.path):
            self.rebuild()
        make_bare(self.path)

    @property
    def _lock(self) -> str:
        return f"{self.path}.lock"

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep others from making the store anew, while objects come into it.

        A fetch that negotiates on the old store would leave half of a ledger in the new one.
        Raises CacheDamaged where it was made anew already.
        """
        with exclusive(self._lock, timeout=REBUILD_PATIENCE, shared=True):
            if self.replaced():
                raise CacheDamaged("the ledger's store was replaced")
            yield

    def replaced(self) -> bool:
        """Whether another process has made the store anew since it was opened here."""
        if self._folder is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._folder), os.stat(self.path))
        except OSError:
            return True

    def reopen(self) -> None:
        """Let go of what is open, to use the store that is there now."""
        self._repo = None
        self._close()

    def rebuild(self) -> None:
        """Replace a damaged store by an empty one; the next contact fills it.

        Whoever comes second finds another one than the one that was damaged, and leaves it.
        """
        try:
            with exclusive(self._lock, timeout=REBUILD_PATIENCE):
                if not self.replaced():
                    remove(self.path)
                make_bare(self.path)
        except OSError as error:
            raise cannot_keep(self.path, error) from None
        finally:
            self.reopen()

    def _open(self) -> None:
        make_bare(self.path)
        self._close()
        with contextlib.suppress(OSError):
            self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            with contextlib.suppress(OSError):
                os.close(folder)

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


def _is_plain(path: str, name: str = "") -> bool:
    """Whether there are only files in the store, and folders where they belong.

    git and libgit2 wait for a pipe for ever, and take a folder in a file's place for the remote's
    fault.
    """
    try:
        with os.scandir(os.path.join(path, name)) as entries:
            return all(
                entry.is_file(follow_symlinks=False)
                or (
                    entry.is_dir(follow_symlinks=False)
                    and _PLACES.fullmatch(inner := f"{name}{entry.name}/") is not None
                    and _is_plain(path, inner)
                )
                for entry in entries
            )
    except FileNotFoundError:
        return True  # another process was quicker
    except OSError:
        return False


def make_folder(folder: str) -> None:
    """Make a folder for private state; Invalid where that is not allowed."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise cannot_keep(folder, error) from None
