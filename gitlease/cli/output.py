"""Prints answers to standard output, warnings and hints to standard error."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from gitlease.kernel.rules.errors import clean
from gitlease.verbs.columns import shortened, start_of, width_of

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from rich.console import Console
    from rich.text import Text

NARROW = 8  # the least width of folded text
# How columns of a table wider than its terminal give way; all others keep their width.
FOLDED = {"TITLE", "REASON", "WHY", "WHY NOT", "WAITS FOR", "LEASE", "VALUE", "PROBLEM"}
SHORTENED = {"RESOURCE", "RESOURCES", "WHERE", "COMMAND", "LOG", "STARTS", "SOURCE"}
LEAST_FOLDED, LEAST_SHORTENED = 12, 12
LINES = 2  # of one cell
RED, YELLOW, DIM, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


def package() -> Traversable:
    """Return the folder of the package, which may lie in an archive."""
    from importlib.resources import files

    return files("gitlease")


def docs() -> Traversable:
    """Return the folder of the schemas, and of the pages that are about no single part."""
    return package().joinpath("docs")


class OutputForm:
    """The options of output."""

    color: str = "auto"
    pages: Callable[[], str | None] | None = None
    """Returns the URL of an issue's page, up to the number."""


FORM = OutputForm()  # global, like the streams


def on_terminal() -> bool:
    """Return whether standard output is for a person: a terminal, or with ``--color always``."""
    return FORM.color == "always" or sys.stdout.isatty()


def _in_color(stream: TextIO) -> bool:
    # Click knows nothing of https://no-color.org.
    usual = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()
    return {"always": True, "never": False}.get(FORM.color, usual)


def document(content: dict[str, Any]) -> None:
    """Print one JSON document, in ASCII so that every encoding works."""
    print(json.dumps(content, indent=2 if on_terminal() else None), flush=True)


def last_line(content: dict[str, Any]) -> None:
    """Print one line of JSON to standard error, because a command owns standard output."""
    print(json.dumps(content), file=sys.stderr, flush=True)


def line(text: str) -> None:
    """Print one line of the answer, folded on a terminal."""
    text = _paragraph(text)
    print(_fitted(text, columns()) if on_terminal() else text)


def whole(text: str) -> None:
    """Print a line of the answer that is meant to be copied, without folding it."""
    print(_tamed(clean(text)))


def aside(text: str, style: str = "", *, whole: bool = False) -> None:
    """Print a warning, a hint or a refusal; folded on a terminal unless ``whole``."""
    # Keeps the order if both streams go to one place.
    sys.stdout.flush()
    text = _paragraph(text)
    if sys.stderr.isatty() and not whole:
        text = _fitted(text, columns())
    print(f"{style}{text}{PLAIN}" if style and _in_color(sys.stderr) else text, file=sys.stderr)


def _paragraph(text: str) -> str:
    # Indented, so that no line of somebody's note can pass for a hint of ours.
    return _tamed(clean(text)).replace("\n", "\n  ")


def _tamed(text: str) -> str:
    # A job at GitHub takes what begins a line like that for a command, and a name may.
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return re.sub(r"(?m)^(?=\s*::)", "- ", text.replace("##[", "## ["))


def warn(warnings: Sequence[str]) -> None:
    """Print each warning once."""
    for text in dict.fromkeys(warnings):
        aside(f"warning: {text}", YELLOW)


def hint(hints: Sequence[str]) -> None:
    """Print hints: commands to type, or sentences; a line with a command is not folded."""
    for text in hints:
        typed = re.search(r"(^|[:`(] ?)(git|pip|ssh)", text) is not None
        aside(f"hint: {text}", DIM, whole=typed)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    styles: Sequence[str] = (),
    otherwise: str = "",
) -> None:
    """Print an aligned table, or ``otherwise`` if there are no rows.

    On a terminal that is too narrow, some columns give way: prose is folded over two lines, and
    paths are shortened in the middle. In a pipe nothing is cut.
    """
    if not rows:
        if otherwise:
            line(otherwise)
        return
    used = [i for i, _ in enumerate(headings) if any(row[i] for row in rows)]
    names = [headings[i] for i in used]
    cells = [[" ".join(clean(row[i]).split()) for i in used] for row in rows]
    # In a pipe nothing is cut: a program or an agent reads it.
    laid_out = table_lines(names, cells, columns() if on_terminal() else None)
    if not laid_out:
        for texts in cells:
            _block(list(zip(map(str.lower, names), texts, strict=True)))
            print()
    elif not on_terminal():
        for lines in laid_out:
            print("\n".join(map(_tamed, lines)))
    else:
        from rich.text import Text

        wide = console()
        for style, lines in zip(["bold", *(styles or [""] * len(rows))], laid_out, strict=True):
            for text in lines:
                wide.print(_linked(Text(text, style=style)), soft_wrap=True)


def table_lines(
    names: Sequence[str], rows: Sequence[Sequence[str]], most: int | None
) -> list[list[str]]:
    """Return the lines of a table's head and of each row, in at most so many columns.

    None: as wide as it is. Empty if the columns that never give way are too wide.
    """
    widths = [max(map(width_of, column)) for column in zip(names, *rows, strict=True)]
    fitting = widths if most is None else _fitting(names, widths, most)
    if fitting is None:
        return []
    laid_out = []
    for texts in (names, *rows):
        cells = [_cell(*cell) for cell in zip(names, texts, fitting, strict=True)]
        height = max(map(len, cells))
        padded = [[*lines, *[""] * (height - len(lines))] for lines in cells]
        laid_out.append([_aligned(part, fitting) for part in zip(*padded, strict=True)])
    return laid_out


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = (t + " " * (width - width_of(t)) for t, width in zip(texts, widths, strict=True))
    return "  ".join(padded).rstrip()


def _cell(heading: str, text: str, width: int) -> list[str]:
    """Return the lines of a cell: at most two, and all of the text if it fits."""
    if width_of(text) <= width:
        return [text]
    if heading not in FOLDED:
        return [shortened(text, width)]
    return _in_two_lines(text, width)


def _in_two_lines(text: str, width: int) -> list[str]:
    lines = _folded(text, width)
    if len(lines) > LINES:
        rest = " ".join(lines[LINES - 1 :])
        lines[LINES - 1 :] = [start_of(rest, width - 1) + "…"]
    return lines


def _linked(text: Text) -> Text:
    for issue in re.finditer(r"(?<!\w)#([1-9]\d{0,9})\b", text.plain):
        if FORM.pages is not None and (pages := FORM.pages()):
            text.stylize(f"link {pages}{issue[1]}", *issue.span())
    return text


def _fitting(names: Sequence[str], widths: Sequence[int], most: int) -> list[int] | None:
    """Return widths of columns that fit into ``most``; the widest give way first. None: cannot."""
    least = [
        min(width, LEAST_FOLDED if name in FOLDED else LEAST_SHORTENED)
        if name in FOLDED or name in SHORTENED
        else width
        for name, width in zip(names, widths, strict=True)
    ]
    most -= 2 * (len(names) - 1)
    if sum(least) > most:
        return None
    fitting = [
        min(width, max(most, at_least)) for width, at_least in zip(widths, least, strict=True)
    ]
    while sum(fitting) > most:
        room = [width if width > low else 0 for width, low in zip(fitting, least, strict=True)]
        fitting[room.index(max(room))] -= 1
    return fitting


def console() -> Console:
    """Return a rich console on standard output, with the requested colours."""

    from rich.console import Console

    if FORM.color == "always":
        return Console(highlight=False, force_terminal=True, no_color=False)
    return Console(highlight=False, color_system=None if FORM.color == "never" else "auto")


def has_display() -> bool:
    """Return whether a browser can open a window here."""
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def columns() -> int:
    """Return the width of the terminal; behind a pipe it is that of standard error."""
    from shutil import get_terminal_size

    try:
        behind_pipe = os.get_terminal_size(2)
    except OSError:
        behind_pipe = os.terminal_size((80, 24))
    return get_terminal_size(behind_pipe).columns


def _block(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns; on a terminal a value has at most two lines."""
    width = max((len(name) for name, _ in rows), default=0)
    most = max(NARROW, columns() - width - 2)
    for name, words in rows:
        text = " ".join(clean(words).split())
        if on_terminal() and name.upper() in SHORTENED:
            text = shortened(text, LINES * most)
        for number, part in enumerate(_in_two_lines(text, most) if on_terminal() else [text]):
            print(f"{'' if number else name:<{width}}  {part}".rstrip())


def _fitted(text: str, most: int) -> str:
    """Fold lines that are too wide, indenting continuation lines by two."""
    # Again without importing rich.
    if len(text) <= most and text.isascii():
        return text
    from rich.cells import cell_len

    lines: list[str] = []
    for line in text.split("\n"):
        fits = cell_len(line) <= most
        start = "" if fits else line[: len(line) - len(line.lstrip())]
        parts = [line] if fits else _folded(line, max(NARROW, most - len(start) - 2))
        lines += [f"{start}{'  ' if at else ''}{part}" for at, part in enumerate(parts)]
    return "\n".join(lines)


def _folded(text: str, most: int) -> list[str]:
    """Split a text into lines of at most ``most`` columns; some letters are two wide."""
    from rich.cells import cell_len, chop_cells

    lines: list[str] = []
    for gap, word in re.findall(r"(\s*)(\S+)", text):
        for at, part in enumerate(chop_cells(word, most)):
            longer = f"{lines[-1]}{gap}{part}" if lines and not at else ""
            if longer and cell_len(longer) <= most:
                lines[-1] = longer
            else:
                lines.append(part)
    return lines


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print names with their values, without empty ones."""
    _block([(name, words) for name, words in rows if words])


def begin() -> None:
    """Reset the output options, and escape what an encoding cannot show."""
    FORM.color = OutputForm.color
    # Standard streams that the parent closed: the next file opened, or a socket, would get their
    # numbers, and what a command prints would go there.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def forget_stdout() -> None:
    """Discard further output, so that the interpreter's last flush does not fail."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


# --- progress on a terminal -----------------------------------------------------------------------

TICK = 1.0  # seconds


@contextmanager
def progress() -> Iterator[None]:
    """Report steps that take longer than a second while the block runs."""
    over = threading.Event()
    ticker = threading.Thread(target=report_steps, args=(over.wait, aside), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()


def report_steps(is_over: Callable[[float], bool], say: Callable[[str, str], None]) -> None:
    """Print each step that lasts longer than a tick, once, until ``is_over``."""
    from gitlease.kernel.ledger.ports import at_present

    last, printed = None, None
    while not is_over(TICK):
        now = at_present()
        # The same step as a second ago: short ones are never named.
        if now is not None and now == last != printed:
            say(f"{now} …", DIM)
            printed = now
        last = now
