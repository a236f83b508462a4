"""Reads git's log in one process for all commits: their people, and their changes.

None of it can be trusted: dates may be of any time, addresses and names may hold anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gitlease.core.errors import Invalid
from gitlease.core.instant import LATEST, MS
from gitlease.git.changes_raw import FORM, Changed, by_commit
from gitlease.git.query import answered, ask, is_id, lines_as_input
from gitlease.git.repository import Repository

SECONDS = 120.0  # for one call of git

# Numbers come first, where no address can displace them.
_HEAD = "%H%x1f%at%x1f%ct%x1f%P%x1f%ae%x1f%aE%x1f%ce%x1f%cE%x1f"
_CO_AUTHORS = "%(trailers:key=Co-authored-by,valueonly,separator=%x1e)"
_QUIET = ("--root", "--no-notes", "--no-show-signature", "--encoding=none")
# Against settings of the user's, and with pathspecs as they are.
_PLAIN = ("-c", "log.diffMerges=separate", "-c", "log.follow=false")
PATHS = {f"GIT_{kind}_PATHSPECS": "0" for kind in ("LITERAL", "GLOB", "NOGLOB", "ICASE")}
_EMAIL = re.compile(r"<([^<>\s]+@[^<>\s]+)>")
_CONTACT = re.compile(r"[^\s<>\x00-\x1f\x7f]{1,254}")


class Commit(NamedTuple):
    """One commit: times in wall-clock milliseconds, addresses as written and by the mailmap."""

    id: str
    authored: int
    committed: int
    parents: tuple[str, ...]
    author: str
    author_usual: str
    committer: str
    committer_usual: str
    co_authors: tuple[str, ...]

    @property
    def at(self) -> int:
        return max(self.authored, self.committed)


Logged = tuple[Commit, Changed | None]


def read_log(repository: Repository, words: Sequence[str]) -> Iterator[Logged]:
    """The commits, the newest first, each alone and then with each of its changes.

    A merge has its changes relative to each parent. Raises Invalid.
    """
    form = (*FORM, *_QUIET, f"--format={_HEAD}{_CO_AUTHORS}")
    said = ask(repository, *_PLAIN, "log", *form, *words, timeout=SECONDS, env=PATHS)
    return read_answer(answered(said, "the commits cannot be read"))


def read_answer(out: bytes) -> Iterator[Logged]:
    """Parse the output of ``git log``. Raises Invalid."""
    commit: Commit | None = None
    for header, changed in by_commit(out):
        if changed is None:
            commit = _commit(header)
        if commit is None:
            raise Invalid("git's answer about commits cannot be read")
        yield commit, changed


def _commit(header: str) -> Commit:
    words = header.split("\x1f", 8)
    if len(words) != 9 or not is_id(words[0]):
        raise Invalid("git's answer about commits cannot be read")
    oid, authored, committed, parents, author, usual, committer, committer_usual, others = words
    return Commit(
        id=oid,
        authored=_time(authored),
        committed=_time(committed),
        parents=tuple(parents.split()),
        author=author,
        author_usual=usual,
        committer=committer,
        committer_usual=committer_usual,
        co_authors=tuple(_EMAIL.findall(others)[:32]),
    )


def _time(text: str) -> int:
    try:
        return min(max(int(text), 0) * MS, LATEST)
    except ValueError:
        return 0  # as long ago as possible


def usual_addresses(repository: Repository, emails: Iterable[str]) -> dict[str, str]:
    """The mailmap's address for each of these: itself if it has none."""
    asked = [email for email in dict.fromkeys(emails) if _CONTACT.fullmatch(email)]
    config = repository.config
    maps = (config.get("mailmap.file"), config.get("mailmap.blob"))
    root = repository.toplevel
    if root and not any(maps) and not os.path.lexists(os.path.join(root, ".mailmap")):
        return {email: email for email in asked}
    if not asked:
        return {}
    with lines_as_input(f"<{email}>" for email in asked) as source:
        said = ask(repository, "check-mailmap", "--stdin", timeout=SECONDS, source=source)
    lines = answered(said, "the mailmap cannot be read").decode("utf-8", "replace").splitlines()
    found = dict(zip(asked, lines, strict=False))
    return {
        email: match[1] if (match := re.search(r"<([^<>]*)>$", line)) else email
        for email, line in found.items()
    }
