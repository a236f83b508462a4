"""Recognises Backlog.md: its folder, and the statuses of its configuration.

It looks for ``backlog.config.yml`` at the root, which may name any folder, and then for
``config.yml`` in ``backlog`` or ``.backlog``. Tasks are in ``tasks`` there and, once they are
cleaned up, in ``completed``; drafts and archive are no tasks.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from gitlease.adapters.recognise_files import (
    MARKDOWN,
    Found,
    NotYaml,
    Value,
    is_ignored,
    list_files,
    read_mapping,
    read_samples,
    read_small,
    trouble_with,
)
from gitlease.adapters.recognise_words import BACKLOG_STATUSES, Words, from_list, note_unplaced
from gitlease.adapters.repository import Repository
from gitlease.adapters.settings_schema import STATUSES, shown, usual_handles
from gitlease.domain.frozen import dataclass
from gitlease.domain.pattern import escape

KIND = "backlog.md"
FOLDERS = ("backlog", ".backlog")
CONFIGS = ("config.yml", "config.yaml")
ROOT_CONFIG = "backlog.config.yml"
FIELDS = {"assigned": "assignee", "depends_on": "dependencies", "created": "created_date"}

_KEYS = {"project_name", "statuses", "default_status", "task_prefix", "date_format"}


@dataclass(frozen=True, slots=True)
class _Config:
    """A configuration: its file, the folder that it is for, and what it says, if it can be read."""

    file: str
    folder: str
    fields: Mapping[str, Value]
    problem: str = ""

    def word(self, *names: str) -> str:
        for name in names:
            value = self.fields.get(name)
            if value is not None and not (value.odd or value.is_list) and value.texts:
                return value.texts[0]
        return ""


def find_backlog(repository: Repository, said: list[str]) -> Found | None:
    """Backlog.md's tasks in the work tree; None where there are none that could be used.

    What a person should know is added to ``said``.
    """
    root = repository.toplevel or ""
    config = _root_config(root, said) or _folder_config(root, said)
    if config is None:
        return None
    folder = f"{config.folder}/tasks"
    trouble = trouble_with(root, folder)
    files = [] if trouble else list_files(root, folder, MARKDOWN, deep=False)
    if trouble and os.path.lexists(os.path.join(root, folder)):
        said.append(f"{shown(folder)} {trouble}: its tasks are left out")
        return None
    if is_ignored(repository, files[0] if files else f"{folder}/task-1.md"):
        said.append(f"{shown(folder)} is ignored by git: its tasks are left out")
        return None
    samples, unread = read_samples(root, files)
    tasks = [sample for sample in samples if sample.is_task("id")]
    words = _words(config, [task.text("status") for task in tasks], said)
    patterns = [f"{escape(folder)}/*.md"]
    live: dict[str, Any] = {
        "tasks.files": patterns,
        "tasks.completed": [f"{escape(config.folder)}/completed"],
        "tasks.fields": FIELDS,
        "tasks.statuses": words.known,
    }
    if not usual_handles(patterns):
        live["tasks.handles"] = True
    about: tuple[str, ...] = (
        f"The tasks of Backlog.md. Their statuses are those of {shown(config.file)}: the first",
        "is to do, the last is done, and the others are in progress, unless they say otherwise.",
    )
    if unplaced := words.unplaced():
        about += (note_unplaced(unplaced, said),)
    return Found(KIND, folder, len(tasks) + unread, live, about)


def _root_config(root: str, said: list[str]) -> _Config | None:
    if not os.path.lexists(os.path.join(root, ROOT_CONFIG)):
        return None
    usual = next((f for f in FOLDERS if trouble_with(root, f) is None), FOLDERS[0])
    config = _read(root, ROOT_CONFIG, usual)
    word = config.word("backlog_directory", "backlogDirectory").strip()
    if not word:
        return config
    folder = posixpath.normpath(word.replace("\\", "/"))
    if folder in (".", "..") or folder.startswith(("/", "../")) or folder[1:2] == ":":
        said.append(f"{ROOT_CONFIG}: {shown(word)} is no folder below the root: {usual} is taken")
        return config
    return _Config(config.file, folder, config.fields, config.problem)


def _folder_config(root: str, said: list[str]) -> _Config | None:
    for folder in FOLDERS:
        trouble = trouble_with(root, folder)
        for name in CONFIGS:
            file = f"{folder}/{name}"
            if not os.path.lexists(os.path.join(root, file)):
                continue
            if trouble:
                said.append(f"{folder} {trouble}: its tasks are left out")
                break
            config = _read(root, file, folder)
            if _KEYS & config.fields.keys() or trouble_with(root, f"{folder}/tasks") is None:
                return config
    return None


def _read(root: str, file: str, folder: str) -> _Config:
    text = read_small(root, file)
    if text is None:
        return _Config(file, folder, {}, f"{file} is no small text file")
    try:
        return _Config(file, folder, read_mapping(text) if text.strip() else {})
    except NotYaml as error:
        return _Config(file, folder, {}, f"{file}:{error.line}: this is no YAML mapping")


def _words(config: _Config, used: list[str], said: list[str]) -> Words:
    listed, problem = config.fields.get("statuses"), config.problem
    texts: tuple[str, ...] = ()
    if listed is not None:
        texts = listed.texts
        if listed.odd or (texts and not listed.is_list):
            problem, texts = f"{config.file}: statuses is no list of words", ()
    default = config.word("default_status")
    words = from_list(texts or BACKLOG_STATUSES, default, used)
    if not words.roles:
        problem = f"{config.file}: none of its statuses can be used"
        words = from_list(BACKLOG_STATUSES, default, used)
    if problem:
        said.append(f"{problem}: the usual statuses are taken, {', '.join(BACKLOG_STATUSES)}")
    for role in STATUSES.keys() - words.roles.keys():
        means = role.replace("_", " ")
        said.append(f"{config.file} has no status that means {means}: it is {STATUSES[role][0]}")
    return words
