"""Reads the commit of a step: who wrote it and when, its events, and its operations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger_checker.form import person, resource_key

MAX_OPERATIONS = 64
OPERATIONS = "operations: "
RENEWAL, DECISION = "step: renewal", "step: decision"
# The known operations, each with the outcomes that mean success.
OUTCOMES: Mapping[str, frozenset[str]] = {
    "Claim": frozenset({"claimed", "taken_over", "renewed"}),
    "Bind": frozenset({"bound"}),
    "Unbind": frozenset({"unbound"}),
    "Renew": frozenset({"renewed"}),
    "Extend": frozenset({"extended"}),
    "Release": frozenset({"released"}),
    "Unassign": frozenset({"unassigned"}),
    "Complete": frozenset({"completed"}),
    "Park": frozenset({"parked"}),
    "EndSession": frozenset({"parked", "released"}),
    "RunOut": frozenset({"run_out"}),
    "Revoke": frozenset({"revoked"}),
    "Retire": frozenset({"retired"}),
    "AddNote": frozenset({"noted"}),
    "SetPolicy": frozenset({"policy_changed"}),
    "Acknowledge": frozenset({"acknowledged"}),
    "Barrier": frozenset({"barrier"}),
    "Restore": frozenset({"restored"}),
    "EndWait": frozenset({"wait_ended"}),
    "PutBack": frozenset({"put_back"}),
    "DropRecord": frozenset({"dropped"}),
    "MoveLedger": frozenset({"moved"}),
    "OpenMoved": frozenset({"opened"}),
    "TakeTicket": frozenset({"waiting"}),
    "LeaveTicket": frozenset({"left"}),
}
REFUSALS = frozenset(
    {
        *("held", "wait_timeout", "nothing_left", "usage", "lost", "not_holder", "denied"),
        *("unavailable", "unknown_outcome", "policy", "invalid", "not_found", "rollback"),
    }
)
_WHO = re.compile(rb"[^<>\n]* ?<([^<>\n]*)> (-?[0-9]{1,18}) [+-][0-9]{4}")
_HEADERS = (b"tree", b"parent", b"author", b"committer")


@dataclass(frozen=True, slots=True)
class NamedOperation:
    """One operation that a commit names, with its fields there."""

    id: str
    kind: str
    holder: str
    session: str | None
    actor: Mapping[str, Any]
    fields: Mapping[str, Any]

    @property
    def resource(self) -> str:
        """The folded resource that it is about; ``""`` if it names none."""
        return resource_key(str(self.fields.get("resource") or ""))

    def grants(self) -> dict[str, str | None]:
        """The nonces of the grants that it names, each with its session."""
        named = list(self.fields.get("grants") or ())
        for item in self.fields.get("items") or ():
            named += item.get("grants") or ()
        return {str(one.get("lease_id")): one.get("session") for one in named}

    def is_by(self, holder: str) -> bool:
        """Whether this person asked for it."""
        return person(self.holder) == person(holder)


@dataclass(frozen=True, slots=True)
class DeclaredStep:
    """What a commit declares of its step: its operations, and what only its writer knew.

    ``at`` is when it was decided, in wall-clock milliseconds; ``over`` has the nonces of grants
    that had run out by its clock. ``gateway`` joined the operations of several holders.
    """

    at: int
    operations: tuple[NamedOperation, ...]
    over: frozenset[str]
    ledger_id: str | None
    gateway: str | None


@dataclass(frozen=True, slots=True)
class StepCommit:
    """A commit. ``operations`` is the line that names them, None without one.

    Times are seconds. ``plain``: it has no header but those of every commit.
    """

    tree: str
    parents: tuple[str, ...]
    email: str
    authored: int
    committed: int
    plain: bool
    renewal: bool | None
    operations: str | None
    events: tuple[str, ...]


class BadOperations(Exception):
    """The line of operations is not one that gitlease writes; the message says why."""


def read_commit(data: bytes) -> StepCommit | None:
    """Parse a commit; None if it is malformed."""
    head, _, message = data.partition(b"\n\n")
    found: dict[bytes, list[bytes]] = {name: [] for name in _HEADERS}
    plain = True
    for line in head.split(b"\n"):
        name, _, value = line.partition(b" ")
        if name in found:
            found[name].append(value)
        else:
            plain = False
    author = _WHO.fullmatch(b"".join(found[b"author"]))
    committer = _WHO.fullmatch(b"".join(found[b"committer"]))
    if len(found[b"tree"]) != 1 or author is None or committer is None:
        return None
    lines = message.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    named = [line for line in lines if line.startswith(OPERATIONS)]
    return StepCommit(
        tree=found[b"tree"][0].decode("ascii", "replace"),
        parents=tuple(parent.decode("ascii", "replace") for parent in found[b"parent"]),
        email=author[1].decode("utf-8", "replace"),
        authored=int(author[2]),
        committed=int(committer[2]),
        plain=plain and author[0] == committer[0],
        renewal=last == RENEWAL if last in (RENEWAL, DECISION) else None,
        operations=named[0].removeprefix(OPERATIONS) if len(named) == 1 else None,
        events=tuple(line for line in lines if line.startswith("{")),
    )


def read_operations(line: str) -> DeclaredStep:
    """Parse the line that names operations. Raises BadOperations."""
    try:
        data = json.loads(line)
        if json.dumps(data, ensure_ascii=False, separators=(",", ":")) != line:
            raise BadOperations("they are not written as gitlease writes them")
        return _read(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadOperations("they are not the JSON of a step") from None


def _read(data: Any) -> DeclaredStep:
    listed, actor = data["do"], data["actor"]
    if not 1 <= len(listed) <= MAX_OPERATIONS:
        raise BadOperations(f"a step has 1 to {MAX_OPERATIONS} of them, not {len(listed)}")
    operations = tuple(_operation(one, one.get("actor", actor)) for one in listed)
    gateway = data.get("gateway")
    if gateway is not None and (not isinstance(gateway, str) or not gateway):
        raise BadOperations("their gateway is not a name")
    if type(data["at"]) is not int:
        raise BadOperations("they have no time")
    return DeclaredStep(
        at=data["at"],
        operations=operations,
        over=frozenset(data.get("over", ())),
        ledger_id=data.get("ledger_id"),
        gateway=gateway,
    )


def _operation(fields: Mapping[str, Any], actor: Mapping[str, Any]) -> NamedOperation:
    kind, id = fields["op"], fields["id"]
    if kind not in OUTCOMES:
        raise BadOperations(f"{ascii(kind)[:40]} is not a known operation")
    if not re.fullmatch(r"[!-~]{1,64}", id):
        raise BadOperations(f"{ascii(id)[:40]} is not the id of an operation")
    if len(fields.get("resources") or ()) > MAX_OPERATIONS:
        raise BadOperations(f"one names more than {MAX_OPERATIONS} resources")
    holder = actor["holder"]
    if not isinstance(holder, str) or not holder.strip():
        raise BadOperations("they do not say who asked for them")
    return NamedOperation(id, kind, holder, actor.get("session"), actor, fields)
