"""The changes of a push's commits, some files at a time.

One commit may change more files than fit into memory: git's output is judged as it arrives, and
none of it is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from gitlease.core.errors import Invalid
from gitlease.git.history import FORM, NO_RENAMES, Changed, read_change
from gitlease.git.repository import Pieces, Repository, ask, refusal

FILES_AT_ONCE = 10_000
SECONDS = 60.0  # for git alone, without the time of ``take``

# Regardless of the server's settings: no changes of merges, and every submodule.
_LOG = (
    *("log", "--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes"),
    *("--no-show-signature", "--no-diff-merges", *FORM, *NO_RENAMES),
)


def changes_of(
    repository: Repository, commits: Sequence[str], take: Callable[[list[Changed]], None]
) -> list[str]:
    """Pass on the changes of these commits in parts; return the merges, which are left out.

    So are those without a parent if the repository is shallow. An exception of ``take`` ends it.
    Raises Invalid if git does not answer.
    """
    has_roots = not os.path.exists(os.path.join(repository.common_dir, "shallow"))
    changes: list[Changed] = []
    left_out: list[str] = []
    line, counts = "", True  # the raw line of the file whose name comes next

    def hand_on() -> None:
        some = changes.copy()
        changes.clear()
        if some:
            take(some)

    def piece(data: bytes) -> None:
        nonlocal line, counts
        if line:
            if counts:
                try:
                    changes.append(read_change(line, iter([data])))
                except (StopIteration, ValueError, IndexError):
                    raise Invalid("git's answer about changes cannot be read") from None
            line = ""
            if len(changes) >= FILES_AT_ONCE:
                hand_on()
            return
        text = data.lstrip(b"\n").decode("ascii", "replace")
        if text.startswith(":"):
            line = text
        elif text:
            commit, *parents = text.split()
            counts = len(parents) == 1 or (not parents and has_roots)
            left_out.extend([] if counts else [commit])

    pieces = Pieces(b"\0", piece)
    said = ask(repository, *_LOG, *commits, "--", timeout=SECONDS, on_out=pieces.more)
    if said.code != 0 or said.timed_out or pieces.rest or line:
        raise refusal(said, "commits cannot be read")
    hand_on()
    return left_out
