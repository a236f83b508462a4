"""The message of a ledger's commit: for people a line, then its events, and the step as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gitlease.core.moves.operation_json import write_step
from gitlease.core.moves.operations import MAX_NOTE
from gitlease.core.moves.step_record import StepRecord
from gitlease.core.outcome import Event

MAX_EVENTS = 200  # of one step, in its message
RENEWAL = "step: renewal"
DECISION = "step: decision"
OPERATIONS = "operations: "


def write_message(events: Sequence[Event], record: StepRecord, *, renewal: bool) -> str:
    """The message of a step: the same for whoever carries it out."""
    first = _subject(events[0]) if events else "change"
    more = f" and {len(events) - 1} more" if len(events) > 1 else ""
    lines = [json.dumps(_fields(e), ensure_ascii=False) for e in events[:MAX_EVENTS]]
    step = RENEWAL if renewal else DECISION
    return "\n".join([first + more, "", *lines, "", OPERATIONS + write_step(record), step, ""])


def operations_line(message: str) -> str | None:
    """What a message says of the operations of its step; None where it does not say it."""
    lines = (line for line in message.split("\n") if line.startswith(OPERATIONS))
    return next((line.removeprefix(OPERATIONS) for line in lines), None)


def _subject(event: Event) -> str:
    what = f" {event.resource}" if event.resource else ""
    scope = f" (scope {event.scope})" if event.scope not in (None, "*") else ""
    return f"{event.kind.replace('_', ' ')}{what}{scope} by {event.by}"


def _fields(event: Event) -> dict[str, object]:
    return {key: value for key, value in event._asdict().items() if value is not None}


def events_in(message: str) -> Iterator[Event]:
    """The events that a commit's message tells, as far as they can be read."""
    for line in message.splitlines():
        if line.startswith("{") and (event := _event(line)):
            yield event


def _event(line: str) -> Event | None:
    """An event of a line that anyone could have written; None for anything odd."""
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not {"kind", "operation", "at", "by"} <= data.keys():
        return None
    known = {key: value for key, value in data.items() if key in Event._fields}
    for key, value in known.items():
        if key in ("at", "token"):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**18:
                return None
        elif (
            not isinstance(value, str)
            or len(value) > MAX_NOTE
            or not value.replace("\n", "").replace("\t", "").isprintable()
        ):
            return None
    return Event(**known) if known["at"] < 2 * 10**14 else None
