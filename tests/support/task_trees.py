"""Work trees with task files, for the tests of what finds, reads and changes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from gitlease.kernel.git.repository import discover
from gitlease.kernel.ledger.ports import TaskChange, TaskList
from gitlease.kernel.rules.edge import EdgeEdit
from gitlease.kernel.rules.resources import name_resource
from gitlease.kernel.settings.schema import KEYS, Tasks
from gitlease.tasks.files import GitTaskFiles
from support.repos import git

LONG_AGO = 1_700_000_000


def _is_unhindered() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0)
        return os.access(file.name, os.R_OK)


HINDERED = pytest.mark.skipif(_is_unhindered(), reason="root may read and write everything")


def tasks_like(*files: str, completed: tuple[str, ...] = (), **fields: str) -> Tasks:
    """The settings of task files: these patterns, else the usual ones."""
    return Tasks(
        files=files or tuple(KEYS["tasks.files"].default),
        completed=completed,
        required=None,
        fields={**KEYS["tasks.fields"].default, **fields},
        statuses={role: tuple(words) for role, words in KEYS["tasks.statuses"].default.items()},
    )


def text_of(name: str, more: str = "") -> str:
    """A Markdown task without assignee."""
    return f"---\nid: {name}\ntitle: The {name}\nstatus: todo\n{more}---\n\nWork.\n"


def put(root: Path, file: str, text: str | bytes, *, old: bool = True) -> Path:
    """Write a file, as if long ago unless it has to look new."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if old:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def put_task(root: Path, file: str, name: str | None = None, more: str = "") -> Path:
    """Write a task file of a task called like the file, or otherwise."""
    return put(root, file, text_of(name or Path(file).stem, more))


def commit_all(root: Path) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "change")
    return git(root, "rev-parse", "HEAD")


def open_files(root: Path, tasks: Tasks | None = None) -> GitTaskFiles:
    """The task files of a work tree or bare repository, as a new process would see them."""
    repository = discover(str(root))
    private = Path(repository.common_dir, "gitlease")
    folder, journal = str(private / "tasks"), str(private / "intents")
    return GitTaskFiles(repository, tasks or tasks_like(), folder=folder, journal=journal)


def change_of(file: str, name: str | None = None, **edit: object) -> TaskChange:
    """The change of a task called like its file: jo becomes an assignee, or another edit."""
    resource = name_resource(name or Path(file).stem)
    made = EdgeEdit(**(edit or {"add": "jo@example.com"}))  # type: ignore[arg-type]
    return TaskChange(resource, file, made, f"assign {resource}")


def names(listed: TaskList) -> list[str]:
    return [task.resource.text for task in listed.tasks]


def problems(listed: TaskList) -> Mapping[str, str]:
    """The messages of the problems by file."""
    return {problem.file: problem.message for problem in listed.problems}
