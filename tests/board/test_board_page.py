"""Who may see the board of a gateway: whoever has its cookie, which a link gives once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.gateway import Served, free_port
from support.remotes import Remote
from support.running import Desk

from gitlease.gateway import board
from gitlease.gateway.opening import open_tokens
from gitlease.gateway.tokens import COOKIE_LASTS, LINK_LASTS
from gitlease.kernel.rules.errors import Invalid


def now() -> int:
    return time.time_ns() // 1_000_000


def link(served: Served, *, at: int | None = None) -> str:
    return open_tokens(str(served.folder)).link("w1@example.com", now() if at is None else at)


@pytest.fixture
def visitor(served: Served) -> Iterator[httpx.Client]:
    """Somebody who has opened a link."""
    with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as client:
        assert client.get("/board", params={"link": link(served)}).status_code == 303
        yield client


@pytest.mark.slow
def test_a_link_is_good_once_and_for_a_minute(served: Served) -> None:
    with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as client:
        secret = link(served)
        assert client.head("/board", params={"link": secret}).status_code == 204
        opened = client.get("/board", params={"link": secret})
        assert (opened.status_code, opened.headers["location"]) == (303, "/board")
        cookie = opened.headers["set-cookie"]
        for said in ("HttpOnly", "SameSite=lax", "Path=/board", f"Max-Age={COOKIE_LASTS}"):
            assert said in cookie
        assert client.get("/board").status_code == 200
    late = link(served, at=now() - LINK_LASTS * 1_000)
    for wrong in (secret, late, served.secret("jo"), "glt_unknown", ""):
        for method in ("HEAD", "GET"):
            answer = httpx.request(
                method, f"{served.url}/board", params={"link": wrong}, trust_env=False
            )
            assert answer.status_code in (401, 403), wrong
            assert "set-cookie" not in answer.headers


@pytest.mark.nightly
def test_without_the_cookie_nothing_is_shown_but_the_way_to_it(served: Served) -> None:
    for path in ("/board", "/board/stream"):
        for headers in ({}, {"Authorization": f"Bearer {served.secret('jo')}"}):
            answer = httpx.get(f"{served.url}{path}", headers=headers, trust_env=False)
            assert answer.status_code == 401
            assert "gitlease board --web" in answer.text
            assert "F001" not in answer.text


def test_the_cookie_opens_the_board_and_nothing_else(served: Served, visitor: httpx.Client) -> None:
    assert "F001" in visitor.get("/board").text
    (cookie,) = visitor.cookies.jar
    name, secret = cookie.name, cookie.value or ""
    for path in ("/v1/leases", "/v1/events", "/v1/tasks", "/v1/me", "/api/v1/intents"):
        assert visitor.get(path).status_code in (401, 404), path  # it is not even sent
        sent = httpx.get(
            f"{served.url}{path}", headers={"Cookie": f"{name}={secret}"}, trust_env=False
        )
        assert sent.status_code in (401, 404), path
        as_token = httpx.get(
            f"{served.url}{path}", headers={"Authorization": f"Bearer {secret}"}, trust_env=False
        )
        assert as_token.status_code in (403, 404), path
    for method in ("POST", "PUT", "DELETE"):
        assert visitor.request(method, "/board").status_code == 405


@pytest.mark.default("headers1-403")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)],
)
def test_pages_of_others_have_no_access(
    visitor: httpx.Client, served: Served, headers: dict[str, str], status: int
) -> None:
    for path in ("/board", "/board/stream", f"/board?link={link(served)}"):
        answer = visitor.get(path, headers=headers)
        assert answer.status_code == status
        assert "set-cookie" not in answer.headers


@pytest.mark.slow
def test_the_page_protects_itself(visitor: httpx.Client) -> None:
    headers = visitor.get("/board").headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    odd = visitor.get("/board", params={"find": "x" * 9_999, "open": "\x1b[31m<b>"})
    assert odd.status_code == 200
    assert "<b>\x1b" not in odd.text
    assert "x" * 201 not in odd.text


def test_a_stream_ends_with_its_cookie(served: Served, visitor: httpx.Client) -> None:
    tokens = open_tokens(str(served.folder))
    (known,) = (x for x in tokens.listed() if x.scopes == ("board",))
    with visitor.stream("GET", "/board/stream") as stream:
        lines = stream.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        assert "F001" in json.loads(first.removeprefix("data: "))["board"]
        tokens.revoke(known.id)
        assert not [line for line in lines if line.startswith("data: ")]
    assert visitor.get("/board").status_code == 401


@pytest.mark.nightly
def test_a_board_that_cannot_be_made_is_said(
    visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise Invalid("there are <too many> files")

    monkeypatch.setattr(board, "make_board", fail)
    assert visitor.get("/board/stream").text == "retry: 1000\n\n"  # and it ends in order
    said = visitor.get("/board")
    assert said.status_code >= 400
    assert "there are &lt;too many&gt; files" in said.text


def test_a_remote_that_is_away_is_said(
    served: Served, visitor: httpx.Client, path_remote: Remote
) -> None:
    assert 'role="status"></p>' in visitor.get("/board").text
    path_remote.bare.rename(path_remote.bare.with_name("away.git"))
    with visitor.stream("GET", "/board/stream") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and json.loads(line.removeprefix("data: "))["trouble"]:
                break
    said = visitor.get("/board").text
    assert "Out of date: " in said
    assert "F001" in said


@pytest.mark.slow
def test_guesses_of_links_have_a_rate_and_write_nothing(
    served: Served,
) -> None:
    served.app._access.rate, served.app._access.burst = 1e-6, 2.0
    kept = served.folder / ".git" / "gitlease" / "serve" / "tokens.json"
    link(served)
    before = kept.stat().st_mtime_ns, kept.stat().st_ino
    found = [
        httpx.get(f"{served.url}/board", params={"link": f"glt_{n}"}, trust_env=False).status_code
        for n in range(4)
    ]
    assert found == [401, 401, 429, 429]
    assert (kept.stat().st_mtime_ns, kept.stat().st_ino) == before


# --- the command that gives the link ----------------------------------------------------------


def web(desk: Desk, *words: str, **env: str) -> tuple[int, str, str]:
    done = desk.ask("board", "--web", *words, env=env)
    return done.returncode, done.stdout, done.stderr


def test_the_command_gives_a_link_and_opens_it(served: Served, clone: Path, tmp_path: Path) -> None:
    port, jo = served.url.rpartition(":")[2], Desk(clone)
    code, out, err = web(jo, "--port", port)
    assert (code, "works once" in err) == (0, True)
    assert out.startswith(f"{served.url}/board?link=")
    assert httpx.get(out.strip(), trust_env=False).status_code == 303
    opener, seen = tmp_path / "opener", tmp_path / "seen"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > "{seen}"\n')
    opener.chmod(0o755)
    code, out, err = web(jo, "--port", port, DISPLAY=":0", BROWSER=str(opener))
    assert (code, err) == (0, "")
    assert seen.read_text() == out.strip()
    said = jo.document("board", "--web", "--port", port)
    assert (said["url"].startswith(served.url), said["opened"]) == (True, False)


@pytest.mark.slow
def test_what_serves_no_board_of_this_clone_is_said(served: Served, clone: Path, kim: Desk) -> None:
    port = served.url.rpartition(":")[2]
    code, out, err = web(Desk(clone), "--port", str(free_port()))
    assert (code, out) == (5, "")
    assert "no gateway answers at http://127.0.0.1:" in err
    assert "hint: gitlease serve --port " in err
    code, out, err = web(kim, "--port", port)
    assert (code, out) == (7, "")
    assert "does not serve this clone" in err
    code, out, err = web(Desk(clone), "--port", port, "--repo", "web")
    assert (code, out) == (7, "")
    assert "--repo NAME" in err
    for folder in (clone, kim.clone):
        assert not [x for x in open_tokens(str(folder)).listed() if "link" in x.scopes]
