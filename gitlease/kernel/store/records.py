"""The record format: leases, notes, notices, tickets and the header as files of the ledger's tree.

    ledger.yaml                                the header
    leases/<hh>/<slug>-<resource>[-<scope>].yaml   a lease
    paths/<hh>/<slug>-<resource>[-<scope>].yaml    a lease that covers paths
    notes/<hh>/<slug>-<resource>.yaml          notes on a resource
    notices/<hh>/<holder>.yaml                 notices for a holder
    waiting/<hh>/<slug>-<resource>.yaml        tickets of those who wait for a resource

``<hh>`` are the first two hex digits of the hash of the folded resource, so all records of one
resource lie in one folder, and a change writes the same few objects however many leases there are.
Everything read is untrusted: sizes are capped before parsing, each field is checked, and a record
whose name and content disagree is invalid.

A step's message has one line for people, one JSON line for each event, the operations of the step
as data, and says whether it only renews: such a step may be replaced by the next renewal, so that
history grows with decisions and not with time."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from typing import Annotated, Any

from gitlease.kernel.git.plain_yaml import NotPlain, Plain, read_plain, write_plain
from gitlease.kernel.rules.errors import MAX_WORD, Invalid, UsageError, check_text
from gitlease.kernel.rules.frozen import LARGEST, Codec, Spelling, dataclass, one_of
from gitlease.kernel.rules.instant import LONGEST, MS, parse_rfc3339, rfc3339_ms
from gitlease.kernel.rules.lease import MAX_NOTE, Lease, State, person_key
from gitlease.kernel.rules.ledger import (
    FORMAT,
    ISSUES_FORMAT,
    MAX_STEP,
    NEWEST_FORMAT,
    NOTES_KEPT,
    NOTICES_KEPT,
    PICKED_FORMAT,
    RING_SIZE,
    TICKETS_KEPT,
    Header,
    Note,
    Notice,
    RingEntry,
    Ticket,
)
from gitlease.kernel.rules.moves.operations import (
    MAX_PATHS,
    MAX_PATHS_LENGTH,
    TAKEOVER,
    Claim,
    Event,
    Operation,
    Pick,
    mark_claims_after_lapse,
)
from gitlease.kernel.rules.moves.transitions import MOVES, StepRecord
from gitlease.kernel.rules.resources import (
    WHOLE,
    Issues,
    Resource,
    fold,
    parse_resource,
    parse_scope,
    path_resource,
)

# --- how values stand in the files of a ledger ------------------------------------------------
# Anyone may have written what is read: a value that was read is safe to use and to show, and
# anything else is a BadRecord that names its field. Fields that are not known are passed over.


class BadRecord(ValueError):
    """A record that cannot be believed; the message says why."""


def read_fields(data: bytes, limit: int) -> dict[str, Plain]:
    """The fields of a file of at most ``limit`` bytes; BadRecord for anything else."""
    if len(data) > limit:
        raise BadRecord(f"larger than {limit} bytes")
    try:
        return read_plain(data)
    except NotPlain as error:
        raise BadRecord(str(error)) from None


def _text(limit: int = MAX_WORD, *, lines: bool = False) -> Spelling:
    def read(key: str, data: Any) -> str:
        if not isinstance(data, str):
            raise BadRecord(f"{key} is missing or not text")
        return check_text(data, what=key, limit=limit, lines=lines)

    return Spelling(read)


def _number(least: int = 0, most: int = LARGEST) -> Spelling:
    def read(key: str, data: Any) -> int:
        if not (isinstance(data, str) and data.isdecimal() and data.isascii()):
            raise BadRecord(f"{key} is not a whole number")
        if len(data) > 19 or not least <= int(data) <= most:
            raise BadRecord(f"{key} is out of range")
        return int(data)

    return Spelling(read)


def _words(limit: int, check: Callable[[str], object] = str) -> Spelling:
    def read(key: str, data: Any) -> tuple[str, ...]:
        if not isinstance(data, list) or len(data) > limit:
            raise BadRecord(f"{key} is not a list of at most {limit}")
        if not all(isinstance(item, str) and item.isprintable() and item for item in data):
            raise BadRecord(f"{key} has an entry that is not printable text")
        for item in data:
            check(item)
        return tuple(data)

    return Spelling(read, list)


_word, _resource_text, _ring_lines = _text().read, _text(600).read, _words(RING_SIZE).read


def _read_time(key: str, data: Any) -> int:
    try:
        return parse_rfc3339(_word(key, data))
    except ValueError:
        raise BadRecord(f"{key} is not a UTC time") from None


def _read_resource(key: str, data: Any) -> Resource:
    word = _resource_text(key, data)
    try:
        resource = parse_resource(word)
    except UsageError as error:
        raise BadRecord(f"{key}: {error.message}") from None
    if resource.text != word:
        raise BadRecord(f"{key} {word[:60]!r} is not in its canonical form")
    return resource


def _read_ring(key: str, data: Any) -> tuple[RingEntry, ...]:
    return tuple(map(_ring_entry, _ring_lines(key, data)))


@lru_cache(maxsize=4 * RING_SIZE)  # a step adds a few, and all are read again
def _ring_entry(line: str) -> RingEntry:
    parts = line.split(" ")
    number = parts[1] if len(parts) == 3 else ""
    if not number.isdecimal() or len(number) > 18 or len(line) > MAX_ENTRY:
        raise BadRecord("its ring has an invalid entry")
    return RingEntry(parts[0], int(number), parts[2])


def _marked(mark: Any) -> Spelling:
    if isinstance(mark, range):
        return _number(mark.start, mark.stop - 1)
    return _MARKS[mark] if isinstance(mark, str) else _text(mark)


_MARKS = {
    "time": Spelling(_read_time, rfc3339_ms),
    "scope": Spelling(lambda key, data: parse_scope(_word(key, data))),
    "patterns": _words(MAX_PATHS, path_resource),
    "lines": _text(MAX_NOTE, lines=True),
}
_SPELLINGS = {
    str: _text(),
    int: _number(),
    bool: one_of(BadRecord, True, False),
    Resource: Spelling(_read_resource, str),
    tuple[str, ...]: _words(64),
    tuple[RingEntry, ...]: Spelling(
        _read_ring, lambda ring: [f"{e.operation} {e.revision} {e.outcome}" for e in ring]
    ),
}
RECORD = Codec(BadRecord, _SPELLINGS, _marked)
_ID: Any = Annotated[str, 64]


# --- records ----------------------------------------------------------------------------------

MAX_RECORD = 64 * 1024
MAX_RECORDS = 200_000
MAX_MESSAGES = 512 * 1024  # notes, notices or tickets
MAX_HEADER = 128 * 1024
MAX_ENTRY = 128  # of the ring: with all of them the header must still be one that can be read
MAX_DURATION_MS = LONGEST * MS

HEADER_FILE = "ledger.yaml"
_FORMAT_LINE = re.compile(rb"^[\"']?format[\"']?[ \t]*:[ \t]*[\"']?([0-9]{1,9})\b", re.MULTILINE)
FAN = re.compile(r"[0-9a-f]{2}")
FILE_NAME = re.compile(r"[a-z0-9._-]{1,60}-([0-9a-f]{16})(?:-[0-9a-f]{8})?\.yaml")


# --- names ------------------------------------------------------------------------------------


def resource_hash(resource: Resource) -> str:
    return sha256(resource.key.encode()).hexdigest()[:16]


def lease_file(lease: Lease) -> str:
    """The path of a lease in the tree."""
    return f"{'paths' if lease.patterns else 'leases'}/{_place(lease.resource, lease.scope)}"


def _file_in(folder: str, resource: Resource) -> str:
    return f"{folder}/{_place(resource, WHOLE)}"


notes_file = partial(_file_in, "notes")
waiting_file = partial(_file_in, "waiting")


def notices_file(holder: str) -> str:
    digest = sha256(person_key(holder).encode()).hexdigest()[:16]
    return f"notices/{digest[:2]}/{digest}.yaml"


@lru_cache(maxsize=8192)
def _place(resource: Resource, scope: str) -> str:
    digest = resource_hash(resource)
    slug = re.sub(r"[^a-z0-9._]+", "-", resource.key.removeprefix("path:")).strip("-.")[:40] or "x"
    part = "" if fold(scope) == WHOLE else "-" + sha256(fold(scope).encode()).hexdigest()[:8]
    return f"{digest[:2]}/{slug}-{digest}{part}.yaml"


# --- leases -----------------------------------------------------------------------------------


def write_lease(lease: Lease) -> bytes:
    """The file of a lease."""
    return write_plain(RECORD.dump(lease))


def check_lease(lease: Lease) -> bytes:
    """The file of a lease, made sure of: what could not be read again must not be written."""
    data = write_lease(lease)
    try:
        same = read_lease(data) == lease
    except BadRecord as error:
        raise UsageError(f"{lease.resource} cannot be recorded: {error}") from None
    if not same:
        raise Invalid(f"{lease.resource} cannot be recorded as it is")
    return data


def read_lease(data: bytes) -> Lease:
    """The lease in a file, whose name must be its ``lease_file``; BadRecord says what is wrong."""
    lease = RECORD.load(Lease, read_fields(data, MAX_RECORD))
    if lease.parked and (lease.session is not None or lease.state is not State.ACTIVE):
        raise BadRecord("parked, and a session's or completed")
    if lease.picked and (lease.parked or lease.state is not State.ACTIVE):
        raise BadRecord("picked, and parked or completed")
    if not 0 <= lease.duration_ms <= MAX_DURATION_MS:
        raise BadRecord("expires_at is before renewed_at, or ten years after it")
    return lease


# --- notes, notices and tickets ---------------------------------------------------------------


@dataclass(frozen=True)
class Listing:
    """Files of what there is for one owner: a resource's notes or tickets, a person's notices.

    ``place`` gives the file of an owner, and ``key`` is what both the file and its items call it.
    """

    place: Callable[[Any], str]
    key: str
    owner: Any
    items: str
    kind: type[Any]
    most: int

    def write(self, owner: object, items: tuple[Any, ...]) -> bytes:
        """The file of an owner; Invalid for what could not be read again."""
        listed = [RECORD.dump(item, self.key) for item in items]
        data = write_plain({self.key: str(owner), self.items: listed})
        try:
            self.read(data, file=self.place(owner))
        except BadRecord as error:
            raise Invalid(f"the {self.items} of {owner} cannot be recorded: {error}") from None
        return data

    def read(self, data: bytes, *, file: str) -> tuple[Any, ...]:
        """Read a file of this name; BadRecord says what is wrong."""
        fields = read_fields(data, MAX_MESSAGES)
        owner = RECORD.load(self.owner, fields.get(self.key), self.key)
        listed = fields.get(self.items)
        if self.place(owner) != file:
            raise BadRecord("its name and its content disagree")
        if not isinstance(listed, list) or len(listed) > self.most:
            raise BadRecord(f"{self.items} is not a list of at most {self.most}")
        known = {self.key: owner}
        return tuple(RECORD.load(self.kind, item, self.items, **known) for item in listed)


NOTES = Listing(notes_file, "resource", Resource, "notes", Note, NOTES_KEPT)
NOTICES = Listing(notices_file, "to", str, "notices", Notice, NOTICES_KEPT)
TICKETS = Listing(waiting_file, "resource", Resource, "tickets", Ticket, TICKETS_KEPT)


# --- the header -------------------------------------------------------------------------------


def write_header(header: Header) -> bytes:
    """The file ``ledger.yaml``."""
    values = RECORD.dump(header, "ledger_id", "format")
    form = header.format
    form = max(form, PICKED_FORMAT) if header.policy.abandons_early else form
    if header.policy.issues is not Issues.NONE:
        form = max(form, ISSUES_FORMAT)
    return write_plain({"format": form, "id": header.ledger_id, **values})


@lru_cache(maxsize=4)  # what is written is read as a check, and once more when it has landed
def read_header(data: bytes) -> Header:
    """The header; Invalid when the ledger is damaged or of a newer format than this gitlease."""
    # A newer format may use what this one refuses, so it is looked for before anything is parsed.
    newer = _FORMAT_LINE.search(data[:4_096])
    if newer is not None and int(newer[1]) > NEWEST_FORMAT:
        raise Invalid(
            f"the ledger has format {int(newer[1])}; "
            f"this gitlease knows formats up to {NEWEST_FORMAT}",
            hints=("how to upgrade gitlease: gitlease help trouble",),
        )
    try:
        fields = read_fields(data, MAX_HEADER)
        form = _number(1, NEWEST_FORMAT).read("format", fields.get("format"))
        kept = form if form >= PICKED_FORMAT else FORMAT  # the others follow from policy
        ledger_id = RECORD.load(_ID, fields.get("id"), "id")
        header = RECORD.load(Header, fields, ledger_id=ledger_id, format=kept)
        if wrong := header.policy.problem():
            raise BadRecord(f"its policy: {wrong}")
    except BadRecord as error:
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    return header


# --- messages of steps ------------------------------------------------------------------------

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
    return "\n".join([first + more, "", *lines, "", OPERATIONS + step_line(record), step, ""])


def operations_line(message: str) -> str | None:
    """Read a step's operations from a message; None where it names none."""
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
