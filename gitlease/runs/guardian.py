"""The guardian of a command: a process that starts it, and ends it when whoever runs it cannot.

It knows until when the command may live, by the clock that counts through suspend; every renewal
sends it a later time. When the time comes, or when its parent is gone without a goodbye, it ends
the command and all that it started: whether the parent was killed, stopped or merely hangs.

It is the command's parent, and on Linux adopts every orphan below it (a child subreaper). So
nothing that the command starts can leave it: no session of its own, no double fork. Nested runs
stay, since they have leases and guardians of their own. Once all has ended it leaves a mark, by
which other processes know that nothing works under the leases any more.

It is a program of its own, not a fork: it has none of the threads, handles or locks of its parent,
and process lists show its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gitlease.kernel.git.run import (
    Process,
    is_guardian,
    members_of,
    own_module,
    parent_and_words,
    processes,
    signal_group,
    started_at,
)
from gitlease.kernel.rules.frozen import dataclass
from gitlease.runs.processes import (
    adopt_orphans,
    below,
    name_this_process,
    on_parent_death,
    signal_process,
)

PATIENCE = 20.0  # seconds for it to start
LONGEST_NAP = 1.0  # seconds: a wait does not count suspended time, so the clock is read again
STEP = 0.05
SAME = 20  # milliseconds by which a time may differ without a message
GOODBYE = 2.0  # seconds for it to end, once it was told to
UNENDING = 5.0  # seconds after KILL at which nothing more can be done
UNSTARTED = 125  # status of a process that does not become the command
IGNORED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
NAME, MODULE = "gitlease-guard", "gitlease.runs.guardian"
READY, FORKED, STARTED, FAILED, ENDED = b"ready", b"forked", b"started", b"failed", b"ended"
START, GO, UNTIL, DONE = b"start", b"go", b"until", b"done"
MOST_HANDLES = 253  # that Linux passes at once
LONGEST_ORDER = 64 * 1_048_576


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a command.

    They are all below its ``guardian`` if that ``adopts`` orphans; else its process group, but
    those that are ``spared``. ``started``: when its leader started; "" if there is none any more.
    """

    number: int
    started: str
    spared: frozenset[int] = frozenset()
    guardian: int = 0
    guardian_started: str = ""
    adopts: bool = False

    def members(self, *, spares_runs: bool) -> list[Process]:
        """Those that run, but runs in the background; with ``spares_runs`` but any nested run."""
        every = processes()
        guardian = every.get(self.guardian)
        if self.adopts and guardian is not None and guardian.started == self.guardian_started:
            found = below(self.guardian, every)
        else:
            # While any process of the group is left, the system gives its number to no other: what
            # leads a group of this number now, and started at another time, is a stranger.
            leader = started_at(self.number)
            if self.number <= 1 or (leader and leader != self.started):
                return []
            found = [x for x in every.values() if x.group == self.number]
            found = [x for x in found if x.pid not in self.spared]
        runs = _nested_runs(found, every)
        return [
            x for x in found if x.pid not in runs or (x.group == self.number and not spares_runs)
        ]

    def is_left(self, *, spares_runs: bool) -> bool:
        return bool(self.members(spares_runs=spares_runs))

    def send(self, *signums: int, spares_runs: bool) -> None:
        """Send signals to each of them."""
        members = self.members(spares_runs=spares_runs)
        in_group = {x.pid for x in members if x.group == self.number}
        # To the whole group at once, if nobody in it is spared: a shell else sees its child die.
        at_once = bool(in_group) and not self.spared and members_of(self.number) <= in_group
        for signum in signums:
            if at_once:
                signal_group(self.number, signum)
            for process in members:
                if not (at_once and process.pid in in_group):
                    signal_process(process, signum)

    def pass_on(self, signum: int) -> None:
        """Send a signal to the process group alone."""
        signal_group(self.number, signum, self.spared)

    def names_left(self) -> list[str]:
        """Name what a command leaves behind at its end: no runs, and no helpers of gitlease."""
        found = self.members(spares_runs=True) if self.adopts else []
        # What those started themselves need not be named as well.
        found = [x for x in found if x.parent == self.guardian]
        named = [(x, x.name) for x in found if not _is_helper(parent_and_words(x.pid)[1])]
        return [f"{name} ({process.pid})" for process, name in named if name]


def _nested_runs(found: Iterable[Process], every: Mapping[int, Process]) -> set[int]:
    """The processes of runs among some: each run, its guardian, and all below that."""
    runs, known = set[int](), {x.pid for x in found}
    for pid in known:
        if is_guardian(parent_and_words(pid)[1]):
            parent = every[pid].parent
            runs |= {pid, *(x.pid for x in below(pid, every))}
            runs |= {parent} & known
    return runs


def _is_helper(words: Sequence[bytes]) -> bool:
    """Tell whether gitlease started it for a hook, in the background."""
    named = [os.path.basename(x) for x in words[:5]]
    return b"hook" in named and any(x.startswith((b"gitlease", b"git-lease")) for x in named)


class GuardianFailed(Exception):
    """It could not be started."""


def wait_readable(handles: Iterable[int], seconds: float) -> set[int]:
    """Wait until one of these can be read from, at most so many seconds; return those that can."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return {handle for handle, _ in poll.poll(max(0.0, seconds) * 1_000)}


@dataclass(frozen=True, kw_only=True)
class CommandOrder:
    """A command to start. ``group`` is the process group to join, 0 for one of its own.

    It never starts after ``until_ms``. ``mark`` is the file to make once all of it has been ended.
    """

    words: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    group: int
    until_ms: int
    mark: str


class Guardian:
    """The side of the process that runs the command. ``grace`` in ms, from TERM to KILL."""

    def __init__(self, grace: int) -> None:
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._until, self._buffer = 0, b""
        self.adopts = False
        self.status: int | None = None  # of the command, as Popen has it

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def start(self, patience: float = PATIENCE) -> None:
        """Start it. Raises GuardianFailed if it is not heard."""
        ours, theirs = socket.socketpair()
        words = [*own_module(MODULE), f"{theirs.fileno()}", f"{self._grace}"]
        try:
            # In our session, so that the command can be in our group; but signals to that spare it.
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        except (OSError, ValueError) as error:
            ours.close()
            raise GuardianFailed(str(error)) from error
        finally:
            theirs.close()
        self._line = ours
        ours.settimeout(patience)
        word, more = self._hear("it does not start")
        if word != READY:
            raise self._failed("it does not start")
        self.adopts = more == b"1"

    def begin(self, order: CommandOrder, before: Callable[[int], None]) -> int:
        """Have it start the command; return its process.

        ``before`` is called with that before it becomes the command. Raises GuardianFailed, and
        OSError if the command cannot be executed.
        """
        handles = _inheritable()
        document = {
            "words": [os.fsencode(x).decode("latin-1") for x in order.words],
            "env": {
                os.fsencode(k).decode("latin-1"): os.fsencode(v).decode("latin-1")
                for k, v in order.env.items()
            },
            "cwd": os.fsencode(order.cwd).decode("latin-1"),
            "group": order.group,
            "until": order.until_ms,
            "mark": os.fsencode(order.mark).decode("latin-1"),
            "handles": handles,
        }
        data, line = json.dumps(document).encode(), self._line
        if line is None:
            raise GuardianFailed("it has ended")
        head = b"%s %d\n" % (START, len(data))
        try:
            sent = socket.send_fds(line, [head], handles) if handles else 0
            line.sendall(head[sent:] + data)
        except OSError:
            raise self._failed("it was killed") from None
        word, more = self._hear("it was killed")
        pid = 0
        if word == FORKED:
            pid = int(more)
            before(pid)
            self._send(GO)
            word, more = self._hear("it was killed")
        if word == FAILED:
            number = int(more)
            raise OSError(number, os.strerror(number))
        if word != STARTED or not pid:
            raise self._failed("it cannot start a command")
        self._until = order.until_ms
        line.settimeout(0)
        return pid

    def _hear(self, otherwise: str) -> tuple[bytes, bytes]:
        """The next message, as its word and the rest. Raises GuardianFailed if none comes."""
        while b"\n" not in self._buffer:
            try:
                data = self._line.recv(4_096) if self._line is not None else b""
            except OSError:
                data = b""
            if not data:
                raise self._failed(otherwise)
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\n")
        word, _, more = message.partition(b" ")
        return word, more

    def _failed(self, why: str) -> GuardianFailed:
        if self._process is not None:
            self._process.kill()
        self.close()
        return GuardianFailed(why)

    def fileno(self) -> int:
        return -1 if self._line is None else self._line.fileno()

    @property
    def has_message(self) -> bool:
        """Tell whether a message came along with the one that was waited for last."""
        return b"\n" in self._buffer

    def is_gone(self) -> bool:
        """Tell whether it is gone, without waiting; and hear whether the command has ended."""
        while self._line is not None:
            try:
                data = self._line.recv(4_096)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._line.close()
                self._line = None
            self._buffer += data
        *messages, self._buffer = self._buffer.split(b"\n")
        for message in messages:
            if message.startswith(ENDED):
                self.status = int(message.split()[1])
        return self._line is None

    def watch(self, boot_ms: int) -> None:
        """Tell it until when the command may live, unless it knows."""
        if abs(boot_ms - self._until) > SAME:
            self._until = boot_ms
            self._send(b"%s %d" % (UNTIL, boot_ms))

    def _send(self, message: bytes) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.sendall(message + b"\n")

    def close(self, *, goodbye: bool = True) -> None:
        """Let it go, and wait until it is gone; without a goodbye it ends the command before."""
        if goodbye:
            self._send(DONE)
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


def _inheritable() -> list[int]:
    """The handles that a command inherits: standard streams, and what was given to us so."""
    try:
        numbers = sorted(map(int, os.listdir("/dev/fd")))
    except (OSError, ValueError):
        numbers = list(range(256))
    found = list[int]()
    for number in numbers:
        with contextlib.suppress(OSError):
            if os.get_inheritable(number):
                found.append(number)
    return found[:MOST_HANDLES]


# --- the process itself -----------------------------------------------------------------------


class Watch:
    """The work of the guardian process. ``now`` is the boot clock in milliseconds.

    ``adopts``: orphans below it become its children. ``ignored`` are the signals that it was
    started with ignored, as the command is to be.
    """

    def __init__(
        self,
        line: socket.socket,
        grace: int,
        now: Callable[[], int],
        *,
        adopts: bool,
        ignored: frozenset[int],
    ) -> None:
        self._line = line
        self._grace = grace
        self._now = now
        self._adopts = adopts
        self._ignored = ignored
        self._group = ProcessGroup(0, "")
        self._pid = 0
        self._until: int | None = None
        self._mark = ""
        self._buffer = b""
        self._woken = -1

    def run(self) -> None:
        """Start the command and watch it until it gets its goodbye, or has ended it all."""
        if not self._begin():
            return
        while True:
            seconds = LONGEST_NAP if self._until is None else (self._until - self._now()) / 1_000
            handles = (self._line.fileno(), self._woken)
            ready = wait_readable(handles, min(LONGEST_NAP, seconds))
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4_096)
            self._reap()
            if self._line.fileno() in ready:
                heard = self._hear()
                if heard is None:  # the process that runs the command is gone
                    self._end(asked=True)
                    return
                for message in heard:
                    if message == DONE:
                        return
                    self._until = int(message.split()[1])
            if self._until is not None and self._now() >= self._until:
                self._end(asked=False)
                return

    def _tell(self, word: bytes, number: int) -> None:
        with contextlib.suppress(OSError):
            self._line.sendall(b"%s %d\n" % (word, number))

    def _hear(self) -> list[bytes] | None:
        """The messages that have come; None at the end of all."""
        try:
            data = self._line.recv(4_096)
        except OSError:
            data = b""
        if not data:
            return None
        *messages, self._buffer = (self._buffer + data).split(b"\n")
        return messages

    # --- the start ------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start the command that is ordered; False if none is."""
        self._tell(READY, int(self._adopts))
        data, handles = b"", list[int]()
        while b"\n" not in data:
            try:
                more, got, _, _ = socket.recv_fds(self._line, 4_096, MOST_HANDLES)
            except OSError:
                return False
            if not more:
                return False
            data, handles = data + more, handles + got
        head, _, body = data.partition(b"\n")
        words = head.split()
        if len(words) != 2 or words[0] != START or int(words[1]) > LONGEST_ORDER:
            return False
        while len(body) < int(words[1]):
            more = self._line.recv(65_536)
            if not more:
                return False
            body += more
        order = json.loads(body)
        self._until, self._mark = order["until"], order["mark"]
        moved = self._reserve(dict(zip(order["handles"], handles, strict=True)))
        self._watch_children()
        try:
            self._start(order, moved)
        finally:
            # Whoever reads what the command writes must not wait for the end of this process.
            for handle in moved.values():
                os.close(handle)
        return True

    def _reserve(self, targets: dict[int, int]) -> dict[int, int]:
        """Move handles out of the way of the numbers that the command is to have them under."""
        above = max((2, *targets)) + 1
        moved = {x: fcntl.fcntl(y, fcntl.F_DUPFD_CLOEXEC, above) for x, y in targets.items()}
        for handle in targets.values():
            os.close(handle)
        # What is opened from now on gets none of these numbers.
        for number in targets:
            if number > 2:
                os.dup2(0, number, inheritable=False)
        return moved

    def _watch_children(self) -> None:
        self._woken, wake = os.pipe()
        for handle in (self._woken, wake):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _start(self, order: dict[str, Any], handles: dict[int, int]) -> None:
        die_with_us, own, line = on_parent_death(signal.SIGKILL), os.getpid(), self._line
        until = self._until or 0

        def become() -> None:  # in the child, which executes the command next
            # If this process is killed nobody would end the command.
            die_with_us()
            if os.getppid() != own:
                os._exit(UNSTARTED)  # it is dead already
            # Or a signal in the child would be written into our pipe.
            signal.set_wakeup_fd(-1)
            for signum in (*IGNORED, signal.SIGCHLD):
                if signum != signal.SIGPIPE:
                    ignored = signum in self._ignored
                    signal.signal(signum, signal.SIG_IGN if ignored else signal.SIG_DFL)
            line.sendall(b"%s %d\n" % (FORKED, os.getpid()))
            # It is recorded before it may begin, and never begins unless somebody still waits.
            if line.recv(64) != GO + b"\n" or self._now() >= until:
                os._exit(UNSTARTED)
            for number in {0, 1, 2} - handles.keys():
                os.close(number)
            for number, handle in handles.items():
                os.dup2(handle, number)

        try:
            process = subprocess.Popen(
                [x.encode("latin-1") for x in order["words"]],
                env={k.encode("latin-1"): v.encode("latin-1") for k, v in order["env"].items()},
                cwd=order["cwd"].encode("latin-1"),
                close_fds=False,
                process_group=order["group"],
                preexec_fn=become,  # this process has no other thread
            )
        except OSError as error:
            self._tell(FAILED, error.errno or 0)
            return
        except (ValueError, subprocess.SubprocessError):
            self._tell(FAILED, 0)
            return
        process.returncode = 0  # it is reaped here, with all others
        self._pid = process.pid
        number = order["group"] or self._pid
        self._group = ProcessGroup(
            number,
            started_at(number),
            guardian=own,
            guardian_started=started_at(own),
            adopts=self._adopts,
        )
        self._tell(STARTED, self._pid)

    # --- the end --------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Take note of children that have ended, and report the command's status."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self._tell(ENDED, os.waitstatus_to_exitcode(status))

    def _end(self, *, asked: bool) -> None:
        """End the command and all that it started but nested runs; with ``asked`` ask it first."""
        group, now = self._group, self._now()
        if asked:
            over = now + self._grace
            over = over if self._until is None else min(over, self._until)
            # A stopped process gets TERM only once it goes on.
            group.send(signal.SIGTERM, signal.SIGCONT, spares_runs=True)
            while self._now() < over and group.is_left(spares_runs=True):
                time.sleep(STEP)
                self._reap()
        given_up = self._now() + UNENDING * 1_000
        while group.is_left(spares_runs=True) and self._now() < given_up:
            group.send(signal.SIGKILL, spares_runs=True)
            time.sleep(STEP / 10)
            self._reap()
        self._reap()
        # Without orphans of its own it cannot know that nothing is left.
        if self._adopts and self._mark and not group.is_left(spares_runs=True):
            with contextlib.suppress(OSError):
                os.close(os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def main(words: list[str]) -> None:
    """Guard; the words are the descriptor of the line, and the grace."""
    # What ends the run, or a terminal's whole group, must leave whoever ends the command.
    every = (*IGNORED, signal.SIGCHLD)
    ignored = frozenset(int(x) for x in every if signal.getsignal(x) is signal.SIG_IGN)
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    name_this_process(NAME)
    line = socket.socket(fileno=int(words[0]))
    line.set_inheritable(False)
    os.chdir("/")
    watch = Watch(
        line,
        int(words[1]),
        lambda: time.clock_gettime_ns(BOOT) // 1_000_000,
        adopts=adopt_orphans(),
        ignored=ignored,
    )
    with contextlib.suppress(OSError):  # its parent may be gone already
        watch.run()


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # fast: somebody waits
