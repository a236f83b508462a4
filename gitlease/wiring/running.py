"""The composition root of commands that run under leases."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from gitlease.core.errors import GitleaseError, Invalid, LeaseHeld, LeaseLost
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import rfc3339
from gitlease.core.lease import same_person
from gitlease.core.loss import Hold, Loss, Lost, early_ms
from gitlease.core.moves.operations import Grant, grant_of
from gitlease.core.resources.resource import Resource, word_anywhere
from gitlease.engine import end
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.engine.keeping import holds_of
from gitlease.engine.sessions import unbind
from gitlease.runs.child import check_executable
from gitlease.runs.guardian import GuardianFailed
from gitlease.runs.running import Ended, Run, early_by, grace_ms
from gitlease.runs.supervised import SupervisedProcess
from gitlease.wiring.alive import forget, remember, unbind_dead
from gitlease.wiring.holding import at_the_end, new_heartbeat
from gitlease.wiring.workspace import Workspace

HURRY = 5.0  # seconds for the release of a run that somebody stopped


class OutOfTime(SystemExit):
    """Out of ``HURRY``; nothing on the way may take it for a fault of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What is to be run under leases, and how.

    ``directory`` is where it runs; ``grace`` in seconds, None for the usual; ``note``, ``scope``
    and ``commit`` are those of the release at its end. ``layer``: one that a flag named.
    ``stops``: signals that end ask to stop it, and are not passed on.

    ``done``: its tasks are done where the command ends with 0. ``tells``: where it fails they are
    given back with a note of that, unless there is a ``note``. ``brief`` is what a command in the
    background is to know, ``brief_file`` what GITLEASE_BRIEF names once that is written.
    ``with_parent``: a command in the background is stopped when whoever started it is gone.
    """

    words: tuple[str, ...]
    directory: str
    scope: str
    grace: int | None = None
    note: str | None = None
    commit: bool | None = None
    layer: str | None = None
    stops: bool = False
    done: bool = False
    tells: bool = False
    brief: str = ""
    brief_file: str = ""
    with_parent: bool = False


def check_command(request: RunRequest) -> None:
    """See that the command could be executed, before anything is claimed for it.

    Raises NoCommand or CannotExecute.
    """
    check_executable(request.words[0], env=os.environ, cwd=request.directory)


def claim_to_run(
    workspace: Workspace,
    request: RunRequest,
    wanted: Sequence[Resource],
    options: ClaimOptions,
    *,
    wait: int | None = None,
    on_wait: Callable[[LeaseHeld], None] = lambda _held: None,
) -> Answer:
    """Claim these, or without any the first task of the queue; NoCommand or CannotExecute before.

    When that is interrupted, what may have been granted already is given back.
    """
    check_command(request)
    if not wanted:
        with ends_orderly():
            return workspace.queue.claim_next(options)[0]
    from gitlease.engine import claim

    said = unbind_dead(workspace)
    try:
        with ends_orderly():
            bound = replace(options, bind=True)
            answer = claim.claim(workspace.ledger, wanted, bound, wait=wait, on_wait=on_wait)
            return replace(answer, warnings=(*said, *answer.warnings))
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(GitleaseError):
            _take_back(workspace, wanted)
        raise


@contextlib.contextmanager
def ends_orderly() -> Iterator[None]:
    """Let the signals that end a process end it by SystemExit, with whatever is to be done then.

    In a thread other than the main one it changes nothing.
    """

    def leave(signum: int, _frame: object) -> None:
        raise SystemExit(128 + signum)

    before = {}
    handled = threading.current_thread() is threading.main_thread()
    for signum in (signal.SIGTERM, signal.SIGHUP) if handled else ():
        if signal.getsignal(signum) is signal.SIG_DFL:
            before[signum] = signal.signal(signum, leave)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after so many seconds; 0: never."""

    def leave(signum: int, _frame: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, leave) if seconds else None
    try:
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def run_under_leases(
    workspace: Workspace,
    answer: Answer,
    request: RunRequest,
    *,
    on_start: Callable[[SupervisedProcess], None] = lambda _process: None,
    on_stop: Callable[[Lost | str | None], None] = lambda _why: None,
) -> Ended:
    """Run the command while what was claimed is held; it is not released here.

    Raises NoCommand, CannotExecute, Invalid without a guardian, and LeaseLost where there is no
    time left: then the command never ran.
    """
    holds, clock = holds_of(answer), workspace.ledger.clock
    if not holds or len(holds) != len(answer.leases):
        raise LeaseLost(
            "what was claimed is not held: the command was not started",
            loss=Loss.RELEASED_ELSEWHERE,
        )
    grace = grace_ms(request.grace, holds)
    pulse = new_heartbeat(workspace, early=early_by(grace))
    env = {**os.environ, **exported(workspace, answer, holds, request)}
    process = SupervisedProcess(grace=grace, stops=request.stops)
    try:
        with process:
            now = clock.now()
            left = min(hold.left_ms(now) - early_ms(hold) for hold in holds)
            if left <= 0:
                raise LeaseLost(
                    "its time was over before the command could be started", loss=Loss.EXPIRED
                )
            process.start(request.words, env, request.directory, until_ms=now.boot_ms + left)
            remember(workspace, answer, pid=process.pid)
            on_start(process)
            run = Run(process, pulse, holds, clock=clock, grace=grace, on_stop=on_stop)
            return run.attend()
    except GuardianFailed as failed:
        raise Invalid(f"the guardian of the command cannot be started: {failed}") from None
    finally:
        process.close()


def exported(
    workspace: Workspace, answer: Answer, holds: Sequence[Hold], request: RunRequest
) -> Mapping[str, str]:
    """What the command is told of the leases that it runs under, by its environment.

    A resource is what to type for it in any folder of this work tree. Several resources and tokens
    are separated by spaces, in one order, and such resources quoted as a shell would read them.
    """
    root = workspace.repository.toplevel
    names = [word_anywhere(view.resource, root=root) for view in answer.leases]
    actor = workspace.identity.actor
    ends = min(hold.since.wall_ms + hold.duration_ms for hold in holds)
    told = {
        "GITLEASE_RESOURCE": names[0] if len(names) == 1 else shlex.join(names),
        "GITLEASE_TOKEN": " ".join(str(view.token) for view in answer.leases),
        "GITLEASE_HOLDER": actor.holder,
        "GITLEASE_SESSION": actor.session or "",
        "GITLEASE_EXPIRES_AT": rfc3339(ends),
    }
    told |= {"GITLEASE_BRIEF": request.brief_file} if request.brief_file else {}
    # A remote that a flag named has a state of its own, which no variable leads to.
    return told | ({"GITLEASE_LAYER": request.layer} if request.layer else {})


def give_back(
    workspace: Workspace,
    answer: Answer,
    request: RunRequest,
    lost: Sequence[Lost] = (),
    *,
    hurried: bool = False,
) -> tuple[str, ...]:
    """Release what this run was granted and has not lost; what is to be said of it. Never fails.

    What it bound is unbound instead, and what its session held before is not its own to release.
    ``hurried``: somebody who stopped the run waits for its end, so the remote gets only ``HURRY``
    seconds to answer.
    """
    gone = {one.hold.grant.lease_id for one in lost}
    left = [hold.grant for hold in holds_of(answer) if hold.grant.lease_id not in gone]
    joined = {view.lease_id for view in answer.leases if view.renewals}
    ours = [x for x in left if x.lease_id not in joined]
    bound = [x for x in left if x.lease_id in answer.bound]
    if not ours and not bound:
        forget(workspace, answer)
        return ()
    try:
        with ends_orderly(), _at_most(HURRY if hurried else 0):
            said = (*_unbound(workspace, bound), *_released(workspace, ours, request))
            forget(workspace, answer)
            return said
    except OutOfTime:
        why = f"the remote did not answer within {HURRY:g} seconds"
    except (KeyboardInterrupt, SystemExit):
        why = "interrupted"
    except GitleaseError as refusal:
        why = refusal.message
    except Exception as fault:  # the command has succeeded, and that is what counts
        why = f"a fault of gitlease: {type(fault).__name__}: {fault}"
    return (f"not released, and ends by itself: {why}",)


def _unbound(workspace: Workspace, bound: Sequence[Grant]) -> tuple[str, ...]:
    if not bound:
        return ()
    ledger = at_the_end(workspace, {grant.lease_id for grant in bound})
    return tuple(x for x in unbind(ledger, bound).warnings if x not in ledger.store.warnings)


def _released(workspace: Workspace, ours: Sequence[Grant], request: RunRequest) -> tuple[str, ...]:
    if not ours:
        return ()
    wanted = [grant.resource for grant in ours]
    ledger = at_the_end(workspace, {grant.lease_id for grant in ours})
    answer = end.release(
        ledger, wanted, scope=request.scope, note=request.note, commit=request.commit
    )
    return tuple(x for x in answer.warnings if x not in ledger.store.warnings)


def _take_back(workspace: Workspace, wanted: Sequence[Resource]) -> None:
    """Release what an interrupted claim was granted, or may be."""
    ledger, actor = at_the_end(workspace, ()), workspace.identity.actor
    pending = list(ledger.store.pending(ledger.layer))
    look = ledger.look() if pending else ledger.known_look()
    leases = () if look is None else look.leases
    own = [x for x in leases if x.resource in wanted and same_person(x.holder, actor.holder)]
    own = [x for x in own if x.session is not None and x.session == actor.session]
    kept = {x.resource for x in own if x.renewals}
    fresh = [x for x in wanted if x not in kept]
    if fresh and (pending or any(not x.renewals for x in own)):
        end.release(ledger, fresh)
    if kept and not actor.session_explicit:  # another's session may have held it before
        unbind(ledger, [grant_of(x) for x in own if x.renewals])
