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
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from gitlease.git.files import (
    EXACT,
    cannot_keep,
    exclusive,
    make_folders,
    read_regular,
    read_small,
    replace_file,
    share,
    shared_bits,
)
from gitlease.git.objects import Absent, GitObjects, PipedObjects, check_object, digest, object_id
from gitlease.git.repository import OFFLINE, is_id
from gitlease.git.run import clean_environment, detach
from gitlease.store.storage import CopyLost

# --- its objects, written and mostly read without any git -------------------------------------
# A command writes a few objects, and reads those that a fetch or another command has just brought
# here. git keeps such ones as files that any zlib reads, in either format of ids, so no process is
# worth its start for them. What is in a pack is read by git.
# A gateway writes hundreds of objects in a step: as one pack, for a file takes 0.4 ms, and as long
# when git sends it. Many packs take time as well, so the smallest are joined now and then.

HEADER = 32  # bytes of "commit 1234567\0" at most
_LEVEL = 1  # as fast as can be: an object has a few hundred bytes
FEW = 24  # objects of a step that become files of their own
JOINED = 32  # packs that become one
RECENT = 8 * 1024 * 1024  # bytes of objects just written, which are read again at once
_KINDS = {"commit": 1, "tree": 2, "blob": 3}  # in a pack


class LooseObjects:
    """The objects of a bare repository of gitlease's own, of one format of ids."""

    def __init__(self, path: str, id_bytes: int, environ: Mapping[str, str]) -> None:
        self._path, self._id_bytes = path, id_bytes
        self._packed = PipedObjects(path, {**clean_environment(environ), **OFFLINE})
        self._packs = list[str]()  # not joined yet, and their objects and size:
        self._recent: dict[str, tuple[str, bytes]] = {}
        self._size = 0

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if (recent := self._recent.get(id)) is not None:
            check_object(recent[0] == kind, len(recent[1]), kind, limit)
            return recent[1]
        if not is_id(id) or len(id) != 2 * self._id_bytes:
            raise Absent
        try:
            # What does not compress grows by a little.
            packed = read_regular(self._file(id), limit + limit // 512 + 1024)
        except FileNotFoundError:
            return self._packed.read(id, kind, limit)
        except OSError:
            raise Absent from None
        if packed is None:
            raise Absent
        return _inflated(packed, id, kind, limit)

    def write(self, kind: str, data: bytes) -> str:
        """Add an object; returns its id. Raises OSError."""
        id, whole = object_id(kind, data, self._id_bytes)
        file = self._file(id)
        folder = os.path.dirname(file)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
            share(folder)
        aside = os.path.join(folder, f"tmp_obj_{os.urandom(8).hex()}")  # which git tidies up
        replace_file(file, zlib.compress(whole, _LEVEL), aside=aside)
        return id

    @contextlib.contextmanager
    def together(self) -> Iterator[NewObjects]:
        """Add what the block writes at its end: much of it as one pack. Raises OSError."""
        yield (objects := NewObjects(self, self._id_bytes))
        # Each pack costs every later git a little; a few files cost less.
        if len(new := objects.new) <= FEW:
            for kind, data in new.values():
                self.write(kind, data)
            return
        self._packs.append(self._write_pack(new))
        self._recent |= new
        self._size += sum(len(data) for _, data in new.values())
        if len(self._packs) < JOINED and self._size < RECENT:
            return
        packs, every, self._packs, self._recent = {*self._packs}, self._recent, [], {}
        self._size = 0
        for name in packs - {self._write_pack(every)}:  # a git that misses one looks for all anew
            for suffix in (".idx", ".pack"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name + suffix)

    def _write_pack(self, new: Mapping[str, tuple[str, bytes]]) -> str:
        """Write objects as a pack that git reads; returns its path without a suffix."""
        ids, sums, places = sorted(new), bytearray(), bytearray()
        body = bytearray(b"PACK" + (2).to_bytes(4) + len(ids).to_bytes(4))
        for id in ids:
            kind, data = new[id]
            size, head = len(data) >> 4, [_KINDS[kind] << 4 | len(data) & 15]
            while size:
                head[-1] |= 128
                head.append(size & 127)
                size >>= 7
            packed = bytes(head) + zlib.compress(data, _LEVEL)
            places += len(body).to_bytes(4)
            sums += zlib.crc32(packed).to_bytes(4)
            body += packed
        body += (total := digest(body, self._id_bytes))
        firsts = [bytes.fromhex(id[:2])[0] for id in ids]
        index = bytearray(b"\377tOc" + (2).to_bytes(4))
        index += b"".join(bisect_right(firsts, n).to_bytes(4) for n in range(256))
        index += bytes.fromhex("".join(ids)) + sums + places + total
        index += digest(index, self._id_bytes)
        name = os.path.join(self._path, "objects", "pack", f"pack-{total.hex()}")
        # The index last: by it git finds a pack, which must be whole then.
        for suffix, written in ((".pack", body), (".idx", index)):
            aside = os.path.join(os.path.dirname(name), f"tmp_pack_{os.urandom(8).hex()}")
            replace_file(name + suffix, bytes(written), aside=aside)
        return name

    def _file(self, id: str) -> str:
        return os.path.join(self._path, "objects", id[:2], id[2:])


class NewObjects:
    """Collects the ``new`` objects of a step by their ids, on top of others if there are any."""

    def __init__(self, objects: GitObjects | None, id_bytes: int) -> None:
        self._objects, self._id_bytes = objects, id_bytes
        self.new: dict[str, tuple[str, bytes]] = {}

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if (new := self.new.get(id)) is not None:
            check_object(new[0] == kind, len(new[1]), kind, limit)
            return new[1]
        if self._objects is None:
            raise Absent
        return self._objects.read(id, kind, limit)

    def write(self, kind: str, data: bytes) -> str:
        id, _ = object_id(kind, data, self._id_bytes)
        self.new[id] = kind, data
        return id


def _inflated(packed: bytes, id: str, kind: str, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        whole = stream.decompress(packed, limit + HEADER + 1)
    except zlib.error:
        raise Absent from None
    head, _, data = whole.partition(b"\0")
    name, _, size = head.partition(b" ")
    if not size.isdigit() or len(head) > HEADER:
        raise Absent
    check_object(name == kind.encode(), int(size), kind, limit)
    if not stream.eof or int(size) != len(data) or object_id(kind, data, len(id) // 2)[0] != id:
        raise Absent  # cut short, or spoilt
    return data


# --- the repository ---------------------------------------------------------------------------

CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
{shared}{extensions}[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tautogc = false
"""
SHA1, SHA256 = 20, 32  # bytes of an object's id
_FORMATS = {
    SHA1: {"version": 0, "extensions": ""},
    SHA256: {"version": 1, "extensions": "[extensions]\n\tobjectFormat = sha256\n"},
}
REBUILD_PATIENCE = 5.0
TIDY_AFTER = 86_400  # seconds after which unreachable objects leave
TIDY_AGAIN = 3_600  # and after which a busy gateway's many files are packed
MANY = 25_600  # objects in files of their own, each of which takes a block of the disk
_PLACES = re.compile(  # of folders in a bare repository, as git makes it in time
    r"(?:refs|logs|objects/tmp_[^/]*)/.*|(?:info|hooks|branches)/"
    r"|objects/(?:(?:[0-9a-f]{2}|pack|info|info/commit-graphs)/)?"
)
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")


def make_bare(path: str, id_bytes: int = SHA1) -> None:
    """Make an empty bare repository, without a git process; what is there already stays.

    Its objects have ids of so many bytes.

    It is built aside and moved into place, so that a kill never leaves half of one.
    """
    if os.path.isfile(os.path.join(path, "config")):
        return
    import shutil

    aside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    for folder in _FOLDERS:
        make_folders(os.path.join(aside, folder))
    replace_file(os.path.join(aside, "HEAD"), b"ref: refs/heads/main\n")
    replace_file(os.path.join(aside, "config"), _config(path, id_bytes))
    for _ in range(2):
        with contextlib.suppress(OSError):
            os.rename(aside, path)
            return
        if os.path.isfile(os.path.join(path, "config")):
            break
        remove(path)  # something that is no repository is in the way
    shutil.rmtree(aside, ignore_errors=True)


def _config(path: str, id_bytes: int) -> bytes:
    bits = shared_bits(path)
    named = f"0{bits & 0o666:o}" if bits & EXACT else {0o660: "group", 0o664: "all"}.get(bits)
    line = f"\tsharedRepository = {named}\n" if named else ""
    return CONFIG.format(shared=line, **_FORMATS[id_bytes]).encode()


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
    """

    def __init__(self, path: str, id_bytes: int = SHA1) -> None:
        self.path, self._id_bytes = path, id_bytes
        self._objects: LooseObjects | None = None
        self._opened: tuple[int, int] | None = None  # which of the stores that stood here in turn
        self._is_temporary = False
        self.losses = self._in_vain = 0

    @property
    def objects(self) -> LooseObjects:
        """The objects of the store, which is opened, or made, when they are first needed."""
        self.ready()
        if self._objects is None:
            self._objects = LooseObjects(self.path, self._id_bytes, os.environ)
        return self._objects

    def _is_usable_by_git(self) -> bool:
        config = read_small(os.path.join(self.path, "config"), 1_024)
        for id_bytes in (SHA1, SHA256):
            if config == _config(self.path, id_bytes):
                self._id_bytes = id_bytes
                return os.path.isfile(os.path.join(self.path, "HEAD")) and _is_plain(self.path)
        return False

    def is_cut(self) -> bool:
        """Return whether a fetch left out the oldest history of something."""
        return os.path.exists(os.path.join(self.path, "shallow"))

    def ref(self, name: str) -> str | None:
        """The id that a ref of the store has; None where there is none."""
        data = read_small(os.path.join(self.path, name), 1_024)
        found = "" if data is None else data.decode("ascii", "replace").strip()
        return found if is_id(found) else None

    def set_ref(self, name: str, id: str | None) -> None:
        """Have a ref of the store keep an object, or None. Raises OSError."""
        file = os.path.join(self.path, name)
        if id is None:
            os.unlink(file)
            return
        make_folders(folder := os.path.dirname(file))
        # For git a name with a dot before it is no ref, whose object would be missed.
        replace_file(file, f"{id}\n".encode(), aside=f"{folder}/.{os.urandom(8).hex()}.tmp")
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
        """Pack objects, and let unreachable ones leave: once a day, or earlier if there are many.

        It goes on in the background.
        """
        marker = os.path.join(self.path, "tidied")
        try:
            age = time.time() - os.stat(marker).st_mtime
            # As `git gc --auto` does: ids spread evenly, so one folder of 256 tells of all.
            sample = os.path.join(self.path, "objects", "17")
            has_many = os.path.isdir(sample) and len(os.listdir(sample)) > MANY // 256
            if age < TIDY_AGAIN or (age < TIDY_AFTER and not has_many):
                return
        except OSError:
            with contextlib.suppress(OSError):
                replace_file(marker, b"")
            return
        with contextlib.suppress(OSError):
            # First of all, so that no other process begins as well.
            os.utime(marker)
            folder = os.path.join(self.path, "refs", "fetched")
            with contextlib.suppress(OSError), os.scandir(folder) as refs:
                for ref in refs:  # of fetches that were killed
                    if time.time() - ref.stat().st_mtime > TIDY_AFTER:
                        os.unlink(ref.path)
            # Refs are read here without git, as files.
            words = ["git", f"--git-dir={self.path}", "-c", "gc.packRefs=false"]
            words += ["gc", "--quiet", "--prune=1.day.ago"]
            detach(words, env=clean_environment(os.environ))


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
