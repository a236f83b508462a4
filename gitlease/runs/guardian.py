"""The guardian of a command: a process that ends it when whoever runs it no longer can.

It knows the command's process group and until when that may live, by the clock that counts through
suspend; every renewal sends it a later time. When the time comes, or when its parent is gone
without a goodbye, it ends the group: whether the parent was killed, stopped or merely hangs.

It is a program of its own, not a fork: it has none of the threads, handles or locks of its parent,
and process lists show its name.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from gitlease.core.frozen import dataclass
from gitlease.git.run import (
    group_is_left,
    name_this_process,
    signal_group,
    started_at,
)

PATIENCE = 20.0  # seconds for it to start
LONGEST_NAP = 1.0  # seconds: a wait does not count suspended time, so the clock is read again
STEP = 0.05
SAME = 20  # milliseconds by which a time may differ without a message
GOODBYE = 2.0  # seconds for it to end, once it was told to
IGNORED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
NAME = "gitlease-guard"
READY, GROUP, UNTIL, DONE = b"ready", b"group", b"until", b"done"


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The processes of a command: a process group, but those that are ``spared``.

    ``started``: when its leader started; "" if there is none any more.
    """

    number: int
    started: str
    spared: frozenset[int] = frozenset()

    @property
    def is_left(self) -> bool:
        return group_is_left(self.number, self.spared)

    def send(self, *signums: int) -> None:
        for signum in signums:
            signal_group(self.number, signum, self.spared)


class GuardianFailed(Exception):
    """It could not be started."""


def readable(handles: Sequence[int], seconds: float) -> set[int]:
    """Which of these can be read from, after so many seconds at most."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return {handle for handle, _ in poll.poll(max(0.0, seconds) * 1_000)}


class Guardian:
    """The side of the process that runs the command. ``grace`` in ms, from TERM to KILL."""

    def __init__(self, grace: int) -> None:
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._until: int | None = None

    def start(self, patience: float = PATIENCE, watch: tuple[str, ...] = ()) -> None:
        """Start it, and wait so many seconds until it listens. GuardianFailed if it does not.

        ``watch``: lines that it gets at its start, if it takes the place of another.
        """
        self.close()
        ours, theirs = socket.socketpair()
        number = theirs.fileno()
        module = "gitlease.runs.guardian"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(number), str(self._grace), *watch],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(number,),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            ours.close()
            raise GuardianFailed(str(error)) from error
        finally:
            theirs.close()
        self._line, self._until = ours, None
        ours.settimeout(patience)
        try:
            ready = ours.recv(64).startswith(READY)
        except OSError:
            ready = False
        if not ready:
            self._process.kill()
            self.close()
            raise GuardianFailed("it does not start")
        ours.settimeout(0)

    def fileno(self) -> int:
        """A descriptor that becomes readable when the guardian is gone; -1 without one."""
        return -1 if self._line is None else self._line.fileno()

    def is_gone(self) -> bool:
        """Whether it is gone; does not wait."""
        if self._line is None:
            return True
        try:
            return self._line.recv(64) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def watch(self, group: ProcessGroup, boot_ms: int) -> None:
        """Send it the group to guard, and until when that may live."""
        for line in watch_lines(group, boot_ms):
            self._tell(line.encode())
        self._until = boot_ms

    def until(self, boot_ms: int) -> None:
        """Send it until when the group may live, if that has changed."""
        if self._until is None or abs(boot_ms - self._until) > SAME:
            self._until = boot_ms
            self._tell(UNTIL + f" {boot_ms}".encode())

    def _tell(self, line: bytes) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.sendall(line + b"\n")

    def dismiss(self, *, goodbye: bool = True) -> None:
        """Let it go; without a goodbye it ends what is left of the group."""
        if goodbye:
            self._tell(DONE)
        if self._line is not None:
            self._line.close()
            self._line = None
        if not goodbye and self._process is not None:
            # The command is killed when this process ends: give it its grace before.
            try:
                self._process.wait(timeout=self._grace / 1_000 + GOODBYE)
            except subprocess.TimeoutExpired:
                self._process.returncode = 0  # it still has work to do: leave it running
            self._process = None

    def close(self) -> None:
        """Dismiss it, and wait until it is gone."""
        self.dismiss()
        if self._process is not None:
            try:
                self._process.wait(timeout=GOODBYE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def watch_lines(group: ProcessGroup, boot_ms: int) -> tuple[str, ...]:
    """The lines with the group to guard, and until when."""
    spared = ",".join(map(str, group.spared)) or "-"
    line = f"{GROUP.decode()} {group.number} {spared} {group.started}"
    return line, f"{UNTIL.decode()} {boot_ms}"


# --- the process itself -----------------------------------------------------------------------


class Watch:
    """The work of the guardian process. ``now`` is the boot clock in milliseconds."""

    def __init__(self, line: socket.socket, grace: int, now: Callable[[], int]) -> None:
        self._line, self._grace, self._now = line, grace, now
        self._group = ProcessGroup(0, "")
        self._until: int | None = None
        self._buffer = b""

    def know(self, line: bytes) -> None:
        """Take one line of its input."""
        word, _, rest = line.partition(b" ")
        if word == GROUP:
            number, spared, started = rest.decode().split(" ", 2)
            others = (int(x) for x in spared.split(",") if x.isdigit())
            self._group = ProcessGroup(int(number), started, frozenset(others))
        elif word == UNTIL:
            self._until = int(rest)

    def run(self) -> None:
        """Watch until it gets its goodbye, or has ended the group."""
        while True:
            heard = self._heard(self._nap())
            if heard is DONE:
                return
            if heard is None:  # the process that runs the command is gone
                self._end(asked=True)
                return
            if self._until is not None and self._now() >= self._until:
                self._end(asked=False)
                return

    def _nap(self) -> float:
        if self._until is None:
            return LONGEST_NAP
        return min(LONGEST_NAP, max(0.0, (self._until - self._now()) / 1_000))

    def _heard(self, seconds: float) -> bytes | None:
        """DONE, None for the end of the line, or ``b""`` for anything else."""
        if not readable([self._line.fileno()], seconds):
            return b""
        try:
            data = self._line.recv(4_096)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if line == DONE:
                return DONE
            self.know(line)
        return b""

    def _end(self, *, asked: bool) -> None:
        """End the group; if there is time, ask it to end first."""
        if not self._is_theirs():
            return
        if asked:
            over = self._now() + self._grace
            over = over if self._until is None else min(over, self._until)
            self._group.send(signal.SIGTERM, signal.SIGCONT)
            while self._now() < over:
                if not self._group.is_left:
                    return
                time.sleep(STEP)
        self._group.send(signal.SIGKILL)

    def _is_theirs(self) -> bool:
        # While any process of the group is left, the system gives its number to no other.
        if self._group.number <= 1:
            return False
        leader = started_at(self._group.number)
        return not leader or leader == self._group.started


def main(words: list[str]) -> None:
    """Guard; the words are the descriptor, the grace, and the lines known already."""
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    name_this_process(NAME)
    line = socket.socket(fileno=int(words[0]))
    os.chdir("/")
    watch = Watch(line, int(words[1]), lambda: time.clock_gettime_ns(BOOT) // 1_000_000)
    for told in words[2:]:
        watch.know(told.encode())
    with contextlib.suppress(OSError):  # its parent may be gone already
        line.sendall(READY)
    watch.run()


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # fast: somebody waits
