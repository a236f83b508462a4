"""Recognises plain folders of task files by a look at some of them: their fields and statuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gitlease.adapters.recognise_files import (
    SUFFIXES,
    Found,
    Sample,
    Value,
    is_ignored,
    list_files,
    read_samples,
    trouble_with,
)
from gitlease.adapters.recognise_words import core, from_use, note_unplaced
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings_schema import KEYS, read_pattern, usual_handles
from gitlease.domain.errors import UsageError

KIND = "tasks"
FOLDERS = (
    *("tasks", ".tasks", "docs/tasks", "backlog/tasks", ".backlog/tasks", "backlog"),
    *("todo", "todos", ".todo", "docs/todo", "issues", ".issues", "docs/issues"),
    *("tickets", ".tickets", "docs/tickets"),
)
FINISHED = ("done", "completed", "closed", "archive", "archived")
MAX_ENTRIES = 256

# The names that people give to each field, the likeliest first, as `core` has them.
_NAMES = {
    "id": ("id", "key", "taskid"),
    "title": ("title", "name", "summary"),
    "status": ("status", "state"),
    "assigned": ("assigned", "assignee", "assignees", "assignedto", "owner"),
    "priority": ("priority", "prio"),
    "depends_on": ("dependson", "dependencies", "blockedby", "deps"),
    "paths": ("paths", "files"),
    "created": ("created", "createdat", "createddate", "date"),
}
_LISTS = ("assigned", "depends_on", "paths")


def find_folder(repository: Repository, said: list[str]) -> Found | None:
    """The first of the usual folders that has a task file; None where none has.

    What a person should know is added to ``said``.
    """
    root = repository.toplevel or ""
    for folder in FOLDERS:
        if trouble_with(root, folder) is not None:
            continue
        samples, unread = read_samples(root, list_files(root, folder, SUFFIXES))
        fields, tasks = learn_fields(samples)
        if not tasks:
            continue
        if is_ignored(repository, tasks[0].file):
            said.append(f"{folder} is ignored by git: its files cannot be tasks")
            continue
        return _found(folder, tasks, unread, fields, said)
    return None


def _found(
    folder: str, tasks: Sequence[Sample], unread: int, fields: dict[str, str], said: list[str]
) -> Found:
    live: dict[str, Any] = {}
    patterns = [f"{folder}/**/*.md", f"{folder}/**/*.yaml"]
    if any(task.file.lower().endswith(".yml") for task in tasks):
        patterns.append(f"{folder}/**/*.yml")
    if patterns != KEYS["tasks.files"].default:
        live["tasks.files"] = patterns
    finished = [f"{folder}/{name}" for name in FINISHED if _is_in(tasks, f"{folder}/{name}/")]
    if finished:
        live["tasks.completed"] = finished
    names = [n for task in tasks for n in task.fields.get(fields["assigned"], Value()).texts]
    if names and all(name.startswith("@") for name in names) and not usual_handles(patterns):
        live["tasks.handles"] = True
    if unusual := {role: name for role, name in fields.items() if name != role}:
        live["tasks.fields"] = unusual
    words = from_use(Counter(text for task in tasks if (text := task.text(fields["status"]))))
    if words.known:
        live["tasks.statuses"] = words.known
    about: tuple[str, ...] = (f"As the task files in {folder} are written.",) if live else ()
    if unplaced := words.unplaced():
        about += (note_unplaced(unplaced, said),)
    return Found(KIND, folder, len(tasks) + unread, live, about)


def _is_in(tasks: Sequence[Sample], start: str) -> bool:
    return any(task.file.startswith(start) for task in tasks)


def learn_fields(samples: Sequence[Sample]) -> tuple[dict[str, str], list[Sample]]:
    """What each field is called in the files that are tasks, and these files.

    A field that is nowhere found keeps its usual name.
    """
    key = _name_of("id", samples)
    tasks = [sample for sample in samples if sample.is_task(key)]
    return {role: _name_of(role, tasks) if role != "id" else key for role in _NAMES}, tasks


def _name_of(role: str, samples: Sequence[Sample]) -> str:
    """The likeliest name that is nearly as common as the most common one."""
    ranks = {name: rank for rank, name in enumerate(_NAMES[role])}
    counted: Counter[str] = Counter()
    misfits = set()
    for sample in samples:
        for name, value in sample.fields.items():
            if core(name) not in ranks:
                continue
            if _fits(role, value) and (role != "id" or sample.is_task(name)):
                counted[name] += 1
            elif role == "paths":
                misfits.add(name)  # one that is no list of patterns would make its file unusable
    common = [n for n in counted if counted[n] * 2 >= max(counted.values()) and n not in misfits]
    return min(common, key=lambda name: (ranks[core(name)], -counted[name]), default=role)


def _fits(role: str, value: Value) -> bool:
    if value.odd or (value.is_list and role not in _LISTS) or len(value.texts) > MAX_ENTRIES:
        return False
    try:
        for text in value.texts if role == "paths" else ():
            read_pattern(text, role)
    except UsageError:
        return False
    return True
