"""The settings file as a commit has it: what judges others' work must not come along with it."""

from __future__ import annotations

import os
import posixpath

from gitlease.core.errors import Invalid
from gitlease.git.changes_raw import LINK
from gitlease.git.files import Unreadable
from gitlease.git.objects import BLOB, BatchObjects, TooLarge
from gitlease.git.query import GitFailed, answered, ask
from gitlease.git.repository import Repository
from gitlease.settings.file import FILE, MAX_BYTES, CommittedFile

MAX_LINKS = 5


def committed_settings(where: Repository, commit: str) -> CommittedFile:
    """The file at the root of a commit, by its full id.

    Raises Invalid for what is no regular file, is too large, or is not in these objects: what
    cannot be read is never taken for a file that is not there.
    """
    path = FILE
    for _ in range(MAX_LINKS):
        found = _entry(where, commit, path)
        if found is None and path == FILE:
            return CommittedFile(None, commit)
        if found is None:
            raise Invalid(f"{FILE} in {commit[:10]} is a link to nowhere")
        mode, data = found
        if mode != LINK:
            return CommittedFile(data, commit)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(data)))
        if path.startswith(("/", "..")) or "\0" in path:
            raise Invalid(f"{FILE} in {commit[:10]} is a link to outside of the repository")
    raise Invalid(f"{FILE} in {commit[:10]} is a link to a link, and so on")


def _entry(where: Repository, commit: str, path: str) -> tuple[str, bytes] | None:
    """The mode and the bytes of a file or link; None where there is none of that name."""
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", path)
    what = f"{FILE} in {commit[:10]} cannot be read"
    entry = os.fsdecode(answered(ask(where, *words), what))
    if not entry:
        return None
    mode, kind, rest = entry.split(" ", 2)
    if kind != "blob":
        raise Invalid(f"{FILE} in {commit[:10]} is not a regular file")
    blob = rest.partition("\t")[0]
    try:
        return mode, BatchObjects(where).read(blob, BLOB, MAX_BYTES)
    except TooLarge as large:
        raise Invalid(f"{FILE} in {commit[:10]} {large}") from None
    except Unreadable as why:
        raise GitFailed(f"{what}: it {why}") from None
