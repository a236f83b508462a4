"""The picture of the README: the board over the demo's ledger, on light and on dark pages.

``PYTHONPATH=tests python tests/support/picture.py`` writes it anew. The demo's commands are played
in memory, by a clock that only they move: the demo itself depends on how fast the machine is.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from unittest import mock

from doors.fake import Desk, make_desks

from gitlease.board.page import exported
from gitlease.board.verbs import make_board
from gitlease.cli.setup.demo import PLAY, TASKS
from gitlease.kernel.rules.frozen import replace
from support.tasks import task

FOLDER = Path(__file__).parents[2] / ".github"
COLUMNS = 92  # its letters are as large as those of code around it, on a page of GitHub
BETWEEN = 47  # seconds from one scene to the next
VERBS = (
    "config",
    "next",
    "claim",
    "renew",
    "extend",
    "release",
)  # of a ledger alone, without a work tree

# The colours of the board's own picture, on GitHub's pages. Each has a contrast of at least 4.5.
LIGHT = {
    "#292929": "#f6f8fa",  # the window
    "#c5c8c6": "#1f2328",  # text
    "#868887": "#59636e",  # text of less weight
    "#d0b344": "#8a5a00",
    "#98a84b": "#1a7f37",
    "#cc555a": "#cf222e",
    "rgba(255,255,255,0.35)": "#d1d9e0",  # the frame
}
DARK = {
    "#292929": "#151b23",
    "#c5c8c6": "#f0f6fc",
    "#868887": "#9198a1",
    "#d0b344": "#e3b341",
    "#98a84b": "#56d364",
    "#cc555a": "#ff7b72",
    "rgba(255,255,255,0.35)": "#3d444d",
}


def desks_after_demo() -> tuple[Desk, Desk]:
    """Ada's and Bob's desks when all that the demo does to the ledger is done."""
    desks = make_desks(*(task(name, title=title) for name, title in TASKS.items()))
    ada, bob = (replace(x, host=None, branch=None) for x in desks)  # or its columns are cut
    for scene in PLAY:
        verb, *words = shlex.split(scene.command)[1:]
        if scene.command.startswith("gitlease") and verb in VERBS:
            ada.clock.advance(BETWEEN)
            ran = {"ada": ada, "bob": bob}[scene.who].run(verb, *words)
            assert ran.code == scene.exit, (scene.command, ran)
    ada.clock.advance(BETWEEN)
    return ada, bob


def pictures() -> dict[str, str]:
    """The files of the picture by their names."""
    _, bob = desks_after_demo()
    ledger = bob.open(
        "", layer=None, local=False, remote=None, session=None, no_session=False
    ).ledger
    with mock.patch("gitlease.board.page.WIDTH", COLUMNS):
        board = replace(make_board(ledger, ledger.look()), place="origin")
        svg = exported(board, "svg")
    return {
        f"board-{name}.svg": recoloured(svg, colours)
        for name, colours in (("light", LIGHT), ("dark", DARK))
    }


def recoloured(svg: str, colours: dict[str, str]) -> str:
    """The picture in other colours."""
    return re.sub("|".join(map(re.escape, colours)), lambda x: colours[x[0]], svg)


if __name__ == "__main__":
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
