"""What admins and neighbours do to a ledger: ``revoke``, ``note``, its policy, and ``confirm``."""

from __future__ import annotations

from gitlease.core.moves.operations import AddNote, Barrier, DropRecord, Revoke, SetPolicy
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, Reading
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.stepping import change
from gitlease.engine.transaction import fresh_id


def revoke(
    session: LedgerSession,
    resource: Resource,
    *,
    reason: str,
    scope: str | None = None,
    expect_holder: str | None = None,
) -> Answer:
    """End someone else's lease; for the ledger's admins."""
    op = Revoke(
        id=fresh_id(),
        actor=session.actor,
        resource=resource,
        reason=reason,
        scope=scope,
        expect_holder=expect_holder,
    )
    return change(session, "revoke", [op])


def drop_record(session: LedgerSession, file: str, *, reason: str) -> Answer:
    """Remove a record that cannot be read; for the ledger's admins."""
    op = DropRecord(id=fresh_id(), actor=session.actor, file=file, reason=reason)
    return change(session, "revoke", [op])


def note(session: LedgerSession, resource: Resource, text: str) -> Answer:
    """Leave a note for the next holder."""
    op = AddNote(id=fresh_id(), actor=session.actor, resource=resource, text=text)
    return change(session, "note", [op], notes_of=[resource])


def set_policy(session: LedgerSession, changes: dict[str, str]) -> Answer:
    """Change the ledger's policy, making the ledger where there is none."""
    op = SetPolicy(id=fresh_id(), actor=session.actor, changes=tuple(changes.items()))
    return change(session, "config", [op])


def confirm(session: LedgerSession) -> Reading:
    """Accept the ledger that the remote has now; makes one where there is none."""
    head = session.store.confirm(session.layer)
    if head.ledger is None:
        change(session, "init", [Barrier(id=fresh_id(), actor=session.actor)])
        head = session.store.known(session.layer) or head
    warnings = session.warnings_of(head)
    if head.ledger is None:
        return Reading(warnings=warnings)
    header = head.ledger.header
    return Reading(
        policy=header.policy,
        ledger_id=header.ledger_id,
        revision=header.revision,
        warnings=warnings,
    )
