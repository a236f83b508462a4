"""The trailer of a commit that names a lease, read again: ``F001 token=42 scope=parser``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import GLOBAL_LAYER, WHOLE, parse_resource

if TYPE_CHECKING:
    from gitlease.core.lease import Lease

LONGEST = 2_000  # characters of one trailer: a path has less

_NAME = "Gitlease: "
_WORD = r'(?:"(?:[^"\\]|\\.)*"|\S+)'
# Compiled where they are used: a hook that only loads this has no time for it.
_TRAILER = (
    rf"(?P<what>\S.*?) token=(?P<token>[0-9]{{1,18}})(?P<more>(?: (?:scope|layer)={_WORD})*)\s*"
)
_MORE = rf" (scope|layer)=({_WORD})"


@dataclass(frozen=True, slots=True)
class Named:
    """A grant that a commit names: ``token`` of a resource, of a scope of it, in one ledger.

    ``key`` is the folded resource, ``resource`` as it is written.
    """

    resource: str
    key: str
    token: int
    scope: str = WHOLE
    layer: str = GLOBAL_LAYER


@dataclass(frozen=True, slots=True)
class Authorship:
    """Whose work a commit is: its author and committer, and the grants that it names."""

    people: tuple[str, ...] = ()
    named: tuple[Named, ...] = ()


def read_trailer(value: str) -> Named | None:
    """The grant that a trailer's value names; None if it is not such a trailer. Never raises."""
    found = re.fullmatch(_TRAILER, value.strip()) if len(value) <= LONGEST else None
    if found is None or not value.isprintable():
        return None
    more = {word: _plain(text) for word, text in re.findall(_MORE, found["more"])}
    try:
        key = parse_resource(found["what"]).key
    except UsageError:
        key = fold(found["what"])
    return Named(
        resource=found["what"],
        key=key,
        token=int(found["token"]),
        scope=more.get("scope", WHOLE),
        layer=more.get("layer", GLOBAL_LAYER).lower(),
    )


def read_lines(lines: Iterable[str]) -> list[Named]:
    """The grants that the trailers among the lines of a message name."""
    values = (line.removeprefix(_NAME) for line in lines if line.startswith(_NAME))
    return [named for value in values if (named := read_trailer(value)) is not None]


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
