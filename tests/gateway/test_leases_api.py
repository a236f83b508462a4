"""The gateway's own API, by requests to one that listens, on a real remote."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.gateway import Served, serving
from support.ledgers import door
from support.remotes import Remote
from support.running import LONG, Desk, until
from support.snapshots import check_words

from gitlease.gateway.request_handler import MOST_BYTES, PROBLEM


@pytest.fixture
def jo(gate: Served) -> httpx.Client:
    return gate.caller("jo")


@pytest.fixture
def kim(gate: Served) -> httpx.Client:
    return gate.caller("kim")


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"] == body["message"]
    assert body["title"]
    return body


# --- the life of a lease ----------------------------------------------------------------------


def test_a_lease_is_claimed_renewed_extended_and_released(
    jo: httpx.Client, gate: Served, clone: Path
) -> None:
    claimed = jo.put("/v1/leases/F001", json={"ttl": "10m", "reason": "rate limits"})
    assert claimed.status_code == 201
    document = claimed.json()
    assert (document["status"], document["lease"]["holder"]) == ("claimed", "jo@example.com")
    assert document["lease"]["ttl_seconds"] == 600
    token = document["lease"]["token"]
    assert claimed.headers["etag"] == f'"{token}"'

    pushes = gate.pushes()
    renewed = jo.patch("/v1/leases/F001", headers={"If-Match": f'"{token}"'})
    assert (renewed.status_code, renewed.json()["status"]) == (200, "renewed")
    assert gate.pushes() == pushes, "it has two thirds of its time left: the record answers"

    extended = jo.patch("/v1/leases/F001", json={"extend": "2h"})
    assert (extended.status_code, extended.json()["status"]) == (200, "extended")
    assert extended.json()["lease"]["expires_in"] > 7_000
    assert extended.json()["capped_to_max"] is False
    assert extended.json()["max_ttl_seconds"] == 28_800

    there = Desk(clone).document("list")["leases"]
    assert [x["resource"] for x in there] == ["F001"], "the command line sees it"

    released = jo.delete("/v1/leases/F001", params={"note": "half done"})
    assert (released.status_code, released.json()["status"]) == (200, "released")
    shown = jo.get("/v1/leases/F001").json()
    assert shown["leases"] == []
    assert [x["text"] for x in shown["notes"]] == ["half done"]
    kinds = [x["kind"] for x in jo.get("/v1/history/F001").json()["events"]]
    assert kinds == ["released", "extended", "claimed"]


@pytest.mark.nightly
def test_what_another_holds_is_refused_with_who_and_until_when(
    jo: httpx.Client, kim: httpx.Client
) -> None:
    jo.put("/v1/leases/F001", json={"session": "build-7"})
    body = refused(kim.put("/v1/leases/F001"), 409, "held")
    assert (body["holder"], body["session"]) == ("jo@example.com", "build-7")
    assert body["resource"] == "F001"
    assert 800 < body["expires_in"] <= 900
    assert datetime.fromisoformat(body["expires_at"])
    assert 800 < body["retry_after"] < 1_100
    assert not any("takeover" in x for x in (*body["hints"], *body["next"]))
    refused(kim.patch("/v1/leases/F001"), 412, "not_holder")
    refused(kim.delete("/v1/leases/F001"), 409, "held")
    refused(jo.patch("/v1/leases/F001", headers={"Gitlease-Session": "x"}), 412, "not_holder")


def test_a_duration_in_place_of_a_resource_is_refused(jo: httpx.Client) -> None:
    asked: dict[str, Any] = {"resources": ["F001", "1h"]}
    for word in ("1h", "30s", "1.5.1h"):
        meant = {"resources": ["F001", word]}
        check_words(refused(jo.post("/v1/leases:claim", json=meant), 400, "usage")["hints"])
    assert len(jo.post("/v1/leases:claim", json=asked | {"any": True}).json()["leases"]) == 2
    # What the ledger has is no slip.
    assert jo.post("/v1/leases:release", json=asked).status_code == 200


@pytest.mark.slow
def test_a_condition_is_checked(jo: httpx.Client) -> None:
    first = jo.put("/v1/leases/F001", headers={"If-None-Match": "*"})
    assert first.status_code == 201
    refused(jo.put("/v1/leases/F001", headers={"If-None-Match": "*"}), 409, "held")
    refused(jo.put("/v1/leases/F001", headers={"If-None-Match": '"7"'}), 400, "usage")
    assert jo.put("/v1/leases/F001").json()["status"] == "renewed"
    refused(jo.patch("/v1/leases/F001", headers={"If-Match": '"77"'}), 412, "lost")
    refused(jo.delete("/v1/leases/F001", headers={"If-Match": '"77"'}), 412, "lost")
    refused(jo.patch("/v1/leases/F001", headers={"If-Match": "abc"}), 400, "usage")
    refused(jo.patch("/v1/leases/nobodys"), 412, "lost")


def test_lists_come_in_pages_and_are_filtered(
    jo: httpx.Client, kim: httpx.Client, clone: Path
) -> None:
    jo.post("/v1/leases:claim", json={"resources": ["a", "b", "c"]})
    kim.post("/v1/leases:claim", json={"resources": ["path:src/**"]})
    first = jo.get("/v1/leases", params={"limit": "2"}).json()
    assert [x["resource"] for x in first["leases"]] == ["a", "b"]
    rest = jo.get("/v1/leases", params={"cursor": first["next_cursor"]}).json()
    assert [x["resource"] for x in rest["leases"]] == ["c", "src/**"]
    assert rest["next_cursor"] is None
    refused(jo.get("/v1/leases", params={"cursor": "zz"}), 400, "usage")
    of_kim = jo.get("/v1/leases", params={"holder": "kim@example.com"}).json()["leases"]
    assert [x["resource"] for x in of_kim] == ["src/**"]
    covering = jo.get("/v1/leases", params={"path": "src/a.py"}).json()["leases"]
    assert [x["resource"] for x in covering] == ["src/**"]
    jo.delete("/v1/leases/a", params={"done": "true"})
    jo.delete("/v1/leases/b")
    admin = door(clone)
    admin.config("admins", admin.holder, ledger=True)
    admin.revoke("c", reason="stuck")
    for state, resource in (("completed", "a"), ("released", "b"), ("revoked", "c")):
        (ended,) = jo.get("/v1/leases", params={"state": state}).json()["leases"]
        assert (ended["resource"], ended["state"]) == (resource, state)
    assert len(jo.get("/v1/leases", params={"state": "all"}).json()["leases"]) == 4


@pytest.mark.slow
def test_tasks_are_listed_and_picked_once(gate: Served, clone: Path, jo: httpx.Client) -> None:
    folder = clone / "tasks"
    folder.mkdir()
    for n in range(3):
        (folder / f"T{n}.md").write_text(f"---\nid: T{n}\ntitle: Task {n}\nstatus: todo\n---\n")
    assert [x["resource"] for x in jo.get("/v1/tasks").json()["tasks"]] == ["T0", "T1", "T2"]
    assert jo.post("/v1/tasks:next").json()["task"]["resource"] == "T0"
    gate.secret("reader", "read")
    reader = gate.caller("reader")
    assert reader.post("/v1/tasks:next", json={}).json()["task"]["resource"] == "T0"
    refused(reader.post("/v1/tasks:next", json={"claim": True}), 403, "forbidden")
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(gate.ask, who, "POST", "/v1/tasks:next", json={"claim": True})
            for who in ("jo", "kim", "lee")
        ]
        got = sorted(x.result(LONG).json()["task"]["resource"] for x in asked)
        assert all("ETag" in x.result().headers for x in asked)
    assert got == ["T0", "T1", "T2"]
    refused(jo.post("/v1/tasks:next", json={"claim": True}), 404, "nothing_left")
    text = (folder / "T0.md").read_text()
    assert "assigned" not in text, "the gateway writes no files: the record has the assignment"
    assert jo.get("/v1/leases/T0").json()["lease"]["assigned"] is True


# --- sent again -------------------------------------------------------------------------------


def test_a_request_that_is_sent_again_is_answered_the_same(
    gate: Served, jo: httpx.Client, kim: httpx.Client, clone: Path
) -> None:
    key = {"Idempotency-Key": "one"}
    first = jo.put("/v1/leases/F001", headers=key)
    pushes = gate.pushes()
    again = jo.put("/v1/leases/F001", headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert gate.pushes() == pushes
    refused(jo.put("/v1/leases/F002", headers=key), 400, "usage")
    assert kim.put("/v1/leases/F002", headers=key).status_code == 201, "keys are their holder's"
    with serving(clone) as other:  # which remembers nothing
        other.secrets = gate.secrets
        later = other.ask("jo", "PUT", "/v1/leases/F001", headers=key).json()
    assert (later["status"], later["lease"]) == ("claimed", _but_time(first, later))


def _but_time(first: httpx.Response, later: dict[str, Any]) -> dict[str, Any]:
    return {**first.json()["lease"], "expires_in": later["lease"]["expires_in"]}


@pytest.mark.nightly
def test_the_same_key_at_the_same_time_is_one_claim(gate: Served) -> None:
    def claim(_n: int) -> int:
        found = gate.ask("jo", "PUT", "/v1/leases/F9", headers={"Idempotency-Key": "k"})
        return int(found.json()["lease"]["token"])

    gate.caller("jo")
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(claim, range(16)))) == 1


# --- who asks ---------------------------------------------------------------------------------


def test_nobody_asks_without_a_good_token(gate: Served) -> None:
    plain = httpx.Client(base_url=gate.url, trust_env=False)
    for headers in (
        {},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Digest x"},
        {"X-API-Key": ""},
    ):
        answer = plain.get("/v1/leases", headers=headers)
        refused(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    secret = gate.secret("jo")
    for auth in (
        {"headers": {"Authorization": f"bearer {secret}"}},
        {"headers": {"X-API-Key": secret}},
        {"auth": ("anyone", secret)},
    ):
        assert plain.get("/v1/leases", **auth).status_code == 200
    assert plain.get("/healthz").text == "ok\n"
    plain.close()


@pytest.mark.slow
def test_the_holder_is_the_tokens_and_never_the_bodys(gate: Served, jo: httpx.Client) -> None:
    refused(jo.put("/v1/leases/a", json={"holder": "kim@example.com"}), 400, "usage")
    claimed = jo.put("/v1/leases/a", json={})
    assert claimed.json()["lease"]["holder"] == "jo@example.com"
    gate.secret("eve", "read")
    refused(gate.ask("eve", "PUT", "/v1/leases/a"), 403, "forbidden")
    assert gate.ask("eve", "GET", "/v1/leases").status_code == 200


def test_other_sites_and_other_names_are_turned_away(jo: httpx.Client) -> None:
    refused(jo.get("/v1/leases", headers={"Host": "evil.example"}), 421, "wrong_host")
    refused(jo.get("/v1/leases", headers={"Origin": "https://evil.example"}), 403, "wrong_origin")
    own = str(jo.base_url).rstrip("/")
    assert jo.get("/v1/leases", headers={"Origin": own}).status_code == 200
    assert "access-control-allow-origin" not in jo.get("/v1/leases").headers


@pytest.mark.slow
def test_a_token_that_asks_too_often_is_slowed_down(gate: Served, jo: httpx.Client) -> None:
    gate.app._access.rate, gate.app._access.burst = 0.1, 5.0
    assert [jo.get("/v1/leases").status_code for _ in range(5)] == [200] * 5
    answer = jo.get("/v1/leases")
    refused(answer, 429, "too_many_requests")
    assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert gate.ask("kim", "GET", "/v1/leases").status_code == 200, "each has a rate of its own"


# --- bad input --------------------------------------------------------------------------------


def test_a_bad_body_is_named(jo: httpx.Client) -> None:
    for body, about in (
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"takeover": true}', "reason"),
        (b'{"session": "a\\u0007b"}', "session"),
        (b'{"unheard": 1}', "'unheard'"),
        (b"[" * 30_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ):
        message = refused(jo.put("/v1/leases/F001", content=body), 400, "usage")["message"]
        assert about in message


@pytest.mark.nightly
def test_a_body_that_is_too_large_or_too_slow_is_refused(
    gate: Served, jo: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gitlease.gateway import request_handler

    refused(jo.put("/v1/leases/a", content=b" " * (MOST_BYTES + 1)), 413, "too_large")
    monkeypatch.setattr(request_handler, "BODY_SECONDS", 0.2)
    host, port = gate.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LONG) as slow:
        slow.sendall(
            f"PUT /v1/leases/a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n"
            f"Authorization: Bearer {gate.secret('jo')}\r\n\r\n".encode()
        )
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_bad_address_has_the_right_answer(jo: httpx.Client) -> None:
    for method, path, status in (
        ("GET", "/v1/leases/%00", 400),
        ("PUT", "/v1/leases/", 400),
        ("GET", "/v1/leases/path:..%2Fetc", 400),
        ("PUT", "/v1/leases/path:%FF", 400),
        ("GET", "/v1/leases?path=%FF", 400),
        ("GET", "/v1/leases/%EF%BF%BD", 400),  # is no name
        ("GET", "/v1/leases/path:%EF%BF%BD", 200),
        ("DELETE", "/v1/leases/a?scope=1&scope=2", 400),
        ("GET", "/v1/leases?limit=0", 400),
        ("GET", "/v1/leases?unheard=1", 400),
        ("DELETE", "/v1/leases/a?done=maybe", 400),
        ("PUT", "/v1/leases/a?ttl=5m", 400),
        ("GET", "/v1/history/a?limit=99999999999", 400),
        ("POST", "/v1/check", 400),
        ("POST", "/v1/leases", 405),
        ("GET", "/nowhere", 404),
    ):
        answer = jo.request(method, path)
        assert answer.status_code == status, answer.text
        if status >= 400:
            assert answer.headers["content-type"] == PROBLEM
            assert answer.json()["detail"]
    refused(jo.get("/v1/leases", headers={"Gitlease-Session": "%FF"}), 400, "usage")


@pytest.mark.slow
def test_a_remote_that_is_away_is_said_without_its_place(
    jo: httpx.Client, path_remote: Remote
) -> None:
    assert jo.get("/readyz").status_code == 200
    bare = path_remote.bare
    aside = bare.rename(bare.with_name("away.git"))
    assert str(bare.parent) not in str(refused(jo.put("/v1/leases/zz"), 503, "unavailable"))
    aside.rename(bare)
    assert jo.put("/v1/leases/zz").status_code == 201


# --- what is told -----------------------------------------------------------------------------


def test_events_are_streamed_and_resumed(gate: Served, jo: httpx.Client, clone: Path) -> None:
    jo.put("/v1/leases/before")
    lines: list[str] = []
    seen = threading.Event()

    def listen(after: str | None, wanted: int) -> list[dict[str, Any]]:
        headers = {"Last-Event-ID": after} if after else {}
        found: list[dict[str, Any]] = []
        with gate.caller("kim").stream("GET", "/v1/events", headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            seen.set()
            number = ""
            for line in stream.iter_lines():
                lines.append(line)
                if line.startswith("id: "):
                    number = line.removeprefix("id: ")
                if line.startswith("data: "):
                    found.append({**json.loads(line.removeprefix("data: ")), "id": number})
                if len(found) == wanted:
                    break
        return found

    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(listen, None, 2)
        assert seen.wait(LONG)
        until(lambda: any(x.startswith(": listening") for x in lines), "the stream begins")
        jo.put("/v1/leases/F001")
        door(clone).claim("elsewhere")  # past the gateway
        first = heard.result(LONG)
    assert [(x["kind"], x["resource"]) for x in first] == [
        ("claimed", "F001"),
        ("claimed", "elsewhere"),
    ]
    jo.delete("/v1/leases/F001")
    later = listen(first[0]["id"], 2)
    assert [(x["kind"], x["resource"]) for x in later] == [
        ("claimed", "elsewhere"),
        ("released", "F001"),
    ]
    with serving(clone) as other:  # which has told nothing yet: history resumes it
        other.secrets = gate.secrets
        other.clients["kim"] = other.caller("kim")
        gate.clients["kim"] = other.clients["kim"]
        assert listen(first[0]["id"], 2) == later
    refused(jo.get("/v1/events", headers={"Last-Event-ID": "x"}), 400, "usage")


# --- what is not answered from old knowledge ----------------------------------------------------


@pytest.mark.slow
def test_those_who_wait_keep_nobody_from_a_renewal(
    gate: Served, jo: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo.put("/v1/leases/F001")
    gate.app.handler.waits.total_tokens = 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gate.ask, "kim", "PUT", "/v1/leases/F001", json={"wait": "50s"})
        until(lambda: jo.get("/v1/leases/F001").json().get("waiting"), "kim stands in line")
        lee = gate.ask("lee", "PUT", "/v1/leases/F001", json={"wait": "50s"})
        refused(lee, 503, "busy")
        assert jo.patch("/v1/leases/F001").status_code == 200
        jo.delete("/v1/leases/F001")
        assert waiting.result(LONG).json()["lease"]["holder"] == "kim@example.com"
    refused(jo.put("/v1/leases/F001", json={"wait": "2h"}), 400, "usage")


def test_a_stream_ends_with_its_token(gate: Served) -> None:
    from gitlease.gateway.opening import open_tokens

    with gate.caller("kim").stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        open_tokens(str(gate.folder)).revoke("kim")
        assert not any(x.startswith("data") for x in lines), "it comes to its end"
    refused(gate.caller("kim").get("/v1/leases"), 401, "unauthorized")
