"""The sessions in each work tree, as far as this machine knows: agents, runs and tool servers.

A lease that a tool server claimed stays its own for as long as its process lives, whichever
conversations its host begins and ends meanwhile:

- Told a session by its host, a server speaks in it. Told none, it joins the only live conversation
  of its host process, and stays in it while that lives; until there is exactly one it has a session
  of its own.
- When its conversation has ended, it follows the one that is live now. That is for what it claims
  next: what it has it renews, releases and finishes in the session in which it was claimed.
- A conversation that is alone in the host process may edit what the servers there hold.
- The end of a conversation leaves alone what a server claimed that may belong to another one: while
  another lives in the host process, and the server was told no session or the host went on. Such a
  lease ends with its server.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gitlease.guard.callers import working_parent
from gitlease.guard.notes import common_dir_of, find_common_dir, first_line
from gitlease.kernel.git.files import Notes, Table, is_private, notes_of, strings_in
from gitlease.kernel.git.repository import Repository, ask_line, fit_name, short_host
from gitlease.kernel.git.run import numbered_in, still_runs
from gitlease.kernel.rules.frozen import JSON, Damaged, dataclass, replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.settings.identity import CONTINUED, continued
from gitlease.runs.records import RunsFolder

Process = tuple[int, str]
"""A process: its number, and when it started (empty: unknown)."""

PRESENT = "present"  # a kind of notes, by the git directory and the name of a session
# Seconds without a sign after which a session counts as gone: twice as long as a lease lasts by
# default. A test run says nothing for minutes, and a person thinks before the next prompt.
RECENT = 1_800
RUN = "run"
SIGN_EVERY = 30  # seconds after which another sign of a session is noted
BY_PLACE = "worktree:"  # sessions that are named after the work tree


@dataclass(frozen=True, kw_only=True)
class Present:
    """A session in a work tree. ``since`` is in seconds since the epoch.

    ``names`` are the sessions that commands under it speak as; ``by`` is the agent's host, or
    ``RUN``.
    """

    holder: str
    session: str
    host: str
    since: int
    by: str
    names: tuple[str, ...] = ()
    pid: int = 0
    started: str = ""
    # The process was there at two events: what starts a hook may end with it, but this one stays
    # for as long as the session does.
    proven: bool = False


def touch(git_dir: str, key: str, *, now: float) -> bool:
    """Note another sign of a session; whether a note of it was there. It never fails."""
    notes, name = notes_of(common_dir_of(git_dir)), _name(git_dir, key)
    seen, value = notes.of(PRESENT).get(name, (0.0, None))
    present = _loaded(value)
    if present is None:
        return False
    if not (present.proven and still_runs(present.pid, present.started)):
        pid, started = working_parent()
        same = pid > 0 and (pid, started) == (present.pid, present.started)
        present = replace(present, pid=pid, started=started, proven=same)
    # Each write takes the lock of the clone's notes, and an agent's events come by the second.
    if JSON.dump(present) != value or not 0 <= now - seen < SIGN_EVERY:
        notes.put(PRESENT, name, JSON.dump(present), at=now)
    return True


def leave(common_dir: str, key: str) -> None:
    """Forget a session in every work tree of a clone. It never fails."""
    notes = notes_of(common_dir)
    notes.drop(PRESENT, *(x for x in notes.of(PRESENT) if x.partition("\0")[2] == key))


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


def work_trees_below(folder: str, start: str) -> list[str]:
    """The roots of the work trees that are lost with a folder; a git directory takes its own along.

    Known are those of the clone around ``start``, and of one in the folder.
    """
    folder = os.path.realpath(folder)
    common = find_common_dir(start)
    git_dir = folder if os.path.basename(folder) == ".git" else os.path.join(folder, ".git")
    roots = {} if common is None else {root_of(x): x for x in git_dirs_of(common)}
    if os.path.isdir(git_dir):
        roots |= {root_of(x): x for x in git_dirs_of(git_dir)}
    elif os.path.lexists(git_dir):
        roots[folder] = git_dir
    return [
        root
        for root, place in roots.items()
        if any(f"{os.path.realpath(x)}/".startswith(f"{folder}/") for x in (root, place))
    ]


def live_sessions(common_dir: str, *, now: float, process: Process | None = None) -> set[str]:
    """The live sessions of agents by the notes of every work tree of a clone, in a ``process``."""
    return {
        present.session
        for _, present, seen in _notes(git_dirs_of(common_dir))
        if _is_live(present, now - seen)
        if process is None or (process[1] and (present.pid, present.started) == process)
    }


def is_alone(git_dirs: Collection[str], key: str) -> bool:
    """Tell whether nothing is known of anybody else in these work trees."""
    return all(other == key for other, _, _ in (*_notes(git_dirs), *_runs(git_dirs)))


def others(
    git_dirs: Collection[str], names: Collection[str], *, now: float, key: str = ""
) -> list[Present]:
    """The live sessions in work trees but those of the caller, the longest there first.

    The caller's are the note of ``key`` and those with one of its ``names``.
    """
    notes = [*_notes(git_dirs), *_runs(git_dirs)]
    named = Counter(name for _, x, _ in notes for name in x.names)
    # A name that a linked work tree gives tells nothing where several work in it.
    sure = {name for name in names if named[name] < 2 or not name.startswith(BY_PLACE)}
    live = [
        x
        for other, x, seen in notes
        if other != key and _is_live(x, now - seen) and sure.isdisjoint(x.names)
    ]
    return sorted(live, key=lambda x: (x.since, x.session))


def _is_live(present: Present, age: float) -> bool:
    if present.proven and present.host == _machine():
        if not still_runs(present.pid, present.started):
            return False
        # A run may take hours without a sign: its process is the sign.
        if present.by == RUN:
            return True
    # Whichever way a clock was set, a note counts no longer than that.
    return abs(age) < RECENT


def _notes(git_dirs: Collection[str]) -> Iterator[tuple[str, Present, float]]:
    """The agents' sessions in work trees, each with its key and when it gave its last sign."""
    places = {*map(os.path.realpath, git_dirs)}
    for common_dir in {*map(common_dir_of, git_dirs)}:
        for name, (seen, value) in notes_of(common_dir).of(PRESENT).items():
            place, _, key = name.partition("\0")
            if place in places and (present := _loaded(value)) is not None:
                yield key, present, seen


def _runs(git_dirs: Collection[str]) -> Iterator[tuple[str, Present, float]]:
    """The runs in work trees, likewise, by their own records."""
    places = {*map(os.path.realpath, git_dirs)}
    for common_dir in {*map(common_dir_of, git_dirs)}:
        for run in RunsFolder(os.path.join(common_dir, "gitlease"), "").alive():
            present = Present(
                holder=run.holder,
                session=run.session,
                host=_machine(),
                since=run.began_at // MS,
                by=RUN,
                names=(run.session,) if run.session else (),
                pid=run.runner,
                started=run.runner_started,
                # The number of a process in another container means nothing here.
                proven=run.namespace == numbered_in(),
            )
            if run.git_dir and os.path.realpath(run.git_dir) in places:
                yield f"{RUN} {run.id}", present, run.began_at / MS


def _machine() -> str:
    return short_host() or ""


def _loaded(value: object) -> Present | None:
    with contextlib.suppress(Damaged):
        return JSON.load(Present, value)
    return None


def _name(git_dir: str, key: str) -> str:
    # Linked work trees of a clone have each a git directory of their own.
    return f"{os.path.realpath(git_dir)}\0{key}"


@dataclass(frozen=True)
class SharedTree:
    """The other live sessions in a work tree; ``way_out`` is a command that adds another one."""

    others: tuple[Present, ...]
    way_out: str


def shared_with(
    repository: Repository,
    names: Collection[str],
    *,
    now: float,
    key: str = "",
    in_clone: bool = False,
) -> SharedTree | None:
    """Return the other sessions in this work tree that this machine knows; None for nobody.

    ``names`` are the sessions of the caller, and ``key`` is that of its note; ``now`` is in seconds
    since the epoch. ``in_clone``: in any work tree of the clone.
    """
    if repository.toplevel is None:
        return None
    git_dirs = git_dirs_of(repository.common_dir) if in_clone else [repository.git_dir]
    present = others(git_dirs, names, now=now, key=key)
    if not present:
        return None
    path = _free_worktree(repository, min(names, key=len, default="") or "mine")
    words = ("git", "-C", repository.toplevel, "worktree", "add", path)
    return SharedTree(tuple(present), shlex.join(words))


def _free_worktree(repository: Repository, name: str) -> str:
    """Find room for `git worktree add` beside a work tree: no such folder, no such branch."""
    fit, number = fit_name(name), 1
    while True:
        tried = fit if number == 1 else f"{fit}-{number}"
        path = os.path.join(str(repository.linked_trees), tried)
        branch = ("rev-parse", "--verify", "--quiet", f"refs/heads/{tried}")
        if not os.path.lexists(path) and not ask_line(repository, *branch):
            return path
        number += 1


def note_agent(
    git_dir: str, key: str, actor: Actor, names: Collection[str], *, by: str, now: float
) -> None:
    """Note that an agent's session works in the work tree of this git directory. Never fails."""
    pid, started = working_parent()
    present = Present(
        holder=actor.holder,
        session=actor.session or "",
        host=_machine(),
        since=int(now),
        by=by,
        names=tuple(sorted(names)),
        pid=pid,
        started=started,
    )

    def change(tables: dict[str, Table]) -> None:
        table = tables[PRESENT]
        for name, (seen, value) in [*table.items()]:
            other = _loaded(value)
            # Whoever comes sweeps: a session that was killed ends nothing itself.
            if other is None or not _is_live(other, now - seen):
                del table[name]
        table[_name(git_dir, key)] = now, JSON.dump(present)

    notes_of(common_dir_of(git_dir)).change(change)
    note_clone(key, common_dir_of(git_dir))


SERVERS = "servers"  # a kind of notes, by process


@dataclass(frozen=True, kw_only=True)
class ToolServer:
    """A tool server of a host process. ``leases`` has the session of each lease that it claimed.

    ``told``: the host named its session. ``machine`` is where these numbers of processes count.
    """

    machine: str
    pid: int
    started: str
    host_pid: int
    host_started: str
    told: bool
    leases: Mapping[str, str]

    @property
    def host(self) -> Process:
        return self.host_pid, self.host_started


def note_server(common_dir: str, server: ToolServer) -> None:
    """Note what a server holds; nothing of one that holds nothing. Never fails."""
    notes = notes_of(common_dir)
    if server.leases:
        notes.put(SERVERS, f"{server.pid}", JSON.dump(server), at=time.time())
    else:
        notes.drop(SERVERS, f"{server.pid}")


def live_servers(common_dir: str) -> list[ToolServer]:
    """The servers of this machine that hold anything. Notes of dead ones are dropped."""
    notes, servers = notes_of(common_dir), list[ToolServer]()
    for key, (_, value) in notes.of(SERVERS).items():
        server = None
        with contextlib.suppress(Damaged):
            server = JSON.load(ToolServer, value)
        # A clone on a shared disk has servers of other machines, whose numbers mean nothing here.
        is_here = server is not None and server.machine == _machine()
        if server is None or (is_here and not still_runs(server.pid, server.started)):
            notes.drop(SERVERS, key)
        elif is_here:
            servers.append(server)
    return servers


# --- conversations that continue one another in the same host process -------------------------
# After ``/clear`` a host goes on with a new number. Notes say which session such a conversation
# continues, so that its leases stay its own.

ENDS = "ends"  # a kind of notes, by session
PENDING_FOR = 60.0  # seconds for which an end waits for a conversation that continues it


def end_conversation(common_dir: str, session: str, process: Process, *, now: float) -> None:
    """Note that a conversation may be continued soon by another one. Never fails."""
    notes_of(common_dir).put(ENDS, session, [*process, True], at=now)


def begin_conversation(
    common_dir: str, session: str, process: Process, *, clears: bool, now: float
) -> None:
    """Note that a conversation begins, or goes on, where any has ended. Never fails.

    ``clears``: it continues the one that ended in the same process, if exactly one has.
    """

    def change(tables: dict[str, Table]) -> None:
        ends = tables[ENDS]
        _close(tables, session)
        pending = [
            name
            for name, (at, value) in ends.items()
            # Two ends that pend could each be the one continued: then neither is.
            if value == [*process, True] and 0 <= now - at < PENDING_FOR
        ]
        if clears and process[1] and len(pending) == 1:
            before = pending[0]
            _close(tables, before)
            tables[CONTINUED][session] = now, continued(common_dir, before)

    notes = notes_of(common_dir)
    if notes.of(ENDS):
        notes.change(change)


def end_takes_effect(common_dir: str, session: str) -> bool:
    """Close a conversation; return whether its end was still pending."""
    pending = [False]
    notes_of(common_dir).change(lambda tables: pending.append(_close(tables, session)))
    return pending[-1]


def has_ended(common_dir: str, session: str, process: Process) -> bool:
    """Tell whether a conversation ended in this process."""
    ended = notes_of(common_dir).get(ENDS, session)
    return bool(process[1]) and ended in ([*process, True], [*process, False])


def _close(tables: dict[str, Table], session: str) -> bool:
    """Let nobody continue a conversation; whether anybody could."""
    at, value = tables[ENDS].get(session, (0.0, None))
    match value:
        case [pid, started, True]:
            tables[ENDS][session] = at, [pid, started, False]
            return True
    return False


# --- the clones of a session ------------------------------------------------------------------

CLONES = "clones"  # a kind of notes, by session, in a folder of this user's own
MOST_CLONES = 20  # clones of one session


def note_clone(key: str, common_dir: str) -> None:
    """Note that a session works in a clone. Never fails."""
    if (notes := _notes_of_user()) is not None:
        known = [x for x in clones_of(key) if x != common_dir]
        notes.put(CLONES, key, [common_dir, *known][:MOST_CLONES], at=time.time())


def clones_of(key: str) -> list[str]:
    """The common git directories of the clones in which a session was seen."""
    notes = _notes_of_user()
    noted = [] if notes is None else strings_in(notes.get(CLONES, key))
    # Anything may have been deleted since.
    return [x for x in noted if os.path.isabs(x) and os.path.isdir(x)]


def forget_clones(key: str) -> None:
    """Forget a session that has ended. Never fails."""
    if (notes := _notes_of_user()) is not None:
        notes.drop(CLONES, key)


def _notes_of_user() -> Notes | None:
    """Notes that no other user can change; None where there is no place for them."""
    home = os.path.join(os.path.expanduser("~"), ".cache")
    every = (os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("XDG_CACHE_HOME", ""), home)
    folder = os.path.join(next((x for x in every if os.path.isabs(x)), ""), "gitlease", "agents")
    with contextlib.suppress(OSError):
        # Made one by one, so that each has these permissions, whatever the umask.
        os.makedirs(os.path.dirname(os.path.dirname(folder)), 0o700, exist_ok=True)
        for path in (os.path.dirname(folder), folder):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
    # A folder that others may write could name any clone to work in.
    return Notes(folder) if os.path.isabs(folder) and is_private(folder) else None
