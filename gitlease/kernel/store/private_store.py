"""The private bare repository under the clone's git common directory: a cache of objects.

Linked worktrees share it and the user's repository is never touched. Whatever is in it can be
fetched again, so a damaged one is deleted and made anew.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping

from gitlease.kernel.git.bare import make_aside
from gitlease.kernel.git.files import (
    EXACT,
    cannot_keep,
    exclusive,
    make_folders,
    read_small,
    replace_file,
    shared_bits,
)
from gitlease.kernel.git.objects import SHA1, SHA256
from gitlease.kernel.git.run import clean_environment, detach
from gitlease.kernel.store.object_store import ObjectStore, open_objects
from gitlease.kernel.store.plumbing import drop_locks, drop_old, files_below
from gitlease.kernel.store.storage import CopyLost

# --- the repository ---------------------------------------------------------------------------

_CONFIG = """\
[core]
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
TIDY_AGAIN = 3_600  # and after which a busy gateway's many files are packed
MANY = 25_600  # objects in files of their own, each of which takes a block of the disk
PACKS = 32  # packs that become fewer: every git looks into each
JOIN_AGAIN = 10  # seconds after which more of them do
MUCH = 1024 * 1024  # bytes of packs, of a few thousand records: sooner read by libgit2
_PLACES = re.compile(  # of folders in a bare repository, as git makes it in time
    r"(?:refs|logs|objects/tmp_[^/]*)/.*|(?:info|hooks|branches)/"
    r"|objects/(?:(?:[0-9a-f]{2}|pack|info|info/commit-graphs)/)?"
)
_SHARED = re.compile(rb"(?m)^\tsharedrepository = (\S+)$")


def make_bare(path: str, id_bytes: int = SHA1) -> None:
    """Make an empty bare repository; what is there already stays. Raises OSError.

    Its objects have ids of so many bytes.

    It is built aside and moved into place, so that a kill never leaves half of one.
    """
    if os.path.isfile(os.path.join(path, "config")):
        return
    import shutil

    aside = make_aside(path, _CONFIG, id_bytes, shared=_shared_word(path))
    for _ in range(2):
        with contextlib.suppress(OSError):
            os.rename(aside, path)
            return
        if os.path.isfile(os.path.join(path, "config")):
            break
        remove(path)  # something that is no repository is in the way
    shutil.rmtree(aside, ignore_errors=True)


def _shared_word(path: str) -> str:
    """How git's settings say with whom the files of a repository at a path are shared."""
    bits = shared_bits(path)
    return f"0{bits & 0o666:o}" if bits & EXACT else {0o660: "1", 0o664: "2"}.get(bits, "")


def remove(path: str) -> None:
    """Remove a file or folder at once for others, and then its contents."""
    import shutil

    # Renamed first: to delete takes time, in which others must not find half of it.
    gone = f"{path}.{os.getpid()}.{time.time_ns()}.damaged"
    with contextlib.suppress(OSError):
        os.rename(path, gone)
        if os.path.isdir(gone) and not os.path.islink(gone):
            shutil.rmtree(gone, ignore_errors=True)
        else:
            os.unlink(gone)  # rmtree would open a pipe, and wait


class PrivateStore:
    """Opens the store, makes it where it is missing, and makes it anew where it is damaged.

    ``id_bytes`` are those of a new one; that of another format, which is there already, is used.
    ``brief``: for one command or hook.
    """

    def __init__(self, path: str, id_bytes: int = SHA1, *, brief: bool = False) -> None:
        self.path, self._id_bytes, self._brief = path, id_bytes, brief
        self._objects: ObjectStore | None = None
        self._opened: tuple[int, int] | None = None  # which of the stores that stood here in turn
        self._is_temporary = False
        self.losses = self._in_vain = 0

    @property
    def objects(self) -> ObjectStore:
        """The objects of the store, which is opened, or made, when they are first needed.

        Raises OSError.
        """
        self.ready()
        if self._objects is None:
            self._objects = open_objects(self.path, self._id_bytes, brief=self._brief)
        return self._objects

    def _is_usable_by_git(self) -> bool:
        config = read_small(os.path.join(self.path, "config"), 4_096) or b""
        # Without regard to case: an earlier gitlease wrote it in another one.
        self._id_bytes = SHA256 if b"\tobjectformat = sha256\n" in config.lower() else SHA1
        shared = _SHARED.search(config)
        return (
            b"\tbare = true\n" in config
            and (shared[1].decode() if shared else "") == _shared_word(self.path)
            and os.path.isfile(os.path.join(self.path, "HEAD"))
            and _is_plain(self.path)
        )

    def filled(self) -> None:
        """Choose again how objects are read: a first contact may have brought many to be read."""
        with contextlib.suppress(OSError), os.scandir(f"{self.path}/objects/pack") as packs:
            if self._brief and sum(x.stat().st_size for x in packs) > MUCH:
                self._brief, self._objects = False, None

    def is_cut(self) -> bool:
        """Return whether a fetch left out the oldest history of something."""
        return os.path.exists(os.path.join(self.path, "shallow"))

    def ref(self, name: str) -> str | None:
        """The id that a ref of the store has; None where there is none."""
        return self.objects.ref(name)

    def set_refs(self, refs: Mapping[str, str | None]) -> None:
        """Have refs keep objects, and delete those with None: all or none. Raises OSError."""
        self.objects.set_refs(refs)
        self._in_vain = 0  # what was made anew takes something

    def ready(self) -> None:
        """See that there is a store, for git to run in."""
        if self._opened is not None:
            return
        for _ in range(2):
            try:
                make_folders(os.path.dirname(self.path))
                make_bare(self.path, self._id_bytes)
            except OSError as error:
                raise cannot_keep(self.path, error) from None
            self._opened = self._present()
            if self._is_usable_by_git():
                break
            self.delete()

    def _present(self) -> tuple[int, int] | None:
        """The store that is there now, as the file tells that only its making writes."""
        try:
            found = os.stat(os.path.join(self.path, "config"))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    @contextlib.contextmanager
    def in_use(self, cutting: float = 0) -> Iterator[None]:
        """Use the store while objects come into it; CopyLost if it was replaced before the end.

        ``cutting``: seconds to wait to be alone, for a fetch that cuts how much history it brings.
        """
        # git refuses a second fetch that cuts. Any other needs no lock: a damaged store is renamed
        # aside, and what a fetch brought that had negotiated on it is fetched again.
        lock = exclusive(f"{self.path}.lock", timeout=cutting) if cutting else None
        with lock or contextlib.nullcontext():
            self._check_not_replaced()
            try:
                yield
            except Exception:  # one of git's, perhaps, whose folder was renamed
                self._check_not_replaced()
                raise
            self._check_not_replaced()

    def _check_not_replaced(self) -> None:
        if self.replaced():
            raise CopyLost("the ledger's store was replaced")

    def replaced(self) -> bool:
        """Return whether another process has made the store anew since it was opened here."""
        return self._opened is not None and self._opened != self._present()

    def let_go(self) -> None:
        """Let go of what is open, to use the store that is there now."""
        self._opened = self._objects = None

    def lose(self) -> None:
        """Delete a damaged store; read on elsewhere where that was done twice in vain."""
        self.losses += 1
        self._in_vain += 1
        if self._in_vain < 3 or self.replaced() or not self.move_aside():
            self.delete()

    def delete(self) -> None:
        """Delete a damaged store, as far as it was opened; the next contact fills another.

        Whoever comes second finds another one than the one that was damaged, and leaves it.
        """
        with exclusive(f"{self.path}.lock", timeout=REBUILD_PATIENCE):
            if self._opened is not None and not self.replaced():
                remove(self.path)
        self.let_go()

    def switch(self) -> None:
        """Make it anew for ids of the other format, as the remote has them."""
        self.delete()
        self._id_bytes = SHA1 + SHA256 - self._id_bytes

    def move_aside(self) -> bool:
        """Read on in a temporary folder, where the clone's own cannot be written; once.

        What is fetched there is gone with this process; what is written still needs the clone's.
        """
        if self._is_temporary:
            return False
        import shutil
        import tempfile

        try:
            folder = tempfile.mkdtemp(prefix="gitlease-")
        except OSError:
            return False
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path, self._is_temporary = os.path.join(folder, "store.git"), True
        self.let_go()
        return True

    def tidy(self) -> None:
        """Join packs where there are many; let unreachable objects leave once a day.

        It goes on in the background.
        """
        # As `git gc --auto` does: ids spread evenly, so one folder of 256 tells of all.
        has_many = _number(os.path.join(self.path, "objects", "17")) > MANY // 256
        packs = _number(os.path.join(self.path, "objects", "pack")) // 2
        if self._is_due("tidied", TIDY_AFTER):
            # Of fetches that were killed.
            drop_old(files_below(os.path.join(self.path, "refs", "fetched")), TIDY_AFTER)
            drop_locks(self.path)
            self._start("-c", "gc.packRefs=false", "gc", "--quiet", "--prune=1.day.ago")
        elif (packs > PACKS and self._is_due("joined", JOIN_AGAIN, at_first=True)) or (
            has_many and self._is_due("joined", TIDY_AGAIN, at_first=True)
        ):
            self._start("repack", "--geometric=2", "-d", "-q")

    def _is_due(self, name: str, seconds: float, *, at_first: bool = False) -> bool:
        """Return whether a marker is so old, or missing if ``at_first``; then it is made young."""
        marker, is_due = os.path.join(self.path, name), at_first
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - os.stat(marker).st_mtime < seconds:
                    return False
                is_due = True
            # First of all, so that no other process begins as well.
            replace_file(marker, b"")
            return is_due
        return False

    def _start(self, *words: str) -> None:
        with contextlib.suppress(OSError):
            env = clean_environment(os.environ)
            detach(["git", f"--git-dir={self.path}", *words], env=env)


def _number(folder: str) -> int:
    """The number of files in a folder; 0 where there is none."""
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def _is_plain(path: str, name: str = "") -> bool:
    """Return whether there are only files in the store, and folders where they belong."""
    # git waits for a pipe for ever, and takes a folder in a file's place for the remote's fault.
    try:
        with os.scandir(os.path.join(path, name)) as entries:
            return all(
                entry.is_file(follow_symlinks=False)
                or (
                    entry.is_dir(follow_symlinks=False)
                    and _PLACES.fullmatch(inner := f"{name}{entry.name}/") is not None
                    and _is_plain(path, inner)
                )
                or not os.path.lexists(entry.path)  # another process's, and gone by now
                for entry in entries
            )
    except FileNotFoundError:
        return True  # another process was quicker
    except OSError:
        return False


def make_folder(folder: str) -> None:
    """Make a folder for private state; Invalid where that is not allowed."""
    try:
        make_folders(folder)
    except OSError as error:
        raise cannot_keep(folder, error) from None
