"""git's raw format of changes, separated by NULs: file names may hold any other byte."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.query import answered, ask
from gitlease.git.repository import Repository

if TYPE_CHECKING:  # hooks have no time for it
    from gitlease.core.trailers import Authorship

GITLINK, LINK = "160000", "120000"  # the modes of a submodule and of a symbolic link

# Regardless of the user's settings: every submodule counts, and names begin at the root.
FORM = (
    *("--raw", "-z", "--no-abbrev", "--no-color", "--no-relative", "-O/dev/null"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=none"),
)
# A git that knows sparse indexes would name folders, and find nothing below them.
_INDEX = ("-c", "index.sparse=false", "diff-index", "--cached", "--ita-invisible-in-index")
# Beyond so many pairs only exact renames are found: the others are a D and an A.
RENAMES, NO_RENAMES = ("-M", "-l1000"), ("--no-renames",)


@dataclass(frozen=True, slots=True)
class Changed:
    """One changed path, relative to the root, with surrogates if it is not UTF-8.

    ``kind`` is A, M, D, R, C or T as in ``git diff``, and ``old`` the source of R and C. Modes are
    git's six digits and blobs full ids (for a submodule a commit's), ``""`` for none. ``lost`` is
    the work that a merge drops here by taking another side whole: the change concerns only those
    who did that work.
    """

    path: str
    old: str | None
    kind: str
    mode_before: str
    mode_after: str
    blob_before: str
    blob_after: str
    lost: tuple[Authorship, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether it is, or was, a submodule."""
        return GITLINK in (self.mode_before, self.mode_after)


def differs(
    repository: Repository,
    base: str,
    made: str | None,
    moved: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> bytes:
    """The raw difference of a commit, or the index, from a commit or tree. Raises Invalid.

    A file that was only added with ``--intent-to-add`` does not count.
    """
    ends = (base,) if made is None else (base, made)
    how = _INDEX if made is None else ("diff-tree", "-r")
    said = ask(repository, *how, *FORM, *moved, *ends, "--", env=env)
    if said.code != 0 and not said.timed_out and moved != NO_RENAMES:
        # Renames are found by comparing contents, which a partial clone may not have.
        said = ask(repository, *how, *FORM, *NO_RENAMES, *ends, "--", env=env)
    what = "what is staged cannot be read" if made is None else "commits cannot be read"
    return answered(said, what)


def paths_between(repository: Repository, base: str, made: str) -> frozenset[str]:
    """The paths in which a commit differs from another. Raises Invalid."""
    return frozenset(x.path for x in read(differs(repository, base, made, NO_RENAMES)))


def by_commit(out: bytes) -> Iterator[tuple[str, Changed | None]]:
    """Each header of git's log, alone and then with each change of its commit.

    Without a commit the header is ``""``. Raises Invalid for malformed output.
    """
    tokens = iter(out.split(b"\0"))
    header = ""
    try:
        for token in tokens:
            token = token.lstrip(b"\n")  # never a file name: those are taken below
            if token.startswith(b":"):
                yield header, read_change(token.decode("ascii"), tokens)
            elif token:
                header = token.decode("utf-8", "replace")
                yield header, None
    except (StopIteration, RuntimeError, ValueError, IndexError):
        raise Invalid("git's answer about changes cannot be read") from None


def read(out: bytes) -> Iterator[Changed]:
    """The changes of git's raw lines."""
    for _, one in by_commit(out):
        if one is not None:
            yield one


def read_change(about: str, tokens: Iterator[bytes]) -> Changed:
    """One change by its line and the names that follow; of a merge, relative to its first parent.

    Raises StopIteration, ValueError or IndexError for malformed output.
    """
    words = about.lstrip(":").split(" ")
    parents = len(about) - len(about.lstrip(":"))
    modes, ids, letters = words[: parents + 1], words[parents + 1 : -1], words[-1]
    if len(ids) != len(modes):
        raise ValueError(about)
    # A score follows one letter; in a merge only a rename on every side counts.
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
