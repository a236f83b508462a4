"""``set``: change the status of a task, and claim or finish it accordingly."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.edge import Progress, printable
from gitlease.core.errors import UsageError
from gitlease.engine.queue.order import WhyNot
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.verb import LEASE_EXITS, resource_argument, verb

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource
    from gitlease.faces.cli.call import Call
    from gitlease.faces.statuses import Status

CLAIM_OPTIONS = ("ttl", "wait", "reason", "takeover", "expect_holder", "reopen", "scope")


@verb(
    "set",
    """Set the status of a task in its task file.

STATUS is todo, in_progress or done, which stand for the project's first word of that kind; or a
word from tasks.statuses; or a word that another task has already. A status that means in progress
claims the task; in_progress itself keeps another such word that the task has already, and
`start RESOURCE` is short for it. One that means done finishes it, like `done`. Any other changes
only the status, and is refused if the task is someone else's.""",
    advice=claiming.LENGTHS,
    examples=(
        "gitlease set F001 in_progress --ttl 1h",
        "gitlease set F001 review",
        "gitlease set F001 todo --commit       # and commit the line in its task file, alone",
        "gitlease set F001 done",
    ),
    exits=LEASE_EXITS,
    done="the task has that status",
    scope="Claim or finish only this part of the work.",
)
@resource_argument
@click.argument("status", metavar="STATUS", shell_complete=types.known_statuses)
@claiming.claim_options
@claiming.commit_option
def set_verb(call: Call, /, *, word: str, status: str, **options: Any) -> None:
    from gitlease.faces.statuses import read_status

    request, resource = claiming.ClaimRequest(**options), call.resource(word)
    new = read_status(status, call.ledger.edges)
    if new.progress is Progress.IN_PROGRESS:
        _start(call, resource, request, new, typed=status)
        return
    _refuse_claim_options(request, new)
    if new.progress is Progress.DONE:
        from gitlease.engine import end
        from gitlease.faces.cli.leases.ending import answer_done

        call.ledger.edges.task(resource)
        answer = end.complete(
            call.ledger, resource, scope=request.scope, commit=request.commit, status=new.word
        )
        answer_done(call, answer)
    else:
        _set(call, resource, new, commit=request.commit)


def _start(
    call: Call, resource: Resource, request: claiming.ClaimRequest, new: Status, *, typed: str
) -> None:
    from gitlease.engine import claim

    call.retry = partial(request.waiting, call, "set", [resource], then=(typed,))
    claiming.expect_wait(request.wait)
    answer = claim.start(
        call.ledger,
        resource,
        request.options(),
        status=new.to_claim,
        wait=request.wait,
        on_wait=claiming.report_waiting(call, request.wait),
    )
    claiming.answer_claim(call, answer, scope=request.scope)


def _refuse_claim_options(request: claiming.ClaimRequest, new: Status) -> None:
    done = new.progress is Progress.DONE
    for name in CLAIM_OPTIONS:
        given = getattr(request, name) not in (None, False)
        if given and not (done and name == "scope"):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} needs a status that claims, and {printable(new.word)} does not",
                hints=("in_progress claims",),
            )


def _set(call: Call, resource: Resource, new: Status, *, commit: bool | None) -> None:
    from gitlease.engine import end
    from gitlease.faces import task_text, wire

    task = call.ledger.edges.task(resource)
    answer = end.set_status(call.ledger, resource, new.word, commit=commit)
    same = f"the status in {task_text.path(task.file)} is {printable(new.word)} already"
    call.answer(
        wire.ended(answer),
        warnings=answer.warnings,
        hints=_how_to_reopen(call, task.resource),
        show=lambda: output.lines(task_text.edited(answer) or [same]),
    )


def _how_to_reopen(call: Call, resource: Resource) -> list[str]:
    entry = call.queue.find(resource).entry
    if entry is None or entry.task.is_done or entry.why_not is not WhyNot.DONE:
        return []
    claim = call.typed("claim", resource, options=["--reopen"])
    return [f"the ledger lists it as completed; to reopen it: {claim}"]
