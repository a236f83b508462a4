"""Who worked on some files on each side of a merge, since its sides diverged.

A set of commits is an integer with one bit for each commit that worked on any of these files. A
merge is its author's work where it differs from each of its parents, and where it chose: where more
than one of its sides had worked on a file.
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

MAX_HISTORY = 100_000  # commits since the sides diverged
MAX_WORK = 10_000  # of them, those that touched a lost file
PATHS_TOLD = 64 * 1024  # characters of paths in the arguments of a process; beyond, all are read
TRAILERS = 500  # that are read of one commit
SECONDS = 60.0  # for git alone

# Every commit: git would leave out sides of a merge that it takes for irrelevant.
_LOG = (
    *("-c", "trailer.separators=:", "log", "--sparse", "--full-history", "--topo-order"),
    *("--reverse", "-c", "--combined-all-paths", "--no-show-signature", "--no-notes"),
    *("--encoding=none", f"--max-count={MAX_HISTORY + 1}", *FORM, *NO_RENAMES),
    f"--format=%H %P%n%ae%n%ce%n%(trailers:key={KEY.decode()},valueonly,unfold)",
)

Names = tuple[str, ...]  # of one file: all paths that it has on any side


class MergeHistory:
    """The work that each parent has beyond the common history."""

    def __init__(
        self, parents: Sequence[str], common: Sequence[str], files: Sequence[Names]
    ) -> None:
        self._parents, self._common = parents, common
        self._works: list[Authorship] = []
        self._on = dict.fromkeys(files, 0)
        self._upto: dict[str, int] = {}  # each commit with its ancestors

    def lost(self, file: Names, kept: Sequence[bool]) -> tuple[Authorship, ...]:
        """The work on a file that only sides that are not ``kept`` have."""
        has, lacks = reduce(or_, (self._upto.get(x, 0) for x in self._common), 0), 0
        for parent, is_kept in zip(self._parents, kept, strict=True):
            upto = self._upto.get(parent, 0)
            has, lacks = (has | upto, lacks) if is_kept else (has, lacks | upto)
        bits = lacks & ~has & self._on[file]
        return tuple(dict.fromkeys(x for n, x in enumerate(self._works) if bits >> n & 1))

    def add(self, header: str, files: set[Names]) -> None:
        """Add a commit, after its ancestors. Raises TooMuch."""
        ids, *words = header.split("\n")
        commit, *parents = ids.split()
        sides = [self._upto.get(parent, 0) for parent in parents]
        upto = reduce(or_, sides, 0)
        if files := files | self._chosen(sides):
            if len(self._works) >= MAX_WORK:
                raise TooMuch(f"a merge that drops more than {MAX_WORK} commits cannot be judged")
            bit = 1 << len(self._works)
            self._works.append(_read_work(words))
            self._on |= {file: self._on[file] | bit for file in files}
            upto |= bit
        self._upto[commit] = upto

    def _chosen(self, sides: Sequence[int]) -> set[Names]:
        # The files on which more than one side of a merge had worked.
        pairs = [(one & ~other, other & ~one) for one, other in combinations(sides, 2)]
        return {x for x, on in self._on.items() if any(a & on and b & on for a, b in pairs)}


def newest_common(repository: Repository, commits: Sequence[str]) -> list[str]:
    """The best common ancestors of all of these. Raises Invalid."""
    return _words(repository, "merge-base", "--all", "--octopus", *commits) if commits else []


def read_history(
    repository: Repository, parents: Sequence[str], common: Sequence[str], files: Sequence[Names]
) -> MergeHistory:
    """The history of a merge's parents beyond their ``common`` ancestors. Raises Invalid."""
    history = MergeHistory(parents, common, files)
    by_name = {name: file for file in files for name in file}
    if not by_name:
        return history
    # Merges since then may have chosen from older work.
    listed = _words(repository, "rev-list", "--boundary", *parents, "--not", *common)
    older = newest_common(repository, [x[1:] for x in listed if x.startswith("-")])
    paths = list(by_name) if sum(map(len, by_name)) + len(by_name) < PATHS_TOLD else []
    words = (*_LOG, *parents, "--not", *older, "--", *paths)
    env = {"GIT_LITERAL_PATHSPECS": "1"}
    out = _output(ask(repository, *words, env=env, timeout=SECONDS))
    for number, (header, each) in enumerate(groupby(by_commit(out), lambda x: x[0])):
        if number == MAX_HISTORY:
            raise TooMuch(f"a merge of more than {MAX_HISTORY} commits cannot be judged")
        history.add(header, {by_name[x.path] for _, x in each if x and x.path in by_name})
    return history


def _words(repository: Repository, *words: str) -> list[str]:
    return os.fsdecode(_output(ask(repository, *words), empty=1)).split()


def _output(result: GitResult, *, empty: int = 0) -> bytes:
    if result.code not in (0, empty) or result.timed_out:
        raise refusal(result, "the work that a merge drops cannot be read")
    return result.out


def _read_work(words: Sequence[str]) -> Authorship:
    author, committer, *values = words
    trailers = (read_trailer(value) for value in values if value)
    named = islice((x for x in trailers if x is not None), TRAILERS)
    return Authorship(tuple(dict.fromkeys((author, committer))), tuple(named))
