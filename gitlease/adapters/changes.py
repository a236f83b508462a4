"""What a commit changes, by git: of the index that a hook was given, or of commits by their ids.

Names are read between NULs and may hold anything. No connection is opened for what a partial
clone lacks, and replaced objects count as what they are, since that is what others get.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from gitlease.adapters.git import GitResult, run_git
from gitlease.adapters.repository import TIMEOUT, Repository
from gitlease.domain.errors import Invalid
from gitlease.domain.frozen import dataclass

GITLINK, LINK = "160000", "120000"  # the modes of a submodule and of a symbolic link
COMMITS_AT_ONCE = 500  # ids in the arguments of one process
MAX_HEADS = 64 * 1024  # bytes of MERGE_HEAD

_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
# Whatever the user's settings say: every submodule counts, and names begin at the root.
_FORM = (
    *("--raw", "-z", "--no-abbrev", "--no-color", "--no-relative", "-O/dev/null"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=none"),
)
_LOG = (
    *("--no-walk=unsorted", "--root", "-c", "--combined-all-paths", "--format=%H"),
    *("--no-notes", "--no-show-signature"),
)
# Beyond so many pairs only renames without any edit are seen: the others are a D and an A.
_RENAMES = ("-M", "-l1000")


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

    Within a merge that is what differs from every parent: the rest is the work of others that the
    merge brings. ``amend_of`` is the commit that is being replaced, which counts in full then.
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
    first, *more = (list(_read(_compared(repository, base, "--no-renames"))) for base in bases)
    everywhere = set[str].intersection(*({one.path for one in found} for found in more))
    return [one for one in first if one.path in everywhere]


def committed(repository: Repository, commits: Sequence[str]) -> dict[str, list[Changed]]:
    """What each of these commits (full ids) changes, in their order.

    Of a merge that is what differs from every parent. What a commit at the edge of a shallow clone
    changes cannot be known: nothing. Raises Invalid where git does not answer.
    """
    for commit in commits:
        if not is_id(commit):
            raise Invalid(f"{commit[:80]!r} is not the full id of a commit")
    found: dict[str, list[Changed]] = {commit: [] for commit in commits}
    cut_off = _shallow(repository)
    asked = [commit for commit in found if commit not in cut_off]
    for start in range(0, len(asked), COMMITS_AT_ONCE):
        chunk = asked[start : start + COMMITS_AT_ONCE]
        for commit, one in _by_commit(_logged(repository, chunk)):
            found.setdefault(commit, []).append(one)
    return found


def is_id(text: str) -> bool:
    """Whether a text is the full id of an object."""
    return _ID.fullmatch(text) is not None


def ask(repository: Repository, *words: str) -> GitResult:
    """Ask git about the user's repository; a hook's own index and objects hold."""
    where = [f"--git-dir={repository.git_dir}"]
    if repository.toplevel is not None:
        where.append(f"--work-tree={repository.toplevel}")
    return run_git(
        ("--no-replace-objects", *where, *words),
        cwd=repository.toplevel or repository.git_dir,
        timeout=TIMEOUT,
        env=_OFFLINE,
        repository=True,
    )


def refusal(said: GitResult, what: str) -> Invalid:
    """``what`` git could not do, with its own reason."""
    from gitlease.adapters.edge_git import reason_of

    return Invalid(f"{what}: {reason_of(said)}")


# --- asking -------------------------------------------------------------------------------------


def _compared(repository: Repository, base: str, *renames: str) -> bytes:
    """How the index differs from a commit or tree, as raw lines; from nothing on an unborn branch.

    A file that is only intended to be added is not there: no commit would have it.
    """
    words = ("diff-index", "--cached", "--ita-invisible-in-index", *_FORM)
    said = ask(repository, *words, *renames, base, "--")
    if said.code != 0 and not said.timed_out:
        if base == "HEAD" and ask(repository, "rev-parse", "-q", "--verify", "HEAD").code != 0:
            return _compared(repository, _empty_tree(repository), *renames)
        # To see renames contents are compared, which a partial clone may not have.
        said = ask(repository, *words, "--no-renames", base, "--")
    if said.code != 0:
        raise refusal(said, "what is staged cannot be read")
    return said.out


def _logged(repository: Repository, commits: Sequence[str]) -> bytes:
    """Raw lines of some commits; of merges only what differs from every parent."""
    words = ("log", *_LOG, *_FORM)
    said = ask(repository, *words, *_RENAMES, *commits, "--")
    if said.code != 0 and not said.timed_out:
        said = ask(repository, *words, "--no-renames", *commits, "--")  # as above
    if said.code != 0:
        raise refusal(said, "commits cannot be read")
    return said.out


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
    """Every change of git's raw lines, with the id of the commit that stands before it."""
    tokens = iter(out.split(b"\0"))
    commit = ""
    try:
        for token in tokens:
            token = token.lstrip(b"\n")  # never of a name: those are taken below
            if token.startswith(b":"):
                yield commit, _changed(token.decode("ascii"), tokens)
            elif token:
                commit = token.decode("ascii")
    except (StopIteration, RuntimeError, ValueError, IndexError):
        raise Invalid("git's answer about changes cannot be read") from None


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
