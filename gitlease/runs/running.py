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

from collections.abc import Callable, Sequence

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, Instant
from gitlease.core.loss import Hold, Lost, early_ms
from gitlease.engine.ports import Clock
from gitlease.runs.child import CannotExecute, NoCommand
from gitlease.runs.heartbeat import Heartbeat
from gitlease.runs.supervised import SupervisedProcess

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
