"""The ledger's history: one commit a step, its message the audit trail.

A message has one line for people, one JSON line for each event, the operations of the step as
data, and says whether it only renews: such a step may be replaced by the next renewal, so that
history grows with decisions and not with time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from gitlease.core.errors import UsageError
from gitlease.core.instant import MS
from gitlease.core.moves.operation_json import write_step
from gitlease.core.moves.operations import MAX_NOTE
from gitlease.core.moves.step_record import StepRecord
from gitlease.core.moves.transitions import Applied
from gitlease.core.outcome import Event
from gitlease.git.libgit2 import object_header, read_object
from gitlease.store.damage import CacheDamaged
from gitlease.store.tree import MAX_COMMIT

if TYPE_CHECKING:
    import pygit2

MAX_MESSAGE = 512 * 1024  # bytes of one step
MAX_EVENTS = 200  # of one step, in its message
MAX_STEPS = 1_000_000
RENEWAL = "step: renewal"
DECISION = "step: decision"
OPERATIONS = "operations: "


def commit_bytes(
    repo: pygit2.Repository,
    applied: Applied,
    record: StepRecord,
    tree: str,
    parents: Sequence[str],
) -> bytes:
    """The commit of a step: the same for whoever carries it out. Its tree must be there."""
    import pygit2

    holder = record.operations[0].actor.holder
    email = holder.replace("<", "").replace(">", "")
    name = email.split("@", 1)[0].strip() or "gitlease"
    who = pygit2.Signature(name, email, record.at // MS, 0, "utf-8")
    message = write_message(applied.events, record, renewal=applied.only_renews)
    if len(message.encode()) > MAX_MESSAGE:
        raise UsageError("this is too much for one step of a ledger: do it in parts")
    ids = [pygit2.Oid(hex=parent) for parent in parents]
    text = repo.create_commit_string(who, who, message, pygit2.Oid(hex=tree), [*ids])
    return str(text).encode()


def is_renewal(repo: pygit2.Repository, version: str) -> bool:
    """Whether a commit is a renewal that the next one may replace: it has one parent."""
    commit = read_commit(repo, version)
    return (
        commit is not None
        and len(commit.parent_ids) == 1
        and message_of(commit).rstrip().endswith("\n" + RENEWAL)
    )


def decision(repo: pygit2.Repository, version: str) -> str:
    """The commit that none may replace: this one, or that before a renewal; ``""`` for none."""
    commit = read_commit(repo, version)
    if commit is None:
        return ""
    return str(commit.parent_ids[0]) if is_renewal(repo, version) else version


def first_after(repo: pygit2.Repository, earlier: str, version: str) -> str | None:
    """The first commit after an earlier one on the way to ``version``; None if it is not on it.

    Raises CacheDamaged where the way cannot be read to its end: it may lie beyond.
    """
    after, whole = version, False
    for commit in walk(repo, version):
        if str(commit.id) == earlier:
            return after
        after, whole = str(commit.id), not commit.parent_ids
    if not whole:
        raise CacheDamaged(f"the ledger's history cannot be read beyond {after}")
    return None


def read_events(repo: pygit2.Repository, version: str, limit: int) -> tuple[Event, ...]:
    """The audit trail from a commit backwards: newest first, at most ``limit`` events."""
    found: list[Event] = []
    for commit in walk(repo, version):
        found += reversed(list(events_in(message_of(commit))))
        if len(found) >= limit:
            break
    return tuple(found[:limit])


def read_steps(
    repo: pygit2.Repository, earlier: str, version: str, limit: int
) -> tuple[tuple[str, tuple[Event, ...]], ...]:
    """The steps from an earlier commit to a later one, oldest first, with what each tells.

    A renewal that was replaced since counts from the decision before it. Nothing where the way
    cannot be found within ``limit`` steps.
    """
    ends, found = {earlier, decision(repo, earlier)}, list[tuple[str, tuple[Event, ...]]]()
    for commit in walk(repo, version):
        if str(commit.id) in ends:
            return tuple(reversed(found))
        if len(found) == limit:
            break
        found.append((str(commit.id), tuple(events_in(message_of(commit)))))
    return ()


def walk(repo: pygit2.Repository, version: str) -> Iterator[pygit2.Commit]:
    """The commits of a ledger, from one backwards, as far as they can be read."""
    commit = read_commit(repo, version)
    for _ in range(MAX_STEPS):
        if commit is None:
            return
        yield commit
        commit = read_commit(repo, str(commit.parent_ids[0])) if commit.parent_ids else None


def read_commit(repo: pygit2.Repository, version: str) -> pygit2.Commit | None:
    """A commit of a ledger; None where there is none, or none that can be read."""
    import pygit2

    try:
        kind, size = object_header(repo, oid := pygit2.Oid(hex=version))
        if kind != pygit2.enums.ObjectType.COMMIT or size > MAX_COMMIT:
            return None
        return cast("pygit2.Commit", read_object(repo, oid))
    except (KeyError, ValueError, pygit2.GitError):
        return None


def message_of(commit: pygit2.Commit) -> str:
    """The message, whatever encoding its commit claims to have."""
    return commit.raw_message.decode("utf-8", "replace")


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
