"""The caller: the holder that git knows, and which of its runs; and the coding agents that have
runs, each one value with all that is its own.

Every command and every hook loads this, so it imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitlease.kernel.git.files import notes_of
from gitlease.kernel.git.repository import Repository, short_host
from gitlease.kernel.git.run import run_above
from gitlease.kernel.rules.errors import MAX_WORD, Invalid, UsageError, shown
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import Actor, is_holder
from gitlease.kernel.settings.schema import SESSION_KEY, checked, git_source, read_session

VARIABLE = "GITLEASE_SESSION"
TOKENS = "GITLEASE_TOKEN"  # of a run, for what it starts
MAX_TOKENS = 65_536

AGENT_DIGITS = 8
CONTINUED = "continued"  # a kind of notes: by conversation the session that it continues


@dataclass(frozen=True)
class Identity:
    """The resolved actor, and in words where holder and session came from.

    ``below_agent``: a coding agent started this process, by its variables.
    ``run_tokens`` are those of the run that this process works below, in the same session.
    ``no_holder`` is the refusal of whatever needs a holder, where git names none.
    """

    actor: Actor
    holder_source: str
    session_source: str
    below_agent: bool = False
    run_tokens: frozenset[int] = frozenset()
    no_holder: Invalid | None = None

    @property
    def is_agent(self) -> bool:
        """Return whether a coding agent, or the command of a run, speaks and reads the answer."""
        session = self.actor.session or ""
        below = self.below_agent or bool(self.run_tokens)
        return below or session.startswith(tuple(f"{name}:" for name in AGENTS))


def resolve_identity(
    repository: Repository,
    *,
    environ: Mapping[str, str],
    session_flag: str | None,
    no_session: bool,
    anonymous: bool = False,
) -> Identity:
    """The holder is git's ``user.email``; the session comes from the first source that has one.

    Raises Invalid without a usable email, unless ``anonymous``, and UsageError for a bad
    ``--session``.
    """
    no_holder = None
    try:
        holder, holder_source = _holder(repository)
    except Invalid as error:
        if not anonymous:
            raise
        holder, holder_source, no_holder = "", "none", error
    session, session_source = _session(repository, environ, session_flag or None, no_session)
    branch, leader = repository.branch(), os.getsid(0)  # 0: outside of this container
    words = environ.get(TOKENS, "")[:MAX_TOKENS].split()
    tokens = (int(x) for x in words if x.isdecimal() and x.isascii() and len(x) < 20)
    below_run = frozenset(tokens if session == environ.get(VARIABLE) else ())
    # What a run's command claims is the run's: its terminal may outlive it by far.
    leader = (run_above() if below_run else 0) or leader
    return Identity(
        actor=Actor(
            holder=holder,
            session=session,
            session_explicit=session_source in (_FLAG, _ENVIRONMENT),
            host=here(leader, repository.worktree),
            branch=branch if branch and branch.isprintable() and len(branch) <= MAX_WORD else None,
        ),
        holder_source=holder_source,
        session_source=session_source,
        below_agent=agent_in(environ) is not None,
        # Another session's tokens say nothing about what this one may do.
        run_tokens=below_run,
        no_holder=no_holder,
    )


def here(pid: int, worktree: str | None = None) -> str | None:
    """A process of this machine, as ``Actor.host`` has it; 0: only the machine.

    A linked work tree is named if its name can be recorded.
    """
    name = short_host()
    if name and worktree and worktree.isprintable() and len(worktree) <= MAX_TREE:
        name = f"{name}/{worktree}"
    return f"{name}:{pid}" if name and pid else name


MAX_TREE = 64  # characters of a work tree's name beside that of its machine
_FLAG = "flag --session"
_ENVIRONMENT = f"environment {VARIABLE}"
_HINT = "git config user.email you@example.com"


def _holder(repository: Repository) -> tuple[str, str]:
    entry = repository.config.entry("user.email")
    email = entry.value.strip() if entry else ""
    if entry is None or not email:
        raise Invalid("git has no user.email, which names the holder of a lease", hints=(_HINT,))
    source = git_source(entry)
    if not is_holder(email):
        raise Invalid(
            f"{source} {shown(email)} is not 1-{MAX_WORD} printable characters without spaces",
            hints=(_HINT,),
        )
    return email, source


def _session(
    repository: Repository, environ: Mapping[str, str], flag: str | None, no_session: bool
) -> tuple[str | None, str]:
    if no_session:
        if flag:
            raise UsageError("a session and no session exclude each other")
        return None, "flag --no-session"
    if flag:
        return read_session(flag, "--session"), _FLAG
    if named := environ.get(VARIABLE):
        return checked(read_session, named, _ENVIRONMENT), _ENVIRONMENT
    entry = repository.config.entry(SESSION_KEY)
    if entry and entry.value:
        source = git_source(entry)
        return checked(read_session, entry.value, source), source
    # Two agents of one person on one machine must not look like one worker.
    if agent := agent_in(environ):
        source = f"environment {agent.variable}"
        number = agent_session(agent.name, environ[agent.variable])
        return continued(repository.common_dir, checked(read_session, number, source)), source
    if repository.worktree:
        name = "".join(c if c.isprintable() else "_" for c in repository.worktree)[:100]
        return f"worktree:{name}-{repository.clone_id}", f"linked worktree {shown(name)}"
    return None, "none"


def continued(common_dir: str, session: str) -> str:
    """The session that an agent's conversation continues, else its own."""
    return str(notes_of(common_dir).get(CONTINUED, session) or session)


def agent_session(agent: str, number: str) -> str:
    """The session of an agent's conversation that continues no other."""
    return f"{agent}:{short_number(agent, number)}"


def short_number(agent: str, number: str) -> str:
    """The first eight characters; of a number that begins with the time, the last eight."""
    # A UUIDv7, as Codex has them: two that are made in the same minute begin alike.
    timed = len(number) == 36 and number[14] == "7" and number.count("-") == 4
    timed &= AGENTS[agent].timed_numbers
    return number[-AGENT_DIGITS:] if timed else number[:AGENT_DIGITS]


# --- the coding agents -------------------------------------------------------------------------

# Of MCP servers those tools that edit, by their names.
MCP_EDITS = (
    "mcp__.*(write|edit|create|delete|remove|move|rename|replace|insert|append|patch|update|apply"
    "|save)"
)


@dataclass(frozen=True)
class AgentHook:
    """One entry: the agent's name of the event, ours, the matcher, and the timeout in seconds."""

    event: str
    word: str
    matcher: str = ""
    timeout: int = 10


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A coding agent.

    It reads hooks from ``hooks_file`` in its ``folder`` of the work tree or of the person's home
    (moved by the variable ``home``), unless the key ``off_switch`` is true there, and MCP servers
    from the table ``servers`` in ``servers_file`` of the work tree or ``own_servers_file`` in the
    person's folder, or ``beside`` that. ``flat`` is Cursor's form of hooks, events and answers.
    Its events have the fields ``session``, ``subagent`` and ``reason``, and arguments that name
    ``paths``. ``only_denies``: before a tool, some versions read nothing but a denial.
    ``project`` is the variable that names its project, to its hooks and, if ``serves_project``, to
    its tool servers. ``turn`` is the member of a tool's call that has its session number.

    ``variable`` is that in which its terminals have the number (``tells_number``: the same that its
    hooks are given), which begins with the time if ``timed_numbers``. An agent inherits the
    variables of those that started it, which are more likely the more ``outer`` they are. It may
    run the hooks of another, ``borrows``: the field ``mark`` tells its events from that one's.
    """

    name: str
    title: str
    folder: str
    hooks_file: str
    hooks: tuple[AgentHook, ...]
    servers_file: str
    own_servers_file: str
    home: str = ""
    servers: str = "mcpServers"
    beside: bool = False
    flat: bool = False
    off_switch: str = ""
    hook_hints: tuple[str, ...] = ()
    server_hint: str = ""
    session: tuple[str, ...] = ("session_id",)
    subagent: str = "agent_id"
    reason: tuple[str, ...] = ("source", "reason")
    paths: tuple[str, ...] = ("file_path", "path")
    only_denies: bool = False
    project: str = ""
    serves_project: bool = False
    turn: str = ""
    variable: str
    tells_number: bool = True
    timed_numbers: bool = False
    outer: int = 0
    borrows: str = ""
    mark: str = ""

    @property
    def is_toml(self) -> bool:
        """Return whether its servers are in a file of TOML, not JSON."""
        return self.servers_file.endswith(".toml")

    def command(self, hook: AgentHook, *, keep: bool) -> str:
        """The command of a hook; ``keep``: leases outlast the session."""
        ends = hook.word in ("session-end", "subagent-stop")
        return f"gitlease agent {self.name} {hook.word}{' --keep' if keep and ends else ''}"

    def files(self, environ: Mapping[str, str], *, servers: bool) -> tuple[str, str]:
        """Its file of hooks or of ``servers``: the name in a work tree, and the person's own."""
        moved = environ.get(self.home, "") if self.home else ""
        home = os.path.expanduser("~")
        folder = moved or os.path.join(home, self.folder)
        if not servers:
            return os.path.join(self.folder, self.hooks_file), os.path.join(folder, self.hooks_file)
        folder = home if self.beside and not moved else folder
        return self.servers_file, os.path.join(folder, self.own_servers_file)

    def event_name(self, word: str) -> str:
        """Its own name of an event."""
        return next(hook.event for hook in self.hooks if hook.word == word)


def _hooks(edits: str) -> tuple[AgentHook, ...]:
    return (
        AgentHook("SessionStart", "session-start"),
        AgentHook("SubagentStart", "subagent-start"),
        AgentHook("PreToolUse", "before-edit", edits),
        AgentHook("PreToolUse", "before-edit", MCP_EDITS),  # apart: names alone match exactly
        AgentHook("PreToolUse", "before-shell", "Bash"),
        AgentHook("PostToolUse", "after-tool", timeout=5),
        AgentHook("SubagentStop", "subagent-stop", timeout=5),
        AgentHook("SessionEnd", "session-end", timeout=5),
    )


AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude",
            title="Claude Code",
            folder=".claude",
            home="CLAUDE_CONFIG_DIR",
            hooks_file="settings.json",
            hooks=_hooks("Edit|Write|MultiEdit|NotebookEdit"),
            off_switch="disableAllHooks",
            hook_hints=("Claude Code reads CLAUDE.md; for AGENTS.md write @AGENTS.md into it",),
            servers_file=".mcp.json",
            own_servers_file=".claude.json",
            beside=True,
            server_hint="Claude Code asks once whether to allow the servers of a project",
            paths=("file_path", "notebook_path"),
            project="CLAUDE_PROJECT_DIR",
            serves_project=True,
            variable="CLAUDE_CODE_SESSION_ID",
            outer=1,
        ),
        Agent(
            name="codex",
            title="Codex",
            folder=".codex",
            home="CODEX_HOME",
            hooks_file="hooks.json",
            hooks=_hooks("apply_patch|Edit|Write"),
            hook_hints=(
                "Codex skips new and changed hooks until they are trusted: type /hooks in Codex",
                "versions of Codex without SessionEnd leave the leases to lapse by themselves",
            ),
            servers_file=".codex/config.toml",
            own_servers_file="config.toml",
            servers="mcp_servers",
            server_hint="Codex reads a project's file only if the project is trusted",
            only_denies=True,
            turn="x-codex-turn-metadata",
            variable="CODEX_THREAD_ID",
            timed_numbers=True,
        ),
        Agent(
            name="cursor",
            title="Cursor",
            folder=".cursor",
            hooks_file="hooks.json",
            hooks=(
                AgentHook("sessionStart", "session-start"),
                AgentHook(
                    "preToolUse",
                    "before-edit",
                    "Write|Edit|MultiEdit|StrReplace|Delete|EditNotebook|ApplyPatch",
                ),
                AgentHook("preToolUse", "before-shell", "Shell"),
                AgentHook("postToolUse", "after-tool", timeout=5),
                AgentHook("sessionEnd", "session-end", timeout=5),
            ),
            flat=True,
            hook_hints=(
                "Cursor asks once whether hooks of a project may run: see Settings, Hooks",
            ),
            servers_file=".cursor/mcp.json",
            own_servers_file="mcp.json",
            server_hint="enable the server in Cursor's settings, under MCP",
            session=("conversation_id", "session_id"),
            subagent="subagent_id",
            reason=("reason", "composer_mode"),
            paths=("file_path", "path", "target_file", "notebook_path", "target_notebook"),
            project="CURSOR_PROJECT_DIR",
            variable="CURSOR_TRACE_ID",
            tells_number=False,
            outer=2,
            borrows="claude",
            mark="cursor_version",
        ),
    )
}
# Mere signs that an agent is running are of no use: only a number tells its sessions apart.
INNERMOST_FIRST = sorted(AGENTS.values(), key=lambda agent: agent.outer)
THREADED = next(agent for agent in INNERMOST_FIRST if agent.turn)


def agent_in(environ: Mapping[str, str]) -> Agent | None:
    """The agent that started a process with these variables, the innermost of several."""
    return next((agent for agent in INNERMOST_FIRST if environ.get(agent.variable)), None)
