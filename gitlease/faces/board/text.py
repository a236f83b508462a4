"""The board as lines of a terminal, of any width from 40 columns on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass
from gitlease.core.instant import rfc3339
from gitlease.faces.board import phrases
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
# Columns below which a part is better read in a line of its own.
LEAST = {"name": 12, "holder": 24, "title": 16, "where": 20, "why": 24}
MOST_LINES = 3  # of what else there is to say of a row
PLAINER = str.maketrans("━─›·…▏↑↓", "=->|~|^v")


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


@dataclass(frozen=True, slots=True)
class BoardPart:
    """The head of a section, or the row with this key, and what draws it when it is in sight."""

    key: str
    draw: Callable[[], Iterable[Text]]


def columns_for(board: BoardView, width: int) -> Columns:
    """What fits into so many columns, by what there is to show; none takes the room of others."""
    from rich.cells import cell_len

    def widest(texts: Iterable[str]) -> int:
        return max((cell_len(text) + 2 for text in texts if text), default=0)

    bar = BAR if width >= 80 else 0
    left = width - 2 - TIME - (bar + 1 if bar else 0)
    rows = [x for x in board.rows if x.section is not Section.FREE]  # which need no columns
    wanted = {
        "name": max(8, widest(x.name for x in board.rows)),
        "holder": widest(map(_who, rows)),
        "title": widest(x.title for x in rows),
        "where": widest(map(phrases.where_words, rows)),
        "why": widest(" · ".join(phrases.details(x, board.now)) for x in rows),
    }
    for number in range(len(wanted), 1, -1):
        shares = _shares(dict([*wanted.items()][:number]), left)
        if all(share >= min(wanted[x], LEAST[x]) for x, share in shares.items()):
            break
    widths = dict.fromkeys(wanted, 0) | shares
    return Columns(width=width, bar=bar, gap=left - sum(widths.values()), **widths)


def board_parts(board: BoardView, width: int, *, selected: str = "") -> list[BoardPart]:
    """The rows, by their sections; a mark stands at the row whose key is ``selected``."""
    columns, parts = columns_for(board, width), list[BoardPart]()
    for section in Section:
        rows = board.section(section)
        if rows:
            parts.append(BoardPart("", partial(_section_lines, section, len(rows), width)))
        for row in rows:
            draw = partial(_row_lines, row, columns, board.now, marked=row.key == selected)
            parts.append(BoardPart(row.key, draw))
    nothing = plain_line("  no lease and no open task to show", width, style="dim")
    return parts or [BoardPart("", lambda: [nothing])]


def board_lines(board: BoardView, width: int) -> Iterator[Text]:
    """All the rows, by their sections."""
    for part in board_parts(board, width):
        yield from part.draw()


def counts(board: BoardView) -> str:
    """How many there are of each: ``3 held · 1 parked · 4 free``."""
    said = [f"{n} {x.value}" for x in Section if (n := len(board.section(x)))]
    return " · ".join(said) or "nothing to show"


def head_lines(board: BoardView, width: int, *, state: str, brief: bool = False) -> list[Text]:
    """What the board is of, how current it is, and what is on it.

    ``state`` is left out where it is out of date; ``brief``: each is cut to one line.
    """
    from rich.text import Text

    place = f"gitlease · {board.layer} on {board.place}"
    right = " · ".join(([] if board.trouble else [state]) + [phrases.time_of_day(board.now)])
    room = width - len(right) - 2
    text = _fitted(place, room) if room > 20 else Text("gitlease".ljust(max(0, room)))
    text.stylize("bold")
    text.append("  ")
    text.append(right, style="dim")
    text.truncate(width, overflow="ellipsis")
    lines = [text, plain_line(counts(board), width)]
    told = [(f"out of date: {board.trouble}", "red")] if board.trouble else []
    for said, style in (*told, *((x, "yellow") for x in board.warnings)):
        some = [plain_line(said, width, style=style)]
        lines += some if brief else _folded(said, width, 0, 2, style=style)
    return lines


def news_lines(news: Sequence[NewsItem], width: int) -> Iterator[Text]:
    """What happened last, newest first."""
    from rich.text import Text

    if not news:
        return
    yield from (plain_line("", width), plain_line("LATELY", width, style="bold"))
    for item in news:
        text = Text("  ")
        text.append(f"{phrases.time_of_day(item.at)}  ", style="dim")
        text.append(item.what, style="bold red" if item.loss else "bold")
        text.append(f" {item.name}", style="bold")
        text.append(f" {item.text}")
        text.truncate(width, overflow="ellipsis")
        yield text


def opened_lines(opened: OpenedResource, width: int, now: int) -> Iterator[Text]:
    """One resource: how it stands, its notes, and what happened to it."""
    yield plain_line(opened.name, width, style="bold")
    for row in opened.rows:
        facts = [
            ("state", f"{row.section.value} {phrases.time_words(row, now)}".rstrip()),
            ("title", row.title),
            ("holder", _who(row)),
            ("where", phrases.where_words(row)),
            ("until", rfc3339(row.ends) if row.ends else ""),
            *(("", said) for said in phrases.details(row, now)),
        ]
        yield plain_line("", width)
        for name, said in facts:
            if said:
                yield from _folded(f"{name:<8}{said}", width, 2, 10)
    if not opened.rows:
        yield from (plain_line("", width), plain_line("  nobody holds it", width))
    for title, lines in (
        ("NOTES", [f"{rfc3339(x.at)} {phrases.note_text(x)}" for x in opened.notes]),
        (
            "HISTORY",
            [f"{rfc3339(x.at)} {phrases.happened(x)} {phrases.by_whom(x)}" for x in opened.events],
        ),
    ):
        if lines:
            yield from (plain_line("", width), plain_line(title, width, style="bold"))
            for said in lines:
                yield from _folded(said, width, 2, 4)


def plain_line(said: str, width: int, *, style: str = "") -> Text:
    """A line in one style, cut where it is too long."""
    from rich.text import Text

    text = Text(said, style=style)
    text.truncate(width, overflow="ellipsis")
    return text


def said_in(lines: Iterable[Text], encoding: str) -> list[Text]:
    """The lines' texts, with signs that a terminal of this encoding can show."""
    texts = [*lines]
    if encoding.lower().replace("-", "") in ("utf8", "utf16"):
        return texts
    for text in texts:
        plain = text.plain.translate(PLAINER)
        text.plain = plain.encode(encoding, "replace").decode(encoding)
    return texts


# --- how --------------------------------------------------------------------------------------


def _shares(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """How wide each is: none less than it wants, while another has more than it."""
    shares = {}
    for at, name in enumerate(sorted(wanted, key=wanted.__getitem__)):
        shares[name] = min(wanted[name], room // (len(wanted) - at))
        room -= shares[name]
    return shares


def _section_lines(section: Section, rows: int, width: int) -> Iterator[Text]:
    yield plain_line("", width)
    head = f"{section.value.upper()} {rows}"
    yield plain_line(head, width, style=f"bold {STYLES[section]}")


def _row_lines(row: BoardRow, columns: Columns, now: int, *, marked: bool) -> Iterator[Text]:
    from rich.cells import cell_len
    from rich.text import Text

    text, below = Text("› " if marked else "  "), list[str]()

    text.append_text(_fitted(row.name, columns.name, style=f"bold {STYLES[row.section]}"))
    why = " · ".join(phrases.details(row, now))
    if row.section is Section.FREE:
        said = " · ".join(x for x in (row.title, why) if x)
        text.append_text(_fitted(said, columns.width - 2 - columns.name))
    else:
        text.append_text(_fitted(row.title, columns.title))
        text.append_text(_fitted(_who(row), columns.holder, style="green" if row.mine else ""))
        where = phrases.where_words(row)
        for said, width, style in ((where, columns.where, "dim"), (why, columns.why, "")):
            fits = cell_len(said) < width
            text.append_text(_fitted(said if fits else "", width, style=style))
            below = below if fits else [said, *below]
        if not columns.title:
            below = [plain_line(row.title, columns.width - 6).plain, *below]
        text.append(" " * columns.gap)
        if columns.bar:
            text.append(f"{_bar(row, now, columns.bar)} ", style=STYLES[row.section])
        text.append(phrases.time_words(row, now).rjust(TIME))
    if marked:
        text.stylize("reverse")
    text.truncate(columns.width)
    yield text
    more = " · ".join(x for x in below if x)
    lines = _folded(more, columns.width, 4, 4, style="dim") if more else []
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1].truncate(columns.width - 1)
        lines[MOST_LINES - 1].append("…")
    yield from lines[:MOST_LINES]


def _who(row: BoardRow) -> str:
    return f"{row.holder} (you)" if row.mine else row.holder


def _bar(row: BoardRow, now: int, size: int) -> str:
    """How much of its time a lease has left."""
    if row.section not in phrases.RUNNING or not row.ends or not row.lasts:
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


def _folded(said: str, width: int, first: int, rest: int, *, style: str = "") -> list[Text]:
    """A text on as many lines as it needs, indented by ``first``, and by ``rest`` below that."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, color_system=None)
    found: list[Text] = []
    for part in Text(said, style=style).wrap(console, max(8, width - max(first, rest))):
        part.rstrip()
        found.append(Text(" " * (rest if found else first)).append_text(part))
    return found
