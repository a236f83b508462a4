"""Spor's endpoints, by requests as its own command line and hooks send them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.clock import ManualClock
from support.commands import run_program
from support.gateway import Served
from support.running import Desk
from support.snapshots import check_words

from gitlease.gateway.request_handler import MOST_BYTES

JO, KIM = "jo@example.com", "kim@example.com"
LEASE = {
    "node_id",
    "by",
    "expires",
    "expires_at",
    "expires_in_ms",
    "session",
    "claimed_at",
}


@pytest.fixture
def jo(project: Served) -> httpx.Client:
    return project.caller("jo")


@pytest.fixture
def kim(project: Served) -> httpx.Client:
    return project.caller("kim")


def do(who: httpx.Client, verb: str, node: str = "task-api", **body: Any) -> httpx.Response:
    return who.post(f"/v1/nodes/{node}/{verb}", content=json.dumps(body))


def done(answer: httpx.Response, status: str) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert (body["ok"], body["status"]) == (True, status)
    return body


def leased(answer: httpx.Response, status: str) -> dict[str, Any]:
    """The lease of an answer, whose fields are all there and of their types."""
    lease: dict[str, Any] = done(answer, status)["lease"]
    assert lease.keys() - {"reserved"} == LEASE
    assert isinstance(lease["expires"], int)
    assert lease["expires_at"].endswith("Z")
    assert lease["claimed_at"].endswith("Z")
    least = 0 if "reserved" in lease else 1
    assert least <= lease["expires_in_ms"] <= lease["expires"]
    return lease


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert body["error"].keys() <= {"code", "message", "details"}
    assert body.keys() <= {"error", "holder"}
    return body


# --- the life of a claim ----------------------------------------------------------------------


def test_a_claim_is_made_renewed_extended_and_released(
    jo: httpx.Client, project: Served, manual_clock: ManualClock
) -> None:
    claimed = do(jo, "claim", by=KIM, holder=KIM, agent_id=KIM, viewer=KIM)
    lease = leased(claimed, "claimed")
    assert (lease["node_id"], lease["by"], lease["session"]) == ("task-api", JO, None)
    assert lease["expires"] == manual_clock.wall_ms + 900_000
    assert claimed.json()["edge"] == "added"
    assert Desk(project.folder).document("list")["leases"][0]["resource"] == "task-api"

    again = do(jo, "claim")
    assert leased(again, "renewed")["by"] == JO
    assert again.json()["edge"] == "skipped", "it is assigned already"

    manual_clock.advance(600)
    assert leased(do(jo, "renew"), "renewed")["expires"] == manual_clock.wall_ms + 900_000

    extended = do(jo, "extend", ms=7_200_000)
    assert leased(extended, "extended")["expires"] == manual_clock.wall_ms + 900_000 + 7_200_000
    assert "capped_to_max" not in extended.json()
    shorter = leased(do(jo, "extend", ms=1000.5), "extended")
    assert shorter["expires"] == manual_clock.wall_ms + 8_102_000, "in whole seconds"
    capped = do(jo, "extend", ms=10**400).json()
    assert (capped["capped_to_max"], capped["claim_ttl_max_ms"]) == (True, 28_800_000)

    released = done(do(jo, "release"), "released")
    assert released == {"ok": True, "status": "released", "node_id": "task-api", "edge": "removed"}
    assert done(jo.post("/v1/nodes/task-api/release"), "released")["edge"] == "skipped"
    assert done(do(jo, "release", "task-ui"), "released")["edge"] == "skipped"


@pytest.mark.slow
def test_a_conflict_names_the_holder_and_the_expiry(jo: httpx.Client, kim: httpx.Client) -> None:
    lease = leased(do(jo, "claim", session="one"), "claimed")
    assert lease["session"] == "one"
    for verb, code in (
        ("claim", "conflict"),
        ("release", "conflict"),
        ("renew", "lease_lost"),
        ("extend", "lease_lost"),
        ("reserve", "conflict"),
    ):
        body = refused(do(kim, verb, ms=1000), 409, code)
        assert body["holder"].keys() == LEASE
        assert (body["holder"]["by"], body["holder"]["expires"]) == (JO, lease["expires"])
        assert JO in body["error"]["message"]
        assert lease["expires_at"] in body["error"]["message"]


@pytest.mark.slow
def test_a_lapsed_lease_is_reclaimed_only_where_that_is_asked(
    jo: httpx.Client, kim: httpx.Client, manual_clock: ManualClock
) -> None:
    do(jo, "claim")
    manual_clock.advance(901)
    for verb in ("renew", "extend"):
        assert "holder" not in refused(do(jo, verb, ms=1000), 409, "lease_lost")
    refused(do(jo, "renew", reclaim="yes"), 422, "invalid_node")
    assert leased(do(jo, "renew", reclaim=True), "renewed")["by"] == JO
    do(jo, "release")
    do(kim, "claim")
    body = refused(do(jo, "renew", reclaim=True), 409, "lease_lost")
    assert body["holder"]["by"] == KIM


def test_a_lapsed_task_that_is_asked_for_by_name_is_taken_over(
    jo: httpx.Client, kim: httpx.Client, manual_clock: ManualClock
) -> None:
    do(jo, "claim")
    manual_clock.advance(910)
    check_words(refused(do(kim, "claim"), 409, "conflict")["error"]["message"])
    manual_clock.advance(90)
    answer = do(kim, "claim")
    assert leased(answer, "taken_over")["by"] == KIM
    assert answer.json()["taken_over_from"] == JO
    refused(do(jo, "claim"), 409, "conflict")
    assert refused(do(jo, "release"), 409, "conflict")["holder"]["by"] == KIM


@pytest.mark.slow
def test_of_two_dispatches_of_one_person_one_is_refused(jo: httpx.Client) -> None:
    def dispatch(nonce: str) -> int:
        return do(jo, "claim", dispatch=nonce).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(dispatch, [f"n{x}" for x in range(8)]))
    assert sorted(answers) == [200] + [409] * 7
    winner = f"n{answers.index(200)}"
    assert leased(do(jo, "claim", dispatch=winner), "renewed")
    assert leased(do(jo, "renew", session="the run that was launched"), "renewed")
    refused(do(jo, "claim", dispatch="x" * 120), 422, "invalid_node")


@pytest.mark.slow
def test_what_is_reserved_is_kept_for_its_owner(
    jo: httpx.Client, kim: httpx.Client, manual_clock: ManualClock
) -> None:
    do(jo, "claim", session="one")
    reserved = do(jo, "reserve", session="one")
    lease = leased(reserved, "reserved")
    assert reserved.json()["grace_window_ms"] == 7 * 86_400_000
    assert lease["expires"] == manual_clock.wall_ms, "only the assignment is left"
    assert lease["reserved"] is True
    assert jo.patch("/v1/leases/task-api").status_code == 412, "no session renews what has ended"
    manual_clock.advance(3_600)
    assert refused(do(kim, "claim"), 409, "conflict")["holder"]["by"] == JO
    for verb in ("renew", "extend", "claim"):
        again = do(jo, verb, ms=1000).json()["lease"]
        assert "reserved" not in again, verb
        do(jo, "reserve")


# --- statuses ---------------------------------------------------------------------------------


def test_a_status_claims_or_finishes(jo: httpx.Client, kim: httpx.Client) -> None:
    for word in ("active", "in-progress", "In Progress"):
        assert leased(do(jo, "status", status=word), word)["by"] == JO
    assert refused(do(kim, "status", status="active"), 409, "conflict")["holder"]["by"] == JO
    refused(do(kim, "status", status="done"), 409, "conflict")
    assert done(do(jo, "status", status="done"), "done")["lease"] is None
    assert kim.get("/v1/nodes/task-api").json()["inert"] is True
    body = refused(do(kim, "claim"), 409, "transition_denied")
    assert "completed" in body["error"]["message"]
    refused(do(kim, "status", status="active"), 409, "transition_denied")


@pytest.mark.slow
def test_no_status_is_said_to_be_set_that_is_not(jo: httpx.Client) -> None:
    for word, why in (("todo", "does not write task files"), ("nonsense", "unknown status")):
        body = refused(do(jo, "status", status=word), 422, "invalid_node")
        assert why in body["error"]["message"]
        assert body["error"]["details"]
    for body in ({}, {"status": 5}, {"status": ""}, {"status": "\ud800"}):
        refused(do(jo, "status", **body), 422, "invalid_node")
    refused(do(jo, "status", "nothing", status="active"), 404, "not_found")


# --- several ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_several_are_claimed_renewed_and_released_as_far_as_they_can_be(
    jo: httpx.Client, kim: httpx.Client
) -> None:
    do(kim, "claim", "task-ui")
    claimed = jo.post("/v1/queue/claim", json={"ids": ["task-api", "task-ui", "nothing"]})
    body = done(claimed, "claimed")
    assert body.keys() == {"ok", "status", "count", "claimed", "leases", "failed"}
    assert (body["count"], body["claimed"]) == (1, ["task-api"])
    assert [x["node_id"] for x in body["leases"]] == ["task-api"]
    held, unknown = body["failed"]
    assert (held["node_id"], held["code"], held["holder"]["by"]) == ("task-ui", "conflict", KIM)
    assert held["message"]
    assert (unknown["node_id"], unknown["code"]) == ("nothing", "not_found")

    renewed = done(jo.post("/v1/queue/renew"), "renewed")
    assert (renewed["count"], renewed["renewed"], renewed["failed"]) == (1, ["task-api"], [])
    do(jo, "reserve")
    assert done(jo.post("/v1/queue/renew", json={}), "renewed")["renewed"] == []

    body = done(jo.post("/v1/queue/release", json={"ids": ["task-api", "task-ui"]}), "released")
    assert (body["released"], body["leases"]) == (["task-api"], [])
    assert [x["node_id"] for x in body["failed"]] == ["task-ui"]
    body = jo.post("/v1/queue/claim", json={"ids": ["A B", "task-api"]}).json()
    assert (body["claimed"], [x["code"] for x in body["failed"]]) == (
        ["task-api"],
        ["invalid_node"],
    )
    wrong: tuple[Any, ...] = (None, [], "task-api", [1], ["f001", None], [[]], ["a"] * 65)
    for verb in ("claim", "renew", "release"):
        for ids in wrong[verb == "renew" :]:  # of which none are all
            refused(jo.post(f"/v1/queue/{verb}", json={"ids": ids}), 422, "invalid_node")


# --- what is read -----------------------------------------------------------------------------


def test_a_node_is_shown_as_a_document(jo: httpx.Client, names: Served) -> None:
    do(jo, "claim")
    node = jo.get("/v1/nodes/task-api").json()
    check_words(node["raw"].splitlines())
    assert node["frontmatter"] == {
        "id": "task-api",
        "type": "task",
        "title": "Limit the rates",
        "status": "todo",
        "assigned": JO,
    }
    assert (node["inert"], node["lease"]["by"]) == (False, JO)
    old = jo.get("/v1/nodes/task-old").json()
    assert (old["inert"], old["frontmatter"]["status"], old["lease"]) == (True, "done", None)
    refused(jo.get("/v1/nodes/nothing"), 404, "not_found")
    assert names.ask("jo", "GET", "/v1/nodes/deploy").json()["frontmatter"]["title"] == "deploy"


@pytest.mark.slow
def test_the_queue_has_what_one_carries_or_what_may_be_claimed(
    jo: httpx.Client, kim: httpx.Client
) -> None:
    do(jo, "claim")
    mine = jo.get("/v1/queue", params={"project": "any", "assignee": "me"}).json()
    assert mine["items"] == [
        {
            "id": "task-api",
            "title": "Limit the rates",
            "type": "task",
            "lease_state": "in_progress",
            "lease_by": JO,
        }
    ]
    assert (mine["count"], mine["total_count"], mine["truncated"]) == (1, 1, False)
    assert kim.get("/v1/queue", params={"assignee": JO}).json()["items"] == mine["items"]
    (own,) = kim.get("/v1/queue", params={"assignee": "me"}).json()["items"]
    assert (own["id"], "lease_state" in own) == ("task-kims", False), "assigned, and not held"
    do(jo, "reserve")
    (kept,) = jo.get("/v1/queue", params={"assignee": "me"}).json()["items"]
    assert (kept["lease_state"], kept["lease_by"]) == ("reserved", JO)

    pool = kim.get("/v1/queue", params={"limit": "1"}).json()
    assert (pool["total_count"], pool["truncated"], pool["next_offset"]) == (2, True, 1)
    rest = kim.get("/v1/queue", params={"offset": "1", "limit": "999"}).json()
    assert [x["id"] for x in pool["items"] + rest["items"]] == ["task-kims", "task-ui"]
    assert (rest["returned_count"], rest["offset"], rest["next_offset"]) == (1, 1, None)
    refused(jo.get("/v1/queue", params={"limit": "many"}), 422, "invalid_node")


# --- bad requests -----------------------------------------------------------------------------


@pytest.mark.slow
def test_bad_requests_are_refused_in_spors_shape(project: Served, jo: httpx.Client) -> None:
    claim, me = f"{project.url}/v1/nodes/task-api/claim", f"{project.url}/v1/me"
    refused(httpx.post(claim), 401, "unauthorized")
    refused(httpx.get(me, headers={"Authorization": "Bearer wrong"}), 401, "unauthorized")
    reader = {"Authorization": f"Bearer {project.secret('reader', 'read')}"}
    refused(httpx.post(claim, headers=reader), 403, "forbidden")
    assert httpx.get(me, headers=reader).status_code == 200
    own = {"person": JO, "name": "jo", "email": JO, "bound": True, "is_admin": False}
    assert jo.get("/v1/me").json() == own | {"org": "local"}
    for node in ("Task", "-a", "a_b", "%20", "a" * 129, "%00"):
        refused(jo.post(f"/v1/nodes/{node}/claim"), 422, "invalid_node")
        refused(jo.get(f"/v1/nodes/{node}"), 422, "invalid_node")
    sessions: tuple[Any, ...] = (5, [], "", "x" * 129, "a\nb", "\ud800")
    for verb, expected in UNKNOWN.items():
        refused(do(jo, verb, "nothing", ms=1), *expected)
        for session in sessions:
            body = refused(do(jo, verb, session=session, ms=1), 422, "invalid_node")
            assert "session" in body["error"]["message"]
        for content in (b"{", b"[]", b"5", b"\xff", b'"x"', b"[" * 5_000):
            refused(jo.post(f"/v1/nodes/task-api/{verb}", content=content), 422, "invalid_node")
    for ms in (0, -1, "5", None, True, [1]):
        refused(do(jo, "extend", ms=ms), 422, "invalid_node")
    for text in (b'{"ms": NaN}', b'{"ms": Infinity}', b'{"ms": 1e999}'):
        refused(jo.post("/v1/nodes/task-api/extend", content=text), 422, "invalid_node")
    huge = {"session": "x" * MOST_BYTES}
    refused(do(jo, "claim", **huge), 413, "too_large")


# Whoever releases what it does not have is answered all the same.
UNKNOWN: dict[str, tuple[int, str]] = {
    "claim": (404, "not_found"),
    "renew": (409, "lease_lost"),
    "extend": (409, "lease_lost"),
    "reserve": (409, "lease_lost"),
}


# --- the real client --------------------------------------------------------------------------


@pytest.mark.skipif(
    not (os.environ.get("SPOR_CLIENT") and shutil.which("node")),
    reason="SPOR_CLIENT names no bin/spor.js, or there is no node",
)
def test_spors_own_command_line_works_unmodified(project: Served, tmp_path: Path) -> None:
    def spor(who: str, *argv: str) -> subprocess.CompletedProcess[str]:
        home = {"SPOR_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        where = {"SPOR_SERVER": project.url, "SPOR_TOKEN": project.secret(who)}
        return run_program(["node", os.environ["SPOR_CLIENT"], *argv], None, home | where)

    for argv, said in (
        (("whoami",), JO),
        (("claim", "task-api"), f"claimed task-api\n  lease expires 20.*held by {JO}"),
        (("renew", "task-api"), "renewed task-api\n  lease expires "),
        (("extend", "task-api", "30d"), r"extended task-api\n.*\n  \(capped to the org maximum\)"),
        (("set-status", "task-api", "active"), r"status set: .*\n  claimed \(lease expires"),
        (("get", "task-api"), "title: Limit the rates"),
        (("release", "task-api"), "released task-api\n  assigned edge retired"),
    ):
        ran = spor("jo", *argv)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert re.search(said, ran.stdout), ran.stdout
    spor("jo", "claim", "task-api")
    lost = spor("kim", "claim", "task-api")
    assert lost.returncode == 1
    assert re.search(rf"cannot claim task-api: task-api .* {JO}", lost.stderr)


# --- who is assigned ------------------------------------------------------------------------------


def ids(who: httpx.Client, assignee: str) -> list[str]:
    items = who.get("/v1/queue", params={"assignee": assignee}).json()["items"]
    return sorted(x["id"] for x in items)
