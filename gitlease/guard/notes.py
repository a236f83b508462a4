"""Notes of a clone for its hooks, read without git: idle markers, messages, times of checks.

A hook of a coding agent has milliseconds. It looks at these files, and leaves the rest to a
gitlease that outlives it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence

from gitlease.kernel.git.files import (
    LOCK,
    MAIN_FILE,
    NOTES,
    Notes,
    Table,
    make_folders,
    notes_of,
    read_small,
    replace_file,
    strings_in,
)
from gitlease.kernel.git.repository import Repository
from gitlease.kernel.git.run import detach, own_module
from gitlease.kernel.rules.frozen import dataclass

LONGEST_POINTER = 8_192
# A note that the remote was asked for a ledger. Alone it is no trace of use.
ASKED, ASKING, NO_LEDGER = "asked", "asking", "no ledger"


def find_work_tree(path: str) -> str | None:
    """The root of the work tree that a path lies in; the path need not exist.

    Links count as what they lead to.
    """
    return _root_around(os.path.dirname(os.path.realpath(path)))


def find_git_dir(start: str) -> str | None:
    """The git directory of the work tree around a folder, None where there is none."""
    root = _root_around(os.path.abspath(start))
    if root is None:
        return None
    git_file = os.path.join(root, ".git")
    if os.path.isdir(git_file):
        return git_file
    pointer = first_line(git_file)
    if not pointer.startswith("gitdir:"):
        return None
    return os.path.join(root, pointer.removeprefix("gitdir:").strip())


def find_common_dir(start: str) -> str | None:
    """The common git directory of the work tree around a folder, likewise."""
    git_dir = find_git_dir(start)
    return None if git_dir is None else common_dir_of(git_dir)


def common_dir_of(git_dir: str) -> str:
    """The common git directory that a git directory belongs to."""
    common = first_line(os.path.join(git_dir, "commondir"))
    return os.path.normpath(os.path.join(git_dir, common)) if common else git_dir


def has_traces(common_dir: str) -> bool:
    """True if any command of gitlease has left private state in a clone, if only its folder."""
    with contextlib.suppress(OSError):
        names = {*os.listdir(os.path.join(common_dir, "gitlease"))}
        # Whoever only asks the remote for a ledger makes these as well.
        if names <= {NOTES, LOCK, MAIN_FILE}:
            return [*notes_of(common_dir).read()] != [ASKED]
        return True
    return False


def ask_is_due(common_dir: str, *, every: int, now: float) -> bool:
    """True if the remote was not asked for a ledger for so long; notes that it is asked now."""
    return notes_of(common_dir).is_due(ASKED, "", ASKING, every=every, now=now)


def is_asking(common_dir: str) -> bool:
    """Return whether the answer of the remote is still to come."""
    return bool(notes_of(common_dir).get(ASKED, "") == ASKING)


def note_asked(common_dir: str, *, answered: bool) -> None:
    """Note that the remote has no ledger; where it did not answer, it is asked again soon."""
    notes = notes_of(common_dir)
    at, _ = notes.of(ASKED).get("", (0.0, None))
    # Dated to the epoch, the next event asks again.
    notes.put(ASKED, "", NO_LEDGER, at=at if answered else 0.0)


def _root_around(folder: str) -> str | None:
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return None
    return folder


def first_line(file: str) -> str:
    """The first line of a small file, ``""`` where it has none."""
    return os.fsdecode(read_small(file, LONGEST_POINTER) or b"").partition("\n")[0].strip()


# --- idle markers ---------------------------------------------------------------------------------

COMMIT, MESSAGE, ACTIVITY = "idle-commit", "idle-message", "idle-activity"
SINCE = "idle-since"  # dated to when the settings were read
NOW = "idle-now"  # dated by the shims to the moment at which they compare
# What says where git's settings are, and what of gitlease's own the markers are made by: the shims
# put the same words together.
WHO = (
    *("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
    *("GIT_CONFIG_COUNT", "GITLEASE_LAYER", "GITLEASE_REMOTE"),
)
# Its settings are in other variables, which nobody compares.
FOR_ONE_COMMAND = "GIT_CONFIG_COUNT"
# A URL with a name or a password in it is not written down.
MAY_BE_SECRET = "GITLEASE_REMOTE"
# Some file systems date changes to two seconds, some shells compare whole ones: what changed so
# soon before is not told apart.
NS = 1_000_000_000
SETTLED_NS = 2 * NS
LONGEST_MARKER = 86_400  # seconds that a marker holds, where nothing says when it ends
MOST_PLACES = 50  # where tasks are: of more of them gitlease itself thinks


@dataclass(frozen=True)
class Origin:
    """The sources of a marker: whom the environment names, and the files of settings.

    ``who`` is None where that cannot be saved. ``files`` may not be there, or be
    relative to the root; ``read_at`` is when they were read, in nanoseconds since the epoch.
    """

    who: str | None
    files: tuple[str, ...]
    read_at: int


def origin_of(repository: Repository, environ: Mapping[str, str] | None = None) -> Origin:
    """The origin of what is found out now in a repository, by this process."""
    environ = os.environ if environ is None else environ
    home, folder = environ.get("HOME", ""), repository.toplevel or repository.git_dir
    # Those that git and gitlease read, whether they are there or not: a new one ends a marker, too.
    files = (
        ".gitlease.yaml",
        os.path.join(repository.common_dir, "config"),
        os.path.join(home, ".gitconfig"),
        os.path.join(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git", "config"),
        environ.get("GIT_CONFIG_GLOBAL", ""),
        *(x.origin and os.path.join(folder, x.origin) for x in repository.config.entries),
    )
    files = tuple(dict.fromkeys(map(os.path.normpath, filter(None, files))))
    who = ":".join(environ.get(name, "") for name in WHO)
    # Without a marker every hook asks gitlease, which is slower and never wrong.
    odd = "@" in environ.get(MAY_BE_SECRET, "") or environ.get(FOR_ONE_COMMAND)
    plain = not odd and all(text.isprintable() for text in (who, *files))
    return Origin(who if plain else None, files, repository.config.read_at)


def write_idle_marker(folder: str, idle: IdleMarker, origin: Origin, *, now: int) -> None:
    """Tell the shims; ``now`` is in seconds since the epoch. Never fails."""
    drop_idle_marker(folder)
    if origin.who is None:
        return
    # A message has nothing to name while nothing is held here, and activity nothing to renew until
    # a lease is due.
    until = {ACTIVITY: idle.renew_at}
    if not idle.held_until:
        # Nothing is held: only a change of the head, which drops the marker, gives them work.
        until = {ACTIVITY: now + LONGEST_MARKER, MESSAGE: now + LONGEST_MARKER}
    places = idle.below if idle.tasks else ()
    # Git takes a plain place for what it is, and a line holds it.
    plain = all(x.isprintable() and not {"", ".", ".."} & set(x.split("/")) for x in places)
    known = not idle.tasks or (0 < len(places) <= MOST_PLACES and plain)
    # A commit has nothing to do while nobody else holds anything, but it may claim a task: then git
    # has to say that nothing is staged in the places that follow.
    if idle.clear_until > now and known:
        until[COMMIT] = idle.clear_until
    # What changed since the settings were read is newer than this, and ends the marker.
    dated = max(origin.read_at - SETTLED_NS, 0)
    # Where a shell cannot date NOW anew, no marker is younger.
    files = [(SINCE, "", dated), (NOW, "", (now + 2 * LONGEST_MARKER) * NS)]
    for name, deadline in until.items():
        pathspecs = [f":(top,literal,icase){place}" for place in places if name == COMMIT]
        lines = (origin.who, *origin.files, "", *pathspecs)
        files.append((name, "".join(f"{line}\n" for line in lines), deadline * NS))
    try:
        make_folders(folder)
        for name, text, date in files:
            replace_file(os.path.join(folder, name), os.fsencode(text), dated=date)
        # Another date is that of another process, which read its settings later.
        if os.stat(os.path.join(folder, SINCE)).st_mtime_ns == dated:
            return
    except OSError:
        pass
    drop_idle_marker(folder)


def drop_idle_marker(folder: str) -> None:
    """Leave the next hook to look for itself, since what is known has changed."""
    for name in (COMMIT, MESSAGE, ACTIVITY):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


# --- messages to a run, and the leases that it carries --------------------------------------------

WORDS = "words"
LONGEST = 4_000
MOST = 20  # that are told at once; older ones are dropped
CARRIED = "carried"
MOST_CARRIED = 200  # leases of one session; the newest are kept


class NotedInbox:
    """Messages to one run, in the notes of the clone's private ``folder``."""

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._private, self._run = folder, f"{holder}\0{session or ''}"

    def leave(self, texts: Sequence[str]) -> None:
        """Leave lines. The marker is dropped, so the next hook looks."""
        new = [x[:LONGEST].encode("utf-8", "replace").decode() for x in texts[:MOST]]

        def change(tables: dict[str, Table]) -> None:
            _, before = tables[WORDS].get(self._run, (0, []))
            tables[WORDS][self._run] = time.time(), [*strings_in(before), *new][-MOST:]

        if new:
            Notes(self._private).change(change)
            drop_idle_marker(self._private)

    def take(self) -> tuple[str, ...]:
        """Remove the lines left for this run and return them, each once."""
        notes, texts = Notes(self._private), list[str]()

        def change(tables: dict[str, Table]) -> None:
            texts[:] = strings_in(tables[WORDS].pop(self._run, (0, []))[1])

        # Whoever removed the lines tells them: where that failed, the next hook does.
        if notes.get(WORDS, self._run) and notes.change(change):
            return tuple(x for x in dict.fromkeys(texts) if x.strip())
        return ()


class CarriedLeases:
    """The ids of the leases of its person that a session carries: those it used, or was told of.

    A note for each session is in the clone's private ``folder``. Never fails.
    """

    # Such leases are bound to no session, and so nobody else would know that this one works under
    # them: they would lapse.
    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._notes, self._session = Notes(folder), session
        self._run = f"{holder}\0{session}"

    def ids(self) -> frozenset[str]:
        return frozenset(self._load())

    def add(self, lease_ids: Iterable[str]) -> None:
        """Note what the session uses, or is told that it carries."""
        known = self._load()
        new = [x for x in dict.fromkeys(lease_ids) if x not in known]
        # Without a session the person's own commands renew whatever is the person's.
        if new and self._session is not None:
            kept = [*known, *new][-MOST_CARRIED:]
            self._notes.put(CARRIED, self._run, kept, at=time.time())

    def _load(self) -> list[str]:
        return strings_in(self._notes.get(CARRIED, self._run))


# --- work that nobody waits for -------------------------------------------------------------------

STARTED, CHECKS = "started", "checks"  # kinds of notes: what was started, and when to look again


def start_detached(words: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None) -> bool:
    """Start ``gitlease WORDS`` in a session of its own and return at once; whether it started."""
    with contextlib.suppress(OSError, ValueError):
        process = detach([*own_module("gitlease"), *words], cwd=cwd, env=env)
        # Nobody waits for it: without a code Python would warn of it when this process ends.
        process.returncode = 0
        return True
    return False


def used_clone(start: str) -> str | None:
    """The private folder of the clone around a folder; None where there is no trace of gitlease."""
    common = find_common_dir(start)
    return None if common is None or not has_traces(common) else os.path.join(common, "gitlease")


def has_messages(private: str) -> bool:
    """Return whether work in the background may have left messages."""
    return bool(Notes(private).of(WORDS))


def is_due(private: str, name: str, *, every: int, now: float | None = None) -> bool:
    """True if ``name`` was not started for ``every`` seconds; marks it as started."""
    now = time.time() if now is None else now
    # Two hooks at the same moment may both be told so: what they start is safe to do twice.
    return Notes(private).is_due(STARTED, name, every=every, now=now)


def check_is_due(private: str, name: str, *, now: float) -> bool:
    """True if what is called ``name`` has to look again: its time has come, or a head has moved."""
    return now >= Notes(private).of(CHECKS).get(name, (now, None))[0]


def postpone_check(private: str, name: str, *, at: float) -> None:
    """Have nobody look under that name until then, while no head moves."""
    Notes(private).put(CHECKS, name, "", at=at)


def head_moved(private: str) -> None:
    """Leave the next hooks to look for themselves, since what is known has changed."""
    drop_idle_marker(private)
    notes = Notes(private)
    # Times of checks hold while no head moves: an agent is told of a revocation at once.
    notes.drop(CHECKS, *notes.of(CHECKS))


@dataclass(frozen=True)
class IdleMarker:
    """The times until which a shim need not ask: seconds since the epoch, 0 for never.

    Until ``clear_until`` nobody else holds anything; until ``held_until`` something is held here,
    to be renewed from ``renew_at`` on. ``tasks``: a commit may claim a task, and ``below`` are the
    files and folders, relative to the root, that it would change then (none: anywhere).
    """

    clear_until: int = 0
    renew_at: int = 0
    held_until: int = 0
    tasks: bool = False
    below: tuple[str, ...] = ()
