"""What a server's pre-receive hook is told: one line for each ref that a push would move."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gitlease.core.edge import printable
from gitlease.core.frozen import dataclass
from gitlease.core.moves.step_record import Illegal
from gitlease.core.resources.resource import LOCAL_LAYER
from gitlease.git.repository import is_id

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
