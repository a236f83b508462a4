"""The rules of a grant that goes on: renewed, extended, bound, parked or completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import reduce

from ledger_checker.commit import MAX_OPERATIONS, NamedOperation
from ledger_checker.form import Allowance, LeaseRecord
from ledger_checker.restorations import check_put_back, putting_back
from ledger_checker.sessions import REBINDS, changed, concerns, speaks
from ledger_checker.state import MS, JudgedStep, about

Problem = tuple[str, str]
_FOR_GOOD = ("resource", "scope", "holder", "token", "claimed_at")


def check_renewal(step: JudgedStep, old: LeaseRecord, new: LeaseRecord) -> None:
    """Check the record of a grant against the one before the step."""
    name = about(old)
    if (back := putting_back(step, new)) is not None:
        check_put_back(step, *back, new)
    for key in _FOR_GOOD:
        if getattr(old, key) != getattr(new, key):
            rule = "token" if key == "token" else "record"
            step.breaks(rule, f"the {key} of {name} changes within one grant")
    if step.hidden:
        _check_replaced(step, old, new)
        return
    if step.declared is None or back is not None:
        return
    asked = [op for op in step.operations if concerns(op, old)]
    if new.operation not in {op.id for op in asked}:
        message = f"the record of {name} changes, but no operation of the step did that"
        step.breaks("unexplained", message)
        return
    found: list[Problem] = []
    for fits in (True, False):  # whether a session may have it alone depends on other leases
        problems = list(_problems(step, asked, old, new, fits=fits))
        if not problems:
            return
        found = found or problems
    for rule, message in found:
        step.breaks(rule, message)


def _problems(
    step: JudgedStep,
    asked: Sequence[NamedOperation],
    old: LeaseRecord,
    new: LeaseRecord,
    *,
    fits: bool,
) -> Iterator[Problem]:
    state, done = old, list[NamedOperation]()
    for op in asked:
        made = changed(step, op, state, fits=fits)
        if made is not None:
            state = made
            done.append(op)
        elif op.id == new.operation:
            yield _refusal(step, op, state)
            return
    last, kinds = done[-1], {op.kind for op in done}
    renews = [op for op in done if op.kind not in REBINDS]
    over = bool(kinds & {"Complete", "RunOut"})
    unsure = {"margins"} if renews else set()
    unsure |= {"ttl"} if "Claim" in kinds else set()
    unsure |= {"expires_at"} if renews and not over else set()
    compared = [f.name for f in fields(new) if f.name not in {*_FOR_GOOD, "key", *unsure}]
    wrong = [key for key in compared if getattr(new, key) != getattr(state, key)]
    if renews and not step.policy_unsure and new.margins not in _margins(step, old, last):
        wrong.append("margins")
    if wrong:
        message = f"{wrong[0]} in the record of {about(old)} is not what {last.kind} makes of it"
        yield "record", message
    if renews and not over:
        yield from _length_problems(step, renews, old, new)


def _refusal(step: JudgedStep, op: NamedOperation, lease: LeaseRecord) -> Problem:
    name = about(lease)
    if not op.is_by(lease.holder):
        return "holder", f"{name} is {lease.holder}'s, but {op.holder} changes it"
    if lease.completed:
        return "lost", f"{name} is completed, but {op.kind} changes it"
    if not speaks(op, lease):
        whose = "no session" if lease.session is None else f"session {lease.session}"
        return "holder", f"{name} is bound to {whose}, but another changes it"
    if op.kind == "RunOut":
        return "record", f"{name} has no edge, but stays when it runs out"
    what = "is parked" if lease.parked else "had run out"
    return "lost", f"{name} {what}, but {op.kind} continues it"


def _margins(step: JudgedStep, old: LeaseRecord, last: NamedOperation) -> list[Allowance]:
    # If the policy changes in the step, those of either, or the larger of both.
    if last.kind == "Complete":
        return [policy.margins for policy in step.policies]
    each = [old.margins.widest(policy.margins) for policy in step.policies]
    return [*each, reduce(Allowance.widest, each)]


def _length_problems(
    step: JudgedStep, asked: Sequence[NamedOperation], old: LeaseRecord, new: LeaseRecord
) -> Iterator[Problem]:
    ttl_max = max(p.ttl_max for p in step.policies)
    park_max = max(p.park_max for p in step.policies)
    own = new.ttl if len(asked) == 1 else max(old.ttl, new.ttl)
    wanted = [_seconds(op, own, park_max) for op in asked]
    parks = any(op.kind in ("Park", "EndSession") for op in asked)
    limit = max(ttl_max, park_max) if parks else ttl_max
    before = old.expires_at - old.renewed_at
    longest = step.at + max(limit * MS, before)
    most = min(max(old.expires_at, step.at + max(wanted) * MS), longest)
    if new.expires_at > most and not step.policy_unsure:
        yield "record", f"{about(old)} lasts longer than was asked for or is allowed"
    least = min(p.park_max if parks else p.ttl_max for p in step.policies)
    if new.expires_at < min(old.expires_at, step.at + max(least * MS, before)):
        yield "record", f"{about(old)} is made shorter"


def _seconds(op: NamedOperation, own: int, park_max: int) -> int:
    asked = op.fields.get("seconds" if op.kind in ("Extend", "Park", "EndSession") else "ttl")
    if isinstance(asked, int):
        return asked
    return park_max if op.kind in ("Park", "EndSession") else own


def _check_replaced(step: JudgedStep, old: LeaseRecord, new: LeaseRecord) -> None:
    # Of several renewals only the last is known: check what none of them may change.
    name, unlike = about(old), []
    for key in ("session", "paths", "reason", "completed", "parked", "picked"):
        if getattr(old, key) != getattr(new, key):
            unlike.append(key)
    if old.edge and not new.edge:
        unlike.append("edge")
    if old.margins.widest(new.margins) != new.margins:
        unlike.append("margins")
    if not 0 < new.renewals - old.renewals <= (step.hidden + 1) * MAX_OPERATIONS:
        unlike.append("renewals")
    ttl_max = step.header.policy.ttl_max
    if new.ttl not in (old.ttl, min(old.ttl, ttl_max)) and not (
        step.header.policy.ttl_min <= new.ttl <= ttl_max
    ):
        unlike.append("ttl")
    longest = max(ttl_max * MS, old.expires_at - old.renewed_at)
    if not 0 < new.expires_at - new.renewed_at <= longest:
        unlike.append("expires_at")
    if unlike:
        step.breaks("record", f"the {unlike[0]} of {name} changes in a renewal")
    _check_source(step, old, new)


def _check_source(step: JudgedStep, old: LeaseRecord, new: LeaseRecord) -> None:
    # The operation is one of the step, or of a renewal that was replaced. The ring names those,
    # unless it is too short to reach back to the step before.
    named = [op for op in step.operations if op.id == new.operation]
    if named and not any(op.is_by(old.holder) and concerns(op, old) for op in named):
        message = f"{about(old)} is {old.holder}'s, but {named[0].holder} changes it"
        step.breaks("holder", message)
    if named and new.renewed_at != step.at:
        step.breaks("record", f"{about(old)} was not renewed when its step was decided")
    ring = step.header.ring
    since = 0 if step.before is None else step.before.revision
    reaches_back = bool(ring) and ring[0][1] <= since + 1
    known = [id for id, revision, _ in ring if revision > since]
    if reaches_back and new.operation not in known:
        message = f"the record of {about(old)} names an operation that is no renewal"
        step.breaks("unexplained", message)
