"""``board``: tasks and leases at a glance, live on a terminal, as a file, or as a page."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING

import click

from gitlease.core.errors import Unavailable, UsageError
from gitlease.core.frozen import replace
from gitlease.faces import wire
from gitlease.faces.cli import output
from gitlease.faces.cli.output import Row
from gitlease.faces.cli.read.reading import check_layer
from gitlease.faces.cli.setup.serve import HOST, PORT, read_host, read_port
from gitlease.faces.cli.verb import READING_EXITS, Verb, flag, option

if TYPE_CHECKING:
    from gitlease.faces.board.shapes import BoardRow, BoardView
    from gitlease.faces.cli.call import Call

FORMS = ("md", "svg", "html")


@click.command(
    "board",
    cls=Verb,
    help="""Tasks and leases at a glance: what is held, parked, expired, abandoned and free, by
whom, where, why and for how long, who waits, and what happened lately.

On a terminal it is live, counts down, and follows the remote as watch does; with --cached only what
this clone comes to know. Arrows (or j, k) select a row, Enter opens it with its notes and its
history, / filters, q quits. --once prints it and ends. --export prints it as a document: Markdown,
SVG or HTML.

--web opens the board of the gateway that serves this clone on this machine (gitlease serve) in a
browser, with a link that is good once, for a minute; the browser keeps a cookie for 12 hours that
shows the board and can do nothing else. --host, --port and --repo are those of the gateway.

Piped with --once, each line has, separated by tabs: section, resource, scope, holder, session,
ends_at, host, branch, waiting, title, reason.""",
    examples=(
        "gitlease board",
        "gitlease board --once",
        "gitlease board --export svg > board.svg",
        "gitlease board --web",
    ),
    exits=READING_EXITS,
    done="shown, and then quit",
    cached=True,
)
@flag("--once", help="Print it and end.")
@option(
    "--export",
    "form",
    metavar="|".join(FORMS),
    type=click.Choice(FORMS),
    help="Print it as a document.",
)
@flag("--web", help="Open the gateway's board in a browser.")
@option("--host", metavar="H", type=read_host, help=f"Where the gateway is (default: {HOST}).")
@option("--port", metavar="P", type=read_port, help=f"On which port (default: {PORT}).")
@option("--repo", metavar="NAME", help="What the gateway calls this clone.")
@click.pass_obj
def board_verb(
    call: Call,
    *,
    once: bool,
    form: str | None,
    web: bool,
    host: str | None,
    port: int | None,
    repo: str | None,
    cached: bool,
) -> int | None:
    chosen = {"--once": once, "--export": form, "--web": web}
    given = [name for name, value in chosen.items() if value]
    if len(given) > 1:
        raise UsageError(f"{given[0]} does not go with {given[1]}")
    if web and cached:
        raise UsageError("--cached does not go with --web: the gateway asks for itself")
    if web and call.layer:
        raise UsageError("--layer does not go with --web: it is the gateway's that is shown")
    if web:
        from gitlease.faces.cli.read.board_web import open_page

        open_page(call, host or HOST, port or PORT, repo)
        return None
    of_gateway = {"--host": host, "--port": port, "--repo": repo}
    if odd := [name for name, value in of_gateway.items() if value is not None]:
        raise UsageError(f"{odd[0]} needs --web")
    if once or form or call.json:
        _print(call, form, cached=cached)
        return None
    return _live(call, cached=cached)


def _print(call: Call, form: str | None, *, cached: bool) -> None:
    from gitlease.faces.board.model import make_board

    how = ["--export", form] if form else ["--once"]
    call.cached = call.typed("board", options=["--cached", *how])
    look = call.ledger.look(cached=cached)
    if look.head.ledger is None:
        check_layer(call)
    board = make_board(call.ledger, look)
    state = "from what this clone knows" if cached else "now"

    def show() -> None:
        if form is not None:
            from gitlease.faces.board.export import exported

            print(exported(board, form), end="")
        elif output.on_terminal():
            _show(board, state)
        else:
            output.table((), [Row((), _fields(row)) for row in board.rows])

    warnings = (*look.warnings, *board.warnings)
    call.answer(wire.board(board), warnings=warnings, show=show)


def _show(board: BoardView, state: str) -> None:
    from gitlease.faces.board.text import board_lines, head_lines, news_lines, said_in

    width, console = output.columns(), output.console()
    said = replace(board, warnings=())  # they come with the answer
    lines = [*head_lines(said, width, state=state), *board_lines(board, width)]
    lines += news_lines(board.news, width)
    for text in said_in(lines, console.encoding):
        console.print(text, soft_wrap=True)


def _fields(row: BoardRow) -> tuple[str, ...]:
    said = wire.board_row(row)
    waiting = " ".join(said["waiting"])
    names = ("section", "resource", "scope", "holder", "session", "ends_at", "host", "branch")
    return (*(said[x] or "" for x in names), waiting, row.title, row.reason)


def _live(call: Call, *, cached: bool) -> int | None:
    from gitlease.runs.terminal import is_talked_to

    console = output.console()
    if not is_talked_to() or not output.on_terminal() or console.is_dumb_terminal:
        hint = call.typed("board", options=["--once"])
        raise UsageError("a live board needs a terminal to draw on", hints=(hint,))
    if not cached:
        check_layer(call)
    from gitlease.faces.board.live_board import LiveBoard
    from gitlease.faces.codes import INTERRUPTED

    gc.enable()  # this may last for days
    try:
        ended = LiveBoard(call.workspace, console, follow=not cached).run()
    except Unavailable:
        call.cached = call.typed("board", options=["--cached"])
        raise
    if ended is None:
        return None
    if ended != signal.SIGINT:
        signal.signal(ended, signal.SIG_DFL)
        os.kill(os.getpid(), ended)
    return INTERRUPTED
