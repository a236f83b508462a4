"""What a gateway bears: for whom it answers, how long it waits, how much one may use."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.testclient import TestClient
from support.gateway import Served
from support.ledgers import REF, tip
from support.remotes import Remote
from support.repos import git
from support.running import LONG, until
from support.snapshots import check_words, raises

import gitlease
from gitlease.gateway import app as server
from gitlease.gateway import events, request_handler
from gitlease.gateway.app import application, gateway_app, hosts_of
from gitlease.gateway.opening import open_gateway, open_tokens
from gitlease.kernel.rules.errors import Invalid


@pytest.mark.parametrize(
    ("listens", "names", "asked", "answers"),
    [
        ("127.0.0.1", (), "LOCALHOST.", True),
        ("127.0.0.1", (), "[::1]:8470", True),
        ("127.0.0.1", (), "evil.example.com", False),
        ("127.0.0.1", (), "10.0.0.7", False),
        ("127.0.0.1", (), "", False),
        ("127.0.0.1", ("Leases.example.com",), "leases.example.com:443", True),
        ("0.0.0.0", (), "[fd00::7]:8470", True),
        ("0.0.0.0", (), "evil.example.com", False),
        ("gate.example.com", (), "Gate.example.com:8470", True),
    ],
)
def test_it_answers_for_the_names_that_it_was_given(
    listens: str, names: tuple[str, ...], asked: str, answers: bool
) -> None:
    checked = request_handler.Access(lambda _secret, _now: None, hosts=hosts_of(listens, names))
    if answers:
        checked.check_address({"host": asked})
        return
    with pytest.raises(request_handler.Refused) as refused:
        checked.check_address({"host": asked})
    assert refused.value.status == 421
    assert "--allow-host NAME" in refused.value.hints[0]


def test_a_port_that_is_taken_is_said(gate: Served, clone: Path) -> None:
    port = urlsplit(gate.url).port or 0
    with pytest.raises(Invalid) as taken:
        server.serve({"": str(clone)}, "127.0.0.1", port, "gitlease")
    check_words(str(taken.value).replace(f"{port}", "PORT"))
    (one,) = server.listen("127.0.0.1", 0)
    one.close()


def opened(gate: Served, text: bytes) -> socket.socket:
    """A connection on which this much was sent."""
    at = urlsplit(gate.url)
    found = socket.create_connection((str(at.hostname), at.port or 0), timeout=LONG)
    found.sendall(text)
    return found


@pytest.mark.parametrize(
    "text",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"GET /healthz HTTP/1.1\r\n\r\nGET /he"],
)
def test_who_never_asks_to_the_end_is_hung_up_on(
    gate: Served, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    with opened(gate, text) as connection:
        while connection.recv(65_536):
            pass  # until the other side closes it


PUT = b"PUT /v1/leases/a HTTP/1.1\r\nHost: localhost\r\n"
PART = PUT + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"  # whoever asks waits for the rest


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PUT, b"x: y\r\n"),
        (PUT + b"x: ", b"y" * 64),
        (b"GET /", b"a" * 64),
        (PART + b"1;", b"x" * 64),
        (PART + b"1\r\n}\r\n0\r\n", b"x: y\r\n"),
        (PART + b"1\r\n}\r\n0\r\n\r\n" + PUT, b"x: y\r\n"),
    ],
)
def test_what_has_no_end_is_kept_in_no_memory(gate: Served, text: bytes, line: bytes) -> None:
    with opened(gate, text) as connection, contextlib.suppress(OSError):
        for _ in range(64 * 1024 * 1024 // len(line)):
            connection.sendall(line)
        pytest.fail("it listens for ever")


def test_a_body_counts_whatever_the_head_offers_to_speak_instead(gate: Served) -> None:
    offer = {"Connection": "Upgrade", "Upgrade": "h2c"}  # curl --http2
    planned = gate.ask("jo", "PUT", "/v1/leases/F001", json={"dry_run": True}, headers=offer)
    assert planned.json()["status"] == "would_claim"


@pytest.mark.parametrize("offered", ["h2c", "websocket"])
def test_an_offered_upgrade_leaves_no_line_in_the_log(
    gate: Served, caplog: pytest.LogCaptureFixture, offered: str
) -> None:
    log = logging.getLogger("uvicorn")  # which passes nothing on to the root
    log.addHandler(caplog.handler)
    try:
        head = f"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {offered}"
        with opened(gate, f"{head}\r\n\r\nnonsense\r\n\r\n".encode()) as connection:
            while connection.recv(65_536):
                pass  # until it has answered both
    finally:
        log.removeHandler(caplog.handler)
    assert len(caplog.records) == 1, "that the second request is none"


@pytest.mark.parametrize("text", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_many_idle_connections_of_one_peer_keep_nobody_out(
    gate: Served, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(server, "MOST_IDLE_OF_PEER", 4)
    idle = []
    for _ in range(12):
        idle.append(opened(gate, text))
        if text:
            assert idle[-1].recv(65_536).startswith(b"HTTP/1.1 200")
    for connection in idle[:-4]:
        while connection.recv(65_536):
            pass  # until it is closed, as the oldest
    assert len(gate.server.server_state.connections) <= 4
    assert gate.ask("jo", "GET", "/v1/leases").status_code == 200
    for connection in idle:
        connection.close()


def test_guesses_share_one_rate_and_take_nobody_elses(gate: Served) -> None:
    gate.app._access.rate, gate.app._access.burst = 1e-6, 3.0
    with httpx.Client(base_url=gate.url, trust_env=False) as stranger:
        found = [
            stranger.get("/v1/leases", headers={"Authorization": f"Bearer glt_{n}"}).status_code
            for n in range(5)
        ]
    assert found == [401, 401, 401, 429, 429]
    assert gate.ask("jo", "GET", "/v1/leases").status_code == 200


def test_a_token_has_so_many_streams(gate: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 1)
    jo, kim = gate.caller("jo"), gate.caller("kim")
    with jo.stream("GET", "/v1/events") as first:
        lines = first.iter_lines()
        assert next(lines).startswith("retry")
        again = jo.get("/v1/events")
        assert (again.status_code, again.json()["code"]) == (429, "too_many_requests")
        with kim.stream("GET", "/v1/events") as other:
            assert other.status_code == 200

    def free() -> bool:
        with jo.stream("GET", "/v1/events") as stream:
            return bool(stream.status_code == 200)

    until(free, "what was closed counts no more")


def test_a_wait_ends_with_its_client(gate: Served) -> None:
    gate.ask("jo", "PUT", "/v1/leases/F001").raise_for_status()
    secret, waits = gate.secret("kim"), gate.app.handler.waits
    body = b'{"wait": 60}'
    head = f"PUT /v1/leases/F001 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
    connection = opened(gate, head.encode() + b"Content-Length: 12\r\n\r\n" + body)
    until(lambda: bool(gate.ask("jo", "GET", "/v1/leases/F001").json()["waiting"]), "it waits")
    connection.close()
    until(lambda: waits.borrowed_tokens == 0, "it waits no more")
    gate.ask("jo", "DELETE", "/v1/leases/F001").raise_for_status()
    assert gate.ask("jo", "GET", "/v1/leases/F001").json()["waiting"] == []


def test_below_a_name_the_documents_have_its_paths(clone: Path) -> None:
    tokens = open_tokens(str(clone))
    made = {"web": gateway_app(open_gateway(str(clone)), tokens, hosts=hosts_of("testserver"))}
    with TestClient(application(made)) as client:
        assert client.get("/healthz").text == client.get("/repos/web/readyz").text == "ok\n"
        assert client.get("/readyz").status_code == 200
        servers = [{"url": "/repos/web"}]
        assert client.get("/openapi.json").json()["servers"] == servers
        assert client.get("/repos/web/openapi.json").json()["servers"] == servers
        found = client.get("/repos/web/.well-known/openintent.json").json()["endpoints"]
        assert found["intents"] == "/repos/web/api/v1/intents"
        assert client.get("/v1/leases").status_code == 404


def test_an_answer_without_a_length_has_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitlease.library.connection.LARGEST", 1_000)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as peer, contextlib.suppress(OSError):
                peer.recv(65_536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:  # it never ends
                    peer.sendall(b"400\r\n" + b" " * 1_024 + b"\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        with raises(gitlease.Unavailable):
            gitlease.connect(f"http://127.0.0.1:{port}", token="glt_x").list()
        thread.join()


def test_it_is_not_ready_after_a_rollback_or_with_a_full_disk(
    gate: Served, path_remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ready() -> tuple[int, str]:
        answer = httpx.get(f"{gate.url}/readyz", trust_env=False)
        return answer.status_code, answer.text

    def full() -> None:
        raise OSError(28, "No space left on device")

    gate.ask("jo", "PUT", "/v1/leases/a").raise_for_status()
    before = tip(path_remote.bare)
    gate.ask("jo", "PUT", "/v1/leases/b").raise_for_status()
    assert ready() == (200, "ok\n")
    with monkeypatch.context() as patch:
        patch.setattr(gate.app.gateway, "check_room", full)
        assert ready()[0] == 503
        check_words(ready()[1])
    git(path_remote.bare, "update-ref", REF, before)
    assert ready()[0] == 503
    assert "older" in ready()[1]


def test_reading_access_is_enough_for_a_dry_run(gate: Served) -> None:
    gate.secret("ann", "read")
    gate.secret("eve", "write")
    assert gate.ask("eve", "PUT", "/v1/leases/a", json={"dry_run": True}).status_code == 200
    bodies: tuple[dict[str, bool], ...] = ({"dry_run": True}, {}, {"dry_run": False})
    answers = [gate.ask("ann", "PUT", "/v1/leases/a", json=body) for body in bodies]
    assert [x.status_code for x in answers] == [200, 403, 403]
