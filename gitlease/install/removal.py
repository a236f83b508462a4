"""Removes everything that gitlease has put into a clone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from gitlease.core.errors import GitleaseError, Invalid
from gitlease.core.frozen import dataclass
from gitlease.git.repository import Repository, ask
from gitlease.install.agent_setup import set_up_agent, set_up_server
from gitlease.install.agents import HOSTS
from gitlease.install.git_hooks import uninstall
from gitlease.settings.schema import FILE

PRIVATE, SECTION = "gitlease", "lease"  # of the common directory, and of git's configuration


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
    yield from plan.messages
    yield from plan.notes


def _agents(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """hooks of coding agents"""
    folder, action = repository.toplevel, "status" if dry_run else "uninstall"
    places = [False] * (folder is not None) + [True] * user
    for host in HOSTS:
        for own in places:
            where = folder or repository.git_dir
            setup = set_up_agent(where, host, action, user=own, keep=False, section=False)
            found = (
                setup.state.events if dry_run else [x for x in setup.done if x.what == "removed"]
            )
            if found:
                yield f"removed our hooks from {setup.state.file}"
            server = set_up_server(where, host, action, user=own)
            there = server.server is not None and server.server.ours
            if there if dry_run else server.done and server.done.what == "removed":
                yield f"removed our MCP server from {server.file}"


def _config(repository: Repository, *, user: bool, dry_run: bool) -> Iterator[str]:
    """git's configuration of this clone"""
    config = ("config", "--local")
    if ask(repository, *config, "--get-regexp", rf"^{SECTION}\.").code != 0:
        return
    if not dry_run and ask(repository, *config, "--remove-section", SECTION).code != 0:
        raise Invalid(f"git config --remove-section {SECTION} failed")
    yield f"removed the section {SECTION} from git's configuration of this clone"


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
    folder = os.path.join(repository.common_dir, PRIVATE)
    if not os.path.lexists(folder):
        return
    if not dry_run:
        shutil.rmtree(folder)
    yield f"removed {folder}"
