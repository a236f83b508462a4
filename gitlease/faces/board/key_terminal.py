"""The terminal while a board is on it: its keys, its signals, and how it was before."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import select
import signal
import termios
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

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
# A screen of its own, without a cursor; lines end at its edge, however wide a sign is shown.
SCREEN, BACK = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
BACKGROUND = 0.2  # seconds between two looks whether it is in the foreground again
HEARD = (*ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


def keys_in(text: str) -> Iterator[str]:
    """What was typed, key by key; sequences that mean nothing here are left out."""
    for found in re.findall(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|.", text, re.DOTALL):
        if found in KEYS:
            yield KEYS[found]
        elif found.isprintable():
            yield found


class KeyTerminal:
    """A screen of its own and keys as they are typed, until the block ends; however that ends.

    A signal neither ends the process nor stops it here: ``ended`` and ``stopped`` tell of it, and
    ``continued`` that the terminal may not be as it was left: ``take`` it again. A terminal that
    is gone counts as SIGHUP.
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
        """Have keys come as they are typed, Ctrl-S as well, and a screen to draw on.

        In the background it waits for the foreground. It does not let itself be stopped there: a
        signal that another thread has just been given would not be heard any more.
        """
        self._taken = False
        while self.ended is None and not self._taken:
            if self._is_in_background():
                self._sleep([], BACKGROUND)
                continue
            try:
                usual = self._modes or termios.tcgetattr(self._handle)
                termios.tcsetattr(self._handle, termios.TCSANOW, _typed_modes(usual))
                self._modes, self._taken = usual, True
            except termios.error as error:
                if error.args[0] != errno.EINTR:  # it is gone; else it was stopped meanwhile
                    self.ended = signal.SIGHUP
        self.draw(SCREEN if self._taken else "")

    def give_back(self) -> None:
        """Have it be as it was before; in the background it has been set by a shell since."""
        if self._taken:
            self.draw(BACK)
        self._taken = False
        with contextlib.suppress(termios.error):  # it is gone
            if self._modes is not None and not self._is_in_background():
                termios.tcsetattr(self._handle, termios.TCSANOW, self._modes)

    def draw(self, text: str, encoding: str = "ascii") -> None:
        """Write to the screen, until that is done or the first signal comes that ends the board.

        A terminal that takes nothing more, since nobody reads, would keep it from ending.
        """
        left = text.encode(encoding, "replace")
        try:
            self._drawing = self.ended is None
            while left:
                left = left[os.write(self._screen, left) :]
            self._drawing = False
        except OSError:
            self._drawing = False
            self.ended = self.ended or signal.SIGHUP
            with contextlib.suppress(termios.error):
                termios.tcflush(self._screen, termios.TCOFLUSH)  # makes room for ``BACK``

    def wake(self) -> None:
        """Let ``keys`` return; from any thread."""
        try:
            os.write(self._wake, b".")
        except OSError:  # it is full, so it wakes anyway; or closed, and nobody sleeps
            return

    def keys(self, seconds: float) -> list[str]:
        """The keys that are typed within so many seconds; fewer where something else happens."""
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
        except OSError:  # it is no terminal of this session, so it has no foreground
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
    modes = [*usual]
    modes[0] &= ~termios.IXON
    modes[3] &= ~(termios.ECHO | termios.ICANON)
    modes[6] = [*modes[6]]
    modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
    return modes
