"""The claim for a command, the page that describes its task to it, and the events of a pool."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gitlease.core.edge import Task
from gitlease.core.errors import UsageError, clean
from gitlease.core.frozen import replace
from gitlease.core.resources import Resource, parse_resource, word_anywhere
from gitlease.engine.answers import Answer
from gitlease.runs.leased_command import RunRequest, claim_to_run
from gitlease.runs.pool import PoolEvent
from gitlease.runs.records import DONE, FAILED, GIVEN_BACK, LOST, STOPPED, WAITING
from gitlease.verbs import sentences
from gitlease.verbs.table import DoorOfClone, find_verb
from gitlease.verbs.wire import SCHEMA


def claim_for_run(
    door: DoorOfClone,
    request: RunRequest,
    resources: Sequence[Resource],
    terms: Mapping[str, Any],
    *,
    next: bool,
) -> Answer:
    """Claim what a command is to run under: these, or the ``next`` task. ``terms`` of a ``claim``.

    Raises UsageError if they do not fit, and NoCommand or CannotExecute before anything is claimed.
    """
    option, any_name = door.option, terms.get("any", False)
    if next and (resources or terms.keys() - find_verb("next").parameters.keys()):
        raise UsageError(
            f"{option('next')} takes the first task: it only accepts {option('ttl')}, "
            f"{option('reason')}, {option('done')} and {option('commit')}"
        )
    if not next and not resources:
        raise UsageError(f"missing resource: name one, or use {option('next')}")
    for resource in resources if request.done else ():
        if resource.is_path or (any_name and door.needs_any(resource.text)):
            raise UsageError(
                f"{resource} is not a task, and only tasks are done: leave out {option('done')}",
                resource=resource.text,
            )
    warnings = door.check_claim(resources, terms.get("paths", ()), any_name=any_name)
    answer = claim_to_run(
        door.workspace, request, resources, wait=terms.get("wait"), on_wait=door.on_wait
    )
    return replace(answer, warnings=(*warnings, *answer.warnings))


def brief_of(door: DoorOfClone, answer: Answer, *, prog: str = "gitlease", done: bool) -> str:
    """Return the page about the first task of a claim."""
    entry = door.queue.find(parse_resource(word_anywhere(answer.leases[0].resource))).entry
    return brief(answer, entry.task if entry else None, prog, done=done)


def brief(
    answer: Answer,
    task: Task | None,
    prog: str,
    *,
    done: bool,
    commit: bool = False,
    lands: bool = False,
) -> str:
    """Return the page. ``prog`` is the command name of gitlease.

    ``done``: exit status 0 finishes the task. ``commit``: finishing commits the task file.
    ``lands``: what is committed lands then.
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
    parts.append(_section("What to do", _steps(answer, prog, done, commit, lands)))
    return clean("\n\n".join(parts)) + "\n"


def _steps(answer: Answer, prog: str, done: bool, commit: bool, lands: bool) -> list[str]:
    word = word_anywhere(answer.leases[0].resource)
    finish = f"run `{prog} done {word}{' --commit' * commit}` as your last step"
    if done:
        finish = "exit with status 0, which marks the task as done"
    finish = f"When the work is finished and pushed, {finish}."
    if lands:
        finish = (
            "When the work is finished and committed, exit with status 0: it is landed for you."
        )
    return [
        "You hold the lease, and it is renewed while you run. Others cannot take this task.",
        finish,
        f"If you cannot finish, run `{prog} note {word} 'what is left'`, and exit with another "
        "status; the task is given back.",
        f"If you need a person, run `{prog} park {word} --reason 'what for'`, and exit.",
        "If you get a TERM signal, stop: the lease is lost, or someone stops the run.",
    ]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"## {title}", "", *(f"- {line}" for line in lines)))


def is_landing(door: DoorOfClone, options: Mapping[str, Any], terms: Mapping[str, Any]) -> bool:
    """Whether a pool lands. Raises UsageError for options and ``terms`` that do not fit."""
    option, lands = door.option, bool(options["land"]) or options["pr"] is not None
    ends = [option(x) for x in ("land", "pr", "done_on_success") if options[x] not in (None, False)]
    given = [option(x) for x, value in terms.items() if value and x != "base"]
    if len(ends) > 1:
        raise UsageError(f"{ends[0]} cannot be combined with {ends[1]}")
    if given and not lands:
        raise UsageError(f"{given[0]} needs {option('land')} or {option('pr')}")
    if terms.get("base") is not None and not (options["worktrees"] or lands):
        raise UsageError(f"{option('base')} needs {option('worktrees')}")
    return lands


OUTCOMES = (DONE, GIVEN_BACK, FAILED, LOST, STOPPED, WAITING)


def document(event: PoolEvent) -> dict[str, Any]:
    """Return the JSON line; ``event`` is started, ended, left_alone, idle, enough,
    trouble or warning."""
    body: dict[str, Any] = {"schema": SCHEMA, "event": event.kind}
    if event.job is not None:
        record = event.job.record
        body |= {"resource": event.job.name, "session": record.session, "log": record.log}
    if event.end is not None:
        body |= {"outcome": event.end.outcome, "exit": event.end.exit}
        body |= {"seconds": age(event)}
    if event.failures:
        body |= {"failures": event.failures}
    message = event.message or (event.end.message if event.end is not None else None)
    return body | {"message": message}


def age(event: PoolEvent) -> int:
    return 0 if event.job is None else int(time.monotonic() - event.job.began)
