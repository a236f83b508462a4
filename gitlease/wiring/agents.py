"""The composition root of the hooks of coding agents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gitlease.engine.ports import Clock
from gitlease.git.repository import discover
from gitlease.wiring.workspace import Workspace, open_workspace, own_process


@dataclass(frozen=True)
class AgentContext:
    """What the hooks of a coding agent have at hand in a repository: whom they speak as there.

    ``family`` are the sessions whose leases it works under; ``options`` are those that a command
    typed in its terminal needs to speak as ``session``.
    """

    workspace: Workspace
    session: str | None
    family: frozenset[str]
    options: tuple[str, ...] = ()


def open_for_agent(
    directory: str,
    *,
    host: str,
    session_id: str,
    agent_id: str = "",
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AgentContext | None:
    """Open a repository for one event of a coding agent; None where gitlease is not used in it.

    Asks no remote. Raises what ``open_workspace`` raises.
    """
    from gitlease.install.agents.files import is_used
    from gitlease.install.agents.sessions import agent_sessions

    environ = os.environ if environ is None else environ
    repository = discover(directory)
    if not is_used(repository):
        return None
    found = agent_sessions(
        repository, environ=environ, host=host, session_id=session_id, agent_id=agent_id
    )
    workspace = open_workspace(directory, session=found.own, environ=environ, clock=clock)
    options = ("--session", found.own) if found.own and found.own != found.typed else ()
    return AgentContext(workspace, found.own, found.family, options)


__all__ = [
    "AgentContext",
    "Workspace",
    "open_for_agent",
    "open_workspace",
    "own_process",
]
