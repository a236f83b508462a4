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
from collections.abc import Callable, Iterable

from gitlease.core.frozen import dataclass
from gitlease.git.run import detach, group_is_left, name_this_process, signal_group, started_at

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
READY, DONE = b"ready", b"done"


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


def wait_readable(handles: Iterable[int], seconds: float) -> set[int]:
    """Wait until one of these can be read from, at most so many seconds; return those that can."""
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
        self._known, self._until = b"", 0

    def start(self, patience: float = PATIENCE) -> None:
        """Start it, in place of one that is gone. Raises GuardianFailed if it is not heard."""
        self.close()
        ours, theirs = socket.socketpair()
        words = ("-m", "gitlease.runs.guardian", f"{theirs.fileno()}", f"{self._grace}")
        try:
            # -P: no file of the folder that it starts in may take the place of a module.
            self._process = detach([sys.executable, "-P", *words], pass_fds=(theirs.fileno(),))
        except (OSError, ValueError) as error:
            ours.close()
            raise GuardianFailed(str(error)) from error
        finally:
            theirs.close()
        self._line = ours
        ours.settimeout(patience)
        self._send(self._known)  # first: this process may be killed before it hears an answer
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
        return -1 if self._line is None else self._line.fileno()

    def is_gone(self) -> bool:
        """Tell whether it is gone, without waiting."""
        try:
            return self._line is None or self._line.recv(64) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def watch(self, group: ProcessGroup, boot_ms: int) -> None:
        """Send it the group to guard, and until when that may live, unless it knows."""
        if abs(boot_ms - self._until) > SAME:
            spared = ",".join(map(str, group.spared)) or "-"
            line = f"{group.number} {boot_ms} {spared} {group.started}\n"
            self._known, self._until = line.encode(), boot_ms
            self._send(self._known)

    def _send(self, line: bytes) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.sendall(line)

    def close(self, *, goodbye: bool = True) -> None:
        """Let it go, and wait until it is gone; without a goodbye it ends the group before."""
        if goodbye:
            self._send(DONE + b"\n")
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            try:
                # The command is killed when this process ends: give it its grace before.
                self._process.wait(GOODBYE + (0 if goodbye else self._grace / 1_000))
            except subprocess.TimeoutExpired:
                if goodbye:
                    self._process.kill()
                    self._process.wait()
                self._process.returncode = 0  # else it still has work to do: leave it running
            self._process = None


# --- the process itself -----------------------------------------------------------------------


class Watch:
    """The work of the guardian process. ``now`` is the boot clock in milliseconds."""

    def __init__(self, line: socket.socket, grace: int, now: Callable[[], int]) -> None:
        self._line, self._grace, self._now = line, grace, now
        self._group = ProcessGroup(0, "")
        self._until: int | None = None
        self._buffer = b""

    def run(self) -> None:
        """Watch until it gets its goodbye, or has ended the group."""
        while True:
            seconds = LONGEST_NAP if self._until is None else (self._until - self._now()) / 1_000
            if wait_readable([self._line.fileno()], min(LONGEST_NAP, seconds)):
                try:
                    data = self._line.recv(4_096)
                except OSError:
                    data = b""
                if not data:  # the process that runs the command is gone
                    self._end(asked=True)
                    return
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                for line in lines:
                    if line == DONE:
                        return
                    self._learn(line.decode())
            if self._until is not None and self._now() >= self._until:
                self._end(asked=False)
                return

    def _learn(self, line: str) -> None:
        number, until, spared, started = line.split(" ", 3)
        others = frozenset(int(x) for x in spared.split(",") if x.isdigit())
        self._group, self._until = ProcessGroup(int(number), started, others), int(until)

    def _end(self, *, asked: bool) -> None:
        """End the group; with ``asked`` it is asked to end first."""
        # While any process of the group is left, the system gives its number to no other: what
        # leads a group of this number now, and started at another time, is a stranger.
        leader = started_at(self._group.number)
        if self._group.number <= 1 or (leader and leader != self._group.started):
            return
        if asked:
            over = self._now() + self._grace
            over = over if self._until is None else min(over, self._until)
            # A stopped process gets TERM only once it goes on.
            self._group.send(signal.SIGTERM, signal.SIGCONT)
            while self._now() < over:
                if not self._group.is_left:
                    return
                time.sleep(STEP)
        self._group.send(signal.SIGKILL)


def main(words: list[str]) -> None:
    """Guard; the words are the descriptor of the line, and the grace."""
    # What ends the run, or a terminal's whole group, must leave whoever ends the command.
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    name_this_process(NAME)
    line = socket.socket(fileno=int(words[0]))
    os.chdir("/")
    watch = Watch(line, int(words[1]), lambda: time.clock_gettime_ns(BOOT) // 1_000_000)
    with contextlib.suppress(OSError):  # its parent may be gone already
        line.sendall(READY)
    watch.run()


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # fast: somebody waits
