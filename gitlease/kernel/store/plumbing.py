"""The objects and refs of a private store by git's own commands, for one command or hook.

``git cat-file`` reads all of it, one ``git hash-object`` writes the objects of a kind, and
``git update-ref`` moves refs. Each starts in a millisecond or two, and not before it is needed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping

from gitlease.kernel.git.bare import error_of
from gitlease.kernel.git.objects import Absent, PipedObjects, PipedRefs
from gitlease.kernel.git.repository import OFFLINE
from gitlease.kernel.git.run import clean_environment
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.store.object_store import New, NewObjects

LOCKED = 60  # seconds after which nobody still holds the lock of a ref


class PlumbingObjects:
    """The objects and refs of a bare repository of gitlease's own, of one format of ids."""

    def __init__(self, path: str, id_bytes: int) -> None:
        self._path, self._id_bytes = os.path.abspath(path), id_bytes
        self._environ = {**clean_environment(os.environ), **OFFLINE}
        self._piped = PipedObjects(self._path, self._environ)
        self._refs = PipedRefs(self._path, self._environ)

    def read(self, id: str, kind: str, limit: int) -> bytes:
        if len(id) != 2 * self._id_bytes:
            raise Absent
        return self._piped.read(id, kind, limit)

    def write(self, kind: str, data: bytes) -> str:
        """Add an object; return its id. Raises OSError."""
        with self.together() as new:
            return new.write(kind, data)

    @contextlib.contextmanager
    def together(self) -> Iterator[NewObjects]:
        """Add what the block writes at its end. Raises OSError."""
        yield (objects := NewObjects(self, self._id_bytes))
        self.add(objects.new)

    def ref(self, name: str) -> str | None:
        """The id that a ref has; None if there is none."""
        return self._piped.id_of(name)

    def set_refs(self, refs: Mapping[str, str | None]) -> None:
        """Have refs keep objects, and delete those with None: all or none. Raises OSError."""
        try:
            self._refs.set(refs)
        except OSError:
            # git leaves the lock of a ref behind if it is killed.
            if not drop_locks(self._path):
                raise
            self._refs.set(refs)

    def add(self, new: New) -> None:
        """Add objects by their ids. Raises OSError."""
        # Named as what git removes when it prunes.
        aside = os.path.join(self._path, "objects", f"tmp_{os.urandom(8).hex()}")
        os.mkdir(aside)
        try:
            kinds = dict.fromkeys(kind for kind, _ in new.values())
            # They do not wait for each other: the ids of all objects are known.
            writers = [self._writer(kind, new, aside) for kind in kinds]
            ended = [writer.communicate() for writer in writers]
            for kind, writer, (out, said) in zip(kinds, writers, ended, strict=True):
                ids = [id for id in new if new[id][0] == kind]
                if writer.returncode or out.decode("ascii", "replace").split() != ids:
                    raise error_of(said.decode("utf-8", "replace"), self._path)
        finally:
            drop_folder(aside)

    def _writer(self, kind: str, new: New, aside: str) -> subprocess.Popen[bytes]:
        """Start to write the objects of a kind, in their order."""
        ids = [id for id in new if new[id][0] == kind]
        for id in ids:
            with open(os.path.join(aside, id), "xb") as file:
                file.write(new[id][1])
        names = os.path.join(aside, kind)
        with open(names, "x+b") as source:
            source.write("".join(f"{id}\n" for id in ids).encode())
            source.seek(0)
            # Literally: what others pushed need not meet the checks of this git.
            git = ("git", f"--git-dir={self._path}", "hash-object", "-w", "--literally")
            try:
                return subprocess.Popen(
                    [*git, "--no-filters", "-t", kind, "--stdin-paths"],
                    cwd=aside,
                    env=self._environ,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except OSError as error:
                raise Invalid(f"git cannot be run: {error.strerror}") from None


def drop_folder(folder: str) -> None:
    """Delete a folder with its files; what cannot be deleted is left to git's next tidying."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def drop_locks(path: str) -> bool:
    """Delete what killed gits left of locks on a repository's refs; return whether there was any.

    The lock of a ref is held for milliseconds, so an old one is nobody's.
    """
    locks = (x for x in files_below(os.path.join(path, "refs")) if x.endswith(".lock"))
    return drop_old([*locks, os.path.join(path, "packed-refs.lock")], LOCKED)


def files_below(folder: str) -> Iterator[str]:
    """The files below a folder."""
    for above, _, names in os.walk(folder):
        yield from (os.path.join(above, name) for name in names)


def drop_old(files: Iterable[str], seconds: float) -> bool:
    """Delete those of some files that are older than so many seconds, if there are any."""
    found, now = False, time.time()
    for file in files:
        with contextlib.suppress(OSError):
            if now - os.lstat(file).st_mtime > seconds:
                os.unlink(file)
                found = True
    return found
