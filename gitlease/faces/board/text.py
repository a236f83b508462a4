"""The board as lines of a terminal, of any width from 40 columns on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass
from gitlease.core.instant import rfc3339
from gitlease.faces.board import words
from gitlease.faces.board.shapes import BoardRow, BoardView, NewsItem, OpenedResource, Section

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    Section.HELD: "yellow",
    Section.PARKED: "cyan",
    Section.EXPIRED: "red",
    Section.ABANDONED: "magenta",
    Section.FREE: "green",
}
TIME = 13  # columns of "59m 59s left", and a blank
BAR = 8
LEAST = 16  # columns below which a title is better read in a line of its own
MOST_LINES = 3  # of what else there is to say of a row
PLAINER = str.maketrans({"━": "=", "─": "-", "›": ">", "·": "|", "…": "~", "▏": "|"})


@dataclass(frozen=True, slots=True)
class BoardLine:
    """One line, and the row that it is of."""

    text: Text
    row: BoardRow | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """How wide the parts of a row are; 0: not in a column of its own, but below the row."""

    width: int
    name: int
    title: int
    holder: int
    where: int
    why: int
    bar: int
    gap: int


def columns_for(board: BoardView, width: int) -> Columns:
    """What fits into so many columns, by what there is to show."""
    from rich.cells import cell_len

    def widest(texts: Iterable[str]) -> int:
        return max((cell_len(text) + 2 for text in texts if text), default=0)

    bar = BAR if width >= 80 else 0
    left = width - 2 - TIME - (bar + 1 if bar else 0)
    name = max(8, min(widest(x.name for x in board.rows), left * 2 // 5))
    held = min(widest(_who(x) for x in board.rows), left - name)
    holder = held if left - name - held >= LEAST else min(held, left * 2 // 5)
    title = min(widest(x.title for x in board.rows), left - name - holder)
    if title < LEAST:
        title, holder = 0, held
    left -= name + holder + title
    where = widest(words.where_words(x) for x in board.rows)
    where = where if where <= left else 0
    left -= where
    why = left if left >= 2 * LEAST else 0
    return Columns(width, name, title, holder, where, why, bar, left - why)


def board_lines(board: BoardView, width: int, *, selected: str = "") -> Iterator[BoardLine]:
    """The rows, by their sections; a mark stands at the row whose key is ``selected``."""
    columns = columns_for(board, width)
    if not board.rows:
        yield plain_line("  no lease and no open task to show", width, style="dim")
    for section in Section:
        rows = board.section(section)
        if rows:
            yield plain_line("", width)
            head = f"{section.value.upper()} {len(rows)}"
            yield plain_line(head, width, style=f"bold {STYLES[section]}")
        for row in rows:
            yield from _row_lines(row, columns, board.now, marked=row.key == selected)


def counts(board: BoardView) -> str:
    """How many there are of each: ``3 held · 1 parked · 4 free``."""
    said = [f"{n} {x.value}" for x in Section if (n := len(board.section(x)))]
    return " · ".join(said) or "nothing to show"


def head_lines(board: BoardView, width: int, *, state: str) -> list[BoardLine]:
    """What the board is of, how current it is, and what is on it."""
    from rich.text import Text

    place = f"gitlease · {board.layer} on {board.place}"
    right = f"{state} · {words.time_of_day(board.now)}"
    room = width - len(right) - 2
    text = _fitted(place, room) if room > 20 else Text("gitlease".ljust(max(0, room)))
    text.stylize("bold")
    text.append("  ")
    text.append(right, style="dim")
    text.truncate(width, overflow="ellipsis")
    lines = [BoardLine(text), plain_line(counts(board), width)]
    if board.trouble:
        lines += _folded(f"out of date: {board.trouble}", width, 0, 2, style="red")
    return lines


def news_lines(news: Sequence[NewsItem], width: int) -> Iterator[BoardLine]:
    """What happened last, newest first."""
    from rich.text import Text

    if not news:
        return
    yield from (plain_line("", width), plain_line("LATELY", width, style="bold"))
    for item in news:
        text = Text("  ")
        text.append(f"{words.time_of_day(item.at)}  ", style="dim")
        text.append(item.what, style="bold red" if item.loss else "bold")
        text.append(f" {item.name}", style="bold")
        text.append(f" {item.text}")
        text.truncate(width, overflow="ellipsis")
        yield BoardLine(text)


def opened_lines(opened: OpenedResource, width: int, now: int) -> Iterator[BoardLine]:
    """One resource: how it stands, its notes, and what happened to it."""
    yield plain_line(opened.name, width, style="bold")
    for row in opened.rows:
        facts = [
            ("state", f"{row.section.value} {words.time_words(row, now)}".rstrip()),
            ("title", row.title),
            ("holder", _who(row)),
            ("where", words.where_words(row)),
            ("until", rfc3339(row.ends) if row.ends else ""),
            *(("", said) for said in words.details(row, now)),
        ]
        yield plain_line("", width)
        for name, said in facts:
            if said:
                yield from _folded(f"{name:<8}{said}", width, 2, 10)
    if not opened.rows:
        yield from (plain_line("", width), plain_line("  nobody holds it", width))
    for title, lines in (
        ("NOTES", [f"{rfc3339(x.at)} {words.note_text(x)}" for x in opened.notes]),
        (
            "HISTORY",
            [f"{rfc3339(x.at)} {words.happened(x)} {words.by_whom(x)}" for x in opened.events],
        ),
    ):
        if lines:
            yield from (plain_line("", width), plain_line(title, width, style="bold"))
            for said in lines:
                yield from _folded(said, width, 2, 4)


def plain_line(said: str, width: int, *, style: str = "") -> BoardLine:
    """A line in one style, cut where it is too long."""
    from rich.text import Text

    text = Text(said, style=style)
    text.truncate(width, overflow="ellipsis")
    return BoardLine(text)


def said_in(lines: Iterable[BoardLine], encoding: str) -> list[Text]:
    """The lines' texts, with signs that a terminal of this encoding can show."""
    texts = [line.text for line in lines]
    if encoding.lower().replace("-", "") in ("utf8", "utf16"):
        return texts
    for text in texts:
        plain = text.plain.translate(PLAINER)
        text.plain = plain.encode(encoding, "replace").decode(encoding)
    return texts


# --- how --------------------------------------------------------------------------------------


def _row_lines(row: BoardRow, columns: Columns, now: int, *, marked: bool) -> Iterator[BoardLine]:
    from rich.cells import cell_len
    from rich.text import Text

    text = Text("› " if marked else "  ")
    text.append_text(_fitted(row.name, columns.name, style=f"bold {STYLES[row.section]}"))
    rest = words.details(row, now)
    if row.section is Section.FREE:
        said = " · ".join(x for x in (row.title, *rest) if x)
        text.append_text(_fitted(said, columns.width - 2 - columns.name))
        rest = []
    else:
        text.append_text(_fitted(row.title, columns.title))
        text.append_text(_fitted(_who(row), columns.holder, style="green" if row.mine else ""))
        where, said = words.where_words(row), words.time_words(row, now)
        text.append_text(_fitted(where, columns.where, style="dim"))
        if columns.why:
            text.append_text(_fitted(" · ".join(rest), columns.why))
            rest = rest if cell_len(" · ".join(rest)) >= columns.why else []
        text.append(" " * columns.gap)
        if columns.bar:
            text.append(f"{_bar(row, now, columns.bar)} ", style=STYLES[row.section])
        text.append(said.rjust(TIME))
        rest = [*([] if columns.title else [row.title]), *rest]
        rest += [] if columns.where else [where]
    if marked:
        text.stylize("reverse")
    text.truncate(columns.width)
    yield BoardLine(text, row)
    below = " · ".join(part for part in rest if part)
    if below:
        lines = _folded(below, columns.width, 4, 4, style="dim")
        if len(lines) > MOST_LINES:
            last = lines[MOST_LINES - 1].text
            last.truncate(columns.width - 1)
            last.append("…")
        for line in lines[:MOST_LINES]:
            yield BoardLine(line.text, row)


def _who(row: BoardRow) -> str:
    return f"{row.holder} (you)" if row.mine else row.holder


def _bar(row: BoardRow, now: int, size: int) -> str:
    """How much of its time a lease has left."""
    if row.section not in words.RUNNING or not row.ends or not row.lasts:
        return " " * size
    full = min(size, max(0, -(-(row.ends - now) * size // row.lasts)))
    return "━" * full + "─" * (size - full)


def _fitted(said: str, width: int, *, style: str = "") -> Text:
    """A text cut or filled to a column, of which the last blank parts it from the next."""
    from rich.text import Text

    text = Text(said, style=style)
    if width:
        text.truncate(width - 1, overflow="ellipsis", pad=True)
        text.append(" ")
        return text
    return Text()


def _folded(said: str, width: int, first: int, rest: int, *, style: str = "") -> list[BoardLine]:
    """A text on as many lines as it needs, indented by ``first``, and by ``rest`` below that."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, color_system=None)
    found: list[BoardLine] = []
    for part in Text(said, style=style).wrap(console, max(8, width - max(first, rest))):
        part.rstrip()
        found.append(BoardLine(Text(" " * (rest if found else first)).append_text(part)))
    return found
