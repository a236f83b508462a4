"""Which commits some ids reach and others do not, however many there are of both."""

from __future__ import annotations

from collections.abc import Iterable

from gitlease.adapters.asking import ask, is_id, refusal
from gitlease.adapters.repository import Repository


def reached(
    repository: Repository, tips: Iterable[str], kept: Iterable[str], *, most: int
) -> list[tuple[str, str]]:
    """The commits that ``tips`` reach and ``kept`` do not, each with its author's address.

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
        words = ("log", "--no-show-signature", "--format=%H %ae", "--ignore-missing", "--stdin")
        said = ask(repository, *words, f"--max-count={most}", source=names.name)
    if said.code != 0:
        raise refusal(said, "the commits cannot be listed")
    lines = (x.partition(" ") for x in said.out.decode("utf-8", "replace").splitlines())
    return [(commit, author) for commit, _, author in lines]
