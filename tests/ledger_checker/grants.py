"""The rules of a grant: who may have one, with which token, and what its record says."""

from __future__ import annotations

import re

from ledger_checker.commit import NamedOperation
from ledger_checker.endings import ended_by
from ledger_checker.form import LeaseRecord, fold
from ledger_checker.restorations import check_put_back, is_closed, putting_back
from ledger_checker.sessions import stood_before
from ledger_checker.state import MS, JudgedStep, LeaseTable, about


def check_grant(step: JudgedStep, old: LeaseRecord | None, new: LeaseRecord) -> None:
    """Check the record of a new grant against its operation. ``old`` is the one it replaced."""
    name, before = about(new), step.before
    if (back := putting_back(step, new)) is not None:
        check_put_back(step, *back, new)
        return
    if is_closed(step):
        step.breaks("wait", f"{name} is granted while the ledger grants nothing new")
    least = before.token if before is not None else 0
    if not least < new.token <= step.header.token:
        message = f"{name} has the token {new.token}, and those of this step are "
        step.breaks("token", f"{message}{least + 1} to {step.header.token}")
    if new.picked and step.header.format < 4:
        step.breaks("format", f"{name} is picked from the queue, which format 4 knows first")
    if step.declared is None:
        return
    op = _source(step, new)
    if op is None:
        step.breaks("unexplained", f"{name} is granted to {new.holder}, but no operation did that")
        return
    if new.holder != op.holder:
        step.breaks("holder", f"{name} is granted to {new.holder}, but {op.holder} asked for it")
    if new.claimed_at != step.at:
        step.breaks("record", f"{name} was not claimed when its step was decided")
    if new.operation == op.id:
        chosen = old is not None and _was_chosen(step, op, old)
        _check_record(step, op, old and _resumed(step, op, old), new, chosen=chosen)
    elif new.operation not in step.outcomes:
        step.breaks("record", f"{name} names an operation that is not of its step")
    hosts = [str(p.texts.get("issues") or "none") for p in step.policies]
    if all(_is_misspelt(new.resource, host) for host in hosts):
        step.breaks("policy", f"{name} is an issue, but not named as on {hosts[0]}")
    limits = [(p.ttl_min, p.ttl_max) for p in step.policies if op.kind == "Claim"]
    if limits and not any(least <= new.ttl <= most for least, most in limits):
        step.breaks("policy", f"{name} has a ttl of {new.ttl}s, which the policy does not allow")


def check_exclusive(
    step: JudgedStep, table: LeaseTable, new: LeaseRecord, *, granted: bool
) -> None:
    """Check that nobody else has what a step grants or binds; ``table`` is the state after it."""
    if new.completed:
        return
    for other in table.conflicts(new):
        lapsed = step.lapsed(other)
        if lapsed is not False and other.edge and other.key[0] != new.key[0]:
            continue  # an edge protects its name, never its paths
        if (granted and step.declared is not None) or lapsed is False:
            message = f"{about(new)} is {_whose(new)} while {about(other)} is {_whose(other)}"
            step.breaks("exclusive", message)
        elif lapsed is None:
            step.unjudged += 1


def _source(step: JudgedStep, new: LeaseRecord) -> NamedOperation | None:
    for op in step.operations:
        if op.kind not in ("Claim", "Complete") or op.fields.get("lease_id") != new.lease_id:
            continue
        scope = fold(str(op.fields.get("scope") or "*"))
        if (op.resource, scope) == new.key:
            return op
    return None


def _resumed(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> LeaseRecord | None:
    """The holder's parked lease that a grant resumes, if any."""
    stood = stood_before(step, op, old, fits=True)
    goes_on = stood.parked and op.is_by(stood.holder) and not step.ran_out(stood)
    return stood if goes_on and ended_by(step, old) is op else None


def _was_chosen(step: JudgedStep, op: NamedOperation, old: LeaseRecord) -> bool:
    """Whether the same person had it by an edge, and not from the queue."""
    stood = stood_before(step, op, old, fits=True)
    return op.is_by(stood.holder) and stood.edge and not stood.picked and not stood.completed


def _check_record(
    step: JudgedStep,
    op: NamedOperation,
    kept: LeaseRecord | None,
    new: LeaseRecord,
    *,
    chosen: bool,
) -> None:
    # A parked lease that is resumed, ``kept``, goes on in the new record.
    fields, wrong = op.fields, []
    duration = 0 if op.kind == "Complete" else new.ttl * MS
    paths, edge = list(fields.get("paths") or ()), bool(fields.get("edge"))
    if kept is not None:
        paths = list(dict.fromkeys((*kept.paths, *paths)))
    expected = {
        "session": (new.session, op.session),
        "state": (new.completed, op.kind == "Complete"),
        "renewed_at": (new.renewed_at, step.at),
        "expires_at": (new.expires_at, step.at + duration),
        "renewals": (new.renewals, 0),
        "paths": (list(new.paths), paths),
        "edge": (new.edge, edge or (kept is not None and kept.edge)),
        "reason": (new.reason, fields.get("reason") or (kept and kept.reason)),
        "host": (new.host, op.actor.get("host")),
        "branch": (new.branch, op.actor.get("branch")),
        "parked": (new.parked, False),
        "picked": (new.picked, bool(fields.get("picked")) and not chosen),
    }
    if fields.get("ttl") is not None:
        expected["ttl"] = (new.ttl, fields["ttl"])
    wrong += [key for key, (found, wanted) in expected.items() if found != wanted]
    if not step.policy_unsure and new.margins not in [p.margins for p in step.policies]:
        wrong.append("margins")
    if wrong:
        message = f"{wrong[0]} in the record of {about(new)} is not what its operation asked for"
        step.breaks("record", message)


def _is_misspelt(resource: str, host: str) -> bool:
    other = {"github": "(GH-)?", "gitlab": "(GL-)?"}.get(host)
    pattern = f"{other}[1-9][0-9]{{0,9}}"
    return other is not None and re.fullmatch(pattern, resource, re.IGNORECASE) is not None


def _whose(lease: LeaseRecord) -> str:
    session = "" if lease.session is None else f", session {lease.session}"
    return f"{lease.holder}'s{session}"
