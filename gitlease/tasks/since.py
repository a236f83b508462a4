"""The time at which a task's file began to name somebody."""

from __future__ import annotations

import contextlib
import os

from gitlease.core.edge import Task
from gitlease.core.instant import MS
from gitlease.git.repository import Repository, ask


def assigned_since(repository: Repository, task: Task, name: str, ref: str | None) -> int | None:
    """When a task's file began to name somebody, in milliseconds; None if git cannot tell.

    In the work tree (no ``ref``) a name that is not committed counts from the file's own time.
    """
    file, commit = f":(top,literal){task.file}", ref or "HEAD"
    if ref is None and not _is_committed(repository, task, name):
        with contextlib.suppress(OSError):
            root = repository.toplevel or ""
            return os.stat(os.path.join(root, task.file)).st_mtime_ns // 1_000_000
        return None
    search = (f"-S{name}", "--no-textconv") if name else ()
    words = ("log", "-1", "--format=%at", *search, "--end-of-options", commit)
    said = ask(repository, *words, "--", file)
    text = said.out.decode("ascii", "replace").strip()
    return int(text) * MS if said.code == 0 and text.isdigit() else None


def _is_committed(repository: Repository, task: Task, name: str) -> bool:
    said = ask(repository, "cat-file", "blob", f"HEAD:{task.file}")
    return said.code == 0 and name.encode() in said.out
