"""``release`` and ``done``: give back what one holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.core.resources.pattern import fold
from gitlease.faces import sentences, task_words, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases.claiming import any_option, commit_option
from gitlease.faces.cli.leases.holding import OWN_SCOPES
from gitlease.faces.cli.verb import LEASE_EXITS, Verb, flag, option

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call


@click.command(
    "release",
    cls=Verb,
    help="""Give leases back, so that others need not wait for their time to run out.

Where it is a task, you are no longer assigned in its file. A status of in progress goes back to to
do where start had set it in this clone, or a commit that names the lease, unless somebody else is
on it or a part of it is finished. It may be repeated: with nothing of yours to give back it
succeeds all the same. What another holds is refused and names the holder,
and so is a task that another is assigned to, also once it counts as abandoned: claim it first.
A note tells whoever comes next how far you got. --all gives back everything of this session, in
every layer; without a session, what you hold without one.""",
    examples=(
        "gitlease release F001",
        "gitlease release F001 --note 'parser done, tests red'",
        "gitlease release F001 --commit        # and commit the line in its task file, alone",
        "gitlease release src/auth/ docs/auth.md",
        "gitlease release --all",
    ),
    exits=LEASE_EXITS,
    done="you hold none of them",
    scope=OWN_SCOPES,
)
@click.argument("words", metavar="[RESOURCE]...", shell_complete=types.known_names, nargs=-1)
@flag("--all", help="Everything of this session.")
@option("--note", metavar="TEXT", type=types.note, help="Leave a note for the next holder.")
@flag("--keep-status", help="Leave the status in the task file as it is.")
@commit_option
@click.pass_obj
def release_verb(
    call: Call,
    *,
    words: tuple[str, ...],
    all: bool,
    note: str | None,
    keep_status: bool,
    commit: bool | None,
    scope: str | None,
) -> int:
    from gitlease.engine import end

    if all:
        if words or scope is not None:
            raise UsageError("--all gives back everything: it takes no resource and no --scope")
        return _release_all(call, note=note, keep_status=keep_status, commit=commit)
    if not words:
        raise UsageError("name what to release, or use --all")
    resources = call.resources(words)
    answer = end.release(
        call.ledger, resources, scope=scope, note=note, keep_status=keep_status, commit=commit
    )
    call.answer_verb(
        answer, wire.ended(answer), show=lambda: _show_released(answer, resources, note)
    )
    return 0


def _release_all(call: Call, *, note: str | None, keep_status: bool, commit: bool | None) -> int:
    from gitlease.engine import end

    layers = [space.ledger for space in call.workspace.in_use]
    answer = end.release_all(layers, note=note, keep_status=keep_status, commit=commit)

    def show() -> None:
        output.lines(f"released {call.named(view)}" for view in answer.leases)
        output.lines(task_words.edited(answer))
        if not answer.leases and not answer.refused:
            output.line("you hold nothing here: nothing to release")

    if answer.refused:  # both are told, and the refusal counts
        call.warnings += answer.warnings
        if not call.json:
            show()
        from gitlease.faces.cli import refusals

        return refusals.tell_partly(call, answer.refused, wire.ended(answer))
    call.answer_verb(answer, wire.ended(answer), show=show)
    return 0


def _show_released(answer: Answer, resources: Sequence[Resource], note: str | None) -> None:
    output.lines(f"released {sentences.named(view)}" for view in answer.leases)
    output.lines(task_words.edited(answer))
    ended = {fold(view.resource) for view in answer.leases} | task_words.settled(answer)
    for resource in dict.fromkeys(resources):
        if not {fold(resource.text), resource.key} & ended:
            output.line(f"you have nothing to release on {resource}")
    if note is not None:
        output.line("left your note for the next holder")


@click.command(
    "done",
    cls=Verb,
    help="""Finish the work: your lease ends completed, and its notes are cleared.

Where it is a task, its status is set to done in its file, and you are no longer assigned there; the
status stays while others work on other scopes of it: only yours ends then. A task that another is
assigned to, also once it counts as abandoned, is claimed first. Completed work is not claimed again
by mistake: `claim` refuses it unless told to reopen it.""",
    examples=(
        "gitlease done F001",
        "gitlease done F001 --commit           # and commit the lines in its task file, alone",
        "gitlease done F001 --scope parser",
        "gitlease done deploy-prod --any       # a name that is no task, and that nobody claimed",
    ),
    exits=LEASE_EXITS,
    done="it is completed",
    scope=OWN_SCOPES,
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names)
@any_option
@commit_option
@click.pass_obj
def done_verb(call: Call, *, word: str, any: bool, commit: bool | None, scope: str | None) -> None:
    from gitlease.engine import end

    resource = call.resource(word)
    answer_done(call, end.complete(call.ledger, resource, scope=scope, commit=commit, any_name=any))


def answer_done(call: Call, answer: Answer) -> None:
    """Give the answer of work that is finished."""
    call.answer_verb(answer, wire.ended(answer), show=lambda: _show_completed(answer))


def _show_completed(answer: Answer) -> None:
    for view in answer.leases:
        before = "" if answer.changed else f" already, by {view.holder}"
        output.line(f"completed {sentences.named(view)}{before}")
    output.lines(task_words.edited(answer))
