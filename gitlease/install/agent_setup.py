"""``gitlease agent``, ``mcp`` and ``uninstall``: every file of a host that they write to.

A host finds its hooks in one file and its MCP servers in another; AGENTS.md is for all hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitlease.core.errors import GitleaseError, Invalid, NotARepository
from gitlease.core.frozen import dataclass
from gitlease.git.files import make_folders
from gitlease.git.repository import Repository, ask, discover
from gitlease.install import agents
from gitlease.install.agents import (
    COPY,
    HOSTS,
    AgentFile,
    FileDone,
    Host,
    Installed,
    extend_json,
    forget,
    inside,
    parse_json,
    place_of,
    read,
    reduce_json,
    write,
)
from gitlease.install.git_hooks import uninstall
from gitlease.install.hook_places import find_marked
from gitlease.settings.schema import FILE


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The results for a host's files, and the hooks that are there now.

    ``is_off``: a setting of the host switches all hooks off.
    """

    done: tuple[FileDone, ...]
    state: Installed
    program: str | None
    warnings: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    is_off: bool = False


def set_up_agent(
    directory: str, host: str, action: str, *, user: bool, keep: bool, section: bool
) -> AgentSetup:
    """Carry out ``install``, ``uninstall`` or ``status``; ``section``: with that of AGENTS.md.

    Asks no remote. Raises Invalid for an unusable file, and without ``user`` NotARepository.
    """
    known, repository = HOSTS[host], _repository(directory, user=user)
    place = place_of(known, repository, user=user, environ=os.environ)
    done = []
    if action == "install":
        done.append(agents.install(known, place, keep=keep))
    elif action == "uninstall":
        done.append(agents.uninstall(known, place))
    if repository is not None and not user:
        if action == "install":  # a mark that gitlease is used here, for linked work trees too
            with contextlib.suppress(OSError):
                make_folders(os.path.join(repository.common_dir, "gitlease"))
        if action == "install" and section:
            done.append(write_section(inside(repository, AGENTS_MD)))
        elif action == "uninstall":
            root = repository.toplevel or ""
            keeps = any(x != host and agents.is_installed(x, root) for x in HOSTS)
            taken = remove_section(inside(repository, AGENTS_MD), keep=keeps)
            done += [taken] if taken.what != "absent" else []
    state, program = agents.status(known, place), shutil.which("gitlease")
    warnings = [state.problem] if state.problem else []
    off = agents.switched_off(known, _settings_files(known, repository, place))
    if off:
        warnings.append(f"{off} switches all hooks of {known.title} off ({known.off_switch})")
    if state.events and not program:
        warnings.append("gitlease is not on PATH: the hooks do nothing")
    hints = known.hints if state.events else ()
    return AgentSetup(tuple(done), state, program, tuple(warnings), hints, bool(off))


def _settings_files(
    host: Host, repository: Repository | None, place: AgentFile
) -> Iterator[AgentFile]:
    """The files of settings that hold together with one: the local and the person's own."""
    yield place
    if repository is not None and repository.toplevel is not None:
        for name in (host.file, f"{os.path.splitext(host.file)[0]}.local.json"):
            name = os.path.join(host.folder, name)
            yield AgentFile(name, os.path.join(repository.toplevel, name), "")
    yield place_of(host, None, user=True, environ=os.environ)


def _repository(directory: str, *, user: bool) -> Repository | None:
    try:
        return discover(directory)
    except NotARepository:
        if not user:
            raise
        return None


# --- AGENTS.md --------------------------------------------------------------------------------

AGENTS_MD = "AGENTS.md"
AROUND_SECTION = (b"<!-- BEGIN GITLEASE", rb"<!-- END GITLEASE -->[ \t]*")
BEGIN, END = "<!-- BEGIN GITLEASE v=1 -->", "<!-- END GITLEASE -->"
SECTION = (
    BEGIN,
    "## Leases",
    "",
    "Several people and agents work in this repository at once. `gitlease` says who works on what:",
    "",
    "- `gitlease brief` shows what you hold, what others hold, and free tasks",
    "- `gitlease next --claim` takes the next free task, `gitlease claim RESOURCE` a certain one",
    "- what another holds is theirs until it is free: work on something else meanwhile",
    '- `gitlease release RESOURCE --note "..."` gives back, `gitlease done TASK` finishes',
    "- do: claim before the first edit, with its paths (`--path src/auth/`); release, with a note",
    "  on how far you got, when you stop, wait or take another task; `gitlease park` for a break",
    "- don't: hold what you do not work on, take over (people do), stash, or reset or switch",
    "  branches where another session works: `git worktree add` gives you a folder of your own",
    END,
)


def write_section(place: AgentFile) -> FileDone:
    """Write the marked section after a line end of its own, or in the place of an old one."""
    before = read(place)
    match = find_marked(before or b"", *AROUND_SECTION)
    return _put(place, before, _with(before, SECTION, match))


def remove_section(place: AgentFile, *, keep: bool = False) -> FileDone:
    """Remove the section, with the line end before it; ``keep``: others still need it."""
    before = read(place) or b""
    match = find_marked(before, *AROUND_SECTION)
    if match is None or keep:
        return FileDone(place.name, "absent" if match is None else "kept")
    write(place, _without(before, match))
    return FileDone(place.name, "removed")


# --- MCP servers ------------------------------------------------------------------------------

NAME = "gitlease"  # of the server
COMMAND = ["gitlease", "mcp"]
# Codex passes on few variables. By name, so that each start has its own values.
PASSED_ON = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GITLEASE_SESSION")
ENTRY = {"command": COMMAND[0], "args": COMMAND[1:]}
GROUPS = {"claude": "mcpServers", "codex": "mcp_servers", "cursor": "mcpServers"}
MAX_BYTES = 16 * 1024 * 1024  # Claude Code keeps much else in the person's own file
_PROJECT = {"claude": ".mcp.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}
_USER = {"claude": ".claude.json", "codex": "config.toml", "cursor": "mcp.json"}
AROUND_TABLE = (b"# BEGIN GITLEASE", rb"# END GITLEASE[ \t]*")
_TABLE = (
    "# BEGIN GITLEASE v=1",
    f"[{GROUPS['codex']}.{NAME}]",
    f"command = {json.dumps(COMMAND[0])}",
    f"args = {json.dumps(COMMAND[1:])}",
    f"env_vars = {json.dumps(PASSED_ON)}",
    "# END GITLEASE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The server as a file has it: the command, and the names of variables to pass on.

    ``ours``: it starts this program.
    """

    command: tuple[str, ...]
    passed_on: tuple[str, ...]
    ours: bool


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """The result for the file in which a host looks for MCP servers, and the server there now."""

    done: FileDone | None
    file: str
    server: Registered | None
    folder: str


def set_up_server(directory: str, host: str, action: str, *, user: bool) -> ServerSetup:
    """Carry out ``install``, ``uninstall`` or ``status`` of ``gitlease mcp`` for a host.

    Raises Invalid for an unusable file, and without ``user`` NotARepository.
    """
    repository = _repository(directory, user=user)
    place = server_file(host, repository, user=user, environ=os.environ)
    change = {"install": register, "uninstall": unregister}.get(action)
    done = change(host, place) if change else None
    root = repository.toplevel if repository else None
    return ServerSetup(done, place.name, registered(host, place), root or directory)


def server_file(
    host: str, repository: Repository | None, *, user: bool, environ: Mapping[str, str]
) -> AgentFile:
    """The file of a host: the person's own, or that of the work tree. Invalid without one."""
    if not user:
        return inside(repository, _PROJECT[host])
    known = HOSTS[host]
    folder = known.user_folder(environ)
    if host == "claude" and not environ.get(known.home):  # beside its folder, unless moved
        folder = os.path.expanduser("~")
    file = os.path.join(os.path.abspath(folder), _USER[host])
    return AgentFile(file, os.path.realpath(file), f"{file}{COPY}")


def register(host: str, place: AgentFile) -> FileDone:
    """Write the server into a file. Idempotent. Invalid for a file that cannot take it."""
    before, data = _read_servers(host, place)
    servers = data.get(GROUPS[host], {})
    server = _read_entry(servers[NAME]) if NAME in servers else None
    if server is not None and not server.ours:
        raise Invalid(
            f"{place.name} has a server called {NAME} that does not start this program: "
            f"{' '.join(server.command)[:120] or 'of another kind'}",
            hints=("remove it, or rename it",),
        )
    match = find_marked(before or b"", *AROUND_TABLE) if host == "codex" else None
    if server is not None and match is None:
        return FileDone(place.name, "unchanged")
    if host == "codex":
        after = _with(before, _TABLE, match)
        try:
            _parse_toml(place, after)
        except Invalid:
            raise Invalid(
                f"{place.name} has its servers in a form that cannot be extended",
                hints=(f"write them as tables: [{GROUPS[host]}.NAME]",),
            ) from None
        return _put(place, before, after)
    new = {**data, GROUPS[host]: {**servers, NAME: ENTRY}}
    extend_json(place, before, new, again=False)
    return FileDone(place.name, "written")


def unregister(host: str, place: AgentFile) -> FileDone:
    """Remove the server: ``reduce_json``."""
    before, data = _read_servers(host, place)
    server = registered(host, place)
    if before is None or server is None or not server.ours:
        forget(place)
        return FileDone(place.name, "absent")
    rest = _without_ours(host, data)
    if host != "codex":
        reduce_json(place, before, rest)
        return FileDone(place.name, "removed")
    match = find_marked(before, *AROUND_TABLE)
    if match is None:
        raise Invalid(
            f"{place.name} has [{GROUPS[host]}.{NAME}] without the lines that mark it as ours",
            hints=("remove that table by hand",),
        )
    text = _without(before, match)
    remaining = _parse_toml(place, text or b"")
    if NAME in remaining.get(GROUPS[host], {}) or _without_ours(host, remaining) != rest:
        raise Invalid(
            f"{place.name} has more of [{GROUPS[host]}.{NAME}] below our lines",
            hints=("remove that by hand first, and all below our last line",),
        )
    write(place, text)
    return FileDone(place.name, "removed")


def registered(host: str, place: AgentFile) -> Registered | None:
    """The server of our name in a file, if any. Raises Invalid for a file that cannot be read."""
    servers = _read_servers(host, place)[1].get(GROUPS[host], {})
    return _read_entry(servers[NAME]) if NAME in servers else None


def _read_servers(host: str, place: AgentFile) -> tuple[bytes | None, dict[str, Any]]:
    before = read(place, most=MAX_BYTES)
    if host != "codex":
        return before, parse_json(place, before or b"", GROUPS[host])
    parsed = _parse_toml(place, before or b"")
    if not isinstance(parsed.get(GROUPS[host], {}), dict):
        raise Invalid(f"{place.name}: servers are not in the form that this host reads")
    return before, parsed


def _read_entry(entry: Any) -> Registered:
    entry = entry if isinstance(entry, dict) else {}
    words = [entry.get("command"), *_strings(entry.get("args"))]
    command = tuple(word for word in words if isinstance(word, str))
    program = os.path.basename(command[0]) if command else ""
    ours = program in ("gitlease", "git-lease") and "mcp" in command[1:]
    return Registered(command=command, passed_on=tuple(_strings(entry.get("env_vars"))), ours=ours)


def _strings(values: Any) -> list[str]:
    return [x for x in values if isinstance(x, str)] if isinstance(values, list) else []


def _without_ours(host: str, data: dict[str, Any]) -> dict[str, Any]:
    group = GROUPS[host]
    servers = {x: y for x, y in data.get(group, {}).items() if x != NAME}
    return {x: servers if x == group else y for x, y in data.items() if x != group or servers}


def _parse_toml(place: AgentFile, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise Invalid(f"{place.name} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{place.name}: not TOML: {error}") from None


# --- sections of text -------------------------------------------------------------------------


def _with(before: bytes | None, lines: Sequence[str], match: re.Match[bytes] | None) -> bytes:
    """A text with our section in the place of an old one, or below it after a line end."""
    text = before or b""
    end = b"\r\n" if b"\r\n" in text else b"\n"
    section = b"".join(line.encode() + end for line in lines)
    if match is not None:
        return text[: match.start()] + section + text[match.end() :]
    return text + (b"" if before is None else end) + section


def _put(place: AgentFile, before: bytes | None, after: bytes) -> FileDone:
    if after == before:
        return FileDone(place.name, "unchanged")
    write(place, after)
    return FileDone(place.name, "written")


def _without(text: bytes, match: re.Match[bytes]) -> bytes | None:
    """A text as it was before our section; None if there was none."""
    head = text[: match.start()].removesuffix(b"\n").removesuffix(b"\r")
    return head + text[match.end() :] if match.start() or match.end() < len(text) else None


# --- removing everything -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed (or would be), and what could not be, with the reasons."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


def remove_all(repository: Repository, *, user: bool, dry_run: bool) -> Removal:
    """Remove hooks, agents' handlers, settings and this clone's private state, in this order.

    ``user``: also the handlers in the person's own files, which serve all repositories. A failure
    does not keep the rest from being removed.
    """
    done: list[str] = []
    failed: list[str] = []
    for part in (_hooks, _agents, _config, _file, _private):
        try:
            done += part(repository, user=user, dry_run=dry_run)
        except (GitleaseError, OSError) as error:
            why = error.message if isinstance(error, GitleaseError) else f"{error.strerror}"
            failed.append(f"{part.__doc__}: {why}")
    return Removal(tuple(done), tuple(failed))


def _hooks(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """git's hooks"""
    plan = uninstall(repository, dry_run=dry_run)
    yield from (*plan.messages, *plan.notes)


def _agents(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """hooks of coding agents"""
    folder, action = repository.toplevel, "status" if dry_run else "uninstall"
    places = [False] * (folder is not None) + [True] * user
    for host in HOSTS:
        for own in places:
            where = folder or repository.git_dir
            setup = set_up_agent(where, host, action, user=own, keep=False, section=False)
            removed = any(x.what == "removed" for x in setup.done)
            if setup.state.events if dry_run else removed:
                yield f"removed our hooks from {setup.state.file}"
            server = set_up_server(where, host, action, user=own)
            there = server.server is not None and server.server.ours
            if there if dry_run else server.done and server.done.what == "removed":
                yield f"removed our MCP server from {server.file}"


def _config(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """git's configuration of this clone"""
    config = ("config", "--local")
    if ask(repository, *config, "--get-regexp", r"^lease\.").code != 0:
        return
    if not dry_run and ask(repository, *config, "--remove-section", "lease").code != 0:
        raise Invalid("git config --remove-section lease failed")
    yield "removed the section lease from git's configuration of this clone"


def _file(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """the settings"""
    path = os.path.join(repository.toplevel or "", FILE)
    if repository.toplevel is None or not os.path.lexists(path):
        return
    if not dry_run:
        os.unlink(path)
    yield f"removed {FILE}: commit that to remove it for everybody"


def _private(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """the private state of this clone"""
    folder = os.path.join(repository.common_dir, "gitlease")
    if not os.path.lexists(folder):
        return
    if not dry_run:
        shutil.rmtree(folder)
    yield f"removed {folder}"
