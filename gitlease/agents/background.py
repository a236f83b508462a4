"""Renews and ends leases, and fetches ledgers, in a background process started by a handler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from gitlease.agents.handling import END_LATER, LOOK, RENEW
from gitlease.agents.opening import has_ledger, is_pending, left_to_servers, wait_for_successor
from gitlease.kernel.ledger.sessions import end_session
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.wiring.workspace import Workspace, beat, open_workspace

Opener = Callable[..., Workspace]

MOST_SESSIONS = 50
PATIENCE = 10.0  # seconds for the tool server of a conversation to end with it


def in_background(command: str, sessions: Sequence[str]) -> int:
    """Renew or end the leases of these sessions, or fetch the ledgers. Always 0."""
    # Nobody reads errors here; the next hook or command reports them.
    with contextlib.suppress(GitleaseError):
        if command == LOOK:
            look(open_workspace)
        elif command == END_LATER:
            wait_for_successor()
            release_pending(sessions, open_workspace)
        else:
            (renew if command == RENEW else release)(sessions, open_workspace)
    return 0


def look(opener: Opener, directory: str = ".") -> None:
    """Fetch the ledgers in use. A clone without a trace of gitlease only asks for one first."""
    if has_ledger(directory):
        # A session may hold leases in several layers; each has a ledger of its own.
        for space in opener(directory).in_use:
            # The other layers may answer.
            with contextlib.suppress(GitleaseError):
                space.ledger.store.fetch(space.ledger.layer)


def renew(sessions: Sequence[str], opener: Opener) -> None:
    """Renew the due leases that each session holds or carries, and complete landed tasks."""
    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        renewable = workspace.guard.renewable([session], workspace.carried.ids())
        beat(workspace, workspace.guard, renewable)


def release_pending(words: Sequence[str], opener: Opener) -> None:
    """End the session of a conversation that no other continues; ``words``: its id and number."""
    session, number = words
    if is_pending(opener(".", session=session), session, number):
        release([session], opener, goes_on=True)


def release(sessions: Sequence[str], opener: Opener, *, goes_on: bool = False) -> None:
    """End the leases of each session and its sub-agents, in every layer; tasks stay assigned.

    What a tool server goes on with stays. ``goes_on`` is as in ``left_to_servers``.
    """
    for session in sessions[:MOST_SESSIONS]:
        workspace = opener(".", session=session)
        ledgers = [space.ledger for space in workspace.in_use]
        spared = left_to_servers(workspace, session, goes_on=goes_on)
        end_session(ledgers, below=True, known=True, spared=spared)
        # By servers that may be about to end with their conversation.
        if spared:
            spared = left_to_servers(workspace, session, goes_on=goes_on, patience=PATIENCE)
            end_session(ledgers, below=True, known=True, spared=spared)
        workspace.guard.refresh()
