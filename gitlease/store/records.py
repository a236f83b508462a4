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
whose name and content disagree is invalid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from gitlease.core.errors import MAX_WORD, GitleaseError, Invalid, check_text
from gitlease.core.frozen import dataclass
from gitlease.core.instant import MS, parse_rfc3339, rfc3339_ms
from gitlease.core.lease import Lease, State
from gitlease.core.ledger import (
    ENDS_TOLD,
    FORMAT,
    ISSUES_FORMAT,
    NEWEST_FORMAT,
    NOTES_KEPT,
    NOTICES_KEPT,
    RING_SIZE,
    TICKETS_KEPT,
    Header,
    Note,
    Notice,
    RingEntry,
    Ticket,
)
from gitlease.core.moves.operations import MAX_NOTE, MAX_PATHS, MAX_REASON
from gitlease.core.policy import DEFAULT_POLICY, History, Issues, Margins, Policy, Rule, person_key
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import (
    WHOLE,
    Resource,
    parse_resource,
    parse_scope,
    path_resource,
)
from gitlease.git.plain_yaml import NotPlain, Plain, read_plain, write_plain

# --- how values stand in the files of a ledger ------------------------------------------------
# Anyone may have written what is read: a value that was read is safe to use and to show, and
# anything else is a BadRecord that names its field. Fields that are not known are passed over.

MAX_NUMBER = 10**18

T = TypeVar("T")


class BadRecord(ValueError):
    """A record that cannot be believed; the message says why."""


class Codec(NamedTuple):
    """``read`` gives the value of a field, by its name and what stands there (None for nothing).

    ``absent`` is what a record says that has no such field; None where it needs one.
    """

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any]
    absent: object = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A mapping that stands for a value of some kind: its fields in their order, with codecs."""

    kind: Callable[..., Any]
    fields: Mapping[str, Codec]

    def read(self, values: Mapping[str, Plain], **more: object) -> Any:
        """The value, with ``more`` of it that does not stand here. Raises BadRecord."""
        for key, codec in self.fields.items():
            gone = key not in values and codec.absent is not None
            more[key] = codec.absent if gone else codec.read(key, values.get(key))
        return self.kind(**more)

    def write(self, value: object) -> dict[str, Any]:
        return {key: codec.write(getattr(value, key)) for key, codec in self.fields.items()}


def read_fields(data: bytes, limit: int) -> dict[str, Plain]:
    """The fields of a file of at most ``limit`` bytes; BadRecord for anything else."""
    if len(data) > limit:
        raise BadRecord(f"larger than {limit} bytes")
    try:
        return read_plain(data)
    except NotPlain as error:
        raise BadRecord(str(error)) from None


def text(limit: int = MAX_WORD, *, lines: bool = False) -> Codec:
    """Printable text; of several ``lines``, or of one."""

    def read(key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise BadRecord(f"{key} is missing or not text")
        return str(_accepted(lambda: check_text(value, what=key, limit=limit, lines=lines)))

    return Codec(read, str)


def maybe(codec: Codec) -> Codec:
    """The same, or nothing."""
    return Codec(
        lambda key, value: None if value is None else codec.read(key, value),
        lambda value: None if value is None else codec.write(value),
    )


def number(*, least: int = 0, most: int = MAX_NUMBER) -> Codec:
    """A whole number."""

    def read(key: str, value: Any) -> int:
        if not (isinstance(value, str) and value.isdecimal() and value.isascii()):
            raise BadRecord(f"{key} is not a whole number")
        if len(value) > 19 or not least <= int(value) <= most:
            raise BadRecord(f"{key} is out of range")
        return int(value)

    return Codec(read, int)


def one_of(*choices: Any) -> Codec:
    """One of some words, members of an Enum or booleans."""
    plain = [getattr(choice, "value", choice) for choice in choices]
    values = {str(word).lower(): choice for word, choice in zip(plain, choices, strict=True)}

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in values:
            raise BadRecord(f"{key} is not one of {', '.join(values)}")
        return values[value]

    return Codec(read, lambda value: getattr(value, "value", value))


def words(limit: int = 64) -> Codec:
    """A list of at most so many words."""

    def read(key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > limit:
            raise BadRecord(f"{key} is not a list of at most {limit}")
        if not all(isinstance(item, str) and item.isprintable() and item for item in value):
            raise BadRecord(f"{key} has an entry that is not text")
        return tuple(value)

    return Codec(read, list)


def nested(layout: Layout) -> Codec:
    """A mapping."""

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadRecord(f"{key} is not a mapping")
        return layout.read(value)

    return Codec(read, layout.write)


def _read_time(key: str, value: Any) -> int:
    word = WORD.read(key, value)
    try:
        return parse_rfc3339(word)
    except ValueError:
        raise BadRecord(f"{key} is not a UTC time") from None


def _read_resource(key: str, value: Any) -> Any:
    word = text(600).read(key, value)
    resource = _accepted(lambda: parse_resource(word), f"{key}: ")
    if resource.text != word:
        raise BadRecord(f"{key} {word[:60]!r} is not in its canonical form")
    return resource


def _read_paths(key: str, value: Any) -> Any:
    found = words(MAX_PATHS).read(key, value)
    _accepted(lambda: [path_resource(path) for path in found])
    return found


def _accepted(parse: Callable[[], T], where: str = "") -> T:
    try:
        return parse()
    except GitleaseError as error:
        raise BadRecord(f"{where}{error.message}") from None


WORD = text()
TIME = Codec(_read_time, rfc3339_ms)
RESOURCE = Codec(_read_resource, str)
SCOPE = Codec(lambda key, value: _accepted(lambda: parse_scope(WORD.read(key, value))), str)
PATHS = Codec(_read_paths, list)


# --- records ----------------------------------------------------------------------------------

MAX_RECORD = 64 * 1024
MAX_RECORDS = 200_000
MAX_MESSAGES = 512 * 1024  # notes, notices or tickets
MAX_HEADER = 128 * 1024
MAX_ENTRY = 128  # of the ring: with all of them the header must still be one that can be read
MAX_DURATION_MS = 3_650 * 86_400_000

HEADER_FILE = "ledger.yaml"
_FORMAT_LINE = re.compile(rb"^[\"']?format[\"']?[ \t]*:[ \t]*[\"']?([0-9]{1,9})\b", re.MULTILINE)
FAN = re.compile(r"[0-9a-f]{2}")
FILE_NAME = re.compile(r"[a-z0-9._-]{1,60}-([0-9a-f]{16})(?:-[0-9a-f]{8})?\.yaml")


# --- names ------------------------------------------------------------------------------------


def resource_hash(resource: Resource) -> str:
    return sha256(resource.key.encode()).hexdigest()[:16]


def lease_file(lease: Lease) -> str:
    """Where a lease lies in the tree."""
    return f"{'paths' if lease.patterns else 'leases'}/{_place(lease.resource, lease.scope)}"


def notes_file(resource: Resource) -> str:
    return f"notes/{_place(resource, WHOLE)}"


def waiting_file(resource: Resource) -> str:
    return f"waiting/{_place(resource, WHOLE)}"


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

_MARGINS = {
    "skew": number(most=86_400),
    "drift": number(most=500_000),
    "grace": number(most=3_600),
    "rule": one_of(*Rule),
}
RARE = ("parked", "picked")  # of the few leases that are
_LEASE = Layout(
    Lease,
    {
        "resource": RESOURCE,
        "scope": SCOPE,
        "holder": WORD,
        "session": maybe(text(128)),
        "state": one_of(State.ACTIVE, State.COMPLETED),
        "token": number(least=1),
        "ttl": number(least=1, most=MAX_DURATION_MS // MS),
        "claimed_at": TIME,
        "renewed_at": TIME,
        "expires_at": TIME,
        "renewals": number(),
        "paths": PATHS,
        "reason": maybe(text(MAX_REASON)),
        "host": maybe(WORD),
        "branch": maybe(WORD),
        "edge": one_of(True, False),
        "lease_id": WORD,
        "operation": WORD,
        "margins": nested(Layout(Margins, _MARGINS)),
        **{key: one_of(True, False)._replace(absent=False) for key in RARE},
    },
)


def write_lease(lease: Lease) -> bytes:
    """The file of a lease. What only parked or picked ones say stands in no other."""
    values = _LEASE.write(lease)
    for key in RARE:
        if not values[key]:
            del values[key]
    return write_plain(values)


def check_lease(lease: Lease) -> bytes:
    """The file of a lease, made sure of: what could not be read again must not be written."""
    data = write_lease(lease)
    try:
        same = read_lease(data) == lease
    except BadRecord as error:
        raise Invalid(f"{lease.resource} cannot be recorded: {error}") from None
    if not same:
        raise Invalid(f"{lease.resource} cannot be recorded as it is")
    return data


def read_lease(data: bytes) -> Lease:
    """The lease in a file, whose name must be its ``lease_file``; BadRecord says what is wrong."""
    lease: Lease = _LEASE.read(read_fields(data, MAX_RECORD))
    if lease.parked and (lease.session is not None or lease.state is not State.ACTIVE):
        raise BadRecord("parked, and a session's or completed")
    if lease.picked and (lease.parked or lease.state is not State.ACTIVE):
        raise BadRecord("picked, and parked or completed")
    if not 0 <= lease.duration_ms <= MAX_DURATION_MS:
        raise BadRecord("expires_at is before renewed_at, or ten years after it")
    return lease


# --- notes, notices and tickets ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """Files of what there is for one owner: a resource's notes or tickets, a person's notices.

    ``place`` gives the file of an owner, and ``key`` is what both the file and its items call it.
    """

    place: Callable[[Any], str]
    key: str
    owner: Codec
    items: str
    layout: Layout
    most: int

    def write(self, owner: object, items: tuple[Any, ...]) -> bytes:
        """The file of an owner; Invalid for what could not be read again."""
        listed = [self.layout.write(item) for item in items]
        data = write_plain({self.key: self.owner.write(owner), self.items: listed})
        try:
            self.read(data, file=self.place(owner))
        except BadRecord as error:
            raise Invalid(f"the {self.items} of {owner} cannot be recorded: {error}") from None
        return data

    def read(self, data: bytes, *, file: str) -> tuple[Any, ...]:
        """What a file of this name has; BadRecord says what is wrong."""
        fields = read_fields(data, MAX_MESSAGES)
        owner, listed = self.owner.read(self.key, fields.get(self.key)), fields.get(self.items)
        if self.place(owner) != file:
            raise BadRecord("its name and its content disagree")
        if not isinstance(listed, list) or len(listed) > self.most:
            raise BadRecord(f"{self.items} is not a list of at most {self.most}")
        items = [item for item in listed if isinstance(item, dict)]
        if len(items) < len(listed):
            raise BadRecord(f"{self.items} has something that is not a mapping")
        return tuple(self.layout.read(item, **{self.key: owner}) for item in items)


NOTES = Listing(
    notes_file,
    "resource",
    RESOURCE,
    "notes",
    Layout(Note, {"id": WORD, "author": WORD, "at": TIME, "text": text(MAX_NOTE, lines=True)}),
    NOTES_KEPT,
)
NOTICES = Listing(
    notices_file,
    "to",
    WORD,
    "notices",
    Layout(
        Notice,
        {
            "id": WORD,
            "what": one_of(*ENDS_TOLD),
            "resource": text(600),
            "scope": SCOPE,
            "session": maybe(text(128)),
            "by": WORD,
            "at": TIME,
            "reason": maybe(text(MAX_REASON)),
        },
    ),
    NOTICES_KEPT,
)
TICKETS = Listing(
    waiting_file,
    "resource",
    RESOURCE,
    "tickets",
    Layout(
        Ticket,
        {
            "id": text(64),
            "scope": SCOPE,
            "holder": WORD,
            "session": maybe(text(128)),
            "since": TIME,
            "until": TIME,
        },
    ),
    TICKETS_KEPT,
)


# --- the header -------------------------------------------------------------------------------

_POLICY = Layout(
    Policy,
    {
        "ttl_max": number(),
        "ttl_min": number(),
        "skew": number(),
        "drift": number(),
        "grace": number(),
        "rule": one_of(*Rule),
        "admins": words(),
        "history": one_of(*History),
        "keep_completed": number(),
        "park_max": number()._replace(absent=DEFAULT_POLICY.park_max),
        "abandoned_after": number()._replace(absent=DEFAULT_POLICY.abandoned_after),
        "issues": one_of(*Issues)._replace(absent=DEFAULT_POLICY.issues),
    },
)


def _ring_entry(line: str) -> RingEntry:
    parts = line.split(" ")
    if len(parts) != 3 or not parts[1].isdecimal() or len(parts[1]) > 18 or len(line) > MAX_ENTRY:
        raise BadRecord("its ring has an invalid entry")
    return RingEntry(parts[0], int(parts[1]), parts[2])


_HEADER = Layout(
    Header,
    {
        "revision": number(),
        "epoch": number(most=10**5),
        "sequence": number(most=10**12 - 1),
        "policy": nested(_POLICY),
        "digest": maybe(text(64)),
        "ring": Codec(
            lambda key, value: tuple(map(_ring_entry, words(RING_SIZE).read(key, value))),
            lambda ring: [f"{e.operation} {e.revision} {e.outcome}" for e in ring],
        ),
    },
)


def write_header(header: Header) -> bytes:
    """The file ``ledger.yaml``. What came after format 2 stands in it only where it was set."""
    values = _HEADER.write(header)
    for key in ("abandoned_after", "issues"):
        if getattr(header.policy, key) == getattr(DEFAULT_POLICY, key):
            del values["policy"][key]
    form = NEWEST_FORMAT if header.policy.abandons_early else header.format
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
            hints=("upgrade gitlease: pip install --upgrade gitlease",),
        )
    try:
        fields = read_fields(data, MAX_HEADER)
        form = number(least=1, most=NEWEST_FORMAT).read("format", fields.get("format"))
        kept = NEWEST_FORMAT if form == NEWEST_FORMAT else FORMAT  # the others follow from policy
        ledger_id = text(64).read("id", fields.get("id"))
        header: Header = _HEADER.read(fields, ledger_id=ledger_id, format=kept)
        if wrong := header.policy.problem():
            raise BadRecord(f"its policy: {wrong}")
    except BadRecord as error:
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    return header
