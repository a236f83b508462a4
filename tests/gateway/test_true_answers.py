"""What a gateway's answers say is so: times, edges, durations, and fields that it cannot heed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from support.clock import ManualClock
from support.gateway import Served
from support.running import LONG, Desk

pytestmark = pytest.mark.default

LAPSE = 60  # seconds after its end for which a lease still blocks others


def spor(who: httpx.Client, verb: str, node: str = "task-api", **body: Any) -> httpx.Response:
    return who.post(f"/v1/nodes/{node}/{verb}", content=json.dumps(body))


def intent(
    served: Served, agent: str, method: str, *more: str, person: str = "jo", **body: Any
) -> httpx.Response:
    """What an agent's request about the leases of an intent is answered with."""
    headers = {"X-API-Key": served.secret(person), "X-Agent-ID": agent}
    path = "/".join(("/v1/intents/task-api/leases", *more))
    return httpx.request(
        method, served.url + path, headers=headers, json=body, timeout=LONG, trust_env=False
    )


# --- after a lapse ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["renew", "extend"])
def test_spor_names_a_time_only_while_it_blocks(
    project: Served, manual_clock: ManualClock, verb: str
) -> None:
    jo, kim = project.caller("jo"), project.caller("kim")
    spor(jo, "claim")
    for seconds, blocks in ((901, True), (LAPSE, False), (86_400, False)):
        manual_clock.advance(seconds)
        for who in (jo, kim):
            error = spor(who, verb, ms=1).json()["error"]
            assert ("until" in error["message"]) == blocks, error
            assert error["message"].count("expired") <= 1
            assert error["code"] == "lease_lost"


def test_openintent_names_a_time_only_while_it_blocks(
    project: Served, manual_clock: ManualClock
) -> None:
    id = intent(project, "one", "POST", scope="*").json()["id"]
    for seconds, blocks in ((901, True), (LAPSE, False), (86_400, False)):
        manual_clock.advance(seconds)
        error = intent(project, "one", "PATCH", id).json()
        assert ("blocks others until" in error["message"]) == blocks, error
        assert error["message"].count("expired") == 1


def test_no_edit_of_a_file_is_claimed(project: Served) -> None:
    """Kim's name stands in a task's file, and another has the task by now."""
    jo, kim = project.caller("jo"), project.caller("kim")
    taken = {"takeover": True, "reason": "kim is away"}
    assert jo.put("/v1/leases/task-kims", json=taken).status_code == 201
    before = (project.folder / "tasks/task-kims.md").read_bytes()
    refused = kim.delete("/v1/leases/task-kims")
    assert (refused.status_code, refused.json()["code"]) == (409, "held")
    assert "removed" not in refused.text
    assert spor(kim, "release", "task-kims").status_code == 409
    assert (project.folder / "tasks/task-kims.md").read_bytes() == before


# --- OpenIntent -------------------------------------------------------------------------------


def test_a_conflict_has_scope_session_and_end(project: Served, manual_clock: ManualClock) -> None:
    held = intent(project, "one", "POST", scope="research").json()
    for person in ("jo", "kim"):
        error = intent(project, "two", "POST", person=person, scope="*").json()
        assert (error["scope"], error["session"]) == ("research", "one")
        assert error["expires_at"] == held["expires_at"] == error["existing_lease"]["expires_at"]
        for word in ("scope research", "session one", f"until {held['expires_at']}Z"):
            assert error["message"].count(word) == 1, error["message"]
    manual_clock.advance(901)
    error = intent(project, "two", "POST", person="kim", scope="*").json()
    assert error["existing_lease"]["status"] == "expired", "it blocks others still"
    assert error["scope"] == "research"


def test_a_lease_lasts_as_long_as_the_ledgers(project: Served, manual_clock: ManualClock) -> None:
    asked = intent(project, "one", "POST", scope="*").json()
    native = project.ask("kim", "PUT", "/v1/leases/task-ui", json={}).json()["lease"]
    assert f"{asked['expires_at']}Z" == native["expires_at"]
    manual_clock.advance(60)
    short = intent(project, "one", "PATCH", asked["id"], duration_seconds=60).json()
    assert short["expires_at"] == asked["expires_at"], "a renewal never shortens"


# --- Spor -------------------------------------------------------------------------------------


def test_an_extension_is_by_the_time_asked_for(project: Served, manual_clock: ManualClock) -> None:
    jo = project.caller("jo")
    end = spor(jo, "claim").json()["lease"]["expires"]
    manual_clock.advance(600)
    for ms in (60_000, 1_800_000):
        lease = spor(jo, "extend", ms=ms).json()["lease"]
        assert (lease["expires"], end) == (end + ms, end)
        end = lease["expires"]
    assert spor(jo, "extend", ms=28_800_000).json()["capped_to_max"], "by 8h beyond what is left"


# --- the gateway's own API --------------------------------------------------------------------


@pytest.mark.parametrize("field", ["holder", "by", "agent_id"])
def test_a_field_that_cannot_be_heeded_is_refused(project: Served, field: str) -> None:
    for method, path in (("PUT", "/v1/leases/task-api"), ("POST", "/v1/leases:claim")):
        body = {field: "kim@example.com"} | ({"resources": ["task-api"]} if ":" in path else {})
        refused = project.ask("jo", method, path, json=body)
        assert refused.status_code == 400, refused.text
        assert field in refused.json()["message"]
    assert not project.ask("jo", "GET", "/v1/leases").json()["leases"]


BRACED = "src/{a,b}"


def test_braces_are_refused(names: Served) -> None:
    asks: list[tuple[str, str, Any]] = [
        ("PUT", "/v1/leases/src%2F%7Ba,b%7D", {}),
        ("PUT", "/v1/leases/path:%7Ba,b%7D", {}),
        ("PUT", "/v1/leases/one", {"paths": [BRACED]}),
        ("POST", "/v1/leases:claim", {"resources": [BRACED]}),
        ("POST", "/v1/check", {"paths": [BRACED]}),
        ("PATCH", "/v1/leases/src%2F%7Ba,b%7D", {}),
        ("GET", "/v1/leases/src%2F%7Ba,b%7D", None),
        ("GET", "/v1/leases?path=src/%7Ba,b%7D", None),
        ("GET", "/v1/history/src%2F%7Ba,b%7D", None),
    ]
    for method, path, body in asks:
        refused = names.ask("jo", method, path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "usage"), (method, path)
        assert "braces" in refused.json()["message"], refused.text
    assert not names.ask("jo", "GET", "/v1/leases?state=all").json()["leases"]


def test_a_file_whose_name_has_braces_can_be_leased(names: Served) -> None:
    escaped = "/v1/leases/src%2F%5C%7Ba,b%5C%7D"
    assert names.ask("jo", "PUT", escaped, json={}).status_code == 201
    assert names.ask("jo", "DELETE", escaped).status_code == 200
    (names.folder / "src").mkdir()
    (names.folder / BRACED).touch()
    lease = Desk(names.folder).document("claim", BRACED)["lease"]["resource"]
    shown = names.ask("kim", "GET", f"/v1/leases/{lease.replace('/', '%2F')}")
    assert shown.json()["leases"][0]["resource"] == lease, "a lease that exists can be named"


@pytest.mark.parametrize(
    "asked",
    [
        ("PUT", "/v1/leases/site"),
        ("GET", "/v1/leases?path=../up"),
        ("GET", "/v1/leases?path={a,b}"),
    ],
    ids=["held", "outside", "braces"],
)
def test_a_message_that_a_refusal_cannot_report_comes_with_the_next_answer(
    names: Served, asked: tuple[str, str]
) -> None:
    names.ask("jo", "PUT", "/v1/leases/deploy")
    names.ask("kim", "PUT", "/v1/leases/site")
    note = {"resource": "deploy", "text": "main is red", "to_holder": True}
    names.ask("kim", "POST", "/v1/leases:note", json=note)
    assert names.ask("jo", *asked).status_code in (400, 409)
    told = 'note on deploy by kim@example.com: "main is red"'
    assert told not in names.ask("kim", "GET", "/v1/leases").json()["warnings"]
    assert names.ask("jo", "GET", "/v1/leases?path=src").json()["warnings"].count(told) == 1
    assert told not in names.ask("jo", "GET", "/v1/leases").json()["warnings"]


def test_a_message_to_one_session_comes_with_an_answer_to_that_session(names: Served) -> None:
    one, two = {"Gitlease-Session": "one"}, {"Gitlease-Session": "two"}
    names.ask("jo", "PUT", "/v1/leases/deploy", headers=one)
    names.ask("kim", "PUT", "/v1/leases/site")
    note = {"resource": "deploy", "text": "main is red", "to_holder": True}
    names.ask("kim", "POST", "/v1/leases:note", json=note)
    assert names.ask("jo", "PUT", "/v1/leases/site", headers=one).status_code == 409
    answers = [names.ask("jo", "GET", "/v1/leases", headers=x).json() for x in (two, one, one)]
    told = [any("main is red" in text for text in x["warnings"]) for x in answers]
    assert told == [False, True, False]
