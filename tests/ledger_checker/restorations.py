"""The rules of a ledger that was deleted and put back: its epoch, its wait, and its leases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ledger_checker.commit import NamedOperation
from ledger_checker.form import (
    EPOCH_SIZE,
    LeaseRecord,
    LedgerPolicy,
    fold,
    own_pattern,
    resource_key,
)
from ledger_checker.paths import any_overlap
from ledger_checker.state import MS, JudgedStep, about, scopes_meet

DAY = 86_400
_FIRST_DAY = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * MS


def begin(step: JudgedStep, token: int, above: Any) -> int:
    """The token with which a restoration begins: of its time, and above all that are known."""
    known = max(token, above if isinstance(above, int) else 0)
    since = max(step.at - _FIRST_DAY, 0)
    of_time = since // (DAY * MS) * EPOCH_SIZE + since % (DAY * MS) * 10_000
    return of_time if of_time > known else (known // EPOCH_SIZE + 1) * EPOCH_SIZE


def check_wait(step: JudgedStep) -> None:
    """Check when a restored ledger grants again, and who decides that."""
    before = None if step.before is None else step.before.closed_until
    if step.declared is None:
        return
    expected = before
    for op in step.operations:
        restores = op.kind == "Restore" and bool(op.fields.get("waits"))
        if not restores and op.kind != "EndWait":
            continue
        if all(p.admins and not p.is_admin(op.holder) for p in step.policies):
            step.breaks("admin", f"{op.holder} decides on a wait, and is not an admin")
        if op.kind == "EndWait":
            expected = step.at if expected is not None and step.at < expected else expected
        else:
            least = max(step.at + _wait(p) * MS for p in step.policies)
            expected = max(least, expected or 0)
    if step.header.closed_until != expected:
        step.breaks("wait", "the time at which it grants again is not that of its operations")


def _wait(policy: LedgerPolicy) -> int:
    longest, margins = max(DAY, policy.ttl_max), policy.margins
    return longest - (-longest * margins.drift // 1_000_000) + margins.grace + margins.skew


def is_closed(step: JudgedStep) -> bool:
    """Whether nothing new may be granted in a step."""
    until = None if step.before is None else step.before.closed_until
    ended = any(op.kind == "EndWait" for op in step.operations)
    return until is not None and step.at < until and not ended


def putting_back(step: JudgedStep, new: LeaseRecord) -> tuple[NamedOperation, Any] | None:
    """The operation that put a record back, and the lease that it named."""
    for op in step.operations:
        if op.kind == "PutBack" and new.operation == op.id:
            for lease in op.fields.get("leases") or ():
                if lease.get("lease_id") == new.lease_id:
                    return op, lease
    return None


def check_put_back(step: JudgedStep, op: NamedOperation, lease: Any, new: LeaseRecord) -> None:
    """Check the record of a lease that was put back against the one that was named."""
    name = about(new)
    if not is_closed(step):
        step.breaks("wait", f"{name} is put back, and the ledger does not wait")
    if not op.is_by(new.holder):
        step.breaks("holder", f"{name} is {new.holder}'s, and {op.holder} puts it back")
    if new.token >= step.header.token or new.claimed_at > step.at + DAY * MS:
        step.breaks("token", f"{name} has a token that was not given before the restoration")
    expected = {
        "resource": new.resource,
        "scope": new.scope,
        "holder": new.holder,
        "session": new.session,
        "state": "completed" if new.completed else "active",
        "token": new.token,
        "ttl": new.ttl,
        "claimed_at": new.claimed_at,
        "expires_at": new.expires_at,
        "paths": list(new.paths),
        "reason": new.reason,
        "host": new.host,
        "branch": new.branch,
        "edge": new.edge,
        "parked": new.parked,
        "picked": new.picked,
    }
    given = {"parked": False, "picked": False, **lease}
    wrong = [key for key, value in expected.items() if given.get(key) != value]
    if new.completed or new.renewed_at != step.at or new.renewals != lease["renewals"] + 1:
        wrong.append("renewed_at")
    if wrong:
        step.breaks("record", f"the {wrong[0]} of {name} is not that of the lease put back")


def displaces(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> tuple[str, str] | None:
    """The objection to a lease put back in the place of a record; None if it is not."""
    if not any(_meets(lease, old) for lease in op.fields.get("leases") or ()):
        return None
    name = about(old)
    if op.is_by(old.holder) or old.completed:
        return "", ""
    if step.lapsed(old) is False:
        return "lapse", f"{op.holder} puts back {name} of {old.holder} before it lapsed"
    if old.edge and not old.picked:
        return "takeover", f"{name} is assigned to {old.holder}, and is put back to another"
    return "", ""


def _meets(lease: Mapping[str, Any], old: LeaseRecord) -> bool:
    if lease.get("lease_id") == old.lease_id:
        return False
    resource, scope = str(lease["resource"]), fold(str(lease.get("scope") or "*"))
    if resource_key(resource) == old.key[0] and scopes_meet(scope, old.key[1]):
        return True
    return any_overlap([*_patterns(resource, lease)], old.patterns)


def _patterns(resource: str, lease: Mapping[str, Any]) -> Iterator[str]:
    own = own_pattern(resource)
    yield from [] if own is None else [own]
    yield from lease.get("paths") or ()
