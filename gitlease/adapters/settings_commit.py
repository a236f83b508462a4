"""The settings file as a commit has it: what judges others' work must not come along with it."""

from __future__ import annotations

import os
import posixpath

from gitlease.adapters.asking import ask, refusal
from gitlease.adapters.changes import LINK
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings_file import FILE, MAX_BYTES, CommittedFile
from gitlease.domain.errors import Invalid

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
    entry = os.fsdecode(_ask(where, commit, *words))
    if not entry:
        return None
    mode, kind, rest = entry.split(" ", 2)
    if kind != "blob":
        raise Invalid(f"{FILE} in {commit[:10]} is not a regular file")
    blob = rest.partition("\t")[0]
    size = _ask(where, commit, "cat-file", "-s", blob).strip()
    if not size.isdigit() or int(size[:18]) > MAX_BYTES:
        raise Invalid(f"{FILE} in {commit[:10]} is larger than {MAX_BYTES // 1024} KiB")
    return mode, _ask(where, commit, "cat-file", "blob", blob)


def _ask(where: Repository, commit: str, *words: str) -> bytes:
    said = ask(where, *words)
    if said.code != 0:
        raise refusal(said, f"{FILE} in {commit[:10]} cannot be read")
    return said.out
