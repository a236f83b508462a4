"""``run``: run a command while leases are held, and no longer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import GitleaseError
from gitlease.faces import sentences
from gitlease.faces.cli import claiming, output, refusals
from gitlease.faces.cli.runs.request import LENGTHS, RunCall, run_options
from gitlease.faces.cli.verb import flag, verb

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call

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
    scope=claiming.SCOPE,
    with_command=True,
)
@run_options
@flag("--detach", help="Run in the background with a log, like `dispatch`.")
def run_verb(
    call: Call, /, *, command: tuple[str, ...], detach: bool, **options: Any
) -> int | None:
    import gc

    if detach:
        from gitlease.faces.cli.runs.dispatch import run_detached

        run_detached(call, command, options)
        return None

    gc.enable()  # this may last for hours
    return _under_leases(call, RunCall(call, "run", command, options))


def _under_leases(call: Call, run: RunCall) -> int:
    from gitlease.runs.heartbeat import in_a_run
    from gitlease.runs.leased_command import run_claimed

    call.open_as(lambda workspace: in_a_run(workspace, "run"))
    said: list[str] = []

    def on_claim(answer: Answer) -> None:
        taken = [sentences.displaced(old) for old in answer.displaced]
        said.extend([*call.warnings, *answer.warnings, *taken, *run.remarks(answer)])
        _say(call, [f"warning: {x}" for x in said] + [sentences.noted(n) for n in answer.notes])

    try:
        ran = run_claimed(
            call.workspace,
            run.request,
            run.claim,
            on_claim=on_claim,
            on_stop=lambda why: _say(call, [sentences.stopping(why)]),
            brief=run.brief if run.for_task else None,
        )
    except GitleaseError as refusal:
        return refusals.tell(call, refusal)
    _say(call, [f"warning: {x}" for x in ran.warnings])
    ended = ran.ended
    if not ended.lost and ended.failure is not None:
        _say(call, [f"the command was stopped: {ended.failure}"])
    if call.json:
        from gitlease.faces import wire

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
