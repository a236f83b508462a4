"""Reads every task file of one place, the work tree or a commit, parsing only what changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from gitlease.core.edge import Task
from gitlease.core.frozen import replace
from gitlease.engine.ports import TaskList, TaskProblem, doing
from gitlease.git.files import CACHE, Unreadable
from gitlease.settings.sources import Tasks
from gitlease.tasks.cache import UNKNOWN, TaskCache
from gitlease.tasks.scan import FileKind, FoundFile, TaskPlace, printable, walk, why_no_task
from gitlease.tasks.text import Value, is_utf8, possible_keys, problem_of, value_of

REFS = "refs"
KEPT_OF_REFS = 20_000  # files of refs that stay remembered when another ref was read last


class TaskReader:
    """Reads places with one cache for each, in a folder of private state."""

    def __init__(self, tasks: Tasks, folder: str) -> None:
        self.parsed = 0
        self._tasks = tasks
        self._folder = folder
        self._caches: dict[str, TaskCache] = {}

    def read(
        self, place: TaskPlace, name: str, only: Iterable[FoundFile] | None = None
    ) -> TaskList:
        """Every task of a place, or those of some finds; ``name`` is that of its cache.

        Raises Invalid for too many.
        """
        with doing("reading task files"):
            return self._read(place, self._cache(name), only)

    def _read(
        self, place: TaskPlace, cache: TaskCache, only: Iterable[FoundFile] | None
    ) -> TaskList:
        values: dict[str, Value] = {}
        links: list[FoundFile] = []
        problems: list[TaskProblem] = []
        for found in walk(place, cache) if only is None else only:
            if found.kind is FileKind.PROBLEM:
                problems.append(problem_of(found.path, found.message))
            elif found.kind is FileKind.LINK:
                links.append(found)
            else:
                value = cache.get(found)
                values[found.path] = self._parse(place, found, cache) if value is UNKNOWN else value
        cache.save()
        for found in links:
            target, data = place.linked(found.path)
            if target not in values:  # or else it is another name of what was read already
                keys = possible_keys(data, file=found.path, tasks=self._tasks)
                problems.append(problem_of(found.path, found.message, keys))
        problems += [value for value in values.values() if isinstance(value, TaskProblem)]
        tasks, doubles = _split_by_unique_id(
            [value for value in values.values() if isinstance(value, Task)]
        )
        others = tuple(sorted(printable(file) for file, value in values.items() if value is None))
        return TaskList(
            tasks=tuple(sorted(tasks, key=lambda task: task.file)),
            problems=tuple(sorted([*problems, *doubles], key=lambda problem: problem.file)),
            others=others,
            nothing="" if tasks else why_no_task(self._tasks, others),
        )

    def _cache(self, name: str) -> TaskCache:
        if name not in self._caches:
            keep = KEPT_OF_REFS if name == REFS else 0
            file = os.path.join(self._folder, name + CACHE)
            self._caches[name] = TaskCache(file, self._tasks, keep=keep)
        return self._caches[name]

    def _parse(self, place: TaskPlace, found: FoundFile, cache: TaskCache) -> Value:
        try:
            content = place.load(found)
        except Unreadable as error:
            return problem_of(found.path, f"{printable(found.path)} {error}")
        if content is None:
            return None
        self.parsed += 1
        value = value_of(content.data, file=found.path, tasks=self._tasks, wanted=place.wanted)
        if content.settled and is_utf8(found.path):
            cache.put(found._replace(stamp=content.stamp), value)
        return value


def _split_by_unique_id(tasks: Sequence[Task]) -> tuple[list[Task], list[TaskProblem]]:
    files: dict[str, list[Task]] = {}
    for task in tasks:
        files.setdefault(task.resource.key, []).append(task)
    alone = [same[0] for same in files.values() if len(same) == 1]
    doubles = [
        _double_id(task, [other for other in same if other is not task])
        for same in files.values()
        if len(same) > 1
        for task in same
    ]
    return alone, doubles


def _double_id(task: Task, others: Sequence[Task]) -> TaskProblem:
    first = printable(min(other.file for other in others))
    more = f" and of {len(others) - 1} more" if len(others) > 1 else ""
    message = (
        f"{printable(task.file)}:{task.line}: {task.resource} is the id of {first}{more} as well"
    )
    return replace(problem_of(task.file, message, (task.resource.key,)), double=True)
