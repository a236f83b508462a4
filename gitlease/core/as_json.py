"""Frozen values as JSON and back, by the types of their fields: for gitlease's own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

LARGEST = 1 << 62
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What ``from_json``, and whatever uses its result, may raise for a damaged file."""


def to_json(value: Any) -> Any:
    """A frozen value, an enum's, or a tuple or mapping of such, as ``json.dumps`` takes it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_json(one) for one in value]
    if isinstance(value, Mapping):
        return {key: to_json(one) for key, one in value.items()}
    fields = getattr(value, "__frozen_fields__", None)
    return value if fields is None else {name: to_json(getattr(value, name)) for name in fields}


def from_json(kind: type[T], data: Any) -> T:
    """The value that ``to_json`` was given; no field may be missing. Raises one of DAMAGE."""
    known: Any = kind
    found: T = _reader(known)(data)
    return found


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        known = _reader(inner[0])
        return lambda data: None if data is None else known(data)
    if origin is tuple:
        each = _reader(inner[0])
        return lambda data: tuple(map(each, _exactly(list, data)))
    if origin is Mapping:
        each = _reader(inner[1])
        return lambda data: {key: each(one) for key, one in _exactly(dict, data).items()}
    if kind is int:
        return _number
    if kind in (str, bool):
        return lambda data: _exactly(kind, data)
    if issubclass(kind, Enum):
        return lambda data: kind(data)
    fields = [(name, _reader(of)) for name, of in get_type_hints(kind).items()]
    return lambda data: kind(**{name: read(data[name]) for name, read in fields})


def _exactly(kind: type[T], data: Any) -> T:
    if type(data) is not kind:
        raise TypeError
    return data


def _number(data: Any) -> int:
    if abs(_exactly(int, data)) > LARGEST:
        raise OverflowError
    return data  # type: ignore[no-any-return]
