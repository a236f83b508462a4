"""The methods that are made of the table are declared in a stub, for type checkers and editors."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

import gitlease
from gitlease.faces.library import OF_A_CLONE, OF_A_GATEWAY, TERMS, Method

STUB = Path(gitlease.__file__).parent / "faces" / "library" / "made.pyi"
HEAD = """# Written by: pytest --record tests/faces/test_library_stub.py

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypedDict

from gitlease.check.rules import CheckResult
from gitlease.core.edge import Task
from gitlease.engine.queue import Entry
from gitlease.engine.sessions import OwnSession
from gitlease.engine.watch import WatchEvent
from gitlease.faces.library.methods import Duration, OpenOptions, ResourceLike, StrPath
from gitlease.faces.library.values import (
    Board,
    InitResult,
    Lease,
    LedgerStatus,
    LogEntry,
    QueueReading,
    RunResult,
    WhoAmI,
    WorkResult,
)
from gitlease.push.landing import Landed
from gitlease.verbs.running import WorkEvent
from gitlease.verify.replay import Verified
from gitlease.wiring.workspace import Setting
"""
TAIL = """
class HoldOptions(ClaimTerms, OpenOptions, total=False): ...

class RunOptions(OpenOptions, total=False):
"""
CLASSES = {"LeaseVerbs": OF_A_CLONE, "GatewayVerbs": OF_A_GATEWAY}


def declaration(method: Method, *, awaited: bool) -> str:
    """A method as the stub has it, with its help."""
    known, shown, star = method.signature, ["self"], False
    for one in list(known.parameters.values())[1:]:
        if one.kind is one.KEYWORD_ONLY and not star:
            shown, star = [*shown, "*"], True
        spread = one.kind is one.VAR_POSITIONAL
        star |= spread
        usual = "" if one.default is one.empty else f" = {one.default!r}"
        shown.append(f"{'*' * spread}{one.name}: {one.annotation}{usual}")
    head = f"{'async ' * awaited}def {method.name}(\n"
    head += "".join(f"    {x},\n" for x in shown) + f") -> {method.answer}:\n"
    lines = textwrap.indent(method.doc, "    ").strip()
    return f'{head}    """{lines}' + ('\n    """\n' if "\n" in lines else '"""\n')


def class_of(name: str, methods: Sequence[Method], *, awaited: bool = False) -> str:
    body = "\n".join(
        declaration(x, awaited=awaited) for x in methods if not (awaited and x.streams)
    )
    return f"\nclass {name}(Protocol):\n{textwrap.indent(body, '    ')}"


def terms() -> str:
    [run] = (x for x in OF_A_CLONE if x.name == "run")
    return f"\nclass ClaimTerms(TypedDict, total=False):\n{named(TERMS)}{TAIL}{named(run)}"


def named(method: Method) -> str:
    """What a method takes by name, as the fields of a dictionary."""
    known = method.signature.parameters.values()
    return "".join(f"    {x.name}: {x.annotation}\n" for x in known if x.kind is x.KEYWORD_ONLY)


def test_the_stub_is_current(request: pytest.FixtureRequest) -> None:
    text = HEAD + terms()
    for name, methods in CLASSES.items():
        text += class_of(name, methods) + class_of(f"Awaited{name}", methods, awaited=True)
    if request.config.getoption("--record"):
        STUB.write_text(text, encoding="utf-8")
    assert STUB.read_text(encoding="utf-8") == text


def test_what_is_declared_is_there() -> None:
    places = {gitlease.Leases: OF_A_CLONE, gitlease.Connection: OF_A_GATEWAY}
    for cls, methods in places.items():
        for method in methods:
            assert inspect.signature(getattr(cls, method.name)) == method.signature
            assert method.doc in (inspect.getdoc(getattr(cls, method.name)) or "")
