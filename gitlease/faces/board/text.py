"""The board as lines for a terminal of at least 40 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass
from gitlease.core.instant import rfc3339
from gitlease.verbs import board as model
from gitlease.verbs.board import BoardRow, BoardView, NewsItem, OpenedResource, Section

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    Section.HELD: "yellow",
    Section.BLOCKED: "bright_black",
    Section.PARKED: "cyan",
    Section.EXPIRED: "red",
    Section.ABANDONED: "magenta",
    Section.FREE: "green",
}
TIME = 13  # columns of "59m 59s left", and a blank
BAR = 8
# Columns below which a part is left out (the holder: shortened before the name is); it stands in
# the opened resource.
LEAST = {"holder": 24, "why": 24, "where": 20, "title": 16}
PLAINER = str.maketrans("━─›·…▏↑↓", "=->|~|^v")


@dataclass(frozen=True, slots=True)
class Columns:
    """The widths of the parts of a row; 0: left out."""

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
    """The head of a section, or the row of a ``key``; ``draw`` is called when it is visible."""

    key: str
    draw: Callable[[], Iterable[Text]]


def columns_for(board: BoardView, width: int) -> Columns:
    """The widths for a board, by its contents."""
    from rich.cells import cell_len

    def widest(texts: Iterable[str]) -> int:
        return max((cell_len(text) + 2 for text in texts if text), default=0)

    rows = [x for x in board.rows if x.section is not Section.FREE]  # these need no columns
    name = max(8, widest(x.name for x in board.rows))
    holder = widest(map(_who, rows))
    left = width - 2 - TIME
    bar = BAR if width >= 80 and name + holder <= left - BAR - 1 else 0
    left -= bar + 1 if bar else 0
    name = min(
        name, max(_shares({"name": name, "holder": holder}, left)["name"], left - LEAST["holder"])
    )
    holder = min(holder, left - name)
    left -= name + holder
    wanted = {
        "why": widest(" · ".join(model.details(x, board.now)) for x in rows),
        "where": widest(map(model.where_words, rows)),
        "title": widest(x.title for x in rows),
    }
    for number in range(len(wanted), -1, -1):  # the title goes first
        shares = _shares(dict([*wanted.items()][:number]), left)
        if all(share >= min(wanted[x], LEAST[x]) for x, share in shares.items()):
            break
    widths = dict.fromkeys(wanted, 0) | shares | {"name": name, "holder": holder}
    return Columns(width=width, bar=bar, gap=left - sum(shares.values()), **widths)


def board_parts(board: BoardView, width: int, *, selected: str = "") -> list[BoardPart]:
    """The rows by section, one line each; the one whose key is ``selected`` is marked."""
    columns, parts = columns_for(board, width), list[BoardPart]()
    for section in Section:
        rows = board.section(section)
        if rows:
            parts.append(BoardPart("", partial(_section_lines, section, len(rows), width)))
        for row in rows:
            draw = partial(_row_line, row, columns, board.now, marked=row.key == selected)
            parts.append(BoardPart(row.key, draw))
    nothing = plain_line("  no lease and no open task to show", width, style="dim")
    return parts or [BoardPart("", lambda: [nothing])]


def board_lines(board: BoardView, width: int) -> Iterator[Text]:
    """All rows by section."""
    for part in board_parts(board, width):
        yield from part.draw()


def counts(board: BoardView) -> str:
    """The number of rows in each section: ``3 held · 1 parked · 4 free``."""
    texts = [f"{n} {x.value}" for x in Section if (n := len(board.section(x)))]
    return " · ".join(texts) or "nothing to show"


def head_lines(board: BoardView, width: int, *, state: str, brief: bool = False) -> list[Text]:
    """The ledger, how current the board is (``state``, or why it is not), and its counts.

    ``brief``: each message is cut to one line.
    """
    from rich.text import Text

    place = f"gitlease · {board.layer} on {board.place}"
    right = " · ".join(([] if board.trouble else [state]) + [model.time_of_day(board.now)])
    room = width - len(right) - 2
    text = _fitted(place, room) if room > 20 else Text("gitlease".ljust(max(0, room)))
    text.stylize("bold")
    text.append("  ")
    text.append(right, style="dim")
    text.truncate(width, overflow="ellipsis")
    lines = [text, plain_line(counts(board), width)]
    messages = [(f"out of date: {board.trouble}", "red")] if board.trouble else []
    for line, style in (*messages, *((x, "yellow") for x in board.warnings)):
        some = [plain_line(line, width, style=style)]
        lines += some if brief else _folded(line, width, 0, 2, style=style)
    return lines


def news_lines(news: Sequence[NewsItem], width: int) -> Iterator[Text]:
    """Recent events, newest first."""
    from rich.text import Text

    if not news:
        return
    yield from (plain_line("", width), plain_line("LATELY", width, style="bold"))
    for item in news:
        text = Text("  ")
        text.append(f"{model.time_of_day(item.at)}  ", style="dim")
        text.append(item.what, style="bold red" if item.loss else "bold")
        text.append(f" {item.name}", style="bold")
        text.append(f" {item.text}")
        text.truncate(width, overflow="ellipsis")
        yield text


def opened_lines(opened: OpenedResource, width: int, now: int) -> Iterator[Text]:
    """A resource: its state, its notes, and its history."""
    yield plain_line(opened.name, width, style="bold")
    for row in opened.rows:
        facts = [
            ("state", f"{row.section.value} {model.time_words(row, now)}".rstrip()),
            ("title", row.title),
            ("holder", _who(row)),
            ("where", model.where_words(row)),
            ("until", rfc3339(row.ends) if row.ends else ""),
            *(("", line) for line in model.details(row, now)),
        ]
        yield plain_line("", width)
        for name, line in facts:
            if line:
                yield from _folded(f"{name:<8}{line}", width, 2, 10)
    if not opened.rows:
        yield from (plain_line("", width), plain_line("  nobody holds it", width))
    for title, lines in (
        ("NOTES", [f"{rfc3339(x.at)} {model.note_text(x)}" for x in opened.notes]),
        (
            "HISTORY",
            [f"{rfc3339(x.at)} {model.happened(x)} {model.by_whom(x)}" for x in opened.events],
        ),
    ):
        if lines:
            yield from (plain_line("", width), plain_line(title, width, style="bold"))
            for line in lines:
                yield from _folded(line, width, 2, 4)


def plain_line(line: str, width: int, *, style: str = "") -> Text:
    """A line in one style, truncated to the width."""
    from rich.text import Text

    text = Text(line, style=style)
    text.truncate(width, overflow="ellipsis")
    return text


def said_in(lines: Iterable[Text], encoding: str) -> list[Text]:
    """The lines, with characters that the terminal's encoding has."""
    texts = [*lines]
    if encoding.lower().replace("-", "") in ("utf8", "utf16"):
        return texts
    for text in texts:
        plain = text.plain.translate(PLAINER)
        text.plain = plain.encode(encoding, "replace").decode(encoding)
    return texts


# --- parts ------------------------------------------------------------------------------------


def _shares(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """A fair share for each: nobody gets less than wanted while another has more."""
    shares = {}
    for at, name in enumerate(sorted(wanted, key=wanted.__getitem__)):
        shares[name] = min(wanted[name], room // (len(wanted) - at))
        room -= shares[name]
    return shares


def _section_lines(section: Section, rows: int, width: int) -> Iterator[Text]:
    yield plain_line("", width)
    head = f"{section.value.upper()} {rows}"
    yield plain_line(head, width, style=f"bold {STYLES[section]}")


def _row_line(row: BoardRow, columns: Columns, now: int, *, marked: bool) -> Iterator[Text]:
    from rich.text import Text

    text = Text("› " if marked else "  ")
    name = _middle(row.name, columns.name)
    text.append_text(_fitted(name, columns.name, style=f"bold {STYLES[row.section]}"))
    why = " · ".join(model.details(row, now))
    if row.section is Section.FREE:
        line = " · ".join(x for x in (row.title, why) if x)
        text.append_text(_fitted(line, columns.width - 2 - columns.name))
    else:
        text.append_text(_fitted(row.title, columns.title))
        who, where = _middle(_who(row), columns.holder), model.where_words(row)
        text.append_text(_fitted(who, columns.holder, style="green" if row.mine else ""))
        text.append_text(_fitted(_middle(where, columns.where), columns.where, style="dim"))
        text.append_text(_fitted(why, columns.why))
        text.append(" " * columns.gap)
        if columns.bar:
            text.append(f"{_bar(row, now, columns.bar)} ", style=STYLES[row.section])
        text.append(model.time_words(row, now).rjust(TIME))
    if marked:
        text.stylize("reverse")
    text.truncate(columns.width)
    yield text


def _who(row: BoardRow) -> str:
    return f"{row.holder} (you)" if row.mine else row.holder


def _bar(row: BoardRow, now: int, size: int) -> str:
    if row.section not in model.RUNNING or not row.ends or not row.lasts:
        return " " * size
    full = min(size, max(0, -(-(row.ends - now) * size // row.lasts)))
    return "━" * full + "─" * (size - full)


def _middle(text: str, width: int) -> str:
    from gitlease.faces.cli.output import shortened

    return shortened(text, width - 1) if width else text


def _fitted(line: str, width: int, *, style: str = "") -> Text:
    # Truncated or padded to a column, ending in a blank.
    from rich.text import Text

    text = Text(line, style=style)
    if width:
        text.truncate(width - 1, overflow="ellipsis", pad=True)
        text.append(" ")
        return text
    return Text()


def _folded(line: str, width: int, first: int, rest: int, *, style: str = "") -> list[Text]:
    # Wrapped, the first line indented by ``first``, the others by ``rest``.
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, color_system=None)
    lines: list[Text] = []
    for part in Text(line, style=style).wrap(console, max(8, width - max(first, rest))):
        part.rstrip()
        lines.append(Text(" " * (rest if lines else first)).append_text(part))
    return lines
