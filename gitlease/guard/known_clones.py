"""The clones in which an agent's session was seen: a hint, for an end whose own folder is gone.

They are kept in a folder of the runtime directory, or without one (macOS, containers, cron) of the
person's cache, that only its owner can access.
"""

from __future__ import annotations

import contextlib
import os
import stat

from gitlease.git.files import read_small, replace_file

LARGEST = 65_536
MOST = 20  # clones of one session
LONGEST_NAME = 200  # digits


def note_clone(key: str, common_dir: str) -> None:
    """Note that a session works in a clone. Never fails."""
    file = _file(key)
    if file is None:
        return
    folder = os.path.dirname(file)
    with contextlib.suppress(OSError, ValueError):
        above = os.path.dirname(folder)
        os.makedirs(os.path.dirname(above), 0o700, exist_ok=True)
        for path in (above, folder):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        known = [x for x in clones_of(key) if x != common_dir]
        if _is_private(folder) and "\n" not in common_dir:
            lines = [common_dir, *known][:MOST]
            replace_file(file, os.fsencode("\n".join(lines)))


def clones_of(key: str) -> list[str]:
    """The common git directories of the clones in which a session was seen."""
    file = _file(key)
    if file is None or not _is_private(os.path.dirname(file)):
        return []
    with contextlib.suppress(OSError, ValueError):
        lines = os.fsdecode(read_small(file, LARGEST) or b"").split("\n")
        return [line for line in lines if os.path.isabs(line) and os.path.isdir(line)]
    return []


def forget_clones(key: str) -> None:
    """Forget a session that has ended. Never fails."""
    if (file := _file(key)) is not None:
        with contextlib.suppress(OSError):
            os.unlink(file)


def _file(key: str) -> str | None:
    home = os.path.join(os.path.expanduser("~"), ".cache")
    every = (os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("XDG_CACHE_HOME", ""), home)
    shared = next((x for x in every if os.path.isabs(x)), "")
    if not shared or not hasattr(os, "getuid"):
        return None
    name = os.fsencode(key).hex()[-LONGEST_NAME:]
    return os.path.join(shared, "gitlease", "agents", name)


def _is_private(folder: str) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
