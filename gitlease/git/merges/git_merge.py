"""git's own merge of the parents of a merge, the same in every clone and on a server.

It merges by git's default settings and the ``.gitattributes`` of the first parent, without the
merge drivers of this clone: a server has neither them nor a work tree. All new objects are in a
folder beside the repository.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.core.frozen import dataclass, replace
from gitlease.git.query import as_entry, ask, is_id, refusal
from gitlease.git.repository import Repository
from gitlease.git.run import GitResult

USAGE = 129  # git's status for an unknown option

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
# No hook of the user's runs, and no folder is excluded.
_CHECKOUT = ("-c", "core.hooksPath=/dev/null", "-c", "core.sparseCheckout=false", "checkout", "-q")
_ATTRIBUTES = ":(glob)**/.gitattributes"


@dataclass(frozen=True, slots=True)
class GitMerge:
    """git's own merge: its tree, which git finds with ``env``, and the conflicting paths."""

    tree: str
    conflicts: frozenset[str]
    env: Mapping[str, str]


def merge_by_git(repository: Repository, parents: Sequence[str], folder: str) -> GitMerge | None:
    """Merge the parents one after the other, as git's octopus does, into an empty folder.

    None if git lacks the command, or the repository objects. Raises Invalid if git fails: the rule
    for sides alone would let through what it cannot see.
    """
    env = _beside(repository, folder)
    inner = _with_attributes(repository, parents[0], folder)
    drivers = (x.key for x in repository.config.section("merge") if x.key.endswith(".driver"))
    settings = (*_SETTINGS, *(word for x in drivers for word in ("-c", f"{x}={_AS_TEXT}")))
    current, *others = parents
    conflicts = set[str]()
    for number, other in enumerate(others, 1):
        said = ask(inner, *settings, *_MERGE, current, other, env=env)
        tree, *rest = said.out.split(b"\0")
        named = tree.decode("ascii", "replace")
        if said.code not in (0, 1) or not is_id(named):  # 1: with conflicts, which are in the tree
            _check_failure(repository, said)
            return None
        # MODE BLOB STAGE TAB PATH; after an empty entry there are messages.
        entries = rest[: rest.index(b"")] if b"" in rest else rest
        conflicts |= {os.fsdecode(entry.partition(b"\t")[2]) for entry in entries}
        if number < len(others):
            two = ("-p", current, "-p", other)
            said = ask(repository, "commit-tree", named, *two, "-m", "merged", env=env)
            current = os.fsdecode(said.out).strip()
            if said.code != 0 or not is_id(current):
                _check_failure(repository, said)
                return None
    return GitMerge(named, frozenset(conflicts), env)


def _beside(repository: Repository, folder: str) -> dict[str, str]:
    # git reads objects from the repository, and writes new ones into the folder.
    own = os.environ.get("GIT_OBJECT_DIRECTORY") or os.path.join(repository.common_dir, "objects")
    others = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    return {
        "GIT_OBJECT_DIRECTORY": folder,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (as_entry(own), others))),
        "GIT_ATTR_NOSYSTEM": "1",
        **_NOBODY,
    }


def _with_attributes(repository: Repository, commit: str, folder: str) -> Repository:
    # The repository with a work tree of only the commit's attributes.
    top = os.path.join(folder, "tree")
    os.mkdir(top)
    inner = replace(repository, toplevel=top)
    env = {"GIT_INDEX_FILE": os.path.join(folder, "index"), "GIT_LITERAL_PATHSPECS": "0"}
    ask(inner, *_CHECKOUT, commit, "--", _ATTRIBUTES, env=env)  # fails where there are none
    return inner


def _check_failure(repository: Repository, said: GitResult) -> None:
    partial = any(entry.key.endswith(".promisor") for entry in repository.config.section("remote"))
    if said.code == USAGE or partial or repository.shallow():
        return
    raise refusal(said, "a merge cannot be judged")
