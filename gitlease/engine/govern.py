"""What admins and neighbours do to a ledger: ``revoke``, ``note``, its policy, and ``confirm``."""

from __future__ import annotations

from collections.abc import Mapping

from gitlease.core.errors import PolicyRefused, Rollback, UsageError
from gitlease.core.frozen import replace
from gitlease.core.ledger import Ledger
from gitlease.core.moves.governance import restore_hints
from gitlease.core.moves.operations import (
    AddNote,
    Barrier,
    DropRecord,
    Restore,
    Revoke,
    SetPolicy,
)
from gitlease.core.moves.step_record import Decided
from gitlease.core.policy import Issues
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, Reading
from gitlease.engine.edges import without_numbers
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Prepared, Snapshot, Swapped
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
    """Change the ledger's policy; makes a ledger if there is none."""
    if changes.get("issues", Issues.NONE.value) != Issues.NONE.value:
        _check_tasks(session)
    op = SetPolicy(id=fresh_id(), actor=session.actor, changes=tuple(changes.items()))
    return change(session, "config", [op])


def _check_tasks(session: LedgerSession) -> None:
    # A task whose id reads as an issue would be taken for the issue.
    found = session.edges.files.read()
    for problem in without_numbers(replace(found, problems=())).problems:
        raise UsageError(
            problem.message, hints=("give such tasks other ids first, for example T12 for 12",)
        )


def confirm(session: LedgerSession, *, rolled_back: bool = False, another: bool = False) -> Reading:
    """Accept the remote's ledger; makes one if there is none, and proves that it may be written.

    Another past of the known ledger is accepted only with ``rolled_back``; its tokens then continue
    above those seen. ``another`` accepts a ledger in the place of the one that the repository's
    settings record. Raises Rollback and Invalid.
    """
    known = session.store.known(session.layer)
    head = session.store.confirm(session.layer, rolled_back=rolled_back, another=another)
    if head.ledger is None and not another and (doubt := session.store.doubt(head)) is not None:
        raise doubt
    above = None
    if head.ledger is not None and known is not None and known.ledger is not None:
        before, after = known.ledger.header, head.ledger.header
        if before.ledger_id == after.ledger_id and after.token < before.token:
            _check_may_restore(session, head.ledger, "accept")
            above = before.token
    # An empty step, even where the ledger is there: a remote may let read who may not write.
    change(session, "init", [Barrier(id=fresh_id(), actor=session.actor)])
    if above is not None:
        _restore(session, above=above)
    session.store.accept(session.store.known(session.layer) or head, another=another)
    # Others have to see what is written, before it is called ready.
    if not session.store.admit(session.store.known(session.layer) or head, grants=True):
        change(session, "init", [Barrier(id=fresh_id(), actor=session.actor)])
        session.store.admit(session.store.fetch(session.layer), grants=True)
    return _confirmed(session, head)


def undo_rollback(session: LedgerSession) -> Reading:
    """Bring back the past that this clone has seen, in place of whatever the remote has now.

    Tokens go on above those of both, also where an admin of the server has brought it back. Raises
    Rollback where the server refuses that, or there is another ledger.
    """
    try:
        head = session.store.fetch(session.layer)
    except Rollback as there:
        known = session.store.known(session.layer)
        if not there.version or known is None or known.ledger is None:
            raise
        head, above = known, max(known.ledger.header.token + 1, there.token)
        _check_may_restore(session, known.ledger)
        _restore(session, above=above, instead_of=there.version)
    else:
        if head.ledger is not None:
            _check_may_restore(session, head.ledger)
            _restore(session, above=head.ledger.header.token + 1)
    return _confirmed(session, head)


def _check_may_restore(session: LedgerSession, ledger: Ledger, way: str = "undo") -> None:
    policy, holder = ledger.header.policy, session.actor.holder
    if policy.admins and not policy.is_admin(holder):
        raise PolicyRefused(
            f"only the ledger's admins may {way} its rollback, and {holder} is not one of them",
            hints=restore_hints(policy, way),
        )


def _restore(session: LedgerSession, *, above: int, instead_of: str | None = None) -> None:
    op = Restore(id=fresh_id(), actor=session.actor, above=above)
    if instead_of is None:
        change(session, "init", [op])
        return
    expected = {session.layer: instead_of}

    def decide(heads: Mapping[str, Snapshot]) -> Mapping[str, Decided]:
        return {layer: session.transaction.decided(head, [op]) for layer, head in heads.items()}

    def send(prepared: Prepared) -> Swapped:
        return session.store.swap(replace(prepared, expected=expected))

    session.transaction.carry_out_on([session.layer], decide, what="the restoration", send=send)


def _confirmed(session: LedgerSession, head: Snapshot) -> Reading:
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
