"""The terminal of a live board: its keys, its signals, and its modes."""

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
        """Take over keys (Ctrl-S included) and screen; in the background, wait for the foreground.

        It does not let SIGTTOU stop it there: a signal just delivered to another thread would not
        be handled any more.
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
        """Restore screen and modes; in the background, a shell has set the modes already."""
        if self._taken:
            self.draw(BACK)
        self._taken = False
        with contextlib.suppress(termios.error):  # it is gone
            if self._modes is not None and not self._is_in_background():
                termios.tcsetattr(self._handle, termios.TCSANOW, self._modes)

    def draw(self, text: str, encoding: str = "ascii") -> None:
        """Write to the screen; a signal that ends the board interrupts it.

        Otherwise a terminal that nobody reads from would keep the board from ending.
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
        """Let ``keys`` return. May be called from any thread."""
        try:
            os.write(self._wake, b".")
        except OSError:  # full, so it wakes anyway; or closed, and nobody waits
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
        except OSError:  # not this session's terminal, so there is no foreground
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
