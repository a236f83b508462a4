"""``gitlease agent HOST install|uninstall|status``: every file it concerns, and what to know."""

from __future__ import annotations

import contextlib
import os
import shutil

from gitlease.core.errors import Invalid, NotARepository
from gitlease.core.frozen import dataclass
from gitlease.git.repository import Repository, discover
from gitlease.install.agents import files as agent_files
from gitlease.install.agents.files import Installed
from gitlease.install.agents.hosts import HOSTS, Host
from gitlease.install.agents.place import Done, agents_md, place_of
from gitlease.install.agents.section import remove_section, write_section

RUNS_OURS_TOO = {"claude": "cursor", "cursor": "claude"}  # Cursor can load Claude Code's hooks


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What became of a host's files, which hooks are there now, and what is to be known."""

    done: tuple[Done, ...]
    state: Installed
    program: str | None
    warnings: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


def set_up_agent(
    directory: str, host: str, action: str, *, user: bool, keep: bool, section: bool
) -> AgentSetup:
    """Carry out ``install``, ``uninstall`` or ``status``; ``section``: with that of AGENTS.md.

    Asks no remote. Raises NotARepository without ``user``, and Invalid for a file that cannot be
    used.
    """
    known, repository = HOSTS[host], _repository(directory, user=user)
    place = place_of(known, repository, user=user, environ=os.environ)
    done = []
    if action == "install":
        done.append(agent_files.install(known, place, keep=keep))
    elif action == "uninstall":
        done.append(agent_files.uninstall(known, place))
    if repository is not None and not user:
        if action == "install":  # a mark that gitlease is used here, for linked work trees too
            with contextlib.suppress(OSError):
                os.makedirs(os.path.join(repository.common_dir, "gitlease"), exist_ok=True)
        if action == "install" and section:
            done.append(write_section(agents_md(repository)))
        elif action == "uninstall":
            taken = remove_section(agents_md(repository), keep=_others(host, repository))
            done += [taken] if taken.what != "absent" else []
    state, program = agent_files.status(known, place), shutil.which("gitlease")
    warnings = [note for one in done for note in one.notes]
    warnings += [state.problem] if state.problem else []
    hints: tuple[str, ...] = ()
    if state.events:
        hints = known.hints
        warnings += [] if program else ["gitlease is not on PATH: the hooks do nothing"]
        warnings += _twice(known, directory, user=user)
    return AgentSetup(tuple(done), state, program, tuple(warnings), hints)


def agent_is_installed(host: str, directory: str) -> bool:
    """Whether the hooks of a host are in its file of the work tree around a folder, or the user's.

    False where there is none, or nothing can be read.
    """
    if _of_user(HOSTS[host]).events:
        return True
    try:
        root = discover(directory).toplevel
    except (Invalid, NotARepository):
        return False
    return root is not None and agent_files.is_installed(host, root)


def _repository(directory: str, *, user: bool) -> Repository | None:
    try:
        return discover(directory)
    except NotARepository:
        if not user:
            raise
        return None


def _others(host: str, repository: Repository) -> bool:
    """Whether another host's hooks stay in the work tree, for whose sake AGENTS.md stays too."""
    root = repository.toplevel
    names = [name for name in HOSTS if name != host]
    return root is not None and any(agent_files.is_installed(name, root) for name in names)


def _of_user(host: Host) -> Installed:
    place = place_of(host, None, user=True, environ=os.environ)
    return agent_files.status(host, place)


def _twice(host: Host, directory: str, *, user: bool) -> list[str]:
    """Where an event would be handled twice."""
    said = []
    own = _of_user(host)
    if not user and own.events:
        said.append(f"{own.file} has hooks of ours as well: each event is handled twice")
    other = RUNS_OURS_TOO.get(host.name)
    if other is not None and agent_is_installed(other, directory):
        said.append("Cursor may load Claude Code's hooks too: those keep silent there")
    return said
