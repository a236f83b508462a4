"""The Markdown page that describes a task to a command under ``GITLEASE_BRIEF``."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.edge import Task
from gitlease.core.errors import clean
from gitlease.core.resources.resource import word_anywhere
from gitlease.engine.answers import Answer
from gitlease.faces import sentences


def brief(answer: Answer, task: Task | None, *, prog: str, done: bool, commit: bool = False) -> str:
    """Return the page. ``prog`` is the command name of gitlease.

    ``done``: exit status 0 finishes the task. ``commit``: finishing commits the task file.
    """
    parts = [f"# {_title(answer, task)}"]
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


def _title(answer: Answer, task: Task | None) -> str:
    names = ", ".join(view.resource for view in answer.leases)
    return f"{names}: {task.title}" if task is not None and task.title else names


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
