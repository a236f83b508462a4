"""A gateway whose board is looked at, and others who are at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import chromium
from support.gateway import Served, serving
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk, short_leases

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Clones = Callable[..., list[Path]]
TASKS = {"F001": "Rate limits", "F002": "A page for <b>limits</b>"}


@pytest.fixture
def clone(path_remote: Remote, clones: Clones) -> Path:
    """The clone of whoever looks; its remote has tasks, and allows short leases."""
    (made,) = clones(1)
    for name, title in TASKS.items():
        text = f'---\nid: {name}\ntitle: "{title}"\nstatus: todo\n---\n'
        commit_file(made, f"tasks/{name}.md", text)
    git(made, "push", "-q", "origin", "HEAD")
    short_leases(made)
    return made


@pytest.fixture
def kim(clone: Path, path_remote: Remote, clones: Clones) -> Desk:
    """Somebody at work in another clone."""
    (made,) = clones(1)
    git(made, "config", "user.email", "kim@example.com")
    return Desk(made, env=path_remote.env)


@pytest.fixture
def served(clone: Path, path_remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The gateway of that clone."""
    path_remote.open_to(monkeypatch)
    with serving(clone) as gate:
        yield gate


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all; each visitor has cookies of its own."""
    with chromium() as started:
        yield started
