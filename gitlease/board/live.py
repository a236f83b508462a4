"""The live board on a terminal, drawn each second from this clone's state."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from gitlease.board.text import (
    BoardPart,
    board_parts,
    head_lines,
    news_lines,
    plain_line,
    said_in,
)
from gitlease.board.verbs import BoardView, make_board
from gitlease.kernel.ledger.ledger_session import LedgerView
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.ledger.watch import Watcher
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import Instant
from gitlease.runs.child import handling, stop_like
from gitlease.verbs.table import INTERRUPTED
from gitlease.wiring.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text


TICK = 1.0  # seconds between two pictures
BACKGROUND = 0.2  # seconds between two checks for the foreground
ROOMY = 20  # lines from which on news have a place of their own, and the head is complete
NEWS_SHOWN = 5
FOOT = "Ctrl-C ends · search and details: gitlease board --web"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
BACK = b"\x1b[?25h\x1b[?1049l"  # the cursor, and the screen of before


class RemoteWatch:
    """Keeps this clone's state current in a thread, until it is stopped.

    ``head`` is the first state read, ``error`` a permanent failure.
    """

    def __init__(self, workspace: Workspace, wake: Callable[[], None]) -> None:
        self._workspace, self._wake = workspace, wake
        self._stopped = threading.Event()
        self._trouble: Callable[[], GitleaseError | None] = lambda: None
        self.head: Snapshot | None = None
        self.error: Exception | None = None
        threading.Thread(target=self._run, name="gitlease board", daemon=True).start()

    @property
    def trouble(self) -> str:
        """Why the remote cannot be reached; empty while it answers."""
        error = self._trouble()
        return f"{error.message}; still trying" if error else ""

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            clock = self._workspace.waking_clock(self._stopped)
            ledger = self._workspace.again(clock=clock).ledger
            watcher = Watcher(
                ledger, patient=True, on_begin=self._begin, on_trouble=lambda _error: self._wake()
            )
            self._trouble = lambda: watcher.trouble
            for _ in watcher.events():
                self._wake()
        except InterruptedError:
            return
        except Exception as error:
            self.error = error
            self._wake()

    def _begin(self, head: Snapshot) -> None:
        self.head = head
        self._wake()


class LiveBoard:
    """A board on a terminal, until a signal ends it. It takes no keys."""

    def __init__(self, workspace: Workspace, console: Console, *, follow: bool) -> None:
        self._ledger, self._console = workspace.ledger, console
        self._workspace, self._follow = workspace, follow
        self._live: Live | None = None
        # May be put into by any thread, and by a handler of signals at any time.
        self._woken: SimpleQueue[int] = SimpleQueue()
        self._board: BoardView | None = None
        self._made: tuple[Instant, str, str] | None = None

    def run(self) -> None:
        """Show it until a signal ends this process. Raises what reading the ledger raises."""
        from rich.live import Live

        watch = RemoteWatch(self._workspace, lambda: self._woken.put(0)) if self._follow else None
        try:
            with handling(self._end, *ENDS), handling(self._wake, signal.SIGTSTP, signal.SIGWINCH):
                while True:
                    while _is_in_background():
                        time.sleep(BACKGROUND)
                    with Live(console=self._console, screen=True, auto_refresh=False) as self._live:
                        self._draw_until_stopped(self._live, watch)
                    # The shell gets its screen back as it was.
                    stop_like(signal.SIGTSTP)
        finally:
            if watch is not None:
                watch.stop()

    def _draw_until_stopped(self, live: Live, watch: RemoteWatch | None) -> None:
        from rich.console import Group

        is_stopped = False
        while not is_stopped:
            if watch is not None and watch.error is not None:
                raise watch.error
            self._refresh(watch)
            lines = said_in(self._lines(watch), self._console.encoding)
            with contextlib.suppress(OSError):
                live.update(Group(*lines), refresh=True)
            if not os.isatty(1):
                self._end(signal.SIGHUP, None)  # the terminal is gone
            with contextlib.suppress(Empty):
                wait = TICK
                while True:
                    is_stopped |= self._woken.get(timeout=wait) == signal.SIGTSTP
                    wait = 0

    def _wake(self, number: int, _frame: FrameType | None) -> None:
        self._woken.put(number)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        """End by a signal, even in the middle of a picture that nobody reads."""
        if self._live is not None and self._live.is_started:
            with contextlib.suppress(OSError, termios.error):
                # Makes room in a terminal that nobody reads from, or that Ctrl-S stopped.
                termios.tcflush(1, termios.TCOFLUSH)
                termios.tcflow(1, termios.TCOON)
                os.write(1, BACK)
        if number == signal.SIGINT:
            os._exit(INTERRUPTED)
        # Whoever waits for this process is told by which signal it ended, as of any program.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _refresh(self, watch: RemoteWatch | None) -> None:
        # Only if something may have changed: a picture a second must cost nearly nothing.
        now, mark = self._ledger.clock.now(), self._ledger.store.mark(self._ledger.layer)
        trouble, board, made = watch.trouble if watch else "", self._board, self._made
        if made and made[1:] == (mark, trouble) and board and not board.is_due(made[0], now):
            return
        view = self._ledger.known_look()
        if view is None and watch is not None and watch.head is not None:
            view = LedgerView(watch.head, self._ledger.moment(watch.head), ())
        if view is None and watch is None:
            # Raises that nothing is cached.
            view = self._ledger.look(cached=True)
        if view is not None:
            self._made = now, mark, trouble
            self._board = make_board(self._ledger, view, trouble=trouble)

    def _lines(self, watch: RemoteWatch | None) -> list[Text]:
        width, height = self._console.size
        state = "from what this clone knows"
        if watch is not None:
            # Live only once the remote has answered.
            state = "live" if watch.head is not None else "asking the remote"
            if self._board is None:
                state = watch.trouble or state
        if self._board is None:
            return [plain_line(state, width)]
        board = replace(self._board, now=self._ledger.clock.now().wall_ms)
        return picture(board, width, height, state=state)


def picture(board: BoardView, width: int, height: int, *, state: str) -> list[Text]:
    """The lines of a board, as many as a terminal of this size has; rows left out are counted."""
    brief = height < ROOMY
    head = head_lines(board, width, state=state, brief=brief)[: max(1, height // 2)]
    foot = [plain_line(FOOT, width, style="dim")]
    news, parts = [*news_lines(board.news[:NEWS_SHOWN], width)], board_parts(board, width)
    if brief:
        parts.append(BoardPart("", news.copy))
        news = []
    room = max(1, height - len(head) - len(news) - len(foot))
    lines: list[Text] = []
    hidden, is_full = 0, False
    # Only rows that are seen are drawn: there may be very many.
    for number, part in enumerate(parts, start=1):
        drawn = [] if is_full else [*part.draw()]
        # The last line is for the number of rows that do not fit.
        is_full = is_full or len(lines) + len(drawn) > room - (number < len(parts))
        lines += [] if is_full else drawn
        hidden += is_full and bool(part.key)
    if hidden:
        lines = [*lines[: room - 1], plain_line(f"  {hidden} more", width, style="dim")]
    filled = [plain_line("", width)] * (room - len(lines))
    return [*head, *lines, *filled, *news, *foot][:height]


def _is_in_background() -> bool:
    try:
        return os.tcgetpgrp(1) != os.getpgrp()
    except OSError:
        # Not this session's terminal, so there is no foreground.
        return False
