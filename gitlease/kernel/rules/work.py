"""People's work: the trailer of a commit that names a lease, and the refs that a push moves.

A trailer reads ``F001 token=42 scope=parser``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import Lease
from gitlease.kernel.rules.resources import GLOBAL_LAYER, WHOLE, fold, parse_resource

KEY = "Gitlease"  # of the trailers
LONGEST_TRAILER = 2_000  # characters of one trailer: a path has less

_WORD = r'(?:"(?:[^"\\]|\\.)*"|\S+)'
# Compiled where they are used: a hook that only loads this has no time for it.
_TRAILER = (
    rf"(?P<what>\S.*?) token=(?P<token>[0-9]{{1,18}})(?P<more>(?: (?:scope|layer)={_WORD})*)\s*"
)
_MORE = rf" (scope|layer)=({_WORD})"


@dataclass(frozen=True)
class Named:
    """A grant that a commit names: ``token`` of a resource, of a scope of it, in one ledger.

    ``key`` is the folded resource, ``resource`` as it is written.
    """

    resource: str
    key: str
    token: int
    scope: str = WHOLE
    layer: str = GLOBAL_LAYER


@dataclass(frozen=True)
class Authorship:
    """The people of a commit: its author and committer, and the grants that it names."""

    people: tuple[str, ...] = ()
    named: tuple[Named, ...] = ()


def read_trailer(value: str) -> Named | None:
    """The grant that a trailer's value names; None if it is not such a trailer. Never raises."""
    match = re.fullmatch(_TRAILER, value.strip()) if len(value) <= LONGEST_TRAILER else None
    if match is None or not value.isprintable():
        return None
    more = {word: _plain(text) for word, text in re.findall(_MORE, match["more"])}
    try:
        key = parse_resource(match["what"]).key
    # Anybody writes trailers: what is no resource still compares as a text.
    except UsageError:
        key = fold(match["what"])
    return Named(
        resource=match["what"],
        key=key,
        token=int(match["token"]),
        scope=more.get("scope", WHOLE),
        layer=more.get("layer", GLOBAL_LAYER).lower(),
    )


def _one_word(text: str) -> str:
    plain = not any(letter.isspace() or letter in '"\\' for letter in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def trailer(lease: Lease, layer: str) -> str:
    """``F001 token=42``, with the scope and the layer if they are not the default ones."""
    words = [lease.resource.text, f"token={lease.token}"]
    words += [] if lease.scope == WHOLE else [f"scope={_one_word(lease.scope)}"]
    words += [] if layer == GLOBAL_LAYER else [f"layer={layer}"]
    return " ".join(words)


def _plain(word: str) -> str:
    if not word.startswith('"'):
        return word
    try:
        return str(json.loads(word))
    except ValueError:
        return word


class Became(Enum):
    """The fate of one ref of a push."""

    UPDATED = "updated"
    CREATED = "created"
    FORCED = "forced"  # moved to a commit that is not a descendant
    DELETED = "deleted"
    UP_TO_DATE = "up_to_date"
    REJECTED = "rejected"


@dataclass(frozen=True)
class WorkRef:
    """One ref of the remote: full name, old and new id (full, ``""`` for no ref).

    ``source`` is git's name of what is pushed; ``reason`` is git's own for a rejection.
    """

    ref: str
    source: str
    old: str
    new: str
    became: Became
    reason: str = ""

    @property
    def moves(self) -> bool:
        """Return whether a push changes it."""
        return self.became not in (Became.UP_TO_DATE, Became.REJECTED)


@dataclass(frozen=True, kw_only=True)
class WorkPush:
    """Refs to be moved by one push, run in ``folder`` of the repository that has their objects.

    ``remote`` is a name, or the ``url`` that it stands for. ``words`` are further options of git,
    ``settings`` further settings, and ``places`` tells git where its repository is. It times out
    after ``seconds``. ``again``: an earlier try may have sent the objects already. ``atomic``: all
    refs move, or none.
    """

    folder: str
    remote: str
    url: str
    refs: tuple[WorkRef, ...]
    words: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    seconds: float = 3_600.0
    again: bool = False
    atomic: bool = True

    def is_undone(self, there: Mapping[str, str]) -> bool:
        """Return whether every ref is still as it was: no part of the push was carried out."""
        moved = [x for x in self.refs if x.moves and x.old != x.new]
        return bool(moved) and all(there.get(x.ref, "") == x.old for x in moved)
