"""``run --detach``, which ``dispatch`` is: the command goes on in the background, with a log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gitlease.core.errors import LeaseHeld
from gitlease.faces import next_steps, sentences
from gitlease.faces.cli import output
from gitlease.faces.cli.leases import claiming
from gitlease.faces.cli.runs.request import RunCall

if TYPE_CHECKING:
    from gitlease.engine.answers import Answer
    from gitlease.faces.cli.call import Call
    from gitlease.runs.runs import RunRecord
    from gitlease.wiring.workspace import Workspace


def run_detached(call: Call, command: tuple[str, ...], options: dict[str, Any]) -> None:
    """Claim, and leave the command to a process of its own."""
    from gitlease.wiring.dispatch import dispatch, in_its_own_session

    call.command = "dispatch"
    asked, opener = RunCall(call, "dispatch", command, options), call.opener

    def open_anew(directory: str, **given: Any) -> Workspace:
        return in_its_own_session(opener(directory, **given), call.session)

    call.opener = open_anew
    try:
        answer = asked.claim()
        record = dispatch(
            call.workspace,
            answer,
            asked.request,
            say=_print,
            on_stop=lambda why: _print(sentences.stopping(why)),
        )
    except LeaseHeld as held:
        held.hints = (*held.hints, *_where_it_runs(call, held))
        raise
    call.warnings += asked.remarks(answer)
    _answer(call, answer, record)


def _print(text: str) -> None:
    """A line of the log."""
    output.aside(f"gitlease: {text}")
    sys.stderr.flush()


def _where_it_runs(call: Call, held: LeaseHeld) -> list[str]:
    """How to look after the run in the background that has it, where it is one of this clone."""
    from gitlease.runs.dispatching import run_in_the_way
    from gitlease.wiring.dispatch import runs_of

    runs, sessions = runs_of(call.workspace), [view.session for view in held.views]
    record = run_in_the_way(runs, sessions, held.resource, call.workspace.layer)
    if record is None:
        return []
    return [call.typed("dispatch", options=["--logs", record.resources[0]])]


def _answer(call: Call, answer: Answer, record: RunRecord) -> None:
    from gitlease.faces import wire

    steps = next_steps.after_dispatch(call, record.resources[0])
    body = wire.claimed(answer) | {
        "status": "dispatched",
        "run": wire.background(record, "running"),
    }
    call.answer(
        body,
        warnings=answer.warnings,
        views=answer.leases,
        next_steps=[*steps],
        hints=next_steps.hints(steps),
        show=lambda: _show(call, answer, record),
    )


def _show(call: Call, answer: Answer, record: RunRecord) -> None:
    claiming.show_claimed(call, answer)
    output.line(f"dispatched as process {record.runner}, session {record.session}")
    output.line(f"log: {record.log}")
