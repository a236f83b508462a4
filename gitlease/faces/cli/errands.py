"""What the verbs share that run a command under leases: what is asked of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gitlease.domain.errors import GitleaseError, UsageError
from gitlease.faces.cli import claiming
from gitlease.faces.cli.verb import flag

if TYPE_CHECKING:
    from gitlease.answers import Answer
    from gitlease.bootstrap_running import Errand
    from gitlease.faces.cli.call import Call

Verb = TypeVar("Verb", bound=Callable[..., Any])

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

    def remarks(self, answer: Answer) -> list[str]:
        """What a person should know before it starts, besides the warnings of the claim."""
        from gitlease.faces import sentences
        from gitlease.keeping import holds_of
        from gitlease.running import SHARE, grace_ms

        said, holds = [], holds_of(answer)
        grace = grace_ms(self.grace, holds) / 1_000 if holds else 0
        if self.grace is not None and grace < self.grace:
            said.append(f"the grace is {grace:g}s: at most one part in {SHARE} of the lease's time")
        return said + [
            f"{sentences.named(view)} was yours before: it is not released at the end"
            for view in answer.leases
            if view.renewals
        ]

    def claim_next(self) -> Answer:
        """Claim the first task of the queue. Whatever that raises; NoCommand, CannotExecute."""
        from gitlease.bootstrap_running import check_command, ends_orderly

        check_command(self.errand)
        with ends_orderly():
            return self.call.queue.claim_next(self._terms)[0]


def _quiet(_held: GitleaseError) -> None:
    """Nothing but the document is written."""
