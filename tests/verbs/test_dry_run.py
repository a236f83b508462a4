"""A dry run of a claim says what the claim would come to, and writes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doors.fake import Desk, make_desks, words
from support.gateway import serving
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk as RealDesk
from support.snapshots import check_words, raises
from support.tasks import Killed, task
from support.tools import in_memory

import gitlease
from gitlease.kernel.rules import errors
from gitlease.kernel.rules.edge import Progress

TASK = "---\nid: F001\ntitle: rate limits\nstatus: todo\n---\n"
LEARNED = ("known.json", "objects", "packed-refs", "refs", "tidied", "idle")


def memory_of(desk: Desk) -> dict[str, Any]:
    """All that a command of the desk could change, or remember."""
    known = {
        name: value for name, value in vars(desk.store).items() if name not in ("asked", "_seen")
    }
    return copy.deepcopy({x: repr(y) for x, y in known.items()} | {"tasks": repr(desk.tasks)})


def prepared() -> Desk:
    """Bob's desk: Ada holds some names, is assigned a task, and has finished another."""
    tasks = [task(f"F00{n}") for n in range(1, 9)]
    ada, bob = make_desks(
        *tasks, task("F009", "ada@example.com"), task("F010", status="done", progress=Progress.DONE)
    )
    for name in ("F001", "F002", "src/api/"):
        ada.ok("claim", name)
    ada.ok("done", "F002")
    ada.ok("claim", "F003", "--ttl", "1m")
    bob.ok("claim", "F004")
    ada.ok("claim", "F005", "--ttl", "1m")
    bob.ok("claim", "F006", "--scope", "parser")
    bob.clock.advance(200)
    return bob


WOULD = {"claimed": "would_claim", "renewed": "would_renew", "taken_over": "would_take_over"}
GRANTED = [
    ("F007",),
    ("F007", "F008", "--ttl", "30m", "--reason", "why"),
    ("F004", "--ttl", "30m"),
    ("F006", "--scope", "lexer"),
    ("deploy-prod", "--any"),
    ("F009", "--takeover", "--reason", "they left"),
    ("F003", "--takeover", "--reason", "they left", "--expect-holder", "ada@example.com"),
    ("F010", "--reopen"),
]


@pytest.mark.parametrize("argv", GRANTED, ids=words)
def test_what_would_be_granted_is_what_the_claim_grants(argv: tuple[str, ...]) -> None:
    bob = prepared()
    before = memory_of(bob)
    would = bob.ok("claim", *argv, "--dry-run", "--json").json
    assert bob.ok("claim", *argv, "--dry-run").out.startswith("would ")
    assert memory_of(bob) == before
    done = bob.ok("claim", *argv, "--json").json
    assert would.pop("dry_run") is True
    assert would["status"] == WOULD[done["status"]]
    for lease, real in zip(would["leases"], done["leases"], strict=True):
        assert lease["state"] == "planned"
        own = (real["lease_id"], real["token"]) if real["renewals"] else (None, None)
        assert (lease["lease_id"], lease["token"]) == own
        assert lease | {x: real[x] for x in ("state", "lease_id", "token")} == real
    same = {x: would[x] for x in done.keys() - {"status", "lease", "leases", "next"}}
    assert same == {x: done[x] for x in same}


REFUSED = [
    ("held", ("F001",)),
    ("held", ("F007", "F001")),
    ("held", ("F001", "--takeover", "--reason", "now")),
    ("held", ("F007", "--path", "src/api/")),
    ("held", ("F009",)),
    ("held", ("F004", "--new")),
    ("held", ("F003", "--takeover", "--reason", "x", "--expect-holder", "jo@example.com")),
    ("usage", ("F007", "--takeover")),
    ("usage", ("../x",)),
    ("policy", ("F007", "--ttl", "1s")),
    ("policy", ("F010",)),
    ("not_found", ("F099",)),
]


def test_a_refusal_is_that_of_the_claim() -> None:
    """It changes nothing, so one desk will do for all."""
    bob = prepared()
    for code, argv in REFUSED:
        for form in ((), ("--json",)):
            before = memory_of(bob)
            would = bob.run("claim", *argv, "--dry-run", *form)
            assert memory_of(bob) == before
            assert would == bob.run("claim", *argv, *form)
        assert would.code != 0
        assert would.json["error"]["code"] == code
    for more in (("--wait", "5m"), ("-v",)):
        ran = bob.run("claim", "F007", "--dry-run", *more)
        assert (ran.code, ran.out) == (2, "")
    for kind in (errors.Denied, errors.Unavailable, errors.Rollback):
        bob.store.remote.failing = kind("the remote says no", hints=("ask it nicely",))
        assert bob.run("claim", "F007", "--dry-run") == bob.run("claim", "F007")


def test_what_a_killed_command_left_is_left_to_a_claim() -> None:
    bob = prepared()
    bob.tasks.killed_at = "before write"
    with pytest.raises(Killed):
        bob.run("claim", "F007")
    before = memory_of(bob)
    assert bob.ok("claim", "F008", "--dry-run").err == ""
    assert memory_of(bob) == before
    check_words(bob.ok("claim", "F008").err)


def files_of(folder: Path) -> dict[str, bytes]:
    """All files, but for what was learned of a remote."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix != ".cache"
        and not {*LEARNED} & {*path.relative_to(folder).parts}
    }


def refs_of(folder: Path) -> str:
    return git(folder, "for-each-ref")


@pytest.mark.slow
def test_no_file_of_the_clone_or_the_remote_changes(
    path_remote: Remote, clones: Callable[..., list[Path]]
) -> None:
    one, two = clones(2)
    commit_file(one, "tasks/F001.md", TASK, "a task")
    commit_file(one, "tasks/F002.md", TASK.replace("F001", "F002"), "another")
    git(one, "push", "-q", "origin", "HEAD:main")
    git(two, "pull", "-q", "origin", "main")
    jo, kim = RealDesk(one, env=path_remote.env), RealDesk(two, env=path_remote.env)
    jo.document("config", "--ledger", "admins", "w1@example.com")
    jo.document("claim", "F001")
    kim.document("claim", "deploy-prod", "--any")
    jo.document("revoke", "deploy-prod", "--reason", "now")  # so a notice waits for kim
    kim.document("list", "--cached")
    bare = Path(path_remote.url.removeprefix("file://"))
    before = files_of(two), files_of(bare), refs_of(two), refs_of(bare)
    granted = kim.document("claim", "F002", "--dry-run")
    refused = kim.ask("claim", "F001", "--dry-run")
    assert (granted["status"], refused.returncode) == ("would_claim", 1)
    after = files_of(two), files_of(bare), refs_of(two), refs_of(bare)
    assert after == before
    check_words(kim.ask("claim", "F002").stderr)


def test_at_every_door(
    path_remote: Remote, clones: Callable[..., list[Path]], tmp_path: Path
) -> None:
    (one,) = clones(1)
    with serving(one) as gate:
        connection = gitlease.connect(gate.url, token=gate.secret("jo"))
        for leases in (gitlease.open(one, environ=path_remote.env), connection):
            lease = leases.claim("api", any=True, dry_run=True)
            assert (lease.state, lease.token, lease.lease_id) == ("planned", 0, "")
            (lease,) = leases.claim_all(["api"], any=True, dry_run=True)
            with raises(gitlease.UsageError):
                leases.claim("api", any=True, dry_run=True, wait="5s")
        with gitlease.session("build-7", directory=one) as session:
            session.claim("api", any=True, dry_run=True)
        answer = gate.ask("jo", "PUT", "/v1/leases/api", json={"any": True, "dry_run": True})
        assert (answer.status_code, answer.json()["status"]) == (200, "would_claim")
        assert "ETag" not in answer.headers
        with in_memory(one) as tools:
            document = tools.document("claim", resources="api", any=True, dry_run=True)
            assert (document["status"], document["lease"]["token"]) == ("would_claim", None)
        assert gate.pushes() == 0
        assert gate.ask("jo", "GET", "/v1/leases").json()["leases"] == []
