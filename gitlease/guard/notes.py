"""What a clone keeps for hooks, found without git: idle markers, messages, and times of checks.

A hook of a coding agent has milliseconds. It looks at these files, and leaves the rest to a
gitlease that outlives it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from gitlease.core.frozen import dataclass
from gitlease.core.shape import JSON, Damaged
from gitlease.git.files import (
    STAMP,
    WORD,
    drop_leftovers,
    load_json,
    make_folders,
    read_regular,
    read_small,
    replace_file,
    store_json,
)

if TYPE_CHECKING:
    from gitlease.git.repository import Repository
    from gitlease.guard.rules import IdleMarker

T = TypeVar("T")

LONGEST_POINTER = 8_192
LARGEST_NOTE = 1_048_576
# In the private folder, a note that the remote was asked for a ledger. Alone it is no trace of use.
ASKED = "asked"


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
    found = os.path.join(root, ".git")
    if os.path.isdir(found):
        return found
    pointer = first_line(found)
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
    """Whether any command of gitlease has left private state in a clone, if only its folder."""
    with contextlib.suppress(OSError):
        return os.listdir(os.path.join(common_dir, "gitlease")) != [ASKED]
    return False


def ask_is_due(common_dir: str, *, every: int, now: float) -> bool:
    """Whether the remote was not asked for a ledger for so long; notes that it is asked now."""
    return _once(os.path.join(common_dir, "gitlease", ASKED), "asking", every=every, now=now)


def is_asking(common_dir: str) -> bool:
    """Whether the answer of the remote is still to come."""
    return first_line(os.path.join(common_dir, "gitlease", ASKED)) == "asking"


def note_asked(common_dir: str, *, answered: bool) -> None:
    """Note that the remote has no ledger; where it did not answer, it is asked again soon."""
    file = os.path.join(common_dir, "gitlease", ASKED)
    with contextlib.suppress(OSError):
        if answered:
            asked_at = os.stat(file).st_mtime_ns
            replace_file(file, b"no ledger\n", dated=asked_at)
        else:
            drop(file)


def _root_around(folder: str) -> str | None:
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return None
    return folder


def first_line(file: str) -> str:
    """The first line of a small file, ``""`` where it has none."""
    return os.fsdecode(read_small(file, LONGEST_POINTER) or b"").partition("\n")[0].strip()


# --- notes ----------------------------------------------------------------------------------------


def keep(folder: str, name: str, data: object, *, at: float | None = None) -> None:
    """Keep a note as JSON, dated ``at`` (in seconds since the epoch). It never fails."""
    file = os.path.join(folder, name)
    with contextlib.suppress(OSError, ValueError):
        make_folders(folder)
        drop_leftovers(folder)
        store_json(file, data)
        if at is not None:
            os.utime(file, (at, at))


def kept(folder: str, kind: type[T]) -> Iterator[tuple[str, T | None, float]]:
    """Each note with its file and its date; None for one that cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".tmp"):
                note = None
                with contextlib.suppress(Damaged):
                    note = JSON.load(kind, load_json(entry.path, LARGEST_NOTE))
                yield entry.path, note, entry.stat(follow_symlinks=False).st_mtime


def drop(file: str) -> None:
    """Drop a note, and its folder after the last one. It never fails."""
    with contextlib.suppress(OSError):
        os.unlink(file)
        os.rmdir(os.path.dirname(file))


def _once(file: str, text: str, *, every: int, now: float) -> bool:
    """Whether a file was not dated for so many seconds; dates it now."""
    with contextlib.suppress(OSError):
        if 0 <= now - os.stat(file).st_mtime < every:
            return False
    _date(file, text, now)
    return True


def _date(file: str, text: str, at: float) -> None:
    with contextlib.suppress(OSError):
        make_folders(os.path.dirname(file))
        drop_leftovers(os.path.dirname(file))
        replace_file(file, os.fsencode(f"{text}\n"), dated=int(at * NS))


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
FOR_ONE_COMMAND = "GIT_CONFIG_COUNT"  # its settings are in other variables, which nobody compares
MAY_BE_SECRET = "GITLEASE_REMOTE"  # a URL with a name or a password in it is not written down
# Some file systems date changes to two seconds, some shells compare whole ones: what changed so
# soon before is not told apart.
NS = 1_000_000_000
SETTLED_NS = 2 * NS
LONGEST_MARKER = 86_400  # seconds that a marker holds, where nothing says when it ends
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
    home, folder = environ.get("HOME", ""), repository.toplevel or repository.git_dir
    files = (  # those that git and gitlease read, whether they are there or not
        ".gitlease.yaml",
        os.path.join(repository.common_dir, "config"),
        os.path.join(home, ".gitconfig"),
        os.path.join(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git", "config"),
        environ.get("GIT_CONFIG_GLOBAL", ""),
        *(x.origin and os.path.join(folder, x.origin) for x in repository.config.entries),
    )
    files = tuple(dict.fromkeys(map(os.path.normpath, filter(None, files))))
    who = ":".join(environ.get(name, "") for name in WHO)
    odd = "@" in environ.get(MAY_BE_SECRET, "") or environ.get(FOR_ONE_COMMAND)
    plain = not odd and all(text.isprintable() for text in (who, *files))
    return Origin(who if plain else None, files, repository.config.read_at)


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
        until = {ACTIVITY: now + LONGEST_MARKER, MESSAGE: now + LONGEST_MARKER}
    places = idle.below if idle.tasks else ()
    # Git takes a plain place for what it is, and a line holds it.
    plain = all(x.isprintable() and not {"", ".", ".."} & set(x.split("/")) for x in places)
    known = not idle.tasks or (0 < len(places) <= MOST_PLACES and plain)
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
        if os.stat(os.path.join(folder, SINCE)).st_mtime_ns == dated:
            return
    except OSError:
        pass
    drop_idle_marker(folder)  # it cannot be kept, or another process read its settings later


def drop_idle_marker(folder: str) -> None:
    """Leave the next hook to look for itself, since what is known has changed."""
    for name in (COMMIT, MESSAGE, ACTIVITY):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


# --- what is left to be said, and what is carried -------------------------------------------------

FOLDER = "words"
LONGEST = 4_000
MOST = 20  # that are told at once; older ones are dropped
MOST_FILES = 1_000
A_DAY = 86_400  # seconds
CARRIED = "carried"
MOST_CARRIED = 200  # leases of one session; the newest are kept


class InboxFolder:
    """What is to be said to one run, in a folder below the clone's private ``folder``."""

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._private, self._every = folder, os.path.join(folder, FOLDER)
        self._run = holder, session

    @property
    def _folder(self) -> str:
        return os.path.join(self._every, _name_of(*self._run))

    def leave(self, texts: Sequence[str]) -> None:
        """A kill leaves a whole line or none. The marker is dropped, so the next hook looks."""
        folder = self._folder
        for text in texts[:MOST]:
            name = f"{time.time_ns():020d}-{os.urandom(4).hex()}{WORD}"
            with contextlib.suppress(OSError):
                make_folders(folder)
                data = text[:LONGEST].encode("utf-8", "replace")
                replace_file(os.path.join(folder, name), data)
        if not texts:
            return
        drop_idle_marker(self._private)
        with contextlib.suppress(OSError), os.scandir(self._every) as runs:
            for run in runs:  # and what was left for runs that never came back
                drop_leftovers(run.path)
                if time.time() - run.stat(follow_symlinks=False).st_mtime > A_DAY:
                    with contextlib.suppress(OSError):  # there is something in it
                        os.rmdir(run.path)

    def take(self) -> tuple[str, ...]:
        """Whoever removes a file tells what is in it, and nobody else does."""
        if not os.path.isdir(self._every):
            return ()
        folder = self._folder
        try:
            names = sorted(name for name in os.listdir(folder) if not name.endswith(".tmp"))
        except OSError:
            return ()
        said = []
        for name in names[-MOST_FILES:]:
            file = os.path.join(folder, name)
            try:
                data = read_regular(file, LONGEST * 4)
                if data is not None:
                    os.unlink(file)
            except OSError:
                continue
            if data and data.strip():
                said.append(data.decode("utf-8", "replace"))
        return tuple(dict.fromkeys(said[-MOST:]))


class CarriedFolder:
    """The ids of the leases of its person that a session carries: those it used, or was told of.

    They are bound to no session, and so nobody else would know that this one works under them. A
    file for each session lies in the clone's private ``folder``.

    It only saves leases from lapsing, and never fails. Without a session nothing is noted: the
    person's own commands renew whatever is the person's.
    """

    def __init__(self, folder: str, holder: str, session: str | None) -> None:
        self._folder, self._run = os.path.join(folder, CARRIED), (holder, session)

    @property
    def _name(self) -> str:
        return _name_of(*self._run) + STAMP

    def ids(self) -> frozenset[str]:
        return frozenset(self._load())

    def add(self, lease_ids: Iterable[str]) -> None:
        """Note what the session uses, or is told that it carries."""
        if self._run[1] is None:
            return
        known = self._load()
        new = [x for x in dict.fromkeys(lease_ids) if x not in known]
        if new:
            keep(self._folder, self._name, [*known, *new][-MOST_CARRIED:])

    def _load(self) -> list[str]:
        if not os.path.isdir(self._folder):
            return []
        found = load_json(os.path.join(self._folder, self._name), LARGEST_NOTE)
        return [x for x in found if isinstance(x, str)] if isinstance(found, list) else []


def _name_of(holder: str, session: str | None) -> str:
    """What is called after a run of a person."""
    from hashlib import sha256

    return sha256(f"{holder}\0{session or ''}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


# --- work that nobody waits for -------------------------------------------------------------------

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
    from gitlease.git.run import detach

    with contextlib.suppress(OSError, ValueError):
        process = detach([sys.executable, "-P", "-m", "gitlease", *words], cwd=cwd, env=env)
        process.returncode = 0  # nobody waits for it: it is not to be missed when this one ends
        return True
    return False


def marker_state(start: str) -> MarkerState | None:
    """What this clone's markers say, found without starting git; None where there is no clone."""
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
    return _once(_stamp(state, name), "", every=every, now=time.time() if now is None else now)


def check_is_due(state: MarkerState, name: str, *, now: float) -> bool:
    """Whether what is called ``name`` has to look again: its time has come, or a head has moved."""
    stamp = _stamp(state, name)
    with contextlib.suppress(OSError):
        return now >= os.stat(stamp).st_mtime or first_line(stamp) != state.heads
    return True


def postpone_check(state: MarkerState, name: str, *, at: float) -> None:
    """Have nobody look under that name until then, while no head moves."""
    _date(_stamp(state, name), state.heads, at)


def _stamp(state: MarkerState, name: str) -> str:
    named = os.fsencode(name).hex()[-LONGEST_NAME:] + STAMP  # hashlib takes longer than all else
    return os.path.join(state.private, STAMPS, named)


def _heads(private: str) -> str:
    """A word of the files that say which heads are known, of every place and layer."""
    from gitlease.store.state import KNOWN_FILE

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
