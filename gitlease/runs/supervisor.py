"""A command that runs under leases: when it is stopped, and what its run comes to.

1. It runs for as long as every lease is held. Once one is known to be lost it is asked to end
   (TERM), and a grace later ended (KILL). Where time ends a lease, both come before anybody else
   can claim it. What the command itself ends by name (``done R``) is no reason to stop it.
2. Whoever runs it may be stopped, or die, at any moment. So a guardian, another process, starts the
   command, and always knows until when that may live without another word.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Self

from gitlease.kernel.git.run import members_of, started_at, still_runs
from gitlease.kernel.ledger.heartbeat import Heartbeat
from gitlease.kernel.ledger.ports import Clock
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import MS, Instant, format_duration
from gitlease.kernel.rules.loss import Hold, Lost
from gitlease.runs.child import CannotExecute, NoCommand, check_executable, foreground_group
from gitlease.runs.guardian import (
    UNENDING,
    CommandOrder,
    Guardian,
    ProcessGroup,
    wait_readable,
)
from gitlease.runs.processes import outlive_parent

GRACE = 10  # seconds from TERM to KILL, unless given
SHARE = 6  # the grace is at most this part of a lease's time
LONGEST_NAP = 1.0  # seconds between two words to the guardian
NAPS = 10  # of them at least in the time of a lease
ENDED_BY_SIGNAL = frozenset({129, 130, 143})  # HUP, INT and TERM, as shells say it
STEP = 0.05  # seconds between two looks at a command that was asked to end

NOT_ACQUIRED = 75  # EX_TEMPFAIL of sysexits.h: try again
FAILED = 125
UNSTARTED = CANNOT_EXECUTE, NO_COMMAND = 126, 127
REFUSED = frozenset({"held", "wait_timeout", "nothing_left", "policy", "lost", "not_holder"})
UNGUARDED = "its guardian was killed"
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
    """Return the time before its end at which a grant is given up: its command ends within it."""
    return lambda hold: grace + hold.early_ms()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a run. ``status`` is the command's own; None if it could not be ended.

    ``lost`` are the leases that were lost before; ``hurried``: a signal ended it, so somebody is
    waiting; ``failure`` is the reason for which gitlease stopped it, other than a loss. ``left``
    names the processes that it left behind at a normal end. ``is_over``: nothing else that it
    started works on, as far as its guardian can know.
    """

    status: int | None
    lost: tuple[Lost, ...] = ()
    stopped: bool = False
    hurried: bool = False
    failure: str | None = None
    left: tuple[str, ...] = ()
    is_over: bool = True

    @property
    def outcome(self) -> str:
        if self.lost:
            return "lost"
        if self.failure is not None:
            return "failed"
        return "stopped" if self.stopped else "ended"

    @property
    def message(self) -> str | None:
        return self.lost[0].error.message if self.lost else self.failure

    @property
    def exit(self) -> int:
        failed = self.lost or self.failure is not None or self.status is None
        return FAILED if failed or self.status is None else self.status


class RunState(Enum):
    """The state of a run. From ``ENDING`` on the command was asked to end (TERM), then KILL."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    KILLING = "killing"
    GONE = "gone"


class Supervisor:
    """One command under leases. ``on_stop`` is called with the reason before it is stopped.

    ``heartbeat`` gives a grant up ``early_by(grace)`` before its end.
    """

    def __init__(
        self,
        command: SupervisedProcess,
        heartbeat: Heartbeat,
        holds: Sequence[Hold],
        *,
        clock: Clock,
        grace: int,
        limit: int | None = None,
        on_stop: Callable[[Lost | str | None], None] = lambda _why: None,
    ) -> None:
        self._command = command
        self._heartbeat = heartbeat
        self._holds = tuple(holds)
        self._clock = clock
        self._grace = grace
        self._limit = limit
        self._on_stop = on_stop
        self._began = clock.now()
        self.state = RunState.STARTING
        self._new_losses: list[Lost] = []
        self._lost: list[Lost] = []
        self._held = {hold.grant.lease_id for hold in holds}  # but what the command itself ended
        self._kill_at = 0  # by the boot clock, in ms; from ENDING on
        self._stopped = self._was_asked = False
        self._failure: str | None = None

    def attend(self) -> Ended:
        """Keep the leases until the command has ended, and stop it if one is lost."""
        ids = [hold.grant.lease_id for hold in self._holds]
        self._heartbeat.keep(self._holds, self._lose)
        self.state = RunState.RUNNING
        try:
            while self.state is not RunState.GONE:
                self._guard()
                status = self._command.wait(self._nap())
                self._heartbeat.look()
                # The status is guessed: its guardian died since it was last told.
                if status is not None and not self._command.is_watched:
                    self._fail(UNGUARDED)
                self._stop_for_new_reasons()
                self.state = self._next_state(has_ended=status is not None)
        finally:
            self._heartbeat.drop(ids, self._lose)
        # A nested run that is the command itself goes on, under its own lease.
        is_unended = self._command.group_is_left if self._was_asked else status is None
        failure = self._failure or (UNENDED if is_unended else None)
        return Ended(
            status=status,
            lost=tuple(self._lost),
            stopped=self._stopped,
            hurried=self._command.told_to_end or status in ENDED_BY_SIGNAL,
            failure=failure,
            left=() if self._was_asked else tuple(self._command.left_behind()),
            is_over=not is_unended and self._command.is_watched,
        )

    def _next_state(self, *, has_ended: bool) -> RunState:
        if self.state is RunState.RUNNING:
            return RunState.GONE if has_ended else RunState.RUNNING
        time_left = self._left_ms()
        # A command that was asked to end has not ended before what it started has.
        if (has_ended or self._command.goes_on) and not self._command.group_is_left:
            return RunState.GONE
        if self.state is RunState.ENDING and time_left > 0:
            return RunState.ENDING
        if time_left <= -UNENDING * MS:
            return RunState.GONE
        # Again while something is left: it may have started more in the meantime.
        self._command.kill()
        return RunState.KILLING

    def _lose(self, lost: Lost) -> None:
        # Called in a thread of the heartbeat, or in ``look``.
        if lost.by_own:
            self._held.discard(lost.hold.grant.lease_id)
        else:
            self._new_losses.append(lost)
        self._command.wake()

    def _stop_for_new_reasons(self) -> None:
        now = self._clock.now()
        while self._new_losses:
            lost = self._new_losses.pop(0)
            self._lost.append(lost)
            # Its grant ends early: kill it no later than that, and than a grace from now.
            rest = lost.hold.left_ms(now) - lost.hold.early_ms()
            self._stop(lost, now, min(self._grace, max(0, rest)))
        if self._command.to_stop and not self._stopped:
            self._stopped = True
            self._stop(None, now, self._grace)

    def _stop(self, why: Lost | str | None, now: Instant, grace: int) -> None:
        self._on_stop(why)
        self._was_asked = True
        # Nested runs have leases of their own, which were not lost.
        self._command.spares_runs = bool(self._lost)
        if self.state is RunState.RUNNING:
            self.state = RunState.ENDING
            self._kill_at = now.boot_ms + grace
            self._command.ask()
        else:  # a second reason never gives it more time
            self._kill_at = min(self._kill_at, now.boot_ms + grace)

    def _guard(self) -> None:
        """Tell the guardian until when the command may live; stop it if it cannot or is late."""
        now, running = self._clock.now(), self.state is RunState.RUNNING
        until = self._kill_at
        if running:  # if no loss is possible any more, the guardian stays for our own death
            held = [*map(self._heartbeat.left_ms, self._held.copy())]
            time_left = min(held or [hold.duration_ms for hold in self._holds])
            until = now.boot_ms + self._grace + time_left
        # A little longer than planned: the guardian acts only if this run does not.
        until += min(hold.early_ms() for hold in self._holds) // 2
        # Unguarded it would go on without leases if this process died now.
        if not self._command.guard(until):
            failure = UNGUARDED
        elif self._limit is not None and self._began.elapsed_at_least(now) > self._limit * MS:
            failure = f"it took longer than {format_duration(self._limit)}"
        else:
            return
        self._fail(failure)

    def _fail(self, failure: str) -> None:
        if self.state is RunState.RUNNING:
            self._failure = failure
            self._stop(failure, self._clock.now(), self._grace)

    def _nap(self) -> float:
        if self.state is RunState.RUNNING:
            shortest = min(hold.duration_ms for hold in self._holds)
            return min(LONGEST_NAP, shortest / MS / NAPS)
        # What the command started is no child of ours, so nothing wakes us at its end.
        seconds = self._left_ms() / MS if self.state is RunState.ENDING else STEP
        return max(0.0, min(STEP, seconds))

    def _left_ms(self) -> int:
        """Milliseconds until the command is killed, once it was asked to end."""
        return self._kill_at - self._clock.now().boot_ms


PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
)
# The terminal sends these to all of a group itself.
OF_THE_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
NO_PROMPT = "GIT_TERMINAL_PROMPT"


class SupervisedProcess:
    """One command of this process, which is a context: signals are its own inside.

    ``stops``: a signal that ends sets ``to_stop``, and is not passed on, as in the background.
    ``told_to_end``: one of them has come. ``spares_runs``: what ends it leaves nested runs alone.
    ``mark`` is the file that its guardian makes if it had to end the command in our place.
    """

    def __init__(self, *, grace: int, stops: bool = False, mark: str = "") -> None:
        self._stops, self._mark = stops, mark
        self.to_stop = self.told_to_end = self.spares_runs = False
        self._guardian = Guardian(grace)
        self._pid, self._started = 0, ""
        # On a terminal it shares our group, so that the keyboard reaches both. What is in the
        # group already is not the command's.
        self._shares = foreground_group() is not None
        self._group = ProcessGroup(0, "")
        self._handlers: dict[int, object] = {}
        self._woken, self._wake = os.pipe()
        self._wakeup = -1
        self._prompts = False

    def __enter__(self) -> Self:
        for handle in (self._woken, self._wake):
            os.set_blocking(handle, False)
        # A signal must end the wait for the command, whichever moment it comes in.
        self._wakeup = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for signum in (*PASSED_ON, signal.SIGCHLD):
            # What whoever started us ignores (nohup) stays ignored.
            if signum == signal.SIGCHLD or signal.getsignal(signum) is not signal.SIG_IGN:
                # Python writes the number of the signal to the wakeup descriptor.
                before = signal.signal(signum, lambda *_: None)
                self._handlers[signum] = signal.SIG_DFL if before is None else before
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # Left by an exception with the command running, it ends that in our place.
        self._guardian.close(goodbye=not self._pid or kind is None)
        signal.set_wakeup_fd(self._wakeup)
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        os.close(self._woken)
        os.close(self._wake)
        if self._prompts:  # a program goes on after this
            os.environ.pop(NO_PROMPT, None)

    def start(
        self,
        words: tuple[str, ...],
        env: dict[str, str],
        cwd: str,
        before: Callable[[int, int], None] = lambda _pid, _guardian: None,
        *,
        until_ms: int,
    ) -> None:
        """Start it, guarded from its first moment on.

        ``before`` is called with its process and its guardian's, before it becomes the command.
        Raises GuardianFailed, NoCommand and CannotExecute: then the command never ran.
        """
        self._guardian.start()
        # This process may be the command of another run, whose loss does not concern it.
        outlive_parent()
        own = os.getpgrp() if self._shares else 0
        spared, guardian = members_of(own) if own else frozenset[int](), self._guardian.pid

        def note(pid: int) -> None:
            before(pid, guardian)

        order = CommandOrder(
            words=words, env=env, cwd=cwd, group=own, until_ms=until_ms, mark=self._mark
        )
        try:
            self._pid = self._guardian.begin(order, note)
        except (OSError, ValueError) as error:
            raise _refused(words[0], env, cwd, error) from None
        self._started = started_at(self._pid)
        number = own or self._pid
        self._group = ProcessGroup(
            number,
            started_at(number),
            spared,
            guardian,
            started_at(guardian),
            self._guardian.adopts,
        )
        # Renewals run in the background meanwhile, and must not ask for a password.
        self._prompts = NO_PROMPT not in os.environ
        os.environ.setdefault(NO_PROMPT, "0")

    # --- for the supervisor ---------------------------------------------------------------------

    def wait(self, seconds: float) -> int | None:
        """Wait for a signal, a thread or the guardian's end, and pass on the signals that came.

        Return the exit status once the command has ended, 128 + n when signal n ended it.
        """
        line = self._guardian.fileno()
        # A short command may have ended before its start was heard of: its line stays silent then.
        if self._guardian.has_message:
            seconds = 0.0
        if self._woken in wait_readable([self._woken, *([line] if line >= 0 else [])], seconds):
            with contextlib.suppress(BlockingIOError):
                signums = [x for x in os.read(self._woken, 4_096) if x in PASSED_ON]
                for signum in signums:
                    self.told_to_end |= signum in ENDING
                    typed = signum in OF_THE_KEYBOARD and foreground_group() == os.getpgrp()
                    if self._stops and signum in ENDING:
                        self.to_stop = True
                    # The terminal has sent that to the command already.
                    elif not (self._shares and typed):
                        self._group.pass_on(signum)
        is_gone, code = self._guardian.is_gone(), self._guardian.status
        # Its guardian's death kills it, and then nobody reports that.
        if is_gone and code is None and not still_runs(self._pid, self._started):
            code = -signal.SIGKILL
        return 128 - code if code is not None and code < 0 else code

    @property
    def group_is_left(self) -> bool:
        """Tell whether anything that it started still runs, but what is spared."""
        return self._group.is_left(spares_runs=self.spares_runs)

    @property
    def goes_on(self) -> bool:
        """Tell whether the command itself is a nested run that is spared."""
        return self.spares_runs and still_runs(self._pid, self._started)

    @property
    def is_watched(self) -> bool:
        """Tell whether its guardian saw it to its end, and all that it started."""
        return not self._guardian.is_gone() or self._guardian.status is not None

    def left_behind(self) -> list[str]:
        """Name what it started, and what goes on after its end."""
        return self._group.names_left()

    def ask(self) -> None:
        """Ask all that it started to end (TERM), stopped ones too."""
        self._group.send(signal.SIGTERM, signal.SIGCONT, spares_runs=self.spares_runs)

    def kill(self) -> None:
        """End all that it started (KILL)."""
        self._group.send(signal.SIGKILL, spares_runs=self.spares_runs)

    def guard(self, until_ms: int) -> bool:
        """Tell its guardian until when it may live; False if that is gone before the command."""
        self._guardian.watch(until_ms)
        return self.is_watched

    def wake(self) -> None:
        """Make ``wait`` return now. Safe for threads."""
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")


def _refused(word: str, env: Mapping[str, str], cwd: str, error: Exception) -> GitleaseError:
    number = error.errno if isinstance(error, OSError) else None
    why = os.strerror(number or errno.EIO).lower()
    # ENOENT may be of the program, of its interpreter, or of the folder.
    if number == errno.ENOENT:
        try:
            check_executable(word, env=env, cwd=cwd)
        except (NoCommand, CannotExecute) as refused:
            return refused
        why = "no such interpreter, or no such folder to run it in"
    return CannotExecute(f"{word} cannot be executed: {why}")
