"""No door lets a displaced holder release the next one's claim: 409, which names the holder."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.clock import ManualClock
from support.gateway import Served

pytestmark = pytest.mark.default

JO, KIM = "jo@example.com", "kim@example.com"


def call(
    served: Served, person: str, method: str, path: str, body: Any = None, **headers: str
) -> httpx.Response:
    given = {"X-API-Key": served.secret(person), **headers}
    url = served.url + path
    return httpx.request(method, url, headers=given, json=body, trust_env=False, timeout=60)


def test_every_api_refuses_the_release_of_the_next_holders_claim(
    names: Served, manual_clock: ManualClock
) -> None:
    def ask(person: str, method: str, path: str, body: Any = None) -> httpx.Response:
        return call(names, person, method, path, body)

    made = ask("jo", "POST", "/api/v1/intents", {"title": "Deploy"})
    intent = made.json()["id"]
    leases = f"/api/v1/intents/{intent}/leases"
    mine = ask("jo", "POST", leases, {"scope": "*", "duration_seconds": 60}).json()
    assert ask("jo", "POST", "/v1/nodes/port-80/claim", {}).status_code == 200
    manual_clock.advance(3_600)
    theirs = ask("kim", "POST", leases, {"scope": "*", "duration_seconds": 600})
    assert theirs.json()["holder"] == KIM
    assert ask("kim", "POST", "/v1/nodes/port-80/claim", {}).status_code == 200
    for method, path, body in (
        ("POST", "/v1/nodes/port-80/release", {}),
        ("DELETE", "/v1/leases/port-80", None),
        ("POST", "/v1/leases:release", {"resources": ["port-80"]}),
        ("DELETE", f"{leases}/{mine['id']}", None),
        ("DELETE", f"{leases}/{theirs.json()['id']}", None),
    ):
        refused = ask("jo", method, path, body)
        assert refused.status_code == 409, (path, refused.text)
        assert KIM in refused.text
    kims = ask("kim", "GET", "/v1/leases").json()["leases"]
    assert [x["holder"] for x in kims if x["state"] == "active"] == [KIM, KIM]
    assert ask("kim", "DELETE", f"{leases}/{theirs.json()['id']}").status_code == 200
    ended = ask("jo", "DELETE", f"{leases}/{mine['id']}")
    assert ended.status_code == 200, "it ended before, and nobody else has the scope"
