"""Which commits some ids reach and others do not, however many there are of both."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.adapters.asking import ask, is_id, refusal
from gitlease.adapters.repository import Repository

PEOPLE = "--format=%H%x00%ae%x00%ce"  # of git log: see with_people

Made = tuple[str, tuple[str, ...]]


def with_people(line: str) -> Made:
    """A commit with the addresses of its author and its committer, by a line of ``PEOPLE``."""
    commit, *people = line.split("\0")
    return commit, tuple(people)


def lines_of(text: str) -> list[str]:
    """The lines of git's answer. Not splitlines: an address may have what ends a line elsewhere."""
    return [line for line in text.split("\n") if line]


def reached(
    repository: Repository, tips: Iterable[str], kept: Iterable[str], *, most: int
) -> list[Made]:
    """The commits that ``tips`` reach and ``kept`` do not, each with its author and its committer.

    The newest first, at most so many. Ids that are unknown here are passed over. Raises Invalid
    where git does not answer.
    """
    begin = list(dict.fromkeys(x for x in tips if is_id(x)))
    if not begin:
        return []
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile("w", prefix="gitlease-", encoding="ascii") as names:
        names.write("".join(f"{x}\n" for x in begin))
        names.write("".join(f"^{x}\n" for x in sorted(set(kept)) if is_id(x)))
        names.flush()
        words = ("log", "--no-show-signature", PEOPLE, f"--max-count={most}")
        said = ask(repository, *words, "--ignore-missing", "--stdin", source=names.name)
    if said.code != 0:
        raise refusal(said, "the commits cannot be listed")
    return [with_people(line) for line in lines_of(said.out.decode("utf-8", "replace"))]
