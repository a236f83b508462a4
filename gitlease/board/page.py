"""The board as a document: an HTML page (complete without its script), Markdown and SVG.

All text of others is escaped, and the page contacts only its own server.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from urllib.parse import urlencode

from gitlease.board.text import (
    RUNNING,
    OpenedResource,
    board_lines,
    details,
    head_lines,
    news_lines,
    note_text,
    time_words,
    where_words,
)
from gitlease.board.verbs import BoardRow, BoardView, NewsItem, Section, by_whom, happened
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import rfc3339

SHOWN = 500  # rows of a section
ABOUT = {
    Section.HELD: "leased, or assigned to somebody",
    Section.BLOCKED: "somebody else's lease covers its paths",
    Section.WAITING: "ended by its holder, who keeps the task",
    Section.EXPIRED: "expired without being released",
    Section.ABANDONED: "expired so long ago that the assignment no longer counts",
    Section.FREE: "anyone may claim it",
}
HEADINGS = ("Name", "Title", "Holder", "Where", "Why, and who waits", "Time")
LOSS = ' class="loss"'
REFRESH = 30  # seconds between reloads without a script


@dataclass(frozen=True, kw_only=True)
class PageView:
    """The view of a page: a filter, and the name of an opened resource."""

    find: str = ""
    open: str = ""

    def query(self, **changes: str) -> str:
        """The URL query of this view with changes; empty for the whole board."""
        values = {"find": self.find, "open": self.open} | changes
        query = urlencode({name: value for name, value in values.items() if value})
        return f"?{query}" if query else ""


def page(board: BoardView, view: PageView, opened: OpenedResource | None, *, base: str) -> str:
    """The page; ``base`` is the path of the board."""
    stream = f"{base}/stream{view.query()}"
    return _document(
        board,
        f"""<form action="{escape(base)}" role="search">
<label for="find">Find</label>
<input id="find" name="find" type="search" value="{escape(view.find)}" maxlength="200">
<button>Filter</button> {_link(base, "All", "all") if view.find else ""}
</form>
<p id="state" role="status">{escape(trouble(board))}</p>
<main id="board" data-now="{board.now}" data-stream="{escape(stream)}">
{content(board, view, opened, base=base)}
</main>
{_news(board.news)}
<script>{asset("board.js")}</script>""",
        f'<noscript><meta http-equiv="refresh" content="{REFRESH}"></noscript>',
    )


def still(board: BoardView) -> str:
    """The board as a static file."""
    shown = f'<main id="board">\n{content(board, PageView(), None, base="")}\n</main>'
    return _document(board, f"{shown}\n{_news(board.news)}", "")


def notice(title: str, lines: Iterable[str]) -> str:
    """A page with a message instead of the board."""
    message = "".join(f"<p>{line}</p>" for line in lines)
    return _html(title, "", f"<h1>{escape(title)}</h1>\n<main>{message}</main>")


def content(board: BoardView, view: PageView, opened: OpenedResource | None, *, base: str) -> str:
    """The part that changes with the board; without a ``base`` rows have no links."""
    sections = [_section(x, board.section(x), board.now, view, base) for x in Section]
    parts = [_opened(opened, board.now, view, base) if opened else "", *sections]
    rows = "\n".join(part for part in parts if part)
    warnings = "".join(f'<p class="warning">{escape(x)}</p>\n' for x in board.warnings)
    pools = "".join(f"<p>{escape(x)}</p>\n" for x in board.pools())
    return warnings + pools + (rows or "<p>No lease and no open task to show.</p>")


def trouble(board: BoardView) -> str:
    """Why the board may be out of date."""
    return f"Out of date: {board.trouble}" if board.trouble else ""


def counted(board: BoardView) -> str:
    """The number of rows in each section, as list items."""
    return "".join(f'<li class="{x.value}"><b>{n}</b> {x.value}</li>' for x, n in board.counts())


def news_items(news: Iterable[NewsItem]) -> str:
    """The news as list items."""
    return "\n".join(
        f'<li data-key="{escape(x.key)}"{LOSS * x.loss}>{_at(x.at, since=11)} '
        f"<strong>{escape(x.what)}</strong> {escape(x.name)} {escape(x.text)}</li>"
        for x in news
    )


def policy(*, script: bool) -> str:
    """The Content-Security-Policy of a page: only its own style and script."""
    # By their hashes: nothing that others wrote into a ledger can run or style the page.
    run = f"script-src '{_hash('board.js')}'; connect-src 'self'; " if script else ""
    return (
        f"default-src 'none'; style-src '{_hash('board.css')}'; {run}form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


@cache
def asset(name: str) -> str:
    """The page's style or script, a file beside this module."""
    return files("gitlease").joinpath("board", name).read_text(encoding="utf-8")


# --- parts ------------------------------------------------------------------------------------


def _hash(name: str) -> str:
    return "sha256-" + b64encode(sha256(asset(name).encode()).digest()).decode()


def _document(board: BoardView, body: str, head: str) -> str:
    at = rfc3339(board.now)
    return _html(
        f"gitlease: {board.layer}",
        head,
        f"""<header>
<h1>gitlease <small>{escape(board.layer)} on {escape(board.place)}</small></h1>
<p>as of <time id="asof" datetime="{at}">{at}</time></p>
<ul id="counts" aria-label="How many there are">{counted(board)}</ul>
</header>
{body}""",
    )


def _html(title: str, head: str, body: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{asset("board.css")}</style>
{head}
</head>
<body>
{body}
</body>
</html>
"""


# Roles are explicit: with rows displayed as blocks, browsers no longer treat it as a table.
def _section(
    section: Section, rows: tuple[BoardRow, ...], now: int, view: PageView, base: str
) -> str:
    if not rows:
        return ""
    more = len(rows) - SHOWN
    rest = f"<p>and {more} more: filter to see them</p>" if more > 0 else ""
    heads = "".join(f'<th scope="col" role="columnheader">{x}</th>' for x in HEADINGS)
    body = "\n".join(_row(row, now, view, base) for row in rows[:SHOWN])
    return f"""<table class="{section.value}" role="table">
<caption><b>{section.value.title()}</b> {len(rows)} <span>{ABOUT[section]}</span></caption>
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{body}
</tbody>
</table>{rest}"""


def _row(row: BoardRow, now: int, view: PageView, base: str) -> str:
    name = escape(row.name)
    if base:
        query = view.query(open=row.resource.text)
        name = f'<a id="{escape(row.key)}" href="{escape(base + query)}">{name}</a>'
    who = f"{escape(row.holder)}{' <em>(you)</em>' if row.mine else ''}"
    return (
        f'<tr role="row"><th scope="row" role="rowheader">{name}</th>'
        + _cell("title", escape(row.title))
        + _cell("holder", who)
        + _cell("where", escape(where_words(row)))
        + _cell("why", "<br>".join(escape(x) for x in details(row, now)))
        + _cell("time", _time(row, now))
        + "</tr>"
    )


def _cell(kind: str, html: str) -> str:
    return f'<td role="cell" class="{kind}{"" if html else " empty"}">{html}</td>'


def _time(row: BoardRow, now: int) -> str:
    text = time_words(row, now)
    if row.ends is None:
        return text
    at, bar = rfc3339(row.ends), ""
    way = "left" if row.section in RUNNING else "ago"
    if way == "left" and row.lasts:
        rest = max(0, min(row.lasts, row.ends - now))
        bar = f'<progress max="{row.lasts}" value="{rest}" aria-hidden="true"></progress>'
    day = "" if at[:10] == rfc3339(now)[:10] else f"{at[:10]} "
    return (
        f'<b data-ends="{row.ends}" data-way="{way}">{text}</b> '
        f'<time datetime="{at}">{day}{at[11:]}</time>{bar}'
    )


def _opened(opened: OpenedResource, now: int, view: PageView, base: str) -> str:
    notes = [f"{_at(x.at)} {escape(note_text(x))}" for x in opened.notes]
    events = [
        f"{_at(x.at)} <strong>{escape(happened(x))}</strong> {escape(by_whom(x))}"
        for x in opened.events
    ]
    state = [
        f"{row.section.value} {escape(row.holder)} {escape(time_words(row, now))}".strip()
        for row in opened.rows
        # Of the others a clock runs in their row below.
        if row.ends is None
    ]
    parts = [
        f"<h3>{title}</h3><ul>{''.join(f'<li>{x}</li>' for x in items)}</ul>"
        for title, items in (("State", state), ("Notes", notes), ("History", events))
        if items
    ]
    close = _link(base + view.query(open=""), "Close", "close")
    return (
        f'<section id="opened" aria-labelledby="opened-name"><h2 id="opened-name">'
        f"{escape(opened.name)}</h2>{''.join(parts) or '<p>No state, notes or history.</p>'}"
        f"<p>{close}</p></section>"
    )


def _at(at: int, *, since: int = 0) -> str:
    # The text is the time from that character on: the day may be left out.
    time = rfc3339(at)
    return f'<time datetime="{time}">{time[since:]}</time>'


def _link(address: str, text: str, id: str) -> str:
    return f'<a id="{id}" href="{escape(address)}">{text}</a>'


def _news(news: Iterable[NewsItem]) -> str:
    return (
        '<section aria-labelledby="lately"><h2 id="lately">Lately</h2>\n'
        f'<div role="log" aria-live="polite"><ul id="news">{news_items(news)}</ul></div></section>'
    )


WIDTH = 120  # columns of a picture
MARKDOWN_COLUMNS = ("name", "title", "holder", "where", "why, and who waits", "until")
MARKDOWN_HEADINGS = f"| {' | '.join(MARKDOWN_COLUMNS)} |\n|{' --- |' * 6}"


def exported(board: BoardView, form: str) -> str:
    """The board as ``md``, ``svg`` or ``html``."""
    return {"md": _markdown, "svg": _svg, "html": still}[form](board)


def _svg(board: BoardView) -> str:
    from rich.console import Console

    console = Console(
        width=WIDTH,
        file=io.StringIO(),
        record=True,
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
    )
    lines = [*head_lines(board, WIDTH, state=rfc3339(board.now)[:10])]
    for line in (*lines, *board_lines(board, WIDTH), *news_lines(board.news, WIDTH)):
        console.print(line, soft_wrap=True)
    svg = console.export_svg(title="gitlease board")
    # Rich's fonts would be loaded from another host by whoever looks at the picture.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def _markdown(board: BoardView) -> str:
    parts = [f"# {_literal(board.layer)} on {_literal(board.place)}"]
    parts += [f"As of {rfc3339(board.now)}.", *(f"Warning: {_literal(x)}" for x in board.warnings)]
    parts += map(_literal, board.pools())
    for section in Section:
        rows = board.section(section)
        if rows:
            lines = "\n".join(_markdown_row(row, board.now) for row in rows)
            parts.append(f"## {section.value.title()}: {len(rows)}\n\n{MARKDOWN_HEADINGS}\n{lines}")
    if board.news:
        lines = "\n".join(
            f"- {rfc3339(x.at)} **{x.what}** {_literal(x.name)} {_literal(x.text)}"
            for x in board.news
        )
        parts.append(f"## Lately\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _markdown_row(row: BoardRow, now: int) -> str:
    until = rfc3339(row.ends) if row.ends is not None else time_words(row, now)
    why = "; ".join(details(row, now))
    texts = map(_literal, (row.name, row.title, row.holder, where_words(row), why))
    # A bar is escaped with a backslash in a cell; a backslash before a bar cannot be written.
    cells = [text.replace("\\|", "\\ |").replace("|", "\\|") for text in texts]
    return f"| {' | '.join([*cells, until])} |"


def _literal(text: str) -> str:
    # Others' text as code, so that no markup, address or mention in it takes effect.
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    # Markdown takes one blank from each side of such code away.
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{edge}{text}{edge}{ticks}" if text else ""
