"""The methods of the library are code: written from the table, with signatures and help."""

from __future__ import annotations

import inspect
import pydoc
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import library_methods
from support.ledgers import door
from support.recording import how_to_record

import gitlease
from gitlease.kernel.rules.errors import UsageError
from gitlease.library.methods import OF_A_CLONE, OF_A_GATEWAY, TERMS, Method

pytestmark = pytest.mark.default

Clones = Callable[..., list[Path]]
CLASSES: list[tuple[type, type, tuple[Method, ...]]] = [
    (gitlease.Leases, gitlease.AsyncLeases, OF_A_CLONE),
    (gitlease.Connection, gitlease.AsyncConnection, OF_A_GATEWAY),
]
EACH = [
    pytest.param(plain, awaited, method, id=f"{plain.__name__}-{method.name}")
    for plain, awaited, methods in CLASSES
    for method in methods
]


def test_the_files_are_current() -> None:
    for name, text in library_methods.texts().items():
        found = (library_methods.LIBRARY / name).read_text(encoding="utf-8")
        assert found == text, how_to_record("library")


def plainly(signature: inspect.Signature) -> str:
    """A signature as text, in which a literal has the same quotes wherever it comes from."""
    return str(signature).replace('"', "'")


@pytest.mark.parametrize(("plain", "awaited", "method"), EACH)
def test_method_is_code_with_signature_and_help(plain: Any, awaited: Any, method: Method) -> None:
    for cls in (plain, *([] if method.streams else [awaited])):
        function = getattr(cls, method.name)
        assert plainly(inspect.signature(function)) == plainly(method.signature)
        assert method.doc in (inspect.getdoc(function) or "")
        # What a reader opens, and a debugger enters.
        file = inspect.getsourcefile(inspect.unwrap(function))
        assert Path(str(file)).parent == library_methods.LIBRARY
        assert f"def {method.name}(" in inspect.getsource(inspect.unwrap(function))
        assert inspect.iscoroutinefunction(function) == (cls is awaited)


@pytest.mark.parametrize("name", ["push", "task", "list", "held_paths"])
def test_method_by_hand_is_awaited_with_the_same_signature(name: str) -> None:
    for plain, awaited, methods in CLASSES:
        if hasattr(plain, name) and name not in {x.name for x in methods}:
            found = inspect.signature(getattr(awaited, name))
            assert found == inspect.signature(getattr(plain, name))


def test_help_of_an_open_repository_shows_the_method(clones: Clones) -> None:
    (ada,) = clones(1)
    with door(ada) as leases:
        text = pydoc.plain(pydoc.render_doc(leases.claim))
    assert "claim(resource: 'ResourceLike', *, paths: 'Iterable[StrPath]' = ()" in text
    assert "takeover: Replace someone else's assignment; needs a reason." in text


def test_types_of_a_method_are_found_at_run_time() -> None:
    hints = typing.get_type_hints(inspect.unwrap(gitlease.Leases.claim))
    assert hints["return"] is gitlease.Lease


def test_call_that_does_not_fit_says_how_it_is_called(clones: Clones) -> None:
    (ada,) = clones(1)
    with door(ada) as leases, pytest.raises(UsageError) as refused:
        leases.claim("x", "15m")  # type: ignore[call-arg]
    assert refused.value.hints[0] == "for a time, write ttl='15m' instead"
    assert refused.value.hints[1].startswith("call it as claim(resource, paths=…, ")
    frames = traceback.extract_tb(refused.value.__traceback__)
    assert frames[0].filename == __file__
    assert len(frames) == 2, "a refusal ends in the caller's line"


PLACE = ["layer", "local", "remote", "environ"]


@pytest.mark.parametrize(
    ("function", "method"),
    [
        (gitlease.hold, TERMS),
        (gitlease.run, next(x for x in OF_A_CLONE if x.name == "run")),
        (gitlease.open, None),
        (gitlease.open_async, None),
        (gitlease.session, None),
    ],
)
def test_function_lists_its_options_as_the_table_has_them(
    function: Callable[..., Any], method: Method | None
) -> None:
    known = inspect.signature(function).parameters
    assert [x for x in known if x in PLACE] == PLACE
    for one in () if method is None else method.signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY:
            there = known[one.name]
            assert (there.default, there.annotation) == (one.default, one.annotation)
    assert inspect.Parameter.VAR_KEYWORD not in {x.kind for x in known.values()}
