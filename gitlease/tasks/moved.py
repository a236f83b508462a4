"""Whose doing a task's status of in progress is: by what was set here, and its file's history."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from gitlease.core.edge import Progress, Task
from gitlease.core.trailers import read_lines
from gitlease.engine.ports import TaskChange, TaskFiles
from gitlease.git.files import load_json, store_json
from gitlease.git.query import ask
from gitlease.git.repository import Repository

MOST = 100  # versions of one file that are looked at
KEPT = 2_000  # files whose status was set here
MAX_BYTES = 4 * 1024 * 1024


def remember(folder: str, tree: str, changes: Iterable[TaskChange]) -> None:
    """Remember which status these changes set in a work tree. It never fails.

    Who gives a task back and leaves its status, leaves it for good.
    """
    known = _remembered(folder)
    before = dict(known)
    for change in changes:
        place = f"{tree}/{change.file}"
        if change.edit.status is not None:
            known.pop(place, None)
            known[place] = change.edit.status
        elif change.edit.remove:
            known.pop(place, None)
    if known != before:
        with contextlib.suppress(OSError):
            store_json(_file(folder), dict(list(known.items())[-KEPT:]))


def was_set(folder: str, tree: str, task: Task) -> bool:
    """Whether the status of this task was set here, and not by a hand."""
    return _remembered(folder).get(f"{tree}/{task.file}") == task.status


def _remembered(folder: str) -> dict[str, object]:
    known = load_json(_file(folder), MAX_BYTES)
    return known if isinstance(known, dict) else {}


def _file(folder: str) -> str:
    return os.path.join(folder, "statuses.json")


def was_moved(repository: Repository, files: TaskFiles, task: Task, message: str) -> bool:
    """Whether a claim put this task in progress: not before it, nor by a commit of one's own.

    It is so where the commit that brought this status has a line that begins with ``message``, or
    names a lease of the task. Where git cannot tell, or the status is not committed, it is not.
    """
    words = ("rev-list", f"--max-count={MOST}", "--encoding=UTF-8", "--format=%x00%H%x00%B%x00")
    said = ask(repository, *words, "HEAD", "--", f":(top,literal){task.file}")
    if said.code != 0 or said.timed_out:
        return False
    parts = said.out.decode("utf-8", "replace").split("\0")
    versions = list(zip(parts[1::3], parts[2::3], strict=False))
    newer = None
    for commit, body in versions:
        found = next((t for t in files.read(commit).tasks if t.resource == task.resource), None)
        if found is None or found.progress is not Progress.IN_PROGRESS:
            return newer is not None and _is_by_claim(newer, task, message)
        newer = body
    return newer is not None and len(versions) < MOST and _is_by_claim(newer, task, message)


def _is_by_claim(body: str, task: Task, message: str) -> bool:
    lines = [line.removeprefix("- ") for line in body.splitlines()]
    named = any(found.key == task.resource.key for found in read_lines(lines))
    return named or any(line.startswith(message) for line in lines)
