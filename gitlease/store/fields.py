"""How values stand in the files of a ledger: written one way, and read strictly.

Anyone may have written what is read: a value that was read is safe to use and to show, and anything
else is a BadRecord that names its field. Fields that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from gitlease.core.errors import MAX_WORD, GitleaseError, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.instant import parse_rfc3339, rfc3339_ms
from gitlease.core.moves.operations import MAX_PATHS
from gitlease.core.resources.resource import parse_resource, parse_scope, path_resource
from gitlease.git.plain_yaml import NotPlain, Plain, read_plain

MAX_NUMBER = 10**18

T = TypeVar("T")


class BadRecord(ValueError):
    """A record that cannot be believed; the message says why."""


class Codec(NamedTuple):
    """``read`` gives the value of a field, by its name and what stands there (None for nothing).

    ``absent`` is what a record says that has no such field; None where it needs one.
    """

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any]
    absent: object = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A mapping that stands for a value of some kind: its fields in their order, with codecs."""

    kind: Callable[..., Any]
    fields: Mapping[str, Codec]

    def read(self, values: Mapping[str, Plain], **more: object) -> Any:
        """The value, with ``more`` of it that does not stand here. Raises BadRecord."""
        for key, codec in self.fields.items():
            gone = key not in values and codec.absent is not None
            more[key] = codec.absent if gone else codec.read(key, values.get(key))
        return self.kind(**more)

    def write(self, value: object) -> dict[str, Any]:
        return {key: codec.write(getattr(value, key)) for key, codec in self.fields.items()}


def read_fields(data: bytes, limit: int) -> dict[str, Plain]:
    """The fields of a file of at most ``limit`` bytes; BadRecord for anything else."""
    if len(data) > limit:
        raise BadRecord(f"larger than {limit} bytes")
    try:
        return read_plain(data)
    except NotPlain as error:
        raise BadRecord(str(error)) from None


def text(limit: int = MAX_WORD, *, lines: bool = False) -> Codec:
    """Printable text; of several ``lines``, or of one."""

    def read(key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise BadRecord(f"{key} is missing or not text")
        return str(_accepted(lambda: check_text(value, what=key, limit=limit, lines=lines)))

    return Codec(read, str)


def maybe(codec: Codec) -> Codec:
    """The same, or nothing."""
    return Codec(
        lambda key, value: None if value is None else codec.read(key, value),
        lambda value: None if value is None else codec.write(value),
    )


def number(*, least: int = 0, most: int = MAX_NUMBER) -> Codec:
    """A whole number."""

    def read(key: str, value: Any) -> int:
        if not (isinstance(value, str) and value.isdecimal() and value.isascii()):
            raise BadRecord(f"{key} is not a whole number")
        if len(value) > 19 or not least <= int(value) <= most:
            raise BadRecord(f"{key} is out of range")
        return int(value)

    return Codec(read, int)


def one_of(*choices: Any) -> Codec:
    """One of some words, members of an Enum or booleans."""
    plain = [getattr(choice, "value", choice) for choice in choices]
    values = {str(word).lower(): choice for word, choice in zip(plain, choices, strict=True)}

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise BadRecord(f"{key} is not one of {', '.join(values)}")
        return values[value]

    return Codec(read, lambda value: getattr(value, "value", value))


def words(limit: int = 64) -> Codec:
    """A list of at most so many words."""

    def read(key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > limit:
            raise BadRecord(f"{key} is not a list of at most {limit}")
        if not all(isinstance(item, str) and item.isprintable() and item for item in value):
            raise BadRecord(f"{key} has an entry that is not text")
        return tuple(value)

    return Codec(read, list)


def nested(layout: Layout) -> Codec:
    """A mapping."""

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadRecord(f"{key} is not a mapping")
        return layout.read(value)

    return Codec(read, layout.write)


def _read_time(key: str, value: Any) -> int:
    try:
        return parse_rfc3339(WORD.read(key, value))
    except BadRecord:
        raise
    except ValueError:
        raise BadRecord(f"{key} is not a UTC time") from None


def _read_resource(key: str, value: Any) -> Any:
    word = text(600).read(key, value)
    resource = _accepted(lambda: parse_resource(word), f"{key}: ")
    if resource.text != word:
        raise BadRecord(f"{key} {word[:60]!r} is not in its canonical form")
    return resource


def _read_paths(key: str, value: Any) -> Any:
    found = words(MAX_PATHS).read(key, value)
    _accepted(lambda: [path_resource(path) for path in found])
    return found


def _accepted(parse: Callable[[], T], where: str = "") -> T:
    try:
        return parse()
    except GitleaseError as error:
        raise BadRecord(f"{where}{error.message}") from None


WORD = text()
TIME = Codec(_read_time, rfc3339_ms)
RESOURCE = Codec(_read_resource, str)
SCOPE = Codec(lambda key, value: _accepted(lambda: parse_scope(WORD.read(key, value))), str)
PATHS = Codec(_read_paths, list)
