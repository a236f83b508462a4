"""Who may change a lease, and what binds it to a session or unbinds it."""

from __future__ import annotations

from dataclasses import replace

from ledger_checker.commit import NamedOperation
from ledger_checker.form import LeaseRecord, fold, resource_key
from ledger_checker.state import JudgedStep

REBINDS = ("Bind", "Unbind", "RunOut")  # they renew nothing, so their records are known exactly
_NAMES_GRANTS = ("EndSession", "Unbind", "RunOut")
_CHANGES = ("Renew", "Extend", "Claim", "Park", "Complete", "Bind", *_NAMES_GRANTS)


def concerns(op: NamedOperation, lease: LeaseRecord) -> bool:
    """Whether an operation, of a kind that changes leases within their grants, names this one."""
    if op.kind not in _CHANGES:
        return False
    if op.kind in _NAMES_GRANTS or op.fields.get("grants"):
        return lease.lease_id in op.grants()
    named = {op.resource}
    if op.kind == "Bind":
        named = {resource_key(str(name)) for name in op.fields.get("resources") or ()}
    if lease.key[0] not in named:
        return False
    scope = op.fields.get("scope", "*" if op.kind in ("Claim", "Bind") else None)
    return scope is None or fold(str(scope)) == lease.key[1]


def may_speak(op: NamedOperation, lease: LeaseRecord, *, ending: bool) -> bool:
    """Whether the session of an operation may change a lease, or the person may end it."""
    grants = op.grants()
    if grants:
        return lease.session in (None, grants.get(lease.lease_id))
    return lease.session in (None, op.session) or (ending and op.session is None)


def speaks(op: NamedOperation, lease: LeaseRecord) -> bool:
    """Whether an operation that changes a lease comes from the right session."""
    if op.kind == "Bind":
        return lease.session is None and op.session is not None
    if op.kind not in _NAMES_GRANTS:
        return may_speak(op, lease, ending=op.kind in ("Complete", "Park"))
    unbinds = op.kind == "Unbind"
    mine = lease.session is not None and op.session in (None, lease.session)
    return op.grants()[lease.lease_id] == lease.session and (mine or not unbinds)


def changed(
    step: JudgedStep, op: NamedOperation, lease: LeaseRecord, *, fits: bool
) -> LeaseRecord | None:
    """The record of a lease after an operation; None if that skips or ends it.

    After a renewal the end and the margins are still the old ones: they follow from the policy.
    ``fits``: if bound to a session, it shares no work with another session of its holder.
    """
    if lease.completed or not op.is_by(lease.holder) or not concerns(op, lease):
        return None
    after = replace(lease, operation=op.id)
    if op.kind == "Complete":
        if not speaks(op, lease) and step.lapsed(lease) is False:
            return None
        return replace(
            after,
            completed=True,
            parked=False,
            picked=False,
            renewed_at=step.at,
            expires_at=step.at,
        )
    if not speaks(op, lease):
        return None
    if op.kind == "Unbind":
        return replace(after, session=None, host=_machine(lease.host))
    if op.kind == "RunOut":
        return _run_out(step, after) if lease.edge else None
    if step.ran_out(lease) or (lease.parked and op.kind not in ("Park", "EndSession")):
        return None
    if op.kind == "Bind":
        return _bound(op, after) if fits else None
    return _renewed(step, op, after, fits=fits)


def _run_out(step: JudgedStep, lease: LeaseRecord) -> LeaseRecord:
    if lease.expires_at > step.at:
        lease = replace(lease, renewed_at=step.at, expires_at=step.at)
    return replace(lease, session=None)


def _bound(op: NamedOperation, lease: LeaseRecord) -> LeaseRecord:
    return replace(lease, session=op.session, host=op.actor.get("host") or lease.host)


def _renewed(
    step: JudgedStep, op: NamedOperation, lease: LeaseRecord, *, fits: bool
) -> LeaseRecord:
    fields, session = op.fields, lease.session
    reason = (op.kind in ("Claim", "Park") and fields.get("reason")) or lease.reason
    lease = replace(lease, renewed_at=step.at, renewals=lease.renewals + 1, reason=reason)
    if op.kind in ("Park", "EndSession"):
        return replace(lease, session=None, parked=True, picked=False)
    if fits and session is None and op.actor.get("session_explicit"):
        session = op.session if op.kind != "Renew" or op.resource else None
    if op.kind != "Claim":
        ttl = fields.get("ttl") if op.kind == "Renew" else None
        return replace(lease, session=session, ttl=ttl or lease.ttl)
    here, binds = op.actor.get("host"), session != lease.session
    return replace(
        lease,
        session=session,
        paths=tuple(dict.fromkeys((*lease.paths, *(fields.get("paths") or ())))),
        host=(binds and here) or lease.host or here,
        branch=op.actor.get("branch") or lease.branch,
        edge=lease.edge or bool(fields.get("edge")),
        picked=lease.picked and bool(fields.get("picked")),
    )


def stood_before(
    step: JudgedStep, op: NamedOperation, lease: LeaseRecord, *, fits: bool
) -> LeaseRecord:
    """A lease before one operation of the step, after those before it (see ``changed``)."""
    for earlier in step.operations:
        if earlier.id == op.id:
            break
        lease = changed(step, earlier, lease, fits=fits) or lease
    return lease


def _machine(host: str | None) -> str | None:
    """The machine of a host, without the process."""
    name, colon, process = (host or "").rpartition(":")
    return name if colon and process.isascii() and process.isdecimal() else host
