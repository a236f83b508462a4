"""What is told of a pool: each event as a line of JSON, and as a sentence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gitlease.core.duration import humanize_duration
from gitlease.faces.wire import SCHEMA
from gitlease.runs.pool import DONE, FAILED, GIVEN_BACK, LOST, STOPPED, PoolEvent

OUTCOMES = (DONE, GIVEN_BACK, FAILED, LOST, STOPPED)
SAID = {
    DONE: "done",
    GIVEN_BACK: "was not finished",
    FAILED: "failed",
    LOST: "lost its lease",
    STOPPED: "stopped",
}


def document(event: PoolEvent) -> dict[str, Any]:
    """One line: ``event`` is started, ended, left_alone, idle, trouble or warning."""
    body: dict[str, Any] = {"schema": SCHEMA, "event": event.kind}
    if event.job is not None:
        record = event.job.record
        body |= {"resource": event.job.name, "session": record.session, "log": record.log}
    if event.end is not None:
        body |= {"outcome": event.end.outcome, "exit": event.end.exit}
        body |= {"seconds": _age(event)}
    if event.failures:
        body |= {"failures": event.failures}
    message = event.message or (event.end.message if event.end is not None else None)
    return body | {"message": message}


def sentence(event: PoolEvent) -> str:
    """The same for a person."""
    if event.job is None:
        what = "nothing is left to claim" if event.kind == "idle" else f"{event.message}"
        return f"{what}; waiting" if event.kind == "idle" else f"{what}; still trying"
    record, name = event.job.record, event.job.name
    if event.kind == "left_alone":
        return f"{name} is left alone after {event.failures} failures"
    if event.end is None:
        return f"{name} started, session {record.session}, log {record.log}"
    said = f"{name} {SAID[event.end.outcome]} after {humanize_duration(_age(event))}"
    said += f", status {event.end.exit}" if event.end.exit else ""
    return f"{said}: {event.end.message}" if event.end.message else said


def finished(counts: Mapping[str, int]) -> dict[str, Any]:
    """The last line: how many tasks came to what."""
    told = {name: counts.get(name, 0) for name in OUTCOMES}
    return {"schema": SCHEMA, "event": "finished", "ok": True, "command": "work"} | told


def summary(counts: Mapping[str, int]) -> str:
    """The same for a person."""
    told = [f"{counts[name]} {name.replace('_', ' ')}" for name in OUTCOMES if counts.get(name)]
    return f"finished: {', '.join(told) or 'there was nothing to do'}"


def _age(event: PoolEvent) -> int:
    return 0 if event.job is None else int(time.monotonic() - event.job.began)
