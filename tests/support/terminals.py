"""Terminals of their own for the programs that tests start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.running import LONG

HOME = b"\x1b[H"  # before each picture


def all_written(master: int) -> str:
    """All that is written to a terminal until it is closed."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(master, 65_536)
        except OSError:  # Linux says so when the other side is closed
            part = b""
        if not part:
            os.close(master)
            return b"".join(parts).decode()
        parts.append(part)


class PlayedTerminal:
    """A program that draws pictures on a terminal of its own, and somebody who types there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process, self._master, self._slave = process, master, slave
        self.written = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def modes(self) -> list[Any]:
        """How the terminal is set."""
        return termios.tcgetattr(self._slave)

    def takes_more(self) -> bool:
        """Whether the program could write on; not, once much was written that nobody read."""
        return bool(select.select([], [self._slave], [], 0)[1])

    def hang_up(self) -> None:
        """Close it, as a window is closed."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, self._master)
        os.close(nowhere)

    def lines(self) -> list[str]:
        """The last whole picture, line by line, without its colours; none before the first."""
        pictures = self.written.split(HOME)
        if len(pictures) < 3:
            return []
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", pictures[-2].decode("utf-8", "replace"))
        return [line.rstrip("\r") for line in shown.split("\n")]

    def until(self, true: Callable[[str], Any], what: str) -> str:
        """Wait for a picture in which something is to be seen."""
        end = time.monotonic() + LONG
        while not true(shown := "\n".join(self.lines())):
            assert time.monotonic() < end, f"waited in vain for {what}:\n{shown}"
            assert self.process.poll() is None, f"it ended before {what}: {self.written!r}"
            self._read(0.2)
        return shown

    def ended(self) -> int:
        """How the program ends."""
        end = time.monotonic() + LONG
        while self.process.poll() is None:
            assert time.monotonic() < end, "it did not end"
            self._read(0.05)
        while self._read(0.05):
            continue
        return int(self.process.returncode)

    def _read(self, seconds: float) -> bytes:
        part = b""
        if select.select([self._master], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                part = os.read(self._master, 65_536)
        self.written += part
        return part


@contextlib.contextmanager
def played(
    words: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    *,
    columns: int,
    lines: int = 30,
    leads: bool = True,
) -> Iterator[PlayedTerminal]:
    """Run a program on a terminal of this size, until the block ends.

    Unless it ``leads`` the terminal, nothing that is typed there signals anything to it.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        words,
        cwd=cwd,
        env=dict(env),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=_lead if leads else os.setsid,
    )
    try:
        yield PlayedTerminal(process, master, slave)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def _lead() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
