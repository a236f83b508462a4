"""Our frozen classes behave as the standard library's, and the standard library takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from gitlease.kernel.rules.frozen import dataclass, field, replace


@dataclass(frozen=True)
class Base:
    """A field of each kind."""

    kind: ClassVar[str] = "base"
    name: str
    hidden: int = field(default=1, compare=False, repr=False)
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Below(Base):
    """With one more."""

    last: int = 3


def test_defaults_bases_equality_and_hash() -> None:
    one = Below("a", 2, last=4)
    assert (one.name, one.hidden, one.items, one.last, one.kind) == ("a", 2, [], 4, "base")
    assert one.items is not Below("a").items
    assert repr(one) == "Below(name='a', items=[], last=4)"
    assert Base("a", 1) == Base("a", 2) != Base("b", 1)
    assert Base("a") != Below("a")
    with pytest.raises(TypeError):
        hash(Base("a"))  # a list


def test_wrong_arguments_and_changes_are_refused() -> None:
    makers: list[Callable[[], Any]] = [
        lambda: Base(),  # type: ignore[call-arg]
        lambda: Base("a", 1, [], 4),  # type: ignore[call-arg]
        lambda: Base("a", **{"name": "b"}),  # type: ignore[arg-type]
        lambda: Below("a", 1, [], 4),  # type: ignore[call-arg]
        lambda: replace(Base("a"), other=1),  # type: ignore[call-arg]
        lambda: dataclass(frozen=False)(Base),
    ]
    for make in makers:
        with pytest.raises(TypeError):
            make()
    one = Base("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert replace(one, name="b") == Base("b")
    with pytest.raises(TypeError, match="default_factory"):

        @dataclass(frozen=True)
        class Shared:
            items: list[int] = []  # noqa: RUF012


def test_the_standard_library_takes_them() -> None:
    one = Below("a", last=4)
    assert [f.name for f in dataclasses.fields(one)] == ["name", "hidden", "items", "last"]
    assert dataclasses.is_dataclass(Below)
    assert dataclasses.replace(one, last=5) == Below("a", last=5)
    assert dataclasses.asdict(one) == {"name": "a", "hidden": 1, "items": [], "last": 4}
    match one:
        case Below(name, _, _):
            assert name == "a"
        case _:
            pytest.fail("not matched")


def test_no_class_claims_slots_that_it_does_not_have() -> None:
    with pytest.raises(TypeError):
        dataclass(frozen=True, slots=True)(Base)
    assert not hasattr(Below, "__slots__")
