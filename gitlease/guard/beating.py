"""The heartbeat of one run: everything it holds renewed in one push, and what came of it left."""

from __future__ import annotations

from collections.abc import Sequence

from gitlease.core.errors import GitleaseError
from gitlease.core.resources.resource import Resource
from gitlease.engine import hold
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Inbox
from gitlease.guard.guarding import GuardService


def beat(
    service: LedgerSession,
    guard: GuardService,
    inbox: Inbox,
    resources: Sequence[Resource] = (),
) -> None:
    """Renew these leases, or all of the run's; nobody waits for it, so what it finds is left.

    Never raises GitleaseError: the next hook or command of this run tells.
    """
    try:
        answer = hold.renew(service, resources)
        said = [*answer.warnings, *(refused.message for refused in answer.refused)]
    except GitleaseError as error:
        said = [*error.warnings, f"your leases were not renewed: {error.message}"]
    guard.refresh()
    inbox.leave([*said, *guard.lost()])
