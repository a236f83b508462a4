"""The terminal of this process: lent to a command in the foreground, and taken back."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any


class Terminal:
    """The controlling terminal, if there is one, and its foreground group.

    SIGTTOU must be ignored while it is lent: it is taken back from the background.
    """

    def __init__(self) -> None:
        self._handle: int | None = None
        self._modes: list[Any] | None = None
        self.lent = False
        with contextlib.suppress(OSError):
            self._handle = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)

    @property
    def exists(self) -> bool:
        return self._handle is not None

    def is_ours(self) -> bool:
        """Whether the group of this process has it."""
        if self._handle is None:
            return False
        try:
            return os.tcgetpgrp(self._handle) == os.getpgrp()
        except OSError:
            return False

    def lend(self, group: int) -> bool:
        """Give it to a group, if we have it; whether that was done."""
        if self._handle is None or not self.is_ours():
            return False
        try:
            if self._modes is None:
                self._modes = _modes(self._handle)
            os.tcsetpgrp(self._handle, group)
        except OSError:
            return False
        self.lent = True
        return True

    def take_back(self, *, restore: bool = False) -> None:
        """Take it back if it is lent; ``restore`` its modes after a command that could not.

        A full-screen command that was killed leaves the terminal raw.
        """
        if self._handle is None or not self.lent:
            return
        self.lent = False
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._handle, os.getpgrp())
        if restore and self._modes is not None:
            _set_modes(self._handle, self._modes)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_talked_to() -> bool:
    """Whether standard input and output are a terminal, and not parts of a pipeline."""
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False


def stop_like(signum: int) -> None:
    """Stop the group of this process as the terminal would, until it is continued.

    If no shell could continue it (an orphaned group), nothing happens.
    """
    before = signal.signal(signum, signal.SIG_DFL)
    try:
        sys.stderr.flush()
        os.kill(0, signum)
    finally:
        signal.signal(signum, before)


def _modes(handle: int) -> list[Any] | None:
    import termios

    try:
        return termios.tcgetattr(handle)
    except termios.error:
        return None


def _set_modes(handle: int, modes: list[Any]) -> None:
    import termios

    with contextlib.suppress(termios.error):
        termios.tcsetattr(handle, termios.TCSANOW, modes)
