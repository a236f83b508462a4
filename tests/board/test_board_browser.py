"""The board's page in a real browser: it counts down, learns of others, and shuts nobody out."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import Visitor, visiting
from support.gateway import Served, running
from support.remotes import Remote
from support.running import LONG, Desk, until

from gitlease.gateway.opening import open_tokens

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def link(folder: Path) -> str:
    """The rest of an address that opens the board of a clone."""
    return "/board?link=" + open_tokens(str(folder)).link("w1@example.com", time.time_ns() // 10**6)


def row(name: str) -> str:
    return f"#board tbody tr:has(a:text-is('{name}'))"


def claim(gate: Served, name: str, **options: object) -> None:
    answer = gate.ask("jo", "PUT", f"/v1/leases/{name}", json=options)
    assert answer.status_code in (200, 201), answer.text


def shows(visitor: Visitor, where: str) -> str:
    """What is at a place of the page, once it is there."""
    found = visitor.page.wait_for_selector(where, timeout=LONG * 1_000)
    assert found is not None
    return found.inner_text()


def left(visitor: Visitor, name: str) -> int:
    found = re.search(r"(\d+)m (\d\d)s left", shows(visitor, row(name)))
    assert found is not None
    return int(found[1]) * 60 + int(found[2])


def test_it_is_live_and_asks_nobody_else(
    browser: Browser, served: Served, kim: Desk, tmp_path: Path
) -> None:
    claim(served, "F001", ttl="15m", reason='<script>alert("x")</script> & more')
    with visiting(browser, served.url) as visitor:
        visitor.page.goto(served.url + link(served.folder))
        assert visitor.page.url == f"{served.url}/board"
        assert '<script>alert("x")</script> & more' in shows(visitor, row("F001"))
        began = left(visitor, "F001")
        claim(served, "F002", reason="over there")
        assert "over there" in shows(visitor, f".held {row('F002')[7:]}")
        assert "claimed F002 by jo@example.com" in shows(visitor, "#news li:first-child")
        kim.document("claim", "deploy", "--any", "--ttl", "6s")
        ledger = served.app.gateway.store

        def known() -> bool:
            head = ledger.newest(served.app.gateway.layer)
            leases = head.ledger.every_lease() if head and head.ledger else ()
            return any(x.resource.text == "deploy" for x in leases)

        until(known, "the gateway knows")
        assert "kim@example.com" in shows(visitor, row("deploy"))
        shows(visitor, f".expired {row('deploy')[7:]}")
        until(lambda: left(visitor, "F001") <= began - 2, "it counts down")
        assert "lost deploy by kim@example.com" in shows(visitor, "#news li.loss")
        assert visitor.screenshot("board", tmp_path).stat().st_size > 10_000
        assert (visitor.said, visitor.elsewhere) == ([], [])


def test_nobody_is_shut_out(browser: Browser, served: Served, tmp_path: Path) -> None:
    claim(served, "F001", ttl="15m", reason="rate limits")
    with visiting(browser, served.url) as visitor:
        page = visitor.page
        page.goto(served.url + link(served.folder))
        for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 420)):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.set_viewport_size({"width": width, "height": 900})
            assert visitor.severe_findings() == []
            visitor.screenshot(f"board-{name}", tmp_path)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.focus("#find")
        page.keyboard.type("limits")
        page.keyboard.press("Enter")
        page.wait_for_url("**/board?find=limits")
        page.locator(f"{row('F001')} a").focus()
        claim(served, "F001", ttl="20m")  # the page is drawn anew, and the focus stays
        until(lambda: left(visitor, "F001") > 1_000, "it was renewed")
        assert page.evaluate("document.activeElement.textContent") == "F001"
        page.keyboard.press("Enter")
        assert "claimed by jo@example.com" in shows(visitor, "#opened")
        assert visitor.severe_findings() == []
        page.click("#close")
        page.wait_for_url("**/board?find=limits")
        page.context.clear_cookies()
        page.goto(f"{served.url}/board")
        assert "gitlease board --web" in page.inner_text("main")
        assert visitor.severe_findings() == []


def test_it_is_whole_without_a_script(browser: Browser, served: Served) -> None:
    claim(served, "F001", ttl="15m", reason="rate limits")
    with visiting(browser, served.url, java_script_enabled=False) as visitor:
        visitor.page.goto(served.url + link(served.folder))
        text = shows(visitor, row("F001"))
        assert re.search(r"1\dm \d\ds left (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\dZ", text)
        assert 'http-equiv="refresh"' in visitor.page.content()
        visitor.page.click(f"{row('F001')} a")
        assert "claimed by jo@example.com" in shows(visitor, "#opened")
        visitor.page.fill("#find", "page")
        visitor.page.click("button")
        shows(visitor, row("F002"))
        assert visitor.page.locator(row("F001")).count() == 0
        assert visitor.elsewhere == []


def test_two_boards_go_on_after_the_gateway_was_killed(
    browser: Browser, clone: Path, path_remote: Remote, kim: Desk
) -> None:
    with running(clone, path_remote) as gate, visiting(browser, gate.url) as one:
        one.page.goto(gate.url + link(clone))
        with visiting(browser, gate.url) as other:
            other.page.goto(gate.url + link(clone))
            kim.document("claim", "F001", "--reason", "first")
            for visitor in (one, other):
                assert "first" in shows(visitor, f".held {row('F001')[7:]}")
            gate.end(signal.SIGKILL)
            for visitor in (one, other):
                shows(visitor, "#state:has-text('Not live')")
            kim.document("claim", "F002", "--reason", "meanwhile")
            gate.start()
            for visitor in (one, other):
                assert "meanwhile" in shows(visitor, f".held {row('F002')[7:]}")
                assert visitor.page.inner_text("#state") == ""
                assert visitor.elsewhere == []
