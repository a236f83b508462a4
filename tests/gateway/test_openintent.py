"""OpenIntent's leases: by its own SDK as it is published, and by requests."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from support.clock import ManualClock
from support.gateway import Served
from support.running import LONG, Desk, until
from support.snapshots import check_words

from gitlease.gateway.request_handler import MOST_BYTES

pytestmark = pytest.mark.slow

find = importlib.import_module if os.environ.get("CI") else pytest.importorskip
sdk: Any = find("openintent")
LEASE = {
    "id",
    "intent_id",
    "agent_id",
    "holder",
    "scope",
    "status",
    "created_at",
    "acquired_at",
    "expires_at",
    "released_at",
}
JO = "jo@example.com"
ROOTS = ("/api/v1", "/v1")


@pytest.fixture
def agent(project: Served) -> Iterator[Callable[..., Any]]:
    """The SDK's client of an agent; all of jo's token unless another is named."""
    made: list[Any] = []

    def make(name: str, person: str = "jo", *, kind: Any = sdk.OpenIntentClient) -> Any:
        made.append(kind(project.url, api_key=project.secret(person), agent_id=name))
        return made[-1]

    yield make
    for one in made:
        if isinstance(one, sdk.OpenIntentClient):
            one.close()


def ask(
    served: Served, agent: str, method: str, path: str, *, person: str = "jo", **options: Any
) -> httpx.Response:
    headers = {"X-API-Key": served.secret(person), "X-Agent-ID": agent}
    return httpx.request(
        method, served.url + path, headers=headers, timeout=LONG, trust_env=False, **options
    )


def take(served: Served, agent: str, *, person: str = "jo", **more: Any) -> httpx.Response:
    body = {"scope": "research"} | more
    path = "/v1/intents/task-api/leases"
    return ask(served, agent, "POST", path, person=person, json=body)


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["error"] == code
    assert body["message"]
    assert ("lease" in answer.text.lower()) or status != 409
    return body


# --- by the SDK -------------------------------------------------------------------------------


@pytest.mark.default
def test_the_sdk_leases_what_it_created(agent: Callable[..., Any], project: Served) -> None:
    one, two = agent("worker-1"), agent("worker-2", "kim")
    intent = one.create_intent("Limit the rates!", description="of all", initial_state={"n": 1})
    assert (intent.title, intent.created_by) == ("Limit the rates!", JO)
    assert (intent.description, intent.state.to_dict()) == ("", {}), "which are kept nowhere"
    check_words(one.get_intent(intent.id).title)
    assert one.create_intent("Limit the rates!").id != intent.id

    lease = one.acquire_lease(intent.id, "research", duration_seconds=120)
    assert (lease.intent_id, lease.agent_id, lease.scope) == (intent.id, "worker-1", "research")
    assert lease.status is sdk.LeaseStatus.ACTIVE
    assert lease.is_active
    renewed = one.renew_lease(intent.id, lease.id, duration_seconds=600)
    assert (renewed.id, renewed.expires_at > lease.expires_at) == (lease.id, True)

    with pytest.raises(sdk.LeaseConflictError) as conflict:
        two.acquire_lease(intent.id, "research")
    assert conflict.value.existing_lease["id"] == lease.id
    assert JO in conflict.value.message
    other = two.acquire_lease(intent.id, "writing")
    assert [x.scope for x in one.get_leases(intent.id)] == ["research", "writing"]
    there = Desk(project.folder).document("list")["leases"]
    assert {(x["holder"], x["session"]) for x in there} == {
        (JO, "worker-1"),
        ("kim@example.com", "worker-2"),
    }

    one.release_lease(intent.id, lease.id)
    open, ended = two.get_leases(intent.id)
    assert (open.id, ended.status) == (other.id, sdk.LeaseStatus.RELEASED)
    assert (ended.agent_id, ended.scope, ended.is_active) == ("worker-1", "research", False)
    with pytest.raises(sdk.NotFoundError):
        one.renew_lease(intent.id, lease.id)
    with pytest.raises(sdk.NotFoundError):
        one.release_lease(intent.id, lease.id)
    with one.lease(intent.id, "research") as held:
        assert held.is_active
    assert [x.id for x in one.get_leases(intent.id) if x.is_active] == [other.id]


@pytest.mark.nightly
def test_the_sdk_works_on_tasks(agent: Callable[..., Any]) -> None:
    one = agent("worker-1")
    assert one.get_intent("task-api").title == "Limit the rates"
    assert one.get_intent("task-old").status is sdk.IntentStatus.COMPLETED
    listed = {x.id: x.status for x in one.list_intents(limit=3)}
    assert len(listed) == 3
    (done,) = one.list_intents(status=sdk.IntentStatus.COMPLETED)
    assert done.id == "task-old"
    lease = one.acquire_lease("task-api", "*")
    assert one.acquire_lease("task-api", "*").id == lease.id, "it is the agent's own"
    calls: tuple[Callable[[], Any], ...] = (
        lambda: one.get_intent("nothing"),
        lambda: one.get_leases("nothing"),
        lambda: one.acquire_lease("nothing", "*"),
        lambda: one.renew_lease("task-api", "nothing"),
        lambda: one.get_intent("intent-a-0123456789abcdef"),
        lambda: one.get_intent("a b"),
    )
    for call in calls:
        with pytest.raises(sdk.NotFoundError):
            call()
    with pytest.raises(sdk.ValidationError) as wrong:
        one.acquire_lease("task-api", "", duration_seconds=-5)
    assert wrong.value.errors
    assert one.discover()["capabilities"] == ["intents", "leasing", "subscriptions"]


def test_the_sdk_hears_what_is_leased_released_and_lapses(
    agent: Callable[..., Any], project: Served, manual_clock: ManualClock
) -> None:
    one, two = agent("worker-1"), agent("worker-2", "kim")
    listeners = project.app.follower._listeners

    def hear(stream: Any, events: int) -> list[Any]:
        telling = iter(stream)
        found = [next(telling) for _ in range(events)]
        telling.close()
        return found

    with ThreadPoolExecutor(2) as pool:
        of_all = pool.submit(hear, two.subscribe_agent(), 4)
        of_one = pool.submit(hear, two.subscribe_sse("task-api"), 3)
        until(lambda: len(listeners) == 2, "both streams are open")
        lease = one.acquire_lease("task-api", "research", duration_seconds=60)
        one.release_lease("task-api", lease.id)
        one.acquire_lease("task-ui", "*", duration_seconds=600)
        one.acquire_lease("task-api", "later", duration_seconds=60)
        heard = of_all.result(LONG)
        alone = of_one.result(LONG)
    told = [(x.type, x.intent_id, x.data["scope"]) for x in heard]
    assert told == [
        ("LEASE_ACQUIRED", "task-api", "research"),
        ("LEASE_RELEASED", "task-api", "research"),
        ("LEASE_ACQUIRED", "task-ui", "*"),
        ("LEASE_ACQUIRED", "task-api", "later"),
    ]
    assert [x.id for x in alone] == [x.id for x in heard if x.intent_id == "task-api"]
    assert {x.agent_id for x in heard} == {"worker-1"}

    until(lambda: not listeners, "both streams are closed")
    with ThreadPoolExecutor(1) as pool:
        lapse = pool.submit(hear, two.subscribe_sse("task-api"), 1)
        until(lambda: listeners, "the stream is open")
        manual_clock.advance(200)
        (event,) = lapse.result(LONG)
    assert (event.type, event.id) == ("LEASE_RELEASED", None)
    assert event.data == {
        "intent_id": "task-api",
        "scope": "later",
        "agent_id": "worker-1",
        "reason": "expired",
    }


# --- by requests ------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ROOTS)
def test_both_roots_and_both_spellings_answer_alike(project: Served, root: str) -> None:
    made = ask(project, "one", "POST", f"{root}/intents", json={"title": "Any"})
    assert made.status_code == 201
    assert made.json().keys() >= {"id", "title", "status", "version", "state", "constraints"}
    where = f"{root}/intents/{made.json()['id']}/leases"
    taken = ask(project, "one", "POST", where, json={"scope": "a", "agent_id": "x", "by": "y"})
    lease = taken.json()
    assert (taken.status_code, lease.keys()) == (201, LEASE)
    assert (lease["status"], lease["agent_id"], lease["holder"]) == ("active", "one", JO)
    assert lease["created_at"] == lease["acquired_at"]
    assert ask(project, "one", "GET", where).json() == {"leases": [lease]}
    one = f"{where}/{lease['id']}"
    renewed = ask(project, "one", "PATCH", one, json={"duration_seconds": 900})
    assert (renewed.status_code, renewed.json().keys()) == (200, LEASE)
    check_words(ask(project, "one", "DELETE", one).json()["message"])
    for path in ("agents/one/subscribe", "subscribe/agents/one", "intents/x/subscribe"):
        headers = {"X-API-Key": project.secret("jo")}
        url = f"{project.url}{root}/{path}"
        with httpx.stream("GET", url, headers=headers, trust_env=False) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert "retry" in next(lines)
        assert httpx.get(url, trust_env=False).json()["message"]


@pytest.mark.nightly
def test_times_are_utc_without_a_zone_whatever_the_zone_here(
    project: Served, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        lease = take(project, "one", duration_seconds=60).json()
    finally:
        monkeypatch.undo()
        time.tzset()
    since = datetime.fromtimestamp(manual_clock.wall_ms / 1000, UTC).replace(tzinfo=None)
    assert datetime.fromisoformat(lease["acquired_at"]) == since
    assert datetime.fromisoformat(lease["expires_at"]) == since + timedelta(seconds=60)


@pytest.mark.default
def test_an_expired_lease_is_told_and_never_renewed(
    project: Served, manual_clock: ManualClock
) -> None:
    lease = take(project, "one", duration_seconds=60).json()
    path = f"/v1/intents/task-api/leases/{lease['id']}"
    manual_clock.advance(61)
    refused(ask(project, "one", "PATCH", path, json={"duration_seconds": 60}), 409, "lost")
    (told,) = ask(project, "one", "GET", "/v1/intents/task-api/leases").json()["leases"]
    assert (told["id"], told["status"]) == (lease["id"], "expired")
    again = take(project, "one").json()
    assert again["id"] != lease["id"], "it is acquired anew"
    refused(ask(project, "one", "PATCH", path), 404, "not_found")


def test_the_rfcs_word_for_a_duration_counts_and_the_ledgers_ttl_is_usual(project: Served) -> None:
    terms: tuple[dict[str, Any], ...] = ({"ttl_seconds": 120}, {})
    for given, seconds in zip(terms, (120, 900), strict=True):
        lease = take(project, "one", scope=f"of-{seconds}", **given).json()
        end, start = (datetime.fromisoformat(lease[x]) for x in ("expires_at", "created_at"))
        assert end - start == timedelta(seconds=seconds)
    refused(take(project, "one", ttl_seconds=120, duration_seconds=60), 400, "usage")
    refused(take(project, "one", ttl=120), 400, "usage")


def test_bad_requests_get_the_right_code_and_shape(project: Served) -> None:
    leases = "/v1/intents/task-api/leases"
    wrong: tuple[Any, ...] = (None, 5, [], "", " a", "x" * 129, "\ud800")
    for scope in wrong:
        content = json.dumps({"scope": scope})
        answer = ask(project, "one", "POST", leases, content=content)
        assert refused(answer, 400, "usage")["errors"]
    wrong = (0, -1, 1.5, True, "60", [], 10**300)
    for seconds in wrong:
        refused(take(project, "one", duration_seconds=seconds), 400, "usage")
    for seconds in (1, 10**6):
        refused(take(project, "one", duration_seconds=seconds), 422, "policy")
    for body in (b"{", b"[]", b"\xff", b"[" * 5_000):
        refused(ask(project, "one", "POST", leases, content=body), 400, "usage")
    for title in (None, 5, "", "a\nb", "x" * 501, "\ud800"):
        content = json.dumps({"title": title})
        refused(ask(project, "one", "POST", "/v1/intents", content=content), 400, "usage")
    odd = b'{"title": "?", "state": {"a": NaN}, "description": "\\ud800", "constraints": 5}'
    made = ask(project, "one", "POST", "/v1/intents", content=odd).json()
    assert (made["title"], made["state"], made["constraints"]) == ("?", {}, {})
    assert ask(project, "one", "GET", f"/v1/intents/{made['id']}").status_code == 200
    refused(take(project, "x" * 129), 400, "usage")
    refused(take(project, "one", more="x" * MOST_BYTES), 413, "too_large")
    refused(ask(project, "one", "GET", "/v1/intents?limit=many"), 400, "usage")
    for intent in ("a%20b", "%00", "x" * 129, "*", "path%3A..", "path%3A"):
        refused(ask(project, "one", "GET", f"/v1/intents/{intent}"), 404, "not_found")
    no_token = httpx.get(f"{project.url}{leases}", trust_env=False)
    refused(no_token, 401, "unauthorized")
    project.secret("reader", "read")
    answer = ask(project, "one", "POST", leases, person="reader", json={"scope": "a"})
    refused(answer, 403, "forbidden")
    away = {"Host": "evil.example.com"}
    for path in ("/.well-known/openintent.json", leases):
        refused(httpx.get(project.url + path, headers=away, trust_env=False), 421, "wrong_host")
