"""git's objects, read without trusting them: their size is checked before their contents are read.

No connection is opened for objects that a partial clone lacks. ``git cat-file --batch`` knows every
format, starts in 3 ms, and reads tens of thousands of objects as fast as libgit2 would.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import stat
import subprocess
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.repository import OFFLINE, Repository, as_entry, is_id
from gitlease.kernel.rules.errors import Invalid

BLOB, TREE, COMMIT = "blob", "tree", "commit"
SHA1, SHA256 = 20, 32  # bytes of an object's id
ID_BYTES = {"sha1": SHA1, "sha256": SHA256}
FILE, EXECUTABLE, FOLDER = 0o100644, 0o100755, 0o040000  # modes of a tree's entries
ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"
DROPPED = 1024 * 1024  # bytes that are sooner read to nobody's use than another process is started

ANSWERED = 15.0  # seconds in which git answers, or goes on with its answer

_ENTRIES = rb"(?s)([0-7]{1,6}) ([^\0]*)\0(.{%d})"  # by the bytes of an id
# Until they have ended: Python might finalise the process of a reader before the reader.
_started: set[subprocess.Popen[bytes]] = set()
_KINDS = {BLOB: "file", TREE: "folder", COMMIT: "commit"}


class Absent(Unreadable):
    """This repository does not have the object, or it is damaged."""

    def __init__(self) -> None:
        super().__init__("is not in this clone, which has only a part of its objects")


class TooLarge(Unreadable):
    """The object has more bytes than are read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"is larger than {limit // 1024} KiB")


class OtherKind(Unreadable):
    """The object is no blob, or tree, or commit, as it should be."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is not a {_KINDS[kind]}")


class GitObjects(Protocol):
    """Reads objects by their full ids."""

    def read(self, id: str, kind: str, limit: int) -> bytes:
        """The bytes of an object. Raises Unreadable, as for more than ``limit`` of them."""


class WritableObjects(GitObjects, Protocol):
    """Reads and writes objects."""

    def write(self, kind: str, data: bytes) -> str:
        """Add an object; return its id."""


class PipedGit:
    """One long-running git that answers questions about a repository: ``git WORDS``.

    ``environ`` is that of the process. One thread at a time may use it, with ``_lock``.
    """

    _signal = signal.SIGKILL

    def __init__(self, git_dir: str, environ: Mapping[str, str], *words: str) -> None:
        self._git_dir, self._environ, self._words = git_dir, environ, words
        self._process: subprocess.Popen[bytes] | None = None
        self._pid, self._lock = 0, threading.RLock()
        self._ahead = bytearray()  # of its output, and not asked for yet

    def __del__(self) -> None:
        self._close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._pid != os.getpid():  # after a fork the other process goes on with the old one
            self._process, self._pid = None, os.getpid()
        if self._process is None:
            self._ahead = bytearray()
            for ended in [x for x in [*_started] if x.poll() is not None]:
                _started.discard(ended)
                with contextlib.suppress(OSError), ended:
                    pass  # its pipes are closed
            git = ("git", "--no-replace-objects", f"--git-dir={self._git_dir}")
            try:
                self._process = subprocess.Popen(
                    [*git, *self._words],
                    env=dict(self._environ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise Invalid(f"git cannot be run: {error.strerror}") from None
            _started.add(self._process)
        return self._process

    def _ask(self, question: bytes) -> bytes:
        """The first line of the answer to a question. Raises OSError."""
        process = self._running()
        if process.stdin is None:
            raise ValueError("the process has no pipes")
        process.stdin.write(question)
        process.stdin.flush()
        while (end := self._ahead.find(b"\n")) < 0:
            self._more(process)
        return self._take(process, end + 1)

    def _take(self, process: subprocess.Popen[bytes], number: int) -> bytes:
        """So many bytes of its output. Raises OSError."""
        while len(self._ahead) < number:
            self._more(process)
        taken = bytes(self._ahead[:number])
        del self._ahead[:number]
        return taken

    def _more(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            raise ValueError("the process has no pipes")
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        # git reads a pipe in the place of an object until somebody writes to it, and of a damaged
        # one it prints fewer bytes than it says.
        if not waiting.poll(ANSWERED * 1000):
            raise TimeoutError("git does not answer")
        data = os.read(process.stdout.fileno(), 65_536)
        if not data:
            raise BrokenPipeError("git has ended")
        self._ahead += data

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._pid == os.getpid():
            # Not waited for: Python drops what a signal raises meanwhile in __del__.
            process.send_signal(self._signal)


class PipedObjects(PipedGit):
    """The objects of a repository by one long-running ``git cat-file``.

    ``environ`` may name further places of objects. ``proven``: the bytes of an object have to have
    its id, or it counts as absent.
    """

    def __init__(self, git_dir: str, environ: Mapping[str, str], *, proven: bool = True) -> None:
        super().__init__(git_dir, environ, "cat-file", "--batch")
        self._proven, self._found = proven, ""

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if not is_id(id):
            raise Absent
        data = self.named(id, kind, limit)
        if self._proven and object_id(kind, data, len(id) // 2) != id:
            with self._lock:
                self._close()
            raise Absent
        return data

    def named(self, name: str, kind: str, limit: int) -> bytes:
        """The bytes of an object by a name like ``ref:path``. Raises Unreadable."""
        with self._lock:
            # git would answer twice, the second time to the next question.
            if "\n" in name:
                raise Absent
            # git ends at a damaged object. It is also killed by a signal to all that run here,
            # which says nothing of the object: another git is asked.
            for _ in range(2):
                try:
                    data = self._answer(self._running(), name, kind, limit)
                except TimeoutError:
                    self._close()
                    raise Absent from None
                except (OSError, ValueError, IndexError):
                    data = None
                except BaseException:
                    self._close()  # the rest of its output would answer a later question
                    raise
                if isinstance(data, Unreadable):
                    raise data
                if data is not None:
                    return data
                self._close()
            raise Absent

    def has(self, name: str) -> bool:
        """Return whether there is an object with a name like ``ref:path``."""
        return self.id_of(name) is not None

    def id_of(self, name: str) -> str | None:
        """The id of the object with a name like ``ref:path``; None if there is none."""
        with self._lock:
            try:
                self.named(name, TREE, 0)
            except Absent:
                return None
            except Unreadable:
                pass  # it is there
            return self._found

    def _answer(
        self, process: subprocess.Popen[bytes], name: str, kind: str, limit: int
    ) -> bytes | Unreadable | None:
        line = os.fsdecode(self._ask(os.fsencode(name) + b"\n")).rstrip("\n")
        if line == f"{name} missing":
            return Absent()
        self._found, type, number = line.split(" ")
        size = int(number)
        # The answer to a question that was broken off: the process is out of step.
        if is_id(name) and self._found != name:
            return None
        try:
            check_object(type == kind, size, kind, limit)
        except Unreadable as why:
            if size > DROPPED:
                self._close()
            else:
                self._take(process, size + 1)
            return why
        return self._take(process, size + 1)[:-1]


class PipedRefs(PipedGit):
    """Moves the refs of a repository of gitlease's own by one long-running ``git update-ref``."""

    _signal = signal.SIGTERM  # upon which it deletes its locks

    def __init__(self, git_dir: str, environ: Mapping[str, str]) -> None:
        no_hooks = ("-c", "core.hooksPath=/dev/null")
        super().__init__(git_dir, environ, *no_hooks, "update-ref", "--stdin")

    def set(self, refs: Mapping[str, str | None]) -> None:
        """Have refs name an object, and delete those with None: all or none. Raises OSError."""
        lines = [f"update {x} {id}" if id else f"delete {x}" for x, id in refs.items()]
        with self._lock:
            for is_last in (False, True):
                try:
                    self._command("start")
                    self._command("\n".join([*lines, "commit"]))
                    return
                except (OSError, ValueError):
                    self._close()
                    # As above: it may have been killed since the last question.
                    if is_last:
                        refused = "git cannot move the refs"
                        raise OSError(errno.EIO, refused, self._git_dir) from None
                except BaseException:
                    self._close()
                    raise

    def _command(self, words: str) -> None:
        if not self._ask(f"{words}\n".encode()).endswith(b": ok\n"):
            raise ValueError("this git answers in other words")


def objects_of(repository: Repository) -> PipedObjects:
    """The objects of the user's repository, which git believes, and so does whoever reads them.

    With those of its main branch that were fetched because this clone lacks them: read here, never
    written beside them, since that copy may be deleted.
    """
    environ = {**os.environ, **with_fetched(repository), "LC_ALL": "C"}
    return PipedObjects(repository.git_dir, environ, proven=False)  # hooks have no time for hashes


def fetched_store(repository: Repository) -> str:
    """The private repository for objects of the main branch that this clone lacks."""
    return os.path.join(repository.common_dir, "gitlease", "main.git")


def with_fetched(repository: Repository) -> dict[str, str]:
    """The variables for a git that reads offline, from those objects as well."""
    objects = os.path.join(fetched_store(repository), "objects")
    if not os.path.isdir(objects):
        return dict(OFFLINE)
    others = os.environ.get(ALTERNATES)
    return {**OFFLINE, ALTERNATES: ":".join(filter(None, (others, as_entry(objects))))}


def object_id(kind: str, data: bytes, id_bytes: int) -> str:
    """The id that git gives an object. No command of git compares what it reads with it."""
    from hashlib import sha1, sha256  # OpenSSL, for which hooks have no time

    whole = b"%s %d\0%s" % (kind.encode(), len(data), data)
    return (sha1(whole, usedforsecurity=False) if id_bytes == SHA1 else sha256(whole)).hexdigest()


class TreeEntry(NamedTuple):
    """An entry of a tree; a name that is not UTF-8 has surrogates in it."""

    name: str
    mode: int
    id: str

    @property
    def is_file(self) -> bool:
        """Return whether it is a plain file, which nobody may run."""
        return self.mode == FILE

    @property
    def is_folder(self) -> bool:
        return self.mode == FOLDER


def read_tree(objects: GitObjects, id: str, limit: int) -> list[TreeEntry]:
    """The entries of a tree, old modes as today's. Raises Unreadable."""
    data, entries, at = objects.read(id, TREE, limit), [], 0
    for entry in re.finditer(_ENTRIES % (len(id) // 2), data):
        if entry.start() != at:
            raise Unreadable("is malformed")
        mode, name, oid = entry.groups()
        bits = int(mode, 8)
        # git of long ago wrote modes such as 100664, too.
        usual = stat.S_IFMT(bits)
        if stat.S_ISREG(bits):
            usual = EXECUTABLE if bits & 0o100 else FILE
        entries.append(TreeEntry(os.fsdecode(name), usual, oid.hex()))
        at = entry.end()
    if at != len(data):
        raise Unreadable("is malformed")
    return entries


def tree_bytes(entries: Iterable[TreeEntry]) -> bytes:
    """The bytes of a tree, with its entries in git's order."""
    named = [(os.fsencode(x.name), x.mode, bytes.fromhex(x.id)) for x in entries]
    # git sorts a folder as if its name ended with a slash.
    named.sort(key=lambda x: x[0] + b"/" if x[1] == FOLDER else x[0])
    return b"".join([b"%o %s\0%s" % (mode, name, id) for name, mode, id in named])


def check_object(is_kind: bool, size: int, kind: str, limit: int) -> None:
    """Raise OtherKind or TooLarge for an object that is not of a kind, or larger than a limit."""
    if not is_kind:
        raise OtherKind(kind)
    if size > limit:
        raise TooLarge(limit)
