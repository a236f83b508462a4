"""``start`` and ``set``: the status of a task, and the claim or the end that goes with it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gitlease.core.edge import Progress, printable
from gitlease.core.errors import UsageError
from gitlease.engine.queue.order import WhyNot
from gitlease.faces.cli import output, types
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.verb import LEASE_EXITS, Verb

if TYPE_CHECKING:
    from gitlease.core.resources.resource import Resource
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call
    from gitlease.faces.statuses import Status

SCOPE = "Take only this part of its work (default: the whole)."
# What is nothing to a set that does not claim.
CLAIMING = ("ttl", "wait", "reason", "takeover", "expect_holder", "reopen", "scope")


@click.command(
    "start",
    cls=Verb,
    help="""Start a task: claim it, and set its status to in progress in its file.

It is `claim` for a task, with the status: the project's first word for in progress, unless the task
has one of those words already. What is changed in the file is left in your work tree, unless it is
committed.""",
    advice=claiming.LENGTHS,
    examples=(
        "gitlease start F001",
        "gitlease start F001 --ttl 1h --reason 'rate limits'",
        "gitlease start F001 --wait 15m        # block until it is free",
        "gitlease start F001 --commit          # and commit the lines in its task file, alone",
    ),
    exits=LEASE_EXITS,
    done="you hold it, and it is in progress",
    scope=SCOPE,
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names)
@claiming.claim_options
@claiming.commit_option
@click.pass_obj
def start_verb(call: Call, /, *, word: str, **options: Any) -> None:
    _start(call, call.resource(word), claiming.ClaimRequest(**options))


@click.command(
    "set",
    cls=Verb,
    help="""Set the status of a task in its file.

STATUS is todo, in_progress or done, which means the project's first word for it; or one of the
words of tasks.statuses; or a word that another task has already. A status that means in progress
claims the task, as `start` does; one that means done finishes it, as `done` does. Any other changes
the status alone, and who is assigned stays so; of another's task it is refused.""",
    advice=claiming.LENGTHS,
    examples=(
        "gitlease set F001 in_progress --ttl 1h",
        "gitlease set F001 review",
        "gitlease set F001 todo --commit       # and commit the line in its task file, alone",
        "gitlease set F001 done",
    ),
    exits=LEASE_EXITS,
    done="the task has that status",
    scope="Take, or finish, only this part of its work.",
)
@click.argument("word", metavar="RESOURCE", shell_complete=types.known_names)
@click.argument("status", metavar="STATUS", shell_complete=types.known_statuses)
@claiming.claim_options
@claiming.commit_option
@click.pass_obj
def set_verb(call: Call, /, *, word: str, status: str, **options: Any) -> None:
    from gitlease.faces.statuses import read_status

    asked, resource = claiming.ClaimRequest(**options), call.resource(word)
    meant = read_status(status, call.ledger.edges)
    if meant.progress is Progress.IN_PROGRESS:
        _start(call, resource, asked, status=meant.word)
        return
    _refuse_terms(asked, meant)
    if meant.progress is Progress.DONE:
        _finish(call, resource, asked, meant)
    else:
        _set(call, resource, asked, meant)


def _start(
    call: Call, resource: Resource, asked: claiming.ClaimRequest, *, status: str | None = None
) -> None:
    from gitlease.engine import claim

    verb, then = ("start", ()) if status is None else ("set", (status,))
    call.retry = partial(asked.waiting, call, verb, [resource], then=then)
    claiming.expect_wait(asked.wait)
    answer = claim.start(
        call.ledger,
        resource,
        asked.options(),
        status=status,
        wait=asked.wait,
        on_wait=claiming.tell_waiting(call, asked.wait),
    )
    claiming.answer_claim(call, answer, scope=asked.scope)


def _refuse_terms(asked: claiming.ClaimRequest, meant: Status) -> None:
    """Refuse the options of a claim where nothing is claimed."""
    done = meant.progress is Progress.DONE
    for name in CLAIMING:
        given = getattr(asked, name) not in (None, False)
        if given and not (done and name == "scope"):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} needs a status that claims, and {printable(meant.word)} does not",
                hints=("in_progress claims, and so does start",),
            )


def _finish(call: Call, resource: Resource, asked: claiming.ClaimRequest, meant: Status) -> None:
    from gitlease.engine import end
    from gitlease.faces.cli.leases.ending import answer_done

    call.ledger.edges.task(resource)
    answer = end.complete(
        call.ledger, resource, scope=asked.scope, commit=asked.commit, status=meant.word
    )
    answer_done(call, answer)


def _set(call: Call, resource: Resource, asked: claiming.ClaimRequest, meant: Status) -> None:
    from gitlease.engine import end
    from gitlease.faces import wire

    task = call.ledger.edges.task(resource)
    answer = end.set_status(call.ledger, resource, meant.word, commit=asked.commit)
    call.answer(
        wire.ended(answer),
        warnings=answer.warnings,
        hints=_completed(call, task.resource),
        show=lambda: _show(answer, task.file, meant),
    )


def _show(answer: Answer, file: str, meant: Status) -> None:
    from gitlease.faces import task_words

    lines = task_words.edited(answer)
    same = f"the status in {task_words.path(file)} is {printable(meant.word)} already"
    output.lines(lines or [same])


def _completed(call: Call, resource: Resource) -> list[str]:
    """What to say where the ledger has it completed: a word in the file does not reopen that."""
    entry = call.queue.find(resource).entry
    if entry is None or entry.task.is_done or entry.why_not is not WhyNot.DONE:
        return []
    claim = call.typed("claim", resource, options=["--reopen"])
    return [f"the ledger has it completed; to take it up again: {claim}"]
