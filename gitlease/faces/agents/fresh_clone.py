"""Finds out whether gitlease is used in a clone that has no trace of it, by asking the remote.

The hooks in a person's own file are called in every repository, those without gitlease included.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gitlease.faces.agents.events import AgentEvent
from gitlease.guard.notes import ask_is_due, find_common_dir, has_traces, is_asking

INTERVAL = 86_400  # seconds between two questions to the remote of a clone
LONGEST_WAIT = 3  # seconds that an edit waits for the answer, once
PAUSE = 0.05


def ask(event: AgentEvent, start: Callable[..., bool], now: float) -> str | None:
    """Have the remote asked in the background; the clone, if an answer is to come."""
    from gitlease.faces.agents.handling import LOOK

    common = find_common_dir(event.cwd or ".")
    if common is None or has_traces(common):
        return None
    if ask_is_due(common, every=INTERVAL, now=now):
        start(["agent", event.by, LOOK], cwd=event.cwd or ".")
    return common


def await_answer(event: AgentEvent, start: Callable[..., bool], now: float) -> bool:
    """Wait for the answer that an edit needs; whether the clone has traces of gitlease now."""
    common = ask(event, start, now)
    if common is None:
        return False
    deadline = time.monotonic() + LONGEST_WAIT
    while is_asking(common) and not has_traces(common) and time.monotonic() < deadline:
        time.sleep(PAUSE)
    return has_traces(common)
