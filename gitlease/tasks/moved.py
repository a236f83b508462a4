"""Whose doing a task's status of in progress is: by what was set here, and its file's history."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import GitleaseError
from gitlease.core.trailers import read_lines
from gitlease.engine.ports import TaskChange, TaskFiles
from gitlease.git.files import load_json, store_json
from gitlease.git.repository import Repository, ask, ask_line, is_id

MOST = 100  # versions of one file that are looked at
KEPT = 2_000  # files whose status was set here
MAX_BYTES = 4 * 1024 * 1024


def remember(repository: Repository, folder: str, tree: str, changes: Iterable[TaskChange]) -> None:
    """Remember which status these changes set in a work tree, and on what commit. It never fails.

    Who gives a task back and leaves its status, leaves it for good.
    """
    known = _remembered(folder)
    before = dict(known)
    with contextlib.suppress(OSError, GitleaseError):
        for change in changes:
            place = f"{tree}/{change.file}"
            if change.edit.status is not None:
                head = ask_line(repository, "rev-parse", "-q", "--verify", "HEAD")
                known.pop(place, None)
                known[place] = [change.edit.status, head]
            elif change.edit.remove:
                known.pop(place, None)
        if known != before:
            store_json(_file(folder), dict(list(known.items())[-KEPT:]))


def was_set(repository: Repository, files: TaskFiles, folder: str, tree: str, task: Task) -> bool:
    """Whether the status of this task was set here, and no commit since has it otherwise."""
    known = _remembered(folder).get(f"{tree}/{task.file}")
    if not isinstance(known, list) or known[:1] != [task.status]:
        return False
    since = _commits_that_changed_file(
        repository, task, [f"^{x}" for x in known[1:] if is_id(str(x))]
    )
    found = (_task_in(files, commit, task) for commit, _ in since or ())
    return since is not None and all(x is not None and x.status == task.status for x in found)


def was_moved(repository: Repository, files: TaskFiles, task: Task, message: str) -> bool:
    """Whether a claim put this task in progress: not before it, nor by a commit of one's own.

    It is so where the commit that brought this status has a line that begins with ``message``, or
    names a lease of the task, and nobody gave it back since and kept the status. Where git cannot
    tell, or the status is not committed, it is not.
    """
    versions = _commits_that_changed_file(repository, task)
    newer = None
    for commit, body in versions or ():
        found = _task_in(files, commit, task)
        if found is None or found.progress is not Progress.IN_PROGRESS:
            return newer is not None and _is_by_claim(newer, task, message)
        if f"unassign {task.resource}" in _lines(body) and not found.assigned:
            return False
        newer = body
    whole = versions is not None and len(versions) < MOST
    return newer is not None and whole and _is_by_claim(newer, task, message)


def _commits_that_changed_file(
    repository: Repository, task: Task, but: Sequence[str] = ()
) -> list[tuple[str, str]] | None:
    words = ("rev-list", f"--max-count={MOST}", "--encoding=none", "--format=%x00%H%x00%B%x00")
    said = ask(repository, *words, "HEAD", *but, "--", f":(top,literal){task.file}")
    if said.code != 0 or said.timed_out:
        return None
    parts = said.out.decode("utf-8", "replace").split("\0")
    return list(zip(parts[1::3], parts[2::3], strict=False))


def _task_in(files: TaskFiles, commit: str, task: Task) -> Task | None:
    return next((t for t in files.read(commit).tasks if t.resource == task.resource), None)


def _is_by_claim(body: str, task: Task, message: str) -> bool:
    lines = _lines(body)
    named = any(found.key == task.resource.key for found in read_lines(lines))
    return named or any(line.startswith(message) for line in lines)


def _lines(body: str) -> list[str]:
    return [line.removeprefix("- ") for line in body.splitlines()]


def _remembered(folder: str) -> dict[str, object]:
    known = load_json(_file(folder), MAX_BYTES)
    return known if isinstance(known, dict) else {}


def _file(folder: str) -> str:
    return os.path.join(folder, "statuses.json")
