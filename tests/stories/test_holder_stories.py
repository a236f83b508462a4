"""Whose a lease is and was, as people at their own desks read it over a real remote."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ledgers import file_of, make_lease, place, record_of
from support.remotes import Remote
from support.repos import git
from support.running import Desk

pytestmark = [pytest.mark.sampled(2)]

ADA, ELSE = "straße@example.com", "strasse@example.com"


@pytest.fixture
def ada(jo: Desk) -> Desk:
    git(jo.clone, "config", "user.email", ADA)
    return jo


@pytest.fixture
def other(kim: Desk) -> Desk:
    git(kim.clone, "config", "user.email", ELSE)
    return kim


def test_nobody_ends_or_renews_the_lease_of_whose_email_folds_alike(ada: Desk, other: Desk) -> None:
    ada.document("claim", "F1", "--any")
    for verb, code in (("claim", "held"), ("release", "held"), ("renew", "not_holder")):
        refused = other.document(verb, "F1", expect=3 if verb == "renew" else 1)
        assert (refused["error"]["code"], refused["error"]["holder"]) == (code, ADA)
    assert other.document("list", "--mine")["leases"] == []
    git(ada.clone, "config", "user.email", "STRAßE@example.com")
    assert ada.document("claim", "F1")["status"] == "renewed"
    assert other.ask("list").stdout.count(ADA) == 1


def test_a_task_is_no_others_whose_handle_folds_alike(ada: Desk, other: Desk) -> None:
    for desk in (ada, other):
        tasks = desk.clone / "tasks"
        tasks.mkdir()
        (tasks / "F1.md").write_text(f"---\nid: F1\nstatus: todo\nassigned: {ADA}\n---\n")
    assert other.document("claim", "F1", expect=1)["error"]["holder"] == ADA
    assert ada.document("claim", "F1")["status"] == "claimed"


def test_the_log_tells_of_ones_own_leases_that_a_claim_cleared_away(
    path_remote: Remote, clones: Callable[..., list[Path]]
) -> None:
    jo = Desk(clones(1)[0])
    since = int(time.time() - 70) * 1_000
    old = make_lease("src/a.py", holder="w1@example.com", at=since, ttl=60, token=7)
    place(path_remote.bare, {file_of(old): record_of(old)})
    assert jo.document("claim", "src/")["status"] == "claimed"
    assert [x["resource"] for x in jo.document("list", "--all")["leases"]] == ["path:src"]
    claimed, lapsed = jo.document("log")["events"][:2]
    assert (claimed["kind"], claimed["resource"]) == ("claimed", "path:src")
    said = [lapsed[key] for key in ("kind", "resource", "holder", "by", "token")]
    assert said == ["lapsed", "src/a.py", "w1@example.com", "w1@example.com", 7]
