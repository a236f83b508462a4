"""Conversations of coding agents that continue one another in the same host process.

After ``/clear`` a host goes on with a new number. The clone's private state says which session
such a conversation continues, so that its leases stay its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from gitlease.git.files import exclusive, load_json, store_json
from gitlease.settings.identity import CONVERSATIONS

LARGEST = 1_048_576
KEPT = 500  # names, and ends
PENDING_FOR = 60.0  # seconds for which an end waits for a conversation that continues it
PATIENCE = 2.0

Process = tuple[int, str]
"""A host process: its number, and when it started (empty: unknown)."""


def has_any(common_dir: str) -> bool:
    """Whether any conversation of this clone has ended so that another may continue it."""
    return os.path.exists(os.path.join(common_dir, "gitlease", CONVERSATIONS))


def continued(common_dir: str, session: str) -> str:
    """The session that an agent's conversation continues, else its own."""
    names = _read(common_dir)["names"]
    name = names.get(session)
    return name if isinstance(name, str) else session


def end(common_dir: str, session: str, process: Process, *, now: float) -> None:
    """Note that a conversation may be continued soon by another one. Never fails."""
    pid, started = process
    entry = {"session": session, "pid": pid, "started": started, "at": now, "open": True}

    def change(state: dict[str, Any]) -> None:
        state["ends"] = [x for x in state["ends"] if x.get("session") != session] + [entry]

    _change(common_dir, change)


def begin(common_dir: str, session: str, process: Process, *, clears: bool, now: float) -> None:
    """Note that a conversation begins, or goes on. Never fails.

    ``clears``: it continues the one that ended in the same process, if exactly one has.
    """
    pid, started = process

    def change(state: dict[str, Any]) -> None:
        for entry in state["ends"]:
            if entry.get("session") == session:
                entry["open"] = False
        pending = [
            entry
            for entry in state["ends"]
            if entry.get("open")
            and (entry.get("pid"), entry.get("started")) == (pid, started)
            and 0 <= now - float(entry.get("at", 0)) < PENDING_FOR
        ]
        if clears and started and len(pending) == 1:
            pending[0]["open"] = False
            before = str(pending[0]["session"])
            state["names"][session] = state["names"].get(before, before)

    _change(common_dir, change)


def take_effect(common_dir: str, session: str) -> bool:
    """Whether the end of a conversation is still pending, which it is no longer afterwards."""
    pending = False

    def change(state: dict[str, Any]) -> None:
        nonlocal pending
        for entry in state["ends"]:
            if entry.get("session") == session and entry.get("open"):
                entry["open"], pending = False, True

    _change(common_dir, change)
    return pending


def has_ended(common_dir: str, session: str, process: Process) -> bool:
    """Whether a conversation ended in this process."""
    return any(
        entry.get("session") == session
        and bool(process[1])
        and (entry.get("pid"), entry.get("started")) == process
        for entry in _read(common_dir)["ends"]
    )


def _read(common_dir: str) -> dict[str, Any]:
    found = load_json(os.path.join(common_dir, "gitlease", CONVERSATIONS), LARGEST)
    found = found if isinstance(found, dict) else {}
    names, ends = found.get("names"), found.get("ends")
    return {
        "names": names if isinstance(names, dict) else {},
        "ends": [x for x in ends if isinstance(x, dict)] if isinstance(ends, list) else [],
    }


def _change(common_dir: str, change: Callable[[dict[str, Any]], None]) -> None:
    file = os.path.join(common_dir, "gitlease", CONVERSATIONS)
    with (
        contextlib.suppress(OSError, ValueError, TypeError),
        exclusive(f"{file}.lock", timeout=PATIENCE),
    ):
        state = _read(common_dir)
        change(state)
        names = list(state["names"].items())[-KEPT:]
        store_json(file, {"names": dict(names), "ends": state["ends"][-KEPT:]})
