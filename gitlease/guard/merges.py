"""The changes that a merge of any number of parents makes itself. One rule, file by file:

1. What git's own merge of the parents gives without a conflict is nobody's change.
2. Of everything else, a file that differs from every parent is the merge's own change.
3. A file that is as some parents have it drops the work of each other side: that is a change to
   whoever did work there that no followed parent has, whichever side is "ours".

A file is the same under every name that git sees it renamed to since the sides diverged: it is not
dropped if it is kept under another name. A parent counts once, however often it is named.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, groupby, islice
from operator import or_

from gitlease.guard.history import (
    FORM,
    NO_RENAMES,
    RENAMES,
    Changed,
    TooMuch,
    by_commit,
    differs,
    read,
)
from gitlease.kernel.git.repository import Repository, as_entry, ask, is_id
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.work import KEY, Authorship, read_trailer

# --- git's own merge --------------------------------------------------------------------------
# It is the same in every clone and on a server: by git's default settings and the
# ``.gitattributes`` of the first parent, without the merge drivers of this clone: a server has
# neither them nor a work tree. All new objects are in a folder beside the repository.

USAGE = 129  # git's status for an unknown option

# The merges in between need a commit each: of nobody, since a server has no identity.
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


@dataclass(frozen=True)
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
    # git reads objects from the repository, and writes new ones into the folder.
    home = os.environ.get("GIT_OBJECT_DIRECTORY") or os.path.join(repository.common_dir, "objects")
    others = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    env = {
        "GIT_OBJECT_DIRECTORY": folder,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (as_entry(home), others))),
        "GIT_ATTR_NOSYSTEM": "1",
        **_NOBODY,
    }
    inner = _with_attributes(repository, parents[0], folder)
    drivers = (x.key for x in repository.config.section("merge") if x.key.endswith(".driver"))
    settings = (*_SETTINGS, *(word for x in drivers for word in ("-c", f"{x}={_AS_TEXT}")))
    current, *more = parents
    conflicts = set[str]()
    for number, other in enumerate(more, 1):
        result = ask(inner, *settings, *_MERGE, current, other, env=env)
        tree, *rest = result.out.split(b"\0")
        named = tree.decode("ascii", "replace")
        # 1: with conflicts, which are in the tree.
        if result.code not in (0, 1) or not is_id(named):
            _check_failure(repository, result)
            return None
        # MODE BLOB STAGE TAB PATH; after an empty entry there are messages.
        entries = rest[: rest.index(b"")] if b"" in rest else rest
        conflicts |= {os.fsdecode(entry.partition(b"\t")[2]) for entry in entries}
        if number < len(more):
            two = ("-p", current, "-p", other)
            result = ask(repository, "commit-tree", named, *two, "-m", "merged", env=env)
            current = os.fsdecode(result.out).strip()
            if result.code != 0 or not is_id(current):
                _check_failure(repository, result)
                return None
    return GitMerge(named, frozenset(conflicts), env)


def _with_attributes(repository: Repository, commit: str, folder: str) -> Repository:
    # The repository with a work tree of only the commit's attributes.
    top = os.path.join(folder, "tree")
    os.mkdir(top)
    inner = replace(repository, toplevel=top)
    env = {"GIT_INDEX_FILE": os.path.join(folder, "index"), "GIT_LITERAL_PATHSPECS": "0"}
    ask(inner, *_CHECKOUT, commit, "--", _ATTRIBUTES, env=env)  # fails where there are none
    return inner


def _check_failure(repository: Repository, result: GitResult) -> None:
    # Objects that are not here make git fail as well; that is no reason to refuse.
    partial = any(entry.key.endswith(".promisor") for entry in repository.config.section("remote"))
    if result.code == USAGE or partial or repository.shallow():
        return
    raise result.failure("a merge cannot be judged")


# --- who worked on some files on each side ----------------------------------------------------
# A set of commits is an integer with one bit for each commit that worked on any of these files.
# A merge is its author's work where it differs from each of its parents, and where it chose: where
# more than one of its sides had worked on a file.

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
    f"--format=%H %P%n%ae%n%ce%n%(trailers:key={KEY},valueonly,unfold)",
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
        # And those on which more than one side of a merge had worked.
        pairs = [(side & ~other, other & ~side) for side, other in combinations(sides, 2)]
        files |= {x for x, on in self._on.items() if any(a & on and b & on for a, b in pairs)}
        if files:
            if len(self._works) >= MAX_WORK:
                raise TooMuch(f"a merge that drops more than {MAX_WORK} commits cannot be judged")
            bit = 1 << len(self._works)
            author, committer, *values = words
            trailers = (read_trailer(value) for value in values if value)
            named = islice((x for x in trailers if x is not None), TRAILERS)
            people = tuple(dict.fromkeys((author, committer)))
            self._works.append(Authorship(people, tuple(named)))
            self._on |= {file: self._on[file] | bit for file in files}
            upto |= bit
        self._upto[commit] = upto


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
        raise result.failure("the work that a merge drops cannot be read")
    return result.out


# --- the rule ---------------------------------------------------------------------------------

MAX_PARENTS = 100


def merged(repository: Repository, parents: Sequence[str], made: str | None) -> list[Changed]:
    """The changes that the merge of ``parents`` makes itself: the commit ``made``, or the index.

    Raises TooMuch for more than can be judged, and Invalid if git does not answer.
    """
    from tempfile import TemporaryDirectory

    parents = list(dict.fromkeys(parents))
    if len(parents) > MAX_PARENTS:
        raise TooMuch(f"a merge of more than {MAX_PARENTS} commits cannot be judged")
    if len(parents) == 1:
        return list(read(differs(repository, parents[0], made, NO_RENAMES)))
    with TemporaryDirectory(prefix="gitlease-") as folder:
        alone = merge_by_git(repository, parents, folder)
        if alone is not None:
            differing = read(differs(repository, alone.tree, made, NO_RENAMES, alone.env))
            asked = alone.conflicts | {change.path for change in differing}
            if not asked:
                return []
        raw = (differs(repository, x, made, NO_RENAMES) for x in parents)
        sides = [{change.path: change for change in read(out)} for out in raw]
        if alone is None:
            asked = frozenset(path for side in sides for path in side)
        bases = newest_common(repository, parents)
        names = _names(repository, parents, bases, alone)
    files = [_File(x, sides) for x in dict.fromkeys(names.get(x, (x,)) for x in sorted(asked))]
    history = read_history(repository, parents, bases, [x.names for x in files if x.may_lose])
    return [change for file in files for change in file.changes(asked, history)]


def _names(
    repository: Repository, parents: Sequence[str], bases: Sequence[str], alone: GitMerge | None
) -> dict[str, Names]:
    # All names of each file that a side, or git's own merge, has renamed.
    names: dict[str, set[str]] = {}

    def take(old: str, new: str, env: Mapping[str, str] | None = None) -> None:
        for change in read(differs(repository, old, new, RENAMES, env)):
            if change.kind == "R" and change.old is not None:
                both = names.get(change.old, {change.old}) | names.get(change.path, {change.path})
                names.update(dict.fromkeys(both, both))

    for parent in parents:
        for base in bases:
            take(base, parent)
        if alone is not None:  # with all of its folder
            take(parent, alone.tree, alone.env)
    return {name: tuple(sorted(every)) for name, every in names.items()}


class _File:
    """One file of a merge: how its names differ from each side, and which sides it is equal to."""

    def __init__(self, names: Names, sides: Sequence[Mapping[str, Changed]]) -> None:
        self.names = names
        self.differs = [{name: side[name] for name in names if name in side} for side in sides]
        self.kept = tuple(map(_is_kept, self.differs))
        self.may_lose = not all(self.kept) and (any(self.kept) or len(names) > 1)

    def changes(self, asked: Collection[str], history: MergeHistory) -> Iterator[Changed]:
        """The merge's own changes; ``asked`` are the paths that differ from git's own merge."""
        if all(self.kept):
            return  # every side has it, under whatever name
        for name in self.names:
            each = [side[name] for side in self.differs if name in side]
            unchanged = Changed(name, None, "M", "", "", "", "")  # of a file with other names
            change = next((x for x in each if x.blob_before), each[0] if each else unchanged)
            if name not in asked and change.blob_after:
                continue
            followed = self.kept
            if each and not any(self.kept):
                followed = tuple(name not in side for side in self.differs)
                if not any(followed):
                    yield change
                    continue
            if lost := history.lost(self.names, followed):
                yield replace(change, lost=lost)


def _is_kept(differing: Mapping[str, Changed]) -> bool:
    # A file may be as a side has it under another name.
    changes = differing.values()
    removed = sorted((x.mode_before, x.blob_before) for x in changes if x.blob_before)
    come = sorted((x.mode_after, x.blob_after) for x in changes if x.blob_after)
    return removed == come and not any(x.blob_before and x.blob_after for x in changes)
