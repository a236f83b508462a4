"""Prints the demo: in two panes, in one column, or in plain lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gitlease.core.errors import clean
from gitlease.faces.cli import output
from gitlease.faces.cli.setup.demo_play import WORKERS

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 120  # columns needed for two panes
BETWEEN = " | "
COLOURS = {"ada": "cyan", "bob": "magenta"}
OTHERS = "yellow"


class DemoTeller:
    """Prints the demo line by line; on a terminal in colour and wrapped."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = output.console() if not quiet and output.on_terminal() else None

    def heading(self, text: str) -> None:
        """Print the title of a scene."""
        self._lines("\n" + text, style="bold")

    def command(self, who: str, command: str) -> None:
        """Print a command."""
        self._lines(f"{who}$ {command}", who, style=f"bold {COLOURS.get(who, OTHERS)}")

    def printed(self, who: str, text: str, *, refused: bool) -> None:
        """Print the output of a command."""
        for line in text.splitlines():
            self._lines(line, who, style=_style(line, refused=refused))

    def plain(self, text: str) -> None:
        """Print a line that belongs to no worker."""
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
