"""The table of mechanisms in CONTRIBUTING: the modules of each, and their size in code lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".github" / "CONTRIBUTING.md"
PACKAGE = ROOT / "gitlease"
TITLE = "## Mechanisms\n"
TOLERATED = 0.1  # of what the table says: it need not change with each commit
SMALL = 10  # lines that always are tolerated
_ROW = re.compile(r"^\| (.+?) \| (\S+) \| (.+?) \| (`.+`) \| ([\d,]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Mechanism:
    """A row of the table; ``modules`` are files below ``gitlease``, without their suffix."""

    name: str
    part: str
    promise: str
    modules: tuple[str, ...]
    lines: int

    @property
    def is_current(self) -> bool:
        """Return whether the table says about how many lines there are."""
        return abs(self.counted - self.lines) <= max(self.lines * TOLERATED, SMALL)

    @property
    def counted(self) -> int:
        """The code lines of the modules that exist; a test names those that are gone."""
        return sum(code_lines(x) for x in self.modules if (PACKAGE / f"{x}.py").exists())


def mechanisms() -> list[Mechanism]:
    """Return every row of the table."""
    return [_mechanism(row) for row in _ROW.finditer(_table(FILE.read_text(encoding="utf-8")))]


def modules() -> set[str]:
    """Return every module that is code, which the docstring of a package is not."""
    files = (x.relative_to(PACKAGE).with_suffix("") for x in PACKAGE.rglob("*.py"))
    return {str(x) for x in files if x.name != "__init__" or x.parent == Path()}


def code_lines(module: str) -> int:
    """Count the lines of a module that are not blank, comments or docstrings."""
    text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    left_out = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(x) and not x.startswith("#") for number, x in lines if number not in left_out)


def page() -> str:
    """Return the page with the sizes of now in the rows that are no longer current."""
    text = FILE.read_text(encoding="utf-8")
    table = _table(text)
    return text.replace(table, _ROW.sub(_renewed, table))


def _table(text: str) -> str:
    return text.partition(TITLE)[2].partition("\n## ")[0]


def _mechanism(row: re.Match[str]) -> Mechanism:
    name, part, promise, places, lines = row.groups()
    named = tuple(x for place in re.findall(r"`([^`]+)`", places) for x in _modules_in(place))
    return Mechanism(name, part, promise, named, int(lines.replace(",", "")))


def _modules_in(place: str) -> Iterator[str]:
    """Read ``folder/{one,two}`` or ``folder/one``."""
    folder, brace, names = place.rstrip("}").partition("{")
    yield from (folder + x.strip() for x in names.split(",")) if brace else (folder,)


def _renewed(row: re.Match[str]) -> str:
    mechanism = _mechanism(row)
    if mechanism.is_current:
        return row[0]
    return row[0].removesuffix(f"{row[5]} |") + f"{mechanism.counted:,} |"
