"""Tasks whose claims are never called stale: a label says so, or a field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.repos import make_repository
from support.task_trees import open_files, put, tasks_like, text_of

from gitlease.core import EdgeEdit, Invalid
from gitlease.tasks import edit_task, read_task

TASKS = tasks_like()


def is_exempt(more: str, *, word: str = "no-stale") -> bool:
    tasks = replace(TASKS, exempt=word)
    task = read_task(text_of("F001", more).encode(), file="tasks/F001.md", tasks=tasks)
    assert task is not None
    return task.exempt


@pytest.mark.parametrize(
    "more",
    [
        "labels: [ui, no-stale]\n",
        "labels:\n  - ui\n  - No-Stale\n",
        "labels: ui, no-stale\n",
        "tags: ['#no-stale']\n",
        "no-stale: true\n",
        "no-stale: [x]\n",
        "labels: [*x, no-stale]\n",
    ],
)
def test_a_label_or_a_field_exempts_a_task(more: str) -> None:
    assert is_exempt(more)


@pytest.mark.parametrize(
    "more",
    [
        "labels: [no-stale-bread]\n",
        "labels:\n",
        "no-stale: false\n",
        "no-stale: 'No'\n",
        "no-stale: ~\n",
        "nested: {labels: [no-stale]}\n",
    ],
)
def test_anything_else_does_not(more: str) -> None:
    assert not is_exempt(more)


def test_the_word_is_a_setting() -> None:
    assert is_exempt("labels: [pinned]\n", word="pinned")
    assert is_exempt("pinned: yes\n", word="pinned")
    assert not is_exempt("labels: [no-stale]\n", word="pinned")


@pytest.mark.parametrize(
    "more",
    [
        "labels: &all [a]\n",
        "labels: [a]\nlabels: [b]\n",
        "labels: [[a, b], {c: d}]\n",
        "tags: {a: {b: [c]}}\n",
    ],
)
def test_odd_labels_are_no_reason_to_refuse_a_task(more: str) -> None:
    data = text_of("F001", more).encode()
    assert read_task(data, file="tasks/F001.md", tasks=TASKS) is not None
    edited = edit_task(data, file="tasks/F001.md", tasks=TASKS, edit=EdgeEdit(add="jo@example.com"))
    assert more.encode() in edited
    with pytest.raises(Invalid):
        read_task(b"---\nid: &x F001\n" + more.encode() + b"---\n", file="x.md", tasks=TASKS)


def test_it_is_remembered_with_the_rest_of_the_task(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    put(root, "tasks/F001.md", text_of("F001", "labels: [no-stale]\n"))
    put(root, "tasks/F002.md", text_of("F002"))
    assert [t.exempt for t in open_files(root).read().tasks] == [True, False]
    again = open_files(root)
    assert [t.exempt for t in again.read().tasks] == [True, False]
    assert again.parsed == 0
    other = open_files(root, replace(TASKS, exempt="pinned"))
    assert [t.exempt for t in other.read().tasks] == [False, False]
