"""The refs of a repository on the server as they are, not as the client says.

git itself refuses most moves from another old value than the client's, but only after its hook has
agreed, and not the other refs of the push; and it deletes a ref whose old object it does not have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.repository import Pieces, Repository, ask, ask_line
from gitlease.server.lines import RefMove, is_ledger

SECONDS = 60.0  # for a list of all refs

_FORM = "--format=%(refname)%00%(objectname)%00%(symref)"


@dataclass(frozen=True, slots=True)
class ServerRefs:
    """The ids of some refs, by their full names. ``space`` is the namespace of this push.

    ``points`` has symbolic refs with their targets. ``main`` is the branch that HEAD names, ``""``
    if none.
    """

    ids: Mapping[str, str]
    points: Mapping[str, str]
    main: str
    space: str

    def now(self, ref: str) -> str:
        """The id of a ref by the push's name for it, ``""`` if there is none."""
        return self.ids.get(self.space + ref, "")

    def moved(self, ref: str) -> str:
        """The full name of the ref that moves when a push moves ``ref``."""
        return self.points.get(self.space + ref, self.space + ref)


def read_refs(
    repository: Repository, moves: Sequence[RefMove], prefixes: Sequence[str]
) -> ServerRefs:
    """Read the refs of these moves, and those of ledgers. Raises Invalid if git does not answer."""
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
) -> list[tuple[str, str]]:
    """Some layers with the heads of their ledgers, both before and after ``moves``.

    Either may hold in the end: git may move some refs of a push and not others.
    """
    heads = dict.fromkeys(
        (layer, head)
        for prefix in prefixes
        for layer in layers
        for ref in (f"{prefix}/{layer}",)
        for head in (refs.now(ref), moves.get(ref, ""))
    )
    return [(layer, head) for layer, head in heads if head]
