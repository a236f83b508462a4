"""Recognises Backlog.md, and makes settings that fit it; any other project gets the usual ones.

Its configuration is ``backlog.config.yml`` at the root, which may name any folder, or
``config.yml`` in ``backlog`` or ``.backlog``. Tasks are in ``tasks`` there and, once cleaned up, in
``completed``; drafts and archive are no tasks. Links are not followed, pipes are not opened, and
what is large or no YAML is passed over.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from gitlease.core.errors import Invalid, shown
from gitlease.core.frozen import dataclass
from gitlease.core.resources.pattern import escape, fold
from gitlease.git.files import read_small
from gitlease.git.repository import TIMEOUT, Repository
from gitlease.git.run import run_git
from gitlease.git.yaml_nodes import BadYaml, Node, Shape, read_fields
from gitlease.settings.parse import parse_settings
from gitlease.settings.schema import STATUSES, usual_handles
from gitlease.settings.text import default_yaml, settings_yaml

MAX_BYTES = 64 * 1024  # of the configuration
MAX_SHOWN = 8
KIND = "backlog.md"
ROOT_CONFIG = "backlog.config.yml"
FOLDERS = ("backlog", ".backlog")
CONFIGS = (ROOT_CONFIG, *(f"{x}/config.{end}" for x in FOLDERS for end in ("yml", "yaml")))
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


def fitting_settings(repository: Repository) -> Fitting:
    """Settings that fit the work tree. The text can always be loaded."""
    said: list[str] = []
    root = repository.toplevel or ""
    for file in CONFIGS:
        if not os.path.lexists(os.path.join(root, file)):
            continue
        fields = _read(root, file, said)
        base = _named(root, fields, said) if file == ROOT_CONFIG else os.path.dirname(file)
        tasks = os.path.lexists(os.path.join(root, base, "tasks"))
        if file == ROOT_CONFIG or tasks or _KEYS & fields.keys():
            return _fitted(repository, root, base, file, fields, said)
        said.clear()
    return Fitting(default_yaml())


def _fitted(
    repository: Repository,
    root: str,
    base: str,
    file: str,
    fields: Mapping[str, Node],
    said: list[str],
) -> Fitting:
    folder = f"{base}/tasks"
    files = _files(root, folder)
    if problem := _trouble_with(repository, root, folder, files):
        return Fitting(default_yaml(), said=(f"{shown(folder)} {problem}: its tasks are skipped",))
    patterns = [f"{escape(folder)}/*.md"]
    live: dict[str, Any] = {
        "tasks.files": patterns,
        "tasks.completed": [f"{escape(base)}/completed"],
        "tasks.fields": FIELDS,
        "tasks.statuses": _statuses(file, fields.get("statuses"), said),
    }
    if not usual_handles(patterns):
        live["tasks.handles"] = True
    text = settings_yaml(live, about=(f"The tasks of Backlog.md, as in {shown(file)}.",))
    try:
        parse_settings(text.encode())
    except (Invalid, UnicodeEncodeError) as error:
        why = error.message if isinstance(error, Invalid) else "a name that is not UTF-8"
        said.append(f"settings that fit the tasks would not load, using the defaults: {why}")
        return Fitting(default_yaml(), said=tuple(said))
    return Fitting(text, Recognised(KIND, folder, len(files)), tuple(said))


def _files(root: str, folder: str) -> list[str]:
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(f"{folder}/{name}" for name in names if name.lower().endswith(".md"))


def _trouble_with(repository: Repository, root: str, folder: str, files: list[str]) -> str:
    """Why the tasks of a folder are not taken, ``""`` where they are."""
    if os.path.realpath(os.path.join(root, folder)) != os.path.join(os.path.realpath(root), folder):
        return "is behind a symbolic link"
    # With ./ before it a name is never magic; literal pathspecs this command does not know.
    file = next(iter(files), f"{folder}/task-1.md")
    words, env = ["check-ignore", "-q", "--", f"./{file}"], {"GIT_LITERAL_PATHSPECS": "0"}
    top = repository.toplevel or repository.git_dir
    ignored = run_git(words, cwd=top, timeout=TIMEOUT, repository=True, env=env).code == 0
    return "is ignored by git" if ignored else ""


def _named(root: str, fields: Mapping[str, Node], said: list[str]) -> str:
    """The folder that the configuration at the root names, else one of the usual ones."""
    usual = next((x for x in FOLDERS if os.path.isdir(os.path.join(root, x))), FOLDERS[0])
    nodes = (fields.get(name) for name in ("backlog_directory", "backlogDirectory"))
    word = next((node.text.strip() for node in nodes if node and not node.null), "")
    if not word:
        return usual
    folder = posixpath.normpath(word.replace("\\", "/"))
    if folder in (".", "..") or folder.startswith(("/", "../")) or folder[1:2] == ":":
        said.append(f"{ROOT_CONFIG}: {shown(word)} is not a folder below the root: using {usual}")
        return usual
    return folder


def _read(root: str, file: str, said: list[str]) -> dict[str, Node]:
    problem = f"{file} is not a small text file"
    try:
        data = read_small(os.path.join(root, file), MAX_BYTES)
        if data is not None:
            return read_fields(data.decode("utf-8-sig"), "the file")
    except BadYaml as error:
        problem = f"{file}:{error.line}: {error.message}"
    except ValueError:
        pass
    said.append(f"{problem}: using the usual statuses, To Do, In Progress, Done")
    return {}


def _statuses(file: str, listed: Node | None, said: list[str]) -> dict[str, list[str]]:
    """The statuses by their role, those that say what they mean in words that are known."""
    if listed is None or listed.unset:
        return USUAL
    if listed.shape is not Shape.LIST or not all(n.shape is Shape.TEXT for n in listed.nodes):
        said.append(f"{file}: statuses is not a list of words: using the usual ones")
        return USUAL
    spellings: dict[str, str] = {}
    for word in filter(None, (node.text.strip() for node in listed.nodes)):
        spellings.setdefault(fold(word), word)
    found: dict[str, list[str]] = {}
    unknown: list[str] = []
    for word in spellings.values():
        role = _ROLES.get(_letters(word)) if word.isprintable() else None
        if role:
            found.setdefault(role, []).append(word)
        else:
            unknown.append(shown(word))
    if unknown:
        more = f" and {len(unknown) - MAX_SHOWN} more" if len(unknown) > MAX_SHOWN else ""
        names = ", ".join(unknown[:MAX_SHOWN]) + more
        said.append(f"add to tasks.statuses in .gitlease.yaml what these statuses mean: {names}")
    for role in [role for role in USUAL if role not in found and listed.nodes]:
        means, usual = role.replace("_", " "), USUAL[role][0]
        said.append(f"{file} has no status that means {means}: using {usual}")
    return USUAL | found


def _letters(word: str) -> str:
    """A word without what people write in many ways: letter case, blanks, punctuation."""
    return "".join(filter(str.isalnum, fold(word)))


_ROLES = {_letters(word): role for role, words in STATUSES.items() for word in words}
