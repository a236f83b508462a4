"""What a commit changes, by git: of the index that a hook was given, or of commits by their ids.

Names are read between NULs and may hold anything. No connection is opened for what a partial
clone lacks, and replaced objects count as what they are, since that is what others get.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from gitlease.adapters.asking import ask, is_id, refusal
from gitlease.adapters.repository import Repository
from gitlease.domain.errors import Invalid
from gitlease.domain.frozen import dataclass

GITLINK, LINK = "160000", "120000"  # the modes of a submodule and of a symbolic link
COMMITS_AT_ONCE = 500  # ids in the arguments of one process
MAX_HEADS = 64 * 1024  # bytes of MERGE_HEAD

_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
# Whatever the user's settings say: every submodule counts, and names begin at the root.
_FORM = (
    *("--raw", "-z", "--no-abbrev", "--no-color", "--no-relative", "-O/dev/null"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=none"),
)
_INDEX = ("diff-index", "--cached", "--ita-invisible-in-index")
_LOG = ("--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes", "--no-show-signature")
# Of a merge: what differs from what git alone would have made of it (since 2.35), else what differs
# from every parent, where a choice of one side does not show.
_REMERGED, _COMBINED = ("--remerge-diff",), ("-c", "--combined-all-paths")
# Beyond so many pairs only renames without any edit are seen: the others are a D and an A.
_RENAMES, _NO_RENAMES = ("-M", "-l1000"), ("--no-renames",)


@dataclass(frozen=True, slots=True)
class Changed:
    """One path that a change touches, relative to the root, with surrogates where it is no text.

    ``kind`` is A, M, D, R, C or T as in ``git diff``, and ``old`` the source of R and C. Modes are
    git's six digits and blobs full ids (a submodule's is a commit's), ``""`` where there is none.
    """

    path: str
    old: str | None
    kind: str
    mode_before: str
    mode_after: str
    blob_before: str
    blob_after: str

    @property
    def is_folder(self) -> bool:
        """Whether it is, or was, a submodule."""
        return GITLINK in (self.mode_before, self.mode_after)


def staged(repository: Repository, *, amend_of: str | None = None) -> list[Changed]:
    """What the commit that is being made changes, by the index that git gives this process.

    Within a merge that is what differs from what git alone would make of it: the rest is the work
    of others that the merge brings. ``amend_of`` is the commit that is being replaced, which counts
    in full then.
    Raises Invalid where git does not answer.
    """
    if repository.toplevel is None:
        return []
    if amend_of is None:
        bases = ["HEAD", *_merged(repository)]
    else:
        bases = _parents(repository, amend_of) or [_empty_tree(repository)]
    if len(bases) == 1:
        return list(_read(_compared(repository, bases[0], *_RENAMES)))
    if len(bases) == 2 and (changed := _against_merge(repository, *bases)) is not None:
        return changed
    first, *more = (list(_read(_compared(repository, base, "--no-renames"))) for base in bases)
    everywhere = set[str].intersection(*({one.path for one in found} for found in more))
    return [one for one in first if one.path in everywhere]


def committed(
    repository: Repository, commits: Sequence[str], *, renames: bool = True
) -> dict[str, list[Changed]]:
    """What each of these commits (full ids) changes, in their order.

    Without ``renames`` a rename is a D and an A, and no contents are compared to find it.

    Of a merge that is what differs from what git alone makes of it. What a commit at the edge of a
    shallow clone changes cannot be known: nothing. Raises Invalid where git does not answer.
    """
    for commit in commits:
        if not is_id(commit):
            raise Invalid(f"{commit[:80]!r} is not the full id of a commit")
    found: dict[str, list[Changed]] = {commit: [] for commit in commits}
    merges: dict[str, list[str]] = {}
    cut_off = _shallow(repository)
    asked = [commit for commit in found if commit not in cut_off]
    for start in range(0, len(asked), COMMITS_AT_ONCE):
        chunk = asked[start : start + COMMITS_AT_ONCE]
        logged = _logged(repository, chunk, renames=renames)
        many = [commit for commit in _of_many(logged) if commit in found]
        if many:  # of those git makes no merge to compare with
            logged += b"\0" + _logged(repository, many, (_COMBINED,), renames=renames)
        for ids, one in _by_commit(logged):
            commit, *parents = ids.split()
            found.setdefault(commit, []).append(one)
            if len(parents) == 2:  # only of two is it known what git alone would make
                merges[commit] = parents
    for commit, (ours, theirs) in merges.items():
        changed = _against_merge(repository, ours, theirs, commit)
        found[commit] = found[commit] if changed is None else changed
    return found


# --- asking -------------------------------------------------------------------------------------


def _compared(repository: Repository, base: str, *renames: str) -> bytes:
    """How the index differs from a commit or tree, as raw lines; from nothing on an unborn branch.

    A file that is only intended to be added is not there: no commit would have it.
    """
    words = (*_INDEX, *_FORM)
    said = ask(repository, *words, *renames, base, "--")
    if said.code != 0 and not said.timed_out:
        if base == "HEAD" and ask(repository, "rev-parse", "-q", "--verify", "HEAD").code != 0:
            return _compared(repository, _empty_tree(repository), *renames)
        # To see renames contents are compared, which a partial clone may not have.
        said = ask(repository, *words, "--no-renames", base, "--")
    if said.code != 0:
        raise refusal(said, "what is staged cannot be read")
    return said.out


@dataclass(frozen=True, slots=True)
class _Merge:
    """The merge of two commits that git alone would make: its tree, and what conflicts in it.

    ``theirs`` has mode and blob of each conflicting path on the side that is merged in, None where
    that side has no such file.
    """

    tree: str
    theirs: Mapping[str, tuple[str, str] | None]

    def is_made(self, one: Changed) -> bool:
        """Whether a difference from this merge is a decision of whoever made it.

        To take what is merged in, where both sides conflict, only gives up one's own.
        """
        if one.path not in self.theirs:
            return True
        after = (one.mode_after, one.blob_after) if one.mode_after else None
        return after != self.theirs[one.path]


def _against_merge(
    repository: Repository, ours: str, theirs: str, made: str | None = None
) -> list[Changed] | None:
    """How the index, or a commit, differs from the merge that git alone would make.

    That merge is written beside the repository, and gone afterwards. None where git cannot tell.
    """
    from tempfile import TemporaryDirectory

    own = os.environ.get("GIT_OBJECT_DIRECTORY") or os.path.join(repository.common_dir, "objects")
    others = os.environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
    with TemporaryDirectory(prefix="gitlease-") as folder:
        env = {
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, (own, others))),
        }
        said = ask(repository, "merge-tree", "--write-tree", "-z", ours, theirs, env=env)
        merge = _merge(said.out)
        if said.code not in (0, 1) or merge is None:  # 1: with conflicts, which are in the tree
            return None
        words = (*_INDEX, *_FORM, *_RENAMES, merge.tree)
        if made is not None:
            words = ("diff-tree", "-r", *_FORM, *_RENAMES, merge.tree, made)
        said = ask(repository, *words, "--", env=env)
        return [one for one in _read(said.out) if merge.is_made(one)] if said.code == 0 else None


def _merge(out: bytes) -> _Merge | None:
    """The answer of ``git merge-tree -z``: the tree, then the stages of what conflicts."""
    tree, *rest = out.split(b"\0")
    conflicts: dict[str, tuple[str, str] | None] = {}
    for entry in rest:
        if not entry:
            break  # messages follow
        about, _, name = entry.partition(b"\t")
        mode, blob, stage = about.decode("ascii", "replace").split(" ")
        path = os.fsdecode(name)
        conflicts.setdefault(path, None)
        if stage == "3":
            conflicts[path] = mode, blob
    named = tree.decode("ascii", "replace")
    return _Merge(named, conflicts) if is_id(named) else None


def _logged(
    repository: Repository,
    commits: Sequence[str],
    forms: Sequence[Sequence[str]] = (_REMERGED, _COMBINED),
    *,
    renames: bool = True,
) -> bytes:
    """Raw lines of some commits; of merges only what was done in them."""
    how = _RENAMES if renames else _NO_RENAMES
    for merges, moved in (*((form, how) for form in forms), (forms[-1], _NO_RENAMES)):
        words = (*_LOG, *_FORM, *merges, *moved)  # as above
        said = ask(repository, "log", *words, *commits, "--")
        if said.code == 0 or said.timed_out:
            break
    if said.code != 0:
        raise refusal(said, "commits cannot be read")
    return said.out


def _of_many(logged: bytes) -> list[str]:
    """The merges of more than two among logged commits; paths that look so are no harm."""
    headers = map(_header, logged.split(b"\0"))
    found = (ids.split(" ") for ids in headers if ids.count(" ") >= 3)
    return [ids[0] for ids in found if all(map(is_id, ids))]


def _parents(repository: Repository, commit: str) -> list[str]:
    words = ("rev-list", "--no-walk", "--parents", "--end-of-options", commit, "--")
    said = ask(repository, *words)
    ids = os.fsdecode(said.out).split()
    if said.code != 0 or not ids:
        raise refusal(said, "the commit to amend cannot be read")
    if ids[0] in _shallow(repository):
        return ids[:1]  # its parents are not here, and all of its files are not its change
    return ids[1:]


def _empty_tree(repository: Repository) -> str:
    return _EMPTY_TREE[repository.object_format]


def _merged(repository: Repository) -> list[str]:
    """The commits that are being merged into HEAD."""
    lines = _lines(os.path.join(repository.git_dir, "MERGE_HEAD"), MAX_HEADS)
    return [line for line in lines if is_id(line)]


def _shallow(repository: Repository) -> frozenset[str]:
    """The commits whose parents this clone was not given."""
    return frozenset(_lines(os.path.join(repository.common_dir, "shallow")))


def _lines(file: str, limit: int = -1) -> list[str]:
    try:
        with open(file, "rb") as opened:
            return opened.read(limit).decode("ascii", "replace").split()
    except OSError:
        return []


# --- reading ------------------------------------------------------------------------------------


def _read(out: bytes) -> Iterator[Changed]:
    for _, one in _by_commit(out):
        yield one


def _by_commit(out: bytes) -> Iterator[tuple[str, Changed]]:
    """Every change of git's raw lines, with the ids that stand before it: a commit, its parents."""
    tokens = iter(out.split(b"\0"))
    commit = ""
    try:
        for token in tokens:
            token = token.lstrip(b"\n")  # never of a name: those are taken below
            if token.startswith(b":"):
                yield commit, _changed(token.decode("ascii"), tokens)
            elif token:
                commit = _header(token)
    except (StopIteration, RuntimeError, ValueError, IndexError):
        raise Invalid("git's answer about changes cannot be read") from None


def _header(token: bytes) -> str:
    """The ids of a commit and its parents; git warns of merges of three in front of the next."""
    return token.rpartition(b"\n")[2].decode("ascii", "replace")


def _changed(about: str, tokens: Iterator[bytes]) -> Changed:
    """One change by its line and the names that follow; of a merge as its first parent sees it."""
    words = about.lstrip(":").split(" ")
    parents = len(about) - len(about.lstrip(":"))
    modes, ids, letters = words[: parents + 1], words[parents + 1 : -1], words[-1]
    if len(ids) != len(modes):
        raise ValueError(about)
    # A score follows one letter; a move that a merge brought from one side is nobody's here.
    moved = all(letter in "RC" for letter in letters[:parents])
    kind = letters[0] if moved or letters[0] in "ADMT" else "M"  # unmerged: whatever comes of it
    paths = [os.fsdecode(next(tokens)) for _ in range(parents + 1 if parents > 1 else 1 + moved)]
    return Changed(
        path=paths[-1],
        old=paths[0] if moved else None,
        kind=kind,
        mode_before=modes[0].strip("0") and modes[0],
        mode_after=modes[-1].strip("0") and modes[-1],
        blob_before=ids[0].strip("0") and ids[0],
        blob_after=ids[-1].strip("0") and ids[-1],
    )
