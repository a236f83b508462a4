"""The tools at a gateway: the token says who calls, and what they may."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError
from support.gateway import Served, serving
from support.remotes import Remote
from support.repos import git
from support.running import LONG, until
from support.snapshots import check_words
from support.tools import ERAS, Era, ToolClient, over_http

from gitlease.gateway.opening import open_tokens
from gitlease.gateway.request_handler import WAITS_OF_TOKEN
from gitlease.kernel.rules.errors import UsageError
from gitlease.mcp.server import BOARD
from gitlease.verbs.table import check_encodes

pytestmark = pytest.mark.slow

BY_ITSELF = 1_000  # seconds after which a wait ends
THREAD = {"x-codex-turn-metadata": json.dumps({"thread_id": "aaaaaaaa-1"})}


@pytest.fixture
def clone(clones: Callable[..., list[Path]], path_remote: Remote) -> Path:
    made = clones(1)[0]
    git(made, "config", "user.email", "gate@example.com")
    return made


@pytest.fixture
def gate(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("gitlease.mcp.server.LONGEST_WAIT", BY_ITSELF)
    with serving(clone) as served:
        yield served


def posted(gate: Served, **headers: str) -> httpx.Response:
    """What a request of nobody's is answered with."""
    own = {"Accept": "application/json, text/event-stream", **headers}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}}
    begin["clientInfo"] = {"name": "x", "version": "1"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
    return httpx.post(f"{gate.url}/mcp", json=body, headers=own, trust_env=False)


@pytest.mark.default
def test_without_a_good_token_there_are_no_tools(gate: Served) -> None:
    refused = posted(gate)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert posted(gate, Authorization="Bearer glt_guessed").status_code == 401
    good = {"Authorization": f"Bearer {gate.secret('jo')}"}
    assert posted(gate, **good).status_code == 200
    assert posted(gate, **good, Host="evil.example").status_code == 421
    assert posted(gate, **good, Origin="http://evil.example").status_code == 403
    for method in ("GET", "DELETE"):
        asked = httpx.request(method, f"{gate.url}/mcp", headers=good, trust_env=False)
        assert asked.status_code in (400, 406), "they need a session"
    numbers = httpx.get(f"{gate.url}/metrics", trust_env=False).text
    for status, many in ((200, 1), (401, 2), (403, 1), (421, 1)):
        assert f'gitlease_requests_total{{verb="mcp",status="{status}"}} {many}' in numbers


@pytest.mark.nightly
@pytest.mark.parametrize("era", ERAS)
def test_a_token_that_may_only_read_claims_nothing(gate: Served, era: Era) -> None:
    with over_http(gate.url, gate.secret("ro", "read"), era) as client:
        error = client.document("claim", resources="F001")["error"]
        assert error["code"] == "denied"
        check_words(error["message"])
        looked = client.document("next").get("error") or {}
        assert looked.get("code") != "denied", "it only looks"
        assert client.document("next", claim=True)["error"]["code"] == "denied"
        assert client.document("status")["leases"] == []


@pytest.mark.default("auto")
@pytest.mark.parametrize("era", ERAS)
def test_the_session_is_that_of_the_header_or_of_the_thread(gate: Served, era: Era) -> None:
    secret = gate.secret("jo")
    with over_http(gate.url, secret, era, **{"Gitlease-Session": "run-7"}) as client:
        assert client.document("claim", resources="F001")["lease"]["session"] == "run-7"
    with over_http(gate.url, secret, era) as client:
        found = client.ask("claim", THREAD, resources="F001").structured_content or {}
        error: Any = found["error"]
        assert (error["code"], error["session"]) == ("held", "run-7")
        found = client.ask("claim", THREAD, resources="F002").structured_content or {}
        assert found["lease"]["session"] == "codex:aaaaaaaa"
    leases = gate.ask("jo", "GET", "/v1/leases").json()["leases"]
    assert [x["resource"] for x in leases] == ["F001", "F002"], "a client that goes drops nothing"


def held(gate: Served) -> dict[str, str]:
    """The live leases, and their sessions."""
    leases = gate.ask("jo", "GET", "/v1/leases").json()["leases"]
    return {x["resource"]: x["session"] for x in leases}


@pytest.mark.nightly
def test_answers_hide_where_the_remote_lies(gate: Served, path_remote: Remote) -> None:
    with over_http(gate.url, gate.secret("jo")) as client:
        client.document("claim", resources="F001")
        path_remote.bare.rename(path_remote.bare.with_name("gone.git"))
        for tool, arguments in (("claim", {"resources": "F002"}), ("status", {}), ("renew", {})):
            answer = client.ask(tool, **arguments).model_dump_json()
            assert str(path_remote.bare.parent) not in answer, tool
        with pytest.raises(MCPError) as raised:
            client.portal.call(client.client.read_resource, BOARD)
        assert str(path_remote.bare.parent) not in repr(raised.value.error)


@pytest.mark.default
def test_a_lone_surrogate_is_answered() -> None:
    with pytest.raises(UsageError, match="surrogate"):
        check_encodes({"resources": ["a\ud800"]}, "the arguments have")


def test_a_session_that_ends_lets_its_leases_go(gate: Served) -> None:
    secret = gate.secret("jo")
    with over_http(gate.url, secret, "legacy") as stays:
        stays.document("claim", resources="F001")
        with over_http(gate.url, secret, "legacy") as ends:
            ends.document("claim", resources="F002")
            assert held(gate).keys() == {"F001", "F002"}
        until(lambda: held(gate).keys() == {"F001"}, "what it had is free")


def test_a_connection_that_is_gone_lets_its_leases_go(
    gate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without an end of the session: its stream of notifications does not come back."""
    monkeypatch.setattr("gitlease.gateway.mcp.GRACE", 0.5)
    good = {"Authorization": f"Bearer {gate.secret('jo')}"}
    id = posted(gate, **good).headers["Mcp-Session-Id"]
    own = {**good, "Mcp-Session-Id": id, "Accept": "application/json, text/event-stream"}
    call = {"name": "claim", "arguments": {"resources": "F001"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    began = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    with httpx.Client(base_url=gate.url, headers=own, trust_env=False, timeout=LONG) as client:
        client.post("/mcp", json=began).raise_for_status()
        with client.stream("GET", "/mcp") as stream:
            assert stream.status_code == 200
            client.post("/mcp", json=body).raise_for_status()
            (session,) = held(gate).values()
            assert session.startswith("mcp:")
            assert id not in session
            other = {**own, "Authorization": f"Bearer {gate.secret('lee')}"}
            assert client.post("/mcp", json=body, headers=other).status_code == 404
        until(lambda: not held(gate), "what it had is free")
        client.post("/mcp", json=body).raise_for_status()
        assert list(held(gate).values()) == [session], "it may come back"


def begin_wait(client: ToolClient) -> Future[Any]:
    """A wait for F001 that is under way."""
    has_begun = threading.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        has_begun.set()

    async def wait() -> Any:
        words = {"resources": "F001", "timeout": BY_ITSELF}
        return await client.client.call_tool("wait", words, progress_callback=progress)

    asked = client.portal.start_task_soon(wait)
    assert has_begun.wait(LONG)
    return asked


@pytest.mark.default("auto")
@pytest.mark.nightly
@pytest.mark.parametrize("era", ERAS)
def test_a_wait_that_is_cancelled_ends_at_once(gate: Served, era: Era) -> None:
    gate.ask("kim", "PUT", "/v1/leases/F001", json={})
    waits = gate.app.handler.waits
    with over_http(gate.url, gate.secret("jo"), era) as client:
        asked = begin_wait(client)
        until(lambda: waits.borrowed_tokens == 1, "it waits")
        asked.cancel()
        until(lambda: not waits.borrowed_tokens, "it ends")


def test_a_wait_that_another_client_cancels_goes_on(gate: Served) -> None:
    gate.ask("kim", "PUT", "/v1/leases/F001", json={})
    alike, other = gate.secret("jo"), gate.secret("lee")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(over_http(gate.url, x, "legacy")) for x in (alike, other)]
        cancelled, asked = map(begin_wait, opened)  # both have one number
        cancelled.cancel()
        until(lambda: gate.app.handler.waits.borrowed_tokens == 1, "one ends")
        gate.ask("kim", "DELETE", "/v1/leases/F001")
        assert asked.result(LONG).structured_content["ok"]


@pytest.mark.default
def test_too_many_who_wait_are_told_to_ask_again(gate: Served) -> None:
    gate.ask("kim", "PUT", "/v1/leases/F001", json={})
    secret, waiting = gate.secret("jo"), gate.app.handler.waiting
    (token,) = [x.id for x in open_tokens(str(gate.folder)).listed() if x.name == "jo"]
    with over_http(gate.url, secret) as client, contextlib.ExitStack() as stack:
        for _ in range(WAITS_OF_TOKEN):
            stack.enter_context(waiting(token))
        error = client.document("wait", resources="F001")["error"]
        assert error["code"] == "unavailable"
        check_words(error["message"])
        assert client.document("claim", resources="F002")["ok"], "a claim is not kept waiting"
        stack.close()
        assert client.document("wait", resources="F001", timeout=1)["error"]["holder"]


def test_a_gateway_without_the_package_says_so(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gitlease.gateway import app

    found = importlib.util.find_spec
    monkeypatch.setattr(app, "find_spec", lambda name: None if name == "mcp" else found(name))
    with serving(clone) as served:
        answer = posted(served)
        assert answer.status_code == 501
        check_words(answer.json()["detail"])
        assert served.ask("jo", "GET", "/v1/leases").status_code == 200
