"""Many processes want the same at the same moment: exactly one gets it, and all know who."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.hooked import share_tasks
from support.ledgers import header_of, read_files, text_of
from support.remotes import Remote, Servers, open_remote
from support.repos import git
from support.workers import Answer, Workers

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
ROUNDS = {"path": 12, "file": 3, "http": 12, "ssh": 2}


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


def sessions(clone: Path, remote: Remote, number: int) -> Workers:
    return Workers([(["-C", str(clone), "--session", f"s{n}"], remote.env) for n in range(number)])


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


@pytest.mark.nightly("file", "ssh")
def test_eight_people_claim_the_same(eight: Workers, remote: Remote) -> None:
    """The first round makes the ledger as well: eight first contacts at once."""
    names: dict[int, tuple[str, str | None]] = {
        n: (f"w{n + 1}@example.com", None) for n in range(8)
    }
    tokens, rounds = [], ROUNDS[remote.kind]
    for number in range(rounds):
        answers = eight.all("claim", f"F{number:03d}")
        winner = judge(answers, remote.bare, names)
        tokens.append(answers[winner].document["lease"]["token"])
    assert tokens == list(range(1, rounds + 1)), "a token for every grant, and no other"
    assert header_of(remote.bare).sequence == rounds
    git(remote.bare, "fsck", "--strict", "--no-dangling")


@pytest.mark.nightly("file", "ssh")
def test_eight_people_claim_as_many_things(eight: Workers, remote: Remote) -> None:
    """Every one of them succeeds: an unrelated change is never reported as held."""
    answers = eight.at_once([["claim", f"G{n}"] for n in range(8)])
    assert [a.exit for a in answers] == [0] * 8, [a.document for a in answers if a.exit]
    tokens = sorted(a.document["lease"]["token"] for a in answers)
    assert tokens == list(range(1, 9))
    for n in range(8):
        assert holder_of(remote.bare, f"G{n}") == (f"w{n + 1}@example.com", None)


def test_sessions_of_one_clone(path_remote: Remote, clones: Clones) -> None:
    """They share the private store and what it knows; only one of them gets it."""
    with sessions(clones(1)[0], path_remote, 4) as workers:
        names: dict[int, tuple[str, str | None]] = {
            n: ("w1@example.com", f"s{n}") for n in range(4)
        }
        for number in range(3):
            answers = workers.all("claim", f"F{number}")
            judge(answers, path_remote.bare, names)


# --- in one clone ---------------------------------------------------------------------------------


def test_a_claim_of_one_clone_costs_one_connection(path_remote: Remote, clones: Clones) -> None:
    """Its processes take turns, in a linked work tree of it as well."""
    (clone,) = clones(1)
    git(clone, "worktree", "add", "-q", "-b", "side", str(clone.parent / "side"))
    both = [sessions(x, path_remote, 3) for x in (clone, clone.parent / "side")]
    with both[0] as here, both[1] as there:
        assert here.one(0, "claim", "first").exit == 0
        before = path_remote.connections()
        for turn in range(4):
            lines = [[["claim", f"{place}-{turn}-{n}"] for n in range(3)] for place in "ab"]
            with ThreadPoolExecutor() as pool:
                answers = pool.map(
                    lambda x: x[0].at_once(x[1]), ((here, lines[0]), (there, lines[1]))
                )
            assert [x.exit for each in answers for x in each] == [0] * 6
        assert path_remote.connections() - before <= 1.2 * 24


# --- the next task --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["path", pytest.param("http", marks=pytest.mark.nightly)])
def test_twenty_workers_get_twenty_tasks(
    kind: str, clones: Clones, tmp_path: Path, servers: Servers
) -> None:
    """Of 33 tasks 22 wait for nothing: only those are handed out while there are any."""

    def text(name: str) -> str:
        waits = "priority: high\ndepends_on: [T32]\n" if name < "T11" else ""
        return f"---\nid: {name}\nstatus: todo\n{waits}---\n"

    with open_remote(kind, tmp_path / "remote", servers=servers) as remote:
        made = clones(20, remote)
        share_tasks(made, (f"T{n:02d}" for n in range(33)), remote.env, text)
        with people(made, remote) as workers:
            answers = workers.all("next", "--claim")
            assert [a.exit for a in answers] == [0] * 20, [a.document for a in answers if a.exit]
            got = {a.document["task"]["resource"] for a in answers}
            assert len(got) == 20, "nobody got what another has"
            assert min(got) >= "T11", "what waits is handed out last"
            for answer, clone in zip(answers, made, strict=True):
                assert answer.document["edge"] == "added"
                name = answer.document["lease"]["resource"]
                written = (clone / "tasks" / f"{name}.md").read_text(encoding="utf-8")
                assert f"assigned: {answer.document['lease']['holder']}\n" in written
            rest = [workers.one(n, "next", "--claim").document["task"] for n in range(3)]
            assert rest[-1]["resource"] < "T11", "when nothing else is left"
        assert len([f for f in read_files(remote.bare) if f.startswith("leases/")]) == 23
