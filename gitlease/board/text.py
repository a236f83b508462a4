"""The board as lines for a terminal of at least 40 columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gitlease.board.verbs import BoardRow, BoardView, NewsItem, Section, plain
from gitlease.kernel.ledger.ledger_session import LedgerSession, LedgerView
from gitlease.kernel.ledger.stepping import history_of
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import moment_of, rfc3339
from gitlease.kernel.rules.ledger import Note, Ticket
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.verbs.columns import shortened
from gitlease.verbs.sentences import setback

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    Section.HELD: "yellow",
    Section.BLOCKED: "bright_black",
    Section.WAITING: "cyan",
    Section.EXPIRED: "red",
    Section.ABANDONED: "magenta",
    Section.FREE: "green",
}
TIME = 13  # columns of "59m 59s left", and a blank
BAR = 8
# Columns below which a part is left out (the holder: shortened before the name is).
LEAST = {"holder": 24, "why": 24, "where": 20, "title": 16}
PLAINER = str.maketrans("━─·…", "=-|~")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class BoardPart:
    """The head of a section, or the row of a ``key``; ``draw`` is called when it is visible."""

    key: str
    draw: Callable[[], Iterable[Text]]


@dataclass(frozen=True)
class OpenedResource:
    """A resource of the board with its notes and its last events, newest first."""

    name: str
    rows: tuple[BoardRow, ...]
    notes: tuple[Note, ...]
    events: tuple[Event, ...]


RUNNING = (Section.HELD, Section.BLOCKED)  # their leases count down
HISTORY = 20  # events of an opened resource


def note_text(note: Note) -> str:
    """A note and its author."""
    return f"by {plain(note.author)}: {plain(note.text)}"


def waiting_words(tickets: Sequence[Ticket]) -> str:
    """The wait queue in order, or nothing."""
    waiting = [
        f"{number}. {plain(x.holder)}" + (f" ({plain(x.session)})" if x.session else "")
        for number, x in enumerate(tickets, start=1)
    ]
    return f"waiting: {', '.join(waiting)}" if waiting else ""


def where_words(row: BoardRow) -> str:
    """Session, host and branch: ``session build-7 on laptop, branch main``."""
    session = f"session {row.session}" if row.session else ""
    run = f"{session} on {row.host}".lstrip() if row.host else session
    return ", ".join(x for x in (run, f"branch {row.branch}" if row.branch else "") if x)


def time_of_day(at: int, *, round_up: bool = False) -> str:
    """The time of an instant in UTC: ``10:15:00Z``."""
    return rfc3339(at, round_up=round_up)[11:]


def clock_words(seconds: int) -> str:
    """A countdown: ``4s``, ``12m 04s``, ``1h 05m``, ``2d 3h``."""
    days, hours = divmod(max(0, seconds) // 3600, 24)
    minutes, rest = divmod(max(0, seconds) % 3600, 60)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


def time_words(row: BoardRow, now: int) -> str:
    """The time a row has left, or since it ended; nothing without a lease."""
    if row.ends is None:
        return "assigned" if row.section is Section.HELD else ""
    if row.section in RUNNING:
        return f"{clock_words((row.ends - now) // 1000)} left"
    return f"{clock_words((now - row.ends) // 1000)} ago"


def details(row: BoardRow, now: int) -> list[str]:
    """The other facts of a row, the most important first."""
    texts = [waiting_words(row.waiting), f'"{row.reason}"' if row.reason else ""]
    if row.section is Section.EXPIRED:
        after = "still assigned" if row.assigned else "free to take"
        if row.lapses is not None and row.lapses > now:
            at = time_of_day(row.lapses, round_up=True)
            after = f"blocks until {at}, then {after}" if row.assigned else f"free from {at}"
        texts.insert(0, after)
    if row.setback:
        texts.insert(0, plain(setback(row.setback, moment_of(now))))
    if row.through:
        texts.insert(0, f"covered by the lease of {row.through}")
    if row.waits_for:
        texts.append(f"waits for {', '.join(row.waits_for)}")
    return [x for x in texts if x]


def matching(board: BoardView, text: str) -> BoardView:
    """The board with only the rows and news that contain every word of a text."""
    wanted = fold(text).split()

    def has(*texts: str) -> bool:
        text = fold(" ".join(texts))
        return all(word in text for word in wanted)

    return replace(
        board,
        rows=tuple(x for x in board.rows if has(x.section.value, *_texts(x))),
        news=tuple(x for x in board.news if has(x.what, x.name, x.text)),
    )


def open_resource(
    session: LedgerSession, view: LedgerView, board: BoardView, resource: Resource
) -> OpenedResource:
    """A resource with its notes and history, without contacting the remote."""
    ledger, notes = view.head.ledger, tuple[Note, ...]()
    with contextlib.suppress(Invalid):
        notes = ledger.notes(resource) if ledger else ()
    return OpenedResource(
        name=plain(resource.text),
        rows=tuple(x for x in board.rows if x.resource == resource),
        notes=notes,
        events=tuple(
            event
            for event in history_of(session, view.head, resource, HISTORY)
            # The claim that displaced it says so.
            if event.kind != "displaced" or not event.detail
        ),
    )


def _texts(row: BoardRow) -> tuple[str, ...]:
    where = (row.session, row.host, row.branch)
    return row.name, row.title, row.holder, *where, row.reason, waiting_words(row.waiting)


def columns_for(board: BoardView, width: int) -> Columns:
    """The widths for a board, by its contents."""
    from rich.cells import cell_len

    def widest(texts: Iterable[str]) -> int:
        return max((cell_len(text) + 2 for text in texts if text), default=0)

    # Free tasks need no columns: they have a name and a title.
    rows = [x for x in board.rows if x.section is not Section.FREE]
    name = max(8, widest(x.name for x in board.rows))
    holder = widest(map(_who, rows))
    room = width - 2 - TIME
    bar = BAR if width >= 80 and name + holder <= room - BAR - 1 else 0
    room -= bar + 1 if bar else 0
    name = min(
        name, max(_shares({"name": name, "holder": holder}, room)["name"], room - LEAST["holder"])
    )
    holder = min(holder, room - name)
    room -= name + holder
    wanted = {
        "why": widest(" · ".join(details(x, board.now)) for x in rows),
        "where": widest(map(where_words, rows)),
        "title": widest(x.title for x in rows),
    }
    # The title goes first, then where it is.
    for number in range(len(wanted), -1, -1):
        shares = _shares(dict([*wanted.items()][:number]), room)
        if all(share >= min(wanted[x], LEAST[x]) for x, share in shares.items()):
            break
    widths = dict.fromkeys(wanted, 0) | shares | {"name": name, "holder": holder}
    return Columns(width=width, bar=bar, gap=room - sum(shares.values()), **widths)


def board_parts(board: BoardView, width: int) -> list[BoardPart]:
    """The rows by section, one line each."""
    columns, parts = columns_for(board, width), list[BoardPart]()
    for section in Section:
        rows = board.section(section)
        if rows:
            parts.append(BoardPart("", partial(_section_lines, section, len(rows), width)))
        for row in rows:
            parts.append(BoardPart(row.key, partial(_row_line, row, columns, board.now)))
    nothing = plain_line("  no lease and no open task to show", width, style="dim")
    return parts or [BoardPart("", lambda: [nothing])]


def board_lines(board: BoardView, width: int) -> Iterator[Text]:
    """All rows by section."""
    for part in board_parts(board, width):
        yield from part.draw()


def head_lines(board: BoardView, width: int, *, state: str, brief: bool = False) -> list[Text]:
    """The ledger, how current the board is (``state``, or why it is not), and its counts.

    ``brief``: each message is cut to one line.
    """
    from rich.text import Text

    place = f"gitlease · {board.layer} on {board.place}"
    right = " · ".join(([] if board.trouble else [state]) + [time_of_day(board.now)])
    room = width - len(right) - 2
    text = _fitted(place, room) if room > 20 else Text("gitlease".ljust(max(0, room)))
    text.stylize("bold")
    text.append("  ")
    text.append(right, style="dim")
    text.truncate(width, overflow="ellipsis")
    counts = " · ".join(f"{n} {x.value}" for x, n in board.counts())
    lines = [text, plain_line(counts or "nothing to show", width)]
    lines += [plain_line(x, width, style="dim") for x in board.pools()]
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
        text.append(f"{time_of_day(item.at)}  ", style="dim")
        text.append(item.what, style="bold red" if item.loss else "bold")
        text.append(f" {item.name}", style="bold")
        text.append(f" {item.text}")
        text.truncate(width, overflow="ellipsis")
        yield text


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
        # A terminal of an older encoding would show a question mark for each of these.
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


def _row_line(row: BoardRow, columns: Columns, now: int) -> Iterator[Text]:
    from rich.text import Text

    text = Text("  ")
    # The end of a path tells most: it gives way in the middle.
    name = _middle(row.name, columns.name)
    text.append_text(_fitted(name, columns.name, style=f"bold {STYLES[row.section]}"))
    why = " · ".join(details(row, now))
    if row.section is Section.FREE:
        line = " · ".join(x for x in (row.title, why) if x)
        text.append_text(_fitted(line, columns.width - 2 - columns.name))
    else:
        text.append_text(_fitted(row.title, columns.title))
        who, where = _middle(_who(row), columns.holder), where_words(row)
        text.append_text(_fitted(who, columns.holder, style="green" if row.mine else ""))
        text.append_text(_fitted(_middle(where, columns.where), columns.where, style="dim"))
        text.append_text(_fitted(why, columns.why))
        text.append(" " * columns.gap)
        if columns.bar:
            text.append(f"{_bar(row, now, columns.bar)} ", style=STYLES[row.section])
        text.append(time_words(row, now).rjust(TIME))
    text.truncate(columns.width)
    yield text


def _who(row: BoardRow) -> str:
    return f"{row.holder} (you)" if row.mine else row.holder


def _bar(row: BoardRow, now: int, size: int) -> str:
    if row.section not in RUNNING or not row.ends or not row.lasts:
        return " " * size
    # Rounded up: an empty bar means that it is over.
    full = min(size, max(0, -(-(row.ends - now) * size // row.lasts)))
    return "━" * full + "─" * (size - full)


def _middle(text: str, width: int) -> str:
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
