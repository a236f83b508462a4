"""The methods that are made of the table are declared in a stub, for type checkers and editors."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

import gitlease
from gitlease.faces.library import OF_A_CLONE, OF_A_GATEWAY, Method

STUB = Path(gitlease.__file__).parent / "faces" / "library" / "made.pyi"
HEAD = """# Written by: pytest --record tests/faces/test_library_stub.py

from collections.abc import Iterable
from typing import Protocol

from gitlease.core.edge import Task
from gitlease.core.view import Lease
from gitlease.faces.library.methods import Duration, ResourceLike, StrPath
"""
CLASSES = {"LeaseVerbs": OF_A_CLONE, "GatewayVerbs": OF_A_GATEWAY}


def declaration(method: Method, *, awaited: bool) -> str:
    """A method as the stub has it, with its help."""
    known, shown, star = method.signature, ["self"], False
    for one in list(known.parameters.values())[1:]:
        if one.kind is one.KEYWORD_ONLY and not star:
            shown, star = [*shown, "*"], True
        usual = "" if one.default is one.empty else f" = {one.default!r}"
        shown.append(f"{one.name}: {one.annotation}{usual}")
    head = f"{'async ' * awaited}def {method.name}(\n"
    head += "".join(f"    {x},\n" for x in shown) + f") -> {method.answer}:\n"
    lines = textwrap.indent(method.doc, "    ").strip()
    return f'{head}    """{lines}' + ('\n    """\n' if "\n" in lines else '"""\n')


def class_of(name: str, methods: Sequence[Method], *, awaited: bool = False) -> str:
    body = "\n".join(declaration(x, awaited=awaited) for x in methods)
    return f"\nclass {name}(Protocol):\n{textwrap.indent(body, '    ')}"


def test_the_stub_is_current(request: pytest.FixtureRequest) -> None:
    parts = [class_of(name, methods) for name, methods in CLASSES.items()]
    parts += [
        class_of(f"Awaited{name}", methods, awaited=True) for name, methods in CLASSES.items()
    ]
    text = HEAD + "".join(parts)
    if request.config.getoption("--record"):
        STUB.write_text(text, encoding="utf-8")
    assert STUB.read_text(encoding="utf-8") == text


def test_what_is_declared_is_there() -> None:
    places = {gitlease.Leases: OF_A_CLONE, gitlease.Connection: OF_A_GATEWAY}
    for cls, methods in places.items():
        for method in methods:
            assert inspect.signature(getattr(cls, method.name)) == method.signature
            assert method.doc in (inspect.getdoc(getattr(cls, method.name)) or "")
