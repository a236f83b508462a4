"""The queue over many task files."""

from __future__ import annotations

import os
from pathlib import Path

from support.remotes import Remote
from support.repos import git

from benchmarks.bench import Bench

TASK = """---
id: T{number:04d}
title: Task number {number} of many
status: {status}
assigned: []
priority: {priority}
depends_on: [T{before:04d}]
created: 2026-01-{day:02d}
paths:
  - src/part{number}
---

What is to be done, in a few words.
"""


# Milliseconds over the bare push of the same round.
AIMS_MS = {"queue, cold": 850.0, "queue, warm": 80.0, "next --claim": 150.0}


class TaskBench(Bench):
    """The queue over many task files: with nothing remembered of them, and with all of it."""

    def __init__(self, remote: Remote, folder: Path, python: str, number: int) -> None:
        super().__init__(remote, folder, python)
        files = self.clone / "tasks"
        files.mkdir()
        for n in range(1, number + 1):
            text = TASK.format(
                number=n,
                before=n // 2,
                day=n % 28 + 1,
                status=("todo", "todo", "done")[n % 3],
                priority=("high", "medium", "low")[n % 3],
            )
            (files / f"T{n:04d}.md").write_text(text, encoding="utf-8")
        git(self.clone, "add", "tasks")
        git(self.clone, "commit", "-qm", "tasks")
        self._words("claim", "T0001", "--ttl", "8h")
        self.timings.clear()

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """By how much it may take longer than the bare push."""
        return took - base <= AIMS_MS[name] if name in AIMS_MS else None

    def round(self) -> None:
        """Every operation once, with the bare push between them."""
        for name in os.listdir(self._cache):
            (self._cache / name).unlink()
        self._words("queue", "--all", name="queue, cold")
        self._bare_push()
        self._words("queue", "--all", name="queue, warm")
        self._words("queue", "--all", "--ref", "HEAD", name="queue --ref HEAD")
        self._bare_push()
        self._words("claim", "T0003", name="claim of one")
        self._words("release", "T0003", name="release of one")
        self._bare_push()
        self._words("next", "--claim", name="next --claim")

    @property
    def _cache(self) -> Path:
        return self.clone / ".git" / "gitlease" / "tasks"
