"""What `init` makes of the task files that it finds: always settings that load, and that fit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repos import git

from gitlease.adapters.recognise import Fitting, fitting_settings
from gitlease.adapters.recognise_files import (
    MAX_BYTES,
    MAX_PARSED,
    MAX_SAMPLE,
    NotYaml,
    Value,
    list_files,
    read_mapping,
    read_samples,
)
from gitlease.adapters.recognise_words import Words, from_list, from_use
from gitlease.adapters.repository import discover
from gitlease.adapters.settings import Settings, load_settings
from gitlease.adapters.settings_file import FILE, parse_settings
from gitlease.adapters.settings_text import default_yaml, settings_yaml

BACKLOG = Path(__file__).resolve().parents[3] / "shared" / "data" / "backlog-md"
CONFIG = 'project_name: "x"\nstatuses: ["To Do", "In Progress", "Done"]\n'


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """An empty repository."""
    root = tmp_path / "repo"
    git(tmp_path, "init", "-q", "-b", "main", str(root))
    return root


def put(repo: Path, file: str, text: str | bytes) -> None:
    path = repo / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def task(repo: Path, file: str, **fields: str) -> None:
    """A Markdown task file with these fields, written as they stand."""
    front = "".join(f"{name}: {value}\n" for name, value in fields.items())
    put(repo, file, f"---\n{front}---\n\n# Text\n")


def fit(repo: Path) -> Fitting:
    return fitting_settings(discover(str(repo)))


def fitted(repo: Path) -> Settings:
    """The settings with what was found written to the file."""
    put(repo, FILE, fit(repo).text)
    loaded = load_settings(discover(str(repo)), environ={}, flags={})
    (repo / FILE).unlink()
    return loaded


def seen(repo: Path) -> tuple[str, str, int] | None:
    found = fit(repo).recognised
    return (found.kind, found.folder, found.files) if found else None


def live_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# Backlog.md


def test_backlog_md_as_its_users_write_it(repo: Path) -> None:
    if not BACKLOG.is_dir():
        pytest.skip(f"there are no real task files in {BACKLOG}")
    shutil.copytree(BACKLOG / "backlog", repo / "backlog")
    files = len(list((repo / "backlog" / "tasks").iterdir()))
    assert seen(repo) == ("backlog.md", "backlog/tasks", files)
    assert fit(repo).said == ()
    found = fitted(repo)
    assert found.tasks.files == ("backlog/tasks/*.md",)
    assert found.tasks.completed == ("backlog/completed",)
    assert found.tasks.statuses == {
        "todo": ("To Do",),
        "in_progress": ("In Progress",),
        "done": ("Done",),
    }
    assert found.tasks.fields == {
        "id": "id",
        "title": "title",
        "status": "status",
        "assigned": "assignee",
        "priority": "priority",
        "depends_on": "dependencies",
        "paths": "paths",
        "created": "created_date",
    }
    assert found.handles


@pytest.mark.parametrize(
    "file", ["backlog/config.yml", ".backlog/config.yml", "backlog/config.yaml"]
)
def test_backlog_md_in_its_own_folders(repo: Path, file: str) -> None:
    put(repo, file, CONFIG)
    folder = file.partition("/")[0]
    task(repo, f"{folder}/tasks/back-24.02 - Sub.md", id="BACK-24.02")
    task(repo, f"{folder}/tasks/below/back-3 - Below.md", id="BACK-3")
    task(repo, f"{folder}/drafts/draft-1 - Draft.md", id="DRAFT-1")
    task(repo, f"{folder}/archive/tasks/back-1 - Old.md", id="BACK-1")
    put(repo, f"{folder}/tasks/README.md", "# Tasks\n")
    assert seen(repo) == ("backlog.md", f"{folder}/tasks", 1)
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
        ("'!odd'", "!odd"),
        ("':odd'", ":odd"),
        (".backlog", ".backlog"),
    ],
)
def test_backlog_md_in_a_folder_of_its_own_choice(repo: Path, named: str, folder: str) -> None:
    put(repo, "backlog.config.yml", f"{CONFIG}backlog_directory: {named}\n")
    task(repo, f"{folder}/tasks/task-1 - One.md", id="TASK-1")
    put(repo, "backlog/config.yml", "statuses: [Never]\nproject_name: other\n")
    assert seen(repo) == ("backlog.md", f"{folder}/tasks", 1)
    found = fitted(repo)
    assert found.handles
    assert found.tasks.statuses["todo"] == ("To Do",)
    git(repo, "add", "-A")  # what the pattern covers, as git reads it
    (pattern,) = found.tasks.files
    listed = git(repo, "-c", "core.quotePath=false", "ls-files", f":(glob){pattern}")
    assert listed == f"{folder}/tasks/task-1 - One.md"


@pytest.mark.parametrize("named", ["/etc", "..", "../x", "a/../../x", ".", "'C:\\x'", "[a]", "~"])
def test_a_folder_outside_is_not_taken(repo: Path, named: str) -> None:
    put(repo, "backlog.config.yml", f"backlog_directory: {named}\n")
    task(repo, ".backlog/tasks/task-1.md", id="TASK-1")
    assert seen(repo) == ("backlog.md", ".backlog/tasks", 1)
    said = fit(repo).said
    assert all("is no folder below the root: .backlog is taken" in line for line in said)
    assert bool(said) == (named not in ("[a]", "~"))


def test_backlog_md_without_any_task_yet(repo: Path) -> None:
    put(repo, "backlog/config.yml", CONFIG)
    assert seen(repo) == ("backlog.md", "backlog/tasks", 0)
    put(repo, "backlog/config.yml", "")
    assert seen(repo) is None  # any project may have such a file
    (repo / "backlog" / "tasks").mkdir()
    assert seen(repo) == ("backlog.md", "backlog/tasks", 0)
    assert fit(repo).said == ()


CONFIGS: list[tuple[str, dict[str, tuple[str, ...]], str]] = [
    # the configuration, the statuses that are written, and what is said
    ("statuses: [Backlog, Ready, Doing, Review, Done]", {"todo": ("Backlog", "Ready")}, ""),
    ("statuses: [Backlog, Ready, Doing, Review, Done]", {"in_progress": ("Doing", "Review")}, ""),
    ("statuses:\n  - To Do\n  - Done\n", {"todo": ("To Do",), "done": ("Done",)}, "in progress"),
    ("statuses: [Done]", {"done": ("Done",)}, "means to do"[:5]),
    ('statuses: ["Wait, what?", "it\'s \\"on\\"", "完了"]', {"todo": ("Wait, what?",)}, ""),
    ('statuses: ["Wait, what?", "it\'s \\"on\\"", "完了"]', {"in_progress": ('it\'s "on"',)}, ""),
    ("statuses: [Neu, '# 1', no]", {"todo": ("Neu",), "done": ("no",)}, ""),
    ("statuses: [A, a, B, A, b, C]", {"todo": ("A",), "in_progress": ("B",), "done": ("C",)}, ""),
    ("statuses: [To Do, to do, In Progress, Done, DONE]", {"done": ("Done",)}, ""),
    (
        'statuses: ["a\\u202eb", "\\x07", Todo, "x\\ny", Done]',
        {"todo": ("Todo",)},
        "statuses mean",
    ),
    (
        "statuses: [To Do, In Progress, Done]\ndefault_status: Inbox",
        {"todo": ("To Do", "Inbox")},
        "",
    ),
    ("statuses: [A, B, C, D]\ndefault_status: b", {"todo": ("A", "B")}, ""),
    ("statuses: []", {"todo": ("To Do",)}, ""),
    ("statuses:", {"todo": ("To Do",)}, ""),
    ("statuses: ['', ' ']", {"todo": ("To Do",)}, "none of its statuses can be used"),
    ("statuses: To Do", {"todo": ("To Do",)}, "config.yml: statuses is no list of words"),
    ("statuses: {a: b}", {"todo": ("To Do",)}, "config.yml: statuses is no list of words"),
    ("statuses: [[a]]", {"todo": ("To Do",)}, "config.yml: statuses is no list of words"),
    ("x: &a [b]\nstatuses: *a", {"todo": ("To Do",)}, "config.yml: statuses is no list of words"),
    ("statuses: &a [Open, Shut]", {"todo": ("To Do",)}, "config.yml: statuses is no list of words"),
    ("statuses: [Open, !!str Shut]", {"todo": ("To Do",)}, "statuses is no list of words"),
    (
        "a: b\nstatuses: [Open",
        {"todo": ("To Do",)},
        "backlog/config.yml:2: this is no YAML mapping",
    ),
    ("- a", {"todo": ("To Do",)}, "backlog/config.yml:1: this is no YAML mapping"),
    ("a: b\n---\nc: d", {"todo": ("To Do",)}, "backlog/config.yml:2: this is no YAML mapping"),
    ("<<<<<<< HEAD\na: b\n=======\n", {"todo": ("To Do",)}, "this is no YAML mapping"),
]


@pytest.mark.parametrize(("config", "statuses", "said"), CONFIGS)
def test_statuses_of_backlog_md(
    repo: Path, config: str, statuses: Mapping[str, tuple[str, ...]], said: str
) -> None:
    put(repo, "backlog/config.yml", config)
    (repo / "backlog" / "tasks").mkdir()
    found = fitted(repo).tasks.statuses
    assert {role: found[role] for role in statuses} == statuses
    assert said in "\n".join(fit(repo).said)
    assert bool(said) == bool(fit(repo).said)
    assert all(line.isprintable() for line in fit(repo).said)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\0", b"a: " + b"x" * MAX_BYTES, b"[" * 60_000])
def test_a_config_that_is_no_small_text_is_passed_over(repo: Path, data: bytes) -> None:
    put(repo, "backlog/config.yml", data)
    (repo / "backlog" / "tasks").mkdir()
    assert fitted(repo).tasks.statuses["done"] == ("Done",)
    assert "the usual statuses are taken, To Do, In Progress, Done" in fit(repo).said[0]


def test_statuses_of_the_task_files_are_placed_too(repo: Path) -> None:
    put(repo, "backlog/config.yml", CONFIG)
    for at, status in enumerate(["Done", "to do", "Cancelled", "Elsewhere", "[a]", ""]):
        task(repo, f"backlog/tasks/task-{at}.md", id=f"TASK-{at}", status=status)
    assert fitted(repo).tasks.statuses["done"] == ("Done", "Cancelled")
    assert fitted(repo).tasks.statuses["todo"] == ("To Do",)
    (said,) = fit(repo).said
    assert said.endswith("what these statuses mean: Elsewhere")
    assert "# In no list of statuses" in fit(repo).text


def test_a_pipe_for_a_config_does_not_block(repo: Path) -> None:
    (repo / "backlog" / "tasks").mkdir(parents=True)
    os.mkfifo(repo / "backlog" / "config.yml")
    os.mkfifo(repo / "backlog" / "tasks" / "task-1.md")
    assert seen(repo) == ("backlog.md", "backlog/tasks", 0)
    assert fit(repo).said[0].startswith("backlog/config.yml is no small text file")


def test_links_are_not_followed(repo: Path, tmp_path: Path) -> None:
    task(tmp_path, "outside/tasks/task-1.md", id="TASK-1")
    put(tmp_path, "outside/config.yml", "statuses: [Secret, Stolen]")
    (repo / "backlog").symlink_to(tmp_path / "outside")
    assert seen(repo) is None
    assert fit(repo).said == ("backlog is a symbolic link: its tasks are left out",)
    (repo / "backlog").unlink()
    put(repo, "backlog/config.yml", CONFIG)
    (repo / "backlog" / "tasks").symlink_to(tmp_path / "outside" / "tasks")
    assert seen(repo) is None
    assert fit(repo).said == ("backlog/tasks is a symbolic link: its tasks are left out",)
    (repo / "backlog" / "tasks").unlink()
    (repo / "backlog" / "config.yml").unlink()
    (repo / "backlog" / "config.yml").symlink_to(tmp_path / "outside" / "config.yml")
    task(repo, "backlog/tasks/task-2.md", id="TASK-2")
    (repo / "backlog" / "tasks" / "task-1.md").symlink_to(tmp_path / "outside/tasks/task-1.md")
    assert seen(repo) == ("backlog.md", "backlog/tasks", 1)
    assert fitted(repo).tasks.statuses["todo"] == ("To Do",)


def test_what_git_ignores_or_another_repository_has_is_left_out(repo: Path) -> None:
    put(repo, "backlog/config.yml", CONFIG)
    task(repo, "backlog/tasks/task-1.md", id="TASK-1")
    task(repo, "docs/tasks/a.md", id="A")
    put(repo, ".gitignore", "/backlog/\n/docs/tasks/\n")
    assert seen(repo) is None
    said = fit(repo).said
    assert said[0] == "backlog/tasks is ignored by git: its tasks are left out"
    assert "docs/tasks is ignored by git: its files cannot be tasks" in said
    git(repo, "add", "-f", "backlog")  # tracked all the same
    assert seen(repo) == ("backlog.md", "backlog/tasks", 1)
    git(repo / "backlog", "init", "-q")
    assert seen(repo) is None
    assert fit(repo).said[0] == "backlog is a repository of its own: its tasks are left out"


def test_a_folder_that_cannot_be_a_pattern_leaves_the_usual_settings(repo: Path) -> None:
    put(repo, "backlog.config.yml", 'backlog_directory: "a\\u200bb"\n')
    assert (fit(repo).text, fit(repo).recognised) == (default_yaml(), None)
    assert "would not load, so they are the usual: .gitlease.yaml:" in fit(repo).said[0]


# Plain folders


def test_a_project_that_fits_the_defaults_gets_the_default_file(repo: Path) -> None:
    assert (fit(repo).text, fit(repo).recognised) == (default_yaml(), None)
    fields = {"title": "One", "assigned": "[]", "depends_on": "[F002]", "created": "2026-01-01"}
    task(repo, "tasks/F001.md", id="F001", status="todo", **fields)
    task(repo, "tasks/F002.md", id="F002", status="done", priority="high", paths="[src/]")
    put(repo, "tasks/more/F003.yaml", "id: F003\nstatus: in_progress\n")
    put(repo, "tasks/README.md", "# How we work\n")
    assert (seen(repo), fit(repo).said) == (("tasks", "tasks", 3), ())
    assert fit(repo).text == default_yaml()


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("tasks", ("tasks/**/*.md", "tasks/**/*.yaml")),
        (".tasks", (".tasks/**/*.md", ".tasks/**/*.yaml")),
        ("docs/tasks", ("docs/tasks/**/*.md", "docs/tasks/**/*.yaml")),
        ("todo", ("todo/**/*.md", "todo/**/*.yaml")),
        ("backlog/tasks", ("backlog/tasks/**/*.md", "backlog/tasks/**/*.yaml")),
    ],
)
def test_the_usual_folders(repo: Path, folder: str, files: tuple[str, ...]) -> None:
    task(repo, f"{folder}/deep/a.md", id="A")
    put(repo, "issues/b.yml", "id: B")  # a folder that comes later
    assert seen(repo) == ("tasks", folder, 1)
    found = fitted(repo)
    assert (found.tasks.files, found.handles) == (files, folder.startswith("backlog"))


def test_a_third_ending_is_added_where_it_is_used(repo: Path) -> None:
    put(repo, "tasks/a.yml", "id: A")
    assert fitted(repo).tasks.files == ("tasks/**/*.md", "tasks/**/*.yaml", "tasks/**/*.yml")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tasks/main.yml", "- name: install\n  id: x\n"),
        ("tasks/a.md", "# Tasks\n\nid: F001\n"),
        ("tasks/a.md", "---\ntitle: no id\n---\n"),
        ("tasks/a.md", "---\nid: not a name\n---\n"),
        ("tasks/a.md", "---\nid: [F001]\n---\n"),
        ("tasks/a.md", "---\nid: F001\n"),
        ("tasks/a.md", "---\nid: F001\n" + "#" * MAX_BYTES + "\n---\n"),
        ("tasks/a.md", "---\nid: F001\n<<<<<<< HEAD\n---\n"),
        ("tasks/a.md", "---\nid: F001\n---\n".encode("utf-16")),
        ("tasks/a.yaml", "id: F001\n---\nid: F002\n"),
        ("tasks/a.yaml", "id: F001\n" + "#" * MAX_BYTES),
        ("tasks/a.yaml", "id: !!python/object/apply:os.system [true]\n"),
        ("tasks/a.txt", "---\nid: F001\n---\n"),
        ("tasks", "---\nid: F001\n---\n"),
        ("work/a.md", "---\nid: F001\n---\n"),
    ],
)
def test_what_does_not_read_as_a_task(repo: Path, file: str, text: str | bytes) -> None:
    put(repo, file, text)
    assert (fit(repo).text, seen(repo)) == (default_yaml(), None)


@pytest.mark.parametrize(
    "text",
    [
        "---\nid: F001\n---\n",
        "\ufeff---  \r\nid: F001\r\n---\t\r\ntext",
        "---\rid: F001\r...\r",
        "---\nid: F001\n---\n" + "é" * MAX_BYTES,
        "---\nx: &a [1]\ny: *a\n<<: {q: *a}\n? [b]\n: c\nid: 'F001'\n---",
    ],
)
def test_what_reads_as_a_task(repo: Path, text: str) -> None:
    put(repo, "tasks/a.md", text)
    assert seen(repo) == ("tasks", "tasks", 1)


def test_field_names_are_learned(repo: Path) -> None:
    for at in range(4):
        names = {"Key": f"T-{at}", "name": "x", "State": "todo", "owner": "jo", "assignee": "[jo]"}
        more = {"blocked_by": "[]", "files": "[src/]", "created_at": "now", "date": "then"}
        task(repo, f"tasks/{at}.md", **names, **more)
    task(repo, "tasks/odd.md", Key="T-9", title="rare", state="todo", dependsOn="[T-1]")
    assert fitted(repo).tasks.fields == {
        "id": "Key",
        "title": "name",
        "status": "State",
        "assigned": "assignee",
        "priority": "priority",
        "depends_on": "blocked_by",
        "paths": "files",
        "created": "created_at",
    }
    assert live_lines(fit(repo).text) == [
        "schema: 1",
        "tasks:",
        "  fields:           # what these are called in a task file",
        "    id: Key",
        "    title: name",
        "    status: State",
        "    assigned: assignee",
        "    depends_on: blocked_by",
        "    paths: files",
        "    created: created_at",
    ]


@pytest.mark.parametrize("files", ["{a: b}", "[{a: b}]", "['../outside']", "['!x']", "&a [b]"])
def test_a_field_that_cannot_hold_paths_is_not_taken_for_them(repo: Path, files: str) -> None:
    task(repo, "tasks/a.md", id="A", files="[src/]", status="[todo]", state="todo")
    task(repo, "tasks/b.md", id="B", files=files)
    assert fitted(repo).tasks.fields["paths"] == "paths"
    assert fitted(repo).tasks.fields["status"] == "state"


def test_status_words_are_learned(repo: Path) -> None:
    words = ["To Do", "To Do", "planned", "WIP", "in review", "in review", "Finished", "cancelled"]
    for at, word in enumerate([*words, "cancelled", "blocked", "wat?"]):
        task(repo, f"tasks/{at}.md", id=f"T{at}", status=f'"{word}"')
    assert fitted(repo).tasks.statuses == {
        "todo": ("To Do", "planned"),
        "in_progress": ("WIP", "in review"),
        "done": ("Finished", "cancelled"),
    }
    (said,) = fit(repo).said
    assert said == (
        "add to tasks.statuses in .gitlease.yaml what these statuses mean: wat?, blocked"
    )


def test_words_that_nobody_can_place_leave_the_rest_as_it_is(repo: Path) -> None:
    task(repo, "tasks/a.md", id="A", status="blocked")
    assert live_lines(fit(repo).text) == ["schema: 1"]
    assert "mean: blocked" in fit(repo).text
    for at in range(20):
        task(repo, f"tasks/{at}.md", id=f"T{at}", status=f'"odd {at}\\e{"x" * 100}"')
    (said,) = fit(repo).said
    assert said.endswith("and 13 more")
    assert said.isprintable()
    assert len(said) < 900
    assert load_settings(discover(str(repo)), environ={}, flags={}).tasks == fitted(repo).tasks


def test_finished_folders_and_handles_are_noticed(repo: Path) -> None:
    task(repo, "tasks/a.md", id="A", assigned="['@jo', '@ada']")
    task(repo, "tasks/done/b.md", id="B", assigned="'@jo'")
    task(repo, "tasks/archived.md", id="C", assigned="")
    (repo / "tasks" / "closed").mkdir()
    found = fitted(repo)
    assert (found.tasks.completed, found.handles) == (("tasks/done",), True)
    task(repo, "tasks/d.md", id="D", assigned="jo@example.com")
    assert fitted(repo).handles is False


def test_a_sample_is_read_and_the_rest_counted(repo: Path) -> None:
    for at in range(MAX_SAMPLE + 50):
        task(repo, f"tasks/{at:04}.md", id=f"T{at}", status="todo")
    task(repo, "tasks/9999.md", id="T9999", status="Never seen")
    put(repo, "tasks/0000.md", "no task")
    assert seen(repo) == ("tasks", "tasks", MAX_SAMPLE + 50)
    assert fit(repo).said == ()


def test_a_walk_stays_inside_and_ends(repo: Path) -> None:
    task(repo, "tasks/a.md", id="A")
    task(repo, "tasks/other/b.md", id="B")
    git(repo / "tasks" / "other", "init", "-q")
    (repo / "tasks" / "loop").symlink_to(repo / "tasks")
    (repo / "tasks" / "link.md").symlink_to("a.md")
    os.mkfifo(repo / "tasks" / "pipe.md")
    os.makedirs(repo / "tasks" / os.fsdecode(b"\xff"))
    put(repo, "tasks/" + "d/" * 45 + "deep.md", "---\nid: D\n---\n")
    (repo / "tasks" / "folder.md").mkdir()
    assert list_files(str(repo), "tasks", (".md",)) == ["tasks/a.md"]
    assert list_files(str(repo), "nowhere", (".md",)) == []


def test_there_is_an_end_to_what_is_parsed(repo: Path) -> None:
    """Aliases are never expanded, depth has an end, and so has the whole sample."""
    bomb = "id: A\na: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(1000))
    deep = "id: A\na: " + "[" * 30_000
    put(repo, "tasks/bomb.yaml", bomb)
    put(repo, "tasks/deep.yaml", deep)
    assert seen(repo) == ("tasks", "tasks", 1)
    with pytest.raises(NotYaml):
        read_mapping(deep)
    for at in range(MAX_PARSED // len(bomb) + 3):
        put(repo, f"tasks/{at}.yaml", bomb)
    files = list_files(str(repo), "tasks", (".yaml",))
    samples, unread = read_samples(str(repo), files)
    assert len(samples) * len(bomb) <= MAX_PARSED
    assert len(samples) + unread == len(files)


def test_a_linked_work_tree_has_its_own_files(repo: Path, tmp_path: Path) -> None:
    git(repo, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    task(tmp_path / "linked", "tasks/a.md", id="A")
    (tmp_path / "linked" / "sub").mkdir()
    assert seen(tmp_path / "linked" / "sub") == ("tasks", "tasks", 1)
    assert seen(repo) is None


# The parts


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a: b\nc: 'd'\n", {"a": Value(("b",)), "c": Value(("d",))}),
        ("a:\nb: ~\nc: ''\nd: null", {"a": Value(), "b": Value(), "c": Value(("",)), "d": Value()}),
        ("a: [b, ~, 'c']", {"a": Value(("b", "c"), is_list=True)}),
        ("a: [b, [c], d]", {"a": Value(("b", "d"), is_list=True, odd=True)}),
        ("a: {b: {c: [d]}}\ne: f", {"a": Value(odd=True), "e": Value(("f",))}),
        ("a: !t b\nc: &d e\nf: *d", {k: Value(odd=True) for k in "acf"}),
        ("? [a, {b: c}]\n: [d]\ne: f", {"e": Value(("f",))}),
        (
            "a: 017\nb: no\nc: 2026-01-01",
            {"a": Value(("017",)), "b": Value(("no",)), "c": Value(("2026-01-01",))},
        ),
    ],
)
def test_values_are_texts_as_they_are_written(text: str, fields: dict[str, Value]) -> None:
    assert read_mapping(text) == fields


def words(found: Words) -> dict[str, tuple[str, ...]]:
    return dict(found.known)


def test_words_are_taken_at_their_word_and_then_by_their_place() -> None:
    assert words(from_list(["To Do", "Blocked", "In Progress", "Done"])) == {
        "todo": ("To Do",),
        "in_progress": ("In Progress", "Blocked"),
        "done": ("Done",),
    }
    assert words(from_list(["To Do", "In Progress", "Done", "Cancelled"]))["done"] == (
        "Done",
        "Cancelled",
    )
    assert words(from_list(["Doing", "To Do", "Done", "On Hold"])) == {
        "todo": ("To Do",),
        "in_progress": ("Doing", "On Hold"),
        "done": ("Done",),
    }
    assert words(from_list(["📥 Todo", "🚧 WIP", "✅ Done"]))["in_progress"] == ("🚧 WIP",)
    assert words(from_list(["Offen", "Fertig"])) == {"todo": ("Offen",), "done": ("Fertig",)}


def test_words_in_use_keep_the_usual_ones_where_they_fit() -> None:
    assert words(from_use({"todo": 1, "doing": 1, "in_progress": 9, "done": 3})) == {}
    assert words(from_use({"open": 5, "closed": 2})) == {"done": ("closed", "done")}
    assert words(from_use({"Done": 1})) == {"done": ("Done",)}
    assert words(from_use({})) == {}


TEXTS = st.text(max_size=20)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=8), TEXTS, st.dictionaries(TEXTS, st.integers(1, 9), max_size=8))
def test_any_words_give_settings_that_load(
    listed: list[str], default: str, counted: dict[str, int]
) -> None:
    for found in (from_list(listed, default, counted), from_use(counted)):
        live: dict[str, Any] = {"tasks.statuses": found.known} if found.known else {}
        said: list[str] = [found.unplaced()]
        loaded = parse_settings(settings_yaml(live, about=said).encode())
        if found.known:
            written = loaded["tasks.statuses"].value
            assert {role: tuple(written[role]) for role in found.known} == found.known


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*!#|>'\" \n\t?,")))
def test_any_text_is_a_mapping_or_not(text: str) -> None:
    try:
        assert all(isinstance(value, Value) for value in read_mapping(text).values())
    except NotYaml as error:
        if not 1 <= error.line <= len(text.splitlines()) + 1:
            raise


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_can_lie_in_a_task_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    root = tmp_path_factory.getbasetemp()
    for name, before in (("any.md", b"---\n"), ("any.yaml", b"")):
        (root / name).write_bytes(before + data + b"\n---\n")
    samples, unread = read_samples(str(root), ["any.md", "any.yaml", "missing.md"])
    assert (len(samples) <= 2, unread) == (True, 0)
