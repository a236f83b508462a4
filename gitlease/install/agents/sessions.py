"""Whom the hooks of a coding agent speak as, and whose leases its edits fall under."""

from __future__ import annotations

from collections.abc import Mapping

from gitlease.core.errors import Invalid, UsageError
from gitlease.core.frozen import dataclass
from gitlease.git.repository import Repository
from gitlease.settings.identity import AGENTS, VARIABLE, resolve_identity, short_number
from gitlease.settings.schema import read_session

# Hosts whose terminal has the very number that their hooks give; Cursor's has one of its own.
NAMES_ITSELF = frozenset({"claude", "codex"})


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
