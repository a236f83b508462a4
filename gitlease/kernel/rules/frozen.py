"""``dataclass(frozen=True)`` as in the standard library, made much faster.

The standard decorator compiles new source for every class; here all classes share the same few
functions. For 127 classes of seven fields, about as many as a claim loads (processor time of Python
3.11, on a machine whose bare start takes 17 ms):

    the standard library, with slots   99 ms, and 18 ms of import
    msgspec.defstruct                   2 ms, and 36 ms of import
    here                                4 ms

msgspec (0.22) would take over JSON alone. The codec below also has the spellings of a ledger's
files, marks of single fields (``RARE``, ``LATER``), values that are known before, and messages that
name the field, so it would stay nearly whole. What a type checker sees is the standard library's
own, and its ``fields`` and ``replace`` take these classes too.

With it comes the one codec: frozen values as plain data and back, by their fields' types. A
``Codec`` is a medium, such as JSON or the files of a ledger, and ``spellings`` say how text,
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
from functools import cache, partial
from itertools import cycle
from operator import itemgetter
from types import SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from gitlease.kernel.rules.errors import GitleaseError

_MISSING: Any = object()


class _Field:
    # A field's default or ``default_factory``, and whether ``compare`` and ``repr`` see it.

    __slots__ = ("compare", "default", "factory", "hint", "kw_only", "module", "repr")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        compare: bool = True,
        repr: bool = True,
    ) -> None:
        self.default, self.factory = default, default_factory
        self.compare, self.repr, self.kw_only = compare, repr, False
        self.hint, self.module = "", ""  # the text of its annotation, and where that was written


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:

    def dataclass(*, frozen: bool, kw_only: bool = False) -> Any:
        """Decorate a frozen class."""
        if not frozen:
            raise TypeError("only for frozen classes")
        return partial(_as_frozen, kw_only=kw_only)

    field = _Field

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy with some fields changed."""
        copy = object.__new__(type(value))
        values = copy.__dict__
        values.update(value.__dict__, **changes)
        # A name that is no field would have made it longer.
        if len(values) != len(value.__dict__):
            unknown = ", ".join(changes.keys() - value.__dict__.keys())
            raise TypeError(f"{type(value).__name__} has no {unknown}")
        return copy


def non_defaults(value: Any) -> dict[str, Any]:
    """The fields of a frozen value that differ from their defaults."""
    fields: dict[str, _Field] = type(value).__frozen_fields__
    every = value.__dict__
    return {name: every[name] for name, field in fields.items() if every[name] != field.default}


class _Standard:
    # The fields as the standard library keeps them, made on first use.

    def __get__(self, _: Any, cls: Any) -> dict[str, Any]:
        import dataclasses

        fields = {}
        for name, field in cls.__frozen_fields__.items():
            given: dict[str, Any] = {"compare": field.compare, "repr": field.repr}
            if field.default is not _MISSING:
                given["default"] = field.default
            elif field.factory is not _MISSING:
                given["default_factory"] = field.factory
            made: Any = dataclasses.field(kw_only=field.kw_only, **given)
            made.name, made._field_type = name, dataclasses._FIELD  # type: ignore[attr-defined]
            fields[name] = made
        return fields


class _Signature:
    # The signature that ``inspect`` and ``help`` show, made on first use.

    def __get__(self, _: Any, cls: Any) -> Any:
        from inspect import Parameter, Signature

        parameters = []
        for name, field in cls.__frozen_fields__.items():
            kind = Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD
            default = ... if field.factory is not _MISSING else field.default
            default = Parameter.empty if default is _MISSING else default
            parameters.append(Parameter(name, kind, default=default, annotation=field.hint))
        return Signature(parameters)


def _fields_of(cls: Any, kw_only: bool) -> dict[str, _Field]:
    fields: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= base.__dict__.get("__frozen_fields__", {})
    for name, kind in cls.__annotations__.items():
        if str(kind).startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, _MISSING)
        known = given if isinstance(given, _Field) else _Field(default=given)
        if isinstance(known.default, list | dict | set):
            raise TypeError(f"{cls.__name__}.{name}: its default is shared; use default_factory")
        known.kw_only, known.hint, known.module = kw_only, kind, cls.__module__
        fields[name] = known
        if known.default is not _MISSING:
            setattr(cls, name, known.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    return fields


def _as_frozen(cls: Any, *, kw_only: bool) -> Any:
    fields = _fields_of(cls, kw_only)
    names = tuple(fields)
    placed = tuple(name for name, f in fields.items() if not f.kw_only)
    defaults = {name: f.default for name, f in fields.items() if f.default is not _MISSING}
    factories = {name: f.factory for name, f in fields.items() if f.factory is not _MISSING}
    compared = tuple(name for name, f in fields.items() if f.compare)
    pick: Any = itemgetter(*compared) if compared else lambda _: ()
    shown = tuple(name for name, f in fields.items() if f.repr)
    cls.__frozen_fields__ = fields
    cls.__dataclass_fields__, cls.__signature__ = _Standard(), _Signature()
    setattr(cls, "__match_args__", placed)  # noqa: B010
    left_out: dict[tuple[Any, ...], dict[str, Any]] = {}  # by the way of calling, its defaults

    def check(count: int, given: tuple[str, ...]) -> dict[str, Any]:
        if count > len(placed) or not set(placed[:count]).isdisjoint(given):
            raise TypeError(f"{cls.__name__} takes {len(placed)} positional arguments")
        missing = [name for name in names if name not in placed[:count] and name not in given]
        if needed := [name for name in missing if name not in defaults and name not in factories]:
            raise TypeError(f"{cls.__name__} needs {', '.join(needed)}")
        if len(missing) + count + len(given) != len(names):
            raise TypeError(f"{cls.__name__} has no {', '.join(set(given) - set(names))}")
        left_out[count, *given] = {name: defaults[name] for name in missing if name in defaults}
        return left_out[count, *given]

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        values = self.__dict__
        rest = left_out.get((len(args), *given))
        # Checked once for each way of calling: the same places and names fit again.
        if rest is None:
            rest = check(len(args), tuple(given))
        if rest:
            values.update(rest)
        if factories:
            values.update({name: make() for name, make in factories.items()})
        if args:
            values.update(zip(placed, args, strict=False))
        values.update(given)

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        mine, theirs = self.__dict__, other.__dict__
        # Comparing two dictionaries happens in C.
        return mine == theirs if compared == names else pick(mine) == pick(theirs)

    def __hash__(self: Any) -> int:
        return hash(pick(self.__dict__))

    def __repr__(self: Any) -> str:
        inside = ", ".join(f"{name}={self.__dict__[name]!r}" for name in shown)
        return f"{cls.__qualname__}({inside})"

    made = {"__init__": __init__, "__eq__": __eq__, "__hash__": __hash__, "__repr__": __repr__}
    made |= {"__setattr__": _refuse_to_assign, "__delattr__": _refuse_to_delete}
    for name, function in made.items():
        # Python sets __hash__ to None in a class that defines __eq__.
        if name not in cls.__dict__ or name == "__hash__":
            setattr(cls, name, function)
    return cls


def _refuse_to_assign(_: Any, name: str, value: Any) -> None:
    raise _frozen_error(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: Any, name: str) -> None:
    raise _frozen_error(f"cannot delete field {name!r}")


def _frozen_error(message: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(message)


# --- values as plain data ------------------------------------------------------------------------

T = TypeVar("T")

LATER, RARE = "later", "rare"
LARGEST = 10**18
_NEVER = object()  # what no field is


@dataclass(frozen=True)
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
        return kind([spelling.read(key, x) for spelling, x in zip(cycle(each), data, strict=False)])

    def write(value: Any) -> list[Any]:
        # A set has no order of its own, and equal values must be equal bytes.
        values = sorted(value) if kind is frozenset else value
        return [spelling.write(x) for spelling, x in zip(cycle(each), values, strict=False)]

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
        plain = {kind: exactly(damage, kind) for kind in (str, int, bool)}
        self._damage, self._marks = damage, marks
        self._lenient, self._sparse = lenient or sparse, sparse
        self._known: dict[Any, Spelling] = {**plain, **spellings}

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
            spelling, marks = self._of(hint), get_args(hint)[1:]
            has_default = field.default is not _MISSING
            optional = has_default and (self._lenient or LATER in marks or RARE in marks)
            rare = optional and (self._sparse or (RARE in marks and self._marks is not None))
            readers.append((name, spelling.read))
            if not optional:
                needed.append((name, spelling.read))
            writers.append((name, spelling.write, field.default if rare else _NEVER))
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
