"""The terminal while a board is on it: its keys, its signals, and how it was before."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import termios
import tty
from collections.abc import Iterator
from types import FrameType, TracebackType

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
HEARD = (*ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


def keys_in(text: str) -> Iterator[str]:
    """What was typed, key by key; sequences that mean nothing here are left out."""
    for found in re.findall(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|.", text, re.DOTALL):
        if found in KEYS:
            yield KEYS[found]
        elif found.isprintable():
            yield found


class KeyTerminal:
    """Gives keys as they are typed, without echo, until the block ends; however that ends.

    A signal neither ends the process nor stops it here: ``ended`` and ``stopped`` tell of it.
    """

    def __init__(self, handle: int = 0) -> None:
        self._handle, self._decoder = handle, codecs.getincrementaldecoder("utf-8")("replace")
        self.ended: int | None = None
        self.stopped = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> KeyTerminal:
        self._modes = termios.tcgetattr(self._handle)
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
        """Have keys come as they are typed."""
        tty.setcbreak(self._handle, termios.TCSANOW)

    def give_back(self) -> None:
        """Have it be as it was before; nothing where it is gone."""
        try:
            termios.tcsetattr(self._handle, termios.TCSANOW, self._modes)
        except termios.error:
            return

    def wake(self) -> None:
        """Let ``keys`` return; from any thread."""
        try:
            os.write(self._wake, b".")
        except OSError:  # it is full, so it wakes anyway; or closed, and nobody sleeps
            return

    def keys(self, seconds: float) -> list[str]:
        """The keys that are typed within so many seconds; fewer where something else happens."""
        ready, _, _ = select.select([self._handle, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 65_536)
        if self._handle not in ready:
            return []
        try:
            data = os.read(self._handle, 4096)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self.ended = self.ended or signal.SIGHUP
        return list(keys_in(self._decoder.decode(data)))

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if number in ENDS:
            self.ended = number
        elif number == signal.SIGTSTP:
            self.stopped = True
