"""Functions stay short enough to be read at once: ruff counts statements, this counts lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "gitlease"
LONGEST = 60  # lines, without the docstring
MOST_PARAMETERS = 8  # of a constructor, beside self
MOST_METHODS = 20  # of a class, without those that begin with an underscore
# What may have more, and why.
LARGER = {
    "AwaitedLeaseVerbs": "the library has a method for each verb",
    "Call": "what a verb and the command line's own commands ask of one call",
    "Door": "what a verb may ask of any door",
    "Ledger": "the one value that all moves read and change",
    "LedgerPlace": "still to be split: where a ledger is, and what decided that",
    "LedgerStore": "the interface of a store",
    "LeaseVerbs": "the library has a method for each verb",
    "RefLedgerStore": "it has the methods of LedgerStore",
    "RunsFolder": "still to be split: records, logs and pools",
    "Workspace": "all that opens with a clone, made when it is first asked for",
}


def trees() -> Iterator[ast.Module]:
    for file in sorted(PACKAGE.rglob("*.py")):
        yield ast.parse(file.read_text(encoding="utf-8"))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Its lines, from its name on, without those of its docstring."""
    first = function.body[0]
    end = function.end_lineno or function.lineno
    lines = end - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def parameters_of(function: ast.FunctionDef) -> int:
    given = function.args
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1


def test_a_function_has_at_most_sixty_lines() -> None:
    long = {
        node.name
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines_of(node) > LONGEST
    }
    assert long == set()


def test_a_constructor_has_at_most_eight_parameters() -> None:
    wide = {
        node.name
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for x in node.body
        if isinstance(x, ast.FunctionDef)
        and x.name == "__init__"
        and parameters_of(x) > MOST_PARAMETERS
    }
    assert wide == set()


def test_a_class_has_at_most_twenty_public_methods() -> None:
    large = {
        node.name
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and sum(
            isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef) and not x.name.startswith("_")
            for x in node.body
        )
        > MOST_METHODS
    }
    assert large == LARGER.keys()
