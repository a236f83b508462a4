"""What tables say of tests: whether a test that they name is there, and when it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

TIERS = ("default", "slow", "nightly")


def is_there(net: str, root: Path) -> bool:
    """Whether a test exists: ``file``, ``file::test`` or ``file::Class::test``."""
    file, _, test = net.partition("::")
    name = re.split(r"::|\[", test)[0 if not test.startswith("Test") else 1]
    return not test or f"def {name}(" in _tests_of(root / file)


def runs_by_day(net: str, root: Path) -> bool:
    """Whether any variant of a test runs by default or with the slow ones, by its nearest mark."""
    file, *names = net.split("::")
    tree = _parsed(root / file)
    for level in (*_levels(tree, root / file, names), _marks_of_file(tree)):
        tiers = list(_tiers(level))
        if any(name != "nightly" for name, _ in tiers):
            return True
        if any(whole for _, whole in tiers):
            return False
    return True


def runs_by_default(net: str, root: Path) -> bool:
    """Whether a test, or the variant that is named, runs by default, by the nearest mark of its
    function, class and file; where no variant is named, whether any does.
    """
    file, *names = net.split("::")
    tree = _parsed(root / file)
    name, _, variant = names[-1].partition("[") if names else ("", "", "")
    levels = _levels(tree, root / file, [*names[:-1], name]) if names else []
    for level in (*levels, _marks_of_file(tree)):
        direct = [
            x for mark in level for x in (mark.elts if isinstance(mark, ast.List) else [mark])
        ]
        marks = [(_last(x.func), x.args) for x in direct if isinstance(x, ast.Call)]
        named = {
            tier: {str(x.value) for x in args if isinstance(x, ast.Constant)}
            for tier, args in marks
            if tier in TIERS
        }
        for tier, variants in named.items():
            if variant.removesuffix("]") in variants or (not variant and tier == "default"):
                return tier == "default"
        for mark in direct:
            if isinstance(mark, ast.Attribute) and mark.attr in TIERS:
                return mark.attr == "default"
    return True


@cache
def _tests_of(file: Path) -> str:
    """The text of a file of tests, with the suite that it takes its tests from."""
    suite = file.parent / "suite.py"
    texts = (x.read_text("utf-8") for x in (file, suite) if x.exists())
    return "".join(texts)


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def _levels(tree: ast.Module, file: Path, names: Sequence[str]) -> list[list[ast.expr]]:
    """The decorators of a test, then those of its class."""
    where: ast.Module | ast.ClassDef = tree
    levels: list[list[ast.expr]] = []
    if len(names) > 1:
        where = next(x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == names[0])
        levels.append(where.decorator_list)
    trees: list[ast.AST] = [where]
    if (suite := file.parent / "suite.py").exists():
        trees.append(_parsed(suite))
    for each in trees:
        for node in ast.walk(each):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == names[-1]:
                return [node.decorator_list, *levels]
    raise LookupError(f"{file} has no test {names[-1]}")


def _marks_of_file(tree: ast.Module) -> list[ast.expr]:
    return [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and [getattr(x, "id", "") for x in node.targets] == ["pytestmark"]
    ]


def _tiers(marks: Sequence[ast.expr]) -> Iterator[tuple[str, bool]]:
    """Each mark of a tier that stands there, and whether it is for all variants."""
    for mark in marks:
        variants = {
            id(x)
            for call in ast.walk(mark)
            if isinstance(call, ast.Call) and _last(call.func) == "param"
            for x in ast.walk(call)
        }
        named = {
            id(call.func) for call in ast.walk(mark) if isinstance(call, ast.Call) and call.args
        }
        for node in ast.walk(mark):
            name = _last(node)
            if name in TIERS and isinstance(node, ast.Attribute) and _last(node.value) == "mark":
                yield name, id(node) not in variants | named


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
