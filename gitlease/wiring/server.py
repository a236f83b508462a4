"""The composition root of a server: its hook, and the putting in place of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gitlease.core.errors import NotARepository
from gitlease.engine.ports import Clock
from gitlease.git import libgit2
from gitlease.git.repository import Repository, discover
from gitlease.git.system_clock import SystemClock

if TYPE_CHECKING:
    from gitlease.install.server.install import Done
    from gitlease.install.server.status import ServerState
    from gitlease.server.receive import Refusal, Verdict


def judge_push(
    data: bytes, *, environ: Mapping[str, str] | None = None, clock: Clock | None = None
) -> Verdict:
    """Judge a push as git's pre-receive hook: by its input, in the environment it was given.

    Raises GitleaseError where the repository or its settings cannot be used.
    """
    from gitlease.server.receive import receive

    libgit2.own_process()
    return receive(data, environ=environ, clock=clock or SystemClock())


def find_bare(directory: str) -> Repository:
    """The bare repository at ``directory``: that very one, never one around it."""
    repository = discover(directory)
    if os.path.realpath(directory) not in map(
        os.path.realpath, (repository.common_dir, repository.toplevel or repository.common_dir)
    ):
        raise NotARepository(f"{directory} is not a repository, but lies in one")
    return repository


def check_identity(word: str) -> str:
    """A variable that tells who pushes. UsageError for what a client could set."""
    from gitlease.settings.server import read_variable

    return read_variable(word)


def install_server(directory: str, *, mode: str | None, identity: str | None) -> Done:
    """Put the hook into a bare repository, beside whatever is there."""
    from gitlease.install.server import install as server_install

    return server_install.install_server(find_bare(directory), mode=mode, identity=identity)


def uninstall_server(directory: str) -> Done:
    """Take the hook out of a bare repository, to the byte."""
    from gitlease.install.server import install as server_install

    return server_install.uninstall_server(find_bare(directory))


def server_state(directory: str) -> ServerState:
    """What the hook of a bare repository does, proven by having git call it."""
    from gitlease.install.server.status import server_state as state

    return state(find_bare(directory))


__all__ = [
    "Done",
    "Refusal",
    "ServerState",
    "Verdict",
    "check_identity",
    "install_server",
    "judge_push",
    "server_state",
    "uninstall_server",
]
