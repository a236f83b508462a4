"""Whether a server's hook fires: what the files say, and a question that git itself puts to it."""

from __future__ import annotations

import os
import re

from gitlease.adapters.git import run_git
from gitlease.adapters.hook_places import read_file
from gitlease.adapters.repository import TIMEOUT, Repository
from gitlease.adapters.server_aside import find_aside
from gitlease.adapters.server_hook import ANSWER, NAME, PROBE, Form, find_shim, is_current
from gitlease.adapters.server_install import Host, find_server_place
from gitlease.adapters.server_settings import ServerSettings, server_settings
from gitlease.domain.frozen import dataclass

_ANSWER = re.compile(rf"^{ANSWER} {NAME} v(\d+) ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The hook of one bare repository. ``proven``: git was seen to call it just now.

    ``program`` is the gitlease that it would start, None where there is none. ``kept`` is the hook
    that was there before. ``problem`` says what is wrong, ``""`` for nothing.
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
    """The state of the hook. Raises Invalid for what is no bare repository of a server."""
    settings = server_settings(repository)
    place = find_server_place(repository)
    data = read_file(place.hook)
    placed = None if data is None else find_shim(data)
    installed = data is not None and placed is not None
    answer = _probe(repository) if installed else None
    problem = ""
    if not installed:
        problem = "not installed"
    elif not os.access(place.hook, os.X_OK):
        problem = "it is not executable"
    elif answer is None and place.host is not Host.GITLAB:
        problem = "it is in place, but git does not get an answer from it"
    elif answer == "":
        problem = "there is no gitlease that it could start"
    elif data is not None and not is_current(data):
        problem = "it is another version's, or edited: gitlease server install"
    return ServerState(
        hook=place.hook,
        way=place.host.value,
        installed=installed,
        proven=bool(answer),
        current=data is not None and is_current(data),
        program=answer or (placed.program if placed is not None and answer is None else None),
        kept=find_aside(place.hook) if place.form is Form.CHAIN else None,
        settings=settings,
        problem=problem,
    )


def _probe(repository: Repository) -> str | None:
    """The gitlease that the hook would start, asked through git; None where no answer comes."""
    home = repository.common_dir
    ran = run_git(
        (f"--git-dir={home}", "hook", "run", "--ignore-missing", NAME),
        cwd=home,
        timeout=TIMEOUT,
        env={PROBE: "1"},
    )
    found = _ANSWER.search(ran.out.decode("utf-8", "replace") + ran.err)
    return found[2].strip() if found else None
