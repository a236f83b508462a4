"""What a commit changes, by git: of the index that a hook was given, or of commits by their ids.

No connection is opened for what a partial clone lacks, and replaced objects count as what they
are, since that is what others get.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.core.errors import Invalid
from gitlease.git.changes_raw import (
    FORM,
    NO_RENAMES,
    RENAMES,
    Changed,
    by_commit,
    differs,
    read,
)
from gitlease.git.query import answered, ask, commits_as_words, is_id, refusal
from gitlease.git.repository import Repository

COMMITS_AT_ONCE = 10_000  # of which one process tells
SECONDS = 120.0  # for so many
MAX_HEADS = 64 * 1024  # bytes of MERGE_HEAD

_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_LOG = ("--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes", "--no-show-signature")
_MERGING = "GITHEAD_"  # of the environment of what git starts within a merge, with an id


def staged(repository: Repository, *, amend_of: str | None = None) -> list[Changed]:
    """What the commit that is being made changes, by the index that git gives this process.

    Of a merge that is what it changes on its own account (``merges.rule``): the rest is the work
    of others that it brings. ``amend_of`` is the commit that is being replaced, which counts in
    full then.
    Raises Invalid where git does not answer.
    """
    if repository.toplevel is None:
        return []
    if amend_of is None:
        bases = ["HEAD", *_merging(repository)]
    else:
        bases = _parents(repository, amend_of) or [_empty_tree(repository)]
    if len(bases) == 1:
        return list(read(_against(repository, bases[0])))
    from gitlease.git.merges.rule import merged

    return merged(repository, [_named(repository, base) for base in bases], None)


def committed(
    repository: Repository,
    commits: Sequence[str],
    *,
    renames: bool = True,
    known: Mapping[str, list[Changed]] | None = None,
) -> dict[str, list[Changed]]:
    """What each of these commits (full ids) changes, in their order.

    Without ``renames`` a rename is a D and an A, and no contents are compared to find it. Of a
    commit that is ``known``, none of a merge, git is not asked where nothing can be a rename in it.

    Of a merge that is what it changes on its own account (``merges.rule``). What a commit at the
    edge of a shallow clone changes cannot be known: nothing. Raises Invalid where git does not
    answer.
    """
    for commit in commits:
        if not is_id(commit):
            raise Invalid(f"{commit[:80]!r} is not the full id of a commit")
    found: dict[str, list[Changed]] = {commit: [] for commit in commits}
    merges: dict[str, list[str]] = {}
    cut_off = shallow(repository)
    asked = [commit for commit in found if commit not in cut_off]
    if known:
        plain = {x: known[x] for x in asked if x in known and not _may_rename(known[x])}
        found |= plain
        asked = [commit for commit in asked if commit not in plain]
    for start in range(0, len(asked), COMMITS_AT_ONCE):
        chunk = asked[start : start + COMMITS_AT_ONCE]
        for ids, one in by_commit(_logged(repository, chunk, renames=renames)):
            commit, *parents = ids.split()
            if one is not None:
                found.setdefault(commit, []).append(one)
            elif len(parents) > 1:
                merges[commit] = parents
    if merges:
        from gitlease.git.merges.rule import merged

        for commit, parents in merges.items():
            found[commit] = merged(repository, parents, commit)
    return found


def _may_rename(changes: Sequence[Changed]) -> bool:
    return {"A", "D"} <= {one.kind for one in changes}


# --- asking -------------------------------------------------------------------------------------


def _against(repository: Repository, base: str) -> bytes:
    """How the index differs from a commit or tree; from nothing on an unborn branch."""
    try:
        return differs(repository, base, None, RENAMES)
    except Invalid:
        if base != "HEAD" or ask(repository, "rev-parse", "-q", "--verify", "HEAD").code == 0:
            raise
    return differs(repository, _empty_tree(repository), None, RENAMES)


def _logged(repository: Repository, commits: Sequence[str], *, renames: bool) -> bytes:
    """Raw lines of some commits; of merges only that they are some."""
    for moved in (RENAMES, NO_RENAMES) if renames else (NO_RENAMES,):
        # To see renames contents are compared, which a partial clone may not have.
        with commits_as_words(commits) as (named, source):
            words = ("log", *_LOG, *FORM, *moved, *named, "--")
            said = ask(repository, *words, timeout=SECONDS, source=source)
        if said.code == 0 or said.timed_out:
            break
    return answered(said, "commits cannot be read")


def _parents(repository: Repository, commit: str) -> list[str]:
    words = ("rev-list", "--no-walk", "--parents", "--end-of-options", commit, "--")
    said = ask(repository, *words)
    ids = os.fsdecode(said.out).split()
    if said.code != 0 or not ids:
        raise refusal(said, "the commit to amend cannot be read")
    if ids[0] in shallow(repository):
        return ids[:1]  # its parents are not here, and all of its files are not its change
    return ids[1:]


def _empty_tree(repository: Repository) -> str:
    return _EMPTY_TREE[repository.object_format]


def _merging(repository: Repository) -> list[str]:
    """The commits that are being merged into HEAD; of a merge without a conflict git tells only
    those that it starts.
    """
    lines = _lines(os.path.join(repository.git_dir, "MERGE_HEAD"), MAX_HEADS)
    told = [name.removeprefix(_MERGING) for name in os.environ if name.startswith(_MERGING)]
    return [line for line in lines or sorted(told) if is_id(line)]


def _named(repository: Repository, name: str) -> str:
    """The id of HEAD, which may be merged as well; an id is one."""
    said = ask(repository, "rev-parse", "-q", "--verify", "HEAD") if name == "HEAD" else None
    return os.fsdecode(said.out).strip() if said is not None and said.code == 0 else name


def shallow(repository: Repository) -> frozenset[str]:
    """The commits whose parents this clone was not given."""
    return frozenset(_lines(os.path.join(repository.common_dir, "shallow")))


def _lines(file: str, limit: int = -1) -> list[str]:
    try:
        with open(file, "rb") as opened:
            return opened.read(limit).decode("ascii", "replace").split()
    except OSError:
        return []
