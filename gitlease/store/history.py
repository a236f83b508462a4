"""The ledger's history: one commit a step, whose bytes are the same for everybody.

A message has one line for people, one JSON line for each event, the operations of the step as
data, and says whether it only renews: such a step may be replaced by the next renewal, so that
history grows with decisions and not with time.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from gitlease.core.errors import Invalid, UsageError, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS
from gitlease.core.lease import MAX_NOTE
from gitlease.core.ledger import MAX_STEP
from gitlease.core.moves.operations import (
    MAX_PATHS_LENGTH,
    TAKEOVER,
    Claim,
    Event,
    Operation,
    Pick,
    mark_claims_after_lapse,
)
from gitlease.core.moves.transitions import MOVES, Applied, StepRecord
from gitlease.core.resources import Resource, parse_resource
from gitlease.core.shape import Codec, Spelling
from gitlease.git.files import Unreadable
from gitlease.git.objects import COMMIT, GitObjects
from gitlease.store.private_store import CacheDamaged

MAX_COMMIT = 8 * 1024 * 1024  # whatever its message: of the commit only the tree is needed
MAX_MESSAGE = 512 * 1024  # bytes of one step
MAX_STEPS = 1_000_000
MAX_EVENTS = 200  # of one step, in its message
RENEWAL = "step: renewal"
DECISION = "step: decision"
OPERATIONS = "operations: "
NOBODY = "gitlease"  # where nothing is left of a holder's name

_AROUND = "".join(map(chr, range(33))) + ",:;<>\"\\'"  # what git takes off a name's ends
_ID = rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)"
_TREE, _PARENT = re.compile(rb"tree " + _ID), re.compile(rb"parent " + _ID)
_COMMITTER = re.compile(rb"\ncommitter [^\n]*> (\d{1,15}) [+-]\d{4}(?:\n|$)")


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """A commit of a ledger. ``time`` is in seconds since the epoch, as whoever made it says."""

    id: str
    tree_id: str
    parent_ids: tuple[str, ...]
    time: int
    message: str

    @property
    def only_renews(self) -> bool:
        return self.message.rstrip().endswith("\n" + RENEWAL)

    @property
    def is_renewal(self) -> bool:
        """Whether it only renews, and is not the first: the next renewal may replace it."""
        return len(self.parent_ids) == 1 and self.only_renews

    @property
    def before(self) -> str:
        return self.parent_ids[0] if self.parent_ids else ""

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(events_in(self.message))

    @property
    def operations(self) -> frozenset[str] | None:
        try:
            step = read_step(operations_line(self.message) or "")
        except BadStep:
            return None
        return frozenset(operation.id for operation in step.operations)


def read_commit(objects: GitObjects, version: str) -> LedgerCommit | None:
    """A commit of a ledger; None where there is none, or none that can be read."""
    try:
        head, _, message = objects.read(version, COMMIT, MAX_COMMIT).partition(b"\n\n")
    except Unreadable:
        return None
    first, *lines = head.split(b"\n")
    tree, committer = _TREE.fullmatch(first), _COMMITTER.search(head)
    if tree is None or committer is None:
        return None
    parents = []
    for line in lines:
        if (parent := _PARENT.fullmatch(line)) is None:
            break
        parents.append(parent[1].decode())
    # Whatever encoding it claims to have.
    text = message.decode("utf-8", "replace")
    return LedgerCommit(version, tree[1].decode(), tuple(parents), int(committer[1]), text)


class PastStep(Protocol):
    """A state of a ledger: its version, that ``before`` it (``""``: none), and its step's events.

    ``operations`` has their ids, None if the step does not tell them. ``is_renewal``: the next
    renewal may take its place.
    """

    @property
    def id(self) -> str: ...
    @property
    def before(self) -> str: ...
    @property
    def is_renewal(self) -> bool: ...
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def operations(self) -> frozenset[str] | None: ...


Past = Callable[[str], Iterator[PastStep]]  # the states up to a version, the newest first


def decision(past: Past, version: str) -> str:
    """The version that none may replace: this one, or the one before a renewal; ``""`` for none."""
    step = next(past(version), None)
    return "" if step is None else step.before if step.is_renewal else version


def first_after(past: Past, earlier: str, version: str) -> str | None:
    """The first version after an earlier one on the way to another; None if it is not on it.

    Raises CacheDamaged where the way cannot be read to its end: it may lie beyond.
    """
    after, whole = version, False
    for step in past(version):
        if step.id == earlier:
            return after
        after, whole = step.id, not step.before
    if not whole:
        raise CacheDamaged(f"the ledger's history cannot be read beyond {after}")
    return None


def operations_since(past: Past, earlier: str, version: str) -> frozenset[str] | None:
    """The ids of the operations after an earlier version (``""``: of all), up to another.

    A renewal that was replaced since counts from the decision before it. None where the way from
    one to the other cannot be found, or a step does not tell its operations.
    """
    ends, found = {earlier, decision(past, earlier) or earlier} if earlier else {""}, set[str]()
    for step in past(version):
        if step.id in ends:
            return frozenset(found)
        if (ids := step.operations) is None:
            return None
        found |= ids
        if step.before in ends:
            return frozenset(found)
    return None


def walk(objects: GitObjects, version: str) -> Iterator[LedgerCommit]:
    """The commits of a ledger, from one backwards, as far as they can be read."""
    commit = read_commit(objects, version)
    for _ in range(MAX_STEPS):
        if commit is None:
            return
        yield commit
        commit = read_commit(objects, commit.before) if commit.before else None


def commit_bytes(applied: Applied, record: StepRecord, tree: str, parents: Sequence[str]) -> bytes:
    """The commit of a step: the same for whoever carries it out."""
    holder = record.writer
    email = holder.replace("<", "").replace(">", "")
    name = email.split("@", 1)[0].strip().strip(_AROUND) or NOBODY
    who = f"{name} <{email.strip(_AROUND) or NOBODY}> {record.at // MS} +0000"
    message = write_message(applied.events, record, renewal=applied.only_renews)
    if len(message.encode()) > MAX_MESSAGE:
        raise UsageError("this is too large for one step of a ledger: split it up")
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    return "\n".join([*lines, f"author {who}", f"committer {who}", "", message]).encode()


def is_renewal(objects: GitObjects, version: str) -> bool:
    """Whether this is a commit of the ledger that only renews."""
    commit = read_commit(objects, version)
    return commit is not None and commit.is_renewal


def write_message(events: Sequence[Event], record: StepRecord, *, renewal: bool) -> str:
    """The message of a step: the same for whoever carries it out."""
    first = _subject(events[0]) if events else "change"
    more = f" and {len(events) - 1} more" if len(events) > 1 else ""
    lines = [json.dumps(_fields(e), ensure_ascii=False) for e in events[:MAX_EVENTS]]
    step = RENEWAL if renewal else DECISION
    return "\n".join([first + more, "", *lines, "", OPERATIONS + step_line(record), step, ""])


def operations_line(message: str) -> str | None:
    """What a message says of the operations of its step; None where it does not say it."""
    lines = (line for line in message.split("\n") if line.startswith(OPERATIONS))
    return next((line.removeprefix(OPERATIONS) for line in lines), None)


def _subject(event: Event) -> str:
    what = f" {event.resource}" if event.resource else ""
    scope = f" (scope {event.scope})" if event.scope not in (None, "*") else ""
    return f"{event.kind.replace('_', ' ')}{what}{scope} by {event.by}"


def _fields(event: Event) -> dict[str, object]:
    if event.kind in TAKEOVER:
        event = event._replace(detail=None)  # the operations say it
    return {key: value for key, value in event._asdict().items() if value is not None}


def events_in(message: str) -> Iterator[Event]:
    """The events that a commit's message tells, as far as they can be read."""
    lines = (line for line in message.splitlines() if line.startswith("{"))
    events = [event for line in lines if (event := _event_or_none(line))]
    if any(event.kind in TAKEOVER for event in events):
        with contextlib.suppress(BadStep):
            claims = read_step(operations_line(message) or "").operations
            deliberate = {x.id for x in claims if not isinstance(x, Claim) or x.replaces_edges}
            return iter(mark_claims_after_lapse(events, deliberate))
    return iter(events)


def _event_or_none(line: str) -> Event | None:
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


# --- the operations of a step, as one line of JSON ------------------------------------------------
# It follows from the classes of the operations alone, fields with their default left out, and is
# read back strictly: each step has one spelling.

# A search is named by what it found.
_KINDS = {kind.__name__: kind for kind in MOVES if kind is not Pick}
_OPERATION_ID = re.compile(r"[!-~]{1,64}")  # one word of a line of the ring


class BadStep(Invalid):
    """A line that no step record reads as; the message says what is wrong with it."""


def _read_text(key: str, data: Any) -> str:
    return check_text(data, what=key, limit=MAX_PATHS_LENGTH, lines=True, blank=True)


STEP = Codec(
    BadStep,
    {
        str: Spelling(_read_text),
        Resource: Spelling(lambda key, data: parse_resource(_read_text(key, data)), str),
    },
    sparse=True,
)
"""Values that may come from anybody, each written in one way."""


def step_line(record: StepRecord) -> str:
    """The line of a step. The actor that all its operations share stands in it once."""
    facts = STEP.dump(record, "operations")
    first = record.operations[0].actor
    done = [
        {"op": type(x).__name__, **STEP.dump(x, *(("actor",) if x.actor == first else ()))}
        for x in record.operations
    ]
    line = {"at": facts.pop("at"), "actor": STEP.dump(first), "do": done, **facts}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def read_step(line: str) -> StepRecord:
    """The step of a line; BadStep for anything that ``step_line`` would not have written."""
    try:
        data = json.loads(line)
        actor, listed = data.pop("actor"), data.pop("do")
        if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_STEP:
            raise BadStep(f"it does not have 1 to {MAX_STEP} operations")
        operations = tuple(_read_operation(one, actor) for one in listed)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadStep("it is not the JSON of a step") from None
    record = STEP.load(StepRecord, data, "a step", operations=operations)
    if step_line(record) != line:
        raise BadStep("it is not spelt as gitlease spells it")
    return record


def _read_operation(data: Any, actor: Any) -> Operation:
    name = data.pop("op")
    kind = _KINDS.get(name)
    if kind is None:
        raise BadStep(f"it has an operation {ascii(name)[:40]}, which is unknown here")
    operation: Operation = STEP.load(kind, {"actor": actor, **data})
    if not _OPERATION_ID.fullmatch(operation.id):
        raise BadStep(f"{ascii(operation.id)[:40]} is not the id of an operation")
    return operation
