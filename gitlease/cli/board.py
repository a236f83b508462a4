"""``board``: tasks and leases at a glance, live or as a document; and the stream of ``watch``."""

from __future__ import annotations

import gc
import json
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
from click import Option

from gitlease.board.live import LiveBoard
from gitlease.board.page import exported
from gitlease.board.text import board_lines, head_lines, news_lines, said_in
from gitlease.board.verbs import BoardView
from gitlease.cli import output
from gitlease.cli.app import command, result_of
from gitlease.cli.call import Call
from gitlease.cli.setup.serve import HOST, PORT, PORTS, read_host
from gitlease.gateway.opening import open_tokens
from gitlease.kernel.rules.errors import Invalid, NotFound, Unavailable, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.runs.child import check_executable, is_talked_to, run_with_input
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import Called, DeclaredVerb, Result, Whole

FORMS = ("md", "svg", "html")
PATIENCE = 5.0  # seconds for the gateway to answer


def _board(
    declared: DeclaredVerb,
    call: Call,
    *,
    once: bool,
    form: str | None,
    web: bool,
    host: str | None,
    port: int | None,
    repo: str | None,
    **given: Any,
) -> int | None:
    call.anonymous = True
    chosen, cached = {"--once": once, "--export": form, "--web": web}, given["cached"]
    names = [name for name, value in chosen.items() if value]
    if len(names) > 1:
        raise UsageError(f"{names[0]} cannot be combined with {names[1]}")
    if web and cached:
        raise UsageError("--cached cannot be combined with --web: the gateway asks the remote")
    if web and call.layer:
        raise UsageError("--layer cannot be combined with --web: the gateway has its own layer")
    if web:
        open_page(call, host or HOST, port or PORT, repo)
        return None
    for name, value in (("--host", host), ("--port", port), ("--repo", repo)):
        if value is not None:
            raise UsageError(f"{name} needs --web")
    if not (once or form or call.json):
        _live(call, cached=cached)
        return None
    result = result_of(declared, call, given, export=form, once=not form)
    return call.respond(result, lambda: _show(result.value, form, cached=cached))


def _show(view: BoardView, form: str | None, *, cached: bool) -> None:
    if form is not None:
        print(exported(view, form), end="")
        return
    width, console = output.columns(), output.console()
    state = "from what this clone knows" if cached else "now"
    # The warnings come with the answer.
    without = replace(view, warnings=())
    lines = [*head_lines(without, width, state=state), *board_lines(view, width)]
    lines += news_lines(view.news, width)
    for text in said_in(lines, console.encoding):
        console.print(text, soft_wrap=True)


def _live(call: Call, *, cached: bool) -> None:
    console = output.console()
    if not is_talked_to() or not output.on_terminal() or console.is_dumb_terminal:
        hint = call.typed("board", once=True)
        raise UsageError("a live board needs a terminal", hints=(hint,))
    if not cached:
        call.check_layer(call.ledger.look)
    # The program starts without the collector of garbage; this may last for days.
    gc.enable()
    call.called = Called(verb="board")
    # The shell's screen shows them again when the board ends.
    output.warn(call.take_messages())
    LiveBoard(call.workspace, console, follow=not cached).run()


def open_page(call: Call, host: str, port: int, repo: str | None) -> None:
    """Make a link, check that the gateway accepts it, and open it if there is a display.

    Raises Unavailable if no gateway answers, and NotFound if it serves other clones.
    """
    import webbrowser

    path = f"/repos/{repo}/board" if repo else "/board"
    shown = f"[{host}]" if ":" in host else host
    holder, now = call.workspace.actor.holder, time.time_ns() // 1_000_000
    tokens = open_tokens(call.directory)
    secret = tokens.link(holder, now)
    link = f"{path}?link={secret}"
    try:
        # Another program may listen there: a link that nobody can redeem must not stay valid.
        _check(call, host, port, link, where=f"http://{shown}:{port}{path}")
    except BaseException:
        tokens.withdraw(secret)
        raise
    address = f"http://{shown}:{port}{link}"
    opened = output.has_display() and webbrowser.open(address)
    call.respond(
        Result(
            body={"url": address, "opened": opened},
            lines=lambda: [Whole(address)],
            hints=() if opened else ("open it in a browser: it works once, within a minute",),
        )
    )


def _check(call: Call, host: str, port: int, link: str, *, where: str) -> None:
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    try:
        connection.request("HEAD", link)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        raise Unavailable(
            f"no gateway answers at {where}",
            hints=(
                call.typed(
                    "serve",
                    host=host if host != HOST else None,
                    port=port if port != PORT else None,
                ),
                "for another gateway: --host H, --port P",
            ),
        ) from None
    finally:
        connection.close()
    if status != 204:
        raise NotFound(
            f"the gateway at {where} does not serve this clone",
            hints=(
                "if it serves several clones: --repo NAME",
                "for another gateway: --host H, --port P",
            ),
        )


# --- watch ----------------------------------------------------------------------------------------


def print_events(call: Call, result: Result, *, command: str | None = None, **_values: Any) -> None:
    """Print each event of a watch when it happens, and run ``command`` for it."""
    handler = None if command is None else _handler(command)
    output.warn([*call.warnings, *result.warnings])
    # As for a live board.
    gc.enable()
    for event in result.value:
        text = json.dumps(wire.watched(event))
        if call.json:
            print(text, flush=True)
        else:
            output.line(sentences.happened(event, call.now()))
            sys.stdout.flush()
        if handler is not None:
            handler(text + "\n")


def _handler(command: str) -> Callable[[str], None]:
    try:
        words = tuple(shlex.split(command))
        check_executable(words[0] if words else "")
    except (ValueError, Invalid, NotFound) as error:
        raise UsageError(f"--exec {command!r} cannot be run: {error}") from None

    def run(text: str) -> None:
        sys.stdout.flush()
        status = run_with_input(words, text)
        if status:
            output.aside(f"warning: {words[0]} ended with {status}")

    return run


board_command = partial(
    command,
    "board",
    _board,
    Option(["--once"], is_flag=True, help="Print the board and exit."),
    Option(
        ["--export", "form"],
        metavar="|".join(FORMS),
        type=click.Choice(FORMS),
        help="Print the board as a document.",
    ),
    Option(["--web"], is_flag=True, help="Open the gateway's board in a browser."),
    Option(["--host"], metavar="H", type=read_host, help=f"The gateway's host (default: {HOST})."),
    Option(["--port"], metavar="P", type=PORTS, help=f"The gateway's port (default: {PORT})."),
    Option(["--repo"], metavar="NAME", help="The gateway's name for this clone."),
)
