"""The changes that a merge of any number of parents makes itself. One rule, file by file:

1. What git's own merge of the parents gives without a conflict is nobody's change (``git_merge``).
2. Of everything else, a file that differs from every parent is the merge's own change.
3. A file that is as some parents have it drops the work of each other side: that is a change to
   whoever did work there that no followed parent has, whichever side is "ours" (``history``).

A file is the same under every name that git sees it renamed to since the sides diverged: it is not
dropped if it is kept under another name. A parent counts once, however often it is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from gitlease.core.errors import TooMuch
from gitlease.core.frozen import dataclass, replace
from gitlease.git.changes_raw import NO_RENAMES, RENAMES, Changed, differs, read
from gitlease.git.merges.git_merge import GitMerge, merge_by_git
from gitlease.git.merges.history import MergeHistory, Names, newest_common, read_history
from gitlease.git.repository import Repository

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
            asked = alone.conflicts | {one.path for one in differing}
            if not asked:
                return []
        raw = (differs(repository, x, made, NO_RENAMES) for x in parents)
        sides = [{one.path: one for one in read(out)} for out in raw]
        if alone is None:
            asked = frozenset(path for side in sides for path in side)
        bases = newest_common(repository, parents)
        names = _names(repository, parents, bases, alone)
    files = [_file(x, sides) for x in dict.fromkeys(names.get(x, (x,)) for x in sorted(asked))]
    history = read_history(repository, parents, bases, [x.names for x in files if x.may_lose])
    return [one for file in files for one in file.changes(asked, history)]


def _names(
    repository: Repository, parents: Sequence[str], bases: Sequence[str], alone: GitMerge | None
) -> dict[str, Names]:
    # All names of each file that a side, or git's own merge, has renamed.
    found: dict[str, set[str]] = {}

    def take(old: str, new: str, env: Mapping[str, str] | None = None) -> None:
        for one in read(differs(repository, old, new, RENAMES, env)):
            if one.kind == "R" and one.old is not None:
                both = found.get(one.old, {one.old}) | found.get(one.path, {one.path})
                found.update(dict.fromkeys(both, both))

    for parent in parents:
        for base in bases:
            take(base, parent)
        if alone is not None:  # with all of its folder
            take(parent, alone.tree, alone.env)
    return {name: tuple(sorted(every)) for name, every in found.items()}


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a merge: the differences of its names from each side, and the sides that it is
    equal to.
    """

    names: Names
    differs: tuple[Mapping[str, Changed], ...]
    kept: tuple[bool, ...]

    @property
    def may_lose(self) -> bool:
        return not all(self.kept) and (any(self.kept) or len(self.names) > 1)

    def changes(self, asked: Collection[str], history: MergeHistory) -> Iterator[Changed]:
        """The merge's own changes; ``asked`` are the paths that differ from git's own merge."""
        if all(self.kept):
            return  # every side has it, under whatever name
        for name in self.names:
            each = [side[name] for side in self.differs if name in side]
            unchanged = Changed(name, None, "M", "", "", "", "")  # of a file with other names
            one = next((x for x in each if x.blob_before), each[0] if each else unchanged)
            if name not in asked and one.blob_after:
                continue
            followed = self.kept
            if each and not any(self.kept):
                followed = tuple(name not in side for side in self.differs)
                if not any(followed):
                    yield one
                    continue
            if lost := history.lost(self.names, followed):
                yield replace(one, lost=lost)


def _file(names: Names, sides: Sequence[Mapping[str, Changed]]) -> _File:
    found = tuple({name: side[name] for name in names if name in side} for side in sides)
    return _File(names, found, tuple(map(_is_kept, found)))


def _is_kept(differing: Mapping[str, Changed]) -> bool:
    # A file may be as a side has it under another name.
    changes = differing.values()
    gone = sorted((x.mode_before, x.blob_before) for x in changes if x.blob_before)
    come = sorted((x.mode_after, x.blob_after) for x in changes if x.blob_after)
    return gone == come and not any(x.blob_before and x.blob_after for x in changes)
