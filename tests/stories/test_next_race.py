"""Twenty workers ask for the next task at the same moment: each gets another one, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.ledgers import read_files
from support.remotes import Remote, Servers, open_remote
from support.repos import git
from support.workers import Workers

NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
Clones = Callable[..., list[Path]]
WORKERS = 20


def write_tasks(
    clone: Path, names: list[str], fields: Callable[[str], str], remote: Remote
) -> None:
    (clone / "tasks").mkdir()
    for name in names:
        text = f"---\nid: {name}\nstatus: todo\n{fields(name)}---\n"
        (clone / "tasks" / f"{name}.md").write_text(text, encoding="utf-8")
    git(clone, "add", "tasks")
    git(clone, "commit", "-q", "-m", "tasks")
    git(clone, "push", "-q", "origin", "HEAD:main", env=remote.env)


def pull(made: list[Path], remote: Remote) -> None:
    for clone in made[1:]:
        git(clone, "pull", "-q", "origin", "main", env=remote.env)


def changed(made: list[Path]) -> list[str]:
    return [git(clone, "status", "--porcelain") for clone in made]


def judge(workers: Workers, made: list[Path], expected: int) -> list[str]:
    """Nobody got what another has; each has the edge in its own clone; the rest got a clean no."""
    before = changed(made)
    answers = workers.all("next", "--claim")
    after = changed(made)
    got = [a.document["task"]["resource"] for a in answers if a.exit == 0]
    assert len(set(got)) == len(got) == expected, [a.document for a in answers if a.exit]
    for number, (answer, clone) in enumerate(zip(answers, made, strict=True)):
        if answer.exit == 0:
            assert answer.document["edge"] == "added"
            name = answer.document["task"]["resource"]
            assert answer.document["lease"]["resource"] == name
            text = (clone / "tasks" / f"{name}.md").read_text(encoding="utf-8")
            assert f"assigned: {answer.document['lease']['holder']}\n" in text
        else:
            assert (answer.exit, answer.code) == (1, "nothing_left")
            assert before[number] == after[number]
    return got


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("path", marks=pytest.mark.slow),
        *(pytest.param(kind, marks=NIGHTLY) for kind in ("http", "file", "ssh")),
    ],
)
def test_twenty_workers_get_twenty_tasks(
    kind: str, clones: Clones, tmp_path: Path, servers: Servers
) -> None:
    """Of 33 tasks 22 wait for nothing: only those are handed out while there are any."""
    names = [f"T{n:02d}" for n in range(33)]
    with open_remote(kind, tmp_path / "remote", servers=servers) as remote:
        made = clones(WORKERS, remote)
        write_tasks(
            made[0],
            names,
            lambda name: "priority: high\ndepends_on: [T32]\n" if name < "T11" else "",
            remote,
        )
        pull(made, remote)
        with Workers([(["-C", str(clone)], remote.env) for clone in made]) as workers:
            got = judge(workers, made, WORKERS)
            assert all(name >= "T11" for name in got), "what waits is handed out last"
            if kind != "path":  # a round of twenty takes its time
                rest = judge(workers, made, 13)
                assert sorted(got + rest) == names
            else:
                rest = [
                    str(workers.one(n, "next", "--claim").document["task"]["resource"])
                    for n in range(3)
                ]
                assert rest[-1] < "T11", "when nothing else is left"
        records = [f for f in read_files(remote.bare) if f.startswith("leases/")]
        assert len(records) == len(got + rest)


@pytest.mark.slow
def test_ten_runs_of_one_person_get_different_tasks(path_remote: Remote, clones: Clones) -> None:
    (clone,) = clones(1)
    write_tasks(clone, [f"T{n:02d}" for n in range(7)], lambda _name: "", path_remote)
    words = [(["-C", str(clone), "--session", f"s{n}"], path_remote.env) for n in range(5)]
    words += [(["-C", str(clone), "--no-session"], path_remote.env) for _ in range(5)]
    with Workers(words) as workers:
        answers = workers.all("next", "--claim")
    got = [a.document["task"]["resource"] for a in answers if a.exit == 0]
    assert len(set(got)) == len(got) == 7
    assert {a.code for a in answers if a.exit} == {"nothing_left"}
