"""The settings file as a commit has it: what judges others' work must not come along with it."""

from __future__ import annotations

import os

from gitlease.core.errors import Invalid
from gitlease.git.changes_raw import LINK
from gitlease.git.files import Unreadable
from gitlease.git.objects import BLOB, BatchObjects, TooLarge
from gitlease.git.query import GitFailed, ask, refusal
from gitlease.git.repository import Repository
from gitlease.settings.file import FILE, MAX_BYTES, CommittedFile


def committed_settings(where: Repository, commit: str) -> CommittedFile:
    """The file at the root of a commit, by its full id.

    Raises Invalid for what is no regular file, or is too large, and GitFailed for what is not in
    these objects: what cannot be read is never taken for a file that is not there.
    """
    place = f"{FILE} in {commit[:10]}"
    said = ask(where, "ls-tree", "-z", "--full-tree", commit, "--", FILE)
    if said.code != 0:
        raise refusal(said, f"{place} cannot be read")
    entry = os.fsdecode(said.out).partition("\t")[0]
    if not entry:
        return CommittedFile(None, commit)
    mode, kind, blob = entry.split(" ")
    if kind != "blob" or mode == LINK:
        what = "a symbolic link, not a regular file" if mode == LINK else "not a regular file"
        raise Invalid(f"{place} is {what}")
    try:
        return CommittedFile(BatchObjects(where).read(blob, BLOB, MAX_BYTES), commit)
    except TooLarge as large:
        raise Invalid(f"{place} {large}") from None
    except Unreadable as why:
        raise GitFailed(f"{place} cannot be read: it {why}") from None
