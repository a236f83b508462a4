"""Whether a ledger that lacks what this clone has seen was restored after its ref was deleted.

Such a state is no rollback that people have to judge: an admin put the newest state back that was
known to them, and until every lease of the lost past has lapsed it grants nothing new.
"""

from __future__ import annotations

from collections.abc import Callable

from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.ledger import Header, Ledger
from gitlease.kernel.rules.moves.closing import wait_of
from gitlease.kernel.rules.moves.restoring import RESTORED, WAIT_ENDED
from gitlease.kernel.store.state import Known
from gitlease.kernel.store.storage import CopyLost, PastStep, Storage


def is_restored(
    storage: Storage, read: Callable[[str], Ledger], before: Known, version: str
) -> bool:
    """True if a ledger was restored on the way from the past of this clone's state to a version.

    One of the restorations has to be by somebody who may, has to begin above every token that this
    clone has seen given, and has to wait. It need not follow on a state of this clone's past:
    whoever made it may have missed an earlier restoration, or have seen one that was lost.
    """
    try:
        past = {step.id for step in storage.history(before.version)} | {before.decision}
        is_sound = False
        for step in storage.history(version, whole=True):
            if step.id in past:
                return is_sound
            if step.before and _restores(step):
                is_sound = is_sound or _is_sound(read, before, step)
    except (GitleaseError, CopyLost):
        pass
    return False


def _restores(step: PastStep) -> bool:
    return any(event.kind == RESTORED for event in step.events)


def _is_sound(read: Callable[[str], Ledger], before: Known, step: PastStep) -> bool:
    base, after, known = read(step.before).header, read(step.id).header, read(before.version).header
    by = next(event.by for event in step.events if event.kind == RESTORED)
    # By the admins that are known here: whoever lost the right since must not take it back so.
    may = all(not x.policy.admins or x.policy.is_admin(by) for x in (base, known))
    closed = _waits(step, after, wait_of(base.policy))
    same = after.ledger_id == base.ledger_id == known.ledger_id
    return may and closed and same and after.token > known.token


def _waits(step: PastStep, after: Header, seconds: int) -> bool:
    """True if a restoration grants nothing new before its wait is over, or an admin ended that.

    A ledger that was restored before may wait longer anyway, by a clock that runs ahead.
    """
    if after.closed_until is None:
        return False
    at = next(event.at for event in step.events if event.kind == RESTORED)
    is_ended = any(event.kind == WAIT_ENDED for event in step.events)
    return after.closed_until >= at + (0 if is_ended else seconds * MS)
