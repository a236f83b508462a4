"""Calls of gitlease that people put into hooks of their own: the lines that `hooks install` prints.

They are known as they are printed, but for blanks around them, and are never written to.
"""

from __future__ import annotations

import os
import re

from gitlease.core.frozen import dataclass
from gitlease.install.hooks.managers import hook_lines
from gitlease.install.hooks.places import HUSKY, HookPlace, read_file
from gitlease.install.hooks.shims import find_section


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call in a script of somebody's own. ``runs``: the script may be executed."""

    path: str
    runs: bool


def own_call(place: HookPlace, name: str) -> OwnCall | None:
    """The call of one hook in a script of somebody's own; None where there is none, or ours."""
    for folder in _script_folders(place):
        path = os.path.join(folder, name)
        data = read_file(path)
        if data is not None and find_section(data, name) is None and _calls(data, name):
            called = os.path.join(place.folder, name)
            return OwnCall(path, os.access(called, os.X_OK))
    return None


def _script_folders(place: HookPlace) -> tuple[str, ...]:
    """Where scripts of people are: husky's lie above the folder that git knows."""
    above, last = os.path.split(place.folder)
    husky = last == "_" and os.path.basename(above) == HUSKY
    return (*([above] if husky else []), place.folder)


def _calls(data: bytes, name: str) -> bool:
    """Whether the printed lines are in a script. Below a plain ``exit`` they are never run."""
    lines = [line.strip() for line in data.decode("utf-8", "surrogateescape").split("\n")]
    printed = list(hook_lines(name))
    for at, line in enumerate(lines):
        if lines[at : at + len(printed)] == printed:
            return True
        if re.match(r"exit\b", line):
            return False
    return False
