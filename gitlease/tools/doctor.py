"""``doctor``: the list of its checks, those of the machine, the clone and its remote, and proofs.

A check is a function that yields ``Row`` values, and a line in ``CHECKS`` that says what it needs.
The checks of a part are in its own module ``doctor``. What several checks read of the place is an
attribute of ``Examined``, so that they do not depend on their order. Checks change nothing but this
clone's copy of the ledger, as reading does, and the layer ``probe`` if that is asked for. What a
check raises is a finding too, and does not stop the others.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from glob import escape, glob
from itertools import count
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any, Literal

from gitlease.agents.doctor import agents
from gitlease.gateway.doctor import gateway
from gitlease.guard.doctor import hooks, sessions
from gitlease.guard.hook_places import CONFIG_HOOKS, HOOK_RUN, git_version
from gitlease.kernel.git.files import (
    LEFT_OVER,
    NOTES,
    exclusive,
    load_json,
    read_small,
    shared_bits,
)
from gitlease.kernel.git.ownership import closed_objects, way_back
from gitlease.kernel.git.repository import without_secrets
from gitlease.kernel.git.run import run_git
from gitlease.kernel.ledger.messages import waiting
from gitlease.kernel.ledger.ports import Change, Swapped, TaskList
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import (
    Denied,
    GitleaseError,
    Hint,
    Invalid,
    UsageError,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import MS, format_duration
from gitlease.kernel.rules.lease import DEFAULT_POLICY
from gitlease.kernel.rules.moves.operations import Barrier, Renew
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.settings.identity import resolve_identity
from gitlease.kernel.store.private_store import PrivateStore, remove
from gitlease.kernel.store.state import KNOWN_FILE, StateFolder, read_entry, read_pending
from gitlease.kernel.store.storage import Move
from gitlease.kernel.store.transport import held_up
from gitlease.runs.records import ALIVE, ENDED, POOLS
from gitlease.tasks.doctor import tasks
from gitlease.tasks.files import read_intent
from gitlease.wiring.examined import (
    BAD,
    GOOD,
    HELP,
    IN_ENVIRONMENT,
    LIMIT,
    MENDS,
    UNKNOWN,
    WARNING,
    Examined,
    Row,
    Rows,
    changed_mode,
    row_of,
)
from gitlease.wiring.workspace import Workspace, open_workspace

OLDEST_GIT = (2, 31)
LONGEST_FSCK = 120.0  # seconds
PROBE = "probe"  # the layer that is pushed to
# Of a clone's private folder: anything else in it is somebody's own, and stays.
PLACE = "state/(?:default|local|at-[0-9a-f]+)"  # as ``key`` of a ``LedgerPlace``
LAYER = f"{PLACE}/[a-z0-9_-]+/"
FOLDER = re.compile(
    rf"tasks|serve|{ALIVE}|{ENDED}|{POOLS}|state|{PLACE}(/[a-z0-9_-]+)?|{LAYER}(pending|edges)"
)
CHANGE = re.compile(rf"{LAYER}(pending|edges)/[^/]+\.json")
STORE = re.compile(r"(store(-[^/]+)?|local)\.git")
LEFT = re.compile(
    r"(.*(\.\d+\.|/\.)[0-9a-f]+|(.*[/.])?lock)\.tmp(\.(break|restore)\..*)?"
    rf"|{STORE.pattern}/.*\.lock"
)
SET_ASIDE = re.compile(r".*(\.\d+)+\.damaged")
CHANGES: dict[str, Callable[[str, Any], object]] = {"pending": read_pending, "edges": read_intent}
HOUR = 3_600_000  # milliseconds
MOST_PUSHES = 360  # in an hour: six a minute
FEW_PUSHES = 10  # fewer say nothing of how many are lost
DAMAGED = ".damaged"  # ends the name of what nobody reads, and its owner could not delete


@dataclass(frozen=True)
class Diagnosis:
    """A row, and the name of the check that found it."""

    check: str
    state: str
    what: str
    fix: Hint | str = ""
    mend: Callable[[], object] | None = None


Need = Literal["directory", "repository", "place"]
"""What has to be open before a check runs: an attribute of ``Examined``."""


@dataclass(frozen=True)
class Check:
    """A check, by its function; ``only_if_asked``: with ``--probe``."""

    run: Callable[[Examined], Rows]
    needs: Need
    only_if_asked: bool = False

    @property
    def name(self) -> str:
        """The name that the rows have, which is that of the function."""
        return self.run.__name__


def examine(of: Examined, *, fix: bool = False) -> tuple[list[Diagnosis], list[str]]:
    """Carry out all checks, and with ``fix`` mend what can be; return also what was done."""
    findings, done = list[Diagnosis](), list[str]()
    for check in CHECKS:
        if check.only_if_asked and not of.probes:
            continue
        try:
            getattr(of, check.needs)
        except UsageError:
            raise
        except GitleaseError:  # for which there is a line already
            if of.clone is not None:
                what = "not examined: the settings are not valid"
                findings.append(Diagnosis(check.name, UNKNOWN, what))
            continue
        rows = carry_out(check, of)
        if fix and (results := [(x.what, x.check, mended(x)) for x in rows if x.mend]):
            rows = carry_out(check, of)
            still = {x.what for x in rows}
            for what, name, text in results:
                failed = text.startswith("mended") and what in still
                done.append(f"{name} is not mended: {what}" if failed else text)
        findings += rows
    return findings, done


def carry_out(check: Check, of: Examined) -> list[Diagnosis]:
    """The findings of a check, one of which may be what it raised."""
    rows = list[Row]()
    try:
        rows += check.run(of)
    except GitleaseError as error:
        rows.append(row_of(error))
    except Exception as error:  # a bug, or a disk that fails
        rows.append(Row(BAD, f"{type(error).__name__}: {error}", HELP))
    return [
        Diagnosis(check.name, x.state, without_secrets(" ".join(x.what.split())), x.fix, x.mend)
        for x in rows
    ]


def mended(finding: Diagnosis) -> str:
    """Mend it, and say what was done."""
    try:
        did = finding.mend and finding.mend()
    except (GitleaseError, OSError) as error:
        return f"{finding.check} could not be mended: {error}"
    return f"mended {finding.check}: {did if isinstance(did, str) else finding.fix}"


# --- this machine, and the clone ------------------------------------------------------------------


def git(of: Examined) -> Rows:
    version, shown = git_version("/"), "git {}.{}".format(*git_version("/"))
    if version < OLDEST_GIT:
        yield Row(BAD, f"{shown} is too old: gitlease needs 2.31 or newer")
    elif version < HOOK_RUN:
        yield Row(WARNING, f"{shown}: no hook can be shown to fire before 2.36")
    else:
        more = " and has them in its configuration" * (version >= CONFIG_HOOKS)
        yield Row(GOOD, f"{shown} can show that hooks fire{more}")
    if shutil.which("gitlease") is None:
        fix = f'export PATH={quote(os.path.dirname(sys.executable))}:"$PATH"'
        yield Row(WARNING, "gitlease is not on PATH: hooks of agents do nothing", fix)


def repository(of: Examined) -> Rows:
    found = of.repository
    kind = ["bare, " * (found.toplevel is None) + found.object_format]
    kind += ["shallow"] * bool(found.shallow())
    kind += [f"linked as {found.worktree}"] if found.worktree else []
    yield Row(GOOD, f"{found.toplevel or found.git_dir}: {', '.join(kind)}")


def identity(of: Examined) -> Rows:
    resolve = partial(resolve_identity, environ=os.environ, session_flag=None, no_session=False)
    try:
        found = resolve(of.repository)
    except Invalid as error:  # nobody works in a bare hub
        yield row_of(error, "" if of.repository.toplevel else WARNING)
        return
    session = f"session {(who := found.actor).session} ({found.session_source})"
    session = session if who.session else "no session"
    yield Row(GOOD, f"{who.holder}, from {found.holder_source}; {session}")


def settings(of: Examined) -> Rows:
    found = of.place.settings
    yield from (Row(WARNING, text) for text in found.warnings)
    ttl = f"{format_duration(found.ttl)} ({found.found['lease.ttl'].source})"
    yield Row(GOOD, f"layer {of.place.layer}, leases of {ttl}")


# --- the remote -----------------------------------------------------------------------------------


def remote(of: Examined) -> Rows:
    place, url, ways = of.place, of.place.location.url, of.place.location.ways
    if url is None or ways is None:
        what = "leases stay in this clone"
        local = of.kept.store(of.clock, time_limit=LIMIT)
        if of.local:
            yield Row(GOOD, what)
        elif (lost := local.lost()) is not None:
            yield row_of(lost)
        else:
            yield Row(WARNING, f"{what}; to share them: git remote add origin URL")
        return
    writes = "the same" if ways.writes == (ways.reads,) else " and ".join(ways.writes)
    where = f"{place.location.name or 'the remote'} reads {ways.reads}, writes {writes}"
    contact = of.contact
    if isinstance(contact.fault, GitleaseError):
        failed = row_of(contact.fault)
        yield replace(failed, what=f"{where}: {failed.what}")
        return
    if contact.fault is not None:
        raise contact.fault
    if contact.doubt is not None:
        yield row_of(contact.doubt)
    else:
        yield Row(GOOD, f"{where}, in {contact.kind}")
    yield from (Row(WARNING, text) for text in contact.warnings)
    yield from (Row(WARNING, text) for text in unknown_of_main(of))
    took, most = contact.seconds, place.settings.guard_timeout
    slow = f"; hooks wait for {most} s at most (guard.timeout)" if took > most else ""
    yield Row(WARNING if slow else GOOD, f"it answers in {took:.2f} s{slow}")


def unknown_of_main(of: Examined) -> Iterator[str]:
    """What cannot be known here of the main branch, after a try to learn it."""
    if not os.path.isdir(of.private):  # a clone without gitlease stays one
        return
    main = of.place.learn_main(now=of.clock.now().wall_ms / MS, seconds=LIMIT, afresh=True)
    if main.why:
        yield main.why
        return
    try:
        of.place.recorded_id()
        found = of.place.task_files().read(main.place) if main.place else TaskList()
    except GitleaseError as error:
        yield error.message
        return
    for problem in found.problems:
        yield f"on {main.name}: {problem.message}"


def ledger(of: Examined) -> Rows:
    known = of.contact.head
    if known is None:
        return
    if known.ledger is None:
        yield Row(GOOD, f"layer {of.place.layer} has none yet: the first claim makes it")
        return
    header, policy, settings = known.ledger.header, known.policy, of.place.settings
    for damage in known.ledger.damage():
        fix = Hint("revoke", {"record": damage.file, "reason": "damaged"})
        yield Row(BAD, f"the record {damage.shown} is damaged: {damage.problem}", fix)
    least, most = format_duration(policy.ttl_min), format_duration(policy.ttl_max)
    limits = f"{least} to {most}"
    if (
        not policy.ttl_min <= (ttl := settings.ttl) <= policy.ttl_max
        and not settings.ttl_is_default
    ):
        fit = Hint("config", {"key": "lease.ttl", "value": most if ttl > policy.ttl_max else least})
        what = f"lease.ttl is {format_duration(ttl)}, and the ledger allows {limits}"
        source = IN_ENVIRONMENT.match(settings.found["lease.ttl"].source)
        yield Row(BAD, what, f"unset {source[1]}" if source else fit)
    yield from (
        Row(WARNING, text, "gitlease help trouble") for text in waiting(known, of.clock.now())
    )
    head = f"{header.ledger_id}, revision {header.revision}"
    yield Row(GOOD, f"{head}, leases of {limits}, admins: {' '.join(policy.admins) or 'none'}")


def pushes(of: Examined) -> Rows:
    if of.place.location.url is None:
        return
    store, now = of.kept.store(of.clock, time_limit=LIMIT), of.clock.now().wall_ms
    recent = [x for x in store.pushes(of.place.layer) if x.at > now - HOUR]
    if not recent:
        return
    kinds = Counter(x.what.partition(" ")[0] for x in recent if not x.what.startswith("the "))
    kinds["others"] = len(recent) - kinds.total()
    purposes = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common() if number)
    unlanded = sum(x.fate != "landed" for x in recent)
    what = f"{len(recent)} in the last hour ({purposes}), {unlanded} of which did not land"
    head = store.known(of.place.layer)
    if head is not None and head.pace.push and head.pace.read:
        what += f"; a push takes {head.pace.push:.1f} s, a read {head.pace.read:.1f} s"
    if len(recent) > MOST_PUSHES:
        yield Row(WARNING, f"{what}; hosts recommend 6 a minute at most: use longer leases")
    elif len(recent) >= FEW_PUSHES and unlanded > len(recent) / 3:
        yield Row(WARNING, f"{what}; others change the ledger as often: use longer leases")
    else:
        yield Row(GOOD, what)


def clock(of: Examined) -> Rows:
    if of.place.location.url is None:
        return
    contact = of.contact
    skew = (contact.head.policy if contact.head else DEFAULT_POLICY).skew
    try:
        ahead = contact.ended - parsedate_to_datetime(contact.date).timestamp()
    except (ValueError, TypeError, OverflowError):
        yield Row(UNKNOWN, "nothing tells the time of the remote")
        return
    what = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the remote's"
    if abs(ahead) > skew:
        yield Row(BAD, f"{what}, and the ledger allows {skew} s: set it by a time server")
    else:
        yield Row(GOOD, f"{what} at most" if abs(ahead) >= 1 else "the same as the remote's")


def probe(of: Examined) -> Rows:
    if of.place.location.url is None:
        return
    space = open_workspace(of.directory, layer=PROBE, remote=of.flags.get("remote"))
    trial = TrialPush(space.as_machine(of.folder))
    yield Row(GOOD, f"{trial.prove_writable()} can be pushed")
    first, late = trial.step(PROBE), trial.step(PROBE)
    with held_up(lambda hooks: trial.push(late, hooks=hooks), f"{of.folder}/hooks") as pushed:
        was_held = not pushed.done()
        trial.push(first)
    pushed.result()
    if (tip := trial.tip(PROBE)) == late.new and was_held:
        yield Row(BAD, "a late push replaces another: of two claims both could win")
        return
    if tip != first.new:
        yield Row(
            UNKNOWN, "two pushes at once could not be tried: perhaps others push there; try again"
        )
        return
    yield Row(GOOD, "of two pushes at once one wins, and the late one is refused")
    last = trial.step(PROBE)
    # The first of these refs leaves no room for the second.
    both = trial.push(last, Move(f"{PROBE}/none", "", last.new))
    if trial.tip(PROBE) != first.new:
        yield Row(BAD, "a part of an atomic push lands: work could land without its lease")
    elif "does not support" in both.detail:
        yield Row(
            WARNING, "there are no atomic pushes: work and its lease cannot be pushed together"
        )
    else:
        yield Row(GOOD, "an atomic push lands whole or not at all")


# --- proofs by pushes, those of ``selftest`` as well ----------------------------------------------


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[str]:
    """A temporary folder; those of the same name that killed processes have left are removed."""
    try:
        made = TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True)
    except OSError as error:
        hints = ("TMPDIR names the folder for temporary files",)
        raise Invalid(f"there is no temporary folder: {error.strerror}", hints=hints) from None
    # Without locks nothing is removed: a file that stands for one would not be renamed with it.
    with made as folder, exclusive(f"{folder}/locked", timeout=LIMIT, soft=False):
        os.rename(f"{folder}/locked", f"{folder}/lock")  # where nobody finds it unlocked meanwhile
        for lock in glob(f"{escape(os.path.dirname(folder))}/{name}-*/lock"):
            with exclusive(lock, timeout=0, soft=False) as is_over:
                if is_over and os.lstat(other := os.path.dirname(lock)).st_uid == os.getuid():
                    shutil.rmtree(other, ignore_errors=True)
        yield os.path.realpath(folder)


class TrialPush:
    """Pushes by hand, which show the remote's own part: each is sent once, as it was decided."""

    def __init__(self, space: Workspace) -> None:
        self._ledger, self._prefix = space.ledger, space.settings.ref_prefix
        self._store = space.place.store(space.clock, time_limit=space.time_limit)
        self._refs = space.place.refs(time_limit=space.time_limit)

    def prove_writable(self) -> str:
        """Push an empty step to the ref of the layer; return the ref."""
        layer, step = self._ledger.layer, Barrier(id=fresh_id(), actor=self._ledger.actor)
        ref = f"{self._prefix}/{layer}"
        try:
            self._ledger.transaction.carry_out([step], what=f"the {layer}'s push to {ref}")
        except Denied as error:
            allow = f"whoever administers the remote has to let you push to {self._prefix}/*"
            raise error.with_(hints=(allow, *error.hints)) from None
        return ref

    def step(self, layer: str, lease: Resource | None = None) -> Move:
        """Prepare an empty step of a layer, or one that renews a lease."""
        head, actor = self._store.fetch(layer), self._ledger.actor
        empty = Barrier(id=fresh_id(), actor=actor)
        step = Renew(id=fresh_id(), actor=actor, resource=lease) if lease else empty
        change = Change(head, self._ledger.transaction.decided(head, [step]), "a trial push")
        return Move(layer, head.version, self._store.prepare([change], append=True).versions[layer])

    def push(self, *moves: Move, hooks: str = "") -> Swapped:
        """Push these steps, all or none; ``hooks`` is a folder with a hook of git."""
        return self._refs.swap(moves, hooks=hooks)

    def tip(self, layer: str) -> str | None:
        """The version of a layer that the remote has now."""
        return self._store.peek([layer]).get(layer)


# --- what this clone keeps ------------------------------------------------------------------------


def private(of: Examined) -> Rows:
    folder = of.private
    place = folder if os.path.lexists(folder) else of.repository.common_dir
    if not os.path.isdir(place):
        yield Row(BAD, f"{place} is not a folder: claims fail", *moved_away(place))
        return
    every, shut = [folder], [place] if is_closed(place) else []
    for above, folders, files in os.walk(folder):
        for path in (os.path.join(above, x) for x in (*folders, *files)):
            (shut if is_closed(path) else every).append(path)
        folders[:] = [x for x in folders if not x.endswith(DAMAGED)]
    if shut:
        what = f"{shut[0]} cannot be read and written: claims fail"
        if all(map(is_open_to_owner, shut)):
            yield Row(BAD, f"{what}; it is another's, or read-only", way_back(shut[0]))
        else:
            yield changed_mode(what, place, f"{'-R ' * (place == folder)}u+rwX", more=0o700)
    elif closed := closed_objects(of.repository.common_dir):
        what = f"{closed} cannot be written, so git can neither fetch nor commit"
        yield Row(BAD, what, way_back(closed))
    # Where the clone is its group's, as the umask of many systems has it, so is this folder.
    less = 0o022 & ~(os.stat(of.repository.common_dir).st_mode & 0o020)
    wide = [x for x in every if os.path.isdir(x) and os.lstat(x).st_mode & less]
    if wide and not shared_bits(f"{folder}/"):
        how = "-R go-w" if less & 0o020 else "-R o-w"
        yield changed_mode(f"others can write {wide[0]}", folder, how, less=less)
    names = [os.path.relpath(x, folder) for x in every[1:]]
    for file in (damaged := [x for x in names if not is_sound(folder, x)]):
        path = os.path.join(folder, file)
        fix: Hint | str = MENDS
        mend: Callable[[], object] | None = partial(delete, folder, file)
        if file == "local.git":  # of which there is no other copy
            fix, mend = HELP, None
        # Nothing can read it, but a person may want to.
        elif CHANGE.fullmatch(file) or os.path.isdir(path) == file.endswith(".json"):
            fix, mend = moved_away(path)
        yield Row(BAD, f"{path} is damaged", fix, mend)
    if leftovers := [x for x in names if is_leftover(folder, x)]:
        what = f"files of killed processes: {len(leftovers)}, as {leftovers[0]}"
        yield Row(WARNING, what, MENDS, partial(delete, folder, *leftovers))
    if not damaged and not shut:
        yield Row(
            GOOD, f"{folder} is sound" if place == folder else f"nothing is kept in {folder} yet"
        )


def moved_away(path: str) -> tuple[str, Callable[[], None]]:
    """The command that renames a file or folder, and what carries it out."""
    free = next(x for n in count() if not os.path.lexists(x := f"{path}.old{n or ''}"))
    return f"mv {quote(path)} {quote(free)}", partial(os.rename, path, free)


def is_closed(path: str) -> bool:
    """Return whether a folder or file is needed and cannot be used."""
    need = os.R_OK | (os.W_OK | os.X_OK) * os.path.isdir(path)
    is_other = os.path.islink(path) or os.path.basename(path) in (KNOWN_FILE, NOTES)
    is_other |= path.endswith(DAMAGED) or not os.path.lexists(path)  # others may remove it
    return not is_other and not os.access(path, need)


def is_open_to_owner(path: str) -> bool:
    """Return whether the modes of a file or folder let its owner use it; git's objects are read."""
    need = 0o600 if os.path.isdir(path) else 0o400
    return os.lstat(path).st_mode & need == need


def is_sound(folder: str, name: str) -> bool:
    """Return whether a folder is one, and what a known file or a store of git has can be read."""
    path = os.path.join(folder, name)
    if re.fullmatch(LAYER + KNOWN_FILE, name):
        return StateFolder(os.path.dirname(path)).load() is not None
    if FOLDER.fullmatch(name):
        return os.path.isdir(path) or not os.path.lexists(path)
    if change := CHANGE.fullmatch(name):
        with contextlib.suppress(Exception):  # whatever others have written there
            if entry := read_entry(path):
                CHANGES[change[1]](entry.name, entry.value)
                return True
        return not os.path.lexists(path)
    if re.fullmatch(f"({LAYER})?{NOTES}", name):
        empty = not os.path.isdir(path) and not read_small(path)
        return empty or load_json(path) is not None
    if not STORE.fullmatch(name):
        return True
    fsck = (f"--git-dir={path}", "fsck", "--no-dangling", "--no-progress")
    # Once more, in case that others write it just now.
    said = (run_git(fsck, cwd=path, timeout=LONGEST_FSCK) for _ in range(2))
    return any(x.code == 0 or x.timed_out for x in said)


def is_leftover(folder: str, name: str) -> bool:
    """Return whether nobody writes a temporary file, or holds a lock of git, any more."""
    with contextlib.suppress(OSError):
        old = time.time() - os.lstat(os.path.join(folder, name)).st_mtime > LEFT_OVER
        return bool(SET_ASIDE.fullmatch(name) or (old and LEFT.fullmatch(name)))
    return False


def delete(folder: str, *names: str) -> str:
    """Delete files and folders."""
    for path in (os.path.join(folder, name) for name in names):
        if path.endswith(".git"):
            (store := PrivateStore(path)).ready()
            store.delete()  # unless another process has done so by now
        elif path.endswith(DAMAGED) and stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)  # or else its owner has to
        else:
            remove(path)
    return f"deleted {', '.join(names)} in {folder}"


# Every check, in the order in which they are shown. ``private`` comes before the checks that read
# the ledger, because reading mends some of the files that ``private`` examines.
CHECKS = (
    Check(git, needs="directory"),
    Check(repository, needs="directory"),
    Check(identity, needs="repository"),
    Check(settings, needs="repository"),
    Check(private, needs="repository"),
    Check(remote, needs="place"),
    Check(ledger, needs="place"),
    Check(pushes, needs="place"),
    Check(clock, needs="place"),
    Check(probe, needs="place", only_if_asked=True),
    Check(tasks, needs="place"),
    Check(hooks, needs="repository"),
    Check(agents, needs="directory"),
    Check(sessions, needs="repository"),
    Check(gateway, needs="repository"),
)
