"""The rules of an end: a grant ends by its holder, by an admin, or after its lapse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ledger_checker.commit import NamedOperation
from ledger_checker.form import LeaseRecord, fold, own_pattern, person
from ledger_checker.paths import any_overlap
from ledger_checker.restorations import displaces
from ledger_checker.sessions import may_speak, stood_before
from ledger_checker.state import MS, JudgedStep, about, scopes_meet

# Objections to an operation that would explain an end, the most specific first.
_ORDER = ("lapse", "takeover", "reopen", "holder", "unexplained")
FINE = ("", "")  # no objection


def check_end(step: JudgedStep, old: LeaseRecord) -> None:
    """Check that the step had the right to end a grant, or to replace it with another one."""
    if step.declared is None:
        return
    if step.hidden:
        step.breaks("renewal", f"{about(old)} is gone, and there are only renewals between")
        return
    op = ended_by(step, old)
    if op is not None:
        by_time = op.kind in ("Claim", "Complete", "Retire") and not old.completed
        step.unjudged += by_time and not op.is_by(old.holder) and step.lapsed(old) is None
        return
    found = [_objection(step, op, old) for op in step.operations]
    gone = ("unexplained", f"{about(old)} of {old.holder} is gone, and no operation ended it")
    objections = [why for why in (gone, *found) if why is not None]
    step.breaks(*min(objections, key=lambda why: _ORDER.index(why[0])))


def ended_by(step: JudgedStep, old: LeaseRecord) -> NamedOperation | None:
    """The first operation of a step that may have ended a grant, and had the right to."""
    return next((op for op in step.operations if _objection(step, op, old) == FINE), None)


def taken_from(step: JudgedStep, old: LeaseRecord) -> list[NamedOperation]:
    """The operations that may have ended somebody else's work: the holder must get a notice."""
    if step.declared is None or step.hidden or old.completed:
        return []
    takes = (op for op in step.operations if op.kind in ("Claim", "Revoke", "Retire"))
    return [op for op in takes if not op.is_by(old.holder) and _objection(step, op, old) == FINE]


def _objection(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> tuple[str, str] | None:
    """The objection to an operation that may have ended a grant; None if it did not end it."""
    stood = dict.fromkeys(stood_before(step, op, old, fits=fits) for fits in (True, False))
    found = [_objection_to_state(step, op, lease) for lease in stood]
    return FINE if FINE in found else next((why for why in found if why is not None), None)


def _objection_to_state(
    step: JudgedStep, op: NamedOperation, old: LeaseRecord
) -> tuple[str, str] | None:
    if op.kind in ("Claim", "Complete"):
        return _by_grant(step, op, old)
    if op.kind in ("Release", "EndSession", "RunOut"):
        return _by_holder(step, op, old)
    if op.kind == "Revoke":
        same = op.resource == old.key[0] and _in_scope(op, old) and not old.completed
        return FINE if same else None
    if op.kind == "Retire":
        return _by_retirement(step, op, old)
    if op.kind == "PutBack":
        return displaces(step, op, old)
    return None


def _by_grant(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> tuple[str, str] | None:
    if not (_claims(step, op, old) if op.kind == "Claim" else _completes(op, old)):
        return None
    name = about(old)
    if old.completed:
        kept = min(policy.keep_completed for policy in step.policies)
        if op.fields.get("reopen") or step.at >= old.renewed_at + kept * MS:
            return FINE
        return "reopen", f"{name} is completed, and is claimed without being reopened"
    own = op.is_by(old.holder)
    if own and may_speak(op, old, ending=False):
        if old.parked or step.ran_out(old):
            return FINE
        return "lapse", f"{op.holder} has a new grant over a live one of {name}"
    if step.lapsed(old) is False:
        return "lapse", f"{op.holder} takes {name} of {old.holder} before it lapsed"
    if old.edge and not own and not (op.fields.get("abandoned") and step.abandoned(old)):
        if op.kind == "Complete" or not op.fields.get("takeover"):
            return (
                "takeover",
                f"{name} is assigned to {old.holder}, and is taken without a takeover",
            )
        if not str(op.fields.get("reason") or "").strip():
            return "takeover", f"{name} is taken over from {old.holder} without a reason"
    expected = op.fields.get("expect_holder")
    if expected is not None and not own and person(str(expected)) != person(old.holder):
        return "takeover", f"{name} is taken from {old.holder}, and {expected} was expected"
    return FINE


def _by_holder(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> tuple[str, str] | None:
    if op.kind in ("EndSession", "RunOut"):
        keeps = old.edge if op.kind == "RunOut" else step.outcomes[op.id] != "released"
        if keeps or old.lease_id not in op.grants():
            return None
        fine = op.is_by(old.holder) and old.session == op.grants()[old.lease_id]
    else:
        if op.resource != old.key[0] or not _in_scope(op, old) or old.completed:
            return None
        fine = op.is_by(old.holder)
        if fine and not may_speak(op, old, ending=True):
            fine = step.lapsed(old) is not False
    why = f"{about(old)} is {old.holder}'s, and {op.holder} gives it back"
    return FINE if fine else ("holder", why)


def _by_retirement(
    step: JudgedStep, op: NamedOperation, old: LeaseRecord
) -> tuple[str, str] | None:
    item = next((x for x in op.fields.get("items") or () if _names(x, old)), None)
    if item is None or old.completed:
        return None
    own = op.is_by(old.holder)
    over = step.ran_out(old) if own and may_speak(op, old, ending=False) else False
    if not over and step.lapsed(old) is False:
        return "lapse", f"{about(old)} of {old.holder} is retired before it lapsed"
    if old.edge and not own and not item.get("assigned"):
        return "takeover", f"{about(old)} is assigned to {old.holder}, and is retired nevertheless"
    return FINE


def _names(item: Mapping[str, Any], old: LeaseRecord) -> bool:
    return any(grant.get("lease_id") == old.lease_id for grant in item.get("grants") or ())


def _in_scope(op: NamedOperation, old: LeaseRecord) -> bool:
    scope = op.fields.get("scope")
    return scope is None or fold(str(scope)) == old.key[1]


def _completes(op: NamedOperation, old: LeaseRecord) -> bool:
    return (op.resource, fold(str(op.fields.get("scope") or "*"))) == old.key


def _claims(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> bool:
    """Whether a claim conflicts with a record: by the same work, a common file, or its edge."""
    scope = fold(str(op.fields.get("scope") or "*"))
    its_edge = old.edge and bool(op.fields.get("takeover") or op.fields.get("abandoned"))
    if op.resource == old.key[0] and (scopes_meet(scope, old.key[1]) or its_edge):
        return True
    if old.completed:
        return False
    wanted = [*(op.fields.get("paths") or ()), *_own_paths(step, (op.resource, scope))]
    own = own_pattern(str(op.fields["resource"]))
    return any_overlap([*wanted, *([] if own is None else [own])], old.patterns)


def _own_paths(step: JudgedStep, key: tuple[str, str]) -> Iterable[str]:
    """The paths of its own lease, before and now."""
    for lease in step.changed.get(key, ()):
        if lease is not None:
            yield from lease.paths
