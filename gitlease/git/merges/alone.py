"""What git alone makes of the parents of a merge, in a folder beside the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.core.frozen import dataclass
from gitlease.git.changes import shallow
from gitlease.git.query import as_entry, ask, is_id, refusal
from gitlease.git.repository import Repository
from gitlease.git.run import GitResult

USAGE = 129  # git's status for an option that it does not know

_NOBODY = {
    f"GIT_{who}_{what}": text
    for who in ("AUTHOR", "COMMITTER")
    for what, text in (("NAME", "gitlease"), ("EMAIL", "gitlease"), ("DATE", "@0 +0000"))
}
_MERGE = ("merge-tree", "--write-tree", "--allow-unrelated-histories", "-z")


@dataclass(frozen=True, slots=True)
class MergedAlone:
    """The merge that git alone makes: its tree, which git finds with ``env``, and the paths that
    conflict in it.
    """

    tree: str
    conflicts: frozenset[str]
    env: Mapping[str, str]


def merged_alone(repository: Repository, parents: Sequence[str], folder: str) -> MergedAlone | None:
    """The parents merged one after the other, as git's octopus does; written to an empty folder.

    None where this git has no such command, or the repository not all that it needs. Raises Invalid
    where git fails: the rule for sides alone would let through what it cannot see.
    """
    env = _beside(repository, folder)
    current, *others = parents
    conflicts: frozenset[str] = frozenset()
    for number, other in enumerate(others, 1):
        said = ask(repository, *_MERGE, current, other, env=env)
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
    return MergedAlone(named, conflicts, env)


def _beside(repository: Repository, folder: str) -> dict[str, str]:
    """Has git write into a folder what it reads from the repository."""
    own = os.environ.get("GIT_OBJECT_DIRECTORY") or os.path.join(repository.common_dir, "objects")
    others = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    return {
        "GIT_OBJECT_DIRECTORY": folder,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (as_entry(own), others))),
        **_NOBODY,
    }


def _see_that_it_may_fail(repository: Repository, said: GitResult) -> None:
    partial = any(entry.key.endswith(".promisor") for entry in repository.config.section("remote"))
    if said.code == USAGE or partial or shallow(repository):
        return
    raise refusal(said, "a merge cannot be looked at")


def _conflicting(stages: Sequence[bytes]) -> frozenset[str]:
    """The paths of ``MODE BLOB STAGE TAB PATH``; what follows an empty entry are messages."""
    end = stages.index(b"") if b"" in stages else len(stages)
    return frozenset(os.fsdecode(entry.partition(b"\t")[2]) for entry in stages[:end])
