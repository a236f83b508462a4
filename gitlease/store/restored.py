"""Whether a ledger that lacks what this clone has seen was restored after its ref was deleted.

Such a state is no rollback that people have to judge: an admin put the newest state back that was
known to them, and until every lease of the lost past has lapsed it grants nothing new.
"""

from __future__ import annotations

from collections.abc import Callable

from gitlease.core.errors import GitleaseError
from gitlease.core.ledger import Ledger
from gitlease.core.moves.restoring import RESTORED
from gitlease.store.admission import decision
from gitlease.store.state import Known
from gitlease.store.storage import CopyLost, PastStep, Storage


def restored_since(
    storage: Storage, read: Callable[[str], Ledger], before: Known, version: str
) -> str:
    """The step of a version's past that restored this clone's ledger; ``""`` if none did.

    It follows on a state that this clone knows, was made by somebody who may, and begins above
    every token that this clone has seen given.
    """
    try:
        past = {step.id for step in storage.history(before.version)} | {before.decision}
        for step in storage.history(version, whole=True):
            if step.id in past:
                return ""
            if step.before and _restores(step):
                follows = step.before in past or decision(storage, step.before) in past
                return step.id if follows and _is_sound(read, before, step) else ""
    except (GitleaseError, CopyLost):
        pass
    return ""


def _restores(step: PastStep) -> bool:
    return any(event.kind == RESTORED for event in step.events)


def _is_sound(read: Callable[[str], Ledger], before: Known, step: PastStep) -> bool:
    base, after, known = read(step.before).header, read(step.id).header, read(before.version).header
    by = next(event.by for event in step.events if event.kind == RESTORED)
    # By the admins that are known here: whoever lost the right since must not take it back so.
    may = all(not x.policy.admins or x.policy.is_admin(by) for x in (base, known))
    closed = after.closed_until is not None and after.closed_until != base.closed_until
    same = after.ledger_id == base.ledger_id == known.ledger_id
    return may and closed and same and after.token > known.token
