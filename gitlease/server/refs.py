"""The refs of a push: as its hook is told of them, a line for each, and as they are on the server.

git itself refuses most moves from another old value than the client's, but only after its hook has
agreed, and not the other refs of the push; and it deletes a ref whose old object it does not have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from gitlease.core.edge import printable
from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.core.moves.step_record import Illegal
from gitlease.core.resources.resource import LOCAL_LAYER
from gitlease.git.repository import Pieces, Repository, ask, ask_line, is_id

# --- what the hook is told --------------------------------------------------------------------

MAX_INPUT = 8 * 1024 * 1024  # bytes
MAX_REFS = 50_000
MAX_LEDGERS = 64  # of one push

_LAYER = re.compile(r"[a-z0-9_-]{1,64}")
_NAMESPACE = re.compile(r"(?:refs/namespaces/[^/]+/)+")


@dataclass(frozen=True, slots=True)
class RefMove:
    """One ref of a push, with its full old and new ids, ``""`` for none.

    ``old`` is the client's word until the ref itself has been read.
    """

    ref: str
    old: str
    new: str


def read_moves(data: bytes) -> list[RefMove]:
    """Parse a hook's input. Raises Illegal for malformed lines, and more than can be judged."""
    if len(data) > MAX_INPUT or data.count(b"\n") > MAX_REFS:
        raise Illegal(
            "too-large",
            f"a push of more than {MAX_REFS} refs cannot be judged",
            hints=("push fewer refs at once",),
        )
    moves: dict[str, RefMove] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        old, _, rest = line.partition(" ")
        new, _, ref = rest.partition(" ")
        if not (is_id(old) and is_id(new) and ref):
            raise Illegal("input", f"git gave its hook a malformed line: {printable(line)}")
        if ref in moves:
            raise Illegal("input", f"the push names a ref twice: {printable(ref)}")
        moves[ref] = RefMove(ref, old.strip("0") and old, new.strip("0") and new)
    if not moves:
        raise Illegal("input", "git gave its hook no ref")
    return list(moves.values())


def is_ledger(ref: str, prefix: str) -> bool:
    """Whether a ref is among the ledgers, in any GIT_NAMESPACE and letter case."""
    bare = _NAMESPACE.sub("", ref).lower()
    return bare == prefix.lower() or bare.startswith(prefix.lower() + "/")


def layer_of(ref: str, prefix: str) -> str:
    """The layer of a ledger's ref. Raises Illegal if it does not belong there."""
    layer = ref.removeprefix(prefix + "/")
    if layer in (ref, LOCAL_LAYER) or not _LAYER.fullmatch(layer):
        raise Illegal(
            "foreign-ref",
            f"{printable(ref)} is not a ledger's ref: those are {prefix}/<layer> "
            "(a-z, 0-9, _ and -), and nothing else belongs there",
        )
    return layer


def split(moves: Sequence[RefMove], prefix: str) -> tuple[list[RefMove], list[RefMove]]:
    """The moves of ledgers, and those of work."""
    ledgers = [move for move in moves if is_ledger(move.ref, prefix)]
    if len(ledgers) > MAX_LEDGERS:
        raise Illegal("too-large", f"a push of more than {MAX_LEDGERS} ledgers cannot be judged")
    return ledgers, [move for move in moves if not is_ledger(move.ref, prefix)]


# --- what is there ----------------------------------------------------------------------------

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
