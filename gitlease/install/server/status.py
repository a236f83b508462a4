"""Whether a server's hook is live, by its file, and by a probe that git itself runs."""

from __future__ import annotations

import os

from gitlease.core.frozen import dataclass
from gitlease.git.repository import Repository
from gitlease.install.hooks.places import read_file
from gitlease.install.hooks.status import ask_hook
from gitlease.install.server.hook import NAME, HookForm, aside_of, find_shim, is_current
from gitlease.install.server.install import HookHost, find_server_place
from gitlease.settings.server import ServerSettings, server_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The hook of one bare repository. ``proven``: the probe just showed that git calls it.

    ``program`` is the gitlease that it would start, if any. ``kept`` is the hook from before.
    ``problem`` says what is wrong, ``""`` for nothing.
    """

    hook: str
    way: str
    installed: bool
    proven: bool
    current: bool
    program: str | None
    kept: str | None
    settings: ServerSettings
    problem: str


def server_state(repository: Repository) -> ServerState:
    """The state of the hook. Raises Invalid unless it is the bare repository of a server."""
    settings = server_settings(repository)
    place = find_server_place(repository)
    data = read_file(place.hook)
    placed = None if data is None else find_shim(data)
    installed = data is not None and placed is not None
    home, aside = repository.common_dir, aside_of(place.hook)
    answer = ask_hook(NAME, home, f"--git-dir={home}", repository=False) if installed else None
    problem = ""
    if not installed:
        problem = "not installed"
    elif not os.access(place.hook, os.X_OK):
        problem = "it is not executable"
    elif answer is None and place.host is not HookHost.GITLAB:
        problem = "it is installed, but does not answer when git runs it"
    elif answer == "":
        problem = "it finds no gitlease to start"
    elif data is not None and not is_current(data):
        problem = "it is of another version, or edited: gitlease server install"
    return ServerState(
        hook=place.hook,
        way=place.host.value,
        installed=installed,
        proven=bool(answer),
        current=data is not None and is_current(data),
        program=answer or (placed.program if placed is not None and answer is None else None),
        kept=aside if place.form is HookForm.CHAIN and os.path.lexists(aside) else None,
        settings=settings,
        problem=problem,
    )
