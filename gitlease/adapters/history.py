"""The ledger's history: one commit a step, its message the audit trail.

A message has one line for people, one JSON line for each event, and says whether the step only
renews: such a step may be replaced by the next renewal, so that history grows with decisions and
not with time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from gitlease.domain.operations import MAX_NOTE
from gitlease.domain.outcome import Event
from gitlease.ports import Change

if TYPE_CHECKING:
    import pygit2

MAX_COMMIT = 1024 * 1024
MAX_EVENTS = 200  # of one step, in its message
MAX_STEPS = 1_000_000
RENEWAL = "step: renewal"
DECISION = "step: decision"


def write_commit(
    repo: pygit2.Repository, change: Change, tree: pygit2.Oid, parents: Sequence[pygit2.Oid]
) -> str:
    """Write the commit of a step and return its id; the same change gives the same id."""
    import pygit2

    when = change.at.wall_ms // 1_000
    holder = change.actor.holder
    name = holder.split("@", 1)[0].strip("<> ") or "gitlease"
    who = pygit2.Signature(name, holder.replace("<", "").replace(">", ""), when, 0, "utf-8")
    return str(
        repo.create_commit(None, who, who, _message(change), tree, [str(p) for p in parents])
    )


def is_renewal(repo: pygit2.Repository, version: str) -> bool:
    """Whether a commit is a renewal that the next one may replace: it has one parent."""
    commit = _commit(repo, version)
    if commit is None or len(commit.parent_ids) != 1:
        return False
    return _text(commit).rstrip().endswith("\n" + RENEWAL)


def read_events(repo: pygit2.Repository, version: str, limit: int) -> tuple[Event, ...]:
    """The audit trail from a commit backwards: newest first, at most ``limit`` events."""
    found: list[Event] = []
    for commit in _walk(repo, version):
        found += reversed(list(events_in(_text(commit))))
        if len(found) >= limit:
            break
    return tuple(found[:limit])


def _walk(repo: pygit2.Repository, version: str) -> Iterator[pygit2.Commit]:
    commit = _commit(repo, version)
    for _ in range(MAX_STEPS):
        if commit is None:
            return
        yield commit
        commit = _commit(repo, str(commit.parent_ids[0])) if commit.parent_ids else None


def _commit(repo: pygit2.Repository, version: str) -> pygit2.Commit | None:
    import pygit2

    try:
        kind, size = repo.odb.read_header(pygit2.Oid(hex=version))
        if int(kind) != pygit2.enums.ObjectType.COMMIT or size > MAX_COMMIT:
            return None
        return cast("pygit2.Commit", repo[version])
    except (KeyError, ValueError, pygit2.GitError):
        return None


def _text(commit: pygit2.Commit) -> str:
    """The message, whatever encoding its commit claims to have."""
    return commit.raw_message.decode("utf-8", "replace")


def _message(change: Change) -> str:
    events = change.events
    first = _subject(events[0]) if events else "change"
    more = f" and {len(events) - 1} more" if len(events) > 1 else ""
    lines = [json.dumps(_fields(e), ensure_ascii=False) for e in events[:MAX_EVENTS]]
    return "\n".join([first + more, "", *lines, "", RENEWAL if change.renewal else DECISION, ""])


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
