"""Our frozen classes behave as the standard library's, and the standard library takes them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import pytest

from gitlease.core import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Base:
    """A field of each kind."""

    kind: ClassVar[str] = "base"
    name: str
    hidden: int = field(default=1, compare=False, repr=False)
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Below(Base):
    """With one more."""

    last: int = 3


def test_defaults_and_bases() -> None:
    one = Below("a", 2, last=4)
    assert (one.name, one.hidden, one.items, one.last, one.kind) == ("a", 2, [], 4, "base")
    assert one.items is not Below("a").items
    assert repr(one) == "Below(name='a', items=[], last=4)"


def test_equality_and_hash_leave_out_what_is_not_compared() -> None:
    assert Base("a", 1) == Base("a", 2) != Base("b", 1)
    assert Base("a") != Below("a")
    assert Base("a").__eq__("a") is NotImplemented
    with pytest.raises(TypeError):
        hash(Base("a"))  # a list


@pytest.mark.parametrize(
    "make",
    [
        lambda: Base(),  # type: ignore[call-arg]
        lambda: Base("a", 1, [], 4),  # type: ignore[call-arg]
        lambda: Base("a", **{"name": "b"}),  # type: ignore[arg-type]
        lambda: Base("a", other=1),  # type: ignore[call-arg]
        lambda: Below("a", 1, [], 4),  # type: ignore[call-arg]
        lambda: replace(Base("a"), other=1),  # type: ignore[call-arg]
        lambda: dataclass(frozen=True, slots=False)(Base),
    ],
)
def test_wrong_arguments_are_refused(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_a_shared_default_is_refused() -> None:
    with pytest.raises(TypeError, match="default_factory"):

        @dataclass(frozen=True, slots=True)
        class Wrong:
            items: list[int] = []  # noqa: RUF012


def test_nothing_can_be_changed() -> None:
    one = Base("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert replace(one, name="b") == Base("b")
    assert one.name == "a"


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
