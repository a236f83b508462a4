"""Files of gitlease's own, and files that may be anything: opened, kept, moved and locked."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from gitlease.kernel.rules.errors import Invalid, hint

if TYPE_CHECKING:
    from filelock import BaseFileLock

PUBLIC = 0o666  # the mode of a file for whomever the umask and the clone allow
LEFT_OVER = 3600  # seconds after which nobody still writes a temporary file
# Without O_NONBLOCK the opening of a pipe waits for somebody who writes it.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CACHE = ".cache"
LARGEST_NOTES = 64 * 1024 * 1024
_AGES = {".tmp": LEFT_OVER, CACHE: 90 * 86_400}

# The git directories that ``core.sharedRepository`` shares, each with the bits that it gives.
_SHARED: dict[str, int] = {}
EXACT = 1 << 15  # the bits replace those that the umask leaves, instead of adding to them


class Unreadable(Exception):
    """A file or an object cannot be read; the text says why."""


def is_private(folder: str) -> bool:
    """Return whether this is a folder that only this user may enter."""
    try:
        entry = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(entry.st_mode) and entry.st_uid == os.getuid() and not entry.st_mode & 0o077


def open_regular(path: str) -> BinaryIO | None:
    """A regular file, open for reading; None for what is none. Raises OSError, for a link too.

    A pipe is never waited for.
    """
    handle = os.open(path, _FLAGS)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return open(handle, "rb")
    os.close(handle)
    return None


def read_with_status(
    path: str, limit: int, folder: int | None = None
) -> tuple[bytes, os.stat_result] | None:
    """The bytes of a file, and its status when it was opened; more than ``limit`` say: too large.

    None for what is no regular file; raises OSError, for a link too. A relative path begins at the
    open ``folder``. It takes a third of the time that an object of Python's would.
    """
    handle = os.open(path, _FLAGS, dir_fd=folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        # One byte more than it should have, so that a file that grows shows.
        missing, data = min(limit, status.st_size) + 1, b""
        while missing and (more := os.read(handle, missing)):
            data, missing = data + more, missing - len(more)
            # Spares the read that only says that there is no more.
            if len(data) == status.st_size:
                break
        return data, status
    finally:
        os.close(handle)


def read_regular(path: str, limit: int) -> bytes | None:
    """The bytes of a file, as ``read_with_status`` has them. Raises OSError, for a link too."""
    read = read_with_status(path, limit)
    return None if read is None else read[0]


def read_small(path: str, limit: int = LARGEST_NOTES) -> bytes | None:
    """Read a regular file of at most ``limit`` bytes; None for anything else."""
    with contextlib.suppress(OSError):
        read = read_with_status(path, limit)
        return read[0] if read is not None and len(read[0]) <= limit else None
    return None


def load_json(file: str, limit: int = LARGEST_NOTES) -> Any:
    """Read a file of ours; None when it cannot be read, or is larger than ``limit``."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(read_small(file, limit) or b"")
    return None


def store_json(file: str, value: object) -> None:
    """Write a value aside and move it into place. Raises OSError."""
    replace_file(file, json.dumps(value, separators=(",", ":")).encode())


def replace_file(
    file: str,
    data: bytes,
    *,
    dated: int | None = None,
    aside: str | None = None,
    mode: int = PUBLIC,
    over: tuple[bytes | None, int] | None = None,
) -> bool:
    """Write a file ``aside`` and move it into place: a kill leaves the old or the new one.

    ``over`` are the bytes that it may replace, and a limit for them; returns whether it did.
    ``dated`` is when it shall seem to be from, in nanoseconds since the epoch; ``mode`` are its
    permissions, as far as the umask leaves them, and as ``share`` changes the usual ones. Raises
    OSError.
    """
    # In the same folder: only there is a move one step.
    temporary = aside or f"{file}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as opened:
            opened.write(data)
            if mode == PUBLIC:
                share(temporary, opened.fileno())
        if dated is not None:
            os.utime(temporary, ns=(dated, dated))
        if moved := over is None or read_small(file, over[1]) == over[0]:
            os.replace(temporary, file)
        else:
            os.unlink(temporary)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return moved


def share_clone(common_dir: str, setting: str | None) -> None:
    """Give files below a git directory the modes that ``core.sharedRepository`` asks for."""
    bits = 0 if setting is None else _bits_of(setting)
    if bits:
        _SHARED[common_dir] = bits
        share(os.path.join(common_dir, "gitlease"))
    else:
        _SHARED.pop(common_dir, None)


def _bits_of(setting: str) -> int:
    word = setting.lower()
    if word in ("group", "true", "yes", "on", "1"):
        return 0o660
    if word in ("all", "world", "everybody", "2"):
        return 0o664
    mode = int(word, 8) if re.fullmatch("[0-7]{1,5}", word) else 0
    return (mode & 0o666) | EXACT if mode & 0o600 == 0o600 else 0  # git refuses others


def shared_bits(path: str) -> int:
    """The bits that files at a path of ours have in common; 0 for none."""
    return next((bits for top, bits in _SHARED.items() if path.startswith(f"{top}/")), 0)


def share(path: str, opened: int | None = None) -> None:
    """Change the mode of a new file or folder, perhaps ``opened``, as git does for its own."""
    if not (bits := shared_bits(path)):
        return
    with contextlib.suppress(OSError):  # it is another's, who has shared it
        place = path if opened is None else opened
        before = os.stat(place).st_mode
        writable = 0o666 if before & stat.S_IWUSR else 0o444  # as git: nobody writes to an object
        mode = (0 if bits & EXACT else stat.S_IMODE(before)) | (bits & writable)
        # As git: a folder hands on its group, and whoever may read it may enter it.
        if stat.S_ISDIR(before):
            mode |= (mode & 0o444) >> 2 | stat.S_ISGID
        elif before & stat.S_IXUSR:
            mode |= (mode & 0o444) >> 2
        if mode != stat.S_IMODE(before):
            os.chmod(place, mode)


def make_folders(folder: str, mode: int = 0o777) -> None:
    """Make a folder with those above it, shared as the clone is. Raises OSError."""
    if os.path.isdir(folder):
        return
    if not os.path.isdir(above := os.path.dirname(folder)):
        make_folders(above)
    try:
        os.mkdir(folder, mode)
    # Another process has made it meanwhile.
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
    else:
        share(folder)


def drop_leftovers(folder: str) -> None:
    """Remove what killed processes left half written, and what is of use to nobody any more."""
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            age = next((a for end, a in _AGES.items() if entry.name.endswith(end)), None)
            if age is not None and now - entry.stat(follow_symlinks=False).st_mtime > age:
                os.unlink(entry.path)


class CannotKeep(Invalid):
    """Private state cannot be written."""


def cannot_keep(path: str, error: OSError) -> CannotKeep:
    """The refusal where private state cannot be written: before a change is sent, or after."""
    file = os.fsdecode(error.filename) if error.filename else path
    in_the_way = error.errno in (errno.EEXIST, errno.ENOTDIR)
    mends = hint("", "doctor", fix=True)
    if error.errno in (errno.EACCES, errno.EPERM):
        from gitlease.kernel.git.ownership import is_closed_folder

        folder = os.path.dirname(file)
        if is_closed_folder(folder):
            from gitlease.kernel.git.ownership import cannot_write

            refused = cannot_write(folder, "gitlease cannot write its state")
            return CannotKeep(refused.message, hints=refused.hints)
    return CannotKeep(
        f"gitlease cannot write its state to {file}: {error.strerror}",
        hints=(mends if in_the_way else "it needs to write below the clone's git directory",),
    )


# --- a lock between processes of one clone ----------------------------------------------------
# It only saves work: every guarantee holds without it (R19).

LOCK = "lock"  # the name of one in a folder of private state, which is held for milliseconds
PATIENCE = 2.0  # seconds for which it is waited for
POLL = 0.005  # seconds between two tries
SOFT_POLL = 0.02  # likewise for a marker: each try reads it, and asks whether its owner lives
MARKER = ".tmp"  # ends the name of the file that stands for a lock where there are no locks
# Seconds after which such a file is taken over if its owner cannot be checked, since it was on
# another host, say. The lock of an owner on this host is taken over as soon as it has died.
MARKER_LIFETIME = 60.0
# What network file systems answer that have no locks. filelock goes on by itself after ENOSYS
# alone, and then without a lifetime.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def exclusive(
    path: str, *, timeout: float, soft: bool = True, on_wait: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """Hold the lock on ``path``, or go on without it after ``timeout`` seconds (False is given).

    If the file system has no locks, a file that only one process can make stands for the lock,
    unless ``soft`` is False. ``on_wait`` is called before each further try.
    """
    lock = _acquired(path, timeout, soft, on_wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.release()


def _acquired(
    path: str, timeout: float, soft: bool, on_wait: Callable[[], None]
) -> BaseFileLock | None:
    # Imported here: it takes as long as two starts of Python, which hooks need not pay.
    from filelock import FileLock

    # filelock would make the folder, but not with the mode that the clone asks for.
    if not os.path.isdir(os.path.dirname(path)):
        return None
    # Commands of other users of a shared clone must be able to open it, too.
    mode = 0o600 | (shared_bits(path) & 0o666)

    def waited() -> bool:
        on_wait()
        return False  # True would end the wait

    terms: dict[str, Any] = {"timeout": timeout, "cancel_check": waited}
    lock: BaseFileLock = FileLock(path, mode=mode, fallback_to_soft=False)
    try:
        lock.acquire(poll_interval=POLL, **terms)
    except OSError as error:  # Timeout is one, too
        if not soft or error.errno not in NO_LOCKS:
            return None
    else:
        share(path)
        return lock
    from filelock import SoftFileLock, SoftFileLockLifetimeWarning

    # filelock warns that two processes may have the lock at once after its lifetime: they may.
    warnings.simplefilter("ignore", SoftFileLockLifetimeWarning)
    lock = SoftFileLock(f"{path}{MARKER}", mode=mode, lifetime=MARKER_LIFETIME)
    with contextlib.suppress(OSError):
        lock.acquire(poll_interval=SOFT_POLL, **terms)
        return lock
    return None


def change_kept(file: str, change: Callable[[bytes | None], bytes], limit: int) -> None:
    """Replace a file by what ``change`` makes of it, again if another writes it. Raises OSError."""
    folder = os.path.dirname(file)
    make_folders(folder)
    with alone(folder):
        drop_leftovers(folder)
        for _ in range(200):  # a network file system may fail every other time that it is read
            data = change(before := read_small(file, limit))
            if data == (before or b"") or replace_file(file, data, over=(before, limit)):
                return
    raise OSError(errno.EAGAIN, "it keeps changing, or cannot be read", file)


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Hold a folder's lock; go on without it in the end."""
    with exclusive(os.path.join(folder, LOCK), timeout=PATIENCE):
        yield


# --- notes: the small state of a clone, in one file ---------------------------------------------
# SQLite would cost a hook 5 ms, a tenth of what it takes; this costs half a millisecond.

NOTES = "notes.json"
MAIN_FILE = "main.json"  # what the default branch says of the place of the ledger
MOST_NOTES = 200  # of a kind: the newest are kept

# By key, when a note was written (in seconds since the epoch), and its JSON value.
Table = dict[str, tuple[float, Any]]


class Notes:
    """Notes in a private ``folder``, by kind. Where no file can be written they are lost."""

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, NOTES)

    def read(self) -> dict[str, Table]:
        return _tables(read_small(self._file, LARGEST_NOTES))

    def of(self, kind: str) -> Table:
        return self.read()[kind]

    def get(self, kind: str, key: str) -> Any:
        """The value of a note; None where there is none."""
        return self.of(kind).get(key, (0, None))[1]

    def put(self, kind: str, key: str, value: object, *, at: float) -> None:
        self.change(lambda tables: tables[kind].update({key: (at, value)}))

    def drop(self, kind: str, *keys: str) -> None:
        if not self.of(kind).keys().isdisjoint(keys):
            self.change(lambda tables: [tables[kind].pop(key, None) for key in keys])

    def is_due(self, kind: str, key: str, value: str = "", *, every: int, now: float) -> bool:
        """Return whether a note was not written for so many seconds; writes it now."""
        at, _ = self.of(kind).get(key, (now - every, None))
        # A note from the future, after a clock was set back, counts as old.
        if 0 <= now - at < every:
            return False
        self.put(kind, key, value, at=now)
        return True

    def change(self, change: Callable[[dict[str, Table]], object]) -> bool:
        """Change the notes, perhaps again as others write them; whether they are written now."""

        def changed(data: bytes | None) -> bytes:
            tables = _tables(data)
            change(tables)
            newest = {
                kind: dict(sorted(table.items(), key=lambda row: row[1][0])[-MOST_NOTES:])
                for kind, table in tables.items()
                if table
            }
            return json.dumps(newest).encode() if newest or data else b""

        try:
            change_kept(self._file, changed, LARGEST_NOTES)
        except OSError:
            return False
        return True


def _tables(data: bytes | None) -> dict[str, Table]:
    tables, read = defaultdict[str, Table](dict), None
    with contextlib.suppress(ValueError, RecursionError):
        read = json.loads(data or b"")
    for kind, table in read.items() if isinstance(read, dict) else ():
        for key, row in table.items() if isinstance(table, dict) else ():
            match row:
                case [int() | float() as at, value]:
                    tables[kind][key] = at, value
    return tables


def strings_in(value: object) -> list[str]:
    """The strings of a list; none of anything else."""
    return [x for x in value if isinstance(x, str)] if isinstance(value, list) else []


def notes_of(common_dir: str) -> Notes:
    """The notes of a clone, by its common git directory."""
    return Notes(os.path.join(common_dir, "gitlease"))
