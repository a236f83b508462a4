"""What a handler leaves to a process of its own: to renew, and to give back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import GitleaseError

if TYPE_CHECKING:
    from gitlease.wiring.agents import Workspace

Opener = Callable[..., "Workspace"]

MOST_SESSIONS = 50


def in_background(sessions: Sequence[str], *, renews: bool) -> int:
    """Renew, or give back, what these sessions hold. Always 0."""
    from gitlease.wiring.agents import open_workspace, own_process

    own_process()
    # What goes wrong nobody would read here: the next hook or command finds out, and tells.
    with contextlib.suppress(GitleaseError):
        (renew if renews else release)(sessions, open_workspace)
    return 0


def renew(sessions: Sequence[str], opener: Opener) -> None:
    """Renew what is bound to each of these sessions; what is bound to none stays so."""
    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        look = workspace.ledger.known_look()  # asks nobody
        bound = {
            lease.resource.key: lease.resource
            for lease in (look.leases if look is not None else ())
            if lease.session == session
            and lease.state.value == "active"
            and lease.same_holder(workspace.identity.actor)
        }
        if bound:
            workspace.guard.beat(workspace.ledger, workspace.inbox, list(bound.values()))


def release(sessions: Sequence[str], opener: Opener) -> None:
    """Give back what is bound to each session and to the sub-agents of it: one push a session."""
    from gitlease.engine.sessions import end_session

    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        end_session(workspace.ledger, below=True, known=True)
        workspace.guard.refresh()
