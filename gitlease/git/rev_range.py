"""The commits that some ids reach and others do not, however many there are of both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gitlease.core.lease import same_person
from gitlease.git.query import answered, ask, is_id, lines_as_input
from gitlease.git.repository import Repository

IDS_AT_ONCE = 500  # in the arguments of one process

# Not re-encoded: git would take all of a commit, ids and addresses too, for what its header says.
_FORM = ("--format=%H%x00%ct%x00%ae%x00%ce", "--encoding=none")


class RangeCommit(NamedTuple):
    """A commit of a range, with the email addresses of its author and its committer, and the
    committer's date in seconds."""

    id: str
    people: tuple[str, ...]
    recorded: int

    def is_only_by(self, holders: Sequence[str]) -> bool:
        """Whether both its author and its committer are among these."""
        return all(any(same_person(x, y) for y in holders) for x in self.people)


def rev_range(
    repository: Repository,
    tips: Iterable[str],
    kept: Iterable[str] = (),
    *,
    others: Sequence[str] = (),
    most: int,
    strict: bool = False,
) -> list[RangeCommit]:
    """The commits that ``tips`` reach and neither ``kept`` nor the refs of ``others`` do.

    The newest first, at most ``most``. ``others`` are git options that choose refs. Ids that are
    not here are skipped unless ``strict``. Raises Invalid if git does not answer.
    """
    begin = list(dict.fromkeys(x for x in tips if is_id(x)))
    if not begin:
        return []
    ends = [f"^{x}" for x in sorted(set(kept)) if is_id(x)]
    words = [*_FORM, f"--max-count={most}", *([] if strict else ["--ignore-missing"])]
    words += ["--not", *others, "--not"] if others else []
    if len(begin) + len(ends) <= IDS_AT_ONCE:
        said = ask(repository, "rev-list", *words, *begin, *ends, "--")
    else:
        with lines_as_input((*begin, *ends)) as source:
            said = ask(repository, "rev-list", *words, "--stdin", source=source)
    listed = answered(said, "what is to be pushed cannot be read").decode("utf-8", "replace")
    # Not splitlines: an address may have what ends a line elsewhere.
    found = (line.split("\0") for line in listed.split("\n"))
    return [
        RangeCommit(id, tuple(people), int(date) if date.isdecimal() else 0)
        for id, date, *people in (x for x in found if len(x) > 2)
    ]


def commit_ids(repository: Repository, names: Sequence[str]) -> list[str | None]:
    """The full ids of commits by any names that git accepts, in one process; None for no commit."""
    asked = [name for name in names if name and "\n" not in name]
    if not asked:
        return [None] * len(names)
    with lines_as_input([f"{name}^{{commit}}" for name in asked]) as source:
        said = ask(repository, "cat-file", "--batch-check", source=source)
    answers = (line.split(" ") for line in os.fsdecode(said.out).split("\n"))
    ids = [x[0] if len(x) == 3 and is_id(x[0]) and x[1] == "commit" else None for x in answers]
    found = dict(zip(asked, ids, strict=False))
    return [found.get(name) for name in names]


def in_range(
    repository: Repository, head: str, bases: Sequence[str], *, most: int
) -> tuple[tuple[str, ...], bool]:
    """The newest commits of ``head`` that no base has, the oldest first, and whether that is sure.

    In a shallow clone an old commit may look new, since the path from a base to it is missing. It
    is sure if no commit on either side is at the boundary, and all are younger than it.
    """
    rows = _rows(repository, "--topo-order", f"--max-count={most}", head, "--not", *bases)
    commits = tuple(commit for _, commit in reversed(rows))
    edge = repository.shallow()
    if not edge:
        return commits, True
    others = _rows(repository, *bases, "--not", head) if bases else []
    cut = edge & {commit for _, commit in (*rows, *others)}
    newest, ids = 0, sorted(edge)
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = ids[start : start + IDS_AT_ONCE]
        newest = max(
            [newest, *(at for at, _ in _rows(repository, "--no-walk", "--ignore-missing", *some))]
        )
    return commits, not cut and all(at > newest for at, _ in rows)


def _rows(repository: Repository, *words: str) -> list[tuple[int, str]]:
    said = ask(repository, "rev-list", "--timestamp", *words, "--")
    found = []
    listed = answered(said, "the commits of the range cannot be listed")
    for line in os.fsdecode(listed).splitlines():
        at, _, commit = line.partition(" ")
        found.append((int(at[:18]) if at[:18].isdigit() else 0, commit.strip()))
    return found
