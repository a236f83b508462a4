"""Reads the settings file of a commit: the rules that judge commits must not arrive with them."""

from __future__ import annotations

import os

from gitlease.core.errors import Invalid
from gitlease.git.files import Unreadable
from gitlease.git.history import LINK
from gitlease.git.objects import BLOB, TooLarge, objects_of
from gitlease.git.repository import GitFailed, Repository, answered, ask
from gitlease.settings.schema import FILE, Found
from gitlease.settings.sources import MAX_FILE


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
    words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", FILE)
    name = f"{FILE} in {commit[:10]}"
    entry = os.fsdecode(answered(ask(where, *words), f"{name} cannot be read"))
    if not entry:
        return None
    mode, kind, rest = entry.split(" ", 2)
    if kind != "blob" or mode == LINK:  # nor is a link followed in a work tree
        raise Invalid(f"{name} is not a regular file")
    try:
        return objects_of(where).read(rest.partition("\t")[0], BLOB, MAX_FILE)
    except TooLarge as large:
        raise Invalid(f"{name} {large}") from None
    except Unreadable as why:
        raise GitFailed(f"{name} cannot be read: it {why}") from None
