"""Draw mutants from the source, by a seed: where, by mutmut's operators, one at each place.

Each module gives as many as its size asks for. Left out is what no test should hold: annotations,
docstrings, decorators, the words of messages, and what mutmut itself leaves alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutants.sample import Drawn
from mutmut.mutation.mutators import mutation_operators

PACKAGES = ("kernel/rules", "kernel/ledger", "guard", "landing")
LEFT_ALONE = {"len", "isinstance", "cast", "TypeVar", "NewType"}
NOT_CODE = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.FormattedString)
Node = cst.CSTNode


@dataclass(frozen=True, slots=True)
class Site:
    """A node that one operator changes in one or several ways."""

    node: Node
    changed: list[Node]
    within: str


class _Sites(cst.CSTVisitor):
    """All places of a module that an operator can change."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Site] = []
        self._path: list[Node] = []

    def on_visit(self, node: Node) -> bool:
        if isinstance(node, NOT_CODE) or _is_left_alone(node):
            return False
        self._path.append(node)
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                changed = [x for x in operator(node) if not _is_text(node, x)]
                if changed:
                    self.found.append(Site(node, changed, self._within()))
        return True

    def on_leave(self, original_node: Node) -> None:
        if self._path and self._path[-1] is original_node:
            self._path.pop()

    def _within(self) -> str:
        named = [x.name.value for x in self._path if isinstance(x, cst.FunctionDef | cst.ClassDef)]
        return ".".join(named)


def _is_left_alone(node: Node) -> bool:
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value in LEFT_ALONE
    if isinstance(node, cst.SimpleString):
        return _reads_as_text(node)
    if isinstance(node, cst.FunctionDef):
        return _does_nothing(node)
    return isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString)


def _does_nothing(node: cst.FunctionDef) -> bool:
    """Whether it only declares: what a protocol asks for."""
    last = node.body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Expr) and isinstance(
        last.value, cst.Ellipsis | cst.SimpleString | cst.ConcatenatedString
    )


def _reads_as_text(node: Node) -> bool:
    """Whether these are words for people, which snapshots hold."""
    if isinstance(node, cst.ConcatenatedString | cst.FormattedString):
        return True
    return isinstance(node, cst.SimpleString) and " " in node.value


def _is_text(node: Node, changed: Node) -> bool:
    """Whether a change of a call takes nothing away but words for people."""
    if not (isinstance(node, cst.Call) and isinstance(changed, cst.Call)):
        return False
    gone = [x for x in node.args if not any(x is y for y in changed.args)]
    return bool(gone) and all(_reads_as_text(x.value) for x in gone)


def sites(source: str) -> tuple[cst.Module, list[Site], Any]:
    """A module, its places, and where each of its nodes stands."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    visitor = _Sites()
    wrapper.module.visit(visitor)
    return wrapper.module, visitor.found, wrapper.resolve(PositionProvider)


def drawn_from(file: str, source: str, wanted: int, seed: int) -> Iterator[Drawn]:
    """So many mutants of one module, each at another place."""
    module, found, positions = sites(source)
    dice = random.Random(f"{seed} {file}")
    dice.shuffle(found)
    taken: set[int] = set()
    for site in found:
        if len(taken) == wanted:
            return
        where: CodeRange = positions[site.node]
        chosen = dice.choice(site.changed)
        if where.start.line in taken:
            continue
        changed = module.deep_replace(site.node, chosen)
        if not isinstance(changed, cst.Module):
            continue
        mutant = _difference(file, site.within, source, changed.code)
        if mutant is None:
            continue
        taken.add(where.start.line)
        yield mutant


def _difference(file: str, within: str, source: str, changed: str) -> Drawn | None:
    """What differs, in whole lines; None if that is nothing, or no Python."""
    try:
        compile(changed, file, "exec")
    except SyntaxError:
        return None
    old, new = source.splitlines(), changed.splitlines()
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    if old == new:
        return None
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    return Drawn(file, start + 1, within, "\n".join(gone), "\n".join(come))


def shares(sizes: dict[str, int], wanted: int) -> dict[str, int]:
    """How many each file gives: by its size, the largest remainders first."""
    whole = sum(sizes.values())
    parts = {file: divmod(size * wanted, whole) for file, size in sizes.items()}
    given = {file: part for file, (part, _) in parts.items()}
    left = wanted - sum(given.values())
    for file in sorted(parts, key=lambda x: (-parts[x][1], x))[:left]:
        given[file] += 1
    return given


def draw(root: Path, wanted: int, seed: int) -> list[Drawn]:
    """Mutants of the four packages below ``root``, in the order of files and lines."""
    files = [y for x in PACKAGES for y in sorted((root / "gitlease" / x).rglob("*.py"))]
    sources = {str(x.relative_to(root)): x.read_text("utf-8") for x in files}
    given = shares({file: text.count("\n") for file, text in sources.items()}, wanted)
    found: list[Drawn] = []
    for file, text in sources.items():
        some = drawn_from(file, text, given[file], seed)
        found += sorted(some, key=lambda x: x.line)
    return found
