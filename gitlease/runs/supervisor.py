"""A command that runs under leases: when it is stopped, and what its run comes to.

1. It runs for as long as every lease is held. Once one is known to be lost it is asked to end
   (TERM), and a grace later ended (KILL). An end that time brings is counted with the grace in it,
   so that both come before anybody else can claim the lease. A revocation, or a release from
   elsewhere, may be known only after another has begun. What the command itself ends by name
   (``done R``) is its outcome, and no reason to stop it.
2. Whoever runs it may be stopped, or die, at any moment. So a guardian, another process, always
   knows until when the command may live without another word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, Instant
from gitlease.core.loss import Hold, Lost, early_ms
from gitlease.engine.ports import Clock
from gitlease.git.run import group_is_left, signal_group
from gitlease.runs.child import (
    CannotExecute,
    Child,
    NoCommand,
    exit_status,
    is_talked_to,
    start,
    stop_like,
)
from gitlease.runs.guardian import Guardian, GuardianFailed, readable, watch_lines
from gitlease.runs.heartbeat import Heartbeat

GRACE = 10  # seconds from TERM to KILL, unless given
SHARE = 6  # the grace is at most this part of a lease's time
LONGEST_NAP = 1.0  # seconds between two words to the guardian
NAPS = 10  # of them at least in the time of a lease
ENDED_BY_SIGNAL = frozenset({129, 130, 143})  # HUP, INT and TERM, as shells say it
UNENDING = 5.0  # seconds after KILL at which nothing more can be done

NOT_ACQUIRED = 75  # EX_TEMPFAIL of sysexits.h: try again
FAILED = 125
CANNOT_EXECUTE, NO_COMMAND = 126, 127
REFUSED = frozenset({"held", "wait_timeout", "nothing_left", "policy", "lost", "not_holder"})
UNGUARDED = "its guardian cannot be started"
UNENDED = "it could not be ended"


def exit_of_refusal(refusal: GitleaseError) -> int:
    """The exit status of a run that never began."""
    if isinstance(refusal, NoCommand):
        return NO_COMMAND
    if isinstance(refusal, CannotExecute):
        return CANNOT_EXECUTE
    return NOT_ACQUIRED if refusal.code in REFUSED else FAILED


def grace_ms(seconds: int | None, holds: Sequence[Hold]) -> int:
    """Milliseconds from TERM to KILL: as requested, at most a sixth of the shortest lease."""
    longest = min(hold.duration_ms for hold in holds) // SHARE
    return min((GRACE if seconds is None else seconds) * MS, longest)


def early_by(grace: int) -> Callable[[Hold], int]:
    """How long before its end a grant must be given up, so that the command has ended by then."""
    return lambda hold: grace + early_ms(hold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended. ``status`` is the command's own; None if it could not be ended.

    ``lost`` are the leases that were lost before its end; ``stopped``: it was asked to stop it;
    ``hurried``: a signal ended it, so somebody is waiting; ``failure`` is the fault of gitlease for
    which the command was stopped.
    """

    status: int | None
    lost: tuple[Lost, ...] = ()
    stopped: bool = False
    hurried: bool = False
    failure: str | None = None

    @property
    def outcome(self) -> str:
        """``lost``, ``failed``, ``stopped`` or ``ended``."""
        if self.lost:
            return "lost"
        if self.failure is not None:
            return "failed"
        return "stopped" if self.stopped else "ended"

    @property
    def message(self) -> str | None:
        """Why it was stopped, if for a loss or a fault."""
        return self.lost[0].error.message if self.lost else self.failure

    @property
    def exit(self) -> int:
        """The exit status of the run."""
        failed = self.lost or self.failure is not None or self.status is None
        return FAILED if failed or self.status is None else self.status


class Run:
    """One command under leases. ``on_stop`` is called with the reason before it is stopped.

    ``heartbeat`` keeps the grants, and gives one up ``early_by(grace)`` before its end.
    """

    def __init__(
        self,
        command: SupervisedProcess,
        heartbeat: Heartbeat,
        holds: Sequence[Hold],
        *,
        clock: Clock,
        grace: int,
        on_stop: Callable[[Lost | str | None], None] = lambda _why: None,
    ) -> None:
        self._command, self._heartbeat, self._holds = command, heartbeat, tuple(holds)
        self._clock, self._grace, self._on_stop = clock, grace, on_stop
        self._ids = [hold.grant.lease_id for hold in holds]
        self._lost: list[Lost] = []
        self._ended_by_command: set[str] = set()
        self._counted = 0
        self._asked: Instant | None = None
        self._kill_in = 0  # ms after it was asked
        self._stopped = False
        self._failure: str | None = None

    def attend(self) -> Ended:
        """Keep the leases until the command has ended, and stop it if one is lost."""
        self._heartbeat.keep(self._holds, self._lose)
        try:
            return self._attend()
        finally:
            self._heartbeat.drop(self._ids, self._lose)

    def _attend(self) -> Ended:
        while True:
            self._guard()
            status = self._command.wait(self._nap())
            self._heartbeat.look()
            self._handle_losses()
            if status is not None:
                return self._ended(status)
            if self._asked is not None and self._left_ms() <= 0:
                return self._ended(self._kill())

    def _ended(self, status: int | None) -> Ended:
        # If the command was stopped, so must be what it started.
        stopped = self._asked is not None and status is not None
        if stopped and not self._command.wait_for_group(max(0, self._left_ms()) / MS):
            self._command.kill()
        if status is None and self._failure is None:
            self._failure = UNENDED
        return Ended(
            status=status,
            lost=tuple(self._lost),
            stopped=self._stopped,
            hurried=self._command.told_to_end or status in ENDED_BY_SIGNAL,
            failure=self._failure,
        )

    def _kill(self) -> int | None:
        self._command.kill()
        since = self._clock.now()
        while (left := UNENDING * MS - since.elapsed_at_most(self._clock.now())) > 0:
            status = self._command.wait(left / MS)
            if status is not None:
                return status
        return None

    # --- when to stop ---------------------------------------------------------------------------

    def _lose(self, lost: Lost) -> None:
        # Called in a thread of the heartbeat, or in ``look``.
        if lost.by_own:
            self._ended_by_command.add(lost.hold.grant.lease_id)
        else:
            self._lost.append(lost)
        self._command.wake()

    def _handle_losses(self) -> None:
        """Stop the command if there is a new reason to."""
        losses = self._lost[self._counted :]
        self._counted += len(losses)
        for lost in losses:
            # Its grant ends early: kill it no later than that, and than a grace from now.
            now = self._clock.now()
            rest = lost.hold.left_ms(now) - early_ms(lost.hold)
            self._stop(lost, now, min(self._grace, max(0, rest)))
        if self._failure is not None and self._asked is None:
            self._stop(self._failure, self._clock.now(), self._grace)
        if self._command.to_stop and not self._stopped:
            self._stopped = True
            self._stop(None, self._clock.now(), self._grace)

    def _stop(self, why: Lost | str | None, now: Instant, kill_in: int) -> None:
        self._on_stop(why)
        if self._asked is None:
            self._asked, self._kill_in = now, kill_in
            self._command.ask()
            return
        since = self._asked.elapsed_at_most(now)
        self._kill_in = min(self._kill_in, since + kill_in)

    # --- until when -----------------------------------------------------------------------------

    def _guard(self) -> None:
        # A little longer than planned: the guardian acts only if this run does not.
        now = self._clock.now()
        left = self._left_ms() if self._asked else self._held_ms() + self._grace
        left += min(early_ms(hold) for hold in self._holds) // 2
        if not self._command.guard(now.boot_ms + left) and self._asked is None:
            self._failure = UNGUARDED
            self._handle_losses()

    def _nap(self) -> float:
        shortest = min(hold.duration_ms for hold in self._holds)
        nap = min(LONGEST_NAP, shortest / MS / NAPS)
        return nap if self._asked is None else max(0.0, min(nap, self._left_ms() / MS))

    def _held_ms(self) -> int:
        held = [x for x in self._ids if x not in self._ended_by_command]
        if not held:  # nothing can be lost any more: the guardian stays for a death of this process
            return min(hold.duration_ms for hold in self._holds)
        return min(self._heartbeat.left_ms(lease_id) for lease_id in held)

    def _left_ms(self) -> int:
        """Milliseconds until the command is ended, once it was asked to end."""
        if self._asked is None:
            return 0
        return self._kill_in - self._asked.elapsed_at_most(self._clock.now())


PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH, signal.SIGCONT),
    signal.SIGTSTP,
)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
OF_THE_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
STOPS = (signal.SIGTSTP, *OF_THE_TERMINAL)
STEP = 0.05
CONTINUED = 0.2  # seconds by which a stop may be late
NO_PROMPT = "GIT_TERMINAL_PROMPT"
GUARDIANS = 10  # of one command, one after the other
SOON = 5.0  # seconds for another one to start


class SupervisedProcess:
    """One command of this process, which is a context: signals are its own inside.

    ``stops``: a signal that ends asks to stop it (TERM, grace, KILL), as in the background, where
    only gitlease sends them: then ``to_stop`` is set. Else such signals are passed on.
    ``told_to_end``: one of them has come.
    """

    def __init__(self, *, grace: int, stops: bool = False) -> None:
        self._stops = stops
        self.to_stop = self.told_to_end = False
        self._guardian = Guardian(grace)
        self._terminal = Terminal()
        self._child: Child | None = None
        self._status: int | None = None
        self._found: dict[int, signal.Handlers] = {}
        self._handlers: dict[int, object] = {}
        self._woken, self._wake = os.pipe()
        self._wakeup = -1
        self._told = self._prompts = False
        self._guardians = 0
        self._reads = is_talked_to()  # the command gets the terminal

    def __enter__(self) -> Self:
        for handle in (self._woken, self._wake):
            os.set_blocking(handle, False)
        self._wakeup = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for signum in (*PASSED_ON, signal.SIGCHLD):
            if signum == signal.SIGCHLD or signal.getsignal(signum) is not signal.SIG_IGN:
                self._handle(signum, _note)
        for signum in OF_THE_TERMINAL:
            self._handle(signum, signal.SIG_IGN)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        ended_by_signal = self._status is None or self._status > 128
        self._terminal.take_back(restore=ended_by_signal)
        self._terminal.close()
        self._guardian.dismiss(goodbye=self._child is None or kind is None)
        signal.set_wakeup_fd(self._wakeup)
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        os.close(self._woken)
        os.close(self._wake)
        if self._prompts:  # a program goes on after this
            os.environ.pop(NO_PROMPT, None)

    def close(self) -> None:
        """Reap the guardian."""
        self._guardian.close()

    def _handle(self, signum: int, how: Callable[[int, FrameType | None], None] | int) -> None:
        before = signal.signal(signum, how)
        self._handlers[signum] = signal.SIG_DFL if before is None else before
        ignored = before is signal.SIG_IGN
        self._found[signum] = signal.SIG_IGN if ignored else signal.SIG_DFL

    # --- its start ------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def start(
        self, words: tuple[str, ...], env: dict[str, str], cwd: str, *, until_ms: int
    ) -> None:
        """Start it, guarded from its first moment on. GuardianFailed, and as ``child.start``."""
        self._guardian.start()
        self._child = start(
            words, env, cwd, self._found, lambda child: self._ready(child, until_ms)
        )
        # Renewals run in the background meanwhile, and must not ask for a password.
        self._prompts = NO_PROMPT not in os.environ
        os.environ.setdefault(NO_PROMPT, "0")

    def _ready(self, child: Child, until_ms: int) -> None:
        self._guardian.watch(child.pid, child.started, until_ms)
        if self._reads:
            self._terminal.lend(child.pid)

    # --- for the run that decides ---------------------------------------------------------------

    def wait(self, seconds: float) -> int | None:
        """Wait for its end: its exit status, 128 + n when signal n ended it.

        None after so many seconds, or earlier if there is something to decide.
        """
        end = time.monotonic() + seconds
        while True:
            self._reap()
            if self._status is not None:
                return self._status
            left = end - time.monotonic()
            if left <= 0 or self._told:
                self._told = False
                return None
            self._hear(left)

    def wait_for_group(self, seconds: float) -> bool:
        """After its end, wait for the rest of its group; whether nothing is left of it."""
        end = time.monotonic() + seconds
        while group_is_left(self.pid):
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(STEP, left))
        return True

    def ask(self) -> None:
        """Ask its group to end (TERM), stopped ones too."""
        signal_group(self.pid, signal.SIGTERM)
        signal_group(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End its group (KILL)."""
        signal_group(self.pid, signal.SIGKILL)

    def guard(self, until_ms: int) -> bool:
        """Tell its guardian until when, by the boot clock, it may live without another message.

        False if it is no longer guarded, and no guardian can be started.
        """
        if self._child is not None and self._guardian.is_gone():
            self._guardian.close()
            self._guardians += 1
            try:
                if self._guardians >= GUARDIANS:
                    return False
                known = watch_lines(self._child.pid, self._child.started, until_ms)
                self._guardian.start(SOON, known)
            except GuardianFailed:
                self._guardians = GUARDIANS
                return False
        self._guardian.until(until_ms)
        return True

    def wake(self) -> None:
        """Make ``wait`` return now. Safe for threads."""
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    # --- how ------------------------------------------------------------------------------------

    def _hear(self, seconds: float) -> None:
        """Wait for any event, and pass on the signals that have come."""
        line = self._guardian.fileno()
        ready = readable([self._woken, *([line] if line >= 0 else [])], seconds)
        if line in ready:
            self._told = True  # it is gone: the run has another one started
        for signum in self._signals() if self._woken in ready else b"":
            if signum == 0:
                self._told = True
            elif signum in PASSED_ON:
                self._pass_on(signum)

    def _signals(self) -> bytes:
        try:
            return os.read(self._woken, 4_096)
        except BlockingIOError:
            return b""

    def _pass_on(self, signum: int) -> None:
        self.told_to_end |= signum in ENDING
        if self._stops and signum in ENDING:
            self.to_stop = self._told = True
        elif signum == signal.SIGCONT:
            self._resume()
        else:
            signal_group(self.pid, signum)

    def _reap(self) -> None:
        """Note that the command has ended, or was stopped."""
        while self._status is None and self._child is not None:
            pid, raw = os.waitpid(self._child.pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(raw):
                self._stopped(os.WSTOPSIG(raw))
            else:
                self._status = exit_status(raw)

    def _stopped(self, signum: int) -> None:
        if not self._terminal.exists:
            return
        self._reads = self._reads or signum in OF_THE_TERMINAL
        if signum in OF_THE_TERMINAL and self._terminal.is_ours():
            self._resume()
            return
        self._terminal.take_back()
        stop_like(signum if signum in STOPS else signal.SIGTSTP)
        # Only a shell continues what was stopped; without one neither we nor the command were.
        end, found = time.monotonic() + CONTINUED, b""
        while signal.SIGCONT not in found and (left := end - time.monotonic()) > 0:
            readable([self._woken], left)
            found += self._signals()
        self._resume()
        for other in found:
            if other != signal.SIGCONT and other in PASSED_ON:
                self._pass_on(other)
        self._told = True

    def _resume(self) -> None:
        """Continue it, with the terminal if it reads that and we have it."""
        if self._reads and not self._terminal.lent:
            self._terminal.lend(self.pid)
        signal_group(self.pid, signal.SIGCONT)


def _note(signum: int, frame: FrameType | None) -> None:
    """Do nothing: Python writes the number of the signal to the wakeup descriptor."""


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
