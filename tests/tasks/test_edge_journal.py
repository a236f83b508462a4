"""Intents outlive the process that had them, and belong to one process at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from support.fences import clean_env
from support.repos import make_repository
from support.snapshots import raises
from support.task_trees import open_files, put

from gitlease.kernel.ledger.ports import Intent, TaskChange
from gitlease.kernel.rules.edge import EdgeEdit
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.resources import parse_resource
from gitlease.tasks.files import EdgeJournal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "edges"


def intent_of(name: str = "op-1", root: str = "/work/tree") -> Intent:
    """An intent with everything in it that one may have."""
    return Intent(
        id=name,
        holder="jo@example.com",
        goal="held",
        operations=(name, "op.2"),
        changes=(
            TaskChange(
                parse_resource("F001"),
                "tasks/F001 é\n.md",
                EdgeEdit(remove=("@al", "b😀"), add="jo@example.com", status="doing"),
                'assign F001 to "jo"',
            ),
            TaskChange(parse_resource("F-2"), "F.md", EdgeEdit(), ""),
        ),
        commit=True,
        root=root,
    )


def journal(folder: Path) -> EdgeJournal:
    return EdgeJournal(str(folder))


def in_folder(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def leave(folder: Path, *intents: Intent) -> None:
    """Leave intents behind, as a process does that gives up."""
    mine = journal(folder)
    for intent in intents:
        mine.intend(intent)
        mine.leave(intent)


CHILD = """\
import sys
from test_edge_journal import *
mine = journal(Path(sys.argv[1]))
mine.intend(intent_of())
print("intended", flush=True)
sys.stdin.read()
"""


def test_the_intent_of_a_living_process_is_its_own(folder: Path) -> None:
    mine = journal(folder)
    mine.intend(intent_of())
    assert mine.left_behind() == journal(folder).left_behind() == []
    mine.intend(replace(intent_of(), goal="ended"))  # its own may be written again
    mine.leave(intent_of())
    (found,) = journal(folder).left_behind()
    assert found == replace(intent_of(), goal="ended"), "word for word"


def test_the_intent_of_a_killed_process_is_left_behind(folder: Path) -> None:
    places = (ROOT, ROOT / "tests", ROOT / "tests/tasks", *sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)],
        env=clean_env({"PYTHONPATH": os.pathsep.join(map(str, places))}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"intended\n"
        assert journal(folder).left_behind() == []
        child.kill()
    assert journal(folder).left_behind() == [intent_of()]


def test_an_intent_that_was_taken_and_settled_does_not_come_again(folder: Path) -> None:
    leave(folder, *[intent_of(f"op-{number}") for number in range(30)])

    def repair(_: int) -> list[str]:
        mine, done = journal(folder), []
        for _ in range(5):
            for intent in mine.left_behind():
                done.append(intent.id)
                mine.settled(intent)
        return done

    with ThreadPoolExecutor(8) as threads:
        done = [name for names in threads.map(repair, range(8)) for name in names]
    assert sorted(done) == sorted(f"op-{number}" for number in range(30))
    assert in_folder(folder) == []


def test_what_is_left_is_taken_by_whoever_looks_next(folder: Path) -> None:
    mine, other, third = journal(folder), journal(folder), journal(folder)
    mine.intend(intent_of())
    for one in (mine, other, mine):
        one.leave(intent_of())
        assert one.left_behind() == [intent_of()]
        one.leave(intent_of())
    assert third.left_behind() == [intent_of()]
    assert mine.left_behind() == []


# --- what may lie in the folder ---------------------------------------------------------------


def written() -> dict[str, object]:
    """An intent as it is written down."""
    change = {"resource": "F001", "file": "tasks/F001.md", "edit": {"add": "jo"}, "message": "a"}
    intent = {"format": 3, "id": "op-1", "holder": "jo", "goal": "held", "root": "/work"}
    intent["process"] = 0
    return {**intent, "operations": ["a"], "changes": [change]}


def changed(change: dict[str, object] | None = None, **values: object) -> str:
    """An intent with other values in it, or in its change."""
    intent = written() | values
    [one] = cast(list[dict[str, object]], written()["changes"])
    return json.dumps(intent | ({"changes": [one | change]} if change else {}))


DAMAGED = [
    "",
    "[" * 100_000,
    '"\\ud800"',
    json.dumps({k: v for k, v in written().items() if k != "holder"}),
    changed(id="op-2"),
    changed(holder=None),
    changed(goal="lost"),
    changed(operations="op-1"),
    changed(root="work"),
    changed({"file": "tasks/../../x.md"}),
    changed({"resource": "!x"}),
    changed({"edit": {"remove": "jo"}}),
]


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[-60:])
def test_a_damaged_intent_stays_for_whoever_looks(folder: Path, text: str) -> None:
    put(folder, "op-1.json", text, old=False)
    leave(folder, intent_of("op-2"))
    mine = journal(folder)
    assert [intent.id for intent in mine.left_behind()] == ["op-2"]
    assert in_folder(folder) == ["op-1.json", "op-2.json"]


def test_the_intent_of_a_newer_version_is_left_to_it(folder: Path) -> None:
    put(folder, "op-1.json", changed(format=4), old=False)
    assert journal(folder).left_behind() == []
    assert (folder / "op-1.json").exists()


def test_links_and_pipes_in_the_place_of_intents_are_not_read(folder: Path, tmp_path: Path) -> None:
    target = put(tmp_path, "elsewhere.json", json.dumps(written()))
    folder.mkdir(parents=True)
    (folder / "op-1.json").symlink_to(target)
    os.mkfifo(folder / "op-2.json")
    assert journal(folder).left_behind() == []
    assert target.read_text() == json.dumps(written())


def test_files_left_half_written_go_after_an_hour(folder: Path) -> None:
    put(folder, "op-1.json.77.ab.tmp", "{")
    put(folder, "op-2.json.77.ab.tmp", "{", old=False)
    journal(folder).left_behind()
    assert in_folder(folder) == ["op-2.json.77.ab.tmp"]


@pytest.mark.parametrize("process", [None, os.getppid()])
def test_what_may_be_a_living_process_s_is_anyones_after_an_hour(
    folder: Path, process: int | None
) -> None:
    """An older gitlease does not say whose it is; a number may be another process's since."""
    text = changed(process=process, format=3 if process else 2)
    file = put(folder, "op-1.json", text, old=False)
    assert journal(folder).left_behind() == []
    hour = time.time() - 3_601
    os.utime(file, (hour, hour))
    assert [x.id for x in journal(folder).left_behind()] == ["op-1"]


@pytest.mark.parametrize("name", ["", "..", "../a", "x" * 129, "a\0"])
def test_an_intent_without_a_usable_id_is_refused(folder: Path, name: str) -> None:
    with raises(Invalid):
        journal(folder).intend(intent_of(name))
    journal(folder).settled(intent_of(name))
    assert not folder.exists()


def test_an_intent_that_would_not_be_read_again_is_refused(folder: Path) -> None:
    for odd in ({"goal": "other"}, {"root": "here"}, {"holder": "\ud83d\ude00"}):
        with raises(Invalid):
            journal(folder).intend(replace(intent_of(), **odd))  # type: ignore[arg-type]
    assert not folder.exists()


def test_an_intent_remembers_its_work_tree(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    files = open_files(root)
    files.intend(intent_of(root=""))
    assert files.left_behind() == []
    files.leave(intent_of())
    again = open_files(root)
    (found,) = again.left_behind()
    assert found == intent_of(root=str(root))
    assert again.at(found.root) is again
    again.settled(found)
    assert in_folder(root / ".git/gitlease/intents") == []


def test_an_intent_waits_for_its_file_for_thirty_days(tmp_path: Path) -> None:
    folder = tmp_path / "edges"
    leave(folder, intent_of())
    month = time.time() - 31 * 86_400
    os.utime(folder / "op-1.json", (month, month))
    assert EdgeJournal(str(folder)).left_behind() == []
    assert not (folder / "op-1.json").exists()
