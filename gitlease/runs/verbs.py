"""The verbs that run commands under leases: ``run``, ``dispatch`` and ``work``.

And the page that describes its task to a command.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NoReturn

from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.keeping import holds_of
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import GitleaseError, Hint, Invalid, LeaseHeld, UsageError, clean
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import Resource, parse_resource, word_anywhere
from gitlease.runs.leased_command import RunRequest, claim_to_run, dispatch, run_claimed
from gitlease.runs.pool import PoolEvent, PoolLimits, PoolRequest, work
from gitlease.runs.records import DONE, FAILED, GIVEN_BACK, LOST, STOPPED, WAITING, runs_of
from gitlease.runs.supervisor import SHARE, grace_ms
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.claiming import check_one, claim_options, claimed_lines
from gitlease.verbs.table import (
    AT_A_CLONE,
    COMMAND,
    DURATION,
    LEASE_EXITS,
    LIBRARY,
    NUMBER,
    RESOURCES,
    SWITCH,
    TEXT,
    DoorOfClone,
    Kind,
    Parameter,
    Result,
    find_verb,
    number_up_to,
    path_text,
    verb,
)


def _command_line(_door: Any, data: Any, name: str) -> tuple[str, ...]:
    # A string is a sequence as well: of letters.
    words = tuple(data) if isinstance(data, Sequence) and not isinstance(data, str) else ()
    if not words or not all(isinstance(x, str) for x in words):
        way = 'for a line of a shell: ["sh", "-c", "make && make test"]'
        raise UsageError(f'the {name} must be a list of words: ["make", "test"]', hints=(way,))
    return words


def _listener(_door: Any, data: Any, name: str) -> Any:
    if not callable(data):
        raise UsageError(f"{name} must be a function")
    return data


MOST_JOBS, MOST_SHARED = 64, 100  # at once; lines of a log in a note
_OF_PROGRAM = frozenset({LIBRARY})
_SWITCH = Parameter(kind=SWITCH)
_COUNT = Parameter(kind=NUMBER)
CommandLine = Annotated[
    tuple[str, ...],
    Parameter(
        kind=Kind(
            read=_command_line,
            schema=RESOURCES.schema,
            python="Sequence[str]",
            metavar="CMD",
            many=True,
            no_single=True,
        )
    ),
]
FirstTask = Annotated[bool, _SWITCH.but("Take the first task of the queue.")]
DoneAfter = Annotated[bool, _SWITCH.but("Mark each task as done if COMMAND exits with 0.")]
NoteAtEnd = Annotated[
    str | None, Parameter(kind=takes.NOTE, about="Leave a note for the next holder at the end.")
]
Grace = Annotated[
    int | None,
    Parameter(
        kind=DURATION, about="Time from TERM to KILL (default: 10s; at most a sixth of the TTL)."
    ),
]
Folder = Annotated[
    str | None,
    Parameter(
        kind=Kind(
            read=lambda _, data, __: path_text(data, "a folder"),
            schema=TEXT.schema,
            python="StrPath",
        ),
        about="Its folder (default: the current one).",
        doors=_OF_PROGRAM,
    ),
]
Jobs = Annotated[
    int,
    Parameter(
        kind=replace(NUMBER, read=number_up_to(MOST_JOBS)),
        about=f"Number of tasks at once (1 to {MOST_JOBS}; default: 1).",
        option="-j --jobs",
    ),
]
WorkTrees = Annotated[bool, _SWITCH.but("Give each task its own linked work tree and branch.")]
PoolBase = Annotated[
    str | None,
    Parameter(
        kind=TEXT,
        about="With --worktrees: where branches start (default: the remote's main branch).",
        metavar="REF",
    ),
]
UntilEmpty = Annotated[
    bool, _SWITCH.but("Stop when no task is left to claim (default).", doors=frozenset({COMMAND}))
]
Forever = Annotated[bool, _SWITCH.but("Wait for more when no task is left to claim.")]
DoneOnSuccess = Annotated[bool, _SWITCH.but("Mark a task as done if its command exits with 0.")]
LandWork = Annotated[
    bool, _SWITCH.but("Land the work of a command that exits with 0 (implies --worktrees).")
]
HandOn = Annotated[
    tuple[str, ...] | None,
    Parameter(
        kind=takes.COMMAND_WORDS,
        about="Instead hand its branch to CMD, for example 'gh pr create --fill'; "
        "no shell reads it.",
    ),
]
MaxFailures = Annotated[int | None, _COUNT.but("Take no new tasks once N have failed.")]
Budget = Annotated[int | None, _COUNT.but("Take no new tasks once N were taken.")]
LongestRun = Annotated[
    int | None, Parameter(kind=DURATION, about="Stop a command that takes longer, as a failure.")
]
ShareLog = Annotated[
    int,
    Parameter(
        kind=replace(NUMBER, read=number_up_to(MOST_SHARED)),
        about="Add the last N lines (1 to 100) of a failed command's log to its note.",
    ),
]
OnEvent = Annotated[
    Any,
    Parameter(
        kind=Kind(read=_listener, schema={}, python="Callable[[WorkEvent], object]"),
        about="Called with each event, in this thread.",
        doors=_OF_PROGRAM,
    ),
]


UNSTARTED = ((126, "the command cannot be executed"), (127, "the command was not found"))
LENGTHS = (
    "a few minutes: the lease is renewed while the command runs, and if this machine dies or loses",
    "the remote, others wait no longer than the TTL",
)


@verb(
    "run",
    """Run COMMAND while you hold each RESOURCE. Claims all of them or none (with --one: the first
that is free), renews them in the background, and releases them when the command ends. Exits with
the command's own status, or with 128 + n if signal n ended it.

Each run has its own session unless you name one, so two runs of one person exclude each other,
wherever they start. A lease that you hold without a session belongs to the run for its duration,
and is yours again at the end. A lease that the run's session held before is renewed, and not
released at the end. What the command itself claims in the run's own session ends with the run, in
every layer.

COMMAND is not a shell line; for one, use `sh -c`. It inherits your standard streams and terminal.
On a terminal it shares the process group of gitlease, so that Ctrl-C and Ctrl-Z reach both;
elsewhere it has a group of its own. Signals are forwarded to it, and it decides whether it ends.
When a lease is lost, it gets TERM with all that it started, and KILL after the grace period; nested
runs and dispatches go on, under their own leases. A guardian process does the same if gitlease
itself is killed, stopped or hangs. On Linux this reaches processes in sessions of their own
(setsid) as well; elsewhere only the process group of COMMAND. It never reaches what another service
starts for it (a container, systemd-run) or what runs as another user (sudo). If the guardian is
killed, COMMAND ends as well, and its lease is left to lapse.
While gitlease and the guardian are both stopped (SIGSTOP), nothing ends it. Background processes
that a finished command leaves behind keep running, and are named.

A lease that cannot be renewed in time is given up so early that the command has ended before anyone
else can claim it. A revocation, or a release from elsewhere, is noticed with the next renewal,
after about a third of the TTL, or within seconds of this clone seeing it, as with a release in this
clone. Until then the command keeps running while someone else may hold the lease. But `gitlease
fence` refuses its token at once, and `gitlease push` refuses work covered by the lease's paths or
task file; for any other lease, use `gitlease push --require R`.

The environment of COMMAND has GITLEASE_RESOURCE and GITLEASE_TOKEN (several are separated by
spaces), GITLEASE_HOLDER, GITLEASE_SESSION and GITLEASE_EXPIRES_AT (as of the start). With --next or
--done it also has GITLEASE_BRIEF, a file that describes the task. gitlease commands in it act as
this run; repeat --remote or --local there. The run itself keeps the settings and the user.email it
started with, whatever COMMAND checks out or sets; gitlease commands in it read the current ones.

run writes to standard error only; with --json it writes one JSON document there, as the last
line.""",
    advice=LENGTHS,
    examples=(
        "gitlease run F001 -- make test",
        "gitlease run deploy-prod --any --wait 15m -- ./deploy.sh",
        "gitlease run port-1 port-2 --any --one -- sh -c './serve $GITLEASE_RESOURCE'",
        "gitlease run src/auth/ --ttl 2m -- sh -c 'sed -i s/a/b/ src/auth/* && make'",
        "gitlease run F001 --grace 30s --ttl 5m --note 'see the log' -- ./migrate",
        "gitlease run --next --done -- sh -c 'make check-$GITLEASE_RESOURCE'",
    ),
    exits=(),
    own_exits=(
        (75, "the lease was not acquired: held, refused by policy, or the wait ran out"),
        (125, "gitlease failed, or the lease was lost and the command was stopped"),
        *UNSTARTED,
    ),
    done="the command ended with 0; any other status is passed on",
    runs=True,
    shares={"claim": ("resources", "dry_run", "verbose")},
    doors=AT_A_CLONE,
)
def run_verb(
    door: DoorOfClone,
    command: CommandLine,
    resources: takes.Wanted = (),
    *,
    next: FirstTask = False,
    done: DoneAfter = False,
    note: NoteAtEnd = None,
    grace: Grace = None,
    cwd: Folder = None,
    **terms: Any,
) -> Result:
    given: dict[str, Any] = {"next": next, "done": done, "note": note, "grace": grace, "cwd": cwd}
    request, claim = _to_run(door, command, resources, **given, **terms)
    said = list[str]()

    def on_claim(answer: Answer) -> None:
        said.extend([*answer.warnings, *map(sentences.displaced, answer.displaced)])
        door.say([sentences.noted(left) for left in answer.notes], said)

    ran = run_claimed(
        door.workspace,
        request,
        claim,
        on_claim=on_claim,
        on_stop=lambda why: door.say([sentences.stopping(why)]),
        brief=partial(_brief_of, door, done=done) if next or done else None,
    )
    ended = ran.ended
    given_back = ", ".join(ran.released)
    lines: list[str] = []
    if done and ran.finished:
        lines = [f"{view.resource} is done" for view in ran.answer.leases[: ran.finished]]
    elif given_back and ended.exit:
        lines = [f"given back, since the command ended with {ended.exit}: {given_back}"]
    failure: GitleaseError | None = ended.lost[0].error if ended.lost else None
    # They differ only where gitlease itself ended the command.
    if failure is None and ended.exit != ended.status:
        failure = Invalid(f"the command was stopped: {ended.failure}")
        lines += [failure.message] if ended.failure is not None else []
    door.say(lines, ran.warnings)
    return Result(
        body=wire.ran(ran.answer, ended),
        leases=ran.answer.leases,
        value=ran,
        failure=failure,
        warnings=(*said, *ran.warnings),
    )


def _to_run(
    door: DoorOfClone,
    command: Sequence[str],
    resources: Sequence[Resource] = (),
    *,
    next: bool = False,
    done: bool = False,
    note: str | None = None,
    grace: int | None = None,
    cwd: str | None = None,
    **terms: Any,
) -> tuple[RunRequest, Callable[[], Answer]]:
    """Return what is to run, and the claim for it.

    That raises UsageError for terms that do not fit, NoCommand and CannotExecute.
    """
    option = door.option
    known = {*find_verb("next").parameters}
    wait = terms.pop("wait", None)
    any_name = terms.get("any", False)
    options = claim_options(**terms)
    check_one(options, option)
    request = RunRequest(
        words=tuple(command),
        directory=os.path.abspath(cwd or door.directory or "."),
        options=options,
        grace=grace,
        note=note,
        layer=door.layer,
        done=done,
    )

    def claim() -> Answer:
        ledger = door.ledger
        if next and (resources or wait is not None or terms.keys() - known):
            claims = ", ".join(option(x) for x in find_verb("claim").parameters if x in known)
            takes = f"{option('next')} takes the first task: it accepts no resource"
            raise UsageError(f"{takes}, and of the options of a claim only {claims}")
        if not next and not resources:
            raise UsageError(f"missing resource: name one, or use {option('next')}")
        # Before anything is claimed: in the end it would be too late to refuse.
        for resource in resources if done else ():
            granted = any_name or ledger.decisions.own_records(resource)
            (plan,) = ledger.edges.plan_end([resource])
            if resource.is_path or (granted and acts.is_no_task(ledger, plan)):
                raise UsageError(
                    f"{resource} is not a task, and only tasks are done: "
                    f"leave out {option('done')}",
                    resource=resource.text,
                )
        warnings = door.check_claim(resources, terms.get("paths", ()), any_name=any_name)
        answer = claim_to_run(door.workspace, request, resources, wait=wait, on_wait=door.on_wait)
        warnings = (*warnings, *answer.warnings, *_remarks(answer, request))
        return replace(answer, warnings=warnings)

    return request, claim


def _remarks(answer: Answer, request: RunRequest) -> list[str]:
    """Return warnings about the grace period and about leases that were held before."""

    def end(view: LeaseView) -> str:
        # What a person held without a session is bound to the run for its time only.
        bound = view.lease_id in answer.bound
        if request.done:
            return f"done if the command succeeds, else {'yours again' if bound else 'kept'}"
        return "yours again" if bound else "not released"

    warnings = list[str]()
    holds = holds_of(answer)
    grace = grace_ms(request.grace, holds) / 1_000 if holds else 0
    if request.grace is not None and grace < request.grace:
        warnings.append(f"the grace is {grace:g}s: at most 1/{SHARE} of the lease's time")
    return warnings + [
        f"{sentences.named(view)} was already yours: at the end of the run it is {end(view)}"
        for view in answer.leases
        if view.renewals
    ]


@verb(
    "dispatch",
    """Run COMMAND in the background while you hold each RESOURCE. The same as `run --detach`.

The leases are claimed first. Then dispatch returns at once, and prints the session, the process and
the log file. A resource that someone else holds is refused, so nothing is started twice.

The command has its own session unless you name one, no standard input and no terminal. TERM to its
runner stops it in order: TERM to the command, KILL after the grace period, then the release. --next
takes the first task of the queue instead of a RESOURCE. The command finds its task in
GITLEASE_RESOURCE, and in GITLEASE_BRIEF the name of a file with the task, its paths, notes and
instructions.

--list shows the runs of this clone. --logs R prints the log of the newest run of R. --stop R stops
the run of R and waits until it has ended. The last 50 ended runs are kept, with up to 16 MiB of
logs.""",
    advice=LENGTHS,
    examples=(
        "gitlease dispatch F001 -- ./agent.sh",
        "gitlease dispatch --next --ttl 30m -- ./agent.sh",
        "gitlease dispatch --list",
        "gitlease dispatch --logs F001 --follow",
        "gitlease dispatch --stop F001",
    ),
    exits=LEASE_EXITS,
    own_exits=UNSTARTED,
    no=("held", "wait_timeout", "nothing_left"),
    done="the command runs; for --stop: it has ended",
    runs=True,
    shares={"run": ("cwd",)},
    doors=frozenset({COMMAND}),  # which has the logs, and stops it
)
def dispatch_verb(door: DoorOfClone, **given: Any) -> Result:
    request, claim = _to_run(door, **given)
    runs = runs_of(door.workspace)
    try:
        # Before anything is started: what somebody else holds is never run twice.
        answer = claim()
        brief = _brief_of(door, answer, done=request.done)
        record = dispatch(
            door.workspace,
            answer,
            replace(request, stops=True, brief=brief),
            say=log_line,
            on_stop=lambda why: log_line(sentences.stopping(why)),
        ).record
    except LeaseHeld as held:
        sessions = [view.session for view in held.views]
        other = runs.in_the_way(sessions, held.resource, door.ledger.layer)
        logs = [Hint("dispatch", {"logs": other.resources[0]})] if other else []
        # The holder may be a run of this clone, and its log says how far it is.
        raise held.with_(hints=(*held.hints, *logs)) from None
    name = record.resources[0]
    return Result(
        body=wire.claimed(answer)
        | {"status": "dispatched", "run": wire.background(record, "running")},
        lines=lambda: [
            *claimed_lines(door, answer),
            f"dispatched as process {record.runner}, session {record.session}",
            f"log: {record.log}",
        ],
        leases=answer.leases,
        warnings=answer.warnings,
        then=[
            Hint("dispatch", {"logs": name}, "show its output"),
            Hint("dispatch", {"stop": name}, "stop it"),
        ],
    )


def log_line(text: str) -> None:
    """Add a line to the log of a background run, from within its process."""
    # At once: `dispatch --logs --follow` reads the log while it is written.
    print(f"gitlease: {clean(text)}", file=sys.stderr, flush=True)


# --- the page for a command -----------------------------------------------------------------------


def _brief_of(door: DoorOfClone, answer: Answer, *, done: bool) -> str:
    """Return the page about the first task of a claim."""
    entry = door.queue.find(parse_resource(word_anywhere(answer.leases[0].resource))).entry
    return brief(answer, entry.task if entry else None, door.prog, done=done)


def brief(
    answer: Answer,
    task: Task | None,
    prog: str,
    *,
    done: bool,
    commit: bool = False,
    lands: bool = False,
) -> str:
    """Return the page. ``prog`` is the command name of gitlease.

    ``done``: exit status 0 finishes the task. ``commit``: finishing commits the task file.
    ``lands``: what is committed lands then.
    """
    names = ", ".join(view.resource for view in answer.leases)
    parts = [f"# {names}: {task.title}" if task is not None and task.title else f"# {names}"]
    if task is not None:
        facts = [f"Task file: {task.file}", f"Status: {task.status}" if task.status else ""]
        parts.append("\n".join(fact for fact in facts if fact))
    paths = list(dict.fromkeys(path for view in answer.leases for path in view.paths))
    if paths:
        parts.append(_section("Paths that you may change", [f"`{path}`" for path in paths]))
    if answer.notes:
        parts.append(_section("Notes", [sentences.noted(note) for note in answer.notes]))
    parts.append(_section("What to do", _steps(answer, prog, done, commit, lands)))
    # Others wrote the notes and the title.
    return clean("\n\n".join(parts)) + "\n"


def _steps(answer: Answer, prog: str, done: bool, commit: bool, lands: bool) -> list[str]:
    word = word_anywhere(answer.leases[0].resource)
    finish = f"run `{prog} done {word}{' --commit' * commit}` as your last step"
    if done:
        finish = "exit with status 0, which marks the task as done"
    finish = f"When the work is finished and pushed, {finish}."
    if lands:
        finish = (
            "When the work is finished and committed, exit with status 0: it is landed for you."
        )
    return [
        "You hold the lease, and it is renewed while you run. Others cannot take this task.",
        finish,
        f"If you cannot finish, run `{prog} note {word} 'what is left'`, and exit with another "
        "status; the task is given back.",
        f"If you need a person, run `{prog} release {word} --keep --note 'what for'`, and exit.",
        "If you get a TERM signal, stop: the lease is lost, or someone stops the run.",
    ]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"## {title}", "", *(f"- {line}" for line in lines)))


# --- a pool ---------------------------------------------------------------------------------------

WorkEventKind = Literal["started", "ended", "left_alone", "idle", "enough", "trouble", "warning"]
WorkOutcome = Literal["done", "given_back", "failed", "lost", "stopped", "waiting"]
OUTCOMES = (DONE, GIVEN_BACK, FAILED, LOST, STOPPED, WAITING)


@verb(
    "work",
    """Work through the queue: take the next task, run COMMAND under its own lease, and repeat
until the queue is empty, with -j tasks at once.

Each COMMAND runs as with `dispatch`, with its own session and log, and appears in `gitlease
dispatch --list`. It finds its task in GITLEASE_RESOURCE, and in GITLEASE_BRIEF the name of a file
with the task, its paths, notes and instructions.

A command finishes its task with `gitlease done`, as its last step. With --done-on-success, exiting
with 0 is enough. With --land, that lands its commits and the finished task as `gitlease land` does.
--pr makes its branch ready to land, pushes it as work/TASK and runs CMD in the work tree, with
GITLEASE_BRANCH and GITLEASE_BASE; the task then waits for a person, as yours. Otherwise the task
and its status are given back.

If the command failed, a note records its exit status, this host and the file of its log;
--share-log adds the log's last lines, which everybody can read then. Pools leave the task alone for
10 minutes, then 20, and after three failures until a person leaves a note. A command that needs a
person runs `gitlease release TASK --keep --note TEXT` and ends: its task is waiting, and has not
failed.
The pool also skips a task after a success that did not finish it, and after `gitlease dispatch
--stop TASK`. If this machine dies, its tasks go back to the queue when their leases lapse.

--worktrees gives each task a linked work tree beside this one, in FOLDER.worktrees, on a branch
work/TASK that starts at --base. Before each task the base is fetched, and the tasks are read there.
The pool commits its edits of the task file there. A command that finishes its task itself should
use `gitlease done TASK --commit`. A clean work tree is removed afterwards. Any other is kept, and
reused when the task is taken again. Branches are kept, except those of tasks that were finished
elsewhere and have nothing of their own. A work tree in which a task cannot be claimed, during a
rebase for example, is named and passed over.

At its end the pool counts the tasks that are left to others, and those that are stranded: nobody
works on them, and it could not take them. --status shows from another terminal how far the pools of
this clone are, or the last one was, with the last line of each log.

Ctrl-C once: no new tasks, and running commands finish. Twice, or TERM: running commands are stopped
and their tasks given back. If this process is killed, its commands are stopped on Linux; elsewhere
they finish. With --json each event is one line.""",
    advice=LENGTHS,
    examples=(
        "gitlease work -- ./agent.sh",
        "gitlease work -j 4 --worktrees -- ./agent.sh",
        "gitlease work -j 4 --land --check 'make test' -- ./agent.sh",
        "gitlease work --pr 'gh pr create --fill' -- ./agent.sh",
        "gitlease work -j 2 --forever --ttl 30m -- ./agent.sh",
        "gitlease work --limit 1h --max-failures 5 --budget 50 -- ./agent.sh",
        "gitlease work --status",
        "gitlease work --done-on-success -- sh -c 'make check-$GITLEASE_RESOURCE'",
    ),
    exits=(2, 4, 5, 7, 128),
    own_exits=(
        (1, "a command failed, lost its lease, or a task is stranded"),
        (130, "interrupted twice (143: by TERM, 129: by HUP)"),
    ),
    done="the queue is empty, or no new tasks were wanted; nothing failed or is stranded",
    session=False,
    runs=True,
    shares={"land": ("resource", "base"), "next": ("claim", "ref", "cached")},
    doors=AT_A_CLONE,
)
def work_verb(
    door: DoorOfClone,
    command: CommandLine,
    *,
    jobs: Jobs = 1,
    worktrees: WorkTrees = False,
    base: PoolBase = None,
    until_empty: UntilEmpty = False,
    forever: Forever = False,
    done_on_success: DoneOnSuccess = False,
    land: LandWork = False,
    pr: HandOn = None,
    max_failures: MaxFailures = None,
    budget: Budget = None,
    limit: LongestRun = None,
    share_log: ShareLog = 0,
    grace: Grace = None,
    cwd: Folder = None,
    on_event: OnEvent = None,
    **terms: Any,
) -> Result:
    queued = find_verb("next").parameters
    claiming = {x: terms.pop(x) for x in [*terms] if x in queued}  # the rest is for landing
    lands = land or pr is not None
    ends = {"land": land, "pr": pr is not None, "done_on_success": done_on_success}
    _check_at_most_one(door, ends)
    _check_at_most_one(door, {"until_empty": until_empty, "forever": forever})
    if terms and not lands:
        _refuse_without(door, next(iter(terms)), "land", "pr")
    if base is not None and not (worktrees or lands):
        _refuse_without(door, "base", "worktrees")
    directory = os.path.abspath(cwd or door.directory or ".")
    finisher = None
    if lands:
        from gitlease.landing.opening import pool_finisher

        base, finisher = pool_finisher(
            door.workspace, directory, pr or (), log_line, base=base, **terms
        )
    done, worktrees = done_on_success or lands, worktrees or lands
    request = PoolRequest(
        run=RunRequest(
            words=tuple(command),
            directory=directory,
            options=claim_options(**claiming),
            grace=grace,
            layer=door.layer,
            done=done,
            finisher=finisher,
            share_log=share_log,
            limit=limit,
        ),
        # An edit that is not committed would keep the pool's work tree from being removed.
        brief=partial(brief, prog=door.prog, done=done, commit=worktrees, lands=lands),
        open_at=door.open_at,
        worktrees=worktrees,
        base=base,
    )
    limits = PoolLimits(jobs=jobs, max_failures=max_failures, budget=budget, forever=forever)
    return _worked(door, request, limits, on_event)


def _check_at_most_one(door: DoorOfClone, given: Mapping[str, bool]) -> None:
    """Raise UsageError where two parameters are given that exclude each other."""
    names = [door.option(name) for name, value in given.items() if value]
    if len(names) > 1:
        raise UsageError(f"{names[0]} cannot be combined with {names[1]}")


def _refuse_without(door: DoorOfClone, name: str, *needed: str) -> NoReturn:
    options = " or ".join(map(door.option, needed))
    raise UsageError(f"{door.option(name)} needs {options}")


def _worked(
    door: DoorOfClone, request: PoolRequest, limits: PoolLimits, on_event: OnEvent
) -> Result:
    """Work until the queue is empty or something stops it, and tell of each event."""
    ended = list[WorkEvent]()

    def tell(event: PoolEvent) -> None:
        reported = event_of(event)
        ended.extend([reported] if reported.event == "ended" else [])
        door.on_job(event)
        if on_event is not None:
            on_event(reported)

    door.say((), door.ledger.store.warnings)
    ran = work(
        door.workspace,
        request,
        limits,
        say=log_line,
        on_stop=lambda why: log_line(sentences.stopping(why)),
        tell=tell,
        warn=lambda text: tell(PoolEvent("warning", message=text)),
        pause=door.pause,
    )
    return Result(body={}, value=(ran, tuple(ended)))


@dataclass(frozen=True, kw_only=True)
class WorkEvent:
    """An event of a pool.

    ``event`` is ``started``, ``ended``, ``left_alone`` (it failed too often), ``idle`` (nothing is
    left to claim), ``enough`` (no new tasks are taken), ``trouble`` (the remote cannot be reached)
    or ``warning``. ``resource`` is the task, ``session`` the run's and ``log`` the file with its
    output. For an ended run, ``outcome`` is ``done``, ``given_back`` (exit status 0, but not
    finished), ``failed``, ``lost``, ``stopped`` or ``waiting`` (the command kept it), ``exit``
    the command's status and ``seconds`` its duration.
    """

    event: WorkEventKind
    resource: str | None = None
    session: str | None = None
    log: str | None = None
    outcome: WorkOutcome | None = None
    exit: int | None = None
    seconds: int | None = None
    failures: int = 0
    message: str | None = None


def event_of(event: PoolEvent) -> WorkEvent:
    """Return an event of a pool as programs get it."""
    return WorkEvent(**{x: y for x, y in document(event).items() if x != "schema"})


def document(event: PoolEvent) -> dict[str, Any]:
    """Return the JSON line; ``event`` is started, ended, left_alone, idle, enough,
    trouble or warning."""
    body: dict[str, Any] = {"schema": wire.SCHEMA, "event": event.kind}
    if event.job is not None:
        record = event.job.record
        body |= {"resource": event.job.name, "session": record.session, "log": record.log}
    if event.end is not None:
        body |= {"outcome": event.end.outcome, "exit": event.end.exit}
        body |= {"seconds": age(event)}
    if event.failures:
        body |= {"failures": event.failures}
    message = event.message or (event.end.message if event.end is not None else None)
    return body | {"message": message}


def age(event: PoolEvent) -> int:
    # A duration, whatever becomes of the wall clock meanwhile.
    return 0 if event.job is None else int(time.monotonic() - event.job.began)
