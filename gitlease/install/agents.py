"""The coding agents that gitlease knows: each is one value with all that is its own.

Its session's variable stands in ``settings/identity.py``, because every command looks for it. Hooks
load this with every event, so it imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitlease.core.frozen import dataclass

# Of MCP servers those tools that edit, by their names.
MCP_EDITS = (
    "mcp__.*(write|edit|create|delete|remove|move|rename|replace|insert|append|patch|update|apply"
    "|save)"
)
COMMAND = ["gitlease", "mcp"]
# Codex passes on few variables. By name, so that each start has its own values.
PASSED_ON = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GITLEASE_SESSION")


@dataclass(frozen=True, slots=True)
class AgentHook:
    """One entry: the agent's name of the event, ours, the matcher, and the timeout in seconds."""

    event: str
    word: str
    matcher: str = ""
    timeout: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A coding agent.

    It reads hooks from ``hooks_file`` in its ``folder`` of the work tree or of the person's home
    (moved by the variable ``home``), unless the key ``off_switch`` is true there, and MCP servers
    from the table ``servers`` in ``servers_file`` of the work tree or ``own_servers_file`` in the
    person's folder, or ``beside`` that. ``flat`` is Cursor's form of hooks, events and answers.
    Its events have the fields ``session``, ``subagent`` and ``reason``, and arguments that name
    ``paths``. ``only_denies``: before a tool, some versions read nothing but a denial.
    ``tells_number``: its terminal has the session number that its hooks are given. ``project`` is
    the variable that names its project.
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
    tells_number: bool = True
    project: str = ""

    @property
    def is_toml(self) -> bool:
        """Whether its servers are in a file of TOML, not JSON."""
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
            tells_number=False,
            project="CURSOR_PROJECT_DIR",
        ),
    )
}
