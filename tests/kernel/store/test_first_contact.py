"""A first contact brings the live records and the newest history; what is older comes on demand."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_program
from support.ledgers import door
from support.remotes import KINDS, Remote, Servers, open_remote
from support.repos import commit_file, git, make_clone
from support.running import Desk

from gitlease.kernel.store import transport

REF = "refs/gitlease/global"
STEPS = 12  # that a first contact brings here
AT_ONCE = 12  # first contacts of one clone
LIMITED = (
    f"import gitlease.kernel.store.transport as g; g.FIRST_STEPS = {STEPS}; "
    "from gitlease.__main__ import main; main()"
)


class Newcomer(Desk):
    """A clone whose first contact brings a few steps."""

    def words(self, *argv: str) -> list[str]:
        return [sys.executable, "-c", LIMITED, *argv]

    def ask(
        self, *argv: str, input: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in an interpreter of its own."""
        return run_program(self.words(*argv), self.clone, {**self.env, **(env or {})}, input=input)

    @property
    def store(self) -> Path:
        return self.clone / ".git" / "gitlease" / "store.git"

    def steps(self) -> int:
        """How many steps of the ledger are here."""
        known = git(self.store, "for-each-ref", "--format=%(objectname)", "refs/known").split()
        return int(git(self.store, "rev-list", "--count", known[0]))


def decide(remote: Remote, tmp_path: Path, decisions: int) -> Path:
    """Have somebody claim and release a few names in turns, after one that stays claimed."""
    clone = make_clone(remote, tmp_path / "ada", "ada@example.com", "Ada")
    leases = door(clone)
    leases.claim("kept", ttl="8h")
    for number in range(decisions // 2):
        leases.claim(f"n{number % 5}")
        leases.release(f"n{number % 5}")
    return clone


def newcomer(remote: Remote, tmp_path: Path, name: str = "jo") -> Newcomer:
    clone = make_clone(remote, tmp_path / name, f"{name}@example.com", name)
    return Newcomer(clone, env=remote.env)


@pytest.fixture(
    params=[x if x == "file" else pytest.param(x, marks=pytest.mark.slow) for x in KINDS]
)
def remote(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Remote]:
    with open_remote(request.param, tmp_path / "remote", servers=servers) as made:
        yield made


@pytest.mark.slow
def test_all_of_a_clones_work_goes_on_without_the_oldest_history(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.open_to(monkeypatch)
    ada = decide(remote, tmp_path, 30)
    jo = newcomer(remote, tmp_path)
    held = {x["resource"] for x in jo.document("list")["leases"]}
    assert held == {"kept"}, "what is live is there, however old"
    assert jo.steps() == STEPS

    assert jo.document("claim", "kept", expect=1)["error"]["holder"] == "ada@example.com"
    assert jo.document("claim", "mine")["status"] == "claimed"
    assert jo.document("renew", "mine")["status"] == "renewed"
    door(ada).claim("more")
    assert jo.document("release", "mine")["status"] == "released"
    assert jo.steps() == STEPS + 4, "what is new comes, and nothing older"
    assert [x["kind"] for x in jo.document("log", "--limit", "2")["events"]] == [
        "released",
        "claimed",
    ]
    known = jo.document("log", "kept", "--cached")
    assert known["events"] == [], "it is older than what is here, and nobody is asked"

    before = remote.connections()
    (event,) = jo.document("log", "kept")["events"]
    assert (event["kind"], event["holder"]) == ("claimed", "ada@example.com")
    assert remote.connections() == before + 3, "the newest, whether the oldest can be had, and all"
    assert jo.steps() == 31 + 4
    jo.document("log", "kept")
    assert remote.connections() == before + 4, "it is here now"


@pytest.mark.nightly
def test_a_check_and_a_proof_fetch_what_they_need(path_remote: Remote, tmp_path: Path) -> None:
    ada = decide(path_remote, tmp_path, 4)
    commit_file(ada, "old.txt", "1")
    git(ada, "push", "-q", "origin", "HEAD:main")
    door(ada).claim("path:old.txt")
    commit_file(ada, "old.txt", "2")
    git(ada, "push", "-q", "origin", "HEAD:main")
    decide_more = door(ada)
    for _ in range(10):
        decide_more.release("path:old.txt")
        decide_more.claim("path:old.txt")

    jo = newcomer(path_remote, tmp_path)
    jo.document("list")
    assert jo.steps() == STEPS
    verified = jo.document("verify", "--cached")
    assert verified["unjudged"]
    done = jo.document("check", "HEAD~2..HEAD")
    # ada's commits name no token; but what was found needs the older steps.
    assert {x["rule"] for x in done["violations"]} == {"held-unproven"}

    kim = newcomer(path_remote, tmp_path, "kim")
    kim.document("list")
    assert kim.document("verify")["unjudged"] == []
    assert kim.steps() == 26


@pytest.mark.slow
def test_a_store_that_was_lost_is_filled_again(path_remote: Remote, tmp_path: Path) -> None:
    """A clone that knows a ledger proves that it goes on from there: it asks for all of it."""
    ada = decide(path_remote, tmp_path, 2)
    jo = newcomer(path_remote, tmp_path)
    jo.document("list")
    for number in range(2 * STEPS):
        door(ada).claim(f"m{number}")
    git(jo.store.parent, "init", "-q", "--bare", "aside")
    os.rename(jo.store, tmp_path / "lost")
    assert len(jo.document("list")["leases"]) == 2 * STEPS + 1
    assert jo.steps() == 3 + 2 * STEPS


def test_first_contacts_at_once_do_not_disturb_each_other(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git refuses a second one that says how much history it wants: they take turns."""
    remote.open_to(monkeypatch)
    decide(remote, tmp_path, 4)
    jo = newcomer(remote, tmp_path)
    fetches: list[object] = []
    fetch, start = transport.fetch_into, threading.Barrier(AT_ONCE)

    def counted(*args: Any, **options: Any) -> Any:
        fetches.append(args[2])
        return fetch(*args, **options)

    def listed(_: int) -> list[str]:
        leases = door(jo.clone)
        start.wait(60)
        return [x.resource for x in leases.list()]

    monkeypatch.setattr(transport, "fetch_into", counted)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(listed, range(AT_ONCE))) == [["kept"]] * AT_ONCE
    assert len(fetches) <= AT_ONCE, "none was in vain"
