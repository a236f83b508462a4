"""What is asked twice, at two gateways, or by who has lost the right to ask meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.clock import ManualClock
from support.gateway import Served, serving
from support.ledgers import REF, door, tip
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import LONG, Desk, until
from support.stubborn import Stubborn

import gitlease
from gitlease.gateway import request_handler
from gitlease.gateway.opening import open_tokens
from gitlease.kernel.ledger.transaction import fresh_id


@pytest.fixture
def two(
    path_remote: Remote, clones: Callable[..., list[Path]], monkeypatch: Any
) -> Iterator[tuple[Served, Served]]:
    """Two gateways of one ledger, in clones of their own; each knows the same people."""
    path_remote.open_to(monkeypatch)
    one, other = clones(2)
    with serving(one) as first, serving(other) as second:
        yield first, second


@pytest.fixture
def gate(two: tuple[Served, Served]) -> Served:
    return two[0]


def said(answer: httpx.Response) -> tuple[int, str]:
    """Its status, and its status word or the code of its refusal."""
    found = answer.json()
    return answer.status_code, found.get("code") or found.get("status")


KEY = {"Idempotency-Key": "once"}


@pytest.mark.default("gateway")
@pytest.mark.nightly
@pytest.mark.parametrize("by", ["gateway", "rollback", "vanished"])
def test_no_answer_says_held_of_what_the_remote_no_longer_has(
    two: tuple[Served, Served], path_remote: Remote, tmp_path: Path, by: str
) -> None:
    """S3: contact is when the displaced must learn it, however young the last look is."""
    one, other = two
    one.ask("jo", "PUT", "/v1/leases/before").raise_for_status()
    before = tip(path_remote.bare)
    granted = one.ask("jo", "PUT", "/v1/leases/a", headers=KEY)
    condition = {"If-Match": granted.headers["ETag"]}
    assert one.ask("jo", "GET", "/v1/leases/a", headers=condition).status_code == 200
    if by == "gateway":
        other.ask("jo", "DELETE", "/v1/leases/a").raise_for_status()
    elif by == "rollback":
        git(path_remote.bare, "update-ref", REF, before)
    else:
        path_remote.bare.rename(tmp_path / "away.git")
    answers = [
        one.ask("jo", "GET", "/v1/leases/a", headers=condition),
        one.ask("jo", "PATCH", "/v1/leases/a"),
        one.ask("jo", "PATCH", "/v1/leases/a", headers=condition),
        one.ask("jo", "PUT", "/v1/leases/a", headers=KEY),
    ]
    refusal = {"rollback": {409}, "vanished": {503}}.get(by, {412})
    assert {x.status_code for x in answers} == refusal, [x.text for x in answers]


def test_an_end_that_is_asked_for_again_ends_nothing_newer(
    two: tuple[Served, Served], path_remote: Remote
) -> None:
    one, other = two
    one.ask("jo", "PUT", "/v1/leases/a").raise_for_status()
    one.ask("jo", "DELETE", "/v1/leases/a", params={"done": "true"}, headers=KEY)
    one.ask("jo", "PUT", "/v1/leases/a", json={"reopen": True}).raise_for_status()
    before = tip(path_remote.bare)
    again = other.ask("jo", "DELETE", "/v1/leases/a", params={"done": "true"}, headers=KEY)
    assert (said(again), again.json()["command"]) == ((200, "completed"), "done")
    assert tip(path_remote.bare) == before


@pytest.mark.slow
def test_a_ledger_that_was_replaced_is_the_one_that_counts(
    two: tuple[Served, Served], path_remote: Remote
) -> None:
    """S3, S10: the gateway knew a later revision of one that is no more."""
    gate, other = two
    for name in "abc":
        gate.ask("jo", "PUT", f"/v1/leases/{name}", headers={"Idempotency-Key": name})
    git(path_remote.bare, "update-ref", "-d", REF)
    new = door(other.folder)  # of whom the clone there has not heard
    Desk(other.folder, env=path_remote.env).ask("init").check_returncode()
    new.claim("b")
    assert said(gate.ask("jo", "PUT", "/v1/leases/z"))[0] == 409, "it is not taken as it comes"
    Desk(gate.folder, env=path_remote.env).ask("init").check_returncode()

    def held() -> list[str]:
        found = gate.ask("jo", "GET", "/v1/leases").json().get("leases", ())
        return [x["resource"] for x in found]

    until(lambda: held() == ["b"], "within a second it is known")
    assert said(gate.ask("jo", "PATCH", "/v1/leases/b")) == (412, "not_holder")
    assert said(gate.ask("jo", "PUT", "/v1/leases/a", headers={"Idempotency-Key": "a"}))[0] == 201
    assert held() == ["a", "b"]


@pytest.mark.nightly
def test_a_key_knows_every_spelling_and_its_own_scope(two: tuple[Served, Served]) -> None:
    one, other = two
    first = {"Idempotency-Key": "first"}
    for gate, name in ((one, "Task-1"), (other, "task-1")):
        assert said(gate.ask("jo", "PUT", f"/v1/leases/{name}", headers=first)) == (201, "claimed")
    assert said(one.ask("jo", "PUT", "/v1/leases/task-1%23b", headers=first)) == (400, "usage")
    one.ask("jo", "PUT", "/v1/leases/a")
    assert said(one.ask("jo", "PUT", "/v1/leases/a", json={"ttl": "9m"}, headers=KEY))[0] == 200
    one.ask("jo", "DELETE", "/v1/leases/a")
    one.ask("jo", "PUT", "/v1/leases/a", json={"scope": "docs"})
    again = other.ask("jo", "PUT", "/v1/leases/a", json={"ttl": "9m"}, headers=KEY)
    assert said(again) == (412, "lost")


def test_a_repeat_says_what_the_first_answer_said(
    project: Served, manual_clock: ManualClock
) -> None:
    several, claim = {"resources": ["task-api", "task-ui"]}, {"claim": True}
    edges = list[str]()
    with serving(project.folder) as later:  # which remembers nothing
        later.secrets = project.secrets
        for who, method, path, body in (
            ("jo", "PUT", "leases/task-api", {}),
            ("jo", "PUT", "leases/task-api", {}),  # its lease has lapsed
            ("jo", "PUT", "leases/task-api", {"scope": "x"}),
            ("jo", "DELETE", "leases/task-api?scope=x", {}),
            ("jo", "PUT", "leases/task-api", {}),
            ("jo", "POST", "leases:claim", several),
            ("jo", "DELETE", "leases/task-api", {}),
            ("jo", "POST", "leases:release", several),  # of which one is held
            ("jo", "POST", "tasks:next", claim),
            ("jo", "DELETE", "leases/task-api?done=true", {}),
            ("kim", "DELETE", "leases/task-kims", {}),  # is hers by its file alone
            ("kim", "PUT", "leases/task-kims", {}),
            ("kim", "DELETE", "leases/task-kims?done=true", {}),
            ("kim", "PUT", "leases/path:src", {}),
            ("kim", "DELETE", "leases/path:src", {}),
            ("jo", "PUT", "leases/task-ui", {}),
            ("jo", "DELETE", "leases/task-ui?keep=true", {}),
        ):
            asked = {"json": body} if body else {}
            key = {"Idempotency-Key": f"{len(edges)}"}
            first, again = (
                gate.ask(who, method, f"/v1/{path}", headers=key, **asked)
                for gate in (project, later)
            )
            # What has ended is not shown again.
            ended = "released" in first.text or "done" in path or "keep" in path
            but = {"leases", "lease"} if ended else set()
            shown = [{x: y for x, y in z.json().items() if x not in but} for z in (first, again)]
            assert shown[0] == shown[1], path
            assert again.status_code == first.status_code
            edges.append(shown[0]["edge"])
            manual_clock.advance(seconds=3_600 * (len(edges) == 1))
    assert edges == [
        *("added", "kept", "kept", "kept", "kept", "added", "removed"),
        *("removed", "added", "removed", "removed", "kept", "removed", "none", "none"),
        *("added", "kept"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "first", "second"),
    [
        ("PUT", "/v1/leases/b", {}, {"session": "s2"}),
        ("PATCH", "/v1/leases/a", {"extend": "1h"}, {"extend": "5h"}),
        ("POST", "/v1/leases:claim", {"resources": ["b", "c"]}, {"resources": ["b"]}),
    ],
)
def test_a_key_with_another_request_is_refused_at_every_gateway(
    two: tuple[Served, Served],
    method: str,
    path: str,
    first: dict[str, Any],
    second: dict[str, Any],
) -> None:
    gate, _ = two
    gate.ask("jo", "PUT", "/v1/leases/a").raise_for_status()
    bad = gate.ask("jo", method, path, json=first | {"odd": 1}, headers=KEY)
    assert said(bad) == (400, "usage")  # what was refused may be put right
    gate.ask("jo", method, path, json=first, headers=KEY).raise_for_status()
    assert said(gate.ask("jo", method, path, json=second, headers=KEY)) == (400, "usage")
    for asked in two:
        assert said(asked.ask("jo", "PUT", "/v1/leases/d", headers=KEY)) == (400, "usage")
    gate.ask("jo", method, path, json=first, headers=KEY).raise_for_status()


def waits(gate: Served, name: str) -> tuple[threading.Thread, list[httpx.Response]]:
    """Somebody's claim that waits for a minute, and what it comes to."""
    came: list[httpx.Response] = []
    gate.caller(name)
    ask = {"json": {"wait": 60}}
    thread = threading.Thread(
        target=lambda: came.append(gate.ask(name, "PUT", "/v1/leases/a", **ask)), daemon=True
    )
    thread.start()
    until(lambda: gate.app.handler.waits.borrowed_tokens == 1, "it waits")
    return thread, came


@pytest.mark.nightly
def test_a_token_that_is_revoked_gets_nothing_any_more(gate: Served) -> None:
    gate.ask("jo", "PUT", "/v1/leases/a").raise_for_status()
    thread, came = waits(gate, "eve")
    open_tokens(str(gate.folder)).revoke("eve")
    thread.join(LONG)
    assert said(came[0]) == (401, "unauthorized")
    gate.ask("jo", "DELETE", "/v1/leases/a").raise_for_status()
    assert gate.ask("jo", "GET", "/v1/leases/a").json()["leases"] == []


@pytest.mark.slow
def test_who_waits_is_answered_when_the_gateway_stops(gate: Served) -> None:
    gate.ask("jo", "PUT", "/v1/leases/a").raise_for_status()
    thread, came = waits(gate, "kim")
    gate.app.end_streams()
    thread.join(LONG)
    assert said(came[0]) == (503, "unavailable")


# --- the client -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 8\r\n\r\n<p>late<",
        b'HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n{"ok": tr',
    ],
)
def test_what_may_have_landed_is_asked_again_under_its_key(says: bytes) -> None:
    with Stubborn("http://127.0.0.1:1", says=says) as proxy:
        leases = gitlease.connect(proxy.url, token="x")
        with pytest.raises(gitlease.UnknownOutcome):
            leases.claim("F001")
        assert proxy.said == 3
        with pytest.raises(gitlease.Unavailable):
            leases.list()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 Unauthorized", gitlease.UnknownOutcome),
        ("409 Conflict", gitlease.LeaseHeld),
    ],
)
def test_what_was_sent_before_is_not_forgotten_at_a_later_refusal(status: str, kind: Any) -> None:
    """The first try may have landed; who refuses the second one may not know of it."""
    body = b'{"code": "held", "message": "no"}' if kind is gitlease.LeaseHeld else b""
    answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_both() -> None:
            for text in (b"", answer):
                with listening.accept()[0] as peer:
                    peer.recv(65_536)
                    peer.sendall(text)

        thread = threading.Thread(target=answer_both, daemon=True)
        thread.start()
        leases = gitlease.connect(f"http://127.0.0.1:{listening.getsockname()[1]}", token="x")
        with pytest.raises(gitlease.GitleaseError) as refused:
            leases.claim("a")
        assert type(refused.value) is kind
        thread.join(LONG)


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"data: nonsense", b"data: []"])
def test_odd_events_are_said_to_be_odd(line: bytes) -> None:
    says = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nid: 1-0\n" + line + b"\n\n"

    async def hear(url: str) -> None:
        async for _ in gitlease.connect_async(url, token="x").events():
            raise AssertionError("there is none")

    with Stubborn("http://127.0.0.1:1", says=says) as proxy:
        with pytest.raises(gitlease.Unavailable, match="not a gateway"):
            next(gitlease.connect(proxy.url, token="x").events())
        with pytest.raises(gitlease.Unavailable, match="not a gateway"):
            asyncio.run(hear(proxy.url))


def test_key_that_another_holder_wrote_takes_nothing_from_the_request(
    two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6: without a server's hook, who may push may write any id."""
    one, other = two
    for name in ("T1", "T2"):
        commit_file(one.folder, f"tasks/{name}.md", f"---\nid: {name}\nstatus: todo\n---\n")
    first = one.ask("jo", "POST", "/v1/tasks:next", json={"claim": True}, headers=KEY)
    assert first.json()["lease"]["resource"] == "T1", first.text
    key = request_handler.operation_id("jo@example.com", KEY["Idempotency-Key"])
    with monkeypatch.context() as changed:
        changed.setattr("gitlease.kernel.ledger.claim.fresh_id", lambda: key + fresh_id())
        door(other.folder).claim("mine", any=True)
    with serving(one.folder) as later:  # which remembers nothing
        later.secrets = one.secrets
        again = later.ask("jo", "POST", "/v1/tasks:next", json={"claim": True}, headers=KEY)
    assert again.status_code == 201, again.text
    assert again.json()["lease"]["lease_id"] == first.json()["lease"]["lease_id"]
