"""A command under leases, in the foreground or the background: claimed, run, and given back."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from gitlease.kernel.git.repository import TIMEOUT, short_host, without_secrets
from gitlease.kernel.git.run import local_variables_cleared, run_git, started_at
from gitlease.kernel.ledger import acts, claim
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.heartbeat import at_the_end, new_heartbeat, place_at_the_end
from gitlease.kernel.ledger.keeping import holds_of
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.sessions import give_back, run_out, unbind
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    LeaseLost,
    Loss,
    Unavailable,
    clean,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import format_duration, rfc3339
from gitlease.kernel.rules.lease import MAX_NOTE, Lease, State, same_person
from gitlease.kernel.rules.ledger import is_kept
from gitlease.kernel.rules.loss import Lost
from gitlease.kernel.rules.moves.operations import Grant, grant_of
from gitlease.kernel.rules.resources import Resource, parse_resource, word_anywhere
from gitlease.runs.child import CannotExecute, check_executable, fork_into_background, handling
from gitlease.runs.guardian import GuardianFailed
from gitlease.runs.records import (
    DONE,
    FAILED,
    GIVEN_BACK,
    LOST,
    STOPPED,
    WAITING,
    RunPlace,
    RunRecord,
    cannot_write,
    claiming,
    lines_of,
    record_of,
    remember,
    runs_of,
)
from gitlease.runs.supervisor import (
    ENDING,
    Ended,
    SupervisedProcess,
    Supervisor,
    early_by,
    grace_ms,
)

HURRY = 5.0  # seconds for the release of a run that somebody stopped
LONGEST_TAIL = 1_400  # characters of a log in a note
NAMED = 5  # processes that a command left behind

OnStop = Callable[[Lost | str | None], None]


class OutOfTime(SystemExit):
    """Out of ``HURRY``. A SystemExit, so that nothing on the way handles it as a fault."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A command to run under leases, and the terms of that.

    ``options`` are those of the claim, whose scope and commit are also those of the release at its
    end, as is ``note``. ``layer``: the one that a flag named. ``stops``: signals that end ask to
    stop it, and are not passed on.

    ``done``: its tasks are done if the command ends with 0; ``finisher`` does that then for each,
    and returns warnings. A command that takes longer than ``limit`` seconds has failed. ``brief``
    is the text of the file that GITLEASE_BRIEF names. ``pool``: the number of the one that started
    it, whose death stops it. If it fails its task is given back with a note of that, unless there
    is a ``note``, which has the last ``share_log`` lines of the log, and it counts in the ledger.
    """

    words: tuple[str, ...]
    directory: str
    options: ClaimOptions
    grace: int | None = None  # seconds that it has to end; None: the default
    note: str | None = None
    layer: str | None = None
    stops: bool = False
    done: bool = False
    finisher: Callable[[LeasedCommand, Resource], Sequence[str]] | None = None
    share_log: int = 0
    limit: int | None = None
    brief: str = ""
    pool: str = ""

    def check_command(self) -> None:
        """Check that the command could be executed. Raises NoCommand or CannotExecute."""
        check_executable(self.words[0], cwd=self.directory)


def claim_to_run(
    place: RunPlace,
    request: RunRequest,
    resources: Sequence[Resource],
    *,
    wait: int | None = None,
    on_wait: Callable[[LeaseHeld, int], None],
) -> Answer:
    """Claim these, or the first task of the queue; what was granted is given back if interrupted.

    Raises NoCommand or CannotExecute before.
    """
    request.check_command()
    if not resources:
        with (
            ends_orderly(),
            claiming(place, replace(request.options, picked=True)) as (run, options),
        ):
            return replace(place.queue.claim_next(options)[0], run=run)
    # Of several resources, the person's own leases are in the way, and none is bound.
    one = request.options.one
    try:
        with (
            ends_orderly(),
            claiming(place, replace(request.options, bind=not one)) as (run, bound),
        ):
            answer = claim.claim(
                place.ledger, resources, bound, wait=wait, on_wait=lambda x: on_wait(x, wait or 0)
            )
            return replace(answer, run=run)
    # The claim may have arrived, whenever the signal came.
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(GitleaseError):
            _take_back(place, resources, one=one)
        raise


@dataclass(frozen=True)
class LeasedCommand:
    """A command, what was claimed for it, and the record of its run as it begins."""

    place: RunPlace
    answer: Answer
    request: RunRequest
    record: RunRecord

    def run(self, *, on_start: Callable[[], None], on_stop: OnStop) -> Ended:
        """Run the command while what was claimed is held; it is not released here.

        Raises NoCommand, CannotExecute, Invalid and LeaseLost if the command never ran.
        """
        holds, clock = holds_of(self.answer), self.place.ledger.clock
        if not holds or len(holds) != len(self.answer.leases):
            raise LeaseLost(
                "what was claimed is not held: the command was not started",
                loss=Loss.RELEASED_ELSEWHERE,
            )
        request, grace = self.request, grace_ms(self.request.grace, holds)
        heartbeat = new_heartbeat(self.place, early=early_by(grace))
        env = self.environment()
        try:
            mark = runs_of(self.place).mark_of(self.record)
            with SupervisedProcess(grace=grace, stops=request.stops, mark=mark) as process:
                now = clock.now()
                time_left = min(hold.left_ms(now) - hold.early_ms() for hold in holds)
                if time_left <= 0:
                    raise LeaseLost(
                        "its time was over before the command could be started", loss=Loss.EXPIRED
                    )
                # Before it starts: a kill in between must not leave a lease that no command of the
                # clone ends.
                remember(self.place, self.record)

                def note(pid: int, guardian: int) -> None:
                    # Before it becomes the command: what runs is recorded, even if this process
                    # is killed meanwhile.
                    record = replace(self.record, pid=pid, pid_started=started_at(pid))
                    since = started_at(guardian)
                    remember(self.place, replace(record, guardian=guardian, guardian_started=since))

                until = now.boot_ms + time_left
                process.start(request.words, env, request.directory, note, until_ms=until)
                on_start()
                ended = Supervisor(
                    process,
                    heartbeat,
                    holds,
                    clock=clock,
                    grace=grace,
                    limit=request.limit,
                    on_stop=on_stop,
                ).attend()
                # Before its guardian goes: a kill from here on leaves nobody else to say so.
                if ended.is_over:
                    runs_of(self.place).mark_over(self.record)
                return ended
        except GuardianFailed as failed:
            raise Invalid(f"the guardian of the command cannot be started: {failed}") from None

    def environment(self) -> dict[str, str]:
        """The command's: this process's, without what ties git to another repository."""
        env = local_variables_cleared(os.environ)
        if os.environ.get("GIT_DIR"):
            words = ("rev-parse", "--git-dir")
            answer = run_git(words, cwd=self.request.directory, timeout=TIMEOUT)
            if answer.code != 0:  # a folder that no .git names: the variables alone do
                repository = self.place.repository
                env |= {"GIT_DIR": repository.git_dir}
                env |= {"GIT_WORK_TREE": top} if (top := repository.toplevel) else {}
        # A resource is as it can be typed in any folder of this work tree. Several are quoted for
        # a shell and separated by spaces, and their tokens stand in the same order.
        root, actor = self.place.repository.toplevel, self.place.actor
        names = [word_anywhere(view.resource, root=root) for view in self.answer.leases]
        ends = min(hold.since.wall_ms + hold.duration_ms for hold in holds_of(self.answer))
        env |= {
            "GITLEASE_RESOURCE": names[0] if len(names) == 1 else shlex.join(names),
            "GITLEASE_TOKEN": " ".join(str(view.token) for view in self.answer.leases),
            "GITLEASE_HOLDER": actor.holder,
            "GITLEASE_SESSION": actor.session or "",
            "GITLEASE_EXPIRES_AT": rfc3339(ends),
        }
        if brief := self.request.brief:
            env["GITLEASE_BRIEF"] = runs_of(self.place).write_brief(self.record, brief)
        if self.request.layer:  # a remote of a flag has a state of its own: no variable names it
            env["GITLEASE_LAYER"] = self.request.layer
        return env

    def finish(
        self, ended: Ended, log: str = "", tail: bytes = b""
    ) -> tuple[Ended, int, tuple[str, ...]]:
        """End the leases of a run; return its end, how many ended completed, and warnings.

        It never fails. ``log`` is the file of the command's output and ``tail`` the end of it, for
        the note with which a task is given back after a failure.
        """
        warnings: list[str] = []
        passing = False
        if not ended.is_over:
            still = "what it started may still run: its lease is not released, and ends by itself"
            return ended, self._completed(), (still,)
        if self.request.done and ended.outcome == "ended" and ended.status == 0:
            finished, warnings, obstacles = self._complete()
            if finished == len(self.answer.leases):
                back = self.give_back(ended.lost, hurried=ended.hurried)
                return ended, finished, (*warnings, *back, *_left_behind(ended))
            if any(type(x) in (KeyboardInterrupt, SystemExit) for x in obstacles):
                ended = replace(ended, stopped=True)
            # Where only the remote or the time of the lease was in the way, nobody failed.
            passing = all(isinstance(x, LeaseLost | Unavailable) for x in obstacles)
        note = self.request.note
        unfinished = bool(warnings)
        failed = bool(self.request.pool) and not (ended.stopped or passing)
        failed = failed and bool(ended.exit or warnings)
        if failed and note is None:
            why = "; ".join(warnings) or ended.message or ""
            note = _failure_note(ended, why, log, tail, self.request.share_log)
        warnings += self.give_back(ended.lost, hurried=ended.hurried, note=note, failed=failed)
        finished = 0 if self.request.finisher and unfinished else self._completed()
        return ended, finished, (*warnings, *_left_behind(ended))

    def give_back(
        self,
        lost: Sequence[Lost] = (),
        *,
        hurried: bool = False,
        note: str | None = None,
        failed: bool = False,
    ) -> tuple[str, ...]:
        """Release what this run was granted and has not lost; return warnings. Never fails.

        What it bound is unbound instead. ``hurried``: somebody waits for its end, so the remote
        gets only ``HURRY`` seconds. With ``failed`` it counts as a failure.
        """
        lost_ids = {loss.hold.grant.lease_id for loss in lost}
        grants = [x for x in self._grants_left() if x.lease_id not in lost_ids]
        # What its session held before was not this run's to take.
        joined = {view.lease_id for view in self.answer.leases if view.renewals}
        granted = [x for x in grants if x.lease_id not in joined]
        bound = [x for x in grants if x.lease_id in self.answer.bound]
        runs, is_own = runs_of(self.place), self.record.runner == os.getpid()
        if not is_own:  # else what follows takes it for a dead run
            runs.retire(self.record)
        try:
            with ends_orderly(), _time_limit(HURRY if hurried else 0):
                place = place_at_the_end(self.place, {grant.lease_id for grant in grants})
                ledger = place.ledger
                warnings = [*unbind(ledger, bound).warnings] if bound else []
                warnings += self._release(ledger, granted, note, failed) if granted else []
                if not self.place.actor.session_explicit:
                    # What the command claimed in the session of this run ends with it; in one that
                    # was given others may speak as well, and go on after this run.
                    claimed = {view.lease_id for view in self.answer.leases}
                    more = self.place.ledger.in_session(self.place.actor.session, but=claimed)
                    if below := {x.lease_id: x for x in more}:
                        warnings += run_out(ledger, below).warnings
                    warnings += _end_elsewhere(place, self.place.actor.session)
                return tuple(_about(ledger, warnings))
        except OutOfTime:
            why = f"the remote did not answer within {HURRY:g} seconds"
        except (KeyboardInterrupt, SystemExit):
            why = "interrupted"
        except GitleaseError as refusal:
            why = refusal.message
        except Exception as fault:  # the command has succeeded, and that is what counts
            why = f"a fault of gitlease: {type(fault).__name__}: {fault}"
        finally:
            if is_own:  # not before: if this process is killed, the next command releases
                runs.retire(self.record)
        return (f"not released, and ends by itself: {why}",)

    def _release(
        self, ledger: LedgerSession, granted: Sequence[Grant], note: str | None, failed: bool
    ) -> list[str]:
        named = [x.resource for x in granted]
        landed = ledger.finish_landed(named, ended=ledger.actor.session)  # the command pushed it
        warnings = [*landed.warnings]
        landed_ids = {lease.lease_id for lease in landed.leases}
        unlanded = [grant for grant in granted if grant.lease_id not in landed_ids]
        if not unlanded:
            return warnings
        answer = give_back(
            ledger,
            unlanded,
            note=note or self.request.note,
            commit=self.request.options.commit,
            failed=failed,
        )
        warnings += answer.warnings
        if answer.refused:  # a task file cannot be written: at least nobody waits for the lease
            ids = {x.lease_id for x in unlanded} - {view.lease_id for view in answer.leases}
            left = {x.lease_id: x for x in self.answer.leases if x.lease_id in ids}
            run_out(ledger, left, spares=False)  # by its record it still is a live run's
            kept = "the lease is over, and the edge is kept"
            warnings += [f"{kept}: {refusal.message}" for refusal in answer.refused]
        return warnings

    def _complete(self) -> tuple[int, list[str], list[BaseException]]:
        """Finish what is left; return how many are finished, warnings, and what was in the way."""
        finished = self._completed()
        warnings: list[str] = []
        obstacles: list[BaseException] = []
        grants = self._grants_left()
        ledger = at_the_end(self.place, {grant.lease_id for grant in grants})
        options = self.request.options
        finisher = self.request.finisher
        limit = 0
        what = "marked as done"
        if finisher is not None:
            limit = self.request.limit or 0
            what = "landed"
            if finished:  # what the command itself completed may not have landed
                grants = self._granted()
            finished = 0

        def finish(resource: Resource) -> Sequence[str]:
            if finisher is not None:
                return finisher(self, resource)
            done = acts.complete(ledger, resource, scope=options.scope, commit=options.commit)
            return done.warnings

        for grant in grants:
            try:
                with ends_orderly(ignored=finisher is not None), _time_limit(limit):
                    messages = finish(grant.resource)
            except (GitleaseError, KeyboardInterrupt, SystemExit) as why:
                obstacles.append(why)
                reason = why.message if isinstance(why, GitleaseError) else "interrupted"
                if isinstance(why, OutOfTime):
                    reason = f"it took longer than {format_duration(limit)}"
                warnings.append(f"{grant.resource} was not {what}: {reason}")
            else:
                finished += 1
                warnings += _about(ledger, messages)
        if finisher and finished == len(grants):  # a task that was handed on waits
            finished = self._completed()
        return finished, warnings, obstacles

    def _granted(self) -> list[Grant]:
        return [hold.grant for hold in holds_of(self.answer)]

    def _grants_left(self) -> list[Grant]:
        """The grants of this run that the command has not ended itself, as this clone knows."""
        grants, known = self._granted(), self._known()
        if known is None:
            return grants
        # What the command kept waits for its person, and is not to be given back.
        active = {x.lease_id for x in known if x.state is State.ACTIVE and not is_kept(x)}
        return [grant for grant in grants if grant.lease_id in active]

    def _completed(self) -> int:
        known = self._known() or ()
        done = {(x.lease_id, x.token) for x in known if x.state is State.COMPLETED}
        return sum((view.lease_id, view.token) in done for view in self.answer.leases)

    def given_back(self, lost: Sequence[Lost]) -> tuple[str, ...]:
        """The resources that this run has released, as far as this clone knows."""
        if (known := self._known()) is None:
            return ()
        kept = {x.lease_id for x in known} | {x.hold.grant.lease_id for x in lost}
        return tuple(x.resource for x in self.answer.leases if x.lease_id not in kept)

    def kept(self) -> str | None:
        """The note with which the command kept its task; None if it did not."""
        ids = {view.lease_id for view in self.answer.leases}
        kept = next((x for x in self._known() or () if x.lease_id in ids and is_kept(x)), None)
        ledger = self.place.ledger.known_ledger() if kept is not None else None
        if kept is None or ledger is None:
            return None
        setback = ledger.setback(kept.resource)
        return setback.last.text if setback is not None else ""

    def _known(self) -> Sequence[Lease] | None:
        """The records of what was claimed, by this clone's copy; None if that cannot be read."""
        ledger, records = self.place.ledger, list[Lease]()
        try:
            if ledger.known_ledger() is None:
                return None
            for name in dict.fromkeys(view.resource for view in self.answer.leases):
                with contextlib.suppress(Invalid):  # as if it were gone
                    records += ledger.decisions.known_records(parse_resource(name))
        except GitleaseError:
            return None
        return records


def _end_elsewhere(place: RunPlace, session: str | None) -> list[str]:
    """End what the command of a run claimed in its session in other layers; return warnings."""
    warnings = list[str]()
    for other in place.everywhere()[1:]:
        try:
            if below := {x.lease_id: x for x in other.in_session(session)}:
                warnings += _about(other, run_out(other, below).warnings)
        except GitleaseError as refusal:  # the other layers must still be handled
            left = f"what was claimed in layer {other.layer} is not released"
            warnings.append(f"{left}, and ends by itself: {refusal.message}")
    return warnings


def _left_behind(ended: Ended) -> tuple[str, ...]:
    """One line about the processes that a command left behind, if there are any."""
    names = ", ".join(ended.left[:NAMED]) + (", …" if len(ended.left) > NAMED else "")
    return (f"still running without a lease: {names}",) if names else ()


def _about(ledger: LedgerSession, warnings: Sequence[str]) -> list[str]:
    """Warnings about leases, without those that every answer of this ledger has."""
    return [text for text in warnings if text not in ledger.store.warnings]


def _take_back(place: RunPlace, resources: Sequence[Resource], *, one: bool) -> None:
    """Release what an interrupted claim was granted, or may have been.

    ``one``: it asked for any one of these.
    """
    ledger, actor = at_the_end(place, ()), place.actor
    pending = list(ledger.store.pending(ledger.layer))
    # A claim whose outcome is unknown may have arrived: only the remote tells.
    look = ledger.look() if pending else ledger.known_look()
    every = () if look is None else look.leases
    leases = [x for x in every if x.resource in resources and same_person(x.holder, actor.holder)]
    leases = [x for x in leases if x.session is not None and x.session == actor.session]
    if one:
        # A session that was given may have had others before: there the next command of the clone
        # ends what was granted, by the record of the run.
        granted = [grant_of(x) for x in leases if not actor.session_explicit]
        if granted:
            give_back(ledger, granted, note=None, commit=None)
        return
    joined = {x.resource for x in leases if x.renewals}
    fresh = [x for x in resources if x not in joined]
    if fresh and (pending or any(not x.renewals for x in leases)):
        acts.release(ledger, fresh)
    if joined and not actor.session_explicit:  # another's session may have held it before
        unbind(ledger, [grant_of(x) for x in leases if x.renewals])


def _failure_note(ended: Ended, why: str, log: str, tail: bytes, share: int) -> str:
    # Everybody reads a ledger: the output itself is in it only where somebody chose that.
    how = "could not be ended" if ended.status is None else f"ended with {ended.status}"
    note = f"a run of it {how} on {short_host() or 'an unnamed host'}, log {log}"
    note += f": {why}" if why else ""
    note = clean(note).replace("\n", " ")[: MAX_NOTE - LONGEST_TAIL - 1]
    lines = lines_of(without_secrets(tail.decode("utf-8", "replace")).encode())
    shared = "\n".join(lines[-share:] if share else ())[-LONGEST_TAIL:]
    return f"{note}\n{shared}" if shared else note


# --- how a process ends -------------------------------------------------------------------------


def ends_orderly(*, ignored: bool = False) -> contextlib.AbstractContextManager[None]:
    """Turn signals that end a process into SystemExit, in the main thread only."""
    # Handlers of others stay: a supervisor's, or those of a program that uses the library.
    usual = (signal.SIG_DFL, signal.SIG_IGN) if ignored else (signal.SIG_DFL,)

    def leave(signum: int, _frame: object) -> None:
        raise SystemExit(128 + signum)

    handled = threading.current_thread() is threading.main_thread()
    signums = (signal.SIGTERM, signal.SIGHUP) if handled else ()
    return handling(leave, *(x for x in signums if signal.getsignal(x) in usual))


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after so many seconds; 0: never."""

    def leave(_signum: int, _frame: object) -> None:
        raise OutOfTime

    if not seconds:
        yield
        return
    with handling(leave, signal.SIGALRM):
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The result of a run: its end, how many leases ended completed, what it released."""

    answer: Answer
    ended: Ended
    finished: int
    released: tuple[str, ...]
    warnings: tuple[str, ...]


def run_claimed(
    place: RunPlace,
    request: RunRequest,
    claim: Callable[[], Answer],
    *,
    on_claim: Callable[[Answer], None],
    on_stop: OnStop,
    brief: Callable[[Answer], str] | None = None,
) -> Ran:
    """Claim, run the command while that is held, and give back or finish what was claimed.

    ``on_claim`` is called with the claim, ``on_stop`` with why the command is stopped. Raises what
    a claim and ``LeasedCommand.run`` raise: then all is given back.
    """
    answer, started = claim(), False
    command = LeasedCommand(place, answer, request, record_of(place, answer))

    def on_start() -> None:
        nonlocal started
        started = True

    try:
        on_claim(answer)
        briefed = replace(request, brief=brief(answer) if brief else "")
        ended = replace(command, request=briefed).run(on_start=on_start, on_stop=on_stop)
    except GitleaseError as refusal:
        warnings = (*refusal.warnings, *command.give_back())
        raise refusal.with_(warnings=warnings) from None
    except BaseException:
        if not started:  # a fault of ours: what never ran needs no lease
            command.give_back()
        raise
    ended, finished, warnings = command.finish(ended)
    released = command.given_back(ended.lost)
    return Ran(answer=answer, ended=ended, finished=finished, released=released, warnings=warnings)


STARTED, REFUSED, UNFIT = b"+", b"-", b"!"

Print = Callable[[str], None]


def dispatch(
    place: RunPlace, answer: Answer, request: RunRequest, *, say: Print, on_stop: OnStop
) -> LeasedCommand:
    """Run a command in the background under what was claimed; returns once it runs.

    ``say`` prints a line to the log, and ``on_stop`` why the command is stopped. If it does not
    come to run, the lease is released again, and LeaseHeld, NotFound or Invalid say why.
    """
    runs, holds = runs_of(place), holds_of(answer)
    grace = grace_ms(request.grace, holds) if holds else 0
    record = record_of(place, answer, command=request.words, grace_ms=grace, pool=request.pool)
    record = replace(record, log=runs.log_of(record.id))
    command = LeasedCommand(place, answer, request, record)
    try:
        runs.begin(record)
        word = fork_into_background(
            record.log,
            lambda report: _in_background(command, report, say, on_stop),
            with_parent=bool(request.pool),
        )
    except OSError as error:
        _fail(command, cannot_write("it cannot be started", error))
    except GitleaseError as refusal:
        _fail(command, refusal)
    runs.tidy()
    latest = runs.latest_of(record)
    if word == STARTED:
        return replace(command, record=latest)
    # A record that names the runner itself is that of a dead run, whose leases others give back.
    if word or latest.runner == record.runner:
        runs.forget(record)
    if word.startswith((REFUSED, UNFIT)):
        kind = CannotExecute if word.startswith(UNFIT) else Invalid
        _fail(command, kind(word[1:].decode("utf-8", "replace")))
    raise Invalid(
        "the run was killed as it began: its lease ends by itself",
        resource=record.resources[0] if len(record.resources) == 1 else None,
    )


def _fail(command: LeasedCommand, why: GitleaseError) -> NoReturn:
    raise why.with_(warnings=(*why.warnings, *command.give_back()))


def _in_background(
    command: LeasedCommand, report: Callable[[bytes], None], say: Print, on_stop: OnStop
) -> int:
    """Hold the leases while the command runs, and release them: what the runner process does."""
    gc.enable()  # this may last for hours
    pid, started, runs = os.getpid(), False, runs_of(command.place)
    record = replace(command.record, runner=pid, runner_started=started_at(pid))
    command = replace(command, record=record)

    def on_start() -> None:
        nonlocal started
        started = True
        report(STARTED)

    try:
        ended = command.run(on_start=on_start, on_stop=on_stop)
    except Exception as refusal:
        if started:
            raise
        word = UNFIT if isinstance(refusal, CannotExecute) else REFUSED
        report(word + str(refusal).encode("utf-8", "replace")[:4_000])
        return 1
    record = replace(
        runs.latest_of(record),
        ended_at=command.place.ledger.clock.now().wall_ms,
        outcome=ended.outcome,
        exit=ended.status,
        message=ended.message,
    )
    runs.save(record)
    for signum in ENDING:  # too late to stop it: what is left to do is to release
        signal.signal(signum, signal.SIG_IGN)
    tail = runs.end_of(record)[0] if command.request.share_log else b""
    ended, finished, warnings = command.finish(ended, record.log, tail)
    kept, result = command.kept(), FAILED
    message = record.message if finished else "; ".join(filter(None, (record.message, *warnings)))
    if finished:
        result = DONE
    elif kept is not None:
        result, message = WAITING, message or kept
    elif ended.outcome in (LOST, STOPPED):
        result = ended.outcome
    elif ended.exit == 0 and not (command.request.done and warnings):
        result = GIVEN_BACK
    record = replace(record, outcome=ended.outcome, result=result, message=message or None)
    runs.save(replace(record, finished=finished))
    for text in warnings:
        say(f"warning: {text}")
    how = "could not be ended" if ended.status is None else f"ended with {ended.status}"
    say(f"the command {how}")
    return ended.exit
