"""The idle markers: files that tell the shims, without a process, that there is nothing to do.

Each is dated to the moment in the future until which it holds, and names whom it was made for. It
is of use only while git's settings are what they were then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gitlease.core.frozen import dataclass
from gitlease.git.files import make_folders, replace_file
from gitlease.git.repository import Repository

if TYPE_CHECKING:
    from gitlease.guard.ports import IdleMarker

COMMIT, MESSAGE, ACTIVITY = "idle-commit", "idle-message", "idle-activity"
SINCE = "idle-since"  # dated to when the settings were read
NOW = "idle-now"  # dated by the shims to the moment at which they compare
FORMER = "gate"  # the marker of earlier versions, whose shims may be here still
# What says where git's settings are, and what of gitlease's own the markers are made by: the shims
# put the same words together.
WHO = (
    *("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
    *("GIT_CONFIG_COUNT", "GITLEASE_LAYER", "GITLEASE_REMOTE"),
)
FOR_ONE_COMMAND = "GIT_CONFIG_COUNT"  # its settings are in other variables, which nobody compares
MAY_BE_SECRET = "GITLEASE_REMOTE"  # a URL with a name or a password in it is not written down
# Some file systems date changes to two seconds, some shells compare whole ones: what changed so
# soon before is not told apart.
NS = 1_000_000_000
SETTLED_NS = 2 * NS
LONGEST = 86_400  # seconds that a marker holds, where nothing says when it ends
MOST_PLACES = 50  # where tasks are: of more of them gitlease itself thinks


@dataclass(frozen=True, slots=True)
class Origin:
    """What a marker is made from: whom the environment names, and the files of settings.

    ``who`` is None where that cannot be saved. ``files`` may not be there, or be
    relative to the root; ``read_at`` is when they were read, in nanoseconds since the epoch.
    """

    who: str | None
    files: tuple[str, ...]
    read_at: int


def origin_of(repository: Repository, environ: Mapping[str, str] | None = None) -> Origin:
    """The origin of what is found out now in a repository, by this process."""
    environ = os.environ if environ is None else environ
    files = tuple(dict.fromkeys(_files(repository, environ)))
    odd = "@" in environ.get(MAY_BE_SECRET, "") or environ.get(FOR_ONE_COMMAND)
    who = ":".join(environ.get(name, "") for name in WHO)
    plain = all(text.isprintable() for text in (who, *files)) and not odd
    return Origin(who if plain else None, files, repository.config.read_at)


def _files(repository: Repository, environ: Mapping[str, str]) -> Iterator[str]:
    """Those that git and gitlease read, whether they are there or not."""
    home = environ.get("HOME", "")
    yield ".gitlease.yaml"
    yield os.path.join(repository.common_dir, "config")
    yield os.path.join(home, ".gitconfig")
    yield os.path.join(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git", "config")
    if environ.get("GIT_CONFIG_GLOBAL"):
        yield environ["GIT_CONFIG_GLOBAL"]
    folder = repository.toplevel or repository.git_dir
    for entry in repository.config.entries:
        if entry.origin:
            yield os.path.normpath(os.path.join(folder, entry.origin))


def write_idle_marker(folder: str, idle: IdleMarker, origin: Origin, *, now: int) -> None:
    """Tell the shims; ``now`` is in seconds since the epoch. It only saves work, and never fails.

    A commit has nothing to do while nobody else holds anything, but it may claim a task: then git
    has to say that nothing is staged in the places that follow. A message has nothing to name while
    nothing is held here, and activity nothing to renew until a lease is due.
    """
    drop_idle_marker(folder)
    if origin.who is None:
        return
    until = {ACTIVITY: idle.renew_at}
    if not idle.held_until:
        until = {ACTIVITY: now + LONGEST, MESSAGE: now + LONGEST}
    places = idle.below if idle.tasks else ()
    known = not idle.tasks or (0 < len(places) <= MOST_PLACES and all(map(_is_plain, places)))
    if idle.clear_until > now and known:
        until[COMMIT] = idle.clear_until
    # What changed since the settings were read is newer than this, and ends the marker.
    dated = max(origin.read_at - SETTLED_NS, 0)
    since = os.path.join(folder, SINCE)
    try:
        make_folders(folder)
        _write(since, (), dated)
        # Where a shell cannot date it anew, no marker is younger.
        _write(os.path.join(folder, NOW), (), (now + 2 * LONGEST) * NS)
        for name, deadline in until.items():
            pathspecs = [f":(top,literal,icase){place}" for place in places if name == COMMIT]
            lines = (origin.who, *origin.files, "", *pathspecs)
            _write(os.path.join(folder, name), lines, deadline * NS)
        if os.stat(since).st_mtime_ns != dated:  # somebody else's, read at another moment
            drop_idle_marker(folder)
    except OSError:
        drop_idle_marker(folder)


def _is_plain(place: str) -> bool:
    """Whether git takes a place for what it is, and a line holds it."""
    parts = place.split("/")
    return place.isprintable() and not any(part in ("", ".", "..") for part in parts)


def _write(file: str, lines: tuple[str, ...], dated: int) -> None:
    replace_file(file, os.fsencode("".join(f"{line}\n" for line in lines)), dated=dated)


def drop_idle_marker(folder: str) -> None:
    """Leave the next hook to look for itself, since what is known has changed."""
    for name in (COMMIT, MESSAGE, ACTIVITY, FORMER):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
