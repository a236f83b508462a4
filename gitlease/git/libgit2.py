"""Imports pygit2, without what would cost time in it: certificates, and reading for ever.

pygit2 loads the system's CA certificates when it is imported: several milliseconds for every
command, and where there are none (a slim container) the import fails altogether. Only git opens
connections here. In a process of our own libgit2 is told of an empty place while it is imported;
in somebody else's, who may use pygit2 for connections, that is done only when it fails otherwise.
"""

from __future__ import annotations

import os
import sys
import zlib
from typing import TYPE_CHECKING

from gitlease.git import run
from gitlease.git.files import open_regular

if TYPE_CHECKING:
    import pygit2

_CHUNK = 16 * 1024  # of a loose object: unpacked it is a thousand times that, at most


def load_pygit2() -> None:
    """Make sure that pygit2 is imported: its first import goes through here."""
    if "pygit2" in sys.modules:
        return
    if run.is_own_process:
        _without_certificates()
        return
    try:
        import pygit2  # noqa: F401
    except Exception:
        _without_certificates()


def _without_certificates() -> None:
    import ssl

    usual = ssl.get_default_verify_paths
    nowhere = usual()._replace(cafile=None, capath="/dev")  # type: ignore[arg-type]
    ssl.get_default_verify_paths = lambda: nowhere
    try:
        import pygit2  # noqa: F401
    finally:
        ssl.get_default_verify_paths = usual


def open_bare(git_dir: str) -> pygit2.Repository | None:
    """A repository by its git directory; None for a format of objects or refs that git alone knows.

    It looks for no other repository around this one.
    """
    load_pygit2()
    import pygit2

    try:
        return pygit2.Repository(git_dir, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, KeyError, ValueError, OSError):
        return None


def object_header(repo: pygit2.Repository, oid: pygit2.Oid) -> tuple[int, int]:
    """The type and size of an object, which may be read then. Raises KeyError and GitError.

    libgit2 never comes back from a loose object that is cut short, nor from a pipe in its place, so
    its file is looked at first.
    """
    if not _is_whole(repo.path, str(oid)):
        raise KeyError(f"object {oid} is cut short")
    try:
        kind, size = repo.odb.read_header(oid)
    except (OSError, ValueError) as error:  # of a damaged repository, as if it was not there
        raise KeyError(str(error)) from None
    return int(kind), int(size)


def _is_whole(git_dir: str, oid: str) -> bool:
    objects = os.path.join(git_dir, "objects")
    if not os.path.isdir(objects):  # that of a linked worktree
        objects = os.path.join(git_dir, "..", "..", "objects")
    try:
        opened = open_regular(os.path.join(objects, oid[:2], oid[2:]))
    except FileNotFoundError:
        return True  # it is packed, or not there
    except OSError:
        return False
    if opened is None:
        return False
    stream = zlib.decompressobj()
    with opened:
        try:
            while not stream.eof and (chunk := opened.read(_CHUNK)):
                stream.decompress(chunk)
        except zlib.error:
            return False
    return stream.eof
