"""The live board on a terminal, drawn each second from this clone's state.

A thread keeps that state current, contacting the remote as rarely as `watch` does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gitlease.core.errors import Unavailable
from gitlease.core.instant import Instant
from gitlease.engine.ledger_session import Look
from gitlease.engine.waiting.watching import LOOK, Watcher
from gitlease.faces.board.key_terminal import KeyTerminal
from gitlease.faces.board.model import make_board, open_resource
from gitlease.faces.board.screen import BoardScreen
from gitlease.faces.board.text import said_in
from gitlease.runs.child import stop_like
from gitlease.runs.heartbeat import waking_clock

if TYPE_CHECKING:
    from rich.console import Console

    from gitlease.core.resources.resource import Resource
    from gitlease.engine.ports import Snapshot
    from gitlease.faces.board.shapes import OpenedResource
    from gitlease.wiring.workspace import Workspace

FRESH = 5_000  # milliseconds after which task files are read again
TICK = 1.0  # seconds between two pictures
CLEAR = "\x1b[2K"  # erases a line
HOME = f"\x1b[H{CLEAR}"


class RemoteWatch:
    """Keeps this clone's state current, until it is stopped.

    ``head`` is the first state read, ``error`` a permanent failure.
    """

    def __init__(self, workspace: Workspace, wake: Callable[[], None]) -> None:
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
            clock = waking_clock(self._workspace, self._stopped)
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

    def __init__(self, workspace: Workspace, console: Console, *, follow: bool) -> None:
        self._ledger, self._console = workspace.ledger, console
        self._workspace, self._follow = workspace, follow
        self._screen = BoardScreen(self._open)
        self._look: Look | None = None
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
            if terminal.stopped:
                terminal.give_back()
                stop_like(signal.SIGTSTP)
                terminal.stopped, terminal.continued = False, True
            if terminal.continued and terminal.ended is None:
                terminal.continued = False
                terminal.take()
        return terminal.ended

    def _refresh(self, watch: RemoteWatch | None) -> None:
        # Only if something may have changed.
        now, mark = self._ledger.clock.now(), self._ledger.store.mark(self._ledger.layer)
        trouble, board = watch.trouble if watch else "", self._screen.board
        if board is not None and self._made is not None and self._made[1:] == (mark, trouble):
            due = board.changes_at is not None and now.wall_ms >= board.changes_at
            if not due and self._made[0].elapsed_at_most(now) < FRESH:
                return
        look = self._ledger.known_look()
        if look is None and watch is not None and watch.head is not None:
            look = Look(watch.head, self._ledger.moment(watch.head), ())
        if look is None and watch is None:
            look = self._ledger.look(cached=True)  # raises that nothing is cached
        self._look = look
        if look is not None:
            self._made = now, mark, trouble
            self._screen.show(make_board(self._ledger, look, trouble=trouble))

    def _picture(self, watch: RemoteWatch | None) -> str:
        from rich.console import Group
        from rich.screen import Screen

        state = "from what this clone knows"
        if watch is not None:
            state = "live" if watch.head is not None else "asking the remote"
            if self._look is None:
                state = watch.trouble or state
        width, height = self._console.size
        now = self._ledger.clock.now().wall_ms
        lines = self._screen.frame(now, width, height, state=state)
        with self._console.capture() as picture:
            self._console.print(Screen(Group(*said_in(lines, self._console.encoding))), end="")
        return HOME + picture.get().replace("\n", f"\n{CLEAR}")

    def _open(self, resource: Resource) -> OpenedResource:
        look, board = self._look, self._screen.board
        if look is None or board is None:
            raise AssertionError("a resource is opened on a board")
        return open_resource(self._ledger, look, board, resource)
