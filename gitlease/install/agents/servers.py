"""``gitlease mcp`` in the files that tell coding agents which MCP servers to start.

All else in these files stays as it is, to the byte.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from gitlease.core.errors import Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.repository import Repository
from gitlease.install.agents.hosts import HOSTS
from gitlease.install.agents.json_member import parse_json, with_member, without_member
from gitlease.install.agents.place import AgentFile, FileDone, inside, read, write
from gitlease.install.managed_text import find_marked, swap

NAME = "gitlease"  # of the server
COMMAND = ["gitlease", "mcp"]
# Codex passes on few variables. By name, so that each start has its own values.
PASSED_ON = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GITLEASE_SESSION")
SERVERS = "mcpServers"
ENTRY = {"command": COMMAND[0], "args": COMMAND[1:]}
ALONE = json.dumps({SERVERS: {NAME: ENTRY}}, indent=2) + "\n"  # a file with nothing else
TABLE = "mcp_servers"
BEGIN, END = "# BEGIN GITLEASE v=1", "# END GITLEASE"
MOST_BYTES = 16 * 1024 * 1024  # Claude Code keeps much else in the person's own file
_PROJECT = {"claude": ".mcp.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}
_OWN = {"claude": ".claude.json", "codex": "config.toml", "cursor": "mcp.json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The server as a file has it: the command, and the names of variables to pass on.

    ``ours``: it starts this program.
    """

    command: tuple[str, ...]
    passed_on: tuple[str, ...]
    ours: bool


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
    file = os.path.join(os.path.abspath(folder), _OWN[host])
    return AgentFile(file, os.path.realpath(file))


def register(host: str, place: AgentFile) -> FileDone:
    """Write the server into a file. Idempotent. Invalid for a file that cannot take it."""
    before, was_there = _text(place), read(place, most=MOST_BYTES) is not None
    found = registered(host, place)
    if found is not None and not found.ours:
        raise Invalid(
            f"{place.name} has a server called {NAME} that does not start this program: "
            f"{' '.join(found.command)[:120] or 'of another kind'}",
            hints=("remove it, or rename it",),
        )
    after = before
    if host == "codex":
        after = _with_table(place, before, was_there=was_there, by_hand=found is not None)
    elif found is None and before.strip():
        after = with_member(before, SERVERS, NAME, json.dumps(ENTRY))
    elif found is None:
        after = f"{before}\n{ALONE}" if was_there else ALONE
    if after == before:
        return FileDone(place.name, "unchanged")
    write(place, after.encode())
    return FileDone(place.name, "written")


def unregister(host: str, place: AgentFile) -> FileDone:
    """Remove the server, and the file if it has nothing else and was not there before.

    One that was there without a server has a line end before ours.
    """
    before, found = _text(place), registered(host, place)
    if found is None or not found.ours:
        return FileDone(place.name, "absent")
    if host != "codex":
        alone = before.endswith(ALONE) and not before.removesuffix(ALONE).strip()
        rest = before.removesuffix(ALONE) if alone else without_member(before, SERVERS, NAME)
        after = rest.removesuffix("\n") if alone else rest
        write(place, after.encode(), empty=rest != "")
        return FileDone(place.name, "removed")
    data = before.encode()
    marked = _marked(data)
    if marked is None:
        raise Invalid(
            f"{place.name} has [{TABLE}.{NAME}] without the lines that mark it as ours",
            hints=("remove that table by hand",),
        )
    head = data[: marked.start()]
    after = (head.removesuffix(b"\n").removesuffix(b"\r") + data[marked.end() :]).decode()
    left = _parse_toml(place, after)
    ours_left = NAME in left.get(TABLE, {})
    if ours_left or _without_ours(_parse_toml(place, before)) != _without_ours(left):
        raise Invalid(
            f"{place.name} has more of [{TABLE}.{NAME}] below our lines",
            hints=("remove that by hand first, and all below our last line",),
        )
    write(place, after.encode(), empty=head != b"")
    return FileDone(place.name, "removed")


def registered(host: str, place: AgentFile) -> Registered | None:
    """The server of our name in a file, if any. Raises Invalid for a file that cannot be read."""
    text = _text(place)
    parsed = _parse_toml(place, text) if host == "codex" else parse_json(text.encode(), place.name)
    group = TABLE if host == "codex" else SERVERS
    servers = parsed.get(group, {}) if isinstance(parsed, dict) else None
    if not isinstance(servers, dict):
        raise Invalid(f"{place.name}: servers are not in the form that this host reads")
    return _read_entry(servers[NAME]) if NAME in servers else None


def _read_entry(entry: Any) -> Registered:
    entry = entry if isinstance(entry, dict) else {}
    words = [entry.get("command"), *_strings(entry.get("args"))]
    command = tuple(word for word in words if isinstance(word, str))
    program = os.path.basename(command[0]) if command else ""
    ours = program in ("gitlease", "git-lease") and "mcp" in command[1:]
    passed_on = tuple(_strings(entry.get("env_vars")))
    return Registered(command=command, passed_on=passed_on, ours=ours)


def _strings(found: Any) -> list[str]:
    return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []


def _text(place: AgentFile) -> str:
    data = read(place, most=MOST_BYTES) or b""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{place.name} is not UTF-8") from None


# --- TOML -------------------------------------------------------------------------------------

_TABLE = (
    BEGIN,
    f"[{TABLE}.{NAME}]",
    f"command = {json.dumps(COMMAND[0])}",
    f"args = {json.dumps(COMMAND[1:])}",
    f"env_vars = {json.dumps(PASSED_ON)}",
    END,
)


def _with_table(place: AgentFile, before: str, *, was_there: bool, by_hand: bool) -> str:
    end = "\r\n" if "\r\n" in before else "\n"
    section = "".join(line + end for line in _TABLE)
    if marked := _marked(before.encode()):
        after = swap(before.encode(), marked, section.encode()).decode()
    elif by_hand:
        return before
    else:
        after = before + (end if was_there else "") + section
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        raise Invalid(
            f"{place.name} has its servers in a form that cannot be extended",
            hints=(f"write them as tables: [{TABLE}.NAME]",),
        ) from None
    return after


def _without_ours(parsed: dict[str, Any]) -> dict[str, Any]:
    servers = {x: y for x, y in parsed.get(TABLE, {}).items() if x != NAME}
    return {x: y for x, y in parsed.items() if x != TABLE} | ({TABLE: servers} if servers else {})


def _parse_toml(place: AgentFile, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{place.name}: not TOML: {error}") from None


def _marked(data: bytes) -> re.Match[bytes] | None:
    return find_marked(data, b"# BEGIN GITLEASE", rb"# END GITLEASE[ \t]*")
