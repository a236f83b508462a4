"""The picture of a live board, and what its keys do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gitlease.core.frozen import replace
from gitlease.faces.board.model import matching
from gitlease.faces.board.shapes import BoardRow, BoardView, OpenedResource
from gitlease.faces.board.text import (
    BoardPart,
    board_parts,
    head_lines,
    news_lines,
    opened_lines,
    plain_line,
)

if TYPE_CHECKING:
    from rich.text import Text

    from gitlease.core.resources.resource import Resource

ROOMY = 20  # lines from which on news have a place of their own, and the head is complete
NEWS_SHOWN = 5
OPEN_KEYS = "esc back · q quit"
TYPING_KEYS = "enter done · esc all"
KEYS = "↑↓ move · enter open · / filter · q quit"


class BoardScreen:
    """The state of the screen (selection, filter, opened resource) and its picture."""

    def __init__(self, open_resource: Callable[[Resource], OpenedResource]) -> None:
        self._open_resource = open_resource
        self.board: BoardView | None = None
        self._matching: BoardView | None = None
        self.quit = False
        self._selected = self._filter = ""
        self._opened: OpenedResource | None = None
        self._resource: Resource | None = None
        self._typing = False
        self._top = self._page = 0

    def show(self, board: BoardView) -> None:
        """Show a new board."""
        self.board = board
        self._match(self._filter)
        if self._resource is not None:
            self._opened = self._open_resource(self._resource)

    def press(self, key: str) -> None:
        """Handle a key."""
        if self._typing:
            self._type(key)
        elif key in ("q", "Q"):
            self.quit = True
        elif self._resource is not None:
            self._press_opened(key)
        elif key == "/":
            self._typing = True
        elif key == "escape":
            self._match("")
        elif key == "enter":
            self._open()
        else:
            self._move(key)

    def frame(self, now: int, width: int, height: int, *, state: str) -> list[Text]:
        """The lines to draw now, at most as many as the terminal has."""
        if self._matching is None:
            return [plain_line(state, width)]
        board, brief = replace(self._matching, now=now), height < ROOMY
        head = head_lines(board, width, state=state, brief=brief)[: max(1, height // 2)]
        foot = [plain_line(self._foot(), width, style="dim")]
        news = [*news_lines(board.news[:NEWS_SHOWN], width)] if self._opened is None else []
        self._page = room = max(1, height - len(head) - (0 if brief else len(news)) - len(foot))
        if self._opened is not None:
            lines = [plain_line("", width), *opened_lines(self._opened, width, now)]
            self._top = max(0, min(self._top, len(lines) - room))
            shown = lines[self._top : self._top + room]
        else:
            chosen = self._chosen()
            parts = board_parts(board, width, selected=chosen)
            if brief:
                parts.append(BoardPart("", news.copy))
                news = []
            shown = self._window(parts, chosen, room, width)
        filled = [plain_line("", width)] * (room - len(shown))
        return [*head, *shown, *filled, *news, *foot][:height]

    # --- how ----------------------------------------------------------------------------------

    def _rows(self) -> tuple[BoardRow, ...]:
        return self._matching.rows if self._matching else ()

    def _match(self, text: str) -> None:
        self._filter = text
        self._matching = matching(self.board, text) if self.board else None

    def _chosen(self) -> str:
        # The first row, unless another was selected and still exists.
        keys = [row.key for row in self._rows()]
        return self._selected if self._selected in keys else "".join(keys[:1])

    def _window(self, parts: Sequence[BoardPart], key: str, room: int, width: int) -> list[Text]:
        # The lines that fit, including the selected row; only visible parts are drawn. If some do
        # not fit, the last line counts their rows.
        drawn = cache(lambda at: [*parts[at].draw()])
        whole = len(parts) <= room and sum(len(drawn(at)) for at in range(len(parts))) <= room
        room = room if whole or room < 3 else room - 1

        def first_before(end: int) -> int:
            at, left = end, room
            while at > 0 and (left := left - len(drawn(at - 1))) >= 0:
                at -= 1
            return at

        rows = [at for at, part in enumerate(parts) if part.key] or [0]
        chosen = next((at for at in rows if parts[at].key == key), 0)
        end = len(parts) if chosen == rows[-1] else chosen + 1
        top = 0 if chosen == rows[0] else min(self._top, first_before(len(parts)))
        self._top = min(chosen, max(top, first_before(end)))
        lines: list[Text] = []
        hidden = sum(at < self._top for at in rows)
        for at in range(self._top, len(parts)):
            if len(lines) < room:
                lines += drawn(at)
            elif parts[at].key:
                hidden += 1
        lines = lines[:room]
        return [*lines, plain_line(f"  {hidden} more", width, style="dim")] if hidden else lines

    def _foot(self) -> str:
        if self._typing:
            return f"filter: {self._filter}▏ {TYPING_KEYS}"
        if self._opened is not None:
            return OPEN_KEYS
        return f"filter: {self._filter} (esc all) · {KEYS}" if self._filter else KEYS

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self._typing = False
            self._match("" if key == "escape" else self._filter)
        elif key == "backspace":
            self._match(self._filter[:-1])
        elif len(key) == 1:
            self._match(self._filter + key)

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
