"""``run``: a command that runs while leases are held, and no longer."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from gitlease.domain.errors import GitleaseError, UsageError
from gitlease.faces import sentences
from gitlease.faces.cli import claiming, output
from gitlease.faces.cli.verb import WithCommand, flag
from gitlease.faces.codes import INTERNAL

if TYPE_CHECKING:
    from gitlease.answers import Answer
    from gitlease.bootstrap_running import Ended, Errand
    from gitlease.domain.loss import Lost
    from gitlease.faces.cli.call import Call

Verb = TypeVar("Verb", bound=Callable[..., Any])

OWN_EXITS = (
    (75, "the lease was not acquired: held, refused by policy, or the wait ran out"),
    (125, "gitlease failed; or the lease was lost, and the command was stopped"),
    (126, "the command cannot be executed"),
    (127, "there is no such command"),
)
LENGTHS = (
    "a few minutes: it is renewed while the command runs, and others wait no longer than the TTL",
    "where this machine dies, or loses the remote",
)
path_option = click.option(
    "--path", "paths", metavar="P", multiple=True, help="Cover this path as well."
)
note_option = click.option(
    "--note", metavar="TEXT", help="Leave a note for the next holder at its end."
)
grace_option = click.option(
    "--grace",
    metavar="D",
    help="From TERM to KILL, where it is stopped (default: 10s; at most a sixth of the TTL).",
)
any_option = flag("--any", help="Also names that are no tasks.")
ERRAND_OPTIONS = (
    *(path_option, claiming.ttl_option, claiming.wait_option, claiming.reason_option),
    *(claiming.takeover_option, claiming.reopen_option, any_option, claiming.commit_option),
    *(note_option, grace_option),
)
SCOPE = "Take only this part of its work (default: the whole)."


def errand_options(verb: Verb) -> Verb:
    """Decorate a verb with what is asked of leases that a command runs under, in this order."""
    for option in reversed(ERRAND_OPTIONS):
        verb = option(verb)
    return verb


@click.command(
    "run",
    cls=WithCommand,
    help="""Run COMMAND while you hold each RESOURCE: claim all of them or none, renew them in the
background, release them when it ends. It ends with the command's own exit status, 128 + n where
signal n ended it.

Each run is a session of its own unless you name one, so that two runs of one person exclude each
other. What that session held before is renewed as well, and not released at the end.

The command is no shell line: for one, run `sh -c`. It has your standard streams and the terminal;
signals are passed on to it and to what it starts, its process group. Once a lease is lost that
group gets TERM, and after a grace KILL; likewise when gitlease itself is killed, stopped or hangs,
by a guardian that watches over it. On Linux the command itself is killed at once with a gitlease
that is killed. Only a process that leaves the group (setsid, a
container, sudo) is out of reach. What a command leaves in the background when it ends by itself is
not ended.

A lease that cannot be renewed in time is given up so early that the command has ended before
anybody else can claim it. A revocation, or a release from elsewhere, is learned with the next
renewal, after a third of the TTL or a little more, or within seconds once this clone sees it, as it
does a release made in it. Until then the command runs on, and another may have the lease;
`gitlease push` and `gitlease fence` refuse its work at once.

It finds in its environment GITLEASE_RESOURCE and GITLEASE_TOKEN (several are separated by spaces),
GITLEASE_HOLDER, GITLEASE_SESSION and GITLEASE_EXPIRES_AT (as of its start): gitlease commands in it
speak as this run. Where you give --remote or --local, give it to them as well.

Nothing is written but to standard error, and with --json nothing but one JSON document, as its last
line.""",
    advice=LENGTHS,
    examples=(
        "gitlease run F001 -- make test",
        "gitlease run deploy-prod --any --wait 15m -- ./deploy.sh",
        "gitlease run src/auth/ --ttl 2m -- sh -c 'sed -i s/a/b/ src/auth/* && make'",
        "gitlease run F001 --grace 30s --ttl 5m --note 'see the log' -- ./migrate",
    ),
    exits=(),
    own_exits=OWN_EXITS,
    done="the command ended with 0, as with any other status of its own",
    scope=SCOPE,
)
@click.argument("words", metavar="RESOURCE...", nargs=-1, required=True)
@errand_options
@click.pass_obj
def run_verb(call: Call, /, *, command: tuple[str, ...], **options: Any) -> int:
    """Claim, run, release."""
    import gc

    gc.enable()  # this may last for hours
    asked = Asked(call, "run", command, options)
    return _under_leases(call, asked)


class Asked:
    """What a verb that runs a command was asked for: what to claim, and what to run."""

    def __init__(
        self, call: Call, verb: str, command: Sequence[str], options: dict[str, Any]
    ) -> None:
        from gitlease.bootstrap_running import Errand
        from gitlease.domain.duration import parse_duration
        from gitlease.faces.cli.ending import checked_note

        if not command:
            raise UsageError(
                "there is no command to run", hints=("it follows --, as in: -- make test",)
            )
        options = dict(options)
        words: Sequence[str] = options.pop("words")
        paths: Sequence[str] = options.pop("paths")
        note, grace = options.pop("note"), options.pop("grace")
        self.call, self.wish = call, claiming.Wish(**options)
        terms, self.patience = self.wish.terms(), self.wish.patience()
        self.grace = None if grace is None else parse_duration(grace, what="grace")
        self.errand: Errand = Errand(
            words=tuple(command),
            directory=os.path.abspath(call.directory or "."),
            scope=terms.scope,
            grace=self.grace,
            note=None if note is None else checked_note(note),
            commit=terms.commit,
            layer=call.layer,
            stops=verb != "run",
        )
        self._verb, self._terms, self._words, self._paths = verb, terms, words, paths

    def claim(self) -> Answer:
        """Claim all of it. Whatever a claim raises; NoCommand, CannotExecute before it."""
        from gitlease.bootstrap_running import check_command, claimed
        from gitlease.domain.resource import path_resource, resolve_path

        call, terms = self.call, self._terms
        resources = call.resources(self._words)
        place = call.workspace.repository
        covered = [
            path_resource(resolve_path(word, folder=place.folder, root=place.toplevel))
            for word in self._paths
        ]
        again = claiming.again(call, self._verb, resources, self.wish, covered=covered)
        call.retry = f"{again} -- {shlex.join(self.errand.words)}"
        check_command(self.errand)
        return claimed(
            call.workspace,
            resources,
            lambda: call.service.claim(
                resources,
                scope=terms.scope,
                ttl=terms.ttl,
                paths=tuple(found for path in covered if (found := path.pattern) is not None),
                reason=terms.reason,
                takeover=terms.takeover,
                reopen=terms.reopen,
                any_name=terms.any_name,
                commit=terms.commit,
                wait=self.patience,
                on_wait=_quiet if call.json else claiming.tell_waiting(call, self.wish.wait),
            ),
        )

    def claim_next(self) -> Answer:
        """Claim the first task of the queue. Whatever that raises; NoCommand, CannotExecute."""
        from gitlease.bootstrap_running import check_command, ends_orderly

        check_command(self.errand)
        with ends_orderly():
            return self.call.queue.claim_next(self._terms)[0]


def _quiet(_held: GitleaseError) -> None:
    """Nothing but the document is written."""


def in_own_session(call: Call, kind: str) -> None:
    """Have the workspace opened in the session that was named, else in a random one."""
    from gitlease.bootstrap_holding import in_a_run

    opener = call.opener

    def open_in_a_run(directory: str, **options: Any) -> Any:
        return in_a_run(opener(directory, **options), kind)

    call.opener = open_in_a_run


def _under_leases(call: Call, asked: Asked) -> int:
    from gitlease.bootstrap_running import give_back, run_errand

    in_own_session(call, "run")
    answer: Answer | None = None
    said: list[str] = []
    started = False

    def on_start(_attended: object) -> None:
        nonlocal started
        started = True

    try:
        answer = asked.claim()
        said += [*call.warnings, *answer.warnings, *_lines(call, asked, answer)]
        _say(call, [f"warning: {x}" for x in said] + [sentences.noted(n) for n in answer.notes])
        ended = run_errand(
            call.workspace,
            answer,
            asked.errand,
            on_start=on_start,
            on_stop=lambda why: _tell_stop(call, why),
        )
    except GitleaseError as refusal:
        if answer is not None:
            left = give_back(call.workspace, answer, asked.errand)
            _say(call, [f"warning: {x}" for x in left])
        return tell_refusal(call, refusal)
    except BaseException:
        if answer is not None and not started:  # a fault of ours: what never ran needs no lease
            give_back(call.workspace, answer, asked.errand)
        raise
    left = give_back(call.workspace, answer, asked.errand, ended.lost)
    _say(call, [f"warning: {x}" for x in left])
    return _tell_end(call, answer, ended, [*said, *left])


def _lines(call: Call, asked: Asked, answer: Answer) -> list[str]:
    """What a person should know before it starts, besides the warnings of the claim."""
    from gitlease.keeping import holds_of
    from gitlease.running import SHARE, grace_ms

    said = [f"taken over from {sentences.whose(old)}" for old in answer.displaced]
    holds = holds_of(answer)
    grace = grace_ms(asked.grace, holds) / 1_000 if holds else 0
    if asked.grace is not None and grace < asked.grace:
        said.append(f"the grace is {grace:g}s: at most one part in {SHARE} of the lease's time")
    said += [
        f"{sentences.named(view)} was yours before: it is not released at the end"
        for view in answer.leases
        if view.renewals
    ]
    return said


def _say(call: Call, lines: Sequence[str]) -> None:
    """Tell a person. Whether anybody listens must not matter to the command."""
    if call.json:
        return
    with contextlib.suppress(OSError, ValueError):
        for text in dict.fromkeys(lines):
            output.aside(text)
        sys.stderr.flush()


def _tell_stop(call: Call, why: Lost | str | None) -> None:
    if why is None:
        text = "stopping the command, as was asked for"
    elif isinstance(why, str):
        text = f"stopping the command: {why}"
    else:
        text = f"{why.error.message}: stopping the command"
    _say(call, [text])


def _tell_end(call: Call, answer: Answer, ended: Ended, warnings: Sequence[str]) -> int:
    """The document of a run; a person has been told all there is."""
    if not ended.lost and ended.failure is not None:
        _say(call, [f"the command was stopped: {ended.failure}"])
    if call.json:
        from gitlease.faces import wire

        said = tuple(dict.fromkeys(warnings))
        document(wire.ran("run", answer, ended, now=call.now(), warnings=said))
    return ended.exit


class Fault(GitleaseError):
    """A fault of gitlease itself."""

    code: ClassVar[str] = INTERNAL


def tell_fault(call: Call, error: Exception, *, traceback: bool) -> int:
    """Tell of a fault of gitlease itself: its exit status must not be taken for the command's."""
    if traceback:
        import traceback as tracebacks

        tracebacks.print_exception(error, file=sys.stderr)
    message = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    hint = "run it again with --traceback and report what it prints"
    return tell_refusal(call, Fault(message, hints=(hint,)))


def tell_refusal(call: Call, refusal: GitleaseError) -> int:
    """Tell why it did not run, and give the exit status of that."""
    from gitlease.faces import wire
    from gitlease.faces.cli import refusals
    from gitlease.running import exit_of_refusal

    status = exit_of_refusal(refusal)
    if not call.json:
        with contextlib.suppress(OSError, ValueError):
            refusals.tell(call, refusal)
        return status
    steps = refusals.next_steps(call, refusal)
    warnings = list(dict.fromkeys((*call.warnings, *refusal.warnings)))
    body = {"warnings": warnings} if warnings else {}
    said = wire.failure(call.command, refusal, now=call.now(), next_steps=steps, body=body)
    said["error"]["exit"] = status
    document(said)
    return status


def document(said: dict[str, Any]) -> None:
    """One line of JSON on standard error, since standard output is the command's."""
    import json

    with contextlib.suppress(OSError, ValueError):
        print(json.dumps(said), file=sys.stderr, flush=True)
