"""Where words go: answers to standard output, warnings and hints to standard error."""

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
NARROW = 8  # how far a column shrinks where a table is wider than the terminal
RED, YELLOW, DIM, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: cells for a terminal, fields for a pipe, and how it is to be coloured."""

    cells: tuple[str, ...]
    fields: tuple[str, ...]
    style: str = ""


class OutputForm:
    """How to print, as it was asked for: ``end`` ends each line of an answer."""

    color: str = "auto"
    porcelain: bool = False
    end: str = "\n"

    def __init__(self) -> None:
        self.pages: Callable[[], str | None] = lambda: None
        """Gives the address that the page of an issue has before its number."""


FORM = OutputForm()  # of this process, as its streams are


def on_terminal() -> bool:
    """Whether standard output is for a person: a terminal, or colours that were asked for."""
    return not FORM.porcelain and (FORM.color == "always" or sys.stdout.isatty())


def _in_color(stream: TextIO) -> bool:
    """By the option, else by https://no-color.org and whether it is a terminal."""
    usual = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()
    return not FORM.porcelain and {"always": True, "never": False}.get(FORM.color, usual)


def document(content: dict[str, Any]) -> None:
    """Print one JSON document; ASCII only, so that no terminal and no encoding stumbles."""
    print(json.dumps(content, indent=2 if on_terminal() else None), flush=True)


def last_line(content: dict[str, Any]) -> None:
    """One line of JSON on standard error, where standard output is a command's."""
    print(json.dumps(content), file=sys.stderr, flush=True)


def line(text: str) -> None:
    """Print one line of the answer, folded on a terminal."""
    said = _paragraph(text)
    print(_fitted(said, columns()) if on_terminal() else said, end=FORM.end)


def whole(text: str) -> None:
    """Print a line of the answer that is there to be copied: as it is, however long."""
    print(clean(text), end=FORM.end)


def lines(texts: Iterable[str]) -> None:
    """Print lines of the answer."""
    for text in texts:
        line(text)


def aside(text: str, style: str = "", *, whole: bool = False) -> None:
    """Print one line that is not the answer: a warning, a hint, a refusal.

    It is folded on a terminal, unless it is to stay ``whole``.
    """
    sys.stdout.flush()  # where both go to one place, what was said first comes first
    said = _paragraph(text)
    if sys.stderr.isatty() and not whole and not FORM.porcelain:
        said = _fitted(said, columns())
    print(f"{style}{said}{PLAIN}" if style and _in_color(sys.stderr) else said, file=sys.stderr)


def _paragraph(text: str) -> str:
    """Text in which only the first line begins a line: nobody's note can pass for a hint."""
    return clean(text).replace("\n", "\n  ")


def warn(warnings: Sequence[str]) -> None:
    """Print each warning once."""
    for text in dict.fromkeys(warnings):
        aside(f"warning: {text}", YELLOW)


def hint(hints: Sequence[str]) -> None:
    """Print hints: commands to type, or sentences; a command is copied off a line in one piece."""
    for text in hints:
        typed = re.search(r"(^|[:`(] ?)(git|pip|ssh)", text) is not None
        aside(f"hint: {text}", DIM, whole=typed)


def table(headings: Sequence[str], rows: Sequence[Row], *, otherwise: str = "") -> None:
    """An aligned table for a person; for programs one tab-separated line a row, nothing cut off.

    ``otherwise`` is what a person is told where there are no rows.
    """
    if not on_terminal():
        for row in rows:
            print("\t".join(_field(text) for text in row.fields), end=FORM.end)
    elif rows:
        _rich_table(headings, rows)
    elif otherwise:
        line(otherwise)


def _field(text: str) -> str:
    """One field of a line: what would end it is spelt out."""
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
    """With a link at each number of an issue, where they have pages."""
    for found in re.finditer(r"(?<!\w)#([1-9]\d{0,9})\b", text.plain):
        if pages := FORM.pages():
            text.stylize(f"link {pages}{found[1]}", *found.span())
    return text


def _fitting(widths: Sequence[int], most: int) -> list[int] | None:
    """The widths of columns that are to fit: the last ones, which matter least, are folded first.

    None where they cannot.
    """
    found, over = [*widths], sum(widths) + 2 * (len(widths) - 1) - most
    for at in reversed(range(len(found))):
        shrunk = max(min(NARROW, found[at]), found[at] - max(0, over))
        over -= found[at] - shrunk
        found[at] = shrunk
    return found if over <= 0 else None


def console() -> Console:
    """A console of rich's on standard output, with colours as they were asked for."""
    from rich.console import Console

    if FORM.color == "always":
        return Console(highlight=False, force_terminal=True, no_color=False)
    return Console(highlight=False, color_system=None if FORM.color == "never" else "auto")


def has_display() -> bool:
    """Whether a browser could open a window here."""
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def columns() -> int:
    """How wide the terminal is."""
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _block(rows: Sequence[tuple[str, str]]) -> None:
    """Lines of a name and what it is; what is longer than a line goes on below itself."""
    width = max((len(name) for name, _ in rows), default=0)
    most = max(NARROW, columns() - width - 2)
    for name, words in rows:
        for number, part in enumerate(_folded(" ".join(clean(words).split()), most)):
            print(f"{'' if number else name:<{width}}  {part}")


def _fitted(text: str, most: int) -> str:
    """Text with each line folded that is wider; what goes on is indented by two more."""
    if len(text) <= most and text.isascii():  # as most lines are, and then nothing is loaded
        return text
    from rich.cells import cell_len

    found: list[str] = []
    for one in text.split("\n"):
        start = one[: len(one) - len(one.lstrip())] if cell_len(one) > most else ""
        parts = [one] if cell_len(one) <= most else _folded(one, max(NARROW, most - len(start) - 2))
        found += [f"{start}{'  ' if at else ''}{part}" for at, part in enumerate(parts)]
    return "\n".join(found)


def _folded(text: str, most: int) -> list[str]:
    """Its lines of at most so many columns, some letters being two wide; none for no text."""
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
    """Lines of a name and a value, said in words for a person and in fields for programs.

    A fact without words is for programs alone, one without fields for people.
    """
    if on_terminal():
        _block([(name, words) for name, words, _ in rows])
        return
    for name, _, fields in rows:
        if fields:
            print("\t".join(map(_field, (name, *fields))), end=FORM.end)


def begin() -> None:
    """Print as usual, whatever was asked for before; spell out what an encoding cannot show."""
    usual = OutputForm()
    FORM.color, FORM.porcelain, FORM.end = usual.color, usual.porcelain, usual.end
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
