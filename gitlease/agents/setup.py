"""Our entries in the files of coding agents: hooks, servers of tools, a section of AGENTS.md; and
the removal of everything of ours from a clone.

The files belong to people. JSON is read and written as the agents themselves write it: keys keep
their order and the file its indentation, but spaces inside lines and escaped letters do not stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gitlease.guard.hook_places import find_marked, rewrite_file
from gitlease.guard.install import uninstall
from gitlease.kernel.git.files import load_json, make_folders, read_regular, strings_in
from gitlease.kernel.git.repository import Repository, ask, discover
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotARepository, hint
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.settings.identity import AGENTS, Agent
from gitlease.kernel.settings.schema import FILE

MAX_BYTES = 1024 * 1024
MOST_OF_SERVERS = 16 * 1024 * 1024  # Claude Code keeps much else in the person's own file
PLAIN = ("make it plain JSON, without comments and trailing commas",)
Json = dict[str, Any]

# The program by any path, in quotes or not, and then our words: nobody else would write that.
_OURS = re.compile(
    r'"?(?:\S*[\\/])?(?:gitlease|git-lease|git lease)(?:\.exe)?"? agent [a-z]+ \S+.*'
)


def is_ours(handler: object) -> bool:
    """Return whether a handler calls gitlease, as this or an older version wrote it."""
    command = handler.get("command") if isinstance(handler, dict) else None
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
    if not any(entries(data)):
        return data
    hooks: Json = {}
    for event, groups in data["hooks"].items():
        kept = groups
        if isinstance(groups, list):
            kept = [other for group in groups for other in _kept(group)]
        # A list that was empty before is its owner's, and stays.
        if kept or not groups:
            hooks[event] = kept
    return _with_group(data, "hooks", hooks)


def _kept(group: Any) -> list[Any]:
    inner = group.get("hooks") if isinstance(group, dict) else None
    if is_ours(group):
        return []
    if not isinstance(inner, list) or not any(map(is_ours, inner)):
        return [group]
    others = [handler for handler in inner if not is_ours(handler)]
    return [{**group, "hooks": others}] if others else []


def _with_group(data: Json, name: str, group: Json) -> Json:
    """The file with another group in the place of the one it has; an empty one goes."""
    return {x: group if x == name else y for x, y in data.items() if x != name or group}


def with_ours(agent: Agent, data: Json, *, keep: bool) -> Json:
    """The file with our entries, each after those of others for its event."""
    # Entries of older versions go, and ours come last: those of others keep their order.
    data = without_ours(data)
    # The host passes over a file of hooks without it.
    if agent.flat and "version" not in data:
        data = {"version": 1, **data}
    hooks: Json = dict(data.get("hooks") or {})
    for hook in agent.hooks:
        matcher = {"matcher": hook.matcher} if hook.matcher else {}
        command, timeout = agent.command(hook, keep=keep), hook.timeout
        handler = {"type": "command", "command": command, "timeout": timeout}
        flat = {"command": command, **matcher, "timeout": timeout}
        entry = flat if agent.flat else {**matcher, "hooks": [handler]}
        hooks[hook.event] = [*(hooks.get(hook.event) or []), entry]
    return {**data, "hooks": hooks}


# --- files of people --------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentFile:
    """A file that may have our entries: its name for people, and its real path."""

    name: str
    file: str
    # A symbolic link leads there: the file stays, with an empty object, or the link led nowhere.
    linked: bool = False


@dataclass(frozen=True)
class FileDone:
    """The result for one file: ``written``, ``unchanged``, ``removed``, ``absent`` or ``kept``.

    ``removed``: our entries were, or the file if it had nothing else. ``kept``: our section is left
    for another host, which has its hooks here.
    """

    file: str
    what: str


def place_of(
    agent: Agent,
    repository: Repository | None,
    *,
    user: bool,
    environ: Mapping[str, str],
    servers: bool = False,
) -> AgentFile:
    """An agent's file of hooks, or of ``servers``: the person's own, or that of the work tree.

    Raises Invalid without a work tree.
    """
    name, personal = agent.files(environ, servers=servers)
    if not user:
        return inside(repository, name)
    file = os.path.abspath(personal)
    return AgentFile(file, os.path.realpath(file), os.path.islink(file))


def inside(repository: Repository | None, name: str) -> AgentFile:
    """A file of a work tree. Raises Invalid without a work tree, and for a link that leads out."""
    if repository is None or repository.toplevel is None:
        raise Invalid("not in a work tree", hints=(hint("for all repositories: {}", user=True),))
    root = os.path.realpath(repository.toplevel)
    file = os.path.realpath(named := os.path.join(root, name))
    if not file.startswith(os.path.join(root, "")):
        raise Invalid(f"{name} leads out of the work tree", hints=("replace the link with a file",))
    return AgentFile(name, file, os.path.islink(named))


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


def write(place: AgentFile, data: bytes | None) -> None:
    """Write a file; without data remove it, and its folder if that is empty then."""
    folder = os.path.dirname(place.file)
    try:
        if data is None:
            os.unlink(place.file)
        else:
            make_folders(folder)
            rewrite_file(place.file, data)
    except OSError as error:
        raise Invalid(f"{place.name} cannot be written: {error.strerror}") from None
    home = os.path.realpath(os.path.expanduser("~"))
    # A name without a folder is in the work tree's root, which stays as the home does.
    if data is None and os.path.dirname(place.name) and folder != home:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def parse_json(place: AgentFile, data: bytes, group: str) -> Json:
    """The object in a file; an empty file is ``{}``. Raises Invalid for anything else.

    ``group`` is the member that has our entries: it has to be an object, too.
    """

    def once(pairs: list[tuple[str, Any]]) -> Json:
        members = dict(pairs)
        # The host would read the last of the two, and rewriting the file would drop the first for
        # good.
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


def write_json(
    place: AgentFile, before: bytes | None, new: Json, what: str, *, bare: Json | None = None
) -> FileDone:
    """Write an object with the indentation and line ends of the text before.

    A file that has nothing, or no more than ``bare``, goes.
    """
    text = before or b""
    first = re.search(rb"\n([ \t]+)\S", text)
    indent = first[1].decode() if first else "  "
    try:
        data = json.dumps(new, indent=indent, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        why = f"{place.name} has a text, a number or a depth that cannot be written as JSON again"
        raise Invalid(why, hints=PLAIN) from None
    # A file keeps its own ends, so that a diff shows our lines alone.
    if not text.strip() or text.endswith(b"\n"):
        data += b"\n"
    if b"\r\n" in text:
        data = data.replace(b"\n", b"\r\n")
    write(place, data if place.linked or (new and new != bare) else None)
    return FileDone(place.name, what)


# --- hooks ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The events that a file has our hooks for, and those missing or outdated."""

    file: str
    events: tuple[str, ...]
    missing: tuple[str, ...]
    keep: bool = False
    problem: str = ""


def add_hooks(agent: Agent, place: AgentFile, *, keep: bool) -> FileDone:
    """Write our entries, and drop those of older versions. Idempotent. Invalid for a bad file."""
    before, data = _read_hooks(place)
    wanted = with_ours(agent, data, keep=keep)
    if wanted == data:
        return FileDone(place.name, "unchanged")
    return write_json(place, before, wanted, "written")


def remove_hooks(agent: Agent, place: AgentFile) -> FileDone:
    """Remove our entries, and the file if it had nothing else."""
    before, data = _read_hooks(place)
    if not any(entries(data)):
        return FileDone(place.name, "absent")
    # The host needs that, and we may have written it.
    bare = {"version": 1} if agent.flat else None
    return write_json(place, before, without_ours(data), "removed", bare=bare)


def hooks_in(agent: Agent, place: AgentFile) -> Installed:
    """Which of our hooks a file has. An unreadable file is a problem, not an error."""
    try:
        _, data = _read_hooks(place)
    except Invalid as error:
        missing = tuple(hook.event for hook in agent.hooks)
        return Installed(file=place.name, events=(), missing=missing, problem=error.message)
    # Counted: an event may have to call us more than once, by different matchers.
    there = Counter((event, str(handler.get("command"))) for event, handler in entries(data))
    keeps = any(command.endswith(" --keep") for _, command in there)
    wanted = Counter((h.event, agent.command(h, keep=keeps)) for h in agent.hooks)
    missing = tuple(event for (event, command), n in wanted.items() if there[event, command] < n)
    events = tuple(dict.fromkeys(event for event, _ in sorted(there)))
    return Installed(file=place.name, events=events, missing=missing, keep=keeps)


def _read_hooks(place: AgentFile) -> tuple[bytes | None, Json]:
    data = read(place)
    members = parse_json(place, data or b"", "hooks")
    if not all(isinstance(x, list) for x in members.get("hooks", {}).values()):
        raise Invalid(f"{place.name}: hooks are not in the form that this host reads")
    return data, members


def is_installed(agent: str, root: str) -> bool:
    """Return whether the hooks of a host are in its file of this work tree. False if in doubt."""
    name = os.path.join(root, AGENTS[agent].folder, AGENTS[agent].hooks_file)
    return any(entries(load_json(name, MAX_BYTES)))


def switched_off(agent: Agent, repository: Repository | None, place: AgentFile) -> str:
    """The file that switches all hooks of an agent off, ``""`` for none."""
    # The settings of the work tree, the local ones and the person's own hold together.
    personal = place_of(agent, None, user=True, environ=os.environ)
    files = {place.file: place.name, personal.file: personal.name}
    if repository is not None and repository.toplevel is not None:
        start, _ = os.path.splitext(os.path.join(agent.folder, agent.hooks_file))
        names = (f"{start}.json", f"{start}.local.json")
        files = {os.path.join(repository.toplevel, name): name for name in names} | files
    for file, name in files.items() if agent.off_switch else ():
        data = load_json(file, MAX_BYTES)
        if isinstance(data, dict) and data.get(agent.off_switch) is True:
            return name
    return ""


def distrust(
    agent: Agent, repository: Repository | None, *, user: bool, servers: bool
) -> tuple[bool, str]:
    """Why an agent may pass over our entries, and whether that is known."""
    personal = place_of(agent, None, user=True, environ=os.environ, servers=True)
    why = agent.server_hint if servers else next(iter(agent.hook_hints), "")
    root = os.path.realpath((repository and repository.toplevel) or "")
    if agent.is_toml:
        known = _parse_toml(personal, read(personal, most=MOST_OF_SERVERS) or b"")
        if not user and _member(known, "projects", root, "trust_level") != "trusted":
            return True, agent.server_hint
        place = place_of(agent, repository, user=user, environ=os.environ)
        trusted = servers or any(place.file in x for x in _member(known, "hooks", "state") or ())
        return True, "" if trusted else why
    if user or not agent.beside:
        return False, "" if user else why
    start = os.path.join(root, agent.folder, "settings")
    data = [load_json(f"{start}{end}", MAX_BYTES) for end in (".json", ".local.json")]
    data.append(_member(load_json(personal.file, MOST_OF_SERVERS), "projects", root))
    chosen = [NAME in strings_in(_member(x, "enabledMcpjsonServers")) for x in data]
    chosen += [_member(x, "enableAllProjectMcpServers") is True for x in data]
    refused = any(NAME in strings_in(_member(x, "disabledMcpjsonServers")) for x in data)
    return True, why if servers and (refused or not any(chosen)) else ""


def _member(data: Any, *names: str) -> Any:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


# --- gitlease agent ----------------------------------------------------------------------------


@dataclass(frozen=True)
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
    known, repository = AGENTS[host], _repository(directory, user=user)
    place = place_of(known, repository, user=user, environ=os.environ)
    done = []
    if action == "install":
        done.append(add_hooks(known, place, keep=keep))
    elif action == "uninstall":
        done.append(remove_hooks(known, place))
    if repository is not None and not user:
        # A mark that gitlease is used here, for linked work trees, too: see ``has_traces``.
        if action == "install":
            with contextlib.suppress(OSError):
                make_folders(os.path.join(repository.common_dir, "gitlease"))
        if action == "install" and section:
            done.append(write_section(inside(repository, AGENTS_MD)))
        elif action == "uninstall":
            root = repository.toplevel or ""
            keeps = any(x != host and is_installed(x, root) for x in AGENTS)
            taken = remove_section(inside(repository, AGENTS_MD), keep=keeps)
            done += [taken] if taken.what != "absent" else []
    state, program = hooks_in(known, place), shutil.which("gitlease")
    warnings = [state.problem] if state.problem else []
    off = switched_off(known, repository, place)
    if off:
        warnings.append(f"{off} switches all hooks of {known.title} off ({known.off_switch})")
    if state.events and not program:
        warnings.append("gitlease is not on PATH: the hooks do nothing")
    hints = known.hook_hints if state.events else ()
    return AgentSetup(tuple(done), state, program, tuple(warnings), hints, bool(off))


def _repository(directory: str, *, user: bool) -> Repository | None:
    try:
        return discover(directory)
    except NotARepository:
        if not user:
            raise
        return None


# --- AGENTS.md --------------------------------------------------------------------------------

AGENTS_MD = "AGENTS.md"
# Without the version, so that every version finds the sections of the older ones.
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
    "  on how far you got, when you stop, wait or take another task, and with `--keep` if a task",
    "  needs an answer from a person",
    "- don't: hold what you do not work on, take over (people do), stash, or reset or switch",
    "  branches where another session works: `git worktree add` gives you a folder of your own",
    END,
)


def write_section(place: AgentFile) -> FileDone:
    """Write the marked section after a line end of its own, or in the place of an old one."""
    before = read(place)
    match = _marked(before, AROUND_SECTION)
    return _put(place, before, _with(before, SECTION, match))


def remove_section(place: AgentFile, *, keep: bool = False) -> FileDone:
    """Remove the section, with the line end before it; ``keep``: others still need it."""
    before = read(place) or b""
    match = _marked(before, AROUND_SECTION)
    if match is None or keep:
        return FileDone(place.name, "absent" if match is None else "kept")
    write(place, _without(before, match))
    return FileDone(place.name, "removed")


# --- MCP servers ------------------------------------------------------------------------------

NAME = "gitlease"  # of the server
ENTRY = {"command": "gitlease", "args": ["mcp"]}
# Codex passes on few variables. By name, so that each start has its own values.
PASSED_ON = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GITLEASE_SESSION")
AROUND_TABLE = (b"# BEGIN GITLEASE", rb"# END GITLEASE[ \t]*")


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The server as a file has it: the command, and the names of variables to pass on.

    ``ours``: it starts this program.
    """

    command: tuple[str, ...]
    passed_on: tuple[str, ...]
    ours: bool


@dataclass(frozen=True)
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
    known, repository = AGENTS[host], _repository(directory, user=user)
    place = place_of(known, repository, user=user, environ=os.environ, servers=True)
    change = {"install": register, "uninstall": unregister}.get(action)
    done = change(known, place) if change else None
    root = repository.toplevel if repository else None
    return ServerSetup(done, place.name, registered(known, place), root or directory)


def register(agent: Agent, place: AgentFile) -> FileDone:
    """Write the server into a file. Idempotent. Invalid for a file that cannot take it."""
    before, data = _read_servers(agent, place)
    servers = data.get(agent.servers, {})
    server = _read_entry(servers[NAME]) if NAME in servers else None
    if server is not None and not server.ours:
        raise Invalid(
            f"{place.name} has a server called {NAME} that does not start this program: "
            f"{' '.join(server.command)[:120] or 'of another kind'}",
            hints=("remove it, or rename it",),
        )
    match = _marked(before, AROUND_TABLE) if agent.is_toml else None
    if server is not None and match is None:
        return FileDone(place.name, "unchanged")
    if agent.is_toml:
        table = (
            "# BEGIN GITLEASE v=1",
            f"[{agent.servers}.{NAME}]",
            *(f"{name} = {json.dumps(x)}" for name, x in {**ENTRY, "env_vars": PASSED_ON}.items()),
            "# END GITLEASE",
        )
        after = _with(before, table, match)
        try:
            # TOML is extended as text, which keeps people's comments: whether the result stands is
            # tried here.
            _parse_toml(place, after)
        except Invalid:
            raise Invalid(
                f"{place.name} has its servers in a form that cannot be extended",
                hints=(f"write them as tables: [{agent.servers}.NAME]",),
            ) from None
        return _put(place, before, after)
    new = {**data, agent.servers: {**servers, NAME: ENTRY}}
    return write_json(place, before, new, "written")


def unregister(agent: Agent, place: AgentFile) -> FileDone:
    """Remove the server, and a file of JSON if it had nothing else."""
    before, data = _read_servers(agent, place)
    there = data.get(agent.servers, {}).get(NAME)
    # A server of our name that starts something else is another's.
    if before is None or there is None or not _read_entry(there).ours:
        return FileDone(place.name, "absent")
    rest = _without_ours(agent, data)
    if not agent.is_toml:
        return write_json(place, before, rest, "removed")
    match = _marked(before, AROUND_TABLE)
    text = before if match is None else _without(before, match)
    remaining = _parse_toml(place, text or b"")
    # Somebody may have written into our marked lines, or the table once more below them.
    if NAME in remaining.get(agent.servers, {}) or _without_ours(agent, remaining) != rest:
        raise Invalid(
            f"{place.name} has [{agent.servers}.{NAME}] or more outside of our marked lines",
            hints=("remove that by hand first, and all below our last line",),
        )
    write(place, text)
    return FileDone(place.name, "removed")


def registered(agent: Agent, place: AgentFile) -> Registered | None:
    """The server of our name in a file, if any. Raises Invalid for a file that cannot be read."""
    servers = _read_servers(agent, place)[1].get(agent.servers, {})
    return _read_entry(servers[NAME]) if NAME in servers else None


def _read_servers(agent: Agent, place: AgentFile) -> tuple[bytes | None, dict[str, Any]]:
    before = read(place, most=MOST_OF_SERVERS)
    if not agent.is_toml:
        return before, parse_json(place, before or b"", agent.servers)
    parsed = _parse_toml(place, before or b"")
    if not isinstance(parsed.get(agent.servers, {}), dict):
        raise Invalid(f"{place.name}: servers are not in the form that this host reads")
    return before, parsed


def _read_entry(entry: Any) -> Registered:
    entry = entry if isinstance(entry, dict) else {}
    command = tuple(strings_in([entry.get("command"), *strings_in(entry.get("args"))]))
    program = os.path.basename(command[0]) if command else ""
    ours = program in ("gitlease", "git-lease") and "mcp" in command[1:]
    return Registered(
        command=command, passed_on=tuple(strings_in(entry.get("env_vars"))), ours=ours
    )


def _without_ours(agent: Agent, data: dict[str, Any]) -> dict[str, Any]:
    servers = {x: y for x, y in data.get(agent.servers, {}).items() if x != NAME}
    return _with_group(data, agent.servers, servers)


def _parse_toml(place: AgentFile, data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise Invalid(f"{place.name} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{place.name}: not TOML: {error}") from None


# --- sections of text -------------------------------------------------------------------------


def _marked(text: bytes | None, marks: tuple[bytes, bytes]) -> re.Match[bytes] | None:
    return find_marked(text or b"", *marks)


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


def remove_all(repository: Repository, *, user: bool, dry_run: bool) -> tuple[list[str], list[str]]:
    """Remove hooks, agents' handlers, settings and this clone's private state, in this order.

    ``user``: also the handlers in the person's own files, which serve all repositories. Returns
    what was removed (or would be), and what could not be, with the reasons.
    """
    done: list[str] = []
    failed: list[str] = []
    for part in (_hooks, _agents, _config, _file, _private):
        try:
            done += part(repository, user=user, dry_run=dry_run)
        except (GitleaseError, OSError) as error:
            why = error.message if isinstance(error, GitleaseError) else f"{error.strerror}"
            failed.append(f"{part.__doc__}: {why}")
    return done, failed


def _hooks(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """git's hooks"""
    plan = uninstall(repository, dry_run=dry_run)
    yield from (*plan.messages, *plan.notes)


def _agents(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """hooks of coding agents"""
    folder, action = repository.toplevel, "status" if dry_run else "uninstall"
    places = [False] * (folder is not None) + [True] * user
    for host in AGENTS:
        for personal in places:
            where = folder or repository.git_dir
            setup = set_up_agent(where, host, action, user=personal, keep=False, section=False)
            removed = any(x.what == "removed" for x in setup.done)
            if setup.state.events if dry_run else removed:
                yield f"removed our hooks from {setup.state.file}"
            server = set_up_server(where, host, action, user=personal)
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
