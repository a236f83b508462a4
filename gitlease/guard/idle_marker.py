"""The idle marker: one line that tells the shims, without a process, that there is nothing to do.

It is of use to whom it was made for alone, and only while git's settings are what they were then.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass
from gitlease.git.files import replace_file
from gitlease.git.repository import Repository

if TYPE_CHECKING:
    from gitlease.guard.ports import IdleMarker

MARKER_FILE = "gate"
# What says where git's settings are, and what of gitlease's own the marker is made by: the shims
# put the same words together.
WHO = (
    *("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
    *("GITLEASE_LAYER", "GITLEASE_REMOTE"),
)
MAY_BE_SECRET = "GITLEASE_REMOTE"  # a URL with a name or a password in it is not written down
# Some file systems date changes to two seconds, some shells compare whole ones: what changed so
# soon before, or after, is not told apart.
SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Origin:
    """What a marker is made from: whom the environment names, and git's files of settings.

    ``who`` is None where that cannot be written on a line. ``files`` are those that a shim does not
    find by itself, ``read_at`` is when the settings were read, in nanoseconds since the epoch.
    """

    who: str | None
    files: tuple[str, ...]
    read_at: int


def origin_of(repository: Repository, environ: Mapping[str, str] | None = None) -> Origin:
    """The origin of what is found out now in a repository, by this process."""
    environ = os.environ if environ is None else environ
    files = tuple(dict.fromkeys(_files(repository, environ)))
    secret = "@" in environ.get(MAY_BE_SECRET, "")
    who = ":".join(f".{environ[name]}" if name in environ else "" for name in WHO)
    plain = all(text.isprintable() for text in (who, *files)) and not secret
    return Origin(who if plain else None, files, repository.config.read_at)


def _files(repository: Repository, environ: Mapping[str, str]) -> Iterator[str]:
    """The files of the system, and those that are included."""
    home = environ.get("HOME", "")
    known = {
        os.path.join(repository.common_dir, "config"),
        os.path.join(home, ".gitconfig"),
        os.path.join(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git", "config"),
        environ.get("GIT_CONFIG_GLOBAL", ""),
    }
    folder = repository.toplevel or repository.git_dir
    for origin in dict.fromkeys(e.origin for e in repository.config.entries if e.origin):
        file = os.path.normpath(os.path.join(folder, origin))
        if known.isdisjoint((file, origin)) and os.path.exists(file):
            yield file


def write_idle_marker(folder: str, idle: IdleMarker, origin: Origin) -> None:
    """Tell the shims. It only saves work, and never fails."""
    if origin.who is None:
        return
    tasks = "tasks" if idle.tasks else "-"
    below = idle.below if all(place.isprintable() for place in idle.below) else ()
    first = f"{idle.clear_until} {idle.renew_at} {idle.held_until} {tasks} {_kernel_time()} "
    lines = (first.encode() + os.fsencode(origin.who), *(x.encode() for x in origin.files + below))
    data = b"".join(line + b"\n" for line in lines)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        # What was changed since the settings were read is newer than the marker, not used then.
        dated = max(origin.read_at - SETTLED_NS, 0)
        replace_file(os.path.join(folder, MARKER_FILE), data, dated=dated)


def drop_idle_marker(folder: str) -> None:
    """Leave the next hook to look for itself, since what is known has changed."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, MARKER_FILE))


def _kernel_time() -> str:
    """What to add to the kernel's own count of seconds to get the time, and the boot it holds for.

    So that a shell without a clock needs no process to know the time.
    """
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            up = int(file.read(100).split(".")[0])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read(100).strip()
    except (OSError, ValueError):
        return "- -"
    return f"{int(time.time()) - up} {boot}"
