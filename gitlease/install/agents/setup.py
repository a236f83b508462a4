"""``gitlease agent HOST install|uninstall|status``, for every file that it concerns."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator

from gitlease.core.errors import NotARepository
from gitlease.core.frozen import dataclass
from gitlease.git.files import make_folders
from gitlease.git.query import ask
from gitlease.git.repository import Repository, discover
from gitlease.install.agents import files as agent_files
from gitlease.install.agents.files import Installed
from gitlease.install.agents.hosts import HOSTS, Host
from gitlease.install.agents.place import (
    AGENTS_MD,
    MAX_BYTES,
    AgentFile,
    FileDone,
    inside,
    place_of,
    read,
    write,
)
from gitlease.install.agents.servers import (
    Registered,
    register,
    registered,
    server_file,
    unregister,
)
from gitlease.install.managed_text import find_marked, swap

MOST_VERSIONS = 20  # of a file that are looked at for the one without our hooks


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
        done.append(agent_files.install(known, place, keep=keep))
    elif action == "uninstall":
        earlier = _committed(repository, place) if repository is not None and not user else ()
        done.append(agent_files.uninstall(known, place, earlier))
    if repository is not None and not user:
        if action == "install":  # a mark that gitlease is used here, for linked work trees too
            with contextlib.suppress(OSError):
                make_folders(os.path.join(repository.common_dir, "gitlease"))
        if action == "install" and section:
            done.append(write_section(inside(repository, AGENTS_MD)))
        elif action == "uninstall":
            taken = remove_section(
                inside(repository, AGENTS_MD), keep=_has_other_host(host, repository)
            )
            done += [taken] if taken.what != "absent" else []
    state, program = agent_files.status(known, place), shutil.which("gitlease")
    warnings = [note for one in done for note in one.notes]
    warnings += [state.problem] if state.problem else []
    off = agent_files.switched_off(known, _settings_files(known, repository, place))
    if off:
        warnings.append(f"{off} switches all hooks of {known.title} off ({known.off_switch})")
    hints: tuple[str, ...] = ()
    if state.events:
        hints = known.hints
        warnings += [] if program else ["gitlease is not on PATH: the hooks do nothing"]
    return AgentSetup(tuple(done), state, program, tuple(warnings), hints, bool(off))


def _settings_files(
    host: Host, repository: Repository | None, place: AgentFile
) -> Iterator[AgentFile]:
    """The files of settings that hold together with one: the local and the person's own."""
    yield place
    if repository is not None and repository.toplevel is not None:
        for name in (host.file, f"{os.path.splitext(host.file)[0]}.local.json"):
            name = os.path.join(host.folder, name)
            yield AgentFile(name, os.path.join(repository.toplevel, name))
    own = os.path.join(host.user_folder(os.environ), host.file)
    yield AgentFile(own, own)


def _committed(repository: Repository, place: AgentFile) -> Iterator[bytes]:
    """The committed versions of a file, the newest first."""
    words = (f"--max-count={MOST_VERSIONS}", "--format=%H", "HEAD", "--", f":(top){place.name}")
    for commit in ask(repository, "log", *words).out.decode("ascii", "replace").split():
        asked = ask(repository, "cat-file", "blob", f"{commit}:{place.name}")
        if asked.code == 0 and len(asked.out) <= MAX_BYTES:
            yield asked.out


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


def _repository(directory: str, *, user: bool) -> Repository | None:
    try:
        return discover(directory)
    except NotARepository:
        if not user:
            raise
        return None


def _has_other_host(host: str, repository: Repository) -> bool:
    root = repository.toplevel
    names = [name for name in HOSTS if name != host]
    return root is not None and any(agent_files.is_installed(name, root) for name in names)


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
    before = read(place) or b""
    end = b"\r\n" if b"\r\n" in before else b"\n"
    section = end.join(line.encode() for line in SECTION) + end
    found = _find(before)
    after = swap(before, found, section) if found else before + (end if before else b"") + section
    if after == before:
        return FileDone(place.name, "unchanged")
    write(place, after)
    return FileDone(place.name, "written")


def remove_section(place: AgentFile, *, keep: bool = False) -> FileDone:
    """Remove the section, with the line end before it; ``keep``: others still need it."""
    before = read(place) or b""
    found = _find(before)
    if found is None:
        return FileDone(place.name, "absent")
    if keep:
        return FileDone(place.name, "kept")
    head = before[: found.start()].removesuffix(b"\n").removesuffix(b"\r")
    write(place, head + before[found.end() :])
    return FileDone(place.name, "removed")


def _find(text: bytes) -> re.Match[bytes] | None:
    return find_marked(text, b"<!-- BEGIN GITLEASE", rb"<!-- END GITLEASE -->[ \t]*")
