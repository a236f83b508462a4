"""How the play of ``demo`` is told: in two panes, one below the other, or in plain lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gitlease.core.errors import clean
from gitlease.faces.cli import output
from gitlease.faces.cli.setup.demo_play import WORKERS

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 120  # columns from which on each worker has a pane
BETWEEN = " | "
COLOURS = {"ada": "cyan", "bob": "magenta"}
OTHERS = "yellow"


class DemoTeller:
    """Prints lines as the play goes on; on a terminal in colour, and wrapped, never cut."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = output.console() if not quiet and output.on_terminal() else None

    def heading(self, text: str) -> None:
        """Say what comes next."""
        self._lines("\n" + text, style="bold")

    def command(self, who: str, command: str) -> None:
        """Show what somebody types."""
        self._lines(f"{who}$ {command}", who, style=f"bold {COLOURS.get(who, OTHERS)}")

    def printed(self, who: str, text: str, *, refused: bool) -> None:
        """Show what the command printed, if anything."""
        for line in text.splitlines():
            self._lines(line, who, style=_style(line, refused=refused))

    def plain(self, text: str) -> None:
        """Say something that concerns both."""
        self._lines(text)

    def _lines(self, text: str, who: str = "", *, style: str = "") -> None:
        if self._quiet:
            return
        for line in text.split("\n"):
            if self._console is None:
                output.line(line)
            else:
                self._wrapped(self._console, clean(line), who, style)
        sys.stdout.flush()

    def _wrapped(self, console: Console, line: str, who: str, style: str) -> None:
        """Print a line of a terminal, in the worker's pane where there is room for two."""
        from rich.text import Text

        columns = output.columns()  # rich takes a dumb terminal for one of 80
        panes = who in WORKERS and columns >= WIDE
        width = (columns - len(BETWEEN)) // 2 if panes else columns
        for part in Text(line, style).wrap(console, width, overflow="fold"):
            if panes:
                pair = [Text(), Text()]
                pair[WORKERS.index(who)] = part
                pair[0].truncate(width, pad=True)
                part = Text.assemble(pair[0], (BETWEEN, "dim"), pair[1])
            part.rstrip()
            console.print(part, no_wrap=True, overflow="ignore", crop=False)


def _style(line: str, *, refused: bool) -> str:
    said = line.removeprefix("gitlease: ")
    if said.startswith("hint: "):
        return "dim"
    if said.startswith("warning: "):
        return "yellow"
    return "red" if refused else ""
