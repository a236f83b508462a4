"""What the commits of a push change, some files at a time.

One commit may change more files than there is memory for. What git says of them is judged while it
says it, and none of it is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from gitlease.core.errors import Invalid
from gitlease.git.changes_raw import FORM, NO_RENAMES, Changed, read_change
from gitlease.git.query import Pieces, ask, refusal
from gitlease.git.repository import Repository

FILES_AT_ONCE = 10_000
SECONDS = 60.0  # for git alone: what is made of its answer does not count

# Whatever the server's settings say: nothing of a merge, and every submodule.
_LOG = (
    *("log", "--no-walk=unsorted", "--root", "--format=%H %P", "--no-notes"),
    *("--no-show-signature", "--no-diff-merges", *FORM, *NO_RENAMES),
)


def changes_of(
    repository: Repository, commits: Sequence[str], take: Callable[[list[Changed]], None]
) -> list[str]:
    """Hand on what these commits change, in parts; the merges among them, which are left out.

    So are those without a parent where the repository has histories that were cut off. Whatever
    ``take`` raises ends it. Raises Invalid where git does not answer.
    """
    cut_off = os.path.exists(os.path.join(repository.common_dir, "shallow"))
    reading = _Reading(take, roots=not cut_off)
    pieces = Pieces(b"\0", reading.piece)
    said = ask(repository, *_LOG, *commits, "--", timeout=SECONDS, on_out=pieces.more)
    if said.code != 0 or said.timed_out or pieces.rest or reading.about:
        raise refusal(said, "commits cannot be read")
    reading.hand_on()
    return reading.left_out


class _Reading:
    """Reads git's raw lines piece by piece."""

    def __init__(self, take: Callable[[list[Changed]], None], *, roots: bool) -> None:
        self._take, self._roots = take, roots
        self._some: list[Changed] = []
        self.left_out: list[str] = []
        self.about = ""  # of the file whose name comes next
        self._counts = True

    def piece(self, piece: bytes) -> None:
        if self.about:
            if self._counts:
                try:
                    self._some.append(read_change(self.about, iter([piece])))
                except (StopIteration, ValueError, IndexError):
                    raise Invalid("git's answer about changes cannot be read") from None
            self.about = ""
            if len(self._some) >= FILES_AT_ONCE:
                self.hand_on()
            return
        text = piece.lstrip(b"\n").decode("ascii", "replace")
        if text.startswith(":"):
            self.about = text
        elif text:
            commit, *parents = text.split()
            self._counts = len(parents) == 1 or (not parents and self._roots)
            self.left_out += [] if self._counts else [commit]

    def hand_on(self) -> None:
        some, self._some = self._some, []
        if some:
            self._take(some)
