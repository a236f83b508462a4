"""Whose doing a task's status of in progress is, by the history of its file."""

from __future__ import annotations

from gitlease.core.edge import Progress, Task
from gitlease.core.trailers import read_lines
from gitlease.engine.ports import TaskFiles
from gitlease.git.query import ask
from gitlease.git.repository import Repository

MOST = 100  # versions of one file that are looked at


def was_moved(repository: Repository, files: TaskFiles, task: Task, message: str) -> bool:
    """Whether a claim put this task in progress: not before it, nor by a commit of one's own.

    It is so where the last commit has another status, and where the commit that brought this one
    has a line that begins with ``message``, or names a lease of the task. Where git cannot tell,
    as of a file that was never committed, it is not.
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
        if found is None and newer is None:
            return False
        if found is None or found.progress is not Progress.IN_PROGRESS:
            return newer is None or _is_by_claim(newer, task, message)
        newer = body
    return newer is not None and len(versions) < MOST and _is_by_claim(newer, task, message)


def _is_by_claim(body: str, task: Task, message: str) -> bool:
    lines = [line.removeprefix("- ") for line in body.splitlines()]
    named = any(found.key == task.resource.key for found in read_lines(lines))
    return named or any(line.startswith(message) for line in lines)
