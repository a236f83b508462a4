"""The options that ``run`` and ``dispatch`` share, and their claim."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import GitleaseError, UsageError
from gitlease.faces.cli import claiming, output, types
from gitlease.faces.cli.verb import Decorated, flag, option, optional_resources_argument

if TYPE_CHECKING:
    from gitlease.core.view import LeaseView
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call
    from gitlease.runs.leased_command import RunRequest

LENGTHS = (
    "a few minutes: the lease is renewed while the command runs, and if this machine dies or loses",
    "the remote, others wait no longer than the TTL",
)
note_option = option(
    "--note", metavar="TEXT", type=types.note, help="Leave a note for the next holder at the end."
)
grace_option = option(
    "--grace",
    metavar="D",
    type=types.duration("grace"),
    help="Time from TERM to KILL (default: 10s; at most a sixth of the TTL).",
)
RUN_OPTIONS = (
    optional_resources_argument,
    flag("--next", help="Take the first task of the queue."),
    flag("--done", help="Mark each task as done if COMMAND exits with 0."),
    *(claiming.path_option, claiming.claim_options, claiming.any_option, claiming.commit_option),
    *(note_option, grace_option),
)
NOT_NEXT = ("paths", "wait", "takeover", "expect_holder", "reopen", "any", "scope")


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
    """The claim and the command of a ``run`` or ``dispatch``. UsageError if they do not fit."""

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
                "--next takes the first task: it only accepts --ttl, --reason, --done and --commit"
            )
        if not self._from_queue and not words:
            raise UsageError("missing resource: name one, or use --next")
        paths: Sequence[str] = options.pop("paths")
        note, self.grace = options.pop("note"), options.pop("grace")
        self.done: bool = options.pop("done")
        self.for_task = self._from_queue or self.done
        self.call, self.options = call, claiming.ClaimRequest(**options)
        self.request: RunRequest = RunRequest(
            words=tuple(command),
            directory=os.path.abspath(call.directory or "."),
            scope=self.options.options().scope,
            grace=self.grace,
            note=note,
            commit=self.options.commit,
            layer=call.layer,
            stops=verb != "run",
            done=self.done,
        )
        self._verb, self._words, self._paths = verb, words, paths

    def claim(self) -> Answer:
        """Claim the resources, or the first task. NoCommand or CannotExecute before that."""
        from gitlease.runs.leased_command import claim_to_run

        call = self.call
        if self._from_queue:
            return claim_to_run(call.workspace, self.request, (), self.options.options())
        resources, covered = call.to_claim(self._words, self._paths, any_name=self.options.any)
        for resource in resources if self.done else ():
            if resource.is_path or (self.options.any and call.needs_any(resource.text)):
                raise UsageError(
                    f"{resource} is not a task, and only tasks are done: leave out --done",
                    resource=resource.text,
                )
        call.covers = covered
        again = partial(self.options.waiting, call, self._verb, resources, covered=covered)
        call.retry = lambda time: f"{again(time)} -- {shlex.join(self.request.words)}"
        wait = self.options.wait
        return claim_to_run(
            call.workspace,
            self.request,
            resources,
            self.options.options(covered),
            wait=wait,
            on_wait=_quiet if call.json else claiming.report_waiting(call, wait),
        )

    def brief(self, answer: Answer) -> str:
        """Return the page that describes the task to the command."""
        from gitlease.core.resources.resource import parse_resource, word_anywhere
        from gitlease.faces import run_text

        first = parse_resource(word_anywhere(answer.leases[0].resource))
        found = self.call.queue.find(first).entry
        task = None if found is None else found.task
        return run_text.brief(answer, task, prog=self.call.prog, done=self.done)

    def remarks(self, answer: Answer) -> list[str]:
        """Return warnings about the grace period and about leases that were held before."""
        from gitlease.engine.keeping import holds_of
        from gitlease.faces import sentences
        from gitlease.runs.supervisor import SHARE, grace_ms

        def end(view: LeaseView) -> str:
            bound = view.lease_id in answer.bound
            if self.done:
                return f"done if the command succeeds, else {'yours again' if bound else 'kept'}"
            return "yours again" if bound else "not released"

        warnings, holds = [], holds_of(answer)
        grace = grace_ms(self.grace, holds) / 1_000 if holds else 0
        if self.grace is not None and grace < self.grace:
            warnings.append(f"the grace is {grace:g}s: at most 1/{SHARE} of the lease's time")
        return warnings + [
            f"{sentences.named(view)} was already yours: at the end of the run it is {end(view)}"
            for view in answer.leases
            if view.renewals
        ]


def _quiet(_held: GitleaseError) -> None:
    pass
