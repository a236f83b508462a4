"""Who worked on some files on each side of a merge, since all of its sides parted.

A set of commits is a number, with one bit for each that worked on any of these files. A merge is
its maker's work where it differs from each of its parents, and where it chose: where more than one
of its sides had worked. What it only brings is not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from itertools import combinations, groupby, islice
from operator import or_

from gitlease.core.errors import TooMuch
from gitlease.core.trailers import Authorship, read_trailer
from gitlease.git.changes_raw import FORM, NO_RENAMES, by_commit
from gitlease.git.message import KEY
from gitlease.git.query import ask, refusal
from gitlease.git.repository import Repository
from gitlease.git.run import GitResult

MAX_HISTORY = 100_000  # commits since the sides parted
MAX_WORK = 10_000  # of them, those that touched what is lost
PATHS_TOLD = 64 * 1024  # characters of paths in the arguments of a process; of more, all are read
TRAILERS = 500  # of one commit that are looked at
SECONDS = 60.0  # for git alone

# Every commit, for whatever is below a merge: git leaves out sides that it takes for irrelevant.
_LOG = (
    *("-c", "trailer.separators=:", "log", "--sparse", "--full-history", "--topo-order"),
    *("--reverse", "-c", "--combined-all-paths", "--no-show-signature", "--no-notes"),
    *("--encoding=UTF-8", f"--max-count={MAX_HISTORY + 1}", *FORM, *NO_RENAMES),
    f"--format=%H %P%n%ae%n%ce%n%(trailers:key={KEY.decode()},valueonly,unfold)",
)

Names = tuple[str, ...]  # of one file: all paths that it has on any side


class MergeHistory:
    """Whose work each parent has, beyond what is common to all."""

    def __init__(
        self, parents: Sequence[str], common: Sequence[str], files: Sequence[Names]
    ) -> None:
        self._parents, self._common = parents, common
        self._works: list[Authorship] = []
        self._on = dict.fromkeys(files, 0)
        self._upto: dict[str, int] = {}  # each commit, and all that it stands on

    def lost(self, file: Names, kept: Sequence[bool]) -> tuple[Authorship, ...]:
        """Whose work on a file the sides that are not kept have, and those that are have not."""
        has, lacks = reduce(or_, (self._upto.get(x, 0) for x in self._common), 0), 0
        for parent, is_kept in zip(self._parents, kept, strict=True):
            upto = self._upto.get(parent, 0)
            has, lacks = (has | upto, lacks) if is_kept else (has, lacks | upto)
        bits = lacks & ~has & self._on[file]
        return tuple(dict.fromkeys(x for n, x in enumerate(self._works) if bits >> n & 1))

    def add(self, header: str, files: set[Names]) -> None:
        """One more commit, after those that it stands on. Raises TooMuch."""
        ids, *words = header.split("\n")
        commit, *parents = ids.split()
        sides = [self._upto.get(parent, 0) for parent in parents]
        upto = reduce(or_, sides, 0)
        if files := files | self._chosen(sides):
            if len(self._works) >= MAX_WORK:
                raise TooMuch(
                    f"a merge that gives up more than {MAX_WORK} commits cannot be judged"
                )
            bit = 1 << len(self._works)
            self._works.append(_read_work(words))
            self._on |= {file: self._on[file] | bit for file in files}
            upto |= bit
        self._upto[commit] = upto

    def _chosen(self, sides: Sequence[int]) -> set[Names]:
        """The files on which more than one side of a merge had worked."""
        pairs = [(one & ~other, other & ~one) for one, other in combinations(sides, 2)]
        return {x for x, on in self._on.items() if any(a & on and b & on for a, b in pairs)}


def newest_common(repository: Repository, commits: Sequence[str]) -> list[str]:
    """The newest commits that all of these stand on. Raises Invalid."""
    return _told(repository, "merge-base", "--all", "--octopus", *commits) if commits else []


def read_history(
    repository: Repository, parents: Sequence[str], common: Sequence[str], files: Sequence[Names]
) -> MergeHistory:
    """The history of a merge's parents beyond ``common``, what all have. Raises Invalid."""
    history = MergeHistory(parents, common, files)
    by_name = {name: file for file in files for name in file}
    if not by_name:
        return history
    # What merges since then chose from may be older.
    listed = _told(repository, "rev-list", "--boundary", *parents, "--not", *common)
    older = newest_common(repository, [x[1:] for x in listed if x.startswith("-")])
    told = list(by_name) if sum(map(len, by_name)) + len(by_name) < PATHS_TOLD else []
    words = (*_LOG, *parents, "--not", *older, "--", *told)
    env = {"GIT_LITERAL_PATHSPECS": "1"}
    out = _answer(ask(repository, *words, env=env, timeout=SECONDS))
    for number, (header, each) in enumerate(groupby(by_commit(out), lambda x: x[0])):
        if number == MAX_HISTORY:
            raise TooMuch(f"a merge of more than {MAX_HISTORY} commits cannot be judged")
        history.add(header, {by_name[x.path] for _, x in each if x and x.path in by_name})
    return history


def _told(repository: Repository, *words: str) -> list[str]:
    return os.fsdecode(_answer(ask(repository, *words), empty=1)).split()


def _answer(said: GitResult, *, empty: int = 0) -> bytes:
    """What git said; ``empty`` is its status where there is nothing to say."""
    if said.code not in (0, empty) or said.timed_out:
        raise refusal(said, "whose work a merge gives up cannot be read")
    return said.out


def _read_work(words: Sequence[str]) -> Authorship:
    author, committer, *values = words
    trailers = (read_trailer(value) for value in values if value)
    named = islice((x for x in trailers if x is not None), TRAILERS)
    return Authorship(tuple(dict.fromkeys((author, committer))), tuple(named))
