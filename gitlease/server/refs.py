"""The refs of a repository on the server as they are: what a client says of them is not believed.

git itself refuses most moves of what is not as the client says, but only once its hook has agreed,
and not those beside them; and a deletion of what it does not know it carries out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.query import Pieces, ask, ask_line
from gitlease.git.repository import Repository
from gitlease.server.lines import RefMove, is_ledger

SECONDS = 60.0  # for a list of all refs

_FORM = "--format=%(refname)%00%(objectname)%00%(symref)"


@dataclass(frozen=True, slots=True)
class ServerRefs:
    """What some refs are, by their full names. ``space`` is where those of this push lie.

    ``points`` has every ref that is another's name, with that one. ``main`` is the branch that
    HEAD names, ``""`` where it names none.
    """

    ids: Mapping[str, str]
    points: Mapping[str, str]
    main: str
    space: str

    def now(self, ref: str) -> str:
        """What a ref is that the push could name, ``""`` where there is none."""
        return self.ids.get(self.space + ref, "")

    def moved(self, ref: str) -> str:
        """The full name of what moves when a push moves ``ref``."""
        return self.points.get(self.space + ref, self.space + ref)


def read_refs(
    repository: Repository, moves: Sequence[RefMove], prefixes: Sequence[str]
) -> ServerRefs:
    """The refs that these moves name, and those of ledgers. Invalid where git cannot tell."""
    parts = os.environ.get("GIT_NAMESPACE", "").split("/")
    space = "".join(f"refs/namespaces/{part}/" for part in parts if part)
    names = {space + move.ref for move in moves}
    ids: dict[str, str] = {}
    points: dict[str, str] = {}

    def take(line: bytes) -> None:
        name, oid, target = os.fsdecode(line).split("\0")
        if name in names or any(is_ledger(name, prefix) for prefix in prefixes):
            ids[name] = oid
        if target:
            points[name] = target

    lines = Pieces(b"\n", take)
    said = ask(repository, "for-each-ref", _FORM, timeout=SECONDS, on_out=lines.more)
    if said.code != 0 or said.timed_out or lines.rest:
        raise Invalid(f"git does not list the repository's refs: {said.err.strip()[:200]}")
    return ServerRefs(
        ids, points, ask_line(repository, "symbolic-ref", "-q", f"{space}HEAD"), space
    )


def heads_of(
    refs: ServerRefs, layers: Sequence[str], prefixes: Sequence[str], moves: Mapping[str, str]
) -> list[str]:
    """The commits of some layers' ledgers: as they are, and once ``moves`` of them are accepted.

    Which of the two comes to be is not known: git may move some refs of a push and not others.
    """
    heads = dict.fromkeys(
        head
        for prefix in prefixes
        for layer in layers
        for ref in (f"{prefix}/{layer}",)
        for head in (refs.now(ref), moves.get(ref, ""))
    )
    return [head for head in heads if head]
