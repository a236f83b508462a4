"""What a handler leaves to a process of its own: to renew leases, and to end them."""

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
    """Renew, or end, what these sessions hold. Always 0."""
    from gitlease.wiring.agents import open_workspace, own_process

    own_process()
    # What goes wrong nobody would read here: the next hook or command finds out, and tells.
    with contextlib.suppress(GitleaseError):
        (renew if renews else release)(sessions, open_workspace)
    return 0


def renew(sessions: Sequence[str], opener: Opener) -> None:
    """Renew what each of these sessions holds or carries, in every layer where it is time.

    What has landed is completed instead.
    """
    from gitlease.wiring.landing import beat

    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        renewable = workspace.guard.renewable([session], workspace.carried.ids())
        beat(workspace, workspace.guard, renewable)


def release(sessions: Sequence[str], opener: Opener) -> None:
    """Have what is bound to each session and its sub-agents run out, in every layer in use.

    Their work is not finished: tasks stay assigned.
    """
    from gitlease.engine.sessions import end_session

    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        end_session([space.ledger for space in workspace.in_use], below=True, known=True)
        workspace.guard.refresh()
