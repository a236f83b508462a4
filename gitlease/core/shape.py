"""One codec: frozen values as plain data and back, by the types of their fields.

A ``Codec`` is a medium, such as JSON or the files of a ledger, and ``spellings`` say how text,
numbers and the like stand there. Whatever else stands there is refused, by the name of its field.
What a class needs is worked out once, from its annotations.

A field may say more than its type, by ``Annotated``, to a codec with ``marks``: a tuple of the
values that it may have, or what else ``marks`` makes a spelling of. ``LATER`` marks a field that
older data lacks, ``RARE`` one that moreover stands only where it is not as by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from itertools import cycle
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass

T = TypeVar("T")

LATER, RARE = "later", "rare"
LARGEST = 10**18
_NEVER = object()  # what no field is


@dataclass(frozen=True, slots=True)
class Spelling:
    """How values of a type stand in a medium.

    ``read`` takes the name of the field, for messages, and its data: None for a field that is
    missing.
    """

    read: Callable[..., Any]
    write: Callable[[Any], Any] = lambda value: value


class Damaged(ValueError):
    """Data that do not read as the value that was written."""


def one_of(damage: type[Exception], *choices: Any) -> Spelling:
    """Words, members of an enum, or booleans as words."""
    words = {str(getattr(x, "value", x)).lower(): x for x in choices}

    def read(key: str, data: Any) -> Any:
        if not isinstance(data, str) or data not in words:
            raise damage(f"{key} is not one of {', '.join(words)}")
        return words[data]

    return Spelling(read, lambda value: getattr(value, "value", value))


def exactly(damage: type[Exception], kind: type[Any]) -> Spelling:
    """Values of one of JSON's own types. A bool is no int to anybody but Python."""

    def read(key: str, data: Any) -> Any:
        if type(data) is not kind or (kind is int and not -LARGEST < data < LARGEST):
            raise damage(f"{key} is {ascii(data)[:40]}, not {kind.__name__}")
        return data

    return Spelling(read)


def items(damage: type[Exception], each: list[Spelling], kind: Any, *, many: bool) -> Spelling:
    """Tuples or sets as lists: of as many values as spellings, or of any number of one spelling."""

    def read(key: str, data: Any) -> Any:
        if type(data) is not list or not (many or len(data) == len(each)):
            raise damage(f"{key} is not such a list")
        return kind([one.read(key, x) for one, x in zip(cycle(each), data, strict=False)])

    def write(value: Any) -> list[Any]:
        found = sorted(value) if kind is frozenset else value
        return [one.write(x) for one, x in zip(cycle(each), found, strict=False)]

    return Spelling(read, write)


class Codec:
    """A medium. Reading raises ``damage`` for anything that was not written for that type.

    ``lenient``: missing fields have their defaults. ``sparse``: and those that do are left out, and
    unknown ones refused, so that there is one way to write each value.
    """

    def __init__(
        self,
        damage: type[Exception],
        spellings: Mapping[Any, Spelling],
        marks: Callable[[Any], Spelling] | None = None,
        *,
        lenient: bool = False,
        sparse: bool = False,
    ) -> None:
        own = {kind: exactly(damage, kind) for kind in (str, int, bool)}
        self._damage, self._marks = damage, marks
        self._lenient, self._sparse = lenient or sparse, sparse
        self._known: dict[Any, Spelling] = {**own, **spellings}

    def load(self, kind: type[T], data: Any, name: str = "", /, **known: Any) -> T:
        """The value that stands in data, which lack the fields that are ``known`` already.

        Messages call it by ``name``.
        """
        try:
            value: T = self._of(kind, *known).read(name or kind.__name__, data, **known)
        except GitleaseError as error:
            raise self._damage(error.message) from None
        return value

    def dump(self, value: Any, *known: str) -> Any:
        """The data of a value, without the fields that are ``known``."""
        return self._of(type(value), *known).write(value)

    def _of(self, hint: Any, *known: str) -> Spelling:
        key = (hint, known) if known else hint
        if key not in self._known:
            made = self._of_record(hint, known) if known else self._of_hint(hint)
            self._known[key] = made
        return self._known[key]

    def _of_hint(self, hint: Any) -> Spelling:
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            mark = next((x for x in inner[1:] if x not in (LATER, RARE)), None)
            if mark is None or self._marks is None:
                return self._of(inner[0])
            return one_of(self._damage, *mark) if isinstance(mark, tuple) else self._marks(mark)
        if origin in (UnionType, Union):
            one = self._of(inner[0])
            return Spelling(
                lambda key, data: None if data is None else one.read(key, data),
                lambda value: None if value is None else one.write(value),
            )
        if origin in (tuple, frozenset):
            each = [self._of(x) for x in inner if x is not ...]
            many = inner[-1] is ... or origin is frozenset
            return items(self._damage, each, origin, many=many)
        if origin is Mapping:
            one, whole = self._of(inner[1]), exactly(self._damage, dict)
            return Spelling(
                lambda key, data: {x: one.read(key, y) for x, y in whole.read(key, data).items()},
                lambda value: {x: one.write(y) for x, y in value.items()},
            )
        if issubclass(hint, Enum):
            return one_of(self._damage, *hint)
        return self._of_record(hint, ())

    def _of_record(self, kind: Any, known: tuple[str, ...]) -> Spelling:
        readers, needed, writers = [], [], []
        for name, field in kind.__frozen_fields__.items():
            if name in known:
                continue
            hint = _evaluated(field.hint, field.module)
            one, marks = self._of(hint), get_args(hint)[1:]
            optional = field.has_default and (self._lenient or LATER in marks or RARE in marks)
            rare = optional and (self._sparse or (RARE in marks and self._marks is not None))
            readers.append((name, one.read))
            if not optional:
                needed.append((name, one.read))
            writers.append((name, one.write, field.default if rare else _NEVER))
        names, size = {name for name, _ in readers}, len(readers) + len(known)

        def read(key: str, data: Any, **values: Any) -> Any:
            if type(data) is not dict:
                raise self._damage(f"{key} is not a mapping")
            if self._sparse and not data.keys() <= names:
                odd = next(x for x in data if x not in names)
                raise self._damage(f"{key} has {ascii(odd)[:40]}, which is unknown here")
            values |= {name: read(name, data[name]) for name, read in readers if name in data}
            if len(values) < size:
                values |= {name: read(name, None) for name, read in needed if name not in data}
            return kind(**values)

        def write(value: Any) -> Any:
            every = value.__dict__
            return {
                name: write(every[name])
                for name, write, usual in writers
                if usual is _NEVER or every[name] != usual
            }

        return Spelling(read, write)


@cache
def _evaluated(text: str, module: str) -> Any:
    names = {"str": str, "int": int, "bool": bool, **vars(sys.modules[module])}
    if text in names:  # evaluating takes long, and hooks wait for it
        return names[text]
    field = SimpleNamespace(__annotations__={"type": text})
    return get_type_hints(field, names, include_extras=True)["type"]


JSON = Codec(Damaged, {}, lenient=True)
"""Gitlease's own files."""
