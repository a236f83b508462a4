"""What a merge of any number of parents changes on its own account. One rule, path by path:

1. What git alone makes of the parents, without a conflict, is nobody's doing; whatever differs from
   that is the merge's own.
2. Where git alone makes nothing (a conflict, or no merge at all), the merge's own is what differs
   from every parent.
3. What is as some parents have it there gives up the work of each other side: that is a change to
   whoever did the work which no parent that was followed has, whichever side is "ours".

A parent counts once, however often it is named. What git alone makes is written beside the
repository, and gone afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass, replace
from gitlease.core.trailers import Authorship, read_trailer
from gitlease.git.changes import shallow
from gitlease.git.changes_raw import (
    FORM,
    NO_RENAMES,
    RENAMES,
    Changed,
    by_commit,
    differs,
    read,
)
from gitlease.git.message import KEY
from gitlease.git.query import as_entry, ask, is_id, refusal
from gitlease.git.repository import Repository
from gitlease.git.run import GitResult

MAX_PARENTS = 100
USAGE = 129  # git's status for an option that it does not know
MAX_WORK = 10_000  # commits of one side that touched what it loses
NAMES_AT_ONCE = 64 * 1024  # characters of paths in the arguments of one process
TRAILERS = 500  # of one commit that are looked at

_WORK = f"--format=%H%n%ae%n%ce%n%(trailers:key={KEY.decode()},valueonly,unfold)"
_HISTORY = (
    *("--full-history", "-c", "--combined-all-paths", "--no-show-signature", "--no-notes"),
    *("--encoding=UTF-8", f"--max-count={MAX_WORK + 1}", _WORK),
)
_NOBODY = {
    f"GIT_{who}_{what}": text
    for who in ("AUTHOR", "COMMITTER")
    for what, text in (("NAME", "gitlease"), ("EMAIL", "gitlease"), ("DATE", "@0 +0000"))
}


def merged(
    repository: Repository, parents: Sequence[str], made: str | None, *, renames: bool = True
) -> list[Changed]:
    """What the merge of ``parents`` that is the commit ``made``, or the index, changes by itself.

    Raises Invalid for more than ``MAX_PARENTS``, and where git does not answer.
    """
    from tempfile import TemporaryDirectory

    parents = list(dict.fromkeys(parents))
    if len(parents) > MAX_PARENTS:
        raise Invalid(f"a merge of more than {MAX_PARENTS} commits cannot be looked at")
    moved = RENAMES if renames else NO_RENAMES
    if len(parents) == 1:
        return list(read(differs(repository, parents[0], made, moved)))
    with TemporaryDirectory(prefix="gitlease-") as folder:
        env = _beside(repository, folder)
        alone = _alone(repository, parents, env)
        if alone is None:
            return list(_by_sides(repository, parents, made, None))
        # Both paths of a rename need one answer, which they may not have within a conflict.
        moved = NO_RENAMES if alone.conflicts else moved
        found = read(differs(repository, alone.tree, made, moved, env))
        clean = [one for one in found if one.path not in alone.conflicts]
    if not alone.conflicts:
        return clean
    return [*clean, *_by_sides(repository, parents, made, alone.conflicts)]


# --- what git alone makes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Alone:
    """The merge that git alone would make: its tree, and the paths that conflict in it."""

    tree: str
    conflicts: frozenset[str]


def _beside(repository: Repository, folder: str) -> dict[str, str]:
    """Has git write into a folder what it reads from the repository."""
    own = os.environ.get("GIT_OBJECT_DIRECTORY") or os.path.join(repository.common_dir, "objects")
    others = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    return {
        "GIT_OBJECT_DIRECTORY": folder,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (as_entry(own), others))),
        **_NOBODY,
    }


def _alone(repository: Repository, parents: Sequence[str], env: Mapping[str, str]) -> _Alone | None:
    """The parents merged one after the other, as git's octopus does.

    None where this git has no such command, or the repository not all that it needs. Raises Invalid
    where git fails: the rule for sides alone would let through what it cannot see.
    """
    current, *others = parents
    conflicts: frozenset[str] = frozenset()
    words = ("merge-tree", "--write-tree", "--allow-unrelated-histories", "-z")
    for number, other in enumerate(others, 1):
        said = ask(repository, *words, current, other, env=env)
        tree, *rest = said.out.split(b"\0")
        named = tree.decode("ascii", "replace")
        if said.code not in (0, 1) or not is_id(named):  # 1: with conflicts, which are in the tree
            _see_that_it_may_fail(repository, said)
            return None
        conflicts |= _conflicting(rest)
        if number < len(others):
            two = ("-p", current, "-p", other)
            said = ask(repository, "commit-tree", named, *two, "-m", "merged", env=env)
            current = os.fsdecode(said.out).strip()
            if said.code != 0 or not is_id(current):
                _see_that_it_may_fail(repository, said)
                return None
    return _Alone(named, conflicts)


def _see_that_it_may_fail(repository: Repository, said: GitResult) -> None:
    partial = any(entry.key.endswith(".promisor") for entry in repository.config.section("remote"))
    if said.code == USAGE or partial or shallow(repository):
        return
    raise refusal(said, "a merge cannot be looked at")


def _conflicting(stages: Sequence[bytes]) -> frozenset[str]:
    """The paths of ``MODE BLOB STAGE TAB PATH``; what follows an empty entry are messages."""
    end = stages.index(b"") if b"" in stages else len(stages)
    return frozenset(os.fsdecode(entry.partition(b"\t")[2]) for entry in stages[:end])


# --- side by side ---------------------------------------------------------------------------------


def _by_sides(
    repository: Repository, parents: Sequence[str], made: str | None, paths: Collection[str] | None
) -> Iterator[Changed]:
    """What is no parent's, and whose work is given up where it is some parent's."""
    sides: list[dict[str, Changed]] = []
    for parent in parents:
        found = read(differs(repository, parent, made, NO_RENAMES))
        sides.append({x.path: x for x in found if paths is None or x.path in paths})
    given_up: dict[tuple[int, tuple[str, ...]], list[Changed]] = {}
    for path in dict.fromkeys(path for side in sides for path in side):
        against = [number for number, side in enumerate(sides) if path in side]
        if len(against) == len(sides):
            each = [side[path] for side in sides]
            yield next((one for one in each if one.blob_before), each[0])
            continue
        followed = tuple(x for number, x in enumerate(parents) if number not in against)
        for number in against:
            given_up.setdefault((number, followed), []).append(sides[number][path])
    for (number, followed), changes in given_up.items():
        lost = _work(repository, parents[number], followed, [one.path for one in changes])
        for one in changes:
            if one.path in lost:
                yield replace(one, lost=tuple(lost[one.path]))


def _work(
    repository: Repository, side: str, followed: Sequence[str], paths: Sequence[str]
) -> dict[str, dict[Authorship, None]]:
    """Whose work on some paths one side has and those that were followed have not."""
    found: dict[str, dict[Authorship, None]] = {}
    rest = iter(paths)
    while some := list(_as_many(rest)):
        words = (*_HISTORY, *FORM, *NO_RENAMES, side, "--not", *followed, "--", *some)
        said = ask(
            repository,
            *("-c", "trailer.separators=:", "log"),
            *words,
            env={"GIT_LITERAL_PATHSPECS": "1"},
        )
        if said.code != 0:
            raise refusal(said, "whose work a merge gives up cannot be read")
        commits, work = 0, Authorship()
        for header, one in by_commit(said.out):
            if one is None:
                commits, work = commits + 1, _read_work(header)
            else:
                found.setdefault(one.path, {})[work] = None
        if commits > MAX_WORK:
            raise Invalid(f"a merge that gives up more than {MAX_WORK} commits cannot be judged")
    return found


def _as_many(paths: Iterator[str]) -> Iterator[str]:
    """As many paths as one process takes as its arguments."""
    length = 0
    for path in paths:
        yield path
        length += len(path) + 1
        if length >= NAMES_AT_ONCE:
            return


def _read_work(header: str) -> Authorship:
    _, author, committer, *values = header.split("\n")
    trailers = (read_trailer(value) for value in values if value)
    named = islice((x for x in trailers if x is not None), TRAILERS)
    return Authorship(tuple(dict.fromkeys((author, committer))), tuple(named))
