"""A session leases in its own layer and in `global`, over HTTP and by tools; and who it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Served, serving
from support.remotes import Remote
from support.running import until
from support.tools import in_memory, over_http

import gitlease
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.default


@pytest.fixture
def clone(clones: Callable[..., list[Path]], path_remote: Remote, monkeypatch: Any) -> Path:
    path_remote.open_to(monkeypatch)
    return clones(1)[0]


@pytest.fixture
def gate(clone: Path) -> Iterator[Served]:
    with serving(clone) as served:
        yield served


def names(gate: Served, layer: str | None = None) -> dict[str, str | None]:
    """The leases of a layer, and their sessions."""
    query = "" if layer is None else f"?layer={layer}"
    leases = gate.ask("jo", "GET", f"/v1/leases{query}").json()["leases"]
    assert {x["layer"] for x in leases} <= {layer or "global"}
    return {x["resource"]: x["session"] for x in leases}


def test_one_session_leases_in_two_layers_over_http(gate: Served) -> None:
    body = {"session": "run-1"}
    for layer in ({}, {"layer": "team-a"}):
        done = gate.ask("jo", "PUT", "/v1/leases/F001", json={**body, **layer})
        assert done.status_code == 201, done.text
    assert done.json()["lease"]["layer"] == "team-a"
    held = gate.ask("kim", "PUT", "/v1/leases/F001", json={"layer": "team-a"})
    assert (held.status_code, held.json()["lease"]["layer"]) == (409, "team-a")
    assert gate.ask("kim", "PUT", "/v1/leases/F001", json={"layer": "team-b"}).status_code == 201
    assert names(gate) == names(gate, "team-a") == {"F001": "run-1"}
    renewed = gate.ask("jo", "PATCH", "/v1/leases/F001", json={**body, "layer": "team-a"})
    assert renewed.status_code == 200
    ended = gate.ask("jo", "DELETE", "/v1/leases/F001?layer=team-a&session=run-1")
    assert ended.status_code == 200, ended.text
    assert (names(gate), names(gate, "team-a")) == ({"F001": "run-1"}, {})
    for odd in ("local", "a b", ""):
        refused = gate.ask("jo", "PUT", "/v1/leases/F001", json={"layer": odd})
        assert (refused.status_code, refused.json()["code"]) == (400, "usage"), odd


def test_python_connects_to_a_layer(gate: Served) -> None:
    with gitlease.connect(gate.url, token=gate.secret("jo"), session="s", layer="A") as leases:
        assert leases.claim("F001").layer == "a"
        assert leases.extend("F001", "1h").token == leases.renew("F001").token == 1
        assert [x.resource for x in leases.list()] == ["F001"]
        assert leases.fence("F001", 1).layer == "a"
        assert [x.kind for x in leases.log()] == ["extended", "claimed"]
        with pytest.raises(gitlease.UsageError, match="own layer"):
            next(leases.events())
        assert (names(gate), names(gate, "a")) == ({}, {"F001": "s"})
        leases.release("F001")
    assert gate.ask("jo", "GET", "/v1/events?layer=a").status_code == 400
    assert names(gate, "a") == {}


def test_a_key_is_of_one_layer(gate: Served) -> None:
    key = {"Idempotency-Key": "once"}
    first = gate.ask("jo", "PUT", "/v1/leases/F001", json={"layer": "a"}, headers=key).json()
    again = gate.ask("jo", "PUT", "/v1/leases/F001", json={"layer": "a"}, headers=key).json()
    assert first["lease"]["token"] == again["lease"]["token"]
    other = gate.ask("jo", "PUT", "/v1/leases/F001", json={"layer": "b"}, headers=key)
    assert other.status_code == 400, "it is another request"


def test_layers_of_a_gateway_are_bounded(gate: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitlease.gateway.gateway.MOST_LAYERS", 1)
    assert gate.ask("jo", "PUT", "/v1/leases/F001", json={"layer": "a"}).status_code == 201
    refused = gate.ask("jo", "GET", "/v1/leases?layer=b")
    assert (refused.status_code, refused.json()["code"]) == (400, "usage")
    assert names(gate, "a") == {"F001": None}
    assert names(gate) == {}


def test_tools_at_a_gateway_take_a_layer_and_let_it_go_with_the_session(gate: Served) -> None:
    with over_http(gate.url, gate.secret("jo"), "legacy") as client:
        assert client.document("claim", resources="F001")["lease"]["layer"] == "global"
        assert client.document("claim", resources="F001", layer="a")["lease"]["layer"] == "a"
        (session,) = {*names(gate).values(), *names(gate, "a").values()}
        assert session is not None
        assert len(client.document("renew")["leases"]) == 2, "all of its own"
        assert len(client.document("status", layer="a")["leases"]) == 1
    until(lambda: not names(gate) and not names(gate, "a"), "both are let go")


def test_tools_of_a_clone_take_a_layer_and_let_it_go_at_their_end(clone: Path) -> None:
    def held() -> list[str]:
        space = open_workspace(str(clone))
        looks = [space.in_layer(x).ledger.look() for x in (None, "a")]
        return [x.holder for look in looks for x in look.leases]

    with in_memory(clone) as client:
        client.document("claim", resources="F001")
        lease = client.document("claim", resources="F001", layer="a")["lease"]
        assert (lease["layer"], len(held())) == ("a", 2)
        assert client.document("extend", resources="F001", duration="1h", layer="a")["ok"]
    assert held() == []


def test_a_client_without_a_session_acts_on_what_it_claimed_itself(gate: Served) -> None:
    secret = gate.secret("jo")
    gate.ask("jo", "PUT", "/v1/leases/F009", json={})
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(over_http(gate.url, secret)) for _ in range(2))
        claimed = one.document("claim", resources="F001")
        session = claimed["lease"]["session"]
        assert session in one.text("claim", resources="F002") or session.startswith("mcp-")
        assert any(session in x for x in claimed["warnings"]), "it is told how to go on"
        assert two.document("claim", resources="F001")["error"]["session"] == session
        for client in (one, two):
            for tool, more in (("renew", {}), ("extend", {"duration": "1h"}), ("release", {})):
                error = client.document(tool, resources="F001", **more)["error"]
                assert error["code"] == "usage", tool
                assert "session" in error["message"]
                assert error["hints"], "it is told what to do"
            # Nor what its person has from elsewhere.
            assert not client.document("release", resources="F009")["ok"]
        other = two.document("claim", resources="F003")["lease"]["session"]
        wrong = two.document("release", resources="F001", session=other)
        assert wrong["error"]["code"] == "held"
        assert one.document("renew", resources="F001", session=session)["ok"]
        assert one.document("release", resources="F001", session=session)["ok"]
        assert two.document("status")["ok"]
    assert names(gate).keys() == {"F002", "F003", "F009"}
