"""``release`` and ``done``: give leases back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import UsageError
from gitlease.core.resources.pattern import fold
from gitlease.faces import next_steps, sentences, task_text, wire
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases.claiming import any_option, commit_option
from gitlease.faces.cli.leases.holding import OWN_SCOPES
from gitlease.faces.cli.verb import (
    LEASE_EXITS,
    flag,
    option,
    optional_resources_argument,
    resource_argument,
    verb,
)

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call


@verb(
    "release",
    """Give leases back, so that others need not wait for them to expire.

If the resource is a task, you are unassigned in its task file. A status of in progress returns to
to do if it was set by start in this clone, or by a commit that names the lease, unless someone else
is working on the task or a part of it is finished. Releasing something you do not hold succeeds and
changes nothing. You cannot release a lease that someone else holds, or a task assigned to someone
else, even an abandoned one: claim it first.

A note tells the next holder how far you got. --all releases everything this session holds, in every
layer; without a session, everything you hold without one.""",
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
@optional_resources_argument
@flag("--all", help="Release everything this session holds.")
@option("--note", metavar="TEXT", type=types.note, help="Leave a note for the next holder.")
@flag("--keep-status", help="Leave the status in the task file as it is.")
@commit_option
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
            raise UsageError("--all releases everything: it takes no resource and no --scope")
        return _release_all(call, note=note, keep_status=keep_status, commit=commit)
    if not words:
        raise UsageError("missing resource: name one, or use --all")
    resources = call.resources(words)
    answer = end.release(
        call.ledger, resources, scope=scope, note=note, keep_status=keep_status, commit=commit
    )
    return call.answer_verb(
        answer, wire.ended(answer), show=lambda: _show_released(answer, resources, note)
    )


def _release_all(call: Call, *, note: str | None, keep_status: bool, commit: bool | None) -> int:
    from gitlease.engine import end

    layers = [space.ledger for space in call.workspace.in_use]
    answer = end.release_all(layers, note=note, keep_status=keep_status, commit=commit)

    def show() -> None:
        output.lines(f"released {call.named(view)}" for view in answer.leases)
        output.lines(task_text.edited(answer))
        if answer.found_nothing:
            output.line("you hold nothing here: nothing to release")

    return call.answer_verb(answer, wire.ended(answer), show=show)


def _show_released(answer: Answer, resources: Sequence[Resource], note: str | None) -> None:
    output.lines(f"released {sentences.named(view)}" for view in answer.leases)
    output.lines(task_text.edited(answer))
    ended = {fold(view.resource) for view in answer.leases} | task_text.settled(answer)
    for resource in dict.fromkeys(resources):
        if {fold(resource.text), resource.key} & ended:
            continue
        if answer.edge_in == ("file",) and len(resources) == 1:
            output.line(f"{resource} stays assigned to you")
        else:
            output.line(f"you have nothing to release on {resource}")
    if note is not None:
        output.line("left your note for the next holder")


@verb(
    "done",
    """Finish the work: your lease is completed, and its notes are cleared.

The task's status is set to done in its task file, and you are unassigned. Only tasks are done:
release paths, and release names that are not tasks (--any completes such a name all the same). If
others work on other scopes of it, only your scope is completed, and the status stays. A task
assigned to someone else, even an abandoned one, must be claimed first. Completed work cannot be
claimed again by mistake: that needs `claim --reopen`.""",
    examples=(
        "gitlease done F001",
        "gitlease done F001 --commit           # and commit the lines in its task file, alone",
        "gitlease done F001 --scope parser",
        "gitlease done deploy-prod --any       # not a task, and never claimed",
    ),
    exits=LEASE_EXITS,
    done="the work is completed",
    scope=OWN_SCOPES,
)
@resource_argument
@any_option
@commit_option
def done_verb(call: Call, *, word: str, any: bool, commit: bool | None, scope: str | None) -> None:
    from gitlease.engine import end

    resource = call.resource(word)
    call.release = lambda: _releasing(call, resource, scope)
    answer_done(call, end.complete(call.ledger, resource, scope=scope, commit=commit, any_name=any))


def _releasing(call: Call, resource: Resource, scope: str | None) -> str:
    from gitlease.engine.reading import is_in_ledger
    from gitlease.wiring.words import file_called

    known = resource.is_path or is_in_ledger(call.ledger.known_look(), resource)
    file = None if known else file_called(call.workspace.repository, resource.text)
    options = next_steps.scoped(scope)
    if file is not None:
        return call.typed("release", then=[file.word], options=options)
    return call.typed("release", resource, options=options)


def answer_done(call: Call, answer: Answer) -> None:
    """Answer for completed work."""
    call.answer_verb(answer, wire.ended(answer), show=lambda: _show_completed(answer))


def _show_completed(answer: Answer) -> None:
    for view in answer.leases:
        before = "" if answer.changed else f" already, by {view.holder}"
        output.line(f"completed {sentences.named(view)}{before}")
    output.lines(task_text.edited(answer))
