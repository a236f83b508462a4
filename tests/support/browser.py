"""Debian's chromium, driven by playwright, and axe-core, which judges whom a page shuts out."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.availability import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
SEVERE = ("serious", "critical")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; what is missing of it is said."""
    program = shutil.which("chromium")
    if program is None:
        missing("chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    with tempfile.TemporaryDirectory(prefix="browser-") as home, sync_playwright() as started:
        # It keeps things in its home, whatever it is told.
        env: dict[str, str | float | bool] = {**os.environ, "HOME": home}
        browser = started.chromium.launch(executable_path=program, args=list(QUIET), env=env)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """Somebody at a page of a host, and whatever a page should not have done meanwhile."""

    context: BrowserContext
    page: Page
    host: str
    said: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def severe_findings(self) -> list[str]:
        """What axe-core finds wrong with the page as it is, of what is serious or worse."""
        file = os.environ.get("AXE_CORE", "")
        if not Path(file).is_file():
            missing("AXE_CORE names no file: npm pack axe-core has it, as package/axe.min.js")
        self.page.evaluate(Path(file).read_text(encoding="utf-8"))
        found: dict[str, Any] = self.page.evaluate("() => axe.run()")
        assert found["passes"]
        return [
            f"{x['id']}: {node['html']}"
            for x in found["violations"]
            if x["impact"] in SEVERE
            for node in x["nodes"]
        ]

    def screenshot(self, name: str, folder: Path) -> Path:
        """A picture of the whole page, kept where TEST_ARTIFACTS says, else in a folder."""
        kept = Path(os.environ.get("TEST_ARTIFACTS") or folder)
        kept.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=kept / f"{name}.png", full_page=True)
        return kept / f"{name}.png"


@contextlib.contextmanager
def visiting(browser: Browser, host: str, **options: Any) -> Iterator[Visitor]:
    """A visitor with cookies of its own, until the block ends."""
    context = browser.new_context(**options)
    page = context.new_page()
    visitor = Visitor(context, page, host)
    page.on("console", lambda message: visitor.said.append(message.text))
    page.on("pageerror", lambda error: visitor.said.append(str(error)))
    context.on(
        "request",
        lambda asked: None if asked.url.startswith(host) else visitor.elsewhere.append(asked.url),
    )
    try:
        yield visitor
    finally:
        context.close()
