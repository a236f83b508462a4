"""Proposes settings that fit the task files of a project, from the folders, keys and values in use.

It only proposes: what counts as a task is decided by the settings alone.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gitlease.core.edge import Progress, Task, printable
from gitlease.core.errors import Invalid, UsageError
from gitlease.core.frozen import replace
from gitlease.core.resources import escape, fold, name_resource
from gitlease.git.files import read_regular
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import run_git
from gitlease.git.yaml_nodes import BadYaml, Node, Shape, read_yaml
from gitlease.settings.parse import parse_settings
from gitlease.settings.schema import FILE_STEM, KEYS, STATUSES
from gitlease.settings.text import (
    SuggestedSettings,
    letters,
    settings_yaml,
    statuses_of,
    suggest_settings,
)
from gitlease.tasks.reading import MAX_DEPTH, find_front, is_yaml
from gitlease.tasks.scan import MAX_BYTES, OWN

MAX_FILES = 5_000  # read at most
MAX_ROOTS = 8
ENDINGS = (".md", ".markdown", ".yaml", ".yml")
FOLDERS = frozenset(
    ("task", "tasks", "todo", "todos", "issue", "issues", "ticket", "tickets", "backlog", "bugs")
)
OTHERS = frozenset((".github", ".gitlab", ".circleci", "node_modules", "vendor", "third_party"))

# The names of fields in use, letters only; the most usual one first.
ROLES: Mapping[str, tuple[str, ...]] = {
    "status": ("status", "state", "column"),
    "assigned": ("assigned", "assignee", "assignees", "assignedto", "owner", "owners"),
    "id": ("id", "ticket", "key", "taskid", "ticketid", "issueid", "task", "issue", "number"),
    "title": ("title", "name", "summary", "subject"),
    "priority": ("priority", "prio", "severity"),
    "depends_on": ("dependson", "dependencies", "depends", "blockedby", "requires"),
    "paths": ("paths",),
    "created": ("created", "createdat", "createddate", "createdon", "date"),
}
MARKS = ("id", "title", "status", "assigned")  # a task has some of these


class _Sample(NamedTuple):
    """A file that looks like a task, with the texts of its fields."""

    path: str
    fields: Mapping[str, Sequence[str]]


def fitting_settings(repository: Repository) -> SuggestedSettings:
    """Settings that fit the work tree: Backlog.md's, else by what its files have in common."""
    suggested = suggest_settings(repository)
    if suggested.folder is not None or suggested.warnings or repository.toplevel is None:
        return suggested
    samples, headed = _samples(repository, repository.toplevel)
    suggested = replace(suggested, headed=tuple(headed))
    values = _values(samples)
    if not values:
        return suggested
    text = settings_yaml(values, about=("As in the task files that are here.",))
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError):
        return suggested
    return replace(suggested, text=text, proposed=tuple(values))


def fitting_statuses(
    tasks: Iterable[Task], known: Mapping[str, Sequence[str]]
) -> SuggestedSettings | None:
    """Known status words, joined by the unknown ones of tasks that have one usual meaning."""
    unknown = [task.status for task in tasks if task.progress is Progress.OTHER]
    more = statuses_of(unknown, dict.fromkeys(known, ()))
    statuses = {role: [*words, *more[role]] for role, words in known.items()}
    text = settings_yaml({"tasks.statuses": statuses})
    return SuggestedSettings(text, proposed=("tasks.statuses",)) if any(more.values()) else None


def _samples(repository: Repository, root: str) -> tuple[list[_Sample], list[str]]:
    # The files that look like tasks, and those of their folders that have nothing but a heading.
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--")
    wanted = [f":(icase)*{ending}" for ending in ENDINGS]
    said = run_git([*words, *wanted], cwd=root, timeout=TIMEOUT, repository=True)
    paths = [os.fsdecode(x) for x in sorted(set(said.out.split(b"\0"))) if x]
    found, headed = list[_Sample](), list[str]()
    for path in [x for x in paths if _named_folder(x)][:MAX_FILES]:
        name = posixpath.basename(path)
        if name.startswith(OWN) or not OTHERS.isdisjoint(path.split("/")):
            continue
        try:
            data = read_regular(os.path.join(root, path), MAX_BYTES) or b""
            front = find_front(data, path)
        except (Invalid, OSError):
            continue
        fields = None if front is None else _fields(front.text)
        if fields is None:
            heading_alone = front is None and data.startswith(b"# ") and not is_yaml(path)
            if heading_alone and not fold(name).startswith("readme"):
                headed.append(printable(path))
        elif sum(any(letters(k) in ROLES[r] for k in fields) for r in MARKS) > int(is_yaml(path)):
            found.append(_Sample(path, fields))
    return found, headed


def _fields(front: str) -> dict[str, list[str]] | None:
    try:
        top, _ = read_yaml(front, max_depth=MAX_DEPTH + 1)
    except BadYaml:
        return None
    if top is None or top.shape is not Shape.MAP:
        return None
    return {key.text: _texts(value) for key, value in top.pairs if key.shape is Shape.TEXT}


def _texts(value: Node) -> list[str]:
    nodes = value.nodes if value.shape is Shape.LIST else [value]
    return [node.text for node in nodes if node.shape is Shape.TEXT and node.says_something]


def _values(samples: Sequence[_Sample]) -> dict[str, Any]:
    if not samples:
        return {}
    values: dict[str, Any] = {"tasks.files": _patterns(samples)}
    if set(values["tasks.files"]) <= set(KEYS["tasks.files"].default):
        del values["tasks.files"]
    fields = _field_names(samples)
    if changed := {role: name for role, name in fields.items() if name != role}:
        values["tasks.fields"] = changed
    words = Counter(text.strip() for x in samples for text in x.fields.get(fields["status"], ()))
    statuses = statuses_of((word for word, _ in words.most_common()), STATUSES)
    if any(len(statuses[role]) > len(usual) for role, usual in STATUSES.items()):
        values["tasks.statuses"] = statuses
    return values


def _patterns(samples: Sequence[_Sample]) -> list[str]:
    endings: dict[str, list[str]] = {}
    for path, _ in samples:
        ending = posixpath.splitext(path)[1].lower()
        endings.setdefault(_named_folder(path) or "", []).append(ending)
    most = sorted(endings, key=lambda folder: (-len(endings[folder]), folder))[:MAX_ROOTS]
    return [
        f"{escape(folder)}/**/*{ending}" for folder in most for ending in sorted({*endings[folder]})
    ]


def _field_names(samples: Sequence[_Sample]) -> dict[str, str]:
    names: dict[str, str] = {}
    for role in ROLES:
        keys = Counter(
            key
            for sample in samples
            for key in sample.fields
            if letters(key) in ROLES[role] and key not in names.values()
        )
        if role == "id":
            keys = Counter({k: n for k, n in keys.items() if k == role or _are_ids(samples, k)})
        order = {key: ROLES[role].index(letters(key)) for key in keys}
        usual = FILE_STEM if role == "id" else role
        names[role] = min(keys, key=lambda k: (-keys[k], order[k], k)) if keys else usual
    return names


def _are_ids(samples: Sequence[_Sample], key: str) -> bool:
    ids = [fold(" ".join(x.fields[key])) for x in samples if key in x.fields]
    return len(set(ids)) == len(ids) and 2 * sum(map(_is_name, ids)) > len(ids)


def _is_name(word: str) -> bool:
    try:
        name_resource(word)
    except UsageError:
        return False
    return True


def _named_folder(path: str) -> str | None:
    parts = path.split("/")[:-1]
    for depth, part in enumerate(parts, 1):
        if letters(part) in FOLDERS:
            return "/".join(parts[:depth])
    return None
