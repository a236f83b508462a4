"""The rules of the commit itself: one parent, its writer, its time, and what its message tells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gitlease.verify.form import person
from gitlease.verify.state import MS, JudgedStep, about

MAX_EVENTS = 200  # that a message has of one step
_TRIMMED = "".join(map(chr, range(33))) + ".,:;<>\"\\'"  # what git takes off an address
_TOLD_OF_CLAIM = ("claimed", "taken_over", "renewed")


def check_message(step: JudgedStep) -> None:
    """Hold a commit and its message against the operations that it names."""
    commit, said = step.commit, step.said
    if len(commit.parents) > 1:
        step.breaks("merge", "a step of a ledger has one parent, and this is a merge")
    if said is None:
        return
    writer = said.operations[0].holder
    if any(person(op.holder) != person(writer) for op in said.operations):
        step.breaks("identity", "its operations are of several people")
    if commit.email.strip(_TRIMMED) != writer.replace("<", "").replace(">", "").strip(_TRIMMED):
        step.breaks("identity", f"{writer} asked for it, and {commit.email} is its author")
    if not commit.plain:
        step.breaks("commit", "the commit says more than a step says")
    if commit.renewal is None:
        step.breaks("commit", "its message does not say whether it only renews")
    if (commit.authored, commit.committed) != (said.at // MS, said.at // MS):
        step.breaks("commit", "the time of the commit is not that of its step")
    events = list(_events(step))
    if len(events) < MAX_EVENTS:
        _check_told(step, events)


def _events(step: JudgedStep) -> Iterator[Mapping[str, Any]]:
    known = {op.id: op.holder for op in step.operations}
    for line in step.commit.events:
        try:
            event = json.loads(line)
            named, by, at = str(event["operation"]), event["by"], event["at"]
        except (ValueError, KeyError, TypeError, RecursionError):
            step.breaks("commit", "its message has a line that tells nothing")
            continue
        if known.get(named) != by or at != step.at:
            step.breaks("commit", f"its message tells of an operation {ascii(named)[:40]} of {by}")
        yield event


def _check_told(step: JudgedStep, events: list[Mapping[str, Any]]) -> None:
    """Every grant that changes is told of, with the reason that its record has."""
    tokens = {event.get("token") for event in events}
    made = {(event.get("token"), event.get("reason")) for event in events}
    kinds = {event.get("token"): event.get("kind") for event in events}
    for old, new in step.changed.values():
        lease = new or old
        if lease is None or step.hidden or (new is None and lease.completed):
            continue
        if lease.token not in tokens:
            step.breaks("commit", f"its message does not tell what became of {about(lease)}")
            continue
        claimed = new is not None and kinds[new.token] in _TOLD_OF_CLAIM
        if new is not None and claimed and (new.token, new.reason) not in made:
            told = f"its message gives another reason for {about(new)} than its record"
            step.breaks("commit", told)
