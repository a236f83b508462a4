"""The live board on a terminal: what is drawn, and what its keys do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gitlease.core.frozen import replace
from gitlease.faces.board.model import matching
from gitlease.faces.board.shapes import BoardRow, BoardView, OpenedResource
from gitlease.faces.board.text import (
    BoardLine,
    board_lines,
    head_lines,
    news_lines,
    opened_lines,
    plain_line,
)

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource

ROOMY = 20  # lines of a terminal from which on the news have a place of their own
NEWS_SHOWN = 5
OPEN_KEYS = "esc back · q quit"
TYPING_KEYS = "enter done · esc all"
KEYS = "↑↓ move · enter open · / filter · q quit"


class BoardScreen:
    """What is selected, opened and filtered, and the picture of it."""

    def __init__(self, open_resource: Callable[[Resource], OpenedResource]) -> None:
        self._open_resource = open_resource
        self.board: BoardView | None = None
        self.quit = False
        self._selected = self._filter = ""
        self._opened: OpenedResource | None = None
        self._resource: Resource | None = None
        self._typing = False
        self._top = self._page = 0

    def show(self, board: BoardView) -> None:
        """Take the board as it is by now."""
        self.board = board
        if self._resource is not None:
            self._opened = self._open_resource(self._resource)

    def press(self, key: str) -> None:
        """What a key does."""
        if self._typing:
            self._type(key)
        elif key in ("q", "Q"):
            self.quit = True
        elif self._resource is not None:
            self._press_opened(key)
        elif key == "/":
            self._typing = True
        elif key == "escape":
            self._filter = ""
        elif key == "enter":
            self._open()
        else:
            self._move(key)

    def frame(self, now: int, width: int, height: int, *, state: str) -> list[BoardLine]:
        """The picture of this moment, at most as large as the terminal."""
        if self.board is None:
            return [plain_line(state, width)]
        board = matching(replace(self.board, now=now), self._filter)
        head = head_lines(board, width, state=state)
        foot = [plain_line(self._foot(), width, style="dim")]
        if self._opened is not None:
            body = [plain_line("", width), *opened_lines(self._opened, width, now)]
            news: list[BoardLine] = []
        else:
            body = list(board_lines(board, width, selected=self._chosen()))
            news = list(news_lines(board.news[:NEWS_SHOWN], width))
            if height < ROOMY:
                body, news = [*body, *news], []
        room = max(1, height - len(head) - len(news) - len(foot))
        self._page = room
        shown = self._window(body, room)
        filled = [plain_line("", width)] * max(0, room - len(shown))
        return [*head, *shown, *filled, *news, *foot][:height]

    # --- how ----------------------------------------------------------------------------------

    def _rows(self) -> tuple[BoardRow, ...]:
        return matching(self.board, self._filter).rows if self.board else ()

    def _chosen(self) -> str:
        """The row that is selected: the first until another is, and where that is gone."""
        keys = [row.key for row in self._rows()]
        return self._selected if self._selected in keys else "".join(keys[:1])

    def _window(self, body: list[BoardLine], room: int) -> list[BoardLine]:
        """The part of the lines that fits, with the selected row in it."""
        chosen = self._chosen()
        at = [n for n, line in enumerate(body) if line.row and line.row.key == chosen]
        if at and self._opened is None:
            first = next(n for n, line in enumerate(body) if line.row)
            self._top = 0 if at[0] == first else min(self._top, at[0])
            self._top = max(self._top, at[-1] - room + 1)
        self._top = max(0, min(self._top, len(body) - room))
        return body[self._top : self._top + room]

    def _foot(self) -> str:
        if self._typing:
            return f"filter: {self._filter}▏ {TYPING_KEYS}"
        if self._opened is not None:
            return OPEN_KEYS
        return f"filter: {self._filter} (esc all) · {KEYS}" if self._filter else KEYS

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self._typing = False
            self._filter = "" if key == "escape" else self._filter
        elif key == "backspace":
            self._filter = self._filter[:-1]
        elif len(key) == 1:
            self._filter += key

    def _press_opened(self, key: str) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self._page}
        steps |= {"page down": self._page, " ": self._page}
        if key in ("escape", "enter", "backspace"):
            self._opened = self._resource = None
            self._top = 0
        else:
            self._top += steps.get(key, 0)

    def _open(self) -> None:
        row = next((x for x in self._rows() if x.key == self._chosen()), None)
        if row is not None:
            self._resource, self._top = row.resource, 0
            self._opened = self._open_resource(row.resource)

    def _move(self, key: str) -> None:
        keys = [row.key for row in self._rows()]
        if not keys:
            return
        at = keys.index(self._chosen())
        page = max(1, self._page // 2)
        to = {
            **{"up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1},
            **{"page up": at - page, "page down": at + page, " ": at + page},
            **{"home": 0, "g": 0, "end": len(keys) - 1, "G": len(keys) - 1},
        }.get(key, at)
        self._selected = keys[max(0, min(to, len(keys) - 1))]
