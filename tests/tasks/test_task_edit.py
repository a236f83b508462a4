"""Edits of task files: what was wanted changes, and every other byte is as before."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.snapshots import check_words

from gitlease.core import EdgeEdit, Invalid, Progress, Task, same_name
from gitlease.settings import FIELDS, STATUSES, Tasks
from gitlease.tasks import edit_task, read_task

BACKLOG = Path(__file__).resolve().parents[3] / "shared" / "data" / "backlog-md"

TASKS = Tasks(
    files=("tasks/**/*.md",),
    completed=(),
    required=None,
    fields={name: name for name in FIELDS},
    statuses={name: tuple(words) for name, words in STATUSES.items()},
)
AS_BACKLOG = Tasks(
    files=("backlog/tasks/*.md",),
    completed=(),
    required=None,
    fields={**TASKS.fields, "assigned": "assignee", "depends_on": "dependencies"},
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


def test_the_third_name_goes_in_and_out_where_a_single_value_was() -> None:
    one, two, three = "assigned: a\n", "assigned: [a, b ]\n", "assigned: [a, b, c ]\n"
    assert [front(one, add("b")), front(two, add("c"))] == [two, three]
    assert front(three, remove("a")) == "assigned: [b, c ]\n"
    assert front("assigned: [b, c ]\n", remove("c")) == "assigned: b\n"
    assert front("assigned: b\n", remove("b")) == ""


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
@jo no Null ~ 12 1e3 0x1f 1:30 2026-11-20 - * [a] {a} a,b &a !a %a ? << = o'neil a"b \ | > a: :a `a
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


@dataclass(frozen=True)
class File:
    """A generated file: what is around the field, the field, and what it says."""

    name: str
    head: str
    field: str
    tail: str
    names: tuple[str, ...]
    undone: bool

    @property
    def data(self) -> bytes:
        return (self.head + self.field + self.tail).encode()


NAMES = st.sampled_from(
    ["jo", "@kim", "lee@example.com", "Zoë Q", "no", "o'neil", "😀", "x: y", "12"]
)
BLANKS = st.sampled_from(["", " ", "  "])
COMMENTS = st.sampled_from(["", "", " # c", '  # it\'s: ["x", 😀', " #"])
BETWEEN = st.sampled_from(["", "", "\n", "# alone\n", "\n# é: 😀\n\n", "   # in\n"])


@st.composite
def written(draw: st.DrawFn, name: str) -> str:
    """A name as YAML, quoted in some way that is right."""
    ways = ["'" + name.replace("'", "''") + "'", f'"{name}"']
    if re.fullmatch(r"[a-z]+(@[a-z.]+)?", name) and name != "no":
        ways.append(name)
    return draw(st.sampled_from(ways))


OTHER = (
    "title: 'Ä: 😀' # x\n",
    "priority: high\n",
    "status: todo\n",
    '"created" : "a\\"b"\n',
    "depends_on: [A-1, # c\n   '012']\n",
    "paths:\n- src/a\n- '*.py' # all\n",
    "other: &a [1, {b: *a}]\n",
    "text: |\n  jo: x\n\n   # no comment\n",
    "n: >+\n  a\n\n",
    "labels:\n    - a\n    - b\n",
    "? [x]\n: y\n",
    "m: a\n   b\n",
    "e:\n",
    "'q''q': ~\n",
)


@st.composite
def fields(draw: st.DrawFn) -> tuple[str, tuple[str, ...], bool]:
    """The assigned field in any style; its names; whether a name put in goes out to the byte."""
    names = tuple(draw(st.lists(NAMES, max_size=3, unique=True)))
    texts = [draw(written(name)) for name in names]
    key = draw(st.sampled_from(["assigned", "'assigned'", '"assigned" ']))
    note = draw(COMMENTS)
    styles = ["flow", "block", "lines"] if names else ["absent", "nothing", "null", "flow"]
    style = draw(st.sampled_from([*styles, "single"] if len(names) == 1 else styles))
    if style == "absent":
        return "", names, True
    if style == "nothing":
        return f"{key}:{draw(BLANKS)}{note}\n", names, True
    if style == "null":
        word = draw(st.sampled_from(["~", "null", "''", '""']))
        return f"{key}: {word}{note}\n", names, False
    if style == "single":
        return (
            f"{key}:{draw(st.sampled_from([' ', '  ', chr(10) + '  ']))}{texts[0]}{note}\n",
            names,
            True,
        )
    if style == "block":
        indent, dash = draw(BLANKS), draw(st.sampled_from(["- ", "-  "]))
        items = "".join(f"{indent}{dash}{text}{draw(COMMENTS)}\n{draw(BETWEEN)}" for text in texts)
        return f"{key}:{note}\n{draw(BETWEEN)}{items}", names, True
    gap = draw(st.sampled_from([",", ", ", " , "] if style == "flow" else [",\n  ", ", # c\n "]))
    ends = draw(BLANKS), draw(st.sampled_from(["", " ", "  ", "\n ", " # in\n "]))
    return f"{key}: [{ends[0]}{gap.join(texts)}{ends[1]}]{note}\n", names, True


@st.composite
def files(draw: st.DrawFn) -> File:
    """A task file with its assigned field in some place."""
    field, names, undone = draw(fields())
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    identity = draw(st.sampled_from(["id: F001\n", "'id' : \"F001\" # é\n"]))
    others = draw(st.lists(st.sampled_from(OTHER), max_size=7, unique=True))
    others = [entry + draw(BETWEEN) for entry in others]
    place = draw(st.integers(0, len(others)))
    head = draw(BETWEEN) + identity + draw(BETWEEN) + "".join(others[:place])
    rest = "".join(others[place:])
    mark = draw(st.sampled_from(["", "\ufeff"]))
    if draw(st.booleans()):
        name, head = "tasks/F001.md", f"{mark}---\n{head}"
        rest += draw(st.sampled_from(["---", "...\n", "---\nbody\n", "--- \n\n# é\n\n---\nx: y"]))
    else:
        name, head = "tasks/F001.yaml", mark + draw(st.sampled_from(["", "---\n"])) + head
        if draw(st.booleans()) and (field or rest or head).endswith("\n") and not rest:
            field, head = (field[:-1], head) if field else (field, head[:-1])
    return File(
        name,
        head.replace("\n", end),
        field.replace("\n", end),
        rest.replace("\n", end),
        names,
        undone,
    )


def read(file: File, data: bytes | None = None) -> Task:
    found = read_task(file.data if data is None else data, file=file.name, tasks=TASKS)
    assert found is not None
    return found


def edit(file: File, change: EdgeEdit) -> bytes:
    return edited(file.data, change, file.name)


def others(task: Task) -> Task:
    return replace(task, assigned=(), status="", progress=Progress.TODO, line=0)


def unless_refused(work: Callable[[], bytes]) -> bytes:
    """What an edit gives; a line that would change the text above it is rightly refused."""
    try:
        return work()
    except Invalid as error:
        assume("the result would mean something else" not in error.message)
        raise


MANY = settings(max_examples=60, deadline=None)
NEW = st.sampled_from(["new", "@new", "new@example.com", "new: one", "on"])


@MANY
@given(files(), NEW)
def test_a_name_goes_into_any_file_and_out_again(file: File, name: str) -> None:
    before = read(file)
    assert before.assigned == file.names
    after = unless_refused(lambda: edit(file, add(name)))
    found = read(file, after)
    assert found.assigned == (*file.names, name)
    assert others(found) == others(before)
    text = after.decode()
    if file.field:
        assert text.startswith(file.head)
        assert text.endswith(file.tail)
    undone = edited(after, remove(name), file.name)
    if file.undone:
        assert undone == file.data
    else:
        assert edited(undone, remove(name), file.name) == undone
        assert read(file, undone).assigned == ()


@MANY
@given(files(), st.data())
def test_any_name_goes_or_gives_its_place_to_another(file: File, data: st.DataObject) -> None:
    assume(file.names)
    gone = data.draw(st.sampled_from(file.names))
    less = edit(file, remove(gone.upper() if gone.isascii() else gone))
    assert read(file, less).assigned == tuple(n for n in file.names if n != gone)
    assert others(read(file, less)) == others(read(file))
    other = edit(file, EdgeEdit(remove=(gone,), add="@new"))
    assert read(file, other).assigned == tuple("@new" if n == gone else n for n in file.names)
    none = edit(file, EdgeEdit(remove=file.names))
    assert read(file, none).assigned == ()
    assert others(read(file, none)) == others(read(file))
    for result in (less, other, none):
        assert result.startswith(file.head.encode().rstrip(b"\r\n"))
        assert result.endswith(file.tail.encode())
        assert _comments(result) == _comments(file.data)


def _comments(data: bytes) -> list[str]:
    text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    return [found.strip() for found in re.findall(r"(?:^| )#.*", text, re.MULTILINE)]


@MANY
@given(files(), st.sampled_from(["done", "In Progress", "no", "@x: y"]))
def test_any_status_is_set_and_nothing_else(file: File, word: str) -> None:
    after = unless_refused(lambda: edit(file, EdgeEdit(status=word)))
    found, before = read(file, after), read(file)
    assert found.status == word
    assert found.assigned == before.assigned
    assert others(found) == others(before)


@MANY
@given(files(), st.data())
def test_any_damage_is_refused_or_edited_as_wanted(file: File, data: st.DataObject) -> None:
    whole = bytearray(file.data)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole)))
        piece = data.draw(
            st.sampled_from(
                [b"", b" ", b"\n", b"\r", b":", b"- ", b"[", b"]", b"#", b"'", b'"', b"{"]
            )
            | st.sampled_from(
                [b",", b"&a ", b"*a", b"\xff", b"\xc2\x85", b"\t", b"? ", b"|", b"---\n"]
            )
        )
        whole[place : place + data.draw(st.integers(0, 2))] = piece
    damaged = bytes(whole)
    for change in (add("@new"), remove(*file.names), EdgeEdit(file.names, "new", "done")):
        try:
            before = read_task(damaged, file=file.name, tasks=TASKS)
            after = edited(damaged, change, file.name)
        except Invalid as refusal:
            message = refusal.message
        else:
            assert before is not None
            found = read(file, after)
            assert others(found) == others(before)
            if change.add is None:
                assert not set(found.assigned) & set(file.names)
            else:
                assert any(same_name(name, change.add) for name in found.assigned)
            continue
        assert message.startswith(file.name + ":")


# Real files

real = pytest.mark.skipif(
    not BACKLOG.is_dir(), reason="the real task files of Backlog.md are not here"
)


@real
@pytest.mark.parametrize("style", ["assignee: []\n", ""])
def test_every_real_file_is_assigned_and_given_back(style: str) -> None:
    for file in sorted(BACKLOG.glob("backlog/tasks/*.md")):
        text = file.read_text(encoding="utf-8")
        head, block, tail = re.split(r"^(assignee:.*\n(?:  - .*\n)*)", text, maxsplit=1, flags=re.M)
        assert block
        before = re.sub(r"^status: .*$", "status: To Do", head, count=1, flags=re.M) + style + tail
        data = before.encode()
        after = edited(data, add("@jo"), file.name, AS_BACKLOG)
        found = read_task(after, file=file.name, tasks=AS_BACKLOG)
        assert found is not None
        assert found.assigned == ("@jo",)
        lines = after.decode().splitlines()
        for line in before.splitlines():
            if line in lines:
                lines.remove(line)
        assert [line.strip() for line in lines] in (
            ["- '@jo'"], ["assignee: '@jo'"], ["assignee: ['@jo']"], ["assignee: ['@jo' ]"]
        )  # fmt: skip
        assert edited(after, remove("jo"), file.name, AS_BACKLOG) == data


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    "listed",
    ['  - "@bob"', "- @bob", "  # who\n  - @bob  # a note"],
)
def test_listed_handles_of_backlog_are_read_and_written_back(listed: str, end: str) -> None:
    text = f"---\nid: BACK-7\nassignee:\n{listed}\nstatus: To Do\n---\nAsk @bob.\n".replace(
        "\n", end
    )
    file = "backlog/tasks/back-7.md"
    found = read_task(text.encode(), file=file, tasks=AS_BACKLOG)
    assert found is not None
    assert found.assigned == ("@bob",)
    claimed = edited(text, EdgeEdit(add="@ada"), file, AS_BACKLOG)
    assert edited(claimed, EdgeEdit(remove=("@ada",)), file, AS_BACKLOG) == text.encode()
    ends = EdgeEdit(remove=("@ada",), status="Done")
    assert edited(claimed, ends, file, AS_BACKLOG) == text.replace("To Do", "Done").encode()
    taken = edited(text, EdgeEdit(add="@ada", remove=("@bob",)), file, AS_BACKLOG)
    quote = '"' if '"' in listed else "'"
    old = next(x for x in (f"{quote}@bob{quote}", "@bob") if x in listed)
    assert taken == text.replace(old, f"{quote}@ada{quote}", 1).encode()
