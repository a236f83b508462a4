"""What the verbs share that run a command under leases: what is asked of them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.verb import Decorated, flag, option

if TYPE_CHECKING:
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call
    from gitlease.runs.leased_command import RunRequest

LENGTHS = (
    "a few minutes: it is renewed while the command runs, and others wait no longer than the TTL",
    "where this machine dies, or loses the remote",
)
note_option = option(
    "--note", metavar="TEXT", type=types.note, help="Leave a note for the next holder at its end."
)
grace_option = option(
    "--grace",
    metavar="D",
    type=types.duration("grace"),
    help="From TERM to KILL, where it is stopped (default: 10s; at most a sixth of the TTL).",
)
RUN_OPTIONS = (
    click.argument("words", metavar="[RESOURCE]...", shell_complete=types.known_names, nargs=-1),
    flag("--next", help="Take the first task of the queue."),
    flag("--done", help="Mark each task as done when COMMAND ends with status 0."),
    *(claiming.path_option, claiming.claim_options, claiming.any_option, claiming.commit_option),
    *(note_option, grace_option),
)
NOT_NEXT = ("paths", "wait", "takeover", "expect_holder", "reopen", "any", "scope")
SCOPE = "Take only this part of its work (default: the whole)."


def log_line(text: str) -> None:
    """Add a line to the log of a run in the background: called in its own process."""
    output.aside(f"gitlease: {text}")
    sys.stderr.flush()


def run_options(verb: Decorated) -> Decorated:
    """Decorate a verb with what is asked of leases that a command runs under, in this order."""
    for decorate in reversed(RUN_OPTIONS):
        verb = decorate(verb)
    return verb


class RunCall:
    """What to claim and what to run under it, as ``run`` and ``dispatch`` are asked."""

    def __init__(
        self, call: Call, verb: str, command: Sequence[str], options: dict[str, Any]
    ) -> None:
        from gitlease.runs.leased_command import RunRequest

        if not command:
            example = call.typed(verb, *(options["words"] or ["F8"]))
            raise UsageError(f"missing command: {example} -- make test")
        options = dict(options)
        words: Sequence[str] = options.pop("words")
        self._from_queue: bool = options.pop("next")
        if self._from_queue and (words or any(options[name] for name in NOT_NEXT)):
            raise UsageError(
                "--next takes what is first: it only accepts --ttl, --reason, --done and --commit"
            )
        if not self._from_queue and not words:
            raise UsageError("missing resource: name one, or use --next")
        paths: Sequence[str] = options.pop("paths")
        note, self.grace = options.pop("note"), options.pop("grace")
        self.done: bool = options.pop("done")
        self.for_task = self._from_queue or self.done
        self.call, self.asked = call, claiming.ClaimRequest(**options)
        self.request: RunRequest = RunRequest(
            words=tuple(command),
            directory=os.path.abspath(call.directory or "."),
            scope=self.asked.options().scope,
            grace=self.grace,
            note=note,
            commit=self.asked.commit,
            layer=call.layer,
            stops=verb != "run",
            done=self.done,
        )
        self._verb, self._words, self._paths = verb, words, paths

    def claim(self) -> Answer:
        """Claim it, or the first task. NoCommand or CannotExecute before that."""
        from gitlease.runs.leased_command import claim_to_run

        call = self.call
        if self._from_queue:
            return claim_to_run(call.workspace, self.request, (), self.asked.options())
        resources, covered = call.to_claim(self._words, self._paths, any_name=self.asked.any)
        again = partial(self.asked.waiting, call, self._verb, resources, covered=covered)
        call.retry = lambda time: f"{again(time)} -- {shlex.join(self.request.words)}"
        options, wait = self.asked.options(covered), self.asked.wait
        tell = _quiet if call.json else claiming.tell_waiting(call, wait)
        return claim_to_run(
            call.workspace, self.request, resources, options, wait=wait, on_wait=tell
        )

    def brief(self, answer: Answer) -> str:
        """What the command is to know of its task, as a page."""
        from gitlease.core.resources.resource import parse_resource, word_anywhere
        from gitlease.faces import task_brief

        first = parse_resource(word_anywhere(answer.leases[0].resource))
        found = self.call.queue.find(first).entry
        task = None if found is None else found.task
        return task_brief.brief(answer, task, prog=self.call.prog, done=self.done)

    def remarks(self, answer: Answer) -> list[str]:
        """What a person should know before it starts, besides the warnings of the claim."""
        from gitlease.engine.keeping import holds_of
        from gitlease.faces import sentences
        from gitlease.runs.running import SHARE, grace_ms

        def kept(view: LeaseView) -> str:
            bound = view.lease_id in answer.bound
            if self.done:
                return "done with its success, and else " + ("yours again" if bound else "kept")
            return "this run's alone, and yours again" if bound else "not released"

        said, holds = [], holds_of(answer)
        grace = grace_ms(self.grace, holds) / 1_000 if holds else 0
        if self.grace is not None and grace < self.grace:
            said.append(f"the grace is {grace:g}s: at most one part in {SHARE} of the lease's time")
        return said + [
            f"{sentences.named(view)} was already yours: it is {kept(view)} at the end"
            for view in answer.leases
            if view.renewals
        ]


def _quiet(_held: GitleaseError) -> None:
    """Nothing but the document is written."""
