"""The page that describes a task to a command (``GITLEASE_BRIEF``), and the events of a pool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gitlease.core.edge import Task
from gitlease.core.errors import clean
from gitlease.core.instant import humanize_duration
from gitlease.core.resources.resource import word_anywhere
from gitlease.engine.answers import Answer
from gitlease.runs.pool import DONE, FAILED, GIVEN_BACK, LOST, STOPPED, PoolEvent
from gitlease.verbs import sentences
from gitlease.verbs.wire import SCHEMA

if TYPE_CHECKING:
    from gitlease.runs.pool import PoolRan


def brief(answer: Answer, task: Task | None, *, prog: str, done: bool, commit: bool = False) -> str:
    """Return the page. ``prog`` is the command name of gitlease.

    ``done``: exit status 0 finishes the task. ``commit``: finishing commits the task file.
    """
    names = ", ".join(view.resource for view in answer.leases)
    parts = [f"# {names}: {task.title}" if task is not None and task.title else f"# {names}"]
    if task is not None:
        facts = [f"Task file: {task.file}", f"Status: {task.status}" if task.status else ""]
        parts.append("\n".join(fact for fact in facts if fact))
    paths = list(dict.fromkeys(path for view in answer.leases for path in view.paths))
    if paths:
        parts.append(_section("Paths that you may change", [f"`{path}`" for path in paths]))
    if answer.notes:
        parts.append(_section("Notes", [sentences.noted(note) for note in answer.notes]))
    parts.append(_section("What to do", _steps(answer, prog, done=done, commit=commit)))
    return clean("\n\n".join(parts)) + "\n"


def _steps(answer: Answer, prog: str, *, done: bool, commit: bool) -> list[str]:
    word = word_anywhere(answer.leases[0].resource)
    finish = f"run `{prog} done {word}{' --commit' * commit}` as your last step"
    if done:
        finish = "exit with status 0, which marks the task as done"
    return [
        "You hold the lease, and it is renewed while you run. Others cannot take this task.",
        f"When the work is finished and pushed, {finish}.",
        f"If you cannot finish, run `{prog} note {word} 'what is left'`, and exit with another "
        "status; the task is given back.",
        "If you get a TERM signal, stop: the lease is lost, or someone stops the run.",
    ]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"## {title}", "", *(f"- {line}" for line in lines)))


OUTCOMES = (DONE, GIVEN_BACK, FAILED, LOST, STOPPED)
IN_WORDS = {
    DONE: "done",
    GIVEN_BACK: "was not finished",
    FAILED: "failed",
    LOST: "lost its lease",
    STOPPED: "stopped",
}


def document(event: PoolEvent) -> dict[str, Any]:
    """Return the JSON line; ``event`` is started, ended, left_alone, idle, trouble or warning."""
    body: dict[str, Any] = {"schema": SCHEMA, "event": event.kind}
    if event.job is not None:
        record = event.job.record
        body |= {"resource": event.job.name, "session": record.session, "log": record.log}
    if event.end is not None:
        body |= {"outcome": event.end.outcome, "exit": event.end.exit}
        body |= {"seconds": _age(event)}
    if event.failures:
        body |= {"failures": event.failures}
    message = event.message or (event.end.message if event.end is not None else None)
    return body | {"message": message}


def sentence(event: PoolEvent) -> str:
    """Return the event as a sentence."""
    if event.job is None:
        idle = event.kind == "idle"
        return "no task is left to claim; waiting" if idle else f"{event.message}; still trying"
    record, name = event.job.record, event.job.name
    if event.kind == "left_alone":
        failures = "1 failure" if event.failures == 1 else f"{event.failures} failures"
        return f"{name} is skipped from now on, after {failures}"
    if event.end is None:
        return f"{name} started, session {record.session}, log {record.log}"
    said = f"{name} {IN_WORDS[event.end.outcome]} after {humanize_duration(_age(event))}"
    said += f", status {event.end.exit}" if event.end.exit else ""
    return f"{said}: {event.end.message}" if event.end.message else said


def finished(ran: PoolRan) -> dict[str, Any]:
    """Return the last line, with the number of tasks for each outcome and what is left."""
    totals: dict[str, Any] = {name: ran.counts.get(name, 0) for name in OUTCOMES}
    totals |= {"left": ran.left, "stranded": sorted(ran.stranded)}
    return {"schema": SCHEMA, "event": "finished", "ok": True, "command": "work"} | totals


def summary(ran: PoolRan) -> str:
    """Return the last line as a sentence."""
    counts: dict[str, int] = {**ran.counts, "left": ran.left, "stranded": len(ran.stranded)}
    words = (*OUTCOMES, "left", "stranded")
    totals = [f"{counts[name]} {name.replace('_', ' ')}" for name in words if counts.get(name)]
    return f"finished: {', '.join(totals) or 'there was nothing to do'}"


def _age(event: PoolEvent) -> int:
    return 0 if event.job is None else int(time.monotonic() - event.job.began)
