"""The entries in each host's file of hooks, and how they are found again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gitlease.core.frozen import dataclass

Json = dict[str, Any]

# The program by any path, in quotes or not, and then our words: nobody else would write that.
_OURS = re.compile(
    r'"?(?:\S*[\\/])?(?:gitlease|git-lease|git lease)(?:\.exe)?"? agent [a-z]+ \S+.*'
)
# Of MCP servers those tools that edit, by their names.
MCP_EDITS = (
    "mcp__.*(write|edit|create|delete|remove|move|rename|replace|insert|append|patch|update|apply"
    "|save)"
)
EDITS = "Edit|Write|MultiEdit|NotebookEdit"
PATCHES = "apply_patch|Edit|Write"
SHELL, CURSOR_SHELL = "Bash", "Shell"
CURSOR_EDITS = "Write|Edit|MultiEdit|StrReplace|Delete|EditNotebook|ApplyPatch"


@dataclass(frozen=True, slots=True)
class Hook:
    """One entry: the host's name of the event, ours, the matcher, and the timeout in seconds."""

    event: str
    word: str
    matcher: str = ""
    timeout: int = 10


@dataclass(frozen=True, slots=True)
class Host:
    """A coding agent: which hooks it gets, and in which file.

    ``home`` is the variable that moves the person's own folder. ``flat`` is Cursor's form: handlers
    are directly below their event.
    """

    name: str
    title: str
    folder: str
    file: str
    home: str
    hooks: tuple[Hook, ...]
    flat: bool = False
    hints: tuple[str, ...] = ()
    off_switch: str = ""  # the key that switches all hooks off

    def command(self, hook: Hook, *, keep: bool) -> str:
        ends = hook.word in ("session-end", "subagent-stop")
        return f"gitlease agent {self.name} {hook.word}{' --keep' if keep and ends else ''}"

    def user_folder(self, environ: Mapping[str, str]) -> str:
        moved = environ.get(self.home, "") if self.home else ""
        return moved or os.path.join(os.path.expanduser("~"), self.folder)


def _hooks(edits: str, shell: str) -> tuple[Hook, ...]:
    return (
        Hook("SessionStart", "session-start"),
        Hook("SubagentStart", "subagent-start"),
        Hook("PreToolUse", "before-edit", edits),
        Hook("PreToolUse", "before-edit", MCP_EDITS),  # apart: names alone are matched exactly
        Hook("PreToolUse", "before-shell", shell),
        Hook("PostToolUse", "after-tool", timeout=5),
        Hook("SubagentStop", "subagent-stop", timeout=5),
        Hook("SessionEnd", "session-end", timeout=5),
    )


HOSTS: Mapping[str, Host] = {
    host.name: host
    for host in (
        Host(
            "claude",
            "Claude Code",
            ".claude",
            "settings.json",
            "CLAUDE_CONFIG_DIR",
            _hooks(EDITS, SHELL),
            hints=("Claude Code reads CLAUDE.md; for AGENTS.md write @AGENTS.md into it",),
            off_switch="disableAllHooks",
        ),
        Host(
            "codex",
            "Codex",
            ".codex",
            "hooks.json",
            "CODEX_HOME",
            _hooks(PATCHES, SHELL),
            hints=(
                "Codex skips new and changed hooks until they are trusted: type /hooks in Codex",
                "versions of Codex without SessionEnd leave the leases to lapse by themselves",
            ),
        ),
        Host(
            "cursor",
            "Cursor",
            ".cursor",
            "hooks.json",
            "",
            (
                Hook("sessionStart", "session-start"),
                Hook("preToolUse", "before-edit", CURSOR_EDITS),
                Hook("preToolUse", "before-shell", CURSOR_SHELL),
                Hook("postToolUse", "after-tool", timeout=5),
                Hook("sessionEnd", "session-end", timeout=5),
            ),
            flat=True,
            hints=("Cursor asks once whether hooks of a project may run: see Settings, Hooks",),
        ),
    )
}


def is_ours(handler: object) -> bool:
    """Whether a handler calls gitlease, as this or an older version wrote it."""
    if not isinstance(handler, dict):
        return False
    command = handler.get("command")
    if not isinstance(command, str) or len(command) > 1_000:
        return False
    return _OURS.fullmatch(command.strip()) is not None


def entries(data: object) -> Iterator[tuple[str, Json]]:
    """Every handler of ours in a host's file, with its event."""
    hooks = data.get("hooks") if isinstance(data, dict) else None
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            inner = group.get("hooks") if isinstance(group, dict) else None
            for handler in inner if isinstance(inner, list) else [group]:
                if is_ours(handler):
                    yield event, handler


def without_ours(data: Json) -> Json:
    """The file without our entries, and without the groups that had nothing else."""
    hooks = data.get("hooks")
    if not isinstance(hooks, dict) or not any(entries(data)):
        return data
    left: Json = {}
    for event, groups in hooks.items():
        kept = _kept(groups) if isinstance(groups, list) else groups
        if kept or not groups:
            left[event] = kept
    return {k: left if k == "hooks" else v for k, v in data.items() if k != "hooks" or left}


def _kept(groups: list[Any]) -> list[Any]:
    kept = []
    for group in groups:
        inner = group.get("hooks") if isinstance(group, dict) else None
        if is_ours(group):
            continue
        if isinstance(inner, list) and any(map(is_ours, inner)):
            others = [handler for handler in inner if not is_ours(handler)]
            if not others:
                continue
            group = {**group, "hooks": others}
        kept.append(group)
    return kept


def with_ours(host: Host, data: Json, *, keep: bool) -> Json:
    """The file with our entries, each after those of others for its event."""
    data = without_ours(data)
    if host.flat and "version" not in data:
        data = {"version": 1, **data}
    hooks: Json = dict(data.get("hooks") or {})
    make: Callable[[Hook, str], Json] = _flat if host.flat else _grouped
    for hook in host.hooks:
        groups = hooks.get(hook.event) or []
        hooks[hook.event] = [*groups, make(hook, host.command(hook, keep=keep))]
    return {**data, "hooks": hooks}


def _flat(hook: Hook, command: str) -> Json:
    matcher = {"matcher": hook.matcher} if hook.matcher else {}
    return {"command": command, **matcher, "timeout": hook.timeout}


def _grouped(hook: Hook, command: str) -> Json:
    matcher = {"matcher": hook.matcher} if hook.matcher else {}
    handler = {"type": "command", "command": command, "timeout": hook.timeout}
    return {**matcher, "hooks": [handler]}
