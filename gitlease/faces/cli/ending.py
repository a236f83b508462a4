"""The verbs that end leases, and ``note``, for the next holder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gitlease.core.errors import UsageError
from gitlease.core.resources.pattern import fold
from gitlease.faces.cli import output, refusals, types
from gitlease.faces.cli.claiming import OWN_SCOPES, any_option, commit_option
from gitlease.faces.cli.verb import (
    LEASE_EXITS,
    flag,
    option,
    optional_resources_argument,
    resource_argument,
    verb,
)
from gitlease.verbs import sentences, task_text, wire

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
    from gitlease.engine import acts

    if all:
        if words or scope is not None:
            raise UsageError("--all releases everything: it takes no resource and no --scope")
        return _release_all(call, note=note, keep_status=keep_status, commit=commit)
    if not words:
        raise UsageError("missing resource: name one, or use --all")
    resources = call.resources(words)
    answer = acts.release(
        call.ledger, resources, scope=scope, note=note, keep_status=keep_status, commit=commit
    )
    return call.answer_verb(
        answer, wire.ended(answer), show=lambda: _show_released(answer, resources, note)
    )


def _release_all(call: Call, *, note: str | None, keep_status: bool, commit: bool | None) -> int:
    from gitlease.engine import acts

    layers = [space.ledger for space in call.workspace.in_use]
    answer = acts.release_all(layers, note=note, keep_status=keep_status, commit=commit)

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
    from gitlease.engine import acts

    resource = call.resource(word)
    call.release = lambda: _releasing(call, resource, scope)
    answer_done(
        call, acts.complete(call.ledger, resource, scope=scope, commit=commit, any_name=any)
    )


def _releasing(call: Call, resource: Resource, scope: str | None) -> str:
    from gitlease.engine.reading import is_in_ledger
    from gitlease.wiring.words import file_called

    known = resource.is_path or is_in_ledger(call.ledger.known_look(), resource)
    file = None if known else file_called(call.workspace.repository, resource.text)
    options = refusals.scoped(scope)
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


@verb(
    "note",
    """Leave a note for the next holder of RESOURCE. Anyone may, with or without a lease.

`show` and every claim display it until the work is done.""",
    examples=(
        "gitlease note F001 'the fixture in tests/api is flaky'",
        "gitlease note src/auth/ 'ask jo before touching the tokens'",
    ),
    exits=LEASE_EXITS[1:],
    done="the note is left",
)
@resource_argument
@click.argument("text", metavar="TEXT", type=types.note)
@any_option
def note_verb(call: Call, *, word: str, text: str, any: bool) -> None:
    from gitlease.engine import acts
    from gitlease.faces.cli.reading import check_names

    resource = call.resource(word)
    if not any:
        check_names(call, [resource])
    answer = acts.note(call.ledger, resource, text)
    call.answer_verb(
        answer,
        wire.changed(answer) | {"notes": [wire.note(n) for n in answer.notes]},
        show=lambda: output.line(f"left your note for the next holder of {resource}"),
    )


@verb(
    "revoke",
    """End someone else's lease. Only the ledger's admins may; the holder is notified.

If the holder is gone for good, just wait: a lease that is not renewed ends by itself. The ledger's
policy names the admins (`config --ledger admins`). By default there are none.""",
    examples=(
        "gitlease revoke F001 --reason 'the machine is gone'",
        "gitlease revoke F001 --reason 'stuck run' --expect-holder jo@example.com",
        "gitlease revoke --record leases/ab/cd.yaml --reason 'cannot be read'",
    ),
    exits=LEASE_EXITS,
    done="the resource is free",
    scope="Only this scope (default: all).",
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names, required=False)
@option(
    "--reason",
    metavar="TEXT",
    type=types.reason,
    required=True,
    help="Why; shown to the holder.",
)
@option("--expect-holder", metavar="H", help="Only if H holds it.")
@option("--record", metavar="FILE", help="Remove this damaged record instead.")
def revoke_verb(
    call: Call,
    *,
    word: str | None,
    reason: str,
    expect_holder: str | None,
    record: str | None,
    scope: str | None,
) -> None:
    from gitlease.engine import acts

    if (word is None) == (record is None):
        raise UsageError("name either a resource or, with --record, a damaged record")
    if word is None and record is not None:
        if expect_holder is not None or scope is not None:
            raise UsageError("--record takes neither --scope nor --expect-holder")
        dropped = acts.drop_record(call.ledger, record, reason=reason)
        _answer(call, dropped, f"removed the damaged record {record}")
    elif word is not None:
        resource = call.resource(word)
        revoked = acts.revoke(
            call.ledger, resource, reason=reason, scope=scope, expect_holder=expect_holder
        )
        _answer(call, revoked, f"{resource} is not leased: nothing to revoke")


def _answer(call: Call, answer: Answer, otherwise: str) -> None:
    def show() -> None:
        for view in answer.leases:
            output.line(f"revoked {sentences.named(view)} from {sentences.whose(view)}")
        if not answer.leases:
            output.line(otherwise)

    call.answer_verb(answer, wire.changed(answer), show=show)
