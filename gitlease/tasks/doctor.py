"""The check of `doctor` on task files."""

from __future__ import annotations

from gitlease.tasks.queue import problem_messages, unknown_statuses
from gitlease.wiring.examined import BAD, GOOD, WARNING, Examined, Row, Rows


def tasks(of: Examined) -> Rows:
    if of.repository.toplevel is None:
        return
    seen = of.kept.task_files().read()
    yield from (Row(BAD, text, "gitlease help tasks") for text in problem_messages(seen))
    for text in unknown_statuses(seen.tasks):
        yield Row(WARNING, text, "gitlease help settings")
    sound = f"each file can be used, with an id of its own: {len(seen.tasks)}"
    if not seen.problems:
        yield Row(GOOD, seen.nothing or sound)
