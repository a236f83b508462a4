"""``run`` and ``dispatch``: run a command while leases are held, here or in the background."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gitlease.core.errors import (
    Hint,
    LeaseHeld,
    UsageError,
)
from gitlease.core.frozen import replace
from gitlease.core.instant import moment_of
from gitlease.core.view import LeaseView
from gitlease.engine.answers import Answer
from gitlease.engine.keeping import holds_of
from gitlease.faces.cli import output
from gitlease.faces.cli.call import Call
from gitlease.faces.cli.verb import (
    Decorated,
    flag,
    option,
    optional_resources_argument,
    read_by,
    taking,
    values_of,
    verb,
)
from gitlease.runs.heartbeat import in_a_run
from gitlease.runs.leased_command import RunRequest, dispatch, run_claimed
from gitlease.runs.records import RunRecord, runs_of
from gitlease.runs.supervisor import SHARE, grace_ms
from gitlease.verbs import run_text, sentences, wire
from gitlease.verbs.claiming import claim_options, claimed_lines
from gitlease.verbs.parameters import DURATION, NOTE
from gitlease.verbs.table import LEASE_EXITS, Called, Result, Table

LENGTHS = (
    "a few minutes: the lease is renewed while the command runs, and if this machine dies or loses",
    "the remote, others wait no longer than the TTL",
)
note_option = option(
    "--note",
    metavar="TEXT",
    type=read_by(NOTE, "note"),
    help="Leave a note for the next holder at the end.",
)
grace_option = option(
    "--grace",
    metavar="D",
    type=read_by(DURATION, "grace"),
    help="Time from TERM to KILL (default: 10s; at most a sixth of the TTL).",
)
RUN_OPTIONS = (
    optional_resources_argument,
    flag("--next", help="Take the first task of the queue."),
    flag("--done", help="Mark each task as done if COMMAND exits with 0."),
    taking("claim", but=("resources", "new", "dry_run", "verbose")),
    note_option,
    grace_option,
)


def log_line(text: str) -> None:
    """Add a line to the log of a background run, from within its process."""
    output.aside(f"gitlease: {text}")
    sys.stderr.flush()


def run_options(verb: Decorated) -> Decorated:
    """Decorate a verb with the options of leases that a command runs under."""
    for decorate in reversed(RUN_OPTIONS):
        verb = decorate(verb)
    return verb


class RunCall:
    """The claim and the command of a ``run`` or ``dispatch``. UsageError without a command.

    ``resumed``: it goes on with what was parked.
    """

    resumed = False

    def __init__(
        self, call: Call, verb: str, command: Sequence[str], options: dict[str, Any]
    ) -> None:
        if not command:
            example = call.typed(verb, *(options["words"] or ["F8"]))
            raise UsageError(f"missing command: {example} -- make test")
        self._words: Sequence[str] = options["words"]
        self._from_queue: bool = options["next"]
        self.grace: int | None = options["grace"]
        self.done: bool = options["done"]
        self.for_task = self._from_queue or self.done
        self._call, self._verb, self._values = call, verb, values_of("claim", call, options)
        terms = {name: value for name, value in self._values.items() if name != "wait"}
        self.request: RunRequest = RunRequest(
            words=tuple(command),
            directory=os.path.abspath(call.directory or "."),
            options=claim_options(**terms),
            grace=self.grace,
            note=options["note"],
            layer=call.layer,
            stops=verb != "run",
            done=self.done,
        )

    def claim(self) -> Answer:
        """Claim the resources, or the first task. NoCommand or CannotExecute before that."""
        call, values = self._call, self._values
        own = call.workspace.ledger.own_live()
        self._parked = {x.resource.text for x in own if x.parked}
        resources = call.resources(self._words, claiming=True) if self._words else []
        if resources:
            given, more = {"resources": resources} | values, {"command": self.request.words}
            call.called = Called(verb="claim", values=given, command=self._verb, more=more)
        return run_text.claim_for_run(
            call,
            self.request,
            resources,
            values,
            next=self._from_queue,
        )

    def brief(self, answer: Answer) -> str:
        """Return the page that describes the task to the command."""
        return run_text.brief_of(self._call, answer, prog=self._call.prog, done=self.done)

    def remarks(self, answer: Answer) -> list[str]:
        """Return warnings about the grace period and about leases that were held before."""

        def end(view: LeaseView) -> str:
            bound = view.lease_id in answer.bound
            if self.done:
                return f"done if the command succeeds, else {'yours again' if bound else 'kept'}"
            return "yours again" if bound else "not released"

        names = [view.resource for view in answer.leases if not view.renewals]
        parked = [x for x in names if x in self._parked]
        self.resumed = bool(parked)
        warnings = [f"{x} was parked: at the end of the run it is given back" for x in parked]
        holds = holds_of(answer)
        grace = grace_ms(self.grace, holds) / 1_000 if holds else 0
        if self.grace is not None and grace < self.grace:
            warnings.append(f"the grace is {grace:g}s: at most 1/{SHARE} of the lease's time")
        return warnings + [
            f"{sentences.named(view)} was already yours: at the end of the run it is {end(view)}"
            for view in answer.leases
            if view.renewals
        ]


OWN_EXITS = (
    (75, "the lease was not acquired: held, refused by policy, or the wait ran out"),
    (125, "gitlease failed, or the lease was lost and the command was stopped"),
    (126, "the command cannot be executed"),
    (127, "the command was not found"),
)


@verb(
    "run",
    """Run COMMAND while you hold each RESOURCE. Claims all of them or none, renews them in the
background, and releases them when the command ends. Exits with the command's own status, or with
128 + n if signal n ended it.

Each run has its own session unless you name one, so two runs of one person exclude each other,
wherever they start. A lease that you hold without a session belongs to the run for its duration,
and is yours again at the end. A lease that the run's session held before is renewed, and not
released at the end. What the command itself claims in the run's own session ends with the run.

COMMAND is not a shell line; for one, use `sh -c`. It inherits your standard streams and terminal.
On a terminal it shares the process group of gitlease, so that Ctrl-C and Ctrl-Z reach both;
elsewhere it has a group of its own. Signals are forwarded to it. When a lease is lost, it gets TERM
with all that it started in that group, and KILL after the grace period. A guardian process does the
same if gitlease itself is killed, stopped or hangs; on Linux, killing gitlease also kills the
command at once. This does not reach processes that leave the group (setsid, a container, sudo).
While gitlease and the guardian are both stopped (SIGSTOP), nothing ends it. Background processes
that a finished command leaves behind keep running.

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
        "gitlease run src/auth/ --ttl 2m -- sh -c 'sed -i s/a/b/ src/auth/* && make'",
        "gitlease run F001 --grace 30s --ttl 5m --note 'see the log' -- ./migrate",
        "gitlease run --next --done -- sh -c 'make check-$GITLEASE_RESOURCE'",
    ),
    exits=(),
    own_exits=OWN_EXITS,
    done="the command ended with 0; any other status is passed on",
    with_command=True,
)
@run_options
@flag("--detach", help="Run in the background with a log, like `dispatch`.")
def run_verb(
    call: Call, /, *, command: tuple[str, ...], detach: bool, **options: Any
) -> int | None:
    if detach:
        run_detached(call, command, options)
        return None

    gc.enable()  # this may last for hours
    call.open_as(lambda workspace: in_a_run(workspace, "run"))
    run, said = RunCall(call, "run", command, options), list[str]()

    def on_claim(answer: Answer) -> None:
        taken = [sentences.displaced(old) for old in answer.displaced]
        said.extend([*call.warnings, *answer.warnings, *taken, *run.remarks(answer)])
        _say(call, [f"warning: {x}" for x in said] + [sentences.noted(n) for n in answer.notes])

    ran = run_claimed(
        call.workspace,
        run.request,
        run.claim,
        on_claim=on_claim,
        on_stop=lambda why: _say(call, [sentences.stopping(why)]),
        brief=run.brief if run.for_task else None,
    )
    _say(call, [f"warning: {x}" for x in ran.warnings])
    ended, given_back = ran.ended, ", ".join(ran.released)
    if run.done and ran.finished:
        _say(call, [f"{view.resource} is done" for view in ran.answer.leases[: ran.finished]])
    elif given_back and ended.exit:
        _say(call, [f"given back, since the command ended with {ended.exit}: {given_back}"])
    elif given_back and run.resumed:
        _say(call, [f"given back: {given_back}"])
    if not ended.lost and ended.failure is not None:
        _say(call, [f"the command was stopped: {ended.failure}"])
    if call.json:
        warnings = tuple(dict.fromkeys([*said, *ran.warnings]))
        with contextlib.suppress(OSError, ValueError):
            output.last_line(wire.ran("run", ran.answer, ended, now=call.now(), warnings=warnings))
    return ended.exit


def _say(call: Call, lines: Sequence[str]) -> None:
    if call.json:
        return
    with contextlib.suppress(OSError, ValueError):  # a closed stderr must not stop the command
        for text in dict.fromkeys(lines):
            output.aside(text)
        sys.stderr.flush()


HEADINGS = ("RESOURCE", "STATE", "SINCE", "SESSION", "PID", "COMMAND", "LOG")
STYLES = {"running": "green", "lost": "red", "failed": "red", "killed": "red"}
SHOWN = 1_048_576  # bytes of a log in a JSON document, from its end
MODES = ("--list", "--logs", "--stop")


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
    no=("held", "wait_timeout", "nothing_left"),
    done="the command runs; for --stop: it has ended",
    with_command=True,
)
@flag("--list", help="Show the runs of this clone.")
@option("--logs", metavar="R", help="Print the log of the newest run of R.")
@flag("--follow", help="With --logs: continue until the run has ended.")
@option("--stop", metavar="R", help="Stop the run of R.")
@run_options
def dispatch_verb(
    call: Call,
    /,
    *,
    command: tuple[str, ...],
    list: bool,
    logs: str | None,
    follow: bool,
    stop: str | None,
    **options: Any,
) -> None:
    given = zip(MODES, (list, logs, stop), strict=True)
    chosen = [name for name, value in given if value not in (None, False)]
    if follow and logs is None:
        raise UsageError("--follow needs --logs")
    if follow and call.json:
        raise UsageError("--follow cannot be combined with --json")
    if not chosen:
        run_detached(call, command, options)
        return
    if len(chosen) > 1 or command or any(options.values()):
        raise UsageError(f"{chosen[0]} cannot be combined with anything else")
    if list:
        _list(call)
    elif logs is not None:
        _logs(call, logs, follow=follow)
    elif stop is not None:
        _stop(call, stop)


# --- dispatching ----------------------------------------------------------------------------------


def run_detached(call: Call, command: tuple[str, ...], options: dict[str, Any]) -> None:
    """Claim, and start the command in a process of its own."""
    call.command = "dispatch"
    # A session from the environment is the caller's, who may dispatch several runs.
    own = call.session is None
    call.open_as(lambda workspace: in_a_run(workspace, "dispatch", always=own))
    run = RunCall(call, "dispatch", command, options)
    try:
        answer = run.claim()
        record = dispatch(
            call.workspace,
            answer,
            replace(run.request, brief=run.brief(answer)),
            say=log_line,
            on_stop=lambda why: log_line(sentences.stopping(why)),
        ).record
    except LeaseHeld as held:
        raise held.with_(hints=(*held.hints, *_logs_of_holder(call, held))) from None
    call.warnings += run.remarks(answer)

    name = record.resources[0]
    call.note_carried(answer.leases)
    call.respond(
        Result(
            body=wire.claimed(answer)
            | {"status": "dispatched", "run": wire.background(record, "running")},
            lines=lambda: [
                *claimed_lines(call, answer),
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
    )


def _logs_of_holder(call: Call, held: LeaseHeld) -> list[str]:
    runs, sessions = runs_of(call.workspace), [view.session for view in held.views]
    record = runs.in_the_way(sessions, held.resource, call.workspace.layer)
    if record is None:
        return []
    return [call.typed("dispatch", logs=record.resources[0])]


# --- managing runs --------------------------------------------------------------------------------


def _list(call: Call) -> None:
    runs, now = runs_of(call.workspace), call.now()
    found = [(record, runs.state_of(record)) for record in runs.background()]
    table = Table(
        headings=HEADINGS,
        rows=[_row(record, state, now) for record, state in found],
        styles=[STYLES.get(state, "") for _, state in found],
        otherwise="no background runs in this clone",
    )
    body = {"runs": [wire.background(record, state) for record, state in found]}
    call.respond(Result(body=body, lines=lambda: [table]))


def _row(record: RunRecord, state: str, now: datetime) -> tuple[str, ...]:
    at = record.ended_at if record.ended_at is not None else record.began_at
    said = state if record.exit is None else f"{state} ({record.exit})"
    said += f": {record.message}" if record.message else ""
    head = (" ".join(record.resources), said, sentences.clock_time(moment_of(at), now))
    tail = (record.session, str(record.runner), shlex.join(record.command), record.log)
    return (*head, *tail)


def _logs(call: Call, word: str, *, follow: bool) -> None:
    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer)
    if call.json:
        text, cut = runs.end_of(record, SHOWN)
        run = wire.background(record, runs.state_of(record))
        body = {"run": run, "text": text.decode("utf-8", "replace"), "cut": cut}
        call.respond(Result(body=body))
    elif follow:
        runs.follow(record, _write)
    else:
        for part in runs.parts(record):
            _write(part)


def _write(part: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _stop(call: Call, word: str) -> None:
    runs = runs_of(call.workspace)
    record = runs.latest(call.resource(word), call.workspace.layer, running=True)
    was_running = runs.state_of(record) == "running"
    record = runs.stop(record)
    state = runs.state_of(record)
    said = f"the run of session {record.session} "
    said += f"has ended: {state}" if was_running else f"had ended before: {state}"
    said += "" if record.exit is None else f", exit {record.exit}"
    status = "stopped" if was_running and state == "stopped" else "ended"
    body = {"status": status, "run": wire.background(record, state)}
    call.respond(Result(body=body, lines=lambda: [said]))
