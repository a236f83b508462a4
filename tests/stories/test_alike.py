"""One state of the ledger, and the same answer by `check`, `status`, `board`, `brief`, `queue`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.gateway import serving
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk
from support.session import LeaseService

from gitlease.board.verbs import Section, make_board
from gitlease.gateway.opening import open_gateway
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.resources import parse_resource
from gitlease.verbs import sentences
from gitlease.verbs.table import find_verb
from gitlease.wiring.doors import CloneDoor
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.slow
TASK = "---\nid: {}\ntitle: x\nstatus: todo\n---\n"
DAY = 86_400


@pytest.fixture
def one(clones: Callable[..., list[Path]], path_remote: Remote, monkeypatch: Any) -> Path:
    path_remote.open_to(monkeypatch)
    (made,) = clones(1)
    for name in ("F001", "F002"):
        commit_file(made, f"tasks/{name}.md", TASK.format(name))
    git(made, "push", "-q", "origin", "HEAD:main")
    git(made, "remote", "set-head", "origin", "main")
    return made


def test_a_claim_at_a_gateway_is_no_lease_without_an_edge(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = ManualClock(wall_ms=round(time.time() * 1_000) - 3_600_000)
    monkeypatch.setattr(
        "support.gateway.open_gateway", lambda where: open_gateway(where, clock=past)
    )
    with serving(one) as served:
        claimed = served.ask("kim", "PUT", "/v1/leases/F001", json={"ttl": "30m"}).json()
        assert claimed["edge_in"] == ["record"]
        for _ in range(3):  # for longer than its edge may be on its way
            past.advance(1_200)
            served.ask("kim", "PATCH", "/v1/leases/F001", json={"ttl": "30m"}).raise_for_status()
    desk = Desk(one)
    assert desk.document("check", "--stale")["violations"] == []
    (entry,) = [x for x in desk.document("queue", "--all")["tasks"] if x["resource"] == "F001"]
    assert (entry["why_not"], entry["assigned_in"]) == ("held", {"kim@example.com": "record"})
    git(one, "config", "user.email", "kim@example.com")
    (carried,) = desk.document("brief")["carrying"]
    assert (carried["resource"], carried["state"]) == ("F001", "live")
    assert "1 live, 1 yours" in desk.ask("status").stdout


def counts(one: Path, clock: ManualClock) -> tuple[str, dict[Section, int]]:
    """What `status` says of the leases, and the sections of the board."""
    workspace = open_workspace(str(one), clock=clock)
    look = workspace.ledger.look()
    details: Any = next(iter(find_verb("status").function(CloneDoor(workspace)).lines()))
    leases = dict(x for x in details.rows if x[0] == "leases")["leases"]
    return leases, dict(make_board(workspace.ledger, look).counts())


def test_status_counts_what_the_board_counts(one: Path) -> None:
    clock = ManualClock()

    def service() -> LeaseService:
        return LeaseService(open_workspace(str(one), clock=clock).ledger)

    names = [parse_resource(f"name-{n}") for n in range(3)]
    service().claim(names, ClaimOptions(any_name=True))
    service().claim([parse_resource("F001")])
    clock.advance(930)
    text, sections = counts(one, clock)
    assert (text, sections[Section.EXPIRED]) == ("0 live, 4 expired, 4 yours", 4)
    clock.advance(60)
    text, sections = counts(one, clock)
    assert (text, sections[Section.EXPIRED]) == ("0 live, 4 expired, 0 yours", 4)
    service().claim([parse_resource("F002")])
    clock.advance(8 * DAY)
    text, sections = counts(one, clock)
    assert text.startswith("0 live, 3 expired, 2 abandoned")
    assert (sections[Section.EXPIRED], sections[Section.ABANDONED]) == (3, 2)


def test_a_brief_does_not_say_that_nothing_is_carried_by_whoever_carries(one: Path) -> None:
    desk = Desk(one)
    assert "you carry nothing\n" in desk.ask("brief").stdout
    desk.document("claim", "F001", "--session", "other")
    for words, says in (
        ([], "you carry nothing outside of your sessions"),
        (["--session", "mine"], "you carry nothing in session mine"),
    ):
        assert len(desk.document("brief", *words)["carrying"]) == 1
        page = desk.ask("brief", *words).stdout
        assert says in page
        assert "F001: held by your other session other" in page


def test_of_a_process_that_is_left_it_is_not_said_that_a_run_goes_on(
    one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that a record names may be the terminal's in which the run was started."""
    terminal = os.getpid()  # a container does not see the terminal that it was started from
    monkeypatch.setattr(os, "getsid", lambda pid: terminal)
    clock = ManualClock()
    service = LeaseService(open_workspace(str(one), session="run-1", clock=clock).ledger)
    service.claim([parse_resource("F001")])
    clock.advance(2_000)
    workspace = open_workspace(str(one), clock=clock)
    reading = workspace.queue.brief()
    (carry,) = reading.carried
    assert carry.lease is not None
    assert carry.lease.pid == terminal
    _, elsewhere = sentences.by_session(reading, [])
    (said,) = (sentences.held_elsewhere(x, carry.lease.expires_at) for x in elsewhere)
    assert "still runs" not in said
    assert said.startswith("lapsed, but the process of your other session run-1")
