"""Edits of task files: what was wanted changes, and every other byte is as before."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.snapshots import check_words
from support.task_trees import tasks_like

from gitlease.kernel.rules.edge import EdgeEdit, Progress, Task, same_name
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.settings.schema import Tasks
from gitlease.tasks.edit import edit_task
from gitlease.tasks.reading import read_task

TASKS = tasks_like()
AS_BACKLOG = replace(
    TASKS,
    fields={**TASKS.fields, "assigned": "assignee"},
    statuses={"todo": ("To Do",), "in_progress": ("In Progress",), "done": ("Done",)},
)


def edited(
    data: str | bytes, edit: EdgeEdit, file: str = "tasks/F001.md", tasks: Tasks = TASKS
) -> bytes:
    """The file after an edit, which is made twice to see that the second time changes nothing."""
    before = data.encode() if isinstance(data, str) else data
    after = edit_task(before, file=file, tasks=tasks, edit=edit)
    assert edit_task(after, file=file, tasks=tasks, edit=edit) == after
    return after


def front(lines: str, edit: EdgeEdit) -> str:
    """What becomes of the lines of a front matter."""
    head, tail = "---\nid: F001\n", "---\nbody\n"
    after = edited(head + lines + tail, edit).decode()
    assert after.startswith(head)
    assert after.endswith(tail)
    return after[len(head) : -len(tail)]


def whole(text: str, edit: EdgeEdit) -> str:
    """What becomes of a YAML file."""
    return edited(text, edit, "tasks/F001.yaml").decode()


def add(name: str) -> EdgeEdit:
    return EdgeEdit(add=name)


def remove(*names: str) -> EdgeEdit:
    return EdgeEdit(remove=names)


def refused(data: str | bytes, edit: EdgeEdit, file: str = "tasks/F001.md") -> Invalid:
    with pytest.raises(Invalid) as raised:
        edited(data, edit, file)
    return raised.value


# A name in, and out again

ADDED = [
    ("", "assigned: jo\n"),
    ("title: x # c\n\n# end\n", "title: x # c\n\n# end\nassigned: jo\n"),
    ("title: |+\n  x\n\n", "title: |+\n  x\n\nassigned: jo\n"),
    ("? [a]\n: b\n", "? [a]\n: b\nassigned: jo\n"),
    ("assigned: # c\n# d\n\nx: y\n", "assigned: # c\n  - jo\n# d\n\nx: y\n"),
    ("labels:\n    - a\nassigned:\n", "labels:\n    - a\nassigned:\n    - jo\n"),
    ("assigned:\npaths:\n - a\n", "assigned:\n - jo\npaths:\n - a\n"),
    ("assigned: [ ] # c\n", "assigned: [jo ] # c\n"),
    ("assigned: [# c\n]\n", "assigned: [# c\njo]\n"),
    ("assigned: 'kim' # c\n", "assigned: ['kim', jo ] # c\n"),
    ("assigned:\n  kim\n", "assigned:\n  [kim, jo ]\n"),
    ("'assigned' : kim\n", "'assigned' : [kim, jo ]\n"),
    ("assigned: [kim,]\n", "assigned: [kim, jo,]\n"),
    ("assigned: [kim,lee]\n", "assigned: [kim,lee,jo]\n"),
    ("assigned: [\n  kim,\n  lee\n]\n", "assigned: [\n  kim,\n  lee,\n  jo\n]\n"),
    ("assigned: [kim, # c\n  lee # d\n  ]\n", "assigned: [kim, # c\n  lee, jo # d\n  ]\n"),
    ("assigned:\n- kim # c\n# d\nx: y\n", "assigned:\n- kim # c\n- jo\n# d\nx: y\n"),
    ("assigned:\n  -   kim\n\nx: y\n", "assigned:\n  -   kim\n  -   jo\n\nx: y\n"),
    ("assigned:\n  - kim\n  -\n", "assigned:\n  - kim\n  -\n  - jo\n"),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_a_name_is_put_in_and_taking_it_out_gives_back_every_byte(before: str, after: str) -> None:
    assert front(before, add("jo")) == after
    assert front(after, remove("@JO")) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id: F001", "id: F001\nassigned: jo"),
        ("id: F001\r\n# end", "id: F001\r\n# end\r\nassigned: jo"),
        ("id: F001\rtitle: x\r", "id: F001\rtitle: x\rassigned: jo\r"),
        ("id: F001\r\nassigned: # c", "id: F001\r\nassigned: # c\r\n  - jo"),
        ("id: F001\nassigned:\n  - kim", "id: F001\nassigned:\n  - kim\n  - jo"),
        ("  id: F001\n  assigned:\n", "  id: F001\n  assigned:\n    - jo\n"),
        ("%YAML 1.1\n---\nid: F001\n", "%YAML 1.1\n---\nid: F001\nassigned: jo\n"),
        ("\ufeffid: 'F001' # 😀é\n", "\ufeffid: 'F001' # 😀é\nassigned: jo\n"),
        ("{id: F001,}\n", "{id: F001, assigned: jo,}\n"),
        ("{ id: F001 # c\n}\n", "{ id: F001, assigned: jo # c\n}\n"),
        ("--- {id: F001, x: [a]}\n", "--- {id: F001, x: [a], assigned: jo}\n"),
        ("# c\n{ # d\nassigned: kim, id: F001}", "# c\n{ # d\nassigned: [kim, jo ], id: F001}"),
        ('{"id": "F001"\n}\n', '{"id": "F001", "assigned": "jo"\n}\n'),
        ('{"id": "F001", "assigned": []}\n', '{"id": "F001", "assigned": ["jo"]}\n'),
    ],
)
def test_a_yaml_file_is_edited_in_its_own_style(before: str, after: str) -> None:
    assert whole(before, add("jo")) == after
    assert whole(after, remove("jo")) == before


@pytest.mark.parametrize("nobody", ["~", "Null", "' '"])
def test_an_explicit_nobody_becomes_an_empty_list_in_the_end(nobody: str) -> None:
    assert front(f"assigned: {nobody} # c\n", add("jo")) == "assigned: [jo] # c\n"
    assert front("assigned: [jo] # c\n", remove("jo")) == "assigned: [] # c\n"
    assert whole("{assigned: , id: F001}", add("jo")) == "{assigned: [jo] , id: F001}"


@pytest.mark.parametrize(
    "lines", ["assigned: '@Jo'\n", "assigned: [x, JO]\n", "assigned: >-\n  @jo\n"]
)
def test_a_name_that_is_there_in_any_spelling_is_kept(lines: str) -> None:
    assert front(lines, add("jo")) == lines
    assert front(lines, EdgeEdit(remove=("@JO", "nobody"), add="jo")) == lines
    assert front(lines, remove("kim", "", "@")) == lines


# Taking out


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assigned:\n  jo\nx: y\n", "x: y\n"),
        ("assigned: jo # c\n", "assigned: # c\n"),
        ("assigned:\n  jo # c\n", "assigned:\n   # c\n"),
        ("assigned: [ jo, ]\n", "assigned: [  ]\n"),
        ("assigned: ['jo', kim ] # c\n", "assigned: [kim ] # c\n"),
        ("assigned: [a, 'jo', \"Jo\", b, '@jo']\n", "assigned: [a, b]\n"),
        ("assigned: [jo, # c\n  kim]\n", "assigned: [ # c\n  kim]\n"),
        ("assigned: [kim, # c\n  jo # d\n  ]\n", "assigned: [kim # c\n   # d\n  ]\n"),
        ("assigned: # c\n# d\n- jo\n# e\n", "assigned: # c\n# d\n# e\n"),
        ("assigned:\n  - kim\n  - jo # c\n  - lee\n", "assigned:\n  - kim\n  # c\n  - lee\n"),
        ("assigned:\n- jo\n\n- JO\n- kim\n", "assigned:\n\n- kim\n"),
    ],
)
def test_a_name_goes_and_comments_stay(before: str, after: str) -> None:
    assert front(before, remove("jo")) == after


# One name for another


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assigned: jo # c\n", "assigned: kim@x.org # c\n"),
        ('assigned: "jo"\n', 'assigned: "kim@x.org"\n'),
        ("assigned:\n  jo\n", "assigned:\n  kim@x.org\n"),
        ("assigned: [jo, a, '@Jo']\n", "assigned: [kim@x.org, a]\n"),
        ("assigned:\n  - a # c\n  - jo # d\n", "assigned:\n  - a # c\n  - kim@x.org # d\n"),
        ("assigned:\n- JO\n- Jo\n- a\n", "assigned:\n- kim@x.org\n- a\n"),
        ("assigned: a\n", "assigned: [a, kim@x.org ]\n"),
    ],
)
def test_a_new_name_takes_the_place_and_form_of_the_old(before: str, after: str) -> None:
    assert front(before, EdgeEdit(remove=("jo",), add="kim@x.org")) == after


# How names are written


TRICKY = r"""
@jo no Nan ~/ 12 1e3 0x1f 1:30 2026-11-20 -a * [a] {a} a,b &a !a %a ? << = o'neil a"b \ | > a: :a `a
.5 .inf nan yes off --- ..."""


@pytest.mark.parametrize(
    "name", [*TRICKY.split(), "- a", "a: b", "a #b", "a, b", "jo  do", "é #", "a\\"]
)
@pytest.mark.parametrize("lines", ["", 'assigned: ["x"]\n'])
def test_what_yaml_may_misread_is_written_in_quotes(name: str, lines: str) -> None:
    after = f"---\nid: F001\n{front(lines, add(name))}---\n".encode()
    found = read_task(after, file="x", tasks=TASKS)
    assert found is not None
    assert found.assigned[-1] == name
    loaded = yaml.safe_load(after.split(b"---\n")[1])["assigned"]
    assert (loaded if isinstance(loaded, str) else loaded[-1]) == name


def test_quotes_are_single_as_a_rule_and_double_where_the_others_are() -> None:
    assert front("assigned:\n  - '@a'\n", add("@jo")).endswith("  - '@jo'\n")
    assert front('assigned:\n  - "@a"\n', add("jo")).endswith('  - "jo"\n')
    assert front('assigned: ["a", b]\n', add("@jo")).endswith(', "@jo"]\n')
    assert front("assigned: [\"a\", 'b']\n", add("@jo")).endswith(", '@jo']\n")


# Status


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("status: todo # c\n", "status: In Progress # c\n"),
        ('status: "To Do"\n', 'status: "In Progress"\n'),
        ("status:\n  todo\n", "status:\n  In Progress\n"),
        ("status:   # c\n", "status: In Progress   # c\n"),
        ("status: ''\n", "status: 'In Progress'\n"),
        ("assigned: jo\n", "assigned: jo\nstatus: In Progress\n"),
        ("status: ' in progress'\n", "status: ' in progress'\n"),
    ],
)
def test_a_status_is_written_in_the_way_of_the_old_one(before: str, after: str) -> None:
    assert front(before, EdgeEdit(status="In Progress")) == after


# What is refused


ADD, REPLACE = add("jo"), EdgeEdit(remove=("kim", "a b"), add="jo")


@pytest.mark.parametrize(
    ("lines", "edits", "line", "why"),
    [
        ("assigned: |\n  kim\n", (ADD,), 3, "it is written as a block of text"),
        ("x: y\nassigned: >-\n  kim\n", (ADD, REPLACE), 4, "it is written as a block of text"),
        ("assigned: a\n  b\n", (ADD, REPLACE), 3, "it is written over several lines"),
        ("assigned: ['a\n  b']\n", (REPLACE,), 3, "it is written over several lines"),
        ("? assigned\n: kim\n", (ADD, REPLACE), 3, "there is other text before the name of the"),
        ("assigned:\n  -\n    kim\n", (ADD,), 3, "there is other text before a name"),
        ("assigned: kim, lee\n", (ADD,), 3, "the existing name has commas or brackets"),
        ("assigned: kim\u2028\n", (ADD, REPLACE), 3, "it has a line break that git does not"),
    ],
)
def test_what_would_be_a_guess_is_refused_with_its_line(
    lines: str, edits: tuple[EdgeEdit, ...], line: int, why: str
) -> None:
    for edit in edits:
        error = refused(f"---\nid: F001\n{lines}---\n", edit)
        expected = f"tasks/F001.md:{line}: assigned cannot be edited safely: {why}"
        assert error.message.startswith(expected)
        check_words(error.hints)


@pytest.mark.parametrize("name", ["a\nb", "\u2028", "\ud800", " ", "x" * 600])
def test_a_name_that_no_file_can_hold_is_refused(name: str) -> None:
    for lines in ("", "assigned: [kim]\n"):
        error = refused(f"---\nid: F001\n{lines}---\n", add(name))
        check_words(error.message)


def test_a_line_that_would_change_what_is_above_is_refused() -> None:
    error = refused("id: F001\nnote: |\n  no end", add("jo"), "F001.yaml")
    check_words(error.message)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_conflict_behind_the_front_matter_is_refused(end: str) -> None:
    body = "text\n\n<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n"
    error = refused(f"---\nid: F001\n---\n{body}".replace("\n", end), add("jo"))
    check_words(error.message)
    check_words(error.hints)


def test_the_parser_in_python_leads_to_the_same_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader")
    for before, after in ADDED:
        if not before.startswith("labels:\n-"):  # it does not tell how far these are indented
            assert front(before, add("jo")) == after
        assert front(after, remove("jo")) == before


# Any task file


OTHER = (
    "priority: high\n",
    '"created" : "a\\"b"\n# alone\n',
    "depends_on: [A-1, # c\n   '012']\n",
    "other: &a [1, {b: *a}]\n",
    "text: |\n  jo: x\n\n   # no comment\n",
    "n: >+\n  a\n\n",
    "? [x]\n: y\n",
    "m: a\n   b # é: 😀\n",
    "e:\n",
    "'q''q': ~\n",
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A task file: its assigned field in some style and place, and lines that end in some way."""
    field = draw(st.sampled_from([before for before, _ in ADDED]))
    others = draw(st.lists(st.sampled_from(OTHER), max_size=5, unique=True))
    others.insert(draw(st.integers(0, len(others))), field)
    mark, end = draw(st.sampled_from(["", "\ufeff"])), draw(st.sampled_from(["\n", "\r\n", "\r"]))
    tail = draw(st.sampled_from(["---", "...\n", "---\nbody\n", "--- \n\n# é\n\n---\nx: y"]))
    text = f"{mark}---\nid: F001\nstatus: todo\n{''.join(others)}{tail}"
    return text.replace("\n", end).encode()


def read(data: bytes) -> Task:
    found = read_task(data, file="tasks/F001.md", tasks=TASKS)
    assert found is not None
    return found


def others(task: Task) -> Task:
    return replace(task, assigned=(), status="", progress=Progress.TODO, line=0)


MANY = settings(max_examples=60)
NEW = st.sampled_from(["new", "@new", "new: one", "on"])


@MANY
@given(files(), NEW)
def test_a_name_goes_into_any_file_and_out_again(data: bytes, name: str) -> None:
    before, after = read(data), edited(data, add(name))
    assert read(after).assigned == (*before.assigned, name)
    assert others(read(after)) == others(before)
    assert edited(after, remove(name)) == data


@pytest.mark.slow
@MANY
@given(files(), st.data())
def test_any_name_goes_or_gives_its_place_to_another(data: bytes, draws: st.DataObject) -> None:
    names = read(data).assigned
    assume(names)
    gone = draws.draw(st.sampled_from(names))
    less = edited(data, remove(gone.upper()))
    other = edited(data, EdgeEdit(remove=(gone,), add="@new"))
    none = edited(data, EdgeEdit(remove=names))
    assert read(less).assigned == tuple(n for n in names if n != gone)
    assert read(other).assigned == tuple("@new" if n == gone else n for n in names)
    assert read(none).assigned == ()
    for result in (less, other, none):
        assert others(read(result)) == others(read(data))
        assert comments(result) == comments(data)


def comments(data: bytes) -> list[str]:
    text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    return [found.strip() for found in re.findall(r"(?:^| )#.*", text, re.MULTILINE)]


PIECES = [b"", b" ", b"\n", b"\r", b":", b"- ", b"[", b"]", b"#", b"'", b'"', b"{", b","]
PIECES += [b"&a ", b"*a", b"\xff", b"\xc2\x85", b"\t", b"? ", b"|", b"---\n"]


@MANY
@given(files(), st.data())
def test_any_damage_is_refused_or_edited_as_wanted(data: bytes, draws: st.DataObject) -> None:
    names, whole = read(data).assigned, bytearray(data)
    for _ in range(draws.draw(st.integers(1, 3))):
        place = draws.draw(st.integers(0, len(whole)))
        whole[place : place + draws.draw(st.integers(0, 2))] = draws.draw(st.sampled_from(PIECES))
    for change in (add("@new"), remove(*names), EdgeEdit(names, "new", "done")):
        try:
            after = edited(bytes(whole), change)
        except Invalid as refusal:
            message = refusal.message
        else:
            message = ""
        if message:
            assert message.startswith("tasks/F001.md:")
            continue
        before, found = read(bytes(whole)), read(after)
        assert others(found) == others(before)
        if change.add is None:
            assert not set(found.assigned) & set(names)
        else:
            assert any(same_name(name, change.add) for name in found.assigned)


# Real files


@pytest.mark.parametrize("listed", ['  - "@bob"', "- @bob", "  # who\n  - @bob  # a note"])
def test_listed_handles_of_backlog_are_read_and_written_back(listed: str) -> None:
    text = f"---\nid: BACK-7\nassignee:\n{listed}\nstatus: To Do\n---\nAsk @bob.\n"
    file = "backlog/tasks/back-7.md"
    found = read_task(text.encode(), file=file, tasks=AS_BACKLOG)
    assert found is not None
    assert found.assigned == ("@bob",)
    claimed = edited(text, EdgeEdit(add="@ada"), file, AS_BACKLOG)
    assert edited(claimed, EdgeEdit(remove=("@ada",)), file, AS_BACKLOG) == text.encode()
    ends = EdgeEdit(remove=("@ada",), status="Done")
    assert edited(claimed, ends, file, AS_BACKLOG) == text.replace("To Do", "Done").encode()
