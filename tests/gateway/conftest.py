"""Gateways for other systems' clients; their clock is the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.gateway import Served, serving
from support.remotes import Remote
from support.repos import commit_file

from gitlease.gateway.opening import open_gateway

TASKS = {
    "task-api": "title: Limit the rates\nstatus: todo",
    "task-ui": "title: Show the rates\nstatus: todo",
    "task-old": "title: Done long ago\nstatus: done",
    "task-kims": "title: Kim's own\nstatus: todo\nassigned: kim@example.com",
}


def _served(folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(
        "support.gateway.open_gateway", lambda where: open_gateway(where, clock=clock)
    )
    return serving(folder)


@pytest.fixture
def clone(path_remote: Remote, clones: Callable[..., list[Path]], monkeypatch: Any) -> Path:
    """A clone of a remote, in an environment that reaches it."""
    path_remote.open_to(monkeypatch)
    return clones(1)[0]


@pytest.fixture
def gate(clone: Path) -> Iterator[Served]:
    """A gateway to it, by the clock of this machine."""
    with serving(clone) as served:
        yield served


@pytest.fixture
def project(
    path_remote: Remote,
    clones: Callable[..., list[Path]],
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Served]:
    """A gateway where names must be tasks, which ``TASKS`` are."""
    path_remote.open_to(monkeypatch)
    (clone,) = clones(1)
    for id, fields in TASKS.items():
        commit_file(clone, f"tasks/{id}.md", f"---\nid: {id}\n{fields}\n---\n")
    with _served(clone, manual_clock, monkeypatch) as served:
        yield served


@pytest.fixture
def names(
    path_remote: Remote,
    clones: Callable[..., list[Path]],
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Served]:
    """A gateway where there are no tasks, and any name may be leased."""
    path_remote.open_to(monkeypatch)
    with _served(clones(1)[0], manual_clock, monkeypatch) as served:
        yield served
