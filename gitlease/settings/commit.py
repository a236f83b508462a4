"""Reads the settings file of a commit: the rules that judge commits must not arrive with them."""

from __future__ import annotations

import os
import posixpath

from gitlease.core.errors import Invalid
from gitlease.git.files import Unreadable
from gitlease.git.history import LINK
from gitlease.git.objects import BLOB, TooLarge, objects_of
from gitlease.git.repository import GitFailed, Repository, answered, ask
from gitlease.settings.schema import FILE, Found
from gitlease.settings.sources import MAX_FILE

MAX_LINKS = 5


def committed_settings(where: Repository, commit: str) -> dict[str, Found]:
    """Return the settings in the file at the root of a commit (full id), by dotted key.

    Raises Invalid, which names the commit, if the file is not a regular file, is too large, is not
    in these objects or says something wrong; {} means that there is no file.
    """
    data = _read_at_root(where, commit)
    if data is None:
        return {}
    from gitlease.settings.parse import parse_settings  # not loaded for nothing

    try:
        return parse_settings(data)
    except Invalid as error:
        raise Invalid(f"{error.message} (in {commit[:10]})", hints=error.hints) from None


def _read_at_root(where: Repository, commit: str) -> bytes | None:
    path = FILE
    for _ in range(MAX_LINKS):
        found = _mode_and_bytes(where, commit, path)
        if found is None and path == FILE:
            return None
        if found is None:
            raise Invalid(f"{FILE} in {commit[:10]} is a link to nowhere")
        mode, data = found
        if mode != LINK:
            return data
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(data)))
        if path.startswith(("/", "..")) or "\0" in path:
            raise Invalid(f"{FILE} in {commit[:10]} is a link to outside of the repository")
    raise Invalid(f"{FILE} in {commit[:10]} is a link to a link, and so on")


def _mode_and_bytes(where: Repository, commit: str, path: str) -> tuple[str, bytes] | None:
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
        return mode, objects_of(where).read(blob, BLOB, MAX_FILE)
    except TooLarge as large:
        raise Invalid(f"{FILE} in {commit[:10]} {large}") from None
    except Unreadable as why:
        raise GitFailed(f"{what}: it {why}") from None
