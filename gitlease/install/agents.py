"""Our entries in the files of coding agents: hooks, in each host's form.

The files belong to people. They are read and written as JSON, as the hosts themselves write them:
keys keep their order and the file its indentation, but spaces inside lines and escaped letters do
not stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gitlease.core.errors import Invalid, hint
from gitlease.core.frozen import dataclass
from gitlease.git.files import (
    PUBLIC,
    load_json,
    make_folders,
    read_regular,
    read_small,
    rewrite_file,
    sum_of,
)
from gitlease.git.repository import Repository
from gitlease.guard.notes import has_traces
from gitlease.settings.schema import FILE

MAX_BYTES, MAX_COPY = 1024 * 1024, 17 * 1024 * 1024
COPY = ".before-gitlease"  # beside a file of the person's own
PLAIN = ("make it plain JSON, without comments and trailing commas",)
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
    for hook in host.hooks:
        matcher = {"matcher": hook.matcher} if hook.matcher else {}
        command, timeout = host.command(hook, keep=keep), hook.timeout
        handler = {"type": "command", "command": command, "timeout": timeout}
        flat = {"command": command, **matcher, "timeout": timeout}
        entry = flat if host.flat else {**matcher, "hooks": [handler]}
        hooks[hook.event] = [*(hooks.get(hook.event) or []), entry]
    return {**data, "hooks": hooks}


# --- files of people --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentFile:
    """A file that may have our entries: its name for people, its real path, and that of a copy."""

    name: str
    file: str
    copy: str


@dataclass(frozen=True, slots=True)
class FileDone:
    """The result for one file: ``written``, ``unchanged``, ``removed``, ``absent`` or ``kept``.

    ``removed``: our entries were, or the file if it had nothing else. ``kept``: our section is left
    for another host, which has its hooks here.
    """

    file: str
    what: str


def place_of(
    host: Host, repository: Repository | None, *, user: bool, environ: Mapping[str, str]
) -> AgentFile:
    """The host's file of hooks: the person's own, or that of the work tree. Invalid without one."""
    if not user:
        return inside(repository, os.path.join(host.folder, host.file))
    file = os.path.join(os.path.abspath(host.user_folder(environ)), host.file)
    return AgentFile(file, os.path.realpath(file), f"{file}{COPY}")


def inside(repository: Repository | None, name: str) -> AgentFile:
    """A file of a work tree. Raises Invalid without a work tree, and for a link that leads out."""
    if repository is None or repository.toplevel is None:
        raise Invalid("not in a work tree", hints=(hint("for all repositories: {}", user=True),))
    root = os.path.realpath(repository.toplevel)
    file = os.path.realpath(os.path.join(root, name))
    if not file.startswith(os.path.join(root, "")):
        raise Invalid(f"{name} leads out of the work tree", hints=("replace the link with a file",))
    copy = f"before-{os.path.basename(repository.git_dir)}-{name.replace('/', '-')}"
    return AgentFile(name, file, os.path.join(repository.common_dir, "gitlease", copy))


def read(place: AgentFile, *, most: int = MAX_BYTES) -> bytes | None:
    """The bytes of a file, None without one. Invalid for anything but an ordinary small file."""
    try:
        data = read_regular(place.file, most)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"{place.name} cannot be read: {error.strerror}") from None
    if data is None:
        raise Invalid(f"{place.name} is not a file")
    if len(data) > most:
        raise Invalid(f"{place.name} is larger than {most // 1024} KiB")
    return data


def write(place: AgentFile, data: bytes | None, *, mode: int = PUBLIC) -> None:
    """Write a file; without data remove it, and its folder if that is empty then."""
    folder = os.path.dirname(place.file)
    try:
        if data is None:
            os.unlink(place.file)
        else:
            make_folders(folder)
            rewrite_file(place.file, data, mode=mode)
    except OSError as error:
        raise Invalid(f"{place.name} cannot be written: {error.strerror}") from None
    home = os.path.realpath(os.path.expanduser("~"))
    if data is None and os.path.dirname(place.name) and folder != home:  # nor the work tree's root
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def parse_json(place: AgentFile, data: bytes, group: str) -> Json:
    """The object in a file; an empty file is ``{}``. Raises Invalid for anything else.

    ``group`` is the member that has our entries: it has to be an object, too.
    """

    def once(pairs: list[tuple[str, Any]]) -> Json:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise Invalid(f"{place.name}: an object has a key twice")
        return members

    try:
        text = data.decode("utf-8-sig")
        members = json.loads(text, object_pairs_hook=once) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise Invalid(f"{place.name}:{error.lineno}: not JSON: {error.msg}", hints=PLAIN) from None
    except (ValueError, RecursionError):
        raise Invalid(f"{place.name}: not JSON in UTF-8", hints=PLAIN) from None
    if not isinstance(members, dict) or not isinstance(members.get(group, {}), dict):
        what = "hooks" if group == "hooks" else "servers"
        raise Invalid(f"{place.name}: {what} are not in the form that this host reads")
    return members


def extend_json(place: AgentFile, before: bytes | None, new: Json, *, again: bool) -> None:
    """Write an object with our entries, and keep the bytes that were there for ``reduce_json``.

    ``again``: there were entries of ours. A kill in between leaves a copy that fits no file.
    """
    data = _laid_out(place, before or b"", new)
    exact, _, first = _before_ours(place, before)
    if again and not exact:
        forget(place)
    else:
        first = first if exact else before
        copy = sum_of(data, "") + (b"" if first is None else b"\n" + first)
        write(AgentFile(place.copy, place.copy, ""), copy, mode=0o600)
    write(place, data)


def reduce_json(place: AgentFile, before: bytes | None, new: Json) -> None:
    """Put back what was there before ours, or write the object if others changed the file since.

    A file that we made goes, if it has nothing else.
    """
    exact, made, first = _before_ours(place, before)
    is_bare = not any(x for key, x in new.items() if key != "version")
    data = first if exact or (made and is_bare) else _laid_out(place, before or b"", new)
    forget(place)
    write(place, data)


def _before_ours(place: AgentFile, now: bytes | None) -> tuple[bool, bool, bytes | None]:
    """Whether a file is just what we wrote, whether we made it, and what was there before."""
    head, there, first = (read_small(place.copy, MAX_COPY) or b"").partition(b"\n")
    return head == sum_of(now or b"", ""), bool(head) and not there, first if there else None


def forget(place: AgentFile) -> None:
    """Remove the copy of what was there before ours."""
    with contextlib.suppress(OSError):
        os.unlink(place.copy)


def _laid_out(place: AgentFile, before: bytes, new: Json) -> bytes:
    """An object as text, with the indentation and line ends of the text before."""
    first = re.search(rb"\n([ \t]+)\S", before)
    indent = first[1].decode() if first else "  "
    try:
        data = json.dumps(new, indent=indent, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        why = f"{place.name} has a text, a number or a depth that cannot be written as JSON again"
        raise Invalid(why, hints=PLAIN) from None
    if not before.strip() or before.endswith(b"\n"):
        data += b"\n"
    return data.replace(b"\n", b"\r\n") if b"\r\n" in before else data


# --- hooks ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The events that a file has our hooks for, and those missing or outdated."""

    file: str
    events: tuple[str, ...]
    missing: tuple[str, ...]
    keep: bool = False
    problem: str = ""


def install(host: Host, place: AgentFile, *, keep: bool) -> FileDone:
    """Write our entries, and drop those of older versions. Idempotent. Invalid for a bad file."""
    before, data = _read_hooks(place)
    wanted = with_ours(host, data, keep=keep)
    if wanted == data:
        return FileDone(place.name, "unchanged")
    extend_json(place, before, wanted, again=any(entries(data)))
    return FileDone(place.name, "written")


def uninstall(host: Host, place: AgentFile) -> FileDone:
    """Remove our entries: ``reduce_json``."""
    before, data = _read_hooks(place)
    if not any(entries(data)):
        forget(place)
        return FileDone(place.name, "absent")
    reduce_json(place, before, without_ours(data))
    return FileDone(place.name, "removed")


def status(host: Host, place: AgentFile) -> Installed:
    """Which of our hooks a file has. An unreadable file is a problem, not an error."""
    try:
        _, data = _read_hooks(place)
    except Invalid as error:
        every = tuple(hook.event for hook in host.hooks)
        return Installed(file=place.name, events=(), missing=every, problem=error.message)
    there = Counter((event, str(handler.get("command"))) for event, handler in entries(data))
    keeps = any(command.endswith(" --keep") for _, command in there)
    wanted = Counter((h.event, host.command(h, keep=keeps)) for h in host.hooks)
    missing = tuple(event for (event, command), n in wanted.items() if there[event, command] < n)
    events = tuple(dict.fromkeys(event for event, _ in sorted(there)))
    return Installed(file=place.name, events=events, missing=missing, keep=keeps)


def _read_hooks(place: AgentFile) -> tuple[bytes | None, Json]:
    data = read(place)
    members = parse_json(place, data or b"", "hooks")
    if not all(isinstance(x, list) for x in members.get("hooks", {}).values()):
        raise Invalid(f"{place.name}: hooks are not in the form that this host reads")
    return data, members


def is_installed(host: str, root: str) -> bool:
    """Whether the hooks of a host are in its file of this work tree. False if in doubt."""
    name = os.path.join(root, HOSTS[host].folder, HOSTS[host].file)
    return any(entries(load_json(name, MAX_BYTES)))


def switched_off(host: Host, files: Iterable[AgentFile]) -> str:
    """The file that switches all hooks of a host off, ``""`` for none."""
    for place in files if host.off_switch else ():
        data = load_json(place.file, MAX_BYTES)
        if isinstance(data, dict) and data.get(host.off_switch) is True:
            return place.name
    return ""


def is_used(repository: Repository) -> bool:
    """Whether gitlease is used in this repository.

    The hooks in a person's own file are called everywhere: elsewhere they do nothing.
    """
    root = repository.toplevel
    return root is not None and (
        os.path.lexists(os.path.join(root, FILE))
        or has_traces(repository.common_dir)
        or any(is_installed(host, root) for host in HOSTS)
    )
