"""``run``: a command that runs while leases are held, and no longer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import GitleaseError
from gitlease.faces import sentences
from gitlease.faces.cli import output, refusals
from gitlease.faces.cli.runs.request import LENGTHS, SCOPE, RunCall, run_options
from gitlease.faces.cli.verb import Verb, flag

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call
    from gitlease.runs.running import Ended

OWN_EXITS = (
    (75, "the lease was not acquired: held, refused by policy, or the wait ran out"),
    (125, "gitlease failed; or the lease was lost, and the command was stopped"),
    (126, "the command cannot be executed"),
    (127, "there is no such command"),
)


@click.command(
    "run",
    cls=Verb,
    help="""Run COMMAND while you hold each RESOURCE: claim all of them or none, renew them in the
background, release them when it ends. It ends with the command's own exit status, 128 + n where
signal n ended it.

Each run is a session of its own unless you name one, so that two runs of one person exclude each
other, wherever they are started. What you hold without a session is the run's alone for its time,
and yours again at the end; what its session held before is renewed, and not released at the end.

The command is no shell line: for one, run `sh -c`. It has your standard streams and the terminal;
signals are passed on to it and to what it starts, its process group. Once a lease is lost that
group gets TERM, and after a grace KILL; likewise when gitlease itself is killed, stopped or hangs,
by a guardian that watches over it. On Linux the command itself is killed at once with a gitlease
that is killed. Only a process that leaves the group (setsid, a
container, sudo) is out of reach, and while gitlease and the guardian are both stopped (SIGSTOP)
nothing ends it: that is not promised. What a command leaves in the background when it ends by
itself is not ended.

A lease that cannot be renewed in time is given up so early that the command has ended before
anybody else can claim it. A revocation, or a release from elsewhere, is learned with the next
renewal, after a third of the TTL or a little more, or within seconds once this clone sees it, as it
does a release made in it. Until then the command runs on, and another may have the lease;
`gitlease fence` refuses its token at once, and `gitlease push` the work that its paths or task file
cover; for any other lease, say `gitlease push --require R`.

It finds in its environment GITLEASE_RESOURCE and GITLEASE_TOKEN (several are separated by spaces),
GITLEASE_HOLDER, GITLEASE_SESSION and GITLEASE_EXPIRES_AT (as of its start), and with --next or
--done GITLEASE_BRIEF, a file that says what its task is. gitlease commands in it speak as this run.
Where you give --remote or --local, give it to them as well. The run itself keeps to the settings
and the user.email that it began with, whatever its command checks out or sets; gitlease commands in
it read what is there by then.

Nothing is written but to standard error, and with --json nothing but one JSON document, as its last
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
    done="the command ended with 0, as with any other status of its own",
    scope=SCOPE,
    with_command=True,
)
@run_options
@flag("--detach", help="Go on in the background with a log, as `dispatch` does.")
@click.pass_obj
def run_verb(
    call: Call, /, *, command: tuple[str, ...], detach: bool, **options: Any
) -> int | None:
    import gc

    if detach:
        from gitlease.faces.cli.runs.dispatch import run_detached

        run_detached(call, command, options)
        return None

    gc.enable()  # this may last for hours
    asked = RunCall(call, "run", command, options)
    return _under_leases(call, asked)


def _under_leases(call: Call, asked: RunCall) -> int:
    from gitlease.runs.foreground import run_claimed
    from gitlease.runs.holding import in_a_run

    call.open_as(lambda workspace: in_a_run(workspace, "run"))
    said: list[str] = []

    def on_claim(answer: Answer) -> None:
        taken = [f"taken over from {sentences.whose(old)}" for old in answer.displaced]
        said.extend([*call.warnings, *answer.warnings, *taken, *asked.remarks(answer)])
        _say(call, [f"warning: {x}" for x in said] + [sentences.noted(n) for n in answer.notes])

    try:
        ran = run_claimed(
            call.workspace,
            asked.request,
            asked.claim,
            on_claim=on_claim,
            on_stop=lambda why: _say(call, [sentences.stopping(why)]),
            brief=asked.brief if asked.for_task else None,
        )
    except GitleaseError as refusal:
        return refusals.tell(call, refusal)
    _say(call, [f"warning: {x}" for x in ran.warnings])
    return _tell_end(call, ran.answer, ran.ended, [*said, *ran.warnings])


def _say(call: Call, lines: Sequence[str]) -> None:
    """Tell a person. Whether anybody listens must not matter to the command."""
    if call.json:
        return
    with contextlib.suppress(OSError, ValueError):
        for text in dict.fromkeys(lines):
            output.aside(text)
        sys.stderr.flush()


def _tell_end(call: Call, answer: Answer, ended: Ended, warnings: Sequence[str]) -> int:
    """The document of a run; a person has been told all there is."""
    if not ended.lost and ended.failure is not None:
        _say(call, [f"the command was stopped: {ended.failure}"])
    if call.json:
        from gitlease.faces import wire

        said = tuple(dict.fromkeys(warnings))
        with contextlib.suppress(OSError, ValueError):
            output.last_line(wire.ran("run", answer, ended, now=call.now(), warnings=said))
    return ended.exit
