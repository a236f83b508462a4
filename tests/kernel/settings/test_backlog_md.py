"""What `init` makes of the task files that it finds: always settings that load, and that fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repos import git, make_repository
from support.snapshots import check_words
from support.task_trees import put

from gitlease.kernel.git.repository import discover
from gitlease.kernel.settings.schema import FILE, Settings, load_settings
from gitlease.kernel.settings.text import (
    MAX_BYTES,
    SuggestedSettings,
    parse_settings,
    settings_yaml,
    suggest_settings,
)

CONFIG = 'project_name: "x"\nstatuses: ["To Do", "In Progress", "Done"]\n'


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """An empty repository."""
    return make_repository(tmp_path / "repo")


def task(repo: Path, file: str, **fields: str) -> None:
    """A Markdown task file with these fields, written as they stand."""
    front = "".join(f"{name}: {value}\n" for name, value in fields.items())
    put(repo, file, f"---\n{front}---\n\n# Text\n")


def fit(repo: Path) -> SuggestedSettings:
    return suggest_settings(discover(str(repo)))


def fitted(repo: Path) -> Settings:
    """The settings with what was found written to the file."""
    put(repo, FILE, fit(repo).text)
    loaded = load_settings(discover(str(repo)), environ={}, flags={})
    (repo / FILE).unlink()
    return loaded


def seen(repo: Path) -> tuple[str, int] | None:
    found = fit(repo)
    return (found.folder, found.files) if found.folder else None


def live_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# Backlog.md


@pytest.mark.parametrize("file", ["backlog/config.yml", ".backlog/config.yaml"])
def test_backlog_md_in_its_own_folders(repo: Path, file: str) -> None:
    put(repo, file, CONFIG)
    folder = file.partition("/")[0]
    task(repo, f"{folder}/tasks/back-24.02 - Sub.md", id="BACK-24.02")
    task(repo, f"{folder}/tasks/below/back-3 - Below.md", id="BACK-3")
    task(repo, f"{folder}/drafts/draft-1 - Draft.md", id="DRAFT-1")
    task(repo, f"{folder}/archive/tasks/back-1 - Old.md", id="BACK-1")
    put(repo, f"{folder}/tasks/notes.txt", "# Tasks\n")
    assert seen(repo) == (f"{folder}/tasks", 1)
    found = fitted(repo)
    assert found.tasks.files == (f"{folder}/tasks/*.md",)
    assert (found.handles, "handles: true" in live_lines(fit(repo).text)) == (True, False)


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        ("docs/todos", "docs/todos"),
        ("'./internal//todo/'", "internal/todo"),
        ('"a\\\\b"', "a/b"),
        ("größe/[x]*", "größe/[x]*"),
        ("':odd'", ":odd"),
    ],
)
def test_backlog_md_in_a_folder_of_its_own_choice(repo: Path, named: str, folder: str) -> None:
    put(repo, "backlog.config.yml", f"{CONFIG}backlog_directory: {named}\n")
    task(repo, f"{folder}/tasks/task-1 - One.md", id="TASK-1")
    put(repo, "backlog/config.yml", "statuses: [Never]\nproject_name: other\n")
    assert seen(repo) == (f"{folder}/tasks", 1)
    found = fitted(repo)
    assert found.handles
    assert found.tasks.statuses["todo"] == ("To Do",)
    git(repo, "add", "-A")  # what the pattern covers, as git reads it
    (pattern,) = found.tasks.files
    listed = git(repo, "-c", "core.quotePath=false", "ls-files", f":(glob){pattern}")
    assert listed == f"{folder}/tasks/task-1 - One.md"


@pytest.mark.parametrize("named", ["/etc", "a/../../x", ".", "'C:\\x'", "[a]"])
def test_a_folder_outside_is_not_taken(repo: Path, named: str) -> None:
    put(repo, "backlog.config.yml", f"backlog_directory: {named}\n")
    task(repo, ".backlog/tasks/task-1.md", id="TASK-1")
    assert seen(repo) == (".backlog/tasks", 1)
    said = fit(repo).warnings
    check_words(said)
    assert bool(said) == (named != "[a]")


def test_backlog_md_without_any_task_yet(repo: Path) -> None:
    put(repo, "backlog/config.yml", CONFIG)
    assert seen(repo) == ("backlog/tasks", 0)
    put(repo, "backlog/config.yml", "")
    assert seen(repo) is None  # any project may have such a file
    (repo / "backlog" / "tasks").mkdir()
    assert seen(repo) == ("backlog/tasks", 0)
    assert fit(repo).warnings == ()


USUAL: dict[str, tuple[str, ...]] = {
    "todo": ("To Do",),
    "in_progress": ("In Progress",),
    "done": ("Done",),
}
CONFIGS: list[tuple[str, dict[str, tuple[str, ...]], str]] = [
    # the configuration, the statuses that are written, and what is said
    ("statuses: [TODO, ready, 🚧 In-Progress, Doing, Done, closed, todo]",
     {"todo": ("TODO", "ready", "To Do"), "done": ("Done", "closed"),
      "in_progress": ("🚧 In-Progress", "Doing", "In Progress")}, ""),
    ("statuses: [To Do, In Progress, Review, Done, Cancelled]", USUAL, ""),
    ("statuses: [Pending, WIP, In Progress, Completed]",
     {"todo": ("Pending", "To Do"), "in_progress": ("WIP", "In Progress"),
      "done": ("Completed", "Done")}, ""),
    ("statuses: [Neu, '# 1', no]", USUAL, "has no status for todo: To Do is used"),
    ('statuses: ["To\\u202eDo", "\\x07", Todo, "x\\ny"]', {"todo": ("Todo", "To Do")}, "for done"),
    ("statuses: []", USUAL, ""),
    ("statuses: To Do", USUAL, "config.yml: statuses is not a list of words"),
    ("x: &a [b]\nstatuses: *a", USUAL, "config.yml:1: anchors and tags are not allowed"),
    ("a: b\nstatuses: [Open", USUAL, "config.yml:3: this is not YAML"),
    ("- a", USUAL, "backlog/config.yml:1: the file must be a mapping, not a list"),
    ("a: b\n---\nc: d", USUAL, "backlog/config.yml:2: there is more than one YAML document"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "statuses", "said"), CONFIGS)
def test_statuses_of_backlog_md(
    repo: Path, config: str, statuses: Mapping[str, tuple[str, ...]], said: str
) -> None:
    put(repo, "backlog/config.yml", config)
    (repo / "backlog" / "tasks").mkdir()
    found = fitted(repo).tasks.statuses
    assert {role: found[role] for role in statuses} == statuses
    assert said in "\n".join(fit(repo).warnings)
    assert bool(said) == bool(fit(repo).warnings)
    assert all(line.isprintable() for line in fit(repo).warnings)


@pytest.mark.parametrize("data", [b"\xff", b"\0", b"x" * (MAX_BYTES + 1), None])
def test_a_config_that_is_no_small_text_is_passed_over(repo: Path, data: bytes | None) -> None:
    (repo / "backlog" / "tasks").mkdir(parents=True)
    if data is None:  # nobody waits for a writer
        os.mkfifo(repo / "backlog" / "config.yml")
    else:
        put(repo, "backlog/config.yml", data)
    assert fitted(repo).tasks.statuses["done"] == ("Done",)
    check_words(fit(repo).warnings[0])


def test_links_are_not_followed(repo: Path, tmp_path: Path) -> None:
    task(tmp_path, "outside/tasks/task-1.md", id="TASK-1")
    put(tmp_path, "outside/config.yml", "statuses: [Secret, Stolen]")
    (repo / "backlog").symlink_to(tmp_path / "outside")
    assert seen(repo) is None
    behind = ("backlog/tasks is behind a symbolic link: its tasks are left out",)
    assert fit(repo).warnings == behind
    (repo / "backlog").unlink()
    put(repo, "backlog/config.yml", CONFIG)
    (repo / "backlog" / "tasks").symlink_to(tmp_path / "outside" / "tasks")
    assert seen(repo) is None
    assert fit(repo).warnings == behind
    (repo / "backlog" / "tasks").unlink()
    (repo / "backlog" / "config.yml").unlink()
    (repo / "backlog" / "config.yml").symlink_to(tmp_path / "outside" / "config.yml")
    task(repo, "backlog/tasks/task-2.md", id="TASK-2")
    (repo / "backlog" / "tasks" / "task-1.md").symlink_to(tmp_path / "outside/tasks/task-1.md")
    assert seen(repo) == ("backlog/tasks", 1)
    assert fitted(repo).tasks.statuses["todo"] == ("To Do",)


def test_what_git_ignores_is_left_out(repo: Path) -> None:
    put(repo, "backlog/config.yml", CONFIG)
    task(repo, "backlog/tasks/task-1.md", id="TASK-1")
    put(repo, ".gitignore", "/backlog/\n")
    assert seen(repo) is None
    check_words(fit(repo).warnings)
    git(repo, "add", "-f", "backlog")  # tracked all the same
    assert seen(repo) == ("backlog/tasks", 1)


def test_a_folder_that_cannot_be_a_pattern_leaves_the_usual_settings(repo: Path) -> None:
    put(repo, "backlog.config.yml", 'backlog_directory: "a\\u200bb"\n')
    assert (fit(repo).text, fit(repo).folder) == (settings_yaml(), None)
    check_words(fit(repo).warnings[0])


# Any other project


def test_any_other_project_gets_the_default_file(repo: Path) -> None:
    assert (fit(repo).text, fit(repo).folder) == (settings_yaml(), None)
    task(repo, "tasks/F001.md", id="F001", status="todo", assignee="[]")
    task(repo, "docs/todo/F002.md", id="F002", state="done")
    assert (fit(repo).text, fit(repo).folder, fit(repo).warnings) == (settings_yaml(), None, ())


@pytest.mark.slow
@settings(max_examples=25)
@given(st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*!#|>'\" \n\t?,")))
def test_any_configuration_gives_settings_that_load(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    root = tmp_path_factory.getbasetemp() / "any"
    if not root.exists():
        git(root.parent, "init", "-q", str(root))
    put(root, "backlog/config.yml", f"statuses: [{text}]\n".encode("utf-8", "replace"))
    (root / "backlog" / "tasks").mkdir(exist_ok=True)
    assert fit(root).folder
    assert parse_settings(fit(root).text.encode())["tasks.statuses"]
