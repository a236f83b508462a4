"""Changes one task file in place: whole or not at all, and without ever following a link.

Every folder on the way is opened by itself, so that nobody can put a link there in between. Before
that the change is kept as an intent, for a process that is killed may leave it half made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.resources import fold
from gitlease.engine.ports import Intent
from gitlease.git.files import (
    alone,
    read_with_status,
)
from gitlease.git.repository import TIMEOUT
from gitlease.git.run import run_git
from gitlease.store.records import STEP
from gitlease.store.state import Journal, JournalEntry
from gitlease.tasks.scan import MAX_BYTES, OWN, Stamp, printable, stamp_of

TRIES = 5
MAX_NAMED = 1000  # files that fit on a command line for certain

# Paths are taken literally, whatever the user's environment says.
LITERAL_PATHSPECS = {f"GIT_{kind}_PATHSPECS": "0" for kind in ("GLOB", "NOGLOB", "ICASE")}
LITERAL_PATHSPECS["GIT_LITERAL_PATHSPECS"] = "1"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A link that somebody puts at that name would be followed otherwise.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_place(root: str, file: str) -> bytes:
    """The bytes of a file that could be changed. Invalid, which names the file, where it cannot."""
    with _errors_name(file), _opened_folder(root, file) as (folder, name):
        data, _ = _read(folder, name, file)
        # The file is replaced, so its folder must be writable, whatever the file's own mode is.
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
            where = printable(os.path.dirname(file)) or "the root of the work tree"
            raise Invalid(f"{printable(file)} cannot be written: {where} is read-only")
        return data


def ask_git(git_dir: str, root: str, files: Sequence[str]) -> dict[str, Invalid]:
    """Which of the files git ignores, or has in conflict, by file. The index is only read."""
    # Without it git 2.55 starts a daemon that watches the user's files.
    where = (f"--git-dir={git_dir}", f"--work-tree={root}", "-c", "core.fsmonitor=false")
    words = ("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard", "--")
    which = files if len(files) <= MAX_NAMED else ()
    listed = run_git([*where, *words, *which], cwd=root, timeout=TIMEOUT, env=LITERAL_PATHSPECS)
    if listed.code != 0 or listed.timed_out:
        why = (listed.err.strip().splitlines() or ["no answer in time"])[0]
        raise Invalid(f"git cannot check the task files: {printable(why)}")
    # Neither cached nor listed as untracked: ignored, which git says of no file by itself.
    tags = {line[2:]: line[:1] for line in os.fsdecode(listed.out).split("\0") if line}
    alike = {fold(file): tag for file, tag in tags.items()}  # git may compose what a disk does not
    refused = {}
    for file in files:
        shown = printable(file)
        tag = tags.get(file) or alike.get(fold(file))
        if tag is None:
            refused[file] = Invalid(
                f"{shown} is ignored by git: nobody else would see an edge in it",
                hints=(f"the rule that ignores it: git check-ignore -v -- {shlex.quote(shown)}",),
            )
        elif tag == "M":
            refused[file] = Invalid(
                f"{shown} is in conflict",
                hints=(f"resolve it, and then: git add -- {shlex.quote(shown)}",),
            )
    return refused


def change_file(root: str, file: str, change: Callable[[bytes], bytes], *, aside: str) -> bool:
    """Replace a file by what ``change`` makes of its bytes; False when that is the same.

    The new file is written in the folder ``aside`` first, or beside the old one where that is
    another file system, and has the old one's permissions. Raises Invalid, which names the file.
    """
    with _errors_name(file), _opened_folder(root, file) as (folder, name):
        # An editor that saves meanwhile wins: its text is read and edited anew.
        for _ in range(TRIES):
            data, status = _read(folder, name, file)
            new = change(data)
            if new == data:
                return False
            if _replace_if_unchanged(folder, name, new, status, aside):
                return True
    raise Invalid(f"{printable(file)} keeps changing: something else is writing it")


def create_file(root: str, file: str, data: bytes) -> None:
    """Write a new file, and its folder where that is missing. Invalid, also if it is there."""
    with _errors_name(file):
        os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
        with _opened_folder(root, file) as (folder, name):
            handle = os.open(name, _NEW, 0o666, dir_fd=folder)
            try:
                with open(handle, "wb") as made:
                    made.write(data)
            # A full disk must not leave half a task that everybody reads.
            except OSError:
                os.unlink(name, dir_fd=folder)
                raise


def _replace_if_unchanged(
    folder: int, name: str, new: bytes, old: os.stat_result, aside: str
) -> bool:
    opened = os.open(aside, _FOLDER)
    try:
        return _move(opened, folder, name, new, old)
    except OSError as error:
        # A work tree may lie on another disk than the clone's private folder.
        if error.errno != errno.EXDEV:
            raise
    finally:
        os.close(opened)
    return _move(folder, folder, name, new, old)


def _move(start: int, folder: int, name: str, new: bytes, old: os.stat_result) -> bool:
    temporary = f"{OWN}{os.getpid()}.{os.urandom(4).hex()}.tmp"
    # Nobody else reads it before it has the owner and the mode of the old one.
    handle = os.open(temporary, _NEW, 0o600, dir_fd=start)
    try:
        with open(handle, "wb") as file:
            file.write(new)
            file.flush()
            with contextlib.suppress(OSError):  # root's edit of a file that is another's
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
        # What is left of the race: a change between this look and the rename is lost, as by any
        # editor.
        if _stamp(folder, name) != _whole(old):
            return False
        os.replace(temporary, name, src_dir_fd=start, dst_dir_fd=folder)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=start)


def _whole(status: os.stat_result) -> Stamp:
    return (*stamp_of(status), status.st_dev, status.st_mode)


def _stamp(folder: int, name: str) -> Stamp | None:
    try:
        return _whole(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _read(folder: int, name: str, file: str) -> tuple[bytes, os.stat_result]:
    try:
        read = read_with_status(name, MAX_BYTES, folder)
    except OSError:
        if _is_link(name, folder):
            raise Invalid(f"{printable(file)} is a symbolic link, which is never edited") from None
        raise
    if read is None:
        raise Invalid(f"{printable(file)} is not a regular file")
    if len(read[0]) > MAX_BYTES:
        raise Invalid(f"{printable(file)} is larger than {MAX_BYTES // 1024} KiB")
    return read


@contextmanager
def _errors_name(file: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Invalid(f"{printable(file)} is not there") from None
    except OSError as error:
        raise Invalid(f"{printable(file)} cannot be edited: {error.strerror}") from None


@contextmanager
def _opened_folder(root: str, file: str) -> Iterator[tuple[int, str]]:
    *folders, name = segments_of(file)
    folder = os.open(root, _FOLDER)
    try:
        for depth, part in enumerate(folders, 1):
            here = printable("/".join(folders[:depth]))
            try:
                # By the open folder above: a path from the root could lead elsewhere by now.
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except OSError:
                if _is_link(part, folder):
                    raise Invalid(
                        f"{here} is a symbolic link: its task files cannot be edited safely"
                    ) from None
                raise
            os.close(folder)
            folder = inner
            # The ledger of a submodule is another, and so are its tasks.
            if _stamp(folder, ".git") is not None:
                raise Invalid(f"{printable(file)} is in another repository, that of {here}")
        yield folder, name
    finally:
        os.close(folder)


def segments_of(file: str) -> list[str]:
    """The parts of a path relative to the root. Invalid for what leads out of the work tree."""
    parts = file.split("/")
    # Case-insensitive disks have `.GIT` for git's own folder.
    if any(p in ("", ".", "..") or "\0" in p or p.lower() == ".git" for p in parts):
        raise Invalid(f"{printable(file)} is not a file of this work tree")
    return parts


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


FORMAT = 3
OLDER = 2  # the same, where locks told who was busy with it
KEPT = 30 * 86_400 * 1_000_000_000  # nanoseconds for which an intent waits for its file
GOALS = ("held", "ended", "completed", "completed part", "retired")

_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, GitleaseError)
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class EdgeJournal:
    """The intents of a ledger, below the folder of its state."""

    def __init__(self, folder: str) -> None:
        self._journal, self._folder = Journal(folder), folder
        self._taken = set[str]()  # those that other processes left behind

    def intend(self, intent: Intent) -> None:
        """Keep an intent until it is settled. Raises Invalid if it cannot be stored."""
        try:
            # Read back before it is kept: what cannot be read again would be lost with a kill.
            if not _ID.fullmatch(intent.id) or _read_intent(_written(intent)) != intent:
                raise ValueError
        except _DAMAGE:
            why = f"the intent {printable(intent.id)} cannot be saved"
            raise Invalid(why) from None
        self._journal.put(intent.id, _written(intent))

    def settled(self, intent: Intent) -> None:
        """Remove an intent that was carried out or given up."""
        if _ID.fullmatch(intent.id):
            self._taken.discard(intent.id)
            self._journal.drop(intent.id)

    def leave(self, intent: Intent) -> None:
        """Release an intent that cannot be carried out now, for the next process to adopt."""
        self._taken.discard(intent.id)
        for entry in self._journal.entries():
            if entry.name == intent.id:
                with contextlib.suppress(Invalid):
                    self._journal.put(
                        entry.name, entry.value, abandoned=True, written=entry.written
                    )

    def left_behind(self) -> Sequence[Intent]:
        """Adopt and return the intents of dead processes, oldest first.

        Includes those that were adopted before and are not settled.
        """
        if not os.path.isdir(self._folder) or not os.listdir(self._folder):
            return ()
        with alone(os.path.dirname(self._folder)):
            entries = sorted(self._journal.entries(), key=lambda x: (x.written, x.name))
            intents = [self._adopt(x) for x in entries if not x.is_busy or x.name in self._taken]
        return [intent for intent in intents if intent is not None]

    def _adopt(self, entry: JournalEntry) -> Intent | None:
        match entry.value:
            case {"format": int() as number} if number > FORMAT:
                return None  # a newer gitlease knows what to do with it
        if time.time_ns() - entry.written < KEPT:
            with contextlib.suppress(*_DAMAGE):
                if (intent := _read_intent(entry.value)).id == entry.name:
                    self._journal.put(entry.name, entry.value, written=entry.written)
                    self._taken.add(entry.name)
                    return intent
        # Damaged, or its file did not come back for thirty days.
        self._journal.drop(entry.name)
        return None


def _written(intent: Intent) -> dict[str, Any]:
    return {"format": FORMAT, **STEP.dump(intent)}


def _read_intent(data: Any) -> Intent:
    if data["format"] not in (OLDER, FORMAT):
        raise ValueError
    intent = STEP.load(Intent, {name: data[name] for name in data if name != "format"})
    if intent.goal not in GOALS or (intent.root and not os.path.isabs(intent.root)):
        raise ValueError
    # Whatever lies in the folder is untrusted: an intent must not lead to a file outside.
    for change in intent.changes:
        segments_of(change.file)
    return intent
