"""The record format: leases, notes, notices and the header as files of the ledger's tree.

    ledger.yaml                                the header
    leases/<hh>/<slug>-<resource>[-<scope>].yaml   a lease
    paths/<hh>/<slug>-<resource>[-<scope>].yaml    a lease that covers paths
    notes/<hh>/<slug>-<resource>.yaml          notes on a resource
    notices/<hh>/<holder>.yaml                 notices for a holder

``<hh>`` are the first two hex digits of the hash of the folded resource, so all records of one
resource lie in one folder, and a change writes the same few objects however many leases there are.
Everything read is untrusted: sizes are capped before parsing, each field is checked, and a record
whose name and content disagree is invalid.
"""

from __future__ import annotations

import re
from hashlib import sha256

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.holder import person_key
from gitlease.core.instant import rfc3339_ms
from gitlease.core.lease import Lease, State
from gitlease.core.ledger import (
    FORMAT,
    NOTES_KEPT,
    NOTICES_KEPT,
    RING_SIZE,
    Header,
    Note,
    Notice,
    RingEntry,
)
from gitlease.core.moves.operations import MAX_NOTE, MAX_REASON
from gitlease.core.policy import DEFAULT_POLICY, History, Policy, Rule
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource
from gitlease.git.plain_yaml import write_plain
from gitlease.store.fields import BadRecord, read_fields

MAX_RECORD = 64 * 1024
MAX_MESSAGES = 512 * 1024  # notes or notices
NOTICED = ("taken_over", "revoked", "retired")
MAX_HEADER = 128 * 1024
MAX_ENTRY = 128  # of the ring: with all of them the header must still be one that can be read
MAX_DURATION_MS = 3_650 * 86_400_000

HEADER_FILE = "ledger.yaml"
_FORMAT_LINE = re.compile(rb"^[\"']?format[\"']?[ \t]*:[ \t]*[\"']?([0-9]{1,9})\b", re.MULTILINE)
FILE_NAME = re.compile(r"[a-z0-9._-]{1,60}-([0-9a-f]{16})(?:-[0-9a-f]{8})?\.yaml")


# --- names ------------------------------------------------------------------------------------


def resource_hash(resource: Resource) -> str:
    return sha256(resource.key.encode()).hexdigest()[:16]


def lease_file(lease: Lease) -> str:
    """Where a lease lies in the tree."""
    return f"{'paths' if lease.patterns else 'leases'}/{_place(lease.resource, lease.scope)}"


def notes_file(resource: Resource) -> str:
    return f"notes/{_place(resource, WHOLE)}"


def notices_file(holder: str) -> str:
    digest = sha256(person_key(holder).encode()).hexdigest()[:16]
    return f"notices/{digest[:2]}/{digest}.yaml"


def _place(resource: Resource, scope: str) -> str:
    digest = resource_hash(resource)
    slug = re.sub(r"[^a-z0-9._]+", "-", resource.key.removeprefix("path:")).strip("-.")[:40] or "x"
    part = "" if fold(scope) == WHOLE else "-" + sha256(fold(scope).encode()).hexdigest()[:8]
    return f"{digest[:2]}/{slug}-{digest}{part}.yaml"


# --- leases -----------------------------------------------------------------------------------


def write_lease(lease: Lease) -> bytes:
    """The file of a lease. What only parked ones say stands in no other."""
    return write_plain(
        {
            "resource": lease.resource.text,
            "scope": lease.scope,
            "holder": lease.holder,
            "session": lease.session,
            "state": lease.state.value,
            "token": lease.token,
            "ttl": lease.ttl,
            "claimed_at": rfc3339_ms(lease.claimed_at),
            "renewed_at": rfc3339_ms(lease.renewed_at),
            "expires_at": rfc3339_ms(lease.expires_at),
            "renewals": lease.renewals,
            "paths": list(lease.paths),
            "reason": lease.reason,
            "host": lease.host,
            "branch": lease.branch,
            "edge": lease.edge,
            "lease_id": lease.lease_id,
            "operation": lease.operation,
            "margins": {
                "skew": lease.margins.skew,
                "drift": lease.margins.drift,
                "grace": lease.margins.grace,
                "rule": lease.margins.rule.value,
            },
        }
        | ({"parked": True} if lease.parked else {})
    )


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
    fields = read_fields(data, MAX_RECORD)
    lease = Lease(
        resource=fields.resource("resource"),
        scope=fields.scope("scope"),
        holder=fields.word("holder"),
        session=fields.maybe("session", 128),
        lease_id=fields.word("lease_id"),
        token=fields.number("token", least=1),
        ttl=fields.number("ttl", least=1, most=MAX_DURATION_MS // 1_000),
        claimed_at=fields.time("claimed_at"),
        renewed_at=fields.time("renewed_at"),
        expires_at=fields.time("expires_at"),
        renewals=fields.number("renewals"),
        paths=fields.paths("paths"),
        reason=fields.maybe("reason", MAX_REASON),
        host=fields.maybe("host"),
        branch=fields.maybe("branch"),
        state=fields.one_of("state", {s.value: s for s in (State.ACTIVE, State.COMPLETED)}),
        edge=fields.one_of("edge", {"true": True, "false": False}),
        operation=fields.word("operation"),
        margins=fields.margins("margins"),
        parked=fields.one_of("parked", {"true": True, "false": False}, absent=False),
    )
    if lease.parked and (lease.session is not None or lease.state is not State.ACTIVE):
        raise BadRecord("parked, and a session's or completed")
    if not 0 <= lease.duration_ms <= MAX_DURATION_MS:
        raise BadRecord("expires_at is before renewed_at, or ten years after it")
    return lease


# --- notes and notices ------------------------------------------------------------------------


def write_notes(resource: Resource, notes: tuple[Note, ...]) -> bytes:
    items = [
        {"id": n.id, "author": n.author, "at": rfc3339_ms(n.at), "text": n.text} for n in notes
    ]
    return write_plain({"resource": resource.text, "notes": items})


def read_notes(data: bytes, *, file: str) -> tuple[Note, ...]:
    """The notes in a file of this name; BadRecord says what is wrong."""
    fields = read_fields(data, MAX_MESSAGES)
    resource = fields.resource("resource")
    if notes_file(resource) != file:
        raise BadRecord("its name and its content disagree")
    return tuple(
        Note(
            id=item.word("id"),
            resource=resource,
            author=item.word("author"),
            at=item.time("at"),
            text=item.text("text", MAX_NOTE),
        )
        for item in fields.items("notes", NOTES_KEPT)
    )


def write_notices(holder: str, notices: tuple[Notice, ...]) -> bytes:
    items = [
        {
            "id": n.id,
            "what": n.what,
            "resource": n.resource,
            "scope": n.scope,
            "session": n.session,
            "by": n.by,
            "at": rfc3339_ms(n.at),
            "reason": n.reason,
        }
        for n in notices
    ]
    return write_plain({"to": holder, "notices": items})


def read_notices(data: bytes, *, file: str) -> tuple[Notice, ...]:
    """The notices in a file of this name; BadRecord says what is wrong."""
    fields = read_fields(data, MAX_MESSAGES)
    to = fields.word("to")
    if notices_file(to) != file:
        raise BadRecord("its name and its content disagree")
    return tuple(
        Notice(
            id=item.word("id"),
            to=to,
            session=item.maybe("session", 128),
            what=item.one_of("what", {word: word for word in NOTICED}),
            resource=item.word("resource", 600),
            scope=item.scope("scope"),
            by=item.word("by"),
            at=item.time("at"),
            reason=item.maybe("reason", MAX_REASON),
        )
        for item in fields.items("notices", NOTICES_KEPT)
    )


# --- the header -------------------------------------------------------------------------------


def write_header(header: Header) -> bytes:
    """The file ``ledger.yaml``."""
    policy = header.policy
    return write_plain(
        {
            "format": FORMAT,
            "id": header.ledger_id,
            "revision": header.revision,
            "epoch": header.epoch,
            "sequence": header.sequence,
            "policy": {
                "ttl_max": policy.ttl_max,
                "ttl_min": policy.ttl_min,
                "skew": policy.skew,
                "drift": policy.drift,
                "grace": policy.grace,
                "rule": policy.rule.value,
                "admins": list(policy.admins),
                "history": policy.history.value,
                "keep_completed": policy.keep_completed,
                "park_max": policy.park_max,
            },
            "digest": header.digest,
            "ring": [f"{e.operation} {e.revision} {e.outcome}" for e in header.ring],
        }
    )


def read_header(data: bytes) -> Header:
    """The header; Invalid when the ledger is damaged or of a newer format than this gitlease."""
    # A newer format may use what this one refuses, so it is looked for before anything is parsed.
    newer = _FORMAT_LINE.search(data[:4_096])
    if newer is not None and int(newer[1]) > FORMAT:
        raise Invalid(
            f"the ledger has format {int(newer[1])}; this gitlease knows formats up to {FORMAT}",
            hints=("upgrade gitlease: pip install --upgrade gitlease",),
        )
    try:
        fields = read_fields(data, MAX_HEADER)
        fields.number("format", least=1, most=FORMAT)  # the next change raises an older one
        policy = fields.mapping("policy")
        header = Header(
            ledger_id=fields.word("id", 64),
            revision=fields.number("revision"),
            epoch=fields.number("epoch", most=10**5),
            sequence=fields.number("sequence", most=10**12 - 1),
            policy=Policy(
                ttl_max=policy.number("ttl_max"),
                ttl_min=policy.number("ttl_min"),
                skew=policy.number("skew"),
                drift=policy.number("drift"),
                grace=policy.number("grace"),
                rule=policy.one_of("rule", {r.value: r for r in Rule}),
                admins=policy.words("admins"),
                history=policy.one_of("history", {h.value: h for h in History}),
                keep_completed=policy.number("keep_completed"),
                park_max=policy.number("park_max", absent=DEFAULT_POLICY.park_max),
            ),
            ring=tuple(_ring_entry(x) for x in fields.words("ring", RING_SIZE)),
            digest=fields.maybe("digest", 64),
        )
        if wrong := header.policy.problem():
            raise BadRecord(f"its policy: {wrong}")
    except (BadRecord, GitleaseError) as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    return header


def _ring_entry(line: str) -> RingEntry:
    parts = line.split(" ")
    if len(parts) != 3 or not parts[1].isdecimal() or len(parts[1]) > 18 or len(line) > MAX_ENTRY:
        raise BadRecord("its ring has an entry that is none")
    return RingEntry(parts[0], int(parts[1]), parts[2])
