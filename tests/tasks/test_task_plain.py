"""A task file that is read without a parser says what the parser says that it says."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tasks.test_task_text import AS_BACKLOG, TASKS

from gitlease.core import Invalid
from gitlease.git import yaml_nodes
from gitlease.tasks import MAX_PLAIN, NeedsParser, read_plain_fields, reading

USUAL = """---
id: T-1
title: What is to be done (first:second)
status: in_progress
assigned: [kim@example.com, "@jo", 'x']
labels: []
created: 2026-01-02T10:00:00Z
priority: "1"
paths:
  - src/part1
  - "src/**/*.py"
depends_on:
- F1
- F2
empty:
---
text
"""
PIECES = (
    *("id", "a-b", "y", "null", "0012", "x:y", "a#b", "a #b", "a: b", "ä", "@jo", "-x", "- ", ".."),
    *('"a b"', "'a'", '"a\\n"', "''", '""', "[a, b]", "[]", '["@a", b]', "[a,b]", "[ a]", "{a: b}"),
    *("---", "...", "# c", "&a", "*a", "!t", "|", ">", "?", "~", "%", "(a) b", "a, b]", "\t", "<<"),
    *(" ", "  ", ": ", ":", "- ", "  - ", "\n", "\n\n", "\r\n", "\n  ", "\u2028", "\x85", ","),
    *("no-stale", "done", "[no-stale]", "a{b,c}", "../x", "[null]", '["null"]', "a" * 600, '"a'),
)
NAMES = ("id", "id", "title", "status", "assigned", "paths", "labels", "no-stale", "depends_on")


def said(data: bytes, tasks: Any = TASKS) -> object:
    try:
        return reading.read_task(data, file="tasks/a.md", tasks=tasks)
    except Invalid as error:
        return error.message, error.hints


def by_the_parser(data: bytes, tasks: Any = TASKS) -> object:
    with patch.object(reading, "read_plain_fields", side_effect=NeedsParser):
        return said(data, tasks)


def lines() -> st.SearchStrategy[str]:
    some = st.lists(st.sampled_from(PIECES), max_size=3).map("".join)
    field = st.builds("{}: {}\n".format, st.sampled_from(NAMES), some)
    opened = st.builds("{}:\n".format, st.sampled_from(NAMES))
    item = st.builds("{}- {}\n".format, st.sampled_from(("", " ", "  ")), some)
    return st.one_of(field, field, opened, item, some)


@given(st.lists(lines(), max_size=8).map("".join))
@example("a:\n- b\n- 'c d'\n")
@example("title: b \n")
@example("title: b\n  c\n")
@example("status: 'null'\nassigned: null\nno-stale: yes\n")
@example("assigned:\n- b\nlabels: [x, 'no-stale']\n")
def test_it_is_what_the_parser_has(front: str) -> None:
    data = f"---\nid: F1\n{front}---\n".encode()
    assert said(data) == by_the_parser(data)
    assert said(data, AS_BACKLOG) == by_the_parser(data, AS_BACKLOG)


def test_what_is_usual_is_read_without_a_parser() -> None:
    data = USUAL.encode()
    with patch.object(yaml_nodes, "read_yaml", side_effect=AssertionError):
        task = said(data)
    assert task == by_the_parser(data)


@pytest.mark.parametrize(
    "front",
    [
        *("\n", "id: a", "id: *x\n", "id: a # b\n", "id: a: b\n", "id:\n  x\n", "id: |\n"),
        *("- a\n", "id: x\n- a\n", "p:\n - a\n  - b\n", 'id: "\\x41"\n', "id: a\r\n", "a:\n\n"),
        *("id: [a, [b]]\n", "id: {a: b}\n", "? a\n", "<<: a\n", "id: a\n---\n", "p:\n  - a: b\n"),
        *("id: a\nid: b\n", "p: [~]\n", "p:\n- null\n", "id: a\u2028b\n", "a: b\x85\n"),
        "id: " + "a" * MAX_PLAIN + "\n",
    ],
)
def test_what_is_not_certain_is_left_to_the_parser(front: str) -> None:
    with pytest.raises(NeedsParser):
        read_plain_fields(front)
