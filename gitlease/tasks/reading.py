"""Reads every task file of one place, the work tree or a commit, parsing only what changed."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Protocol

from gitlease.core.edge import Progress, Task
from gitlease.core.errors import Invalid
from gitlease.core.frozen import replace
from gitlease.core.resources.pattern import fold
from gitlease.engine.ports import TaskList, TaskProblem
from gitlease.git.files import CACHE
from gitlease.git.objects import Unreadable
from gitlease.settings.sources import Tasks
from gitlease.tasks.cache import UNKNOWN, TaskCache, Value
from gitlease.tasks.scan import (
    MAX_BYTES,
    MAX_PATH,
    Content,
    Found,
    Kind,
    Wanted,
    printable,
)

REFS = "refs"
KEPT_OF_REFS = 20_000  # files of refs that stay remembered when another ref was read last
MAX_MESSAGE = 600


class Place(Protocol):
    """Where task files lie."""

    def walk(self, known: Container[str]) -> Iterator[Found]: ...

    def load(self, found: Found) -> Content | None: ...

    def linked(self, path: str) -> tuple[str | None, bytes]: ...


class TaskReader:
    """Reads places with one cache for each, in a folder of private state."""

    def __init__(self, tasks: Tasks, wanted: Wanted, folder: str) -> None:
        self.parsed = 0
        self._tasks = tasks
        self._wanted = wanted
        self._folder = folder
        self._caches: dict[str, TaskCache] = {}

    def read(self, place: Place, name: str) -> TaskList:
        """Every task of a place; ``name`` is that of its cache. Raises Invalid for too many."""
        cache = self._cache(name)
        values: dict[str, Value] = {}
        links: list[Found] = []
        problems: list[TaskProblem] = []
        for found in place.walk(cache):
            if found.kind is Kind.PROBLEM:
                problems.append(_problem(found.path, found.message))
            elif found.kind is Kind.LINK:
                links.append(found)
            else:
                value = cache.get(found)
                values[found.path] = self._parse(place, found, cache) if value is UNKNOWN else value
        cache.save()
        for found in links:
            target, data = place.linked(found.path)
            if target not in values:  # or else it is another name of what was read already
                keys = self._guessed(found.path, data)
                problems.append(_problem(found.path, found.message, keys))
        problems += [value for value in values.values() if isinstance(value, TaskProblem)]
        tasks, doubles = _single([value for value in values.values() if isinstance(value, Task)])
        return TaskList(
            tasks=tuple(sorted(tasks, key=lambda task: task.file)),
            problems=tuple(sorted([*problems, *doubles], key=lambda problem: problem.file)),
        )

    def _cache(self, name: str) -> TaskCache:
        if name not in self._caches:
            keep = KEPT_OF_REFS if name == REFS else 0
            file = os.path.join(self._folder, name + CACHE)
            self._caches[name] = TaskCache(file, self._tasks, keep=keep)
        return self._caches[name]

    def _parse(self, place: Place, found: Found, cache: TaskCache) -> Value:
        try:
            content = place.load(found)
        except Unreadable as error:
            return _problem(found.path, f"{printable(found.path)} {error}")
        if content is None:
            return None
        self.parsed += 1
        value = self._value(found.path, content.data)
        if content.settled and _is_text(found.path):
            cache.put(found._replace(stamp=content.stamp), value)
        return value

    def _guessed(self, file: str, data: bytes) -> frozenset[str]:
        """The tasks that a file may be about which cannot be used."""
        from gitlease.tasks.text import guess_ids

        return guess_ids(data, tasks=self._tasks) | _keys(file)

    def _value(self, file: str, data: bytes) -> Value:
        """What the bytes of a file say."""
        from gitlease.tasks.text import read_task

        try:
            if not _is_text(file):
                raise Invalid(f"{file}: the name of this file is not UTF-8")
            if len(data) > MAX_BYTES:
                raise Invalid(f"{file} is larger than {MAX_BYTES // 1024} KiB")
            task = read_task(data, file=file, tasks=self._tasks)
        except Invalid as error:
            return _problem(file, error.message, self._guessed(file, data))
        if task is not None and self._wanted.done(file):
            return replace(task, progress=Progress.DONE)
        return task


def _problem(file: str, message: str, keys: Iterable[str] = ()) -> TaskProblem:
    shown = printable(message, MAX_MESSAGE)
    return TaskProblem(printable(file, MAX_PATH), shown, frozenset(keys))


def _single(tasks: Sequence[Task]) -> tuple[list[Task], list[TaskProblem]]:
    """The tasks whose id no other has, and a problem for each of the others."""
    files: dict[str, list[Task]] = {}
    for task in tasks:
        files.setdefault(task.resource.key, []).append(task)
    alone = [same[0] for same in files.values() if len(same) == 1]
    doubles = [
        _double(task, [other for other in same if other is not task])
        for same in files.values()
        if len(same) > 1
        for task in same
    ]
    return alone, doubles


def _double(task: Task, others: Sequence[Task]) -> TaskProblem:
    first = printable(min(other.file for other in others))
    more = f" and of {len(others) - 1} more" if len(others) > 1 else ""
    message = (
        f"{printable(task.file)}:{task.line}: {task.resource} is the id of {first}{more} as well"
    )
    return replace(_problem(task.file, message, (task.resource.key,)), double=True)


def _keys(file: str) -> frozenset[str]:
    """The tasks that a file may be by its name: ``back-7 - Title.md`` may be back-7."""
    name = posixpath.basename(file)
    stem = posixpath.splitext(name)[0]
    return frozenset(fold(word) for word in (stem, *stem.split()[:1]))


def _is_text(file: str) -> bool:
    try:
        file.encode()
    except UnicodeEncodeError:
        return False
    return True
