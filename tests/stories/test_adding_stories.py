"""Tasks added by `add`: files like their neighbours, with ids that nobody else has."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.typed import Typist

import gitlease

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
TASK = "---\nid: F009\ntitle: One\nstatus: todo\nassigned: []\npriority: high\n---\n\nWords.\n"


def commit(clone: Path, **files: str) -> None:
    for name, text in files.items():
        file = clone / "tasks" / f"{name}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "tasks")
    git(clone, "push", "-q", "origin", "HEAD:main")


@pytest.fixture
def desks(clones: Clones) -> tuple[Typist, Typist]:
    clock = ManualClock()
    ada, bob = (Typist(clone, clock) for clone in clones(2))
    commit(ada.clone, F009=TASK)
    git(bob.clone, "pull", "-q", "origin", "main")
    return ada, bob


@pytest.fixture
def ada(desks: tuple[Typist, Typist]) -> Typist:
    return desks[0]


def added(typist: Typist, line: str) -> str:
    file: str = typist.ok(f"add {line} --json").json["file"]
    return (typist.clone / file).read_bytes().decode()


@pytest.mark.default
def test_a_task_is_filed_as_its_neighbours_are(
    ada: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, real = list[float](), time.sleep

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    made = ada.ok(
        "add 'Limits: 5 a minute' --depends-on f009 --paths src/ --priority low --json"
    ).json
    assert 0.005 not in waits, "no lock is in its way, least of all its own"
    assert (made["task"]["resource"], made["file"]) == ("F010", "tasks/F010.md")
    assert made["next"] == ["gitlease claim F010"]
    assert (ada.clone / made["file"]).read_text() == (
        "---\nid: F010\ntitle: 'Limits: 5 a minute'\nstatus: todo\nassigned: []\npriority: low\n"
        "depends_on:\n  - F009\npaths:\n  - src\n---\n"
    )
    ada.accepts(made["next"][0])


FORMS = {
    "block lists": ("---\nid: T-1\ndepends_on:\n- a\nlabels:\n- b\nowner: jo\n---\n", "T-2"),
    "brackets": ('---\nid: "0041"\ntitle: "x"\ndepends_on: [a]\n---\n', "0042"),
    "line ends": ("---\r\nid: task_7\r\ncreated: 2026-01-02\r\n---\r\n", "task_8"),
}


@pytest.mark.parametrize("form", FORMS)
def test_its_form_is_that_of_others(ada: Typist, form: str) -> None:
    text, id = FORMS[form]
    git(ada.clone, "rm", "-q", "tasks/F009.md")
    commit(ada.clone, one=text)
    made = added(ada, "'The second'").encode()
    data = (ada.clone / "tasks" / "one.md").read_bytes()
    assert (b"\r\n" in made) == (b"\r\n" in data)
    keys = [x.partition(":")[0] for x in made.decode().splitlines() if ":" in x]
    assert [x for x in keys if x in text] == [
        x for x in text.replace(":", " ").split() if x in keys
    ]
    assert id in made.decode()


@pytest.mark.nightly
def test_the_first_task_of_backlog_md_is_numbered_by_its_config(ada: Typist) -> None:
    (ada.clone / "backlog" / "tasks").mkdir(parents=True)
    config = "project_name: x\ntask_prefix: bug\nzero_padded_ids: 3\n"
    (ada.clone / "backlog" / "config.yml").write_text(config)
    git(ada.clone, "rm", "-qr", "tasks")
    ada.ok("init")
    files = [ada.ok(f"add 'The {x}' --json").json["file"] for x in ("first", "second")]
    expected = ["bug-001 - The-first.md", "bug-002 - The-second.md"]
    assert files == [f"backlog/tasks/{x}" for x in expected]


BAD = {
    "''": (2, "usage"),
    f"{'x' * 501}": (2, "usage"),
    "x --id F009": (2, "usage"),
    "x --id F050": (2, "usage"),
    **dict.fromkeys(("x --id a:b", "x --id con", "x --id LPT1.x", "x --id a."), (2, "usage")),
    "x --depends-on F999": (7, "not_found"),
    "x --id F060 --depends-on F061": (2, "usage"),
    "x --paths 'a{b,c}'": (2, "usage"),
    "x --priority hihg": (2, "usage"),
}


def test_what_is_wrong_is_refused_and_writes_nothing(ada: Typist) -> None:
    ada.ok("claim F050 --any")
    commit(
        ada.clone,
        F061=TASK.replace("F009", "F061").replace("---\n\n", "depends_on: [F060]\n---\n\n"),
    )
    before = git(ada.clone, "status", "--porcelain")
    for line, expected in BAD.items():
        refused = ada.types(f"add {line} --json")
        assert (refused.code, refused.json["error"]["code"]) == expected, line
    assert git(ada.clone, "status", "--porcelain") == before


def test_odd_titles_are_read_back_as_given(ada: Typist) -> None:
    for number, title in enumerate(("-v prints", "a/b: ä # d", "x" * 300), 10):
        with gitlease.open(ada.clone) as leases:
            task = leases.add(title)
        assert (str(task.resource), task.title) == (f"F0{number}", title)
        assert ada.ok(f"show {task.resource} --json").json["task"]["title"] == title


@pytest.mark.nightly
def test_an_id_is_free_on_the_remotes_main_branch_as_well(desks: tuple[Typist, Typist]) -> None:
    ada, bob = desks
    commit(ada.clone, F010=TASK.replace("F009", "F010"))
    assert bob.ok("add x --json").json["task"]["resource"] == "F011"
    assert bob.types("add x --id F010").code == 2
    assert git(bob.clone, "rev-parse", "origin/main") != git(ada.clone, "rev-parse", "HEAD")
    git(bob.clone, "remote", "set-url", "origin", "/nowhere/at/all")
    offline = bob.ok("add y --json").json
    assert (offline["task"]["resource"], len(offline["warnings"])) == ("F012", 1)


def test_no_two_work_trees_or_branches_of_a_clone_get_one_number(ada: Typist) -> None:
    git(ada.clone, "worktree", "add", "-q", "../other", "-b", "other")
    other = Typist(ada.clone.parent / "other", ada.clock)
    got = [x.ok("add x --json").json["task"]["resource"] for x in (ada, other, ada)]
    assert got == ["F010", "F011", "F012"]
    commit(other.clone)
    git(ada.clone, "worktree", "remove", "../other")
    assert ada.types("add x --id F011").code == 2


def test_processes_at_the_same_time_get_two_numbers(ada: Typist, path_remote: Remote) -> None:
    words = [sys.executable, "-P", "-m", "gitlease", "add", "x"]
    env = clean_env(path_remote.env)
    running = [subprocess.Popen(words, cwd=ada.clone, env=env) for _ in range(3)]
    assert [x.wait() for x in running] == [0, 0, 0]
    files = sorted(x.name for x in (ada.clone / "tasks").iterdir())
    assert files == ["F009.md", "F010.md", "F011.md", "F012.md"]


def test_without_any_task_the_first_one_is_named(ada: Typist) -> None:
    git(ada.clone, "rm", "-qr", "tasks")
    git(ada.clone, "commit", "-qm", "none")
    git(ada.clone, "push", "-q", "origin", "HEAD:main")
    refused = ada.types("add first --json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "usage")
    first = ada.ok("add first --id T001 --json").json["file"]
    second = ada.ok("add second --json").json["file"]
    assert (first, second) == ("tasks/T001.md", "tasks/T002.md")


@pytest.mark.nightly
def test_where_no_file_can_be_written_it_says_so(ada: Typist) -> None:
    (ada.clone / ".gitignore").write_text("F010.md\n")
    assert ada.types("add x").code == 7
    shutil.move(ada.clone / "tasks", ada.clone / "moved")
    (ada.clone / "tasks").write_text("no folder")
    assert ada.types("add x --id T1").code == 7
