"""Opens a repository for the hooks and tools of coding agents."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping

from gitlease.guard import presence
from gitlease.guard.callers import working_parent
from gitlease.guard.notes import has_traces, note_asked
from gitlease.guard.presence import ToolServer, live_servers, live_sessions, note_server
from gitlease.kernel.git.repository import Repository, ask, discover
from gitlease.kernel.git.run import run_git, started_at, still_runs, wait_for_end
from gitlease.kernel.ledger.ports import Clock
from gitlease.kernel.rules.errors import Invalid, UsageError
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import holder_has
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.settings.identity import (
    AGENTS,
    THREADED,
    VARIABLE,
    agent_in,
    agent_session,
    here,
    resolve_identity,
    short_number,
)
from gitlease.kernel.settings.schema import FILE, checked, read_session
from gitlease.wiring.ledger import open_place
from gitlease.wiring.workspace import Workspace, open_workspace


@dataclass(frozen=True)
class AgentContext:
    """The services of an agent's hooks in a repository, and the session that they speak as.

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
    """Open a repository for one event of a coding agent; None if gitlease is not used in it.

    Asks no remote. Raises what ``open_workspace`` raises.
    """
    environ = os.environ if environ is None else environ
    repository = discover(directory)
    if not is_used(repository):
        return None
    found = agent_sessions(
        repository, environ=environ, host=host, session_id=session_id, agent_id=agent_id
    )
    workspace = open_workspace(
        directory, session=found.own, environ=environ, clock=clock, brief=True
    )
    options = ("--session", found.own) if found.own and found.own != found.typed else ()
    now = workspace.ledger.clock.now().wall_ms / MS

    family = found.family | _of_tool_servers(repository, found.family, now, working_parent())
    return AgentContext(workspace, found.own, family, options)


def is_used(repository: Repository) -> bool:
    """Tell whether a repository uses gitlease: hooks in a person's own file run everywhere."""
    from gitlease.agents.setup import is_installed

    root = repository.toplevel
    return root is not None and (
        os.path.lexists(os.path.join(root, FILE))
        or has_traces(repository.common_dir)
        or any(is_installed(name, root) for name in AGENTS)
    )


SETTINGS_IN = ("HEAD", "refs/remotes/origin/HEAD")  # commits that may have the tracked settings
LONGEST_QUESTION = 10.0  # seconds


def has_ledger(directory: str) -> bool:
    """Tell whether a clone uses gitlease, by its traces, tracked settings, or the remote's refs.

    A remote that has no ledger is noted, so that it is not asked again soon.
    """
    repository = discover(directory)
    if is_used(repository):
        return True
    if any(ask(repository, "cat-file", "-e", f"{x}:{FILE}").code == 0 for x in SETTINGS_IN):
        return True
    answered = shown = False
    url: str | None = None
    with contextlib.suppress(Invalid, UsageError):
        place = open_place(repository, os.environ)
        url, prefix = place.location.url, place.settings.ref_prefix
        if url is not None:
            words = ("ls-remote", "--quiet", "--end-of-options", url, f"{prefix}/*")
            asked = run_git(
                words,
                cwd=repository.toplevel or repository.git_dir,
                timeout=LONGEST_QUESTION,
                env={"GIT_TERMINAL_PROMPT": "0"},
                repository=True,
            )
            answered = asked.code == 0 and not asked.timed_out
            shown = answered and b"\t" in asked.out
    if not shown:
        note_asked(repository.common_dir, answered=answered or url is None)
    return shown


def projects() -> list[str]:
    """The folders of the host's project, as far as it names them."""
    return [folder for x in AGENTS.values() if (folder := os.environ.get(x.project, ""))]


def open_for_tools(directory: str | None, *, thread: str = "") -> Workspace:
    """Open the repository for one call of a tool. Asks no remote, and no ``user.email`` to read.

    ``thread`` is the calling Codex thread, if known: it speaks as commands typed in its terminal.
    Raises what ``open_workspace`` raises.
    """
    number = {THREADED.variable: _plain(thread)} if thread else {}
    served = (x.project for x in AGENTS.values() if x.serves_project)
    folder = directory or next(filter(None, map(os.environ.get, served)), ".")
    return open_workspace(folder, environ={**os.environ, **number}, anonymous=True)


def begin_conversation(
    common_dir: str, host: str, session_id: str, *, clears: bool, now: float
) -> None:
    """Note that a conversation of this process's host begins; ``clears``: after ``/clear``."""
    session = agent_session(host, _plain(session_id))
    presence.begin_conversation(common_dir, session, working_parent(), clears=clears, now=now)


def end_conversation(context: AgentContext, host: str, session_id: str, *, now: float) -> str:
    """Note that a conversation ended that another may continue; return its own session."""
    session = agent_session(host, _plain(session_id))
    presence.end_conversation(
        context.workspace.repository.common_dir, session, working_parent(), now=now
    )
    return session


def wait_for_successor() -> None:
    """Sleep for as long as another conversation may continue one that ended."""
    time.sleep(presence.PENDING_FOR)


def is_pending(workspace: Workspace, session: str, number: str) -> bool:
    """End a conversation that ended a minute ago; return whether none has continued it."""
    common, now = workspace.repository.common_dir, workspace.ledger.clock.now().wall_ms / MS
    pending = presence.end_takes_effect(common, number)
    return pending and session not in live_sessions(common, now=now)


@dataclass(frozen=True)
class ToolSession:
    """A workspace in the session that a tool server speaks in, and in that which its host named."""

    workspace: Workspace
    named: Workspace

    @property
    def told(self) -> bool:
        return self.named.actor.session is not None


def in_session_of_host(workspace: Workspace, own: str, *, before: str | None) -> ToolSession:
    """The workspace in the session that a tool server speaks in: ``guard/presence.py``.

    ``own`` is its own session, and ``before`` that of its last call.
    """
    told = workspace.actor.session is not None
    if told and not _has_ended(workspace):
        return ToolSession(workspace, workspace)
    now = workspace.ledger.clock.now().wall_ms / MS
    common = workspace.repository.common_dir
    live = live_sessions(common, now=now, process=working_parent())
    if before is not None and before in live:
        session = before
    elif len(live) == 1:
        session = live.pop()
    elif told:
        return ToolSession(workspace, workspace)
    else:
        session = own
    pid = os.getpid() if session == own else 0
    return ToolSession(workspace.again(run=session, pid=pid), workspace)


def _has_ended(workspace: Workspace) -> bool:
    """Tell whether the conversation that a host named to its tool server has ended."""
    identity, common = workspace.identity, workspace.repository.common_dir
    by_agent = identity.session_source in {f"environment {x.variable}" for x in AGENTS.values()}
    session = identity.actor.session
    return (
        session is not None and by_agent and presence.has_ended(common, session, working_parent())
    )


def note_tool_server(workspace: Workspace, leases: Mapping[str, str], *, told: bool) -> None:
    """Note what this tool server holds, by lease and session, for the hooks of its host."""
    (host_pid, host_started), pid = working_parent(), os.getpid()
    server = ToolServer(
        machine=here(0) or "",
        pid=pid,
        started=started_at(pid),
        host_pid=host_pid,
        host_started=host_started,
        told=told,
        leases=leases,
    )
    note_server(workspace.repository.common_dir, server)


def _of_tool_servers(
    repository: Repository, family: frozenset[str], now: float, process: tuple[int, str] = (0, "")
) -> frozenset[str]:
    """The sessions of the tool servers in a host process whose only conversation this one is.

    ``process`` is the caller's host process, if known. Else its conversation must be recorded.
    """
    common, sessions = repository.common_dir, set[str]()
    for server in live_servers(common):
        live = live_sessions(common, now=now, process=server.host)
        if live <= family and (live or (process[1] and server.host == process)):
            sessions.update(server.leases.values())
    return frozenset(sessions)


def in_session_of_server(workspace: Workspace, resources: Iterable[Resource]) -> Workspace:
    """The workspace in the session in which a tool server of the caller's agent has these leases.

    For commands that an agent types: what it claimed through its server before any hook ran, or
    before it went on to this conversation, is its own.
    """
    actor, clock = workspace.actor, workspace.ledger.clock
    if actor.session is None or actor.session_explicit or not workspace.identity.below_agent:
        return workspace
    now = clock.now().wall_ms / MS
    servers = _of_tool_servers(workspace.repository, frozenset((actor.session,)), now)
    look = workspace.ledger.known_look() if servers - {actor.session} else None
    if look is None:
        return workspace
    keys = {resource.key for resource in resources}
    held = [x for x in look.leases if x.resource.key in keys and holder_has(x, look.moment)]
    sessions = {x.session for x in held if x.same_holder(actor)}
    session = sessions.pop() if len(sessions) == 1 else None
    return workspace.again(run=session) if session in servers else workspace


def left_to_servers(
    workspace: Workspace, session: str, *, goes_on: bool, patience: float = 0.0
) -> frozenset[str]:
    """The leases of a session that its end leaves to tool servers: ``guard/presence.py``.

    ``goes_on``: the host ended the conversation to go on with another. The servers are given
    ``patience`` seconds to end, as with their host.
    """
    common = workspace.repository.common_dir
    now = workspace.ledger.clock.now().wall_ms / MS
    kept = set[str]()
    for server in live_servers(common):
        leases = {x for x, name in server.leases.items() if name == session}
        if not leases or (server.told and not goes_on):
            continue
        if live_sessions(common, now=now, process=server.host) - {session}:
            wait_for_end(server.pid, server.started, seconds=patience)
            kept |= leases if still_runs(server.pid, server.started) else set()
    return frozenset(kept)


def is_left_to_hooks(server: ToolSession, session: str | None, *, thread: str = "") -> bool:
    """Tell whether hooks of a live conversation keep what a tool server has in a session."""
    if session is None:
        return False
    workspace = server.named
    now = workspace.ledger.clock.now().wall_ms / MS
    if session in live_sessions(workspace.repository.common_dir, now=now):
        return True
    named = session == workspace.actor.session and not _has_ended(workspace)
    return named and is_ended_by_hook(workspace, thread=thread)


def session_of_thread(thread: str) -> str | None:
    """The session of a Codex thread, if it has one."""
    number = _plain(thread)
    return agent_session(THREADED.name, number) if number else None


def passed_on(names: Iterable[str]) -> dict[str, str]:
    """Return the variables among these that are set, as a host passes them on."""
    return {name: os.environ[name] for name in names if name in os.environ}


def is_ended_by_hook(workspace: Workspace, *, thread: str = "") -> bool:
    """Tell whether the agent that calls tools has our hook for the end of its sessions."""
    host = THREADED if thread else agent_in(os.environ)
    if host is None:
        return False
    ends = {hook.event for hook in host.hooks if hook.word == "session-end"}
    from gitlease.agents.setup import hooks_in, place_of

    for user in (True, *([False] if workspace.repository.toplevel else [])):
        with contextlib.suppress(Invalid):  # an unreadable file counts as one without hooks
            place = place_of(host, workspace.repository, user=user, environ=os.environ)
            if ends & {*hooks_in(host, place).events}:
                return True
    return False


@dataclass(frozen=True)
class AgentSessions:
    """``own`` is the session of the hooks, if the host or a setting names one.

    ``family`` are the sessions whose leases the agent works under as well: that of commands typed
    in its terminal (``typed``, if known), and for a sub-agent the session that started it.
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
    """The sessions of one event. What a person has set takes precedence over the host's number.

    Raises Invalid for a missing ``user.email`` and for an invalid session.
    """
    variable = AGENTS[host].variable
    set_by_hand = {VARIABLE: environ.get(VARIABLE, ""), variable: _plain(session_id)}
    root = _session(repository, set_by_hand)
    typed = _session(repository, environ)
    agent = short_number(host, _plain(agent_id)) if agent_id else ""
    if not agent:
        family = frozenset(s for s in (root, typed) if s)
        return AgentSessions(root, root if AGENTS[host].tells_number else typed, family)
    child = f"{host}:{agent}"
    whole = f"{root}/{agent}" if root else child
    own = checked(read_session, whole, "the session of a sub-agent")
    return AgentSessions(own, typed, frozenset(s for s in (own, root, typed, child) if s))


def _session(repository: Repository, environ: Mapping[str, str]) -> str | None:
    found = resolve_identity(repository, environ=environ, session_flag=None, no_session=False)
    return found.actor.session


def _plain(number: str) -> str:
    """The characters of a host's number that a session may have."""
    return "".join(c for c in number[:200] if c.isprintable() and not c.isspace())
