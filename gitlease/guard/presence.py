"""Who works in a work tree now, as far as this machine knows: a note of each session and run.

The notes lie in the git directory of the work tree itself, so that linked work trees are apart.
Their folder exists while there is any note.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterator

from gitlease.core.frozen import dataclass
from gitlease.git.files import drop_leftovers, load_json, make_folders, store_json
from gitlease.git.run import still_runs, working_parent
from gitlease.guard.places import find_common_dir, first_line

FOLDER = os.path.join("gitlease", "present")
# Seconds without a sign after which a session counts as gone: twice as long as a lease lasts by
# default. A test run says nothing for minutes, and a person thinks before the next prompt.
RECENT = 1_800
RUN = "run"
LONGEST_NAME = 120  # bytes of what names a note
LARGEST = 16_384
BY_PLACE = "worktree:"  # sessions that are named after the work tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A session in a work tree. ``since`` is in seconds since the epoch.

    ``names`` are the sessions that commands under it speak as; ``by`` is the agent's host, or
    ``RUN`` for what ends with its process. ``proven``: the process was there at two events, so that
    its end is that of the session.
    """

    holder: str
    session: str
    host: str
    since: int
    by: str
    names: tuple[str, ...] = ()
    pid: int = 0
    started: str = ""
    proven: bool = False


def arrive(git_dir: str, key: str, present: Present, *, now: float) -> None:
    """Note that a session works in the work tree of this git directory. It never fails."""
    from gitlease.core.as_json import to_json

    folder = os.path.join(git_dir, FOLDER)
    with contextlib.suppress(OSError):
        make_folders(folder)
        drop_leftovers(folder)
        for file, other, seen in _notes(git_dir):
            if other is None or not _is_live(other, present.host, now - seen):
                os.unlink(file)
        _store(_note(git_dir, key), to_json(present), now)


def touch(git_dir: str, key: str, *, now: float) -> bool:
    """Note another sign of a session; whether a note of it was there. It never fails."""
    file = _note(git_dir, key)
    data = load_json(file, LARGEST)
    if not isinstance(data, dict):
        return False
    with contextlib.suppress(OSError, LookupError, TypeError):
        if data.get("proven") and still_runs(data["pid"], data["started"]):
            os.utime(file, (now, now))
        else:
            pid, started = working_parent()
            same = pid > 0 and (pid, started) == (data.get("pid"), data.get("started"))
            _store(file, {**data, "pid": pid, "started": started, "proven": same}, now)
    return True


def leave(common_dir: str, key: str) -> None:
    """Forget a session in every work tree of a clone. It never fails."""
    for git_dir in git_dirs_of(common_dir):
        file = _note(git_dir, key)
        with contextlib.suppress(OSError):
            os.unlink(file)
            os.rmdir(os.path.dirname(file))


def git_dirs_of(common_dir: str) -> list[str]:
    """The git directories of every work tree of a clone."""
    linked, git_dirs = os.path.join(common_dir, "worktrees"), [common_dir]
    with contextlib.suppress(OSError):
        git_dirs += [os.path.join(linked, name) for name in sorted(os.listdir(linked))]
    return git_dirs


def root_of(git_dir: str) -> str:
    """The root of the work tree that a git directory is of."""
    pointer = first_line(os.path.join(git_dir, "gitdir"))  # of a linked work tree
    return os.path.dirname(os.path.normpath(os.path.join(git_dir, pointer or ".")))


def work_tree_named(folder: str, name: str) -> str:
    """The root of the linked work tree that git takes a name for: the end of a path, or a path."""
    common = find_common_dir(folder)
    roots = [] if common is None else [root_of(x) for x in git_dirs_of(common)[1:]]
    found = [root for root in roots if f"/{root}".endswith(f"/{name.rstrip('/')}")]
    return found[0] if len(found) == 1 else os.path.join(folder, name)


def work_trees_below(folder: str, start: str) -> list[str]:
    """The roots of the work trees that are lost with a folder; a git directory takes its own along.

    Known are those of the clone around ``start``, and of one in the folder.
    """
    folder = os.path.realpath(folder)
    common = find_common_dir(start)
    own = folder if os.path.basename(folder) == ".git" else os.path.join(folder, ".git")
    roots = {} if common is None else {root_of(x): x for x in git_dirs_of(common)}
    if os.path.isdir(own):
        roots |= {root_of(x): x for x in git_dirs_of(own)}
    elif os.path.lexists(own):
        roots[folder] = own
    return [
        root
        for root, git_dir in roots.items()
        if any(f"{os.path.realpath(x)}/".startswith(f"{folder}/") for x in (root, git_dir))
    ]


def sessions_of(common_dir: str, host: str, process: tuple[int, str], *, now: float) -> set[str]:
    """The live sessions of agents in a process, by the notes of every work tree of a clone."""
    return {
        present.session
        for present in _agents(common_dir, host, now)
        if process[1] and (present.pid, present.started) == process
    }


def is_noted(common_dir: str, host: str, session: str, *, now: float) -> bool:
    """Whether an agent that speaks as this session is live in any work tree of a clone."""
    return any(present.session == session for present in _agents(common_dir, host, now))


def _agents(common_dir: str, host: str, now: float) -> Iterator[Present]:
    for git_dir in git_dirs_of(common_dir):
        for _, present, seen in _notes(git_dir):
            if present and present.by != RUN and _is_live(present, host, now - seen):
                yield present


def is_alone(git_dir: str, key: str) -> bool:
    """Whether there is no note of anybody else: found out without reading any."""
    own = os.path.basename(_note(git_dir, key))
    with contextlib.suppress(OSError):
        return all(name == own for name in os.listdir(os.path.join(git_dir, FOLDER)))
    return True


def others(
    git_dir: str,
    own: Collection[str],
    host: str,
    *,
    now: float,
    key: str = "",
) -> list[Present]:
    """The live sessions in a work tree but those of the caller, the longest there first.

    The caller's are the note of ``key`` and those with one of the names in ``own``. A name that a
    linked work tree gives tells nothing where several work in it. ``host`` is this machine.
    """
    notes = [one for one in _notes(git_dir) if one[0] != _note(git_dir, key)]
    noted = [(x, now - seen) for _, x, seen in notes if x is not None]
    live = [x for x, age in noted if _is_live(x, host, age)]
    named = Counter(name for _, x, _ in _notes(git_dir) if x is not None for name in x.names)
    sure = {name for name in own if named[name] < 2 or not name.startswith(BY_PLACE)}
    live = [x for x in live if sure.isdisjoint(x.names)]
    return sorted(live, key=lambda x: (x.since, x.session))


def _is_live(present: Present, host: str, age: float) -> bool:
    if present.proven and present.host == host:
        if not still_runs(present.pid, present.started):
            return False
        if present.by == RUN:
            return True
    return abs(age) < RECENT


def _notes(git_dir: str) -> Iterator[tuple[str, Present | None, float]]:
    """Each note with its file and when it was last touched; None for one that cannot be read."""
    from gitlease.core.as_json import DAMAGE, from_json

    with contextlib.suppress(OSError), os.scandir(os.path.join(git_dir, FOLDER)) as entries:
        for entry in entries:
            if entry.name.endswith(".tmp"):
                continue
            present = None
            with contextlib.suppress(*DAMAGE):
                present = from_json(Present, load_json(entry.path, LARGEST))
            yield entry.path, present, entry.stat(follow_symlinks=False).st_mtime


def _note(git_dir: str, key: str) -> str:
    return os.path.join(git_dir, FOLDER, os.fsencode(key)[-LONGEST_NAME:].hex())


def _store(file: str, data: object, now: float) -> None:
    store_json(file, data)
    os.utime(file, (now, now))
