"""git's raw lines of what changes: read between NULs, for names may hold anything."""

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

# Whatever the user's settings say: every submodule counts, and names begin at the root.
FORM = (
    *("--raw", "-z", "--no-abbrev", "--no-color", "--no-relative", "-O/dev/null"),
    *("--no-ext-diff", "--no-textconv", "--ignore-submodules=none"),
)
# A git that knows sparse indexes would name folders, and find nothing below them.
_INDEX = ("-c", "index.sparse=false", "diff-index", "--cached", "--ita-invisible-in-index")
# Beyond so many pairs only renames without any edit are seen: the others are a D and an A.
RENAMES, NO_RENAMES = ("-M", "-l1000"), ("--no-renames",)


@dataclass(frozen=True, slots=True)
class Changed:
    """One path that a change touches, relative to the root, with surrogates where it is no text.

    ``kind`` is A, M, D, R, C or T as in ``git diff``, and ``old`` the source of R and C. Modes are
    git's six digits and blobs full ids (a submodule's is a commit's), ``""`` where there is none.
    ``lost`` is the work that a merge gives up here by taking another side whole: it is a change to
    whoever did that work, and to nobody else.
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
    """How a commit, or the index, differs from a commit or tree, as raw lines. Raises Invalid.

    A file that is only intended to be added to the index is not there: no commit would have it.
    """
    ends = (base,) if made is None else (base, made)
    how = _INDEX if made is None else ("diff-tree", "-r")
    said = ask(repository, *how, *FORM, *moved, *ends, "--", env=env)
    if said.code != 0 and not said.timed_out and moved != NO_RENAMES:
        # To see renames contents are compared, which a partial clone may not have.
        said = ask(repository, *how, *FORM, *NO_RENAMES, *ends, "--", env=env)
    what = "what is staged cannot be read" if made is None else "commits cannot be read"
    return answered(said, what)


def by_commit(out: bytes) -> Iterator[tuple[str, Changed | None]]:
    """Every header of git's log, alone and then with each change of its commit.

    The header of a difference that is no commit's is ``""``. Raises Invalid for what git never
    says.
    """
    tokens = iter(out.split(b"\0"))
    header = ""
    try:
        for token in tokens:
            token = token.lstrip(b"\n")  # never of a name: those are taken below
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
    """One change by its line and the names that follow; of a merge as its first parent sees it.

    Raises StopIteration, ValueError or IndexError for what git never says.
    """
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
