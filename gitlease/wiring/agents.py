"""The composition root of the hooks of coding agents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid, UsageError
from gitlease.core.frozen import dataclass
from gitlease.engine.ports import Clock
from gitlease.git.repository import Repository, discover
from gitlease.settings.identity import AGENTS, VARIABLE, resolve_identity, short_number
from gitlease.settings.schema import read_session
from gitlease.wiring.workspace import Workspace, open_workspace, own_process

if TYPE_CHECKING:
    from gitlease.guard.sharing import SharedTree

# Hosts whose terminal has the very number that their hooks give; Cursor's has one of its own.
NAMES_ITSELF = frozenset({"claude", "codex"})


@dataclass(frozen=True, slots=True)
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


PROJECT = "CLAUDE_PROJECT_DIR"  # where Claude Code has its project, wherever it starts a server


def open_for_tools(
    directory: str | None, *, thread: str = "", environ: Mapping[str, str] | None = None
) -> Workspace:
    """Open the repository for one call of a tool. Asks no remote.

    ``thread`` is the Codex thread that calls, where that is known: it speaks as what is typed in
    its terminal. Raises what ``open_workspace`` raises.
    """
    environ = os.environ if environ is None else environ
    if thread:
        environ = {**environ, dict(AGENTS)["codex"]: _plain(thread)}
    return open_workspace(directory or environ.get(PROJECT) or ".", environ=environ)


def session_of_thread(thread: str) -> str | None:
    """The session of a Codex thread; None where there is none."""
    number = _plain(thread)
    return f"codex:{short_number('codex', number)}" if number else None


def passed_on(names: Iterable[str], *, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those of some variables that are set, as a host passes them on to what it starts."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in names if name in environ}


def is_ended_by_hook(
    workspace: Workspace, *, thread: str = "", environ: Mapping[str, str] | None = None
) -> bool:
    """Whether the agent that calls tools has our hook for the end of its sessions."""
    from gitlease.install.agents.files import status
    from gitlease.install.agents.hosts import HOSTS
    from gitlease.install.agents.place import place_of

    environ = os.environ if environ is None else environ
    named = [host for host, variable in AGENTS if environ.get(variable)]
    host = HOSTS.get("codex" if thread else next(iter(named), ""))
    if host is None:
        return False
    ends = {hook.event for hook in host.hooks if hook.word == "session-end"}
    for user in (True, *([False] if workspace.repository.toplevel else [])):
        with contextlib.suppress(Invalid):  # what cannot be read here has no hook that is known
            place = place_of(host, workspace.repository, user=user, environ=environ)
            if ends & {*status(host, place).events}:
                return True
    return False


def others_in(context: AgentContext, key: str, *, now: float) -> SharedTree | None:
    """Who else works in the agent's work tree, by what this machine knows; None for nobody.

    ``key`` is that of its own note.
    """
    from gitlease.guard.sharing import shared_with

    repository = context.workspace.repository
    return shared_with(repository, context.family, now=now, environ=os.environ, key=key)


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """``own`` is the session of the hooks (None: the host named none, and nobody else did).

    ``family`` are the sessions whose leases the agent works under as well: the one that commands
    typed in its terminal speak as, and for a sub-agent the session that started it. ``typed`` is
    that of the terminal, where it is known.
    """

    own: str | None
    typed: str | None
    family: frozenset[str]


def agent_sessions(
    repository: Repository,
    *,
    environ: Mapping[str, str],
    host: str,
    session_id: str,
    agent_id: str = "",
) -> AgentSessions:
    """The sessions of one event. What a person has set holds before the host's own number.

    Raises Invalid for a missing ``user.email`` and for a session that cannot be one.
    """
    variable = dict(AGENTS)[host]
    set_by_hand = {VARIABLE: environ.get(VARIABLE, ""), variable: _plain(session_id)}
    root = _session(repository, set_by_hand)
    typed = _session(repository, environ)
    agent = short_number(host, _plain(agent_id)) if agent_id else ""
    if not agent:
        family = frozenset(s for s in (root, typed) if s)
        return AgentSessions(root, root if host in NAMES_ITSELF else typed, family)
    child = f"{host}:{agent}"
    own = _named(f"{root}/{agent}" if root else child)
    return AgentSessions(own, typed, frozenset(s for s in (own, root, typed, child) if s))


def _session(repository: Repository, environ: Mapping[str, str]) -> str | None:
    found = resolve_identity(repository, environ=environ, session_flag=None, no_session=False)
    return found.actor.session


def _named(session: str) -> str:
    try:
        return read_session(session, "the session of a sub-agent")
    except UsageError as error:
        raise Invalid(error.message) from None


def _plain(number: str) -> str:
    """A number of the host as far as it can be part of a session."""
    return "".join(c for c in number[:200] if c.isprintable() and not c.isspace())


__all__ = [
    "AgentContext",
    "Workspace",
    "open_for_agent",
    "open_workspace",
    "others_in",
    "own_process",
]
