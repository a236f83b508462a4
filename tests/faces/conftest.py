"""The terminal that what people see is shown on, and Ada's desk of the two that a file makes."""

from __future__ import annotations

import pytest
from faces.fake import Desk


@pytest.fixture
def ada(desks: tuple[Desk, Desk]) -> Desk:
    return desks[0]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 200 columns."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
