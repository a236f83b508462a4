"""``dataclass(frozen=True, slots=True)`` as in the standard library, made much faster.

The standard decorator compiles new source for every class, about half a millisecond each, which
sixty classes make every command and every hook pay; and importing it brings ``inspect`` and all
that it needs, which is a fifth of a hook's time. Here all classes share the same few functions.
What a type checker sees is the standard library's own, and its ``fields`` and ``replace`` take
these classes too.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Any:
        """Decorate a frozen class. ``slots`` is for the type checker: there is no ``__slots__``."""
        if not (frozen and slots):
            raise TypeError("only for frozen classes with slots")

        def decorate(cls: type) -> type:
            _share(cls, _fields_of(cls, kw_only))
            return cls

        return decorate

    def field(**given: Any) -> Any:
        """A field's default or ``default_factory``, and whether ``compare`` and ``repr`` see it."""
        return _Field(**given)

    def replace(value: Any, /, **changes: Any) -> Any:
        """A copy with some fields changed."""
        copy = object.__new__(type(value))
        values = copy.__dict__
        values.update(value.__dict__, **changes)
        if len(values) != len(value.__dict__):
            unknown = ", ".join(changes.keys() - value.__dict__.keys())
            raise TypeError(f"{type(value).__name__} has no {unknown}")
        return copy


_MISSING: Any = object()


def non_defaults(value: Any) -> dict[str, Any]:
    """The fields of a frozen value that differ from their defaults."""
    fields: dict[str, _Field] = type(value).__frozen_fields__
    every = value.__dict__
    return {name: every[name] for name, one in fields.items() if every[name] != one.default}


class _Field:
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

    @property
    def has_default(self) -> bool:
        return self.default is not _MISSING


class _Standard:
    # The fields as the standard library keeps them, made on first use.

    def __get__(self, _: Any, cls: Any) -> dict[str, Any]:
        import dataclasses

        found = {}
        for name, one in cls.__frozen_fields__.items():
            given: dict[str, Any] = {"compare": one.compare, "repr": one.repr}
            if one.default is not _MISSING:
                given["default"] = one.default
            elif one.factory is not _MISSING:
                given["default_factory"] = one.factory
            made: Any = dataclasses.field(kw_only=one.kw_only, **given)
            made.name, made._field_type = name, dataclasses._FIELD  # type: ignore[attr-defined]
            found[name] = made
        return found


class _Signature:
    # The signature that ``inspect`` and ``help`` show, made on first use.

    def __get__(self, _: Any, cls: Any) -> Any:
        from inspect import Parameter, Signature

        found = []
        for name, one in cls.__frozen_fields__.items():
            kind = Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD
            default = ... if one.factory is not _MISSING else one.default
            default = Parameter.empty if default is _MISSING else default
            found.append(Parameter(name, kind, default=default, annotation=one.hint))
        return Signature(found)


def _fields_of(cls: Any, kw_only: bool) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        found |= base.__dict__.get("__frozen_fields__", {})
    for name, kind in cls.__annotations__.items():
        if str(kind).startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, _MISSING)
        one = given if isinstance(given, _Field) else _Field(default=given)
        if isinstance(one.default, list | dict | set):
            raise TypeError(f"{cls.__name__}.{name}: its default is shared; use default_factory")
        one.kw_only, one.hint, one.module = kw_only, kind, cls.__module__
        found[name] = one
        if one.default is not _MISSING:
            setattr(cls, name, one.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    return found


def _share(cls: Any, fields: dict[str, _Field]) -> None:
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
        left = [name for name in names if name not in placed[:count] and name not in given]
        if needed := [name for name in left if name not in defaults and name not in factories]:
            raise TypeError(f"{cls.__name__} needs {', '.join(needed)}")
        if len(left) + count + len(given) != len(names):
            raise TypeError(f"{cls.__name__} has no {', '.join(set(given) - set(names))}")
        left_out[count, *given] = {name: defaults[name] for name in left if name in defaults}
        return left_out[count, *given]

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        values = self.__dict__
        rest = left_out.get((len(args), *given))
        if rest is None:
            rest = check(len(args), tuple(given))
        if rest:
            values.update(rest)
        if factories:
            values.update({name: make() for name, make in factories.items()})
        if args:
            values.update(zip(placed, args, strict=False))
        values.update(given)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        raise _frozen_error(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        raise _frozen_error(f"cannot delete field {name!r}")

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        mine, theirs = self.__dict__, other.__dict__
        return mine == theirs if compared == names else pick(mine) == pick(theirs)

    def __hash__(self: Any) -> int:
        return hash(pick(self.__dict__))

    def __repr__(self: Any) -> str:
        inside = ", ".join(f"{name}={self.__dict__[name]!r}" for name in shown)
        return f"{cls.__qualname__}({inside})"

    for function in (__init__, __setattr__, __delattr__, __eq__, __hash__, __repr__):
        if function.__name__ not in cls.__dict__ or function is __hash__:
            setattr(cls, function.__name__, function)


def _frozen_error(message: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(message)
