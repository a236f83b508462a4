"""What the library hands out is made of what a program knows: public types, and those of Python."""

from __future__ import annotations

import inspect
import pickle
import sys
import typing
from collections import abc
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any

import pytest
from faces.fake import make_desks
from support.snapshots import check_words
from support.tasks import task

import gitlease
from gitlease.faces.library import Leases
from gitlease.testing import MemoryLedger

PUBLIC = {name: getattr(gitlease, name) for name in gitlease.__all__}
CLASSES = {one for one in PUBLIC.values() if isinstance(one, type)}
KNOWN = {bool, datetime, float, int, object, str, timedelta, type(None), BaseException}
CONTAINERS = {tuple, dict, abc.Mapping, typing.Literal, typing.Union, UnionType}
# Fields for whoever built an error below; a program reads ``lease`` and ``free_at``. Of a setback
# it reads ``why_not``.
INNER = {"conflicts", "views", "free_at_ms", "whose", "by_edge", "setback"}


def kinds(hint: Any) -> set[Any]:
    """The types that an annotation names, but for the containers around them."""
    if typing.get_origin(hint) is typing.Literal:
        return set()
    found = set().union(*(kinds(x) for x in typing.get_args(hint) if x is not Ellipsis))
    origin = typing.get_origin(hint)
    return found | ({hint} if origin is None else {origin} - CONTAINERS)


def hints(one: Any, names: dict[str, Any]) -> dict[str, Any]:
    return typing.get_type_hints(one, {**PUBLIC, "datetime": datetime, **names})


def attributes(cls: type) -> dict[str, Any]:
    """What a program may read of a class: its fields and properties, each with its type."""
    found: dict[str, Any] = {}
    for base in cls.__mro__[:-1]:
        if not base.__module__.startswith("gitlease."):
            continue
        names = vars(sys.modules[base.__module__])
        own = vars(base).get("__annotations__", {})
        fields = {k: v for k, v in own.items() if not v.startswith("ClassVar")}
        found |= {name: eval(kind, {**PUBLIC, **names}) for name, kind in fields.items()}
        for name, value in vars(base).items():
            if isinstance(value, property):
                found[name] = hints(value.fget, names)["return"]
    return {k: v for k, v in found.items() if not k.startswith("_") and k not in INNER}


def is_known(kind: Any) -> bool:
    return kind in KNOWN | CLASSES or (isinstance(kind, type) and issubclass(kind, Enum))


def test_what_a_program_reads_is_of_public_types() -> None:
    read = {cls: attributes(cls) for cls in CLASSES if not hasattr(cls, "function")}
    assert len(read) > 40
    assert read[gitlease.Entry]["lease"] == gitlease.Lease | None
    assert read[gitlease.LeaseHeld]["free_at"] == datetime | None
    inner = [
        f"{cls.__name__}.{name}: {kind}"
        for cls, fields in read.items()
        for name, hint in fields.items()
        for kind in kinds(hint)
        if not is_known(kind) and not isinstance(kind, typing.TypeVar)
    ]
    assert inner == []


def test_what_a_verb_answers_is_of_public_types() -> None:
    inner = []
    for name, verb in inspect.getmembers(gitlease.Leases, inspect.isfunction):
        if name.startswith("_") or name.startswith("on_"):
            continue
        plain = inspect.unwrap(verb)
        names = {**vars(typing), **vars(sys.modules[plain.__module__])}
        answer = typing.get_type_hints(plain, {**PUBLIC, **names})["return"]
        inner += [
            f"{name}: {x}" for x in kinds(answer) if not is_known(x) and x is not abc.Iterator
        ]
    assert inner == []


def test_a_lease_of_the_queue_is_that_of_the_verbs() -> None:
    ada, bob = make_desks(task("F001"), task("F002"))
    options = {"layer": None, "local": False, "remote": None, "no_session": False}
    mine, theirs = (Leases(x.open(".", session=None, **options)) for x in (ada, bob))
    claimed = mine.claim("F001")
    (held, free) = sorted(theirs.queue(), key=lambda x: x.task.file)
    assert free.lease is None
    assert isinstance(held.lease, gitlease.Lease)
    assert held.lease.lease_id == claimed.lease_id
    assert (held.lease.expires_at, held.lease.mine) == (claimed.expires_at, False)
    assert held.lease.expires_at.tzinfo is UTC
    assert repr(held).startswith("Entry(task=Task(")
    check_words(repr(held))
    mine.note("F001", "half done")
    brief = mine.brief()
    assert [x.lease for x in brief.carried] == [*mine.show("F001")]
    (note,) = brief.notes
    assert (note.resource, note.text, note.at.tzinfo) == ("F001", "half done", UTC)


def test_answers_and_errors_survive_a_pickle() -> None:
    with MemoryLedger() as ledger:
        lease = ledger.open("ada@example.com").claim("F001")
        assert pickle.loads(pickle.dumps(lease)) == lease
        with pytest.raises(gitlease.LeaseHeld) as held:
            ledger.open("bob@example.com").claim("F001")
        back = pickle.loads(pickle.dumps(held.value))
        assert (str(back), back.lease) == (str(held.value), held.value.lease)
        refused = gitlease.PushRefused("no", refs=(), hints=("pull",))
        assert pickle.loads(pickle.dumps(refused)).hints == ("pull",)
