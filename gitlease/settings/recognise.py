"""Recognises Backlog.md, and makes settings that fit it; any other project gets the usual ones.

It looks for ``backlog.config.yml`` at the root, which may name any folder, and then for
``config.yml`` in ``backlog`` or ``.backlog``. Tasks are in ``tasks`` there and, once they are
cleaned up, in ``completed``; drafts and archive are no tasks. Links are not followed, pipes are not
opened, and what is large or no YAML is passed over.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping
from typing import Any

from gitlease.core.errors import Invalid, UsageError, shown
from gitlease.core.frozen import dataclass
from gitlease.core.resources.pattern import escape, fold
from gitlease.git.files import open_regular, read_up_to
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import run_git
from gitlease.git.yaml_nodes import BadYaml, Node, Shape, read_fields
from gitlease.settings.parse import parse_settings
from gitlease.settings.schema import STATUSES, read_text, usual_handles
from gitlease.settings.text import default_yaml, settings_yaml

MAX_BYTES = 64 * 1024  # of the configuration
MAX_FILES = 50_000
MAX_SHOWN = 8
KIND = "backlog.md"
FOLDERS = ("backlog", ".backlog")
CONFIGS = ("config.yml", "config.yaml")
ROOT_CONFIG = "backlog.config.yml"
FIELDS = {"assigned": "assignee", "depends_on": "dependencies", "created": "created_date"}
USUAL = {"todo": ["To Do"], "in_progress": ["In Progress"], "done": ["Done"]}

_KEYS = {"project_name", "statuses", "default_status", "task_prefix", "date_format"}


@dataclass(frozen=True, slots=True)
class Recognised:
    """Task files that were recognised, in ``folder``: how many."""

    kind: str
    folder: str
    files: int


@dataclass(frozen=True, slots=True)
class Fitting:
    """The text of a settings file for a project, and what was recognised there.

    ``recognised`` is None where that is nothing. ``said`` is what a person should know.
    """

    text: str
    recognised: Recognised | None = None
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Config:
    """A configuration: its file, the folder that it is for, and what it says, if it can be read."""

    file: str
    folder: str
    fields: Mapping[str, Node]
    problem: str = ""


def fitting_settings(repository: Repository) -> Fitting:
    """Settings that fit the work tree. The text can always be loaded."""
    said: list[str] = []
    root = repository.toplevel or ""
    config = _root_config(root, said) or _folder_config(root, said)
    folder = f"{config.folder}/tasks" if config else ""
    if config is None or not _is_usable(repository, root, folder, said):
        return Fitting(default_yaml(), said=tuple(said))
    patterns = [f"{escape(folder)}/*.md"]
    live: dict[str, Any] = {
        "tasks.files": patterns,
        "tasks.completed": [f"{escape(config.folder)}/completed"],
        "tasks.fields": FIELDS,
        "tasks.statuses": _statuses(config, said),
    }
    if not usual_handles(patterns):
        live["tasks.handles"] = True
    text = settings_yaml(live, about=(f"The tasks of Backlog.md, as in {shown(config.file)}.",))
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError) as error:
        why = error.message if isinstance(error, Invalid) else "a name that is not UTF-8"
        said.append(f"settings that fit the tasks would not load, so they are the usual: {why}")
        return Fitting(default_yaml(), said=tuple(said))
    return Fitting(text, Recognised(KIND, folder, len(_files(root, folder))), tuple(said))


def _is_usable(repository: Repository, root: str, folder: str, said: list[str]) -> bool:
    trouble = _trouble_with(root, folder)
    if trouble and os.path.lexists(os.path.join(root, folder)):
        said.append(f"{shown(folder)} {trouble}: its tasks are left out")
        return False
    # With ./ before it a name is never magic; literal pathspecs this command does not know.
    file = next(iter(_files(root, folder)), f"{folder}/task-1.md")
    words, env = ["check-ignore", "-q", "--", f"./{file}"], {"GIT_LITERAL_PATHSPECS": "0"}
    top = repository.toplevel or repository.git_dir
    if run_git(words, cwd=top, timeout=TIMEOUT, repository=True, env=env).code == 0:
        said.append(f"{shown(folder)} is ignored by git: its tasks are left out")
        return False
    return True


def _trouble_with(root: str, folder: str) -> str | None:
    """Why a folder is not to be looked into (it ``is a symbolic link``, say); None where it is."""
    path = root
    for part in folder.split("/"):
        path = os.path.join(path, part)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return "is not there"
        if stat.S_ISLNK(mode):
            return "is a symbolic link"
        if not stat.S_ISDIR(mode):
            return "is no folder"
        if os.path.lexists(os.path.join(path, ".git")):
            return "is a repository of its own"
    return None


def _files(root: str, folder: str) -> list[str]:
    if _trouble_with(root, folder):
        return []
    with os.scandir(os.path.join(root, folder)) as entries:
        files = (e.name for e in entries if e.is_file(follow_symlinks=False))
        names = [name for _, name in zip(range(MAX_FILES), files, strict=False)]
    return sorted(f"{folder}/{name}" for name in names if name.lower().endswith(".md"))


def _root_config(root: str, said: list[str]) -> _Config | None:
    if not os.path.lexists(os.path.join(root, ROOT_CONFIG)):
        return None
    usual = next((f for f in FOLDERS if _trouble_with(root, f) is None), FOLDERS[0])
    config = _read(root, ROOT_CONFIG, usual)
    words = (config.fields.get(name) for name in ("backlog_directory", "backlogDirectory"))
    word = next((n.text.strip() for n in words if n and not n.null), "")
    if not word:
        return config
    folder = posixpath.normpath(word.replace("\\", "/"))
    if folder in (".", "..") or folder.startswith(("/", "../")) or folder[1:2] == ":":
        said.append(f"{ROOT_CONFIG}: {shown(word)} is no folder below the root: {usual} is taken")
        return config
    return _Config(config.file, folder, config.fields, config.problem)


def _folder_config(root: str, said: list[str]) -> _Config | None:
    for folder in FOLDERS:
        trouble = _trouble_with(root, folder)
        for name in CONFIGS:
            file = f"{folder}/{name}"
            if not os.path.lexists(os.path.join(root, file)):
                continue
            if trouble:
                said.append(f"{folder} {trouble}: its tasks are left out")
                break
            config = _read(root, file, folder)
            if _KEYS & config.fields.keys() or _trouble_with(root, f"{folder}/tasks") is None:
                return config
    return None


def _read(root: str, file: str, folder: str) -> _Config:
    try:
        opened = open_regular(os.path.join(root, file))
        with opened or open(os.devnull, "rb") as there:
            data = read_up_to(there, MAX_BYTES)
        if opened is None or len(data) > MAX_BYTES:
            raise ValueError
        return _Config(file, folder, read_fields(data.decode("utf-8-sig"), "the file"))
    except BadYaml as error:
        return _Config(file, folder, {}, f"{file}:{error.line}: {error.message}")
    except (OSError, ValueError):
        return _Config(file, folder, {}, f"{file} is no small text file")


def _statuses(config: _Config, said: list[str]) -> dict[str, list[str]]:
    """The statuses by their role, those that say what they mean in words that are known."""
    problem, listed = config.problem, config.fields.get("statuses")
    words: list[str] = []
    if listed is not None and not listed.unset:
        if listed.shape is Shape.LIST and all(n.shape is Shape.TEXT for n in listed.nodes):
            words = [node.text for node in listed.nodes]
        else:
            problem = f"{config.file}: statuses is no list of words"
    found: dict[str, list[str]] = {}
    unknown: list[str] = []
    spellings: dict[str, str] = {}
    for word in filter(None, map(str.strip, words)):
        spellings.setdefault(fold(word), word)
    for word in spellings.values():
        role = _ROLES.get(_letters(word)) if _is_word(word) else None
        if role:
            found.setdefault(role, []).append(word)
        else:
            unknown.append(shown(word))
    if problem:
        said.append(f"{problem}: the usual statuses are taken, To Do, In Progress, Done")
    if unknown:
        more = f" and {len(unknown) - MAX_SHOWN} more" if len(unknown) > MAX_SHOWN else ""
        names = ", ".join(unknown[:MAX_SHOWN]) + more
        said.append(f"add to tasks.statuses in .gitlease.yaml what these statuses mean: {names}")
    for role in [r for r in USUAL if r not in found] if words else ():
        means, usual = role.replace("_", " "), USUAL[role][0]
        said.append(f"{config.file} has no status that means {means}: {usual} is taken")
    return {role: found.get(role, usual) for role, usual in USUAL.items()}


def _is_word(word: str) -> bool:
    try:
        read_text(word, "a status")
    except UsageError:
        return False
    return True


def _letters(word: str) -> str:
    """A word without what people write in many ways: letter case, blanks, punctuation."""
    return "".join(filter(str.isalnum, fold(word)))


_ROLES = {_letters(word): role for role, words in STATUSES.items() for word in words}
