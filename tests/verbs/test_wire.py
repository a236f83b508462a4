"""The JSON of the contract: every field, in its order, for every verb."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from doors.fake import make_desks
from support.documents import held_to_schema
from support.snapshots import check_words

from gitlease.cli import running as commands
from gitlease.kernel.rules.errors import LeaseHeld
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.runs import verbs as running
from gitlease.runs.pool import JobEnd, PoolEvent, PoolRan
from gitlease.runs.records import DONE, FAILED
from gitlease.verbs import wire

LEASE = [
    *("resource", "scope", "layer", "holder", "session", "lease_id", "token", "state"),
    *("ttl_seconds", "claimed_at", "renewed_at", "expires_at", "expires_in", "free_at"),
    *("renewals", "paths", "reason", "host", "branch", "worktree", "mine", "assigned"),
    *("lapses_at", "process_ended"),
]
ERROR = [
    *("code", "exit", "message", "resource", "scope", "holder", "session", "expires_at"),
    *("expires_in", "free_at", "lease", "conflicts", "hints", "next"),
]
VIEW = LeaseView(
    resource="F001",
    scope="*",
    layer="global",
    holder="jo@example.com",
    session="build-7",
    lease_id="a1b2",
    token=41,
    state="active",
    ttl_seconds=900,
    claimed_at=datetime(2026, 11, 20, 10, 0, 0, 999_000, UTC),
    renewed_at=datetime(2026, 11, 20, 10, 0, 0, 999_000, UTC),
    expires_at=datetime(2026, 11, 20, 10, 15, 0, 999_000, UTC),
    expires_in=612,
    free_at=datetime(2026, 11, 20, 10, 16, 0, 1_000, UTC),
    lapses_at=datetime(2026, 11, 20, 10, 16, 0, 1_000, UTC),
    renewals=2,
    paths=("src/auth/",),
    reason="rate limits",
    host="laptop",
    branch="main",
    worktree="T001",
    mine=False,
)


def test_a_lease() -> None:
    document = wire.lease(VIEW)
    assert list(document) == LEASE
    assert document == {
        "resource": "F001",
        "scope": "*",
        "layer": "global",
        "holder": "jo@example.com",
        "session": "build-7",
        "lease_id": "a1b2",
        "token": 41,
        "state": "active",
        "ttl_seconds": 900,
        "claimed_at": "2026-11-20T10:00:00Z",
        "renewed_at": "2026-11-20T10:00:00Z",
        "expires_at": "2026-11-20T10:15:00Z",
        "expires_in": 612,
        "free_at": "2026-11-20T10:16:01Z",
        "renewals": 2,
        "paths": ["src/auth/"],
        "reason": "rate limits",
        "host": "laptop",
        "branch": "main",
        "worktree": "T001",
        "mine": False,
        "assigned": False,
        "lapses_at": "2026-11-20T10:16:01Z",
        "process_ended": None,
    }


def test_a_refusal() -> None:
    held = LeaseHeld(
        "F001 is held by jo@example.com", resource="F001", scope="*", free_at=1_795_169_760_001
    )
    held.views = (VIEW, replace(VIEW, resource="F002", session=None))
    now = datetime(2026, 11, 20, 10, 4, 48, tzinfo=UTC)
    document = wire.failure("claim", held, now=now, next_steps=["gitlease claim F001 --wait 15m"])
    error = document.pop("error")
    assert document == {"schema": 1, "ok": False, "command": "claim"}
    assert list(error) == ERROR
    assert error["lease"] == error["conflicts"][0] == wire.lease(VIEW)
    assert [lease["resource"] for lease in error["conflicts"]] == ["F001", "F002"]
    check_words({k: v for k, v in error.items() if k not in ("lease", "conflicts")})


def test_one_lease_is_also_given_alone_and_several_are_not() -> None:
    ada, _ = make_desks()
    several = ada.ok("claim", "F001", "F002", "--json").json
    assert "lease" not in several
    assert len(several["leases"]) == 2
    one = ada.ok("renew", "F001", "--json").json
    assert one["lease"] == one["leases"][0]
    none = ada.ok("release", "F009", "--json").json
    assert (none["status"], none["leases"], "lease" in none) == ("released", [], False)


def test_a_renewal_of_which_a_part_is_lost_fails_and_says_what_was_renewed() -> None:
    ada, _ = make_desks()
    ada.ok("claim", "F001")
    ran = ada.run("renew", "F001", "F002", "--json")
    assert ran.code == 3
    assert ran.json["error"]["code"] == "lost"
    assert [lease["resource"] for lease in ran.json["leases"]] == ["F001"]
    assert [error["resource"] for error in ran.json["refused"]] == ["F002"]


def test_every_usage_error_is_one_document_where_json_was_asked_for() -> None:
    ada, _ = make_desks()
    for argv in (
        ("claim", "--json"),
        ("--json", "claim"),
        ("claim", "--json", "--no-such-option"),
        ("clam", "--json"),
        ("renew", "--json"),
        ("claim", "F001", "--ttl", "never", "--json"),
        ("-C", "x", "--json", "claim", "", "--layer", "y"),
    ):
        ran = ada.run(*argv)
        assert ran.code == 2, argv
        assert (ran.json["ok"], ran.json["error"]["code"]) == (False, "usage")
        assert ran.err, "people's text goes to standard error"
    assert ada.store.remote.asked == 0


def test_each_line_of_a_pool_is_as_the_schema_has_it() -> None:
    record = SimpleNamespace(session="work-1", log="/tmp/x.log")
    job: Any = SimpleNamespace(name="F001", record=record, began=0.0)
    told = [
        PoolEvent("started", job),
        PoolEvent("ended", job, JobEnd(DONE, 0)),
        PoolEvent("ended", job, JobEnd(FAILED, None, "its runner was killed")),
        PoolEvent("left_alone", job, JobEnd(FAILED, 1), 3),
        PoolEvent("idle"),
        PoolEvent("enough", message="1 task failed"),
        PoolEvent("trouble", message="origin cannot be reached"),
        PoolEvent("warning", message="the clock is wrong"),
    ]
    ran = PoolRan(counts=Counter({DONE: 2}), stopped_by=None, stranded={"F1": "a rebase"})
    lines = [running.document(event) for event in told] + [commands.finished(ran, 0)]
    assert [held_to_schema(line)["event"] for line in lines] == [
        *(
            "started",
            "ended",
            "ended",
            "left_alone",
            "idle",
            "enough",
            "trouble",
            "warning",
            "finished",
        )
    ]
    assert (lines[-1]["ok"], commands.finished(ran, 1)["ok"]) == (True, False)
    for line in lines:
        for key in line.keys() - {"event"}:
            with pytest.raises(jsonschema.ValidationError):
                held_to_schema({name: value for name, value in line.items() if name != key})
        with pytest.raises(jsonschema.ValidationError):
            held_to_schema(line | {"more": 1})
