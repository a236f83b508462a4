"""The live board on a terminal, drawn each second from this clone's state."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import select
import signal
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from gitlease import wiring
from gitlease.core.errors import Unavailable
from gitlease.core.frozen import replace
from gitlease.core.instant import Instant
from gitlease.core.resources import Resource
from gitlease.engine.ledger_session import LedgerView
from gitlease.engine.ports import Snapshot
from gitlease.engine.watch import LOOK, Watcher
from gitlease.faces.board.text import (
    BoardPart,
    OpenedResource,
    board_parts,
    head_lines,
    matching,
    news_lines,
    open_resource,
    opened_lines,
    plain_line,
    said_in,
)
from gitlease.runs.child import stop_like
from gitlease.verbs.board import BoardRow, BoardView, make_board

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


TICK = 1.0  # seconds between two pictures
CLEAR = "\x1b[2K"  # erases a line
HOME = f"\x1b[H{CLEAR}"


class RemoteWatch:
    """Keeps this clone's state current in a thread, until it is stopped.

    ``head`` is the first state read, ``error`` a permanent failure.
    """

    def __init__(self, workspace: wiring.Workspace, wake: Callable[[], None]) -> None:
        self._workspace, self._wake = workspace, wake
        self._stopped = threading.Event()
        self._first: Unavailable | None = None
        self.head: Snapshot | None = None
        self.error: Exception | None = None
        self._watcher: Watcher | None = None
        threading.Thread(target=self._run, name="gitlease board", daemon=True).start()

    @property
    def trouble(self) -> str:
        """Why the remote cannot be reached; empty while it answers."""
        error = self._first or (self._watcher.trouble if self._watcher else None)
        return f"{error.message}; still trying" if error else ""

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            clock = self._workspace.waking_clock(self._stopped)
            ledger = self._workspace.again(clock=clock).ledger
            while True:
                self._watcher = Watcher(ledger, on_begin=self._begin)
                try:
                    for _ in self._watcher.events():
                        self._wake()
                except Unavailable as error:
                    self._first = error
                    self._wake()
                    clock.sleep(LOOK)
        except InterruptedError:
            return
        except Exception as error:
            self.error = error
            self._wake()

    def _begin(self, head: Snapshot) -> None:
        self.head, self._first = head, None
        self._wake()


class LiveBoard:
    """A board on a console, from its first picture to the key or the signal that ends it."""

    def __init__(self, workspace: wiring.Workspace, console: Console, *, follow: bool) -> None:
        self._ledger, self._console = workspace.ledger, console
        self._workspace, self._follow = workspace, follow
        self._screen = BoardScreen(self._open)
        self._view: LedgerView | None = None
        self._made: tuple[Instant, str, str] | None = None

    def run(self) -> int | None:
        """Show it; return the number of the signal that ended it, None for a key.

        Raises what reading the ledger raises.
        """
        with KeyTerminal() as terminal:
            watch = RemoteWatch(self._workspace, terminal.wake) if self._follow else None
            try:
                return self._shown(terminal, watch)
            finally:
                if watch is not None:
                    watch.stop()

    def _shown(self, terminal: KeyTerminal, watch: RemoteWatch | None) -> int | None:
        while not self._screen.quit and terminal.ended is None:
            if watch is not None and watch.error is not None:
                raise watch.error
            self._refresh(watch)
            terminal.draw(self._picture(watch), self._console.encoding)
            for key in terminal.keys(TICK):
                self._screen.press(key)
            # Only between two pictures: the shell gets its screen back as it was.
            if terminal.stopped:
                terminal.give_back()
                stop_like(signal.SIGTSTP)
                terminal.stopped, terminal.continued = False, True
            if terminal.continued and terminal.ended is None:
                terminal.continued = False
                terminal.take()
        return terminal.ended

    def _refresh(self, watch: RemoteWatch | None) -> None:
        # Only if something may have changed: a picture a second must cost nearly nothing.
        now, mark = self._ledger.clock.now(), self._ledger.store.mark(self._ledger.layer)
        trouble, board, made = watch.trouble if watch else "", self._screen.board, self._made
        if made and made[1:] == (mark, trouble) and board and not board.is_due(made[0], now):
            return
        view = self._ledger.known_look()
        if view is None and watch is not None and watch.head is not None:
            view = LedgerView(watch.head, self._ledger.moment(watch.head), ())
        if view is None and watch is None:
            # Raises that nothing is cached.
            view = self._ledger.look(cached=True)
        self._view = view
        if view is not None:
            self._made = now, mark, trouble
            self._screen.show(make_board(self._ledger, view, trouble=trouble))

    def _picture(self, watch: RemoteWatch | None) -> str:
        from rich.console import Group
        from rich.screen import Screen

        state = "from what this clone knows"
        if watch is not None:
            # Live only once the remote has answered.
            state = "live" if watch.head is not None else "asking the remote"
            if self._view is None:
                state = watch.trouble or state
        width, height = self._console.size
        now = self._ledger.clock.now().wall_ms
        lines = self._screen.frame(now, width, height, state=state)
        with self._console.capture() as picture:
            self._console.print(Screen(Group(*said_in(lines, self._console.encoding))), end="")
        return HOME + picture.get().replace("\n", f"\n{CLEAR}")

    def _open(self, resource: Resource) -> OpenedResource:
        view, board = self._view, self._screen.board
        if view is None or board is None:
            raise AssertionError("a resource is opened on a board")
        return open_resource(self._ledger, view, board, resource)


ROOMY = 20  # lines from which on news have a place of their own, and the head is complete
NEWS_SHOWN = 5
OPEN_KEYS = "esc back · q quit"
TYPING_KEYS = "enter done · esc all"
BOARD_KEYS = "↑↓ move · enter open · / filter · q quit"


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
        # The lines that fit, including the selected row; only visible parts are drawn: there may be
        # very many. If some do not fit, the last line counts their rows.
        drawn = cache(lambda at: [*parts[at].draw()])
        whole = len(parts) <= room and sum(len(drawn(at)) for at in range(len(parts))) <= room
        room = room if whole or room < 3 else room - 1

        def first_before(end: int) -> int:
            at, free = end, room
            while at > 0 and (free := free - len(drawn(at - 1))) >= 0:
                at -= 1
            return at

        rows = [at for at, part in enumerate(parts) if part.key] or [0]
        chosen = next((at for at in rows if parts[at].key == key), 0)
        end = len(parts) if chosen == rows[-1] else chosen + 1
        top = 0 if chosen == rows[0] else min(self._top, first_before(len(parts)))
        # The selection moves within the picture; that moves only where it would leave it.
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
        return f"filter: {self._filter} (esc all) · {BOARD_KEYS}" if self._filter else BOARD_KEYS

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


KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# The alternate screen, without a cursor or line wrapping, however wide a character is.
SCREEN, BACK = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
BACKGROUND = 0.2  # seconds between two checks for the foreground
HEARD = (*ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


def keys_in(text: str) -> Iterator[str]:
    """The keys of typed text; unknown escape sequences are left out."""
    for part in re.findall(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|.", text, re.DOTALL):
        if part in KEYS:
            yield KEYS[part]
        elif part.isprintable():
            yield part


class KeyTerminal:
    """The alternate screen and unbuffered keys, until the block ends, however that ends.

    Signals do not end or stop the process here, but set ``ended`` (to their number), ``stopped``
    and ``continued``: then ``take`` the terminal again. A terminal that is gone counts as SIGHUP.
    """

    def __init__(self, handle: int = 0, screen: int = 1) -> None:
        self._handle, self._screen = handle, screen
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.ended: int | None = None
        self.stopped = self.continued = self._drawing = self._taken = False
        self._before: dict[int, object] = {}
        self._modes: list[Any] | None = None

    def __enter__(self) -> KeyTerminal:
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        # A signal may come just before select: the byte in the pipe ends that at once.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in HEARD:
            self._before[number] = signal.signal(number, self._heard)
        self.take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._woken)
        os.close(self._wake)

    def take(self) -> None:
        """Take over keys (also Ctrl-S) and screen; in the background wait for the foreground."""
        self._taken = False
        while self.ended is None and not self._taken:
            if self._is_in_background():
                # SIGTTOU must not stop it here: a signal just delivered to another thread would not
                # be handled any more.
                self._sleep([], BACKGROUND)
                continue
            try:
                usual = self._modes or termios.tcgetattr(self._handle)
                termios.tcsetattr(self._handle, termios.TCSANOW, _typed_modes(usual))
                self._modes, self._taken = usual, True
            except termios.error as error:
                # The terminal is gone; with EINTR the process was only stopped meanwhile.
                if error.args[0] != errno.EINTR:
                    self.ended = signal.SIGHUP
        self.draw(SCREEN if self._taken else "")

    def give_back(self) -> None:
        """Restore screen and modes; in the background, a shell has set the modes already."""
        if self._taken:
            self.draw(BACK)
        self._taken = False
        # The terminal may be gone.
        with contextlib.suppress(termios.error):
            if self._modes is not None and not self._is_in_background():
                termios.tcsetattr(self._handle, termios.TCSANOW, self._modes)

    def draw(self, text: str, encoding: str = "ascii") -> None:
        """Write to the screen; a signal that ends the board interrupts it."""
        rest = text.encode(encoding, "replace")
        try:
            # Else a terminal that nobody reads from would keep the board from ending.
            self._drawing = self.ended is None
            while rest:
                rest = rest[os.write(self._screen, rest) :]
            self._drawing = False
        except OSError:
            self._drawing = False
            self.ended = self.ended or signal.SIGHUP
            # Makes room for ``BACK`` in a terminal that nobody reads from.
            with contextlib.suppress(termios.error):
                termios.tcflush(self._screen, termios.TCOFLUSH)

    def wake(self) -> None:
        """Let ``keys`` return. May be called from any thread."""
        try:
            os.write(self._wake, b".")
        except OSError:
            # Full, so it wakes anyway; or closed, and nobody waits.
            return

    def keys(self, seconds: float) -> list[str]:
        """The keys typed within so many seconds; it returns early when woken."""
        if self._handle not in self._sleep([self._handle], seconds):
            return []
        try:
            data = os.read(self._handle, 4096)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self.ended = self.ended or signal.SIGHUP
        return list(keys_in(self._decoder.decode(data)))

    def _sleep(self, handles: list[int], seconds: float) -> list[int]:
        ready, _, _ = select.select([*handles, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 65_536)
        return ready

    def _is_in_background(self) -> bool:
        try:
            return os.tcgetpgrp(self._handle) != os.getpgrp()
        except OSError:
            # Not this session's terminal, so there is no foreground.
            return False

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if number in ENDS:
            self.ended, drawing = number, self._drawing
            if drawing:
                self._drawing = False
                raise InterruptedError
        elif number == signal.SIGTSTP:
            self.stopped = True
        elif number == signal.SIGCONT:
            self.continued = True


def _typed_modes(usual: list[Any]) -> list[Any]:
    # Each key by itself and unseen. Ctrl-S would stop the output, and so the board, for good.
    modes = [*usual]
    modes[0] &= ~termios.IXON
    modes[3] &= ~(termios.ECHO | termios.ICANON)
    modes[6] = [*modes[6]]
    modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
    return modes
