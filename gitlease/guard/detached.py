"""Work that nobody waits for: started by a hook, done by a process of its own.

A hook of a coding agent has milliseconds. It looks at the clone's idle markers, and leaves the rest
to a gitlease that outlives it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from gitlease.core.frozen import dataclass
from gitlease.git.files import STAMP, drop_leftovers, make_folders, replace_file
from gitlease.guard.idle_marker import NS
from gitlease.guard.inbox import FOLDER
from gitlease.store.state import KNOWN_FILE

HEAD_BYTES = 400  # of the file of a known head, which begins with the ledger's id and its version
LONGEST_NAME = 200  # characters of a stamp
STAMPS = "agents"  # the folder, in the private state, of what was last started when


@dataclass(frozen=True, slots=True)
class MarkerState:
    """What the files of a clone say at a glance.

    ``heads`` is another word whenever another state of a ledger is known. ``inbox``: something may
    be left to be said by work in the background.
    """

    private: str
    heads: str = ""
    inbox: bool = False


def start_detached(words: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None) -> bool:
    """Start ``gitlease WORDS`` in a session of its own and return at once; whether it started.

    ``-P``: a folder called gitlease in the work tree is not to be run instead of this program.
    """
    with contextlib.suppress(OSError, ValueError):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gitlease", *words],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            start_new_session=True,
        )
        process.returncode = 0  # nobody waits for it: it is not to be missed when this one ends
        return True
    return False


def marker_state(start: str) -> MarkerState | None:
    """What this clone's markers say, found without starting git; None where there is no clone."""
    from gitlease.guard.places import find_common_dir

    common = find_common_dir(start)
    if common is None:
        return None
    private = os.path.join(common, "gitlease")
    inbox = os.path.isdir(os.path.join(private, FOLDER))
    return MarkerState(private, _heads(private), inbox)


def is_due(state: MarkerState, name: str, *, every: int, now: float | None = None) -> bool:
    """Whether what is called ``name`` was not started for ``every`` seconds; marks it as started.

    Two hooks at the same moment may both be told so: what they start is safe to do twice.
    """
    now = time.time() if now is None else now
    stamp = _stamp(state, name)
    folder = os.path.dirname(stamp)
    try:
        last = os.stat(stamp).st_mtime
    except OSError:
        last = 0.0
    if 0 <= now - last < every:
        return False
    with contextlib.suppress(OSError):
        make_folders(folder)
        drop_leftovers(folder)
        replace_file(stamp, b"", dated=int(now * NS))
    return True


def check_is_due(state: MarkerState, name: str, *, now: float) -> bool:
    """Whether what is called ``name`` has to look again: its time has come, or a head has moved."""
    from gitlease.guard.places import first_line

    stamp = _stamp(state, name)
    with contextlib.suppress(OSError):
        return now >= os.stat(stamp).st_mtime or first_line(stamp) != state.heads
    return True


def postpone_check(state: MarkerState, name: str, *, at: float) -> None:
    """Have nobody look under that name until then, while no head moves."""
    stamp = _stamp(state, name)
    with contextlib.suppress(OSError):
        make_folders(os.path.dirname(stamp))
        drop_leftovers(os.path.dirname(stamp))
        replace_file(stamp, os.fsencode(f"{state.heads}\n"), dated=int(at * NS))


def _stamp(state: MarkerState, name: str) -> str:
    named = os.fsencode(name).hex()[-LONGEST_NAME:] + STAMP  # hashlib takes longer than all else
    return os.path.join(state.private, STAMPS, named)


def _heads(private: str) -> str:
    """A word of the files that say which heads are known, of every place and layer."""
    found = []
    for place in _folders(os.path.join(private, "state")):
        for layer in _folders(place):
            file = os.path.join(layer, KNOWN_FILE)
            with contextlib.suppress(OSError), open(file, "rb") as known:
                found.append(known.read(HEAD_BYTES).partition(b'"boot_id"')[0].hex())
    return " ".join(sorted(found))


def _folders(path: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir()]
    return []
