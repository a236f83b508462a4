"""The board as a document: Markdown, SVG or HTML."""

from __future__ import annotations

import io
import re

from gitlease.core.instant import rfc3339
from gitlease.faces.board import phrases
from gitlease.faces.board.page import still
from gitlease.faces.board.shapes import BoardRow, BoardView, Section
from gitlease.faces.board.text import board_lines, head_lines, news_lines

WIDTH = 120  # columns of a picture
HEADINGS = "| name | title | holder | where | why, and who waits | until |\n|" + " --- |" * 6


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
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # loaded from another host


def _markdown(board: BoardView) -> str:
    parts = [f"# {_literal(board.layer)} on {_literal(board.place)}"]
    parts += [f"As of {rfc3339(board.now)}.", *(f"Warning: {_literal(x)}" for x in board.warnings)]
    for section in Section:
        rows = board.section(section)
        if rows:
            lines = "\n".join(_row(row, board.now) for row in rows)
            parts.append(f"## {section.value.title()}: {len(rows)}\n\n{HEADINGS}\n{lines}")
    if board.news:
        lines = "\n".join(
            f"- {rfc3339(x.at)} **{x.what}** {_literal(x.name)} {_literal(x.text)}"
            for x in board.news
        )
        parts.append(f"## Lately\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _row(row: BoardRow, now: int) -> str:
    until = rfc3339(row.ends) if row.ends is not None else phrases.time_words(row, now)
    why = "; ".join(phrases.details(row, now))
    cells = (row.name, row.title, row.holder, phrases.where_words(row), why)
    return f"| {' | '.join([*map(_cell, cells), until])} |"


def _cell(text: str) -> str:
    # A bar is escaped with a backslash in a cell; a backslash before a bar cannot be written.
    return _literal(text).replace("\\|", "\\ |").replace("|", "\\|")


def _literal(text: str) -> str:
    # Others' text as code, so that no markup, address or mention in it takes effect.
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{edge}{text}{edge}{ticks}" if text else ""
