"""The changes of commits, by git: of a hook's index, or of commits by their ids.

No connection is opened for objects that a partial clone lacks, and replacement refs are ignored:
others get the real objects.
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
from gitlease.git.repository import Repository, words_in

COMMITS_AT_ONCE = 10_000  # in one process
SECONDS = 120.0  # for one process
MAX_HEADS = 64 * 1024  # bytes of MERGE_HEAD

_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_LOG = ("--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes", "--no-show-signature")
_MERGING = "GITHEAD_"  # a variable in the hooks of a merge, with an id


def staged(repository: Repository, *, amend_of: str | None = None) -> list[Changed]:
    """The changes of the commit that is being made, by the index that git gives this process.

    For a merge, its own changes only (``merges.rule``): the rest is others' work that it brings in.
    ``amend_of`` is the commit that is being replaced, whose changes are included. Raises Invalid if
    git does not answer.
    """
    if repository.toplevel is None:
        return []
    if amend_of is None:
        bases = ["HEAD", *_merging(repository)]
    else:
        bases = _parents(repository, amend_of) or [_EMPTY_TREE[repository.object_format]]
    if len(bases) == 1:
        return list(read(_against(repository, bases[0])))
    from gitlease.git.merges.rule import merged

    if bases[0] == "HEAD":  # which may be merged under its id, too
        said = ask(repository, "rev-parse", "-q", "--verify", "HEAD")
        bases[0] = os.fsdecode(said.out).strip() if said.code == 0 else "HEAD"
    return merged(repository, bases, None)


def committed(
    repository: Repository,
    commits: Sequence[str],
    *,
    renames: bool = True,
    known: Mapping[str, list[Changed]] | None = None,
) -> dict[str, list[Changed]]:
    """The changes of each of these commits (full ids), in their order.

    Without ``renames`` a rename is a D and an A, and no contents are compared. ``known`` changes of
    commits that are not merges are taken as they are unless there may be a rename in them.

    For a merge, its own changes only (``merges.rule``); for a commit at the boundary of a shallow
    clone, none. Raises Invalid if git does not answer.
    """
    for commit in commits:
        if not is_id(commit):
            raise Invalid(f"{commit[:80]!r} is not the full id of a commit")
    found: dict[str, list[Changed]] = {commit: [] for commit in commits}
    merges: dict[str, list[str]] = {}
    cut_off = repository.shallow()
    asked = [commit for commit in found if commit not in cut_off]
    if known:
        kinds = {x: {one.kind for one in known[x]} for x in asked if x in known}
        plain = {x: known[x] for x in kinds if not {"A", "D"} <= kinds[x]}
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


def _against(repository: Repository, base: str) -> bytes:
    try:
        return differs(repository, base, None, RENAMES)
    except Invalid:
        if base != "HEAD" or ask(repository, "rev-parse", "-q", "--verify", "HEAD").code == 0:
            raise
    return differs(repository, _EMPTY_TREE[repository.object_format], None, RENAMES)  # unborn


def _logged(repository: Repository, commits: Sequence[str], *, renames: bool) -> bytes:
    for moved in (RENAMES, NO_RENAMES) if renames else (NO_RENAMES,):
        # Renames are found by comparing contents, which a partial clone may not have.
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
    if ids[0] in repository.shallow():
        return ids[:1]  # its parents are not here, and not all of its files are its change
    return ids[1:]


def _merging(repository: Repository) -> list[str]:
    # Of a merge without conflicts git tells only the hooks that it starts, by variables.
    lines = words_in(os.path.join(repository.git_dir, "MERGE_HEAD"), MAX_HEADS)
    variables = [name.removeprefix(_MERGING) for name in os.environ if name.startswith(_MERGING)]
    return [line for line in lines or sorted(variables) if is_id(line)]
