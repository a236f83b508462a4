"""Many processes want the same at the same moment: exactly one gets it, and all know who."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.ledgers import door, header_of, read_files, text_of
from support.remotes import Remote, Servers, open_remote
from support.repos import git
from support.workers import Answer, Workers

Clones = Callable[..., list[Path]]
NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
ROUNDS = {"path": 12, "file": 3, "http": 3, "ssh": 2}
MANY = {"path": 150, "file": 50, "http": 40, "ssh": 12}


def holder_of(bare: Path, resource: str) -> tuple[str, str | None]:
    """Holder and session of a lease, as the ref says."""
    found = []
    for file in read_files(bare):
        if file.startswith(("leases/", "paths/")):
            lines = text_of(bare, file).splitlines()
            fields = dict(line.partition(": ")[::2] for line in lines if not line.startswith(" "))
            if fields["resource"].strip('"') == resource:
                session = fields["session"].strip('"')
                holder = fields["holder"].strip('"')
                found.append((holder, None if session == "null" else session))
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def eight(remote: Remote, clones: Clones) -> Iterator[Workers]:
    """Eight people, each with a clone."""
    with people(clones(8), remote) as workers:
        yield workers


def people(made: list[Path], remote: Remote) -> Workers:
    return Workers([(["-C", str(clone)], remote.env) for clone in made])


def judge(answers: list[Answer], bare: Path, names: dict[int, tuple[str, str | None]]) -> int:
    """Exactly one winner, whom the ref and all the others name; the winner's number."""
    exits = [answer.exit for answer in answers]
    assert sorted(exits) == [0] + [1] * (len(answers) - 1), [a.document for a in answers]
    winner = exits.index(0)
    won = answers[winner].document["lease"]
    assert (won["holder"], won["session"]) == names[winner]
    assert holder_of(bare, won["resource"]) == names[winner]
    for answer in answers:
        if answer.exit:
            error = answer.document["error"]
            assert error["code"] == "held"
            assert (error["holder"], error["session"]) == names[winner]
            assert error["lease"]["lease_id"] == won["lease_id"]
            assert error["lease"]["token"] == won["token"]
    return winner


def race(workers: Workers, remote: Remote, rounds: int) -> None:
    names: dict[int, tuple[str, str | None]] = {
        n: (f"w{n + 1}@example.com", None) for n in range(len(workers))
    }
    tokens = []
    for number in range(rounds):
        answers = workers.all("claim", f"F{number:03d}")
        winner = judge(answers, remote.bare, names)
        tokens.append(answers[winner].document["lease"]["token"])
    assert tokens == list(range(1, rounds + 1)), "a token for every grant, and no other"
    assert header_of(remote.bare).sequence == rounds


@pytest.mark.slow
@pytest.mark.one_in(4)
def test_eight_people_claim_the_same(eight: Workers, remote: Remote) -> None:
    """The first round makes the ledger as well: eight first contacts at once."""
    race(eight, remote, ROUNDS[remote.kind])


@pytest.mark.slow
@pytest.mark.nightly
def test_eight_people_claim_the_same_many_times(eight: Workers, remote: Remote) -> None:
    race(eight, remote, MANY[remote.kind])


def all_get_theirs(workers: Workers, remote: Remote) -> None:
    lines = [["claim", f"G{n}"] for n in range(len(workers))]
    answers = workers.at_once(lines)
    assert [a.exit for a in answers] == [0] * len(workers), [
        a.document["error"] for a in answers if a.exit
    ]
    tokens = sorted(a.document["lease"]["token"] for a in answers)
    assert tokens == list(range(1, len(workers) + 1))
    for n in range(len(workers)):
        assert holder_of(remote.bare, f"G{n}") == (f"w{n + 1}@example.com", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("path", 8), ("http", 8)),
        *(pytest.param(k, 16, marks=NIGHTLY) for k in ("path", "file", "http", "ssh")),
    ],
)
def test_many_people_claim_as_many_things(
    kind: str, number: int, clones: Clones, tmp_path: Path, servers: Servers
) -> None:
    """Every one of them succeeds: an unrelated change is never reported as held."""
    with (
        open_remote(kind, tmp_path / "remote", servers=servers) as remote,
        people(clones(number, remote), remote) as workers,
    ):
        all_get_theirs(workers, remote)


def sessions(clone: Path, remote: Remote, number: int) -> Workers:
    return Workers([(["-C", str(clone), "--session", f"s{n}"], remote.env) for n in range(number)])


def test_eight_sessions_of_one_clone(path_remote: Remote, clones: Clones) -> None:
    """They share the private store and what it knows; only one of them gets it."""
    with sessions(clones(1)[0], path_remote, 8) as workers:
        names: dict[int, tuple[str, str | None]] = {
            n: ("w1@example.com", f"s{n}") for n in range(8)
        }
        for number in range(8):
            answers = workers.all("claim", f"F{number}")
            judge(answers, path_remote.bare, names)


def all_sessions_get_theirs(workers: Workers, verb: str) -> None:
    answers = workers.at_once([[verb, f"H{n}"] for n in range(len(workers))])
    assert [a.exit for a in answers] == [0] * len(workers), [
        a.document["error"] for a in answers if a.exit
    ]


@pytest.mark.slow
def test_sixteen_sessions_of_one_clone_keep_sixteen_things(
    path_remote: Remote, clones: Clones
) -> None:
    with sessions(clones(1)[0], path_remote, 16) as workers:
        for verb in ("claim", "renew", "renew", "release"):
            all_sessions_get_theirs(workers, verb)


@pytest.mark.slow
def test_readers_and_writers_of_one_clone(path_remote: Remote, clones: Clones) -> None:
    """Who only looks is not told of a rollback because a neighbour wrote in the meantime."""
    with sessions(clones(1)[0], path_remote, 8) as workers:
        for turn in range(3):
            lines = [["list"] if n % 2 else ["claim", f"K{turn}-{n}"] for n in range(8)]
            answers = workers.at_once(lines)
            assert [a.exit for a in answers] == [0] * 8, [
                a.document["error"] for a in answers if a.exit
            ]


@pytest.mark.slow
def test_threads_of_one_program(path_remote: Remote, clones: Clones) -> None:
    """Six threads, each with a door of its own to the same clone."""
    clone = clones(1)[0]

    def work(number: int) -> list[str]:
        leases = door(clone, session=f"s{number}")
        for turn in range(3):
            leases.claim(f"T{number}-{turn}")
            leases.renew(f"T{number}-{turn}")
        return [x.resource for x in leases.list(mine=True)]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(6)))
    assert found == [[f"T{number}-{turn}" for turn in range(3)] for number in range(6)]


@pytest.mark.slow
def test_overlapping_paths(path_remote: Remote, clones: Clones) -> None:
    """All of these can meet on src/auth/login.py, so one of them wins."""
    wanted = [
        "src/**",
        "src/*/login.py",
        "src/auth/",
        "**/login.py",
        "src/a*/l*.py",
        "src/auth/login.py",
        "SRC/Auth/**",
        "src/[a-c]uth/log?n.*",
    ]
    with people(clones(8), path_remote) as workers:
        for turn in range(3):
            order = random.Random(turn).sample(wanted, 8)
            answers = workers.at_once([["claim", word] for word in order])
            exits = [answer.exit for answer in answers]
            assert sorted(exits) == [0] + [1] * 7, [a.document for a in answers]
            winner = exits.index(0)
            won = answers[winner].document["lease"]
            for answer in answers:
                if answer.exit:
                    assert answer.document["error"]["code"] == "held"
                    assert answer.document["error"]["lease"]["lease_id"] == won["lease_id"]
            assert workers.one(winner, "release", order[winner]).exit == 0


@pytest.mark.slow
def test_all_or_none_of_several(path_remote: Remote, clones: Clones) -> None:
    """Overlapping sets in different orders: whoever wins has all of its own, the others none."""
    sets = [["A", "B"], ["B", "C"], ["C", "D"], ["D", "A"], ["B", "A", "D"], ["D", "C", "B"]]
    with people(clones(6), path_remote) as workers:
        for _ in range(3):
            answers = workers.at_once([["claim", *names] for names in sets])
            taken: dict[str, str] = {}
            for answer, names in zip(answers, sets, strict=True):
                if answer.exit == 0:
                    assert {x["resource"] for x in answer.document["leases"]} == set(names)
                    for name in names:
                        assert name not in taken
                        taken[name] = answer.document["leases"][0]["holder"]
                else:
                    assert answer.code == "held"
            assert taken
            shown = workers.one(0, "list").document["leases"]
            assert {x["resource"]: x["holder"] for x in shown} == taken
            for number, (answer, names) in enumerate(zip(answers, sets, strict=True)):
                if answer.exit == 0:
                    assert workers.one(number, "release", *names).exit == 0


def test_the_remote_stays_sound(path_remote: Remote, clones: Clones) -> None:
    with people(clones(4), path_remote) as workers:
        for turn in range(2):
            lines = [["claim", f"P{turn}-{n % 2}"] for n in range(4)]
            workers.at_once(lines)
            workers.all("renew", "--all")
    git(path_remote.bare, "fsck", "--strict", "--no-dangling")
