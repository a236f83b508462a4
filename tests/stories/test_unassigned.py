"""A task that only its file assigned is given back: an event of its own, and no claim."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel.rules.values import JO, KIM, claim, empty, fresh, moment, release, step
from ledger_checker.checker import verify
from support.gateway import Served, serving
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk

from gitlease.kernel.rules.moves.operations import Unassign
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import read_step

pytestmark = pytest.mark.slow
F001 = "---\nid: F001\ntitle: x\nstatus: todo\nassigned: [w1@example.com]\n---\n"
REF = "refs/gitlease/global"


def unassign(who: Any) -> Unassign:
    return Unassign(id=fresh(), actor=who, resource=parse_resource("F001"))


def test_it_changes_no_record_and_gives_no_token() -> None:
    ledger, _ = step(empty(), claim(KIM), when=moment())
    after, outcome = step(ledger, unassign(JO), when=moment(1))
    (event,) = outcome.events
    assert (event.kind, event.holder, event.token) == ("unassigned", JO.holder, None)
    assert list(after.every_lease()) == list(ledger.every_lease()), "kim's is kim's"
    assert after.header.token == ledger.header.token
    assert outcome.changed
    assert not outcome.is_renewal, "it must not be forgotten with the next heartbeat"


def test_what_is_held_stays_assigned() -> None:
    ledger, _ = step(empty(), claim(JO), when=moment())
    _, outcome = step(ledger, unassign(JO), when=moment(1))
    assert (outcome.events, outcome.changed) == ((), False)
    ended, _ = step(ledger, release(JO), when=moment(1))
    assert step(ended, unassign(JO), when=moment(2))[1].changed


@pytest.fixture
def one(clones: Callable[..., list[Path]], path_remote: Remote, monkeypatch: Any) -> Path:
    """A clone whose person a committed task file names."""
    path_remote.open_to(monkeypatch)
    (made,) = clones(1)
    commit_file(made, "tasks/F001.md", F001)
    git(made, "push", "-q", "origin", "HEAD:main")
    return made


def judged(remote: Remote) -> None:
    """Have both judges of a history go through it."""
    tip = git(remote.bare, "rev-parse", REF).strip()
    assert not verify(remote.bare, tip).broken


def test_a_release_claims_nothing(one: Path, path_remote: Remote) -> None:
    desk = Desk(one)
    desk.document("claim", "other", "--any")
    released = desk.document("release", "F001")
    assert (released["status"], released["leases"]) == ("released", [])
    (event,) = desk.document("log", "F001")["events"]
    assert (event["kind"], event["by"], event["token"]) == ("unassigned", "w1@example.com", None)
    assert desk.document("claim", "more", "--any")["lease"]["token"] == 2, "no token was used"
    judged(path_remote)
    desk.document("verify")  # it fails at the first broken rule
    # Although main still names them, nobody is kept out any more.
    git(one, "checkout", "-q", "--", "tasks/F001.md")
    git(one, "config", "user.email", "w2@example.com")
    assert desk.document("claim", "F001")["status"] == "claimed"
    judged(path_remote)


def test_it_is_said_once(one: Path) -> None:
    desk = Desk(one)
    for _ in range(3):
        assert desk.document("release", "F001")["status"] == "released"
        git(one, "checkout", "-q", "--", "tasks/F001.md")
    assert [x["kind"] for x in desk.document("log")["events"]] == ["unassigned"]


def test_a_step_that_names_it_is_read() -> None:
    line = {
        "at": 1,
        "actor": {"holder": "jo@example.com"},
        "do": [{"op": "Unassign", "id": "a", "resource": "F001"}],
    }
    (operation,) = read_step(json.dumps(line, separators=(",", ":"))).operations
    assert isinstance(operation, Unassign)


@pytest.fixture
def gate(one: Path) -> Any:
    with serving(one) as served:
        yield served


def test_a_gateway_says_what_it_did(gate: Served, one: Path) -> None:
    events = gate.secret("w1")
    with gate.caller("w1").stream(
        "GET", "/v1/subscribe/intents/F001", headers={"X-API-Key": events}
    ) as stream:
        told = stream.iter_lines()
        next(told)
        key = {"Idempotency-Key": "one"}
        for _ in range(2):
            answer = gate.ask("w1", "DELETE", "/v1/leases/F001", headers=key)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            assert (body["status"], body["edge"], body["edge_in"]) == ("released", "removed", [])
            assert body["edges"] == []
        (warning,) = body["warnings"]
        assert "commit and push the change" not in warning, "it changed no file"
        assert (one / "tasks/F001.md").read_text() == F001
        log = gate.ask("w1", "GET", "/v1/log").json()["events"]
        assert [x["kind"] for x in log] == ["unassigned"]
        # What the stream tells first is of a claim that somebody made.
        gate.ask("w1", "PUT", "/v1/leases/F001", json={})
        kinds = [line for line in _until_acquired(told) if line.startswith("event: ")]
        assert kinds == ["event: LEASE_ACQUIRED"]


def _until_acquired(told: Any) -> list[str]:
    lines: list[str] = []
    for line in told:
        lines.append(line)
        if "LEASE_ACQUIRED" in line:
            return lines
    return lines
