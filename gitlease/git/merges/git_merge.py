"""What git alone makes of the parents of a merge, the same wherever it is asked.

It merges by git's own settings and by the attributes that the first parent's files give, without
the merge drivers of this clone: a server has neither them nor a work tree. All that it makes is in
a folder beside the repository.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.core.frozen import dataclass, replace
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
_SETTINGS = (
    *("-c", f"core.attributesFile={os.devnull}", "-c", "merge.default=text"),
    *("-c", "merge.renames=true", "-c", "merge.directoryRenames=conflict"),
    *("-c", "merge.renormalize=false"),
)
_AS_TEXT = "git merge-file -q --marker-size=%L %A %O %B"
_MERGE = ("merge-tree", "--write-tree", "--allow-unrelated-histories", "-z")
# No hook of the user's runs, and no folder is left out.
_CHECKOUT = ("-c", "core.hooksPath=/dev/null", "-c", "core.sparseCheckout=false", "checkout", "-q")
_ATTRIBUTES = ":(glob)**/.gitattributes"


@dataclass(frozen=True, slots=True)
class GitMerge:
    """The merge that git alone makes: its tree, which git finds with ``env``, and the paths that
    conflict in it.
    """

    tree: str
    conflicts: frozenset[str]
    env: Mapping[str, str]


def merge_by_git(repository: Repository, parents: Sequence[str], folder: str) -> GitMerge | None:
    """The parents merged one after the other, as git's octopus does; written to an empty folder.

    None where this git has no such command, or the repository not all that it needs. Raises Invalid
    where git fails: the rule for sides alone would let through what it cannot see.
    """
    env = _beside(repository, folder)
    inner = _with_attributes(repository, parents[0], folder)
    drivers = (x.key for x in repository.config.section("merge") if x.key.endswith(".driver"))
    settings = (*_SETTINGS, *(word for x in drivers for word in ("-c", f"{x}={_AS_TEXT}")))
    current, *others = parents
    conflicts: frozenset[str] = frozenset()
    for number, other in enumerate(others, 1):
        said = ask(inner, *settings, *_MERGE, current, other, env=env)
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
    return GitMerge(named, conflicts, env)


def _beside(repository: Repository, folder: str) -> dict[str, str]:
    """Has git write into a folder what it reads from the repository."""
    own = os.environ.get("GIT_OBJECT_DIRECTORY") or os.path.join(repository.common_dir, "objects")
    others = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    return {
        "GIT_OBJECT_DIRECTORY": folder,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (as_entry(own), others))),
        "GIT_ATTR_NOSYSTEM": "1",
        **_NOBODY,
    }


def _with_attributes(repository: Repository, commit: str, folder: str) -> Repository:
    """The repository as if of a commit only the attributes were checked out."""
    top = os.path.join(folder, "tree")
    os.mkdir(top)
    inner = replace(repository, toplevel=top)
    env = {"GIT_INDEX_FILE": os.path.join(folder, "index"), "GIT_LITERAL_PATHSPECS": "0"}
    ask(inner, *_CHECKOUT, commit, "--", _ATTRIBUTES, env=env)  # fails where there are none
    return inner


def _see_that_it_may_fail(repository: Repository, said: GitResult) -> None:
    partial = any(entry.key.endswith(".promisor") for entry in repository.config.section("remote"))
    if said.code == USAGE or partial or shallow(repository):
        return
    raise refusal(said, "a merge cannot be looked at")


def _conflicting(stages: Sequence[bytes]) -> frozenset[str]:
    """The paths of ``MODE BLOB STAGE TAB PATH``; what follows an empty entry are messages."""
    end = stages.index(b"") if b"" in stages else len(stages)
    return frozenset(os.fsdecode(entry.partition(b"\t")[2]) for entry in stages[:end])
