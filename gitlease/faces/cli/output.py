"""Where words go: answers to standard output, warnings and hints to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gitlease.core.errors import clean

DOCS = os.path.join(os.path.dirname(__file__), "..", "..", "docs")
FOLDED = 40  # how wide a column stays where a table is wider than the terminal


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: cells for a terminal, fields for a pipe, and how it is to be coloured."""

    cells: tuple[str, ...]
    fields: tuple[str, ...]
    style: str = ""


def on_terminal() -> bool:
    """Whether standard output is read by a person."""
    return sys.stdout.isatty()


def document(content: dict[str, Any]) -> None:
    """Print one JSON document; ASCII only, so that no terminal and no encoding stumbles."""
    print(json.dumps(content, indent=2 if on_terminal() else None), flush=True)


def last_line(content: dict[str, Any]) -> None:
    """One line of JSON on standard error, where standard output is a command's."""
    print(json.dumps(content), file=sys.stderr, flush=True)


def line(text: str) -> None:
    """Print one line of the answer."""
    print(_paragraph(text))


def lines(texts: Iterable[str]) -> None:
    """Print lines of the answer."""
    for text in texts:
        line(text)


def aside(text: str) -> None:
    """Print one line that is not the answer: a warning, a hint, a refusal."""
    sys.stdout.flush()  # where both go to one place, what was said first comes first
    print(_paragraph(text), file=sys.stderr)


def _paragraph(text: str) -> str:
    """Text in which only the first line begins a line: nobody's note can pass for a hint."""
    return clean(text).replace("\n", "\n  ")


def warn(warnings: Sequence[str]) -> None:
    """Print each warning once."""
    for text in dict.fromkeys(warnings):
        aside(f"warning: {text}")


def hint(hints: Sequence[str]) -> None:
    """Print hints: commands to type, or sentences."""
    for text in hints:
        aside(f"hint: {text}")


def table(headings: Sequence[str], rows: Sequence[Row], *, otherwise: str = "") -> None:
    """An aligned table for a person; for a pipe one tab-separated line a row, nothing cut off.

    ``otherwise`` is what a person is told where there are no rows.
    """
    if not on_terminal():
        for row in rows:
            print("\t".join(_field(text) for text in row.fields))
    elif rows:
        _rich_table(headings, rows)
    elif otherwise:
        line(otherwise)


def _field(text: str) -> str:
    """One field of a line: what would end it is spelt out."""
    return clean(text).replace("\t", "\\t").replace("\n", "\\n")


def _rich_table(headings: Sequence[str], rows: Sequence[Row]) -> None:
    from rich.console import Console, ConsoleDimensions
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    used = [i for i, _ in enumerate(headings) if any(row.cells[i] for row in rows)]
    widths = [max(len(headings[i]), *(len(row.cells[i]) for row in rows)) for i in used]
    fits = sum(widths) + 2 * len(widths) <= console.width
    folded = widths if fits else [min(width, FOLDED) for width in widths]
    for i, width in zip(used, folded, strict=True):
        shown.add_column(headings[i], overflow="fold", width=width)
    for row in rows:
        shown.add_row(*(Text(clean(row.cells[i])) for i in used), style=row.style)
    # A terminal that is narrower still breaks the lines itself: nothing is ever cut off.
    needed = max(console.width, sum(folded) + 2 * len(folded))
    console.size = ConsoleDimensions(needed, console.height)
    console.print(shown)


def facts(rows: Sequence[tuple[str, str, tuple[str, ...]]]) -> None:
    """Lines of a name and a value, said in words for a person and in fields for a pipe.

    A fact without words is for pipes alone, one without fields for people.
    """
    if not on_terminal():
        for name, _, fields in rows:
            if fields:
                print("\t".join(map(_field, (name, *fields))))
        return
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, words, _ in rows:
        if words:
            line(f"{name:<{width}}  {words}")


def tolerate_any_encoding() -> None:
    """Let a narrow encoding spell out what it cannot show, instead of failing half-way."""
    _have_streams()
    if sys.stdout is None:  # closed by whoever started this: nobody wants the answer
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _have_streams() -> None:
    """Let nothing else get the numbers of standard streams that were closed: commands have them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)


def forget_stdout() -> None:
    """Nobody reads on: send the rest nowhere, so that the interpreter's last flush is quiet."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
