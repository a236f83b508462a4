"""Reads the files of a ledger strictly, by the documented format.

It is a reading of its own: it shares no code with what writes records, headers and names.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any

from gitlease.kernel.git.plain_yaml import NotPlain, Plain, read_plain
from ledger_checker.own_form import read_own

FORMATS = (1, 2, 3, 4, 5)  # from the third on with what clients of the one before would drop
EPOCH_SIZE = 10**12  # tokens of one epoch
WHOLE = "*"
HEADER_FIELDS = ("format", "id", "revision", "epoch", "sequence", "policy", "digest", "ring")
LEASE_FIELDS = (
    *("resource", "scope", "holder", "session", "state", "token", "ttl", "claimed_at"),
    *("renewed_at", "expires_at", "renewals", "paths", "reason", "host", "branch", "edge"),
    *("lease_id", "operation", "margins"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_FORMAT = re.compile(rb"format: ([0-9]{1,9})\n")
_NUMBER = re.compile(r"[0-9]{1,19}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


class BadForm(Exception):
    """A file is not of the format; the message says why."""


class UnknownFormat(Exception):
    """A ledger of a newer format."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Margins of time: ``skew`` and ``grace`` in seconds, ``drift`` in parts per million."""

    skew: int
    drift: int
    grace: int
    observed: bool

    def widest(self, other: Allowance) -> Allowance:
        """The larger of each."""
        return Allowance(
            max(self.skew, other.skew),
            max(self.drift, other.drift),
            max(self.grace, other.grace),
            self.observed or other.observed,
        )


@dataclass(frozen=True, slots=True)
class LedgerPolicy:
    """The policy in the header; durations are seconds. ``texts`` has all fields as written.

    ``abandoned_after`` is 0 if edges never are. ``appends``: renewals do not replace each other in
    the history.
    """

    margins: Allowance
    ttl_min: int
    ttl_max: int
    park_max: int
    keep_completed: int
    abandoned_after: int
    admins: tuple[str, ...]
    appends: bool
    texts: Mapping[str, Any] = field(hash=False)

    def is_admin(self, holder: str) -> bool:
        """Whether this person is among the admins."""
        return any(person(holder) == person(admin) for admin in self.admins)


@dataclass(frozen=True, slots=True)
class LedgerHeader:
    """The header in ``ledger.yaml``. Each entry of ``ring`` has an id, a revision, an outcome."""

    format: int
    ledger_id: str
    revision: int
    epoch: int
    sequence: int
    policy: LedgerPolicy
    digest: str | None
    ring: tuple[tuple[str, int, str], ...]
    moved_to: str | None = None
    closed_until: int | None = None

    @property
    def token(self) -> int:
        """The last token that was given."""
        return self.epoch * EPOCH_SIZE + self.sequence


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The record of a lease. Times are wall-clock milliseconds, ``ttl`` is seconds."""

    resource: str
    scope: str
    holder: str
    session: str | None
    completed: bool
    token: int
    ttl: int
    claimed_at: int
    renewed_at: int
    expires_at: int
    renewals: int
    paths: tuple[str, ...]
    reason: str | None
    host: str | None
    branch: str | None
    edge: bool
    lease_id: str
    operation: str
    margins: Allowance
    parked: bool
    picked: bool
    key: tuple[str, str]  # the folded resource and scope

    @property
    def patterns(self) -> tuple[str, ...]:
        """Every path pattern that it covers."""
        own = own_pattern(self.resource)
        return self.paths if own is None else (own, *self.paths)


# --- names --------------------------------------------------------------------------------------


def fold(text: str) -> str:
    """Fold names that differ only in letter case or normal form to the same text."""
    if text.isascii():
        return text.lower()
    while True:
        plain = unicodedata.normalize("NFD", text).casefold()
        folded = unicodedata.normalize("NFC", plain)
        if folded == text:
            return text
        text = folded


def person(email: str) -> str:
    """Fold the emails of one person to the same text."""
    return email.translate(_LOWER)


def own_pattern(resource: str) -> str | None:
    """The path pattern that a resource is; None for a name."""
    if resource[:5].lower() == "path:":
        return resource[5:]
    return resource if any(char in resource for char in "/*?[") else None


def resource_key(resource: str) -> str:
    """The folded resource, which tells it from every other."""
    own = own_pattern(resource)
    return fold(resource) if own is None else "path:" + fold(own)


def record_name(resource: str, scope: str = WHOLE) -> str:
    """The file name of a resource and scope, below its folder."""
    key = resource_key(resource)
    digest = sha256(key.encode()).hexdigest()[:16]
    words = re.sub(r"[^a-z0-9._]+", "-", key.removeprefix("path:")).strip("-.")[:40]
    scoped = fold(scope)
    part = "" if scoped == WHOLE else "-" + sha256(scoped.encode()).hexdigest()[:8]
    return f"{digest[:2]}/{words or 'x'}-{digest}{part}.yaml"


def person_file(email: str) -> str:
    """The file name of a person's notices, below its folder."""
    digest = sha256(person(email).encode()).hexdigest()[:16]
    return f"{digest[:2]}/{digest}.yaml"


# --- files --------------------------------------------------------------------------------------


def fields_of(data: bytes) -> dict[str, Plain]:
    """The fields of a file in the very form that gitlease writes. Raises BadForm."""
    try:
        found = read_plain(data)
    except NotPlain as error:
        raise BadForm(str(error)) from None
    if read_own(data.decode()) is None:
        raise BadForm("it is not written the way gitlease writes")
    return found


def read_header(data: bytes) -> LedgerHeader:
    """The header of a ledger. Raises BadForm and UnknownFormat."""
    first = _FORMAT.match(data)  # a newer format may have another syntax
    format = int(first[1]) if first is not None else 0
    if format > FORMATS[-1]:
        raise UnknownFormat(f"the ledger has format {format}, which this gitlease does not know")
    head, ring, lines = data.partition(b"\nring:\n")
    # Nearly all of a header is a ring that was there before: each of its lines is parsed once.
    fields = fields_of(head + b"\nring: []\n" if ring else data)
    if format == 1:
        fields.setdefault("digest", None)  # new in the second format
        fields["ring"] = fields.pop("ring", None)
    moved_to = _maybe(fields, "moved_to") if "moved_to" in fields else None
    closed = _time(fields, "closed_until") if "closed_until" in fields else None
    rare = ("moved_to", "closed_until")
    _check_fields({x: y for x, y in fields.items() if x not in rare}, HEADER_FIELDS)
    if closed is not None and format < 5:
        raise BadForm("it grants nothing for a while, which format 5 knows first")
    policy = fields["policy"]
    if not isinstance(policy, dict):
        raise BadForm("policy is not a mapping")
    return LedgerHeader(
        format=format,
        ledger_id=_text(fields, "id"),
        revision=_number(fields, "revision"),
        epoch=_number(fields, "epoch"),
        sequence=_number(fields, "sequence"),
        policy=_read_policy(policy),
        digest=_maybe(fields, "digest"),
        ring=tuple(map(_ring_entry, lines.removesuffix(b"\n").split(b"\n"))) if ring else (),
        moved_to=moved_to,
        closed_until=closed,
    )


def _read_policy(fields: Mapping[str, Plain]) -> LedgerPolicy:
    ttl_min, ttl_max = _number(fields, "ttl_min"), _number(fields, "ttl_max")
    if not 1 <= ttl_min <= ttl_max:
        raise BadForm("its policy allows no ttl at all")
    return LedgerPolicy(
        margins=_margins(fields),
        ttl_min=ttl_min,
        ttl_max=ttl_max,
        park_max=_number(fields, "park_max") if "park_max" in fields else 86_400,
        keep_completed=_number(fields, "keep_completed"),
        abandoned_after=_number(fields, "abandoned_after")
        if "abandoned_after" in fields
        else 7 * 86_400,
        admins=_words(fields, "admins"),
        appends=_text(fields, "history") == "append",
        texts=dict(fields),
    )


@lru_cache(maxsize=4_096)
def _ring_entry(line: bytes) -> tuple[str, int, str]:
    words = _words(fields_of(b"ring:\n" + line + b"\n"), "ring")
    parts = words[0].split(" ")
    if len(words) != 1 or len(parts) != 3 or not _NUMBER.fullmatch(parts[1]):
        raise BadForm(f"its ring has an invalid entry {ascii(line)[2:60]}")
    return parts[0], int(parts[1]), parts[2]


def read_lease(data: bytes) -> LeaseRecord:
    """The record of a lease. Raises BadForm."""
    fields = fields_of(data)
    more = "picked" if "picked" in fields else "parked"
    _check_fields(fields, LEASE_FIELDS, more)
    margins = fields["margins"]
    if not isinstance(margins, dict):
        raise BadForm("margins is not a mapping")
    resource, scope = _text(fields, "resource"), _text(fields, "scope")
    found = LeaseRecord(
        resource=resource,
        scope=scope,
        holder=_text(fields, "holder"),
        session=_maybe(fields, "session"),
        completed=_choice(fields, "state", "active", "completed") == "completed",
        token=_number(fields, "token"),
        ttl=_number(fields, "ttl"),
        claimed_at=_time(fields, "claimed_at"),
        renewed_at=_time(fields, "renewed_at"),
        expires_at=_time(fields, "expires_at"),
        renewals=_number(fields, "renewals"),
        paths=_words(fields, "paths"),
        reason=_maybe(fields, "reason"),
        host=_maybe(fields, "host"),
        branch=_maybe(fields, "branch"),
        edge=_choice(fields, "edge", "true", "false") == "true",
        lease_id=_text(fields, "lease_id"),
        operation=_text(fields, "operation"),
        margins=_margins(margins),
        parked="parked" in fields and _choice(fields, "parked", "true", "false") == "true",
        picked="picked" in fields and _choice(fields, "picked", "true", "false") == "true",
        key=(resource_key(resource), fold(scope)),
    )
    if found.expires_at < found.renewed_at:
        raise BadForm("it expires before it was renewed")
    if found.parked and (found.completed or found.session is not None):
        raise BadForm("it is parked, but bound to a session or completed")
    if found.picked and found.completed:
        raise BadForm("it is picked from the queue, but completed")
    return found


def lease_path(lease: LeaseRecord) -> str:
    """The path in the tree that a record must have."""
    folder = "paths" if lease.patterns else "leases"
    return f"{folder}/{record_name(lease.resource, lease.scope)}"


def _check_fields(fields: Mapping[str, Plain], known: tuple[str, ...], *more: str) -> None:
    names = tuple(fields)
    odd = next((name for name in names if name not in (*known, *more)), None)
    if odd is not None:
        raise BadForm(f"it has an unknown field {ascii(odd)[:40]}")
    if names not in (known, (*known, *more)):
        raise BadForm("its fields are not all there, or not in their order")


def _margins(fields: Mapping[str, Plain]) -> Allowance:
    return Allowance(
        _number(fields, "skew"),
        _number(fields, "drift"),
        _number(fields, "grace"),
        _choice(fields, "rule", "wall", "observed") == "observed",
    )


def _text(fields: Mapping[str, Plain], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise BadForm(f"{key} is not text")
    return value


def _maybe(fields: Mapping[str, Plain], key: str) -> str | None:
    return None if fields.get(key) is None else _text(fields, key)


def _number(fields: Mapping[str, Plain], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise BadForm(f"{key} is not a whole number")
    return int(value)


def _choice(fields: Mapping[str, Plain], key: str, *known: str) -> str:
    value = _text(fields, key)
    if value not in known:
        raise BadForm(f"{key} is not {' or '.join(known)}")
    return value


def _words(fields: Mapping[str, Plain], key: str) -> tuple[str, ...]:
    value = fields.get(key)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadForm(f"{key} is not a list of texts")
    return tuple(str(word) for word in value)


def _time(fields: Mapping[str, Plain], key: str) -> int:
    value = _text(fields, key)
    try:
        if _TIME.fullmatch(value):
            return (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        pass
    raise BadForm(f"{key} is not a time")
