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
from typing import Self

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, Instant
from gitlease.core.loss import Hold, Lost, early_ms
from gitlease.engine.ports import Clock
from gitlease.runs.child import (
    CannotExecute,
    Child,
    NoCommand,
    exit_status,
    has_terminal,
    is_in_foreground,
    start,
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
        self._stopped = self._killed = False
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
            over = self._asked is not None and self._left_ms() <= 0
            if status is not None or (self._killed and self._left_ms() <= -UNENDING * MS):
                return self._ended(status)
            if over and not self._killed:
                self._killed = True
                self._command.kill()

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
        left = self._left_ms() / MS + (UNENDING if self._killed else 0)
        return nap if self._asked is None else max(0.0, min(nap, left))

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
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
)
# The terminal sends these to all of a group itself.
OF_THE_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})
OF_A_GROUP = (signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
STEP = 0.05
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
        self._child: Child | None = None
        self._status: int | None = None
        self._found: dict[int, signal.Handlers] = {}
        self._handlers: dict[int, object] = {}
        self._woken, self._wake = os.pipe()
        self._wakeup = -1
        self._decide = self._prompts = False
        self._guardians = 0
        self._shares = has_terminal()

    def __enter__(self) -> Self:
        for handle in (self._woken, self._wake):
            os.set_blocking(handle, False)
        self._wakeup = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for signum in (*PASSED_ON, *(() if self._shares else OF_A_GROUP), signal.SIGCHLD):
            if signum == signal.SIGCHLD or signal.getsignal(signum) is not signal.SIG_IGN:
                before = signal.signal(signum, _note)
                self._handlers[signum] = signal.SIG_DFL if before is None else before
                ignored = before is signal.SIG_IGN
                self._found[signum] = signal.SIG_IGN if ignored else signal.SIG_DFL
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
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

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def start(
        self, words: tuple[str, ...], env: dict[str, str], cwd: str, *, until_ms: int
    ) -> None:
        """Start it, guarded from its first moment on. GuardianFailed, and as ``child.start``."""
        self._guardian.start()
        guard = self._guardian.watch
        self._child = start(words, env, cwd, self._found, lambda x: guard(x.group, until_ms))
        # Renewals run in the background meanwhile, and must not ask for a password.
        self._prompts = NO_PROMPT not in os.environ
        os.environ.setdefault(NO_PROMPT, "0")

    # --- for the run that decides ---------------------------------------------------------------

    def wait(self, seconds: float) -> int | None:
        """Wait for its end: its exit status, 128 + n when signal n ended it.

        None after so many seconds, or earlier if there is something to decide. One wait ends with
        any event: a signal, a wake-up by a thread, the end of the guardian.
        """
        end = time.monotonic() + seconds
        while True:
            if self._status is None and self._child is not None:
                pid, raw = os.waitpid(self._child.pid, os.WNOHANG)
                self._status = exit_status(raw) if pid else None
            if self._status is not None:
                return self._status
            left = end - time.monotonic()
            if left <= 0 or self._decide:
                self._decide = False
                return None
            self._hear(left)

    def wait_for_group(self, seconds: float) -> bool:
        """After its end, wait for the rest of its group; whether nothing is left of it."""
        end = time.monotonic() + seconds
        while self._child is not None and self._child.group.is_left:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(STEP, left))
        return True

    def ask(self) -> None:
        """Ask its group to end (TERM), stopped ones too."""
        self._send(signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        """End its group (KILL)."""
        self._send(signal.SIGKILL)

    def _send(self, *signums: int) -> None:
        if self._child is not None:
            self._child.group.send(*signums)

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
                self._guardian.start(SOON, watch_lines(self._child.group, until_ms))
            except GuardianFailed:
                self._guardians = GUARDIANS
                return False
        self._guardian.until(until_ms)
        return True

    def wake(self) -> None:
        """Make ``wait`` return now. Safe for threads."""
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def _hear(self, seconds: float) -> None:
        """Wait for any event, and pass on the signals that have come."""
        line = self._guardian.fileno()
        ready = readable([self._woken, *([line] if line >= 0 else [])], seconds)
        if line in ready:
            self._decide = True  # it is gone: the run has another one started
        signums = b""
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                signums = os.read(self._woken, 4_096)
        for signum in signums:
            if signum == 0:
                self._decide = True
            elif signum in PASSED_ON or signum in OF_A_GROUP:
                self._pass_on(signum)

    def _pass_on(self, signum: int) -> None:
        self.told_to_end |= signum in ENDING
        if self._stops and signum in ENDING:
            self.to_stop = self._decide = True
        elif not (self._shares and signum in OF_THE_KEYBOARD and is_in_foreground()):
            self._send(signum)
            if signum == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)


def _note(signum: int, frame: FrameType | None) -> None:
    """Do nothing: Python writes the number of the signal to the wakeup descriptor."""
