"""Reads git's log in one process for all commits: whose they are, and what they change.

All of it is what anyone wrote: dates may be of any time, addresses and names may hold anything.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gitlease.adapters.asking import ask, is_id, refusal
from gitlease.adapters.git import GitResult
from gitlease.adapters.repository import Repository
from gitlease.domain.errors import Invalid
from gitlease.domain.instant import LATEST, MS

SECONDS = 120.0  # for one question

# The numbers come first: no address can push them out of their place.
_HEAD = "%H%x1f%at%x1f%ct%x1f%P%x1f%ae%x1f%aE%x1f%ce%x1f%cE%x1f"
_CO_AUTHORS = "%(trailers:key=Co-authored-by,valueonly,separator=%x1e)"
_FORM = (
    *("--raw", "-z", "--no-abbrev", "--no-color", "--no-relative", "-O/dev/null", "--root"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=none"),
    *("--no-notes", "--no-show-signature", "--encoding=UTF-8"),
    f"--format={_HEAD}{_CO_AUTHORS}",
)
# What the user's settings would change otherwise, and words of paths that mean what they say.
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


class Change(NamedTuple):
    """One path that a commit changes, as one of its parents sees it; blobs are "" where none is."""

    commit: Commit
    kind: str
    old: str
    path: str
    before: str
    after: str


def read_log(repository: Repository, words: Sequence[str]) -> Iterator[Commit | Change]:
    """The commits, the newest first, each followed by what it changes. Raises Invalid."""
    said = ask(repository, *_PLAIN, "log", *_FORM, *words, timeout=SECONDS, env=PATHS)
    return read_answer(answered(said, "the commits cannot be read").out)


def answered(said: GitResult, what: str) -> GitResult:
    """What git said. Raises Invalid where it failed."""
    if said.code != 0:
        raise refusal(said, what)
    return said


def read_answer(out: bytes) -> Iterator[Commit | Change]:
    """The commits and changes of an answer of ``git log``. Raises Invalid for what is none."""
    tokens = iter(out.split(b"\0"))
    commit: Commit | None = None
    try:
        for token in tokens:
            token = token.lstrip(b"\n")  # never of a name: those are taken below
            if token.startswith(b":") and commit is not None:
                _modes, _, rest = token[1:].decode("ascii").partition(" ")
                _, before, after, kind = rest.split(" ")
                path = os.fsdecode(next(tokens))
                new = os.fsdecode(next(tokens)) if kind[0] in "RC" else path
                yield Change(commit, kind[0], path, new, _blob(before), _blob(after))
            elif token:
                commit = _commit(token)
                yield commit
    except (StopIteration, RuntimeError, ValueError, IndexError):
        raise Invalid("git's answer about commits cannot be read") from None


def _blob(oid: str) -> str:
    return oid if oid.strip("0") else ""


def _commit(token: bytes) -> Commit:
    words = token.decode("utf-8", "replace").split("\x1f", 8)
    oid, authored, committed, parents, author, usual, committer, committer_usual, others = words
    if not is_id(oid):
        raise ValueError(oid)
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
    """Milliseconds; a time that cannot be is as long ago as can be."""
    try:
        return min(max(int(text), 0) * MS, LATEST)
    except ValueError:
        return 0


def usual_addresses(repository: Repository, emails: Iterable[str]) -> dict[str, str]:
    """The address that the mailmap has for each of these: itself where it has none."""
    asked = [email for email in dict.fromkeys(emails) if _CONTACT.fullmatch(email)]
    if not asked:
        return {}
    with tempfile.TemporaryDirectory(prefix="gitlease-") as folder:
        source = _written(folder, [f"<{email}>" for email in asked])
        said = ask(repository, "check-mailmap", "--stdin", timeout=SECONDS, source=source)
    lines = answered(said, "the mailmap cannot be read").out.decode("utf-8", "replace").splitlines()
    found = dict(zip(asked, lines, strict=False))
    return {
        email: match[1] if (match := re.search(r"<([^<>]*)>$", line)) else email
        for email, line in found.items()
    }


def read_blobs(
    repository: Repository, oids: Iterable[str], *, most: int, at_once: int = 2_000
) -> Iterator[tuple[str, bytes | None]]:
    """The contents of blobs, None of what is absent or larger than ``most`` bytes.

    Two processes for each so many of them.
    """
    wanted = list(dict.fromkeys(oid for oid in oids if is_id(oid)))
    with tempfile.TemporaryDirectory(prefix="gitlease-") as folder:
        for start in range(0, len(wanted), at_once):
            chunk = wanted[start : start + at_once]
            sizes = _sizes(repository, _written(folder, chunk))
            small = [oid for oid in chunk if 0 <= sizes.get(oid, -1) <= most]
            yield from ((oid, None) for oid in chunk if oid not in set(small))
            if small:
                source = _written(folder, small)
                said = ask(repository, "cat-file", "--batch", timeout=SECONDS, source=source)
                yield from _contents(answered(said, "task files cannot be read").out)


def _written(folder: str, lines: Iterable[str]) -> str:
    name = os.path.join(folder, "asked")
    with open(name, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    return name


def _sizes(repository: Repository, source: str) -> dict[str, int]:
    """The sizes of the blobs that are there. A partial clone may not tell: then of none."""
    said = ask(repository, "cat-file", "--batch-check", timeout=SECONDS, source=source)
    found = {}
    for line in said.out.decode("ascii", "replace").splitlines():
        oid, _, rest = line.partition(" ")
        kind, _, size = rest.partition(" ")
        if kind == "blob" and size.isdigit():
            found[oid] = int(size)
    return found


def _contents(out: bytes) -> Iterator[tuple[str, bytes | None]]:
    at = 0
    while at < len(out):
        end = out.find(b"\n", at)
        oid, _, rest = out[at:end].decode("ascii", "replace").partition(" ")
        kind, _, size = rest.partition(" ")
        at = end + 1
        if kind != "blob":
            yield oid, None
            continue
        yield oid, out[at : at + int(size)]
        at += int(size) + 1
