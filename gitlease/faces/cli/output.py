"""Prints answers to standard output, warnings and hints to standard error."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from gitlease.core.errors import clean
from gitlease.core.frozen import dataclass

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

DOCS = os.path.join(os.path.dirname(__file__), "..", "..", "docs")
NARROW = 8  # the least width of a column in a table wider than the terminal
RED, YELLOW, DIM, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: cells for a terminal, fields for a pipe, and a style."""

    cells: tuple[str, ...]
    fields: tuple[str, ...]
    style: str = ""


class OutputForm:
    """The options of output; ``end`` ends each line of an answer."""

    color: str = "auto"
    porcelain: bool = False
    end: str = "\n"

    def __init__(self) -> None:
        self.pages: Callable[[], str | None] = lambda: None
        """Returns the URL of an issue's page, up to the number."""


FORM = OutputForm()  # global, like the streams


def on_terminal() -> bool:
    """Whether standard output is for a person: a terminal, or with ``--color always``."""
    return not FORM.porcelain and (FORM.color == "always" or sys.stdout.isatty())


def _in_color(stream: TextIO) -> bool:
    """By the option, else by https://no-color.org and whether it is a terminal."""
    usual = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()
    return not FORM.porcelain and {"always": True, "never": False}.get(FORM.color, usual)


def document(content: dict[str, Any]) -> None:
    """Print one JSON document, in ASCII so that every encoding works."""
    print(json.dumps(content, indent=2 if on_terminal() else None), flush=True)


def last_line(content: dict[str, Any]) -> None:
    """Print one line of JSON to standard error, because a command owns standard output."""
    print(json.dumps(content), file=sys.stderr, flush=True)


def line(text: str) -> None:
    """Print one line of the answer, folded on a terminal."""
    text = _paragraph(text)
    print(_fitted(text, columns()) if on_terminal() else text, end=FORM.end)


def whole(text: str) -> None:
    """Print a line of the answer that is meant to be copied, without folding it."""
    print(clean(text), end=FORM.end)


def lines(texts: Iterable[str]) -> None:
    """Print lines of the answer."""
    for text in texts:
        line(text)


def aside(text: str, style: str = "", *, whole: bool = False) -> None:
    """Print a warning, a hint or a refusal; folded on a terminal unless ``whole``."""
    sys.stdout.flush()  # keep the order if both streams go to one place
    text = _paragraph(text)
    if sys.stderr.isatty() and not whole and not FORM.porcelain:
        text = _fitted(text, columns())
    print(f"{style}{text}{PLAIN}" if style and _in_color(sys.stderr) else text, file=sys.stderr)


def _paragraph(text: str) -> str:
    # indented, so that no line of somebody's note can pass for a hint
    return clean(text).replace("\n", "\n  ")


def warn(warnings: Sequence[str]) -> None:
    """Print each warning once."""
    for text in dict.fromkeys(warnings):
        aside(f"warning: {text}", YELLOW)


def hint(hints: Sequence[str]) -> None:
    """Print hints: commands to type, or sentences; a line with a command is not folded."""
    for text in hints:
        typed = re.search(r"(^|[:`(] ?)(git|pip|ssh)", text) is not None
        aside(f"hint: {text}", DIM, whole=typed)


def table(headings: Sequence[str], rows: Sequence[Row], *, otherwise: str = "") -> None:
    """Print an aligned table for a person, or one tab-separated line per row for programs.

    ``otherwise`` is for a person if there are no rows.
    """
    if not on_terminal():
        for row in rows:
            print("\t".join(_field(text) for text in row.fields), end=FORM.end)
    elif rows:
        _rich_table(headings, rows)
    elif otherwise:
        line(otherwise)


def _field(text: str) -> str:
    return clean(text).replace("\t", "\\t").replace("\n", "\\n")


def _rich_table(headings: Sequence[str], rows: Sequence[Row]) -> None:
    from rich.cells import cell_len
    from rich.console import ConsoleDimensions
    from rich.table import Table
    from rich.text import Text

    used = [i for i, _ in enumerate(headings) if any(row.cells[i] for row in rows)]
    natural = [max(len(headings[i]), *(cell_len(row.cells[i]) for row in rows)) for i in used]
    widths = _fitting(natural, columns())
    if widths is None:
        for row in rows:
            _block([(headings[i].lower(), row.cells[i]) for i in used])
            print()
        return
    wide = console()
    wide.size = ConsoleDimensions(columns(), wide.height)  # a dumb one would be 80 wide
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, width in zip(used, widths, strict=True):
        shown.add_column(headings[i], overflow="fold", width=width)
    for row in rows:
        shown.add_row(*(_linked(Text(clean(row.cells[i]))) for i in used), style=row.style)
    wide.print(shown)


def _linked(text: Text) -> Text:
    for found in re.finditer(r"(?<!\w)#([1-9]\d{0,9})\b", text.plain):
        if pages := FORM.pages():
            text.stylize(f"link {pages}{found[1]}", *found.span())
    return text


def _fitting(widths: Sequence[int], most: int) -> list[int] | None:
    """Return column widths that fit, narrowing the last columns first; None if that fails."""
    found, over = [*widths], sum(widths) + 2 * (len(widths) - 1) - most
    for at in reversed(range(len(found))):
        shrunk = max(min(NARROW, found[at]), found[at] - max(0, over))
        over -= found[at] - shrunk
        found[at] = shrunk
    return found if over <= 0 else None


def console() -> Console:
    """Return a rich console on standard output, with the requested colours."""
    from rich.console import Console

    if FORM.color == "always":
        return Console(highlight=False, force_terminal=True, no_color=False)
    return Console(highlight=False, color_system=None if FORM.color == "never" else "auto")


def has_display() -> bool:
    """Whether a browser can open a window here."""
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def columns() -> int:
    """Return the width of the terminal."""
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _block(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns, folding long values."""
    width = max((len(name) for name, _ in rows), default=0)
    most = max(NARROW, columns() - width - 2)
    for name, words in rows:
        for number, part in enumerate(_folded(" ".join(clean(words).split()), most)):
            print(f"{'' if number else name:<{width}}  {part}")


def _fitted(text: str, most: int) -> str:
    """Fold lines that are too wide, indenting continuation lines by two."""
    if len(text) <= most and text.isascii():  # the usual case, without importing rich
        return text
    from rich.cells import cell_len

    found: list[str] = []
    for one in text.split("\n"):
        start = one[: len(one) - len(one.lstrip())] if cell_len(one) > most else ""
        parts = [one] if cell_len(one) <= most else _folded(one, max(NARROW, most - len(start) - 2))
        found += [f"{start}{'  ' if at else ''}{part}" for at, part in enumerate(parts)]
    return "\n".join(found)


def _folded(text: str, most: int) -> list[str]:
    """Split a text into lines of at most ``most`` columns; some letters are two wide."""
    from rich.cells import cell_len, chop_cells

    found: list[str] = []
    for gap, word in re.findall(r"(\s*)(\S+)", text):
        for at, part in enumerate(chop_cells(word, most)):
            longer = f"{found[-1]}{gap}{part}" if found and not at else ""
            if longer and cell_len(longer) <= most:
                found[-1] = longer
            else:
                found.append(part)
    return found


def facts(rows: Sequence[tuple[str, str, tuple[str, ...]]]) -> None:
    """Print names with values: in words for a person, in fields for programs.

    A fact without words is for programs only, one without fields for people only.
    """
    if on_terminal():
        _block([(name, words) for name, words, _ in rows])
        return
    for name, _, fields in rows:
        if fields:
            print("\t".join(map(_field, (name, *fields))), end=FORM.end)


def begin() -> None:
    """Reset the output options, and escape what an encoding cannot show."""
    usual = OutputForm()
    FORM.color, FORM.porcelain, FORM.end = usual.color, usual.porcelain, usual.end
    _have_streams()
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _have_streams() -> None:
    """Occupy the file descriptors of closed standard streams, which commands inherit."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)


def forget_stdout() -> None:
    """Discard further output, so that the interpreter's last flush does not fail."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
