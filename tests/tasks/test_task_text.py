"""Task files as they are read: what each form says, and how every broken one is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.snapshots import check_words, raises
from support.task_trees import tasks_like

from gitlease.kernel.rules.edge import EdgeEdit, Progress, Task
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.settings.schema import Tasks
from gitlease.tasks.edit import edit_task
from gitlease.tasks.reading import guess_ids, read_task

TASKS = tasks_like()
AS_BACKLOG = replace(
    TASKS,
    files=("backlog/tasks/*.md",),
    fields={**TASKS.fields, "assigned": "assignee", "created": "created_date"},
    statuses={"todo": ("To Do",), "in_progress": ("In Progress",), "done": ("Done",)},
)

FULL = """\
---
id: F001   # the name
title: 'Rate limits: the API'
status: "In_Progress"
assigned:
  - '@jo'
  # her reviewer
  - kim@example.com
priority: high
depends_on: [F000, 0012, 24.02,
  1e3]
paths:
- src/api/
- "*.proto"
created: 2026-11-20 10:15
notes: &note {any: [thing, *note, !!binary "x"]}
---

# What to do

---
"""


def read(text: str | bytes, file: str = "tasks/F001.md", tasks: Tasks = TASKS) -> Task | None:
    data = text.encode() if isinstance(text, str) else text
    return read_task(data, file=file, tasks=tasks)


def task(front: str) -> Task:
    """The task of a front matter's lines, in a file that has nothing else."""
    found = read(f"---\nid: F001\n{front}---\n")
    assert found is not None
    return found


def refused(text: str | bytes, file: str = "tasks/F001.md") -> Invalid:
    with pytest.raises(Invalid) as raised:
        read(text, file)
    return raised.value


# What is read


def test_every_field_is_read_as_it_is_written() -> None:
    found = read(FULL)
    assert found is not None
    assert (found.resource.text, found.resource.key) == ("F001", "f001")
    assert found.file == "tasks/F001.md"
    assert found.title == "Rate limits: the API"
    assert (found.status, found.progress) == ("In_Progress", Progress.IN_PROGRESS)
    assert found.assigned == ("@jo", "kim@example.com")
    assert found.priority == "high"
    assert found.depends_on == ("F000", "0012", "24.02", "1e3")
    assert found.paths == ("src/api", "*.proto")
    assert found.created == "2026-11-20 10:15"
    assert found.line == 5
    for end in ("\r\n", "\r"):
        assert read("\ufeff" + FULL.replace("\n", end)) == found


BY_STEM = replace(TASKS, fields={**TASKS.fields, "id": "{file: stem}"})


@pytest.mark.parametrize("front", ["title: a task\n", 'title: "a\\tb"\n'])
def test_file_name_is_the_id_where_settings_say_so(front: str) -> None:
    text = f"---\n{front}id: other\n---\n"
    found = read(text, "tasks/ABC-1.md", BY_STEM)
    assert found is not None
    assert str(found.resource) == "ABC-1"
    assert read("# ABC-1\n", "tasks/ABC-1.md", BY_STEM) is None
    with raises(Invalid):
        read(text, "tasks/two words.md", BY_STEM)
    edited = edit_task(text.encode(), file="tasks/ABC-1.md", tasks=BY_STEM, edit=EdgeEdit(add="jo"))
    back = EdgeEdit(remove=("jo",))
    assert edit_task(edited, file="tasks/ABC-1.md", tasks=BY_STEM, edit=back) == text.encode()


def test_a_yaml_file_is_one_mapping() -> None:
    for text in ("id: F001", "---\nid: F001\n...\n", "%YAML 1.1\n---\nid: F001\n", "{id: F001}"):
        for file in ("F001.yaml", "F001.YML"):
            found = read(text, file)
            assert found is not None
            assert found.resource.text == "F001"


def test_nothing_is_taken_for_a_number_or_a_date() -> None:
    for word in ("0012", "1e3", "no", "2026-11-20"):
        found = read(f"---\nid: {word}\ntitle: {word}\nassigned: [{word}]\n---\n")
        assert found is not None
        assert (found.resource.text, found.title, found.assigned) == (word, word, (word,))


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("", ()),
        ("null", ()),
        ("''", ()),
        ("[]", ()),
        ("jo, kim", ("jo, kim",)),
        ("['@jo', \"k\\x69m\", ~, null, '']", ("@jo", "kim")),
        ("\n  - jo\n  -\n  - ~\n  - kim", ("jo", "kim")),
        ("\n- jo # hers\n# nobody\n- kim", ("jo", "kim")),
        (">-\n  jo\n  kim", ("jo kim",)),
    ],
)
def test_a_list_may_be_written_in_every_style(value: str, names: tuple[str, ...]) -> None:
    found = task(f"assigned: {value}\ndepends_on: {value}\n")
    assert found.assigned == names
    # In a single value of ids commas and blanks set them apart; names of people may have both.
    ids = " ".join(names).replace(",", " ").split()
    assert found.depends_on == tuple(ids)


def test_a_status_word_means_what_the_settings_say() -> None:
    words = {"": Progress.TODO, "~": Progress.TODO, "' DOING '": Progress.IN_PROGRESS}
    words |= {"closed": Progress.DONE, "blocked": Progress.OTHER}
    assert {word: task(f"status: {word}\n").progress for word in words} == words


def test_fields_are_found_by_the_names_of_the_settings() -> None:
    text = "---\nid: B-1\nassignee: ['@jo']\ncreated_date: today\n---\n"
    found = read(text, tasks=AS_BACKLOG)
    assert found is not None
    assert (found.assigned, found.created, found.line) == (("@jo",), "today", 3)


# What is no task


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "# Notes\n\nid: F001\n",
        "----\nid: F001\n----\n",
        "---\ntitle: a page\n---\n",
        "---\n- id\n- F001\n---\n",
        "---\n\nA rule, and then prose: of a kind.\n",
        "---\n* prose [with (brackets\n* and a rule\n---\n",
        "---\ntitle: twice\ntitle: twice\nassigned: {}\n---\n",
        b"\xff\xfa no text at all",
    ],
)
def test_what_has_no_front_matter_with_an_id_is_no_task(text: str | bytes) -> None:
    assert read(text) is None


@pytest.mark.default
def test_marks_of_yaml_are_ignored_in_fields_of_other_tools_alone() -> None:
    unused = "links: &all [&a one, *a]\nmore: {<<: {x: 1}, at: !!timestamp 2026-11-20}\n"
    assert task(f"status: todo\n{unused}") == task("status: todo\n")
    message = refused(f"---\nid: F001\n{unused}paths: *all\n---\n").message
    assert message.startswith("tasks/F001.md:5: aliases, anchors and tags are not supported here")


# What is broken


@pytest.mark.parametrize(
    ("front", "line", "why"),
    [
        ("title: [a, b\n", 4, "this is not YAML"),
        ("assigned: @jo\n", 3, "this is not YAML: found character that cannot start any token"),
        ("title: {a: b}\n", 3, "title must be a single value, not a mapping"),
        ("status: [a]\n", 3, "status must be a single value, not a list in brackets"),
        ("assigned: {jo: kim}\n", 3, "assigned must be a list, not a mapping"),
        ("assigned: [jo,\n [kim]]\n", 4, "an entry must be a single value"),
        ("paths: [a: b]\n", 3, "an entry must be a single value"),
        ("title: a\nassigned: jo\ntitle: b\n", 5, "title is here twice, first in line 3"),
        ("title: &a x\n", 3, "aliases, anchors and tags are not supported here"),
        ("status: !!str x\n", 3, "aliases, anchors and tags are not supported here"),
        ("x: &a status\n*a : done\n", 4, "the name of a field must not be an alias"),
        ("x: &a {}\n<<: *a\n", 4, "merge keys are not supported"),
        (f"title: {'a' * 1001}\n", 3, "title is longer than 1000 characters"),
        (f"assigned:\n- a\n- {'a' * 513}\n", 5, "assigned is longer than 512 characters"),
        (f"depends_on: [{'a, ' * 257}]\n", 3, "depends_on has more than 256 entries"),
        ("paths:\n- ok\n- ../secret\n", 5, "../secret is outside the repository"),
        ("paths: '!a'\n", 3, "!a is a negation, which cannot be leased"),
        ("paths: 'a[b'\n", 3, "pattern 'a[b': unclosed '['"),
        ("title: a\x07b\n", 3, "it has a control character, '\\x07'"),
        (f"x: {'[' * 60}{']' * 60}\n", 3, "this is nested too deeply"),
        ("--- more\n", 3, "there is more than one YAML document"),
        ("<<<<<<< HEAD\nassigned: a\n=======\n", 3, "there is a merge conflict"),
        ("x: 1\n>>>>>>> other\n", 4, "there is a merge conflict"),
    ],
)
def test_what_is_broken_is_named_with_its_line(front: str, line: int, why: str) -> None:
    message = refused(f"---\nid: F001\n{front}---\n").message
    assert message.startswith(f"tasks/F001.md:{line}: {why}")
    whole = refused(f"id: F001\n{front}", "a/b.yaml").message
    assert whole.startswith(f"a/b.yaml:{line - 1}: ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\nid:\n---\n", "2: id is empty"),
        ("---\nid: src/a\n---\n", "2: this task cannot be leased: src/a is not a name"),
        ("---\nid: [F001]\n---\n", "2: id must be a single value"),
        ("---\nid: F001\n", "1: the front matter has no end"),
        ("---\n'id': F001\n", "1: the front matter has no end"),
        ("<<<<<<< HEAD\n---\nid: F001\n", "1: there is a merge conflict"),
        ("---\n<<: {id: F001}\n---\n", "2: merge keys are not supported"),
    ],
)
def test_what_may_be_a_task_is_never_passed_over(text: str, why: str) -> None:
    assert refused(text).message.startswith(f"tasks/F001.md:{why}")


def test_what_is_not_utf_8_or_too_large_is_refused_before_it_is_parsed() -> None:
    for data, file in (
        (b"---\nid: F001\ntitle: \xe9\n---\n", "a.md"),
        (b"---\r\nid: F001\r\n---\r\nbody\r\n\xe9", "a.md"),
        ("---\nid: F001\n---\n".encode("utf-16"), "a.md"),
        ("id: F001\n".encode("utf-16-be"), "a.yaml"),
        (f"---\nid: F001\nx: {'a' * 65536}\n---\n", "a.md"),
        ("---\nid: F001\n---\n" + "a" * 1024 * 1024, "a.md"),
        ("id: F001\nx: [" + "a," * 300_000 + "]\n", "a.yaml"),
    ):
        check_words(refused(data, file).message)


# The other parser, for where the fast one was not built


def test_the_parser_in_python_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = read(FULL)
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read(FULL) == fast
    for text in ('title: "\\U00110000"\n', "title: [\n", "title: @x\n"):
        check_words(refused(f"---\nid: F001\n{text}---\n"))


# Whose claims are never called stale

EXEMPT = ["labels: [ui, no-stale]", "labels:\n  - ui\n  - No-Stale", "labels: ui, no-stale"]
EXEMPT += ["tags: ['#no-stale']", "no-stale: true", "no-stale: [x]", "labels: [*x, no-stale]"]
OTHERS = ["labels: [no-stale-bread]", "labels:", "no-stale: false", "no-stale: 'No'", "no-stale: ~"]
OTHERS += ["nested: {labels: [no-stale]}"]
ODD = ["labels: &all [a]", "labels: [a]\nlabels: [b]", "labels: [[a, b], {c: d}]"]


@pytest.mark.parametrize("more", [*EXEMPT, *OTHERS, *ODD])
def test_a_label_or_a_field_exempts_a_task_and_odd_ones_are_no_reason_to_refuse_it(
    more: str,
) -> None:
    data = f"---\nid: F001\n{more}\n---\n".encode()
    found = read(data, tasks=replace(TASKS, exempt="no-stale"))
    assert found is not None
    assert found.exempt == (more in EXEMPT)
    assert more.encode() in edit_task(data, file="a.md", tasks=TASKS, edit=EdgeEdit(add="jo"))


# Guesses


@pytest.mark.parametrize(
    ("data", "ids"),
    [
        (b"---\n<<<<<<< a\nid: F1\n=======\nid: 'F2' # new\n>>>>>>> b\n---\n", {"f1", "f2"}),
        (b"\xef\xbb\xbfid: F1", {"f1"}),
        (b'{title: x, "id": "F1"}', {"f1"}),
        (b"---\r  id :\tF1\r", {"f1"}),
        ("---\nid: F1\n".encode("utf-16"), {"f1"}),
        (b"---\nid: F1\ntitle: \xff\n", {"f1"}),
        (b"---\nid: a/b\nid:\nkid: F1\ntitle: id\n", set()),
        (b"", set()),
        (b"\n" * 70_000 + b"id: F1\n", set()),
    ],
)
def test_ids_are_guessed_from_lines(data: bytes, ids: set[str]) -> None:
    assert guess_ids(data, tasks=TASKS) == ids


# Anything at all

WORDS = """
--- ... %YAML id : - [ ] { } , ' " # &a *a !t | >- ? << ~ @jo 😀
assigned: status: todo paths: depends_on:"""
MARKS = (
    *("\n", "\r\n", "\r", " ", "  ", "\t", ": ", ", ", " #", "\n- ", "\nid: F2", "\n---\n"),
    *("\ufeff", "\x85", "\u2028", "\x00"),
)
PIECES = st.sampled_from([*WORDS.split(), *MARKS])
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@settings(max_examples=60)
@given(TEXTS.map(str.encode) | st.binary(max_size=60), st.sampled_from(["a.md", "a.yaml"]))
def test_any_bytes_are_a_task_none_or_refused(data: bytes, file: str) -> None:
    for whole in (data, b"---\nid: F1\n" + data, b"---\nid: F1\n" + data + b"\n---\n"):
        try:
            found = read_task(whole, file=file, tasks=TASKS)
        except Invalid as refusal:
            message = refusal.message
        else:
            message = f"{file}:"
            assert found is None or isinstance(found, Task)
        assert message.startswith(f"{file}:")
        assert message.isprintable()
        assert isinstance(guess_ids(whole, tasks=TASKS), frozenset)


# Real files
