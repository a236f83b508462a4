"""The state that one clone keeps of one ledger beside its objects.

``known.json`` has the last head, the highest revision seen and the first sightings of records. It
is written whole and moved into place, so that a kill leaves the old or the new one. Sightings say
which head they describe: when that is not the last known head, the difference is sighted again,
which is later and therefore safe.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gitlease.kernel.git.files import (
    LEFT_OVER,
    LOCK,
    PUBLIC,
    Notes,
    alone,
    cannot_keep,
    change_kept,
    drop_leftovers,
    exclusive,
    make_folders,
    open_regular,
    read_small,
    read_with_status,
    replace_file,
    share,
    strings_in,
)
from gitlease.kernel.ledger.ports import Pending, Prepared, PushRecord
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import JSON, dataclass, field, replace
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Sighting
from gitlease.kernel.rules.lease_rows import ROW_SHAPE, LeaseRows
from gitlease.kernel.rules.ledger import Damage
from gitlease.kernel.rules.pace import LONGEST_SAMPLE, SAMPLES, RemotePace

SHOWN_KEPT = 200
MAX_BYTES = 64 * 1024 * 1024
PUSHES_FILE, PUSHES_BYTES, PUSHES_KEPT = "pushes", 64 * 1024, 500
MAX_COUNT = 1e12  # of changes by others, or of seconds
KNOWN_FILE, ASKING = "known.json", "asking"  # the latter is a kind of notes
_UNREADABLE = LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError
_busy: dict[str, threading.Thread] = {}  # who of this process is busy with a file of a journal


@dataclass(frozen=True)
class Known:
    """The last known head, and since when this clone has seen what it holds.

    ``sighted`` has the records that changed since ``base``, the first contact (or the last boot):
    file → when, and whether it replaced another. Every other record was there at ``base``. When the
    clock was set back, a contender counts from ``restarted``; a holder goes on counting as before.

    Every later head must have the head's last ``decision`` in its past (its version, ``""`` where
    an older gitlease did not note it, and its ``digest``), and what this clone ``renewed`` since:
    by the nonces of its grants the resource, and how often it was renewed. ``token`` is the last
    fencing token given there (0: an older gitlease did not note it).

    ``former`` is the version that this clone had seen of a ledger that was restored from an older
    one, until it has put its own leases back. ``pace`` is what it has measured of the remote.
    """

    ledger_id: str
    version: str
    revision: int
    received: Instant
    base: Instant
    sighted: Mapping[str, Sighting] = field(default_factory=dict)
    append_only: bool = False
    restarted: Instant | None = None
    digest: str | None = None
    decision: str = ""
    renewed: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    token: int = 0
    former: str = ""
    pace: RemotePace = RemotePace()

    def sighting(self, file: str) -> Sighting:
        seen = self.sighted.get(file) or Sighting(at=self.base, changed=False)
        if self.restarted is not None and seen.at.boot_ms < self.restarted.boot_ms:
            return Sighting(at=self.restarted, changed=False, since=seen.since or seen.at)
        return seen

    def joined(self, other: Known | None) -> Known:
        """Join what two processes of this clone know: the head further on.

        Of two pasts it is the one seen first. It has what either renewed on the same decision;
        where both saw this very head, the earlier sighting of each record. The pace is that of the
        later contact.
        """
        if other is None or other.ledger_id != self.ledger_id:
            return self
        further = self.revision > other.revision or self.version == other.version
        new, old = (self, other) if further else (other, self)
        if new.decision == old.decision:
            new = replace(new, renewed={**old.renewed, **new.renewed})
        later = self if self.received.wall_ms >= other.received.wall_ms else other
        if new is not later:
            new = replace(new, pace=later.pace)
        if new.version != old.version:
            return new
        return replace(
            new,
            sighted={
                file: _earlier(seen, old.sighted.get(file, seen))
                if seen.at.same_boot(old.base)
                else seen
                for file, seen in new.sighted.items()
            },
        )

    def at(self, now: Instant) -> Known:
        """As far as it still counts: a reboot, or a clock set back, starts sightings again."""
        if self.base.same_boot(now):
            if now.wall_ms >= self.received.wall_ms:
                return self
            return replace(self, restarted=now, received=now)
        received = min(self.received.wall_ms, now.wall_ms)
        received_at = replace(now, wall_ms=received)
        return replace(self, base=now, sighted={}, received=received_at, restarted=None)


def _earlier(one: Sighting, other: Sighting) -> Sighting:
    """The earlier of two sightings of a record in one boot, with the earlier start for its holder.

    Each may lack a ``since`` that the other process learned.
    """
    first = min(one, other, key=lambda s: s.at.boot_ms)
    starts = [s.since for s in (one, other) if s.since is not None]
    if not starts:
        return first
    return replace(first, since=min(starts, key=lambda at: at.boot_ms))


class StateFolder:
    """The files of one ledger under ``<git common dir>/gitlease/state/``."""

    def __init__(self, path: str, *, on_move: Callable[[], None] = lambda: None) -> None:
        """``on_move`` is called whenever the known head has become another one."""
        self.path, self.notes, self._on_move = path, Notes(path), on_move
        self._changes = Journal(os.path.join(path, "pending"))
        self._file = os.path.join(path, KNOWN_FILE)
        self._pushes = os.path.join(path, PUSHES_FILE)
        self._read: tuple[bytes | None, Known | None] = None, None
        self.damaged = self._forgotten = False  # whether something was known, and is lost
        self._sighted: Mapping[str, Sighting] = {}  # as written last, and the text of each
        self._texts: dict[str, str] = {}

    def load(self) -> Known | None:
        """Read the known state; None before the first contact, and when the file is damaged."""
        return self._loaded(read_small(self._file, MAX_BYTES))

    def _loaded(self, data: bytes | None) -> Known | None:
        if data is None:  # whoever wrote it before has left the lock of its folder
            self.damaged = not self._forgotten and os.path.exists(os.path.join(self.path, LOCK))
            return None
        if data != self._read[0]:  # a step asks three times, and leases may be many
            self._read = data, None
            with contextlib.suppress(*_UNREADABLE):
                self._read = data, _known(json.loads(data))
            self.damaged = self._read[1] is None
        return self._read[1]

    def save(self, known: Known) -> None:
        """Remember; never less than what another process has seen meanwhile."""
        moved = False

        def change(data: bytes | None) -> bytes:
            nonlocal moved
            there = self._loaded(data)
            joined = known.joined(there)
            moved = there is None or there.version != joined.version
            text = self._written(joined)
            self._read = text, joined
            return text

        with contextlib.suppress(OSError):  # what is won must not fail for want of a cache
            change_kept(self._file, change, MAX_BYTES)
            if moved:
                self._on_move()

    def _written(self, known: Known) -> bytes:
        # Thousands, of which a step sees a few anew.
        before, self._sighted = self._sighted, known.sighted
        new = {file: x for file, x in known.sighted.items() if before.get(file) is not x}
        for file, x in new.items():
            seen = [x.at.wall_ms, x.at.boot_ms, x.changed]
            if x.since is not None:
                seen += [x.since.wall_ms, x.since.boot_ms]
            self._texts[file] = f"{json.dumps(file)}:{json.dumps(seen)}"
        if len(self._texts) > len(known.sighted):
            self._texts = {file: self._texts[file] for file in known.sighted}
        sighted = ",".join(self._texts.values())
        pairs = {x: (at := getattr(known, x)) and [at.wall_ms, at.boot_ms] for x in _INSTANTS}
        rest = JSON.dump(known, "sighted", "pace", *_INSTANTS)
        rest |= {**pairs, "boot_id": known.base.boot_id}
        if not known.token:
            del rest["token"]
        if not known.former:
            del rest["former"]
        if known.pace != RemotePace():
            pace = known.pace
            rest["pace"] = [[*pace.pushes], [*pace.reads], pace.changes, pace.watched]
        return f'{json.dumps(rest)[:-1]},"sighted":{{{sighted}}}}}'.encode()

    def turn(
        self, seconds: float, on_wait: Callable[[], None]
    ) -> contextlib.AbstractContextManager[object]:
        """Wait until no other process of this clone changes the ledger, so long at most."""
        with contextlib.suppress(OSError):
            make_folders(self.path)
        return exclusive(os.path.join(self.path, "turn.lock"), timeout=seconds, on_wait=on_wait)

    def ask(self, name: str, what: object) -> None:
        """Ask others of this clone something, in the place of what was asked under that name."""
        if what is None:
            self.notes.drop(ASKING, name)
        else:
            self.notes.put(ASKING, name, [os.getpid(), what], at=0)

    def asked(self) -> list[object]:
        """The requests of living processes; those of dead ones are dropped."""
        asked, found = self.notes.of(ASKING), dict[str, object]()
        for name, (_, value) in asked.items():
            with contextlib.suppress(*_UNREADABLE):
                process, what = value
                if _exists(process):
                    found[name] = what
        if dead := asked.keys() - found.keys():
            self.notes.drop(ASKING, *dead)
        return list(found.values())

    def mark(self) -> str:
        """A word that changes whenever any process of this clone has written what is known."""
        with contextlib.suppress(OSError):
            found = os.stat(self._file)
            # Each writing makes a new file: its number tells it apart where the clock is coarse.
            return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"
        return ""

    def forget(self) -> None:
        """Forget the ledger, so that the next contact is the first."""
        self._forgotten = True
        _remove(self._file)
        self._on_move()

    def shown(self, notices: Iterable[str]) -> frozenset[str]:
        """Remember notices as shown; returns which of all were shown before."""
        before = strings_in(self.notes.get("shown", ""))
        now = list(dict.fromkeys([*before, *notices]))
        if now != before:
            self.notes.put("shown", "", now[-SHOWN_KEPT:], at=0)
        return frozenset(before)

    # What was pushed

    def note_push(self, push: PushRecord) -> None:
        """Add a push to the journal of this clone, whose oldest lines are dropped; never fails."""
        line = json.dumps([push.at, push.took, push.what[:200], push.fate, push.sent])
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            # A pipe in its place would wait for a reader.
            opened = os.open(self._pushes, flags | os.O_NONBLOCK, PUBLIC)
            try:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    return
                share(self._pushes, opened)
                os.write(opened, f"{line}\n".encode())  # in one piece, whoever else writes
                size = os.fstat(opened).st_size
            finally:
                os.close(opened)
            if size > PUSHES_BYTES:
                with alone(self.path):
                    lines = self._last_pushes()
                    replace_file(self._pushes, b"".join(lines[len(lines) // 2 :]))

    def pushes(self) -> list[PushRecord]:
        """The last pushes of this clone, oldest first; lines that a kill cut short are left out."""
        found = list[PushRecord]()
        for line in self._last_pushes():
            with contextlib.suppress(*_UNREADABLE):
                at, took, what, fate, sent = json.loads(line)
                found.append(PushRecord(int(at), int(took), str(what), str(fate), bool(sent)))
        return found[-PUSHES_KEPT:]

    def _last_pushes(self) -> list[bytes]:
        with contextlib.suppress(OSError):
            opened = open_regular(self._pushes)
            if opened is None:
                return []
            with opened as file:
                size = file.seek(0, os.SEEK_END)
                start = max(0, size - 2 * PUSHES_BYTES)
                file.seek(start)
                lines = file.read(2 * PUSHES_BYTES).splitlines(keepends=True)
            return lines[1:] if start else lines  # the first may be cut
        return []

    # What is pending

    def add_pending(self, pending: Pending, *, abandoned: bool = False) -> None:
        """Remember a change; ``abandoned`` when this process will not find out any more."""
        self._changes.put(pending.operations[0], JSON.dump(pending), abandoned=abandoned)

    def remove_pending(self, pending: Pending) -> None:
        self._changes.drop(pending.operations[0])

    def pending(self, *, living: bool = False) -> list[Pending]:
        """Every change whose outcome is not known.

        Without those that a ``living`` process or thread is busy with, unless they are asked for.
        """
        found = list[Pending]()
        for entry in self._changes.entries():
            with contextlib.suppress(*_UNREADABLE):  # what is damaged stays: `doctor` reports it
                if living or entry.is_own or not entry.is_busy:
                    found.append(read_pending(entry.name, entry.value))
        return found


# --- what is on its way ---------------------------------------------------------------------------


@dataclass(frozen=True)
class JournalEntry:
    """A change on its way. ``is_own``: this thread has put it there; ``written`` is in ns."""

    name: str
    value: Any
    written: int
    is_busy: bool
    is_own: bool


def read_pending(name: str, value: Any) -> Pending:
    """Read a change of a ledger; raises one of many errors if it is damaged."""
    pending = JSON.load(Pending, value)
    if pending.operations[0] != name:
        raise ValueError(name)
    return pending


class Journal:
    """Changes on their way: each is a file, so that no process writes that of another.

    It says which process is busy with it; when that has ended, the change is anyone's.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def put(
        self, name: str, value: Mapping[str, Any], *, abandoned: bool = False, written: int = 0
    ) -> None:
        """Keep a change, as of ``written`` if given. Raises Invalid where nothing can be kept."""
        file, process = self._file(name), 0 if abandoned else os.getpid()
        data = json.dumps({"process": process, **value}, separators=(",", ":")).encode()
        _busy[file] = threading.current_thread()
        try:
            make_folders(self._folder)
            replace_file(file, data, dated=written or None)
        except OSError as error:
            raise cannot_keep(self._folder, error) from None
        if abandoned:
            _busy.pop(file, None)

    def drop(self, name: str) -> None:
        _remove(file := self._file(name))
        _busy.pop(file, None)

    def entries(self) -> Iterator[JournalEntry]:
        """The entries by name; those that cannot be read have no value."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        if not all(name.endswith(".json") for name in names):
            drop_leftovers(self._folder)  # what was killed while it was written down never was sent
            names = [name for name in names if name.endswith(".json")]
        for name in names:
            file = os.path.join(self._folder, name)
            with contextlib.suppress(OSError):
                if (entry := read_entry(file)) and (entry.is_busy or os.path.exists(file)):
                    yield entry  # else it was settled meanwhile, by a process that ended then

    def _file(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.json")


def read_entry(file: str) -> JournalEntry | None:
    """Read a file of a journal; None for what is none, and without a value if it is damaged."""
    if (read := read_with_status(file, MAX_BYTES)) is None:
        return None
    data, status = read
    value, is_busy, is_own, thread = None, False, False, _busy.get(file)
    with contextlib.suppress(*_UNREADABLE):
        value = json.loads(data)
        # An older gitlease says nothing of who is busy with an edge.
        process = value.pop("process", None)
        if process == os.getpid():
            is_busy = thread is not None and thread.is_alive()
            is_own = is_busy and thread is threading.current_thread()
        # A process number may have been given out again: nobody is busy for an hour.
        elif process != 0 and time.time() - status.st_mtime < LEFT_OVER:
            is_busy = process is None or _exists(process)
    name = os.path.basename(file).removesuffix(".json")
    return JournalEntry(name, value, status.st_mtime_ns, is_busy, is_own)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:  # any other one: it runs, but is somebody else's
        return not isinstance(error, ProcessLookupError)
    return True


def _remove(file: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file)


# An older gitlease beside this one reads and writes the same file: instants stand as pairs in it.
_INSTANTS = "received", "base", "restarted"


def _known(data: Mapping[str, Any]) -> Known:
    boot = str(data["boot_id"])

    def instant(wall: float, since: float) -> Instant:
        return Instant(int(wall), int(since), boot)

    def sighting(wall: float, boot: float, changed: object, *since: float) -> Sighting:
        earlier = instant(*since) if since else None
        return Sighting(at=instant(wall, boot), changed=bool(changed), since=earlier)

    given = {name: instant(*data[name]) for name in _INSTANTS if data[name] is not None}
    sighted = {file: sighting(*seen) for file, seen in data["sighted"].items()}
    known = JSON.load(Known, data, sighted=sighted, pace=_pace(data.get("pace")), **given)
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", known.version):
        raise ValueError(known.version)
    return known


def _pace(data: Any) -> RemotePace:
    """Read a pace; an unknown one is only slower, so damage to it is no damage to what is known."""
    with contextlib.suppress(*_UNREADABLE):
        pushes, reads, changes, watched = data
        is_sound = all(type(x) is int and 0 < x <= LONGEST_SAMPLE for x in [*pushes, *reads])
        if is_sound and 0 <= changes < MAX_COUNT and 0 <= watched < MAX_COUNT:
            last = slice(-SAMPLES, None)
            return RemotePace(tuple(pushes[last]), tuple(reads[last]), changes, watched)
    return RemotePace()


def pending_of(prepared: Prepared, layer: str) -> Pending:
    """The note of a change before it is sent."""
    change = prepared.changes[layer]
    base = change.base.ledger
    written = (x for _, x in change.ledger.changes.leases.values() if x is not None)
    return Pending(
        operations=change.operations,
        layer=layer,
        expected=prepared.replaces(layer),
        base_revision=base.header.revision if base else 0,
        version=prepared.versions[layer],
        what=change.what,
        at=change.at,
        resources=tuple(dict.fromkeys(x.resource.text for x in written)),
        decision=not change.renewal,
    )


# --- the leases that are kept as lines ----------------------------------------------------------

ROWS_FILE = "watch.rows"
FORM = f"leases 4 {ROW_SHAPE}".encode()
MAX_ROWS = 256 * 1024 * 1024


@dataclass(frozen=True)
class KeptLeases:
    """Live leases of one state of a ledger, and the records in its tree that cannot be read."""

    version: str
    root: str
    leases: LeaseRows
    damaged: tuple[Damage, ...] = ()


def load_leases(folder: str) -> KeptLeases | None:
    """Read what ``store_leases`` kept; None for anything else, whatever is wrong with it."""
    head, _, body = (read_small(os.path.join(folder, ROWS_FILE), MAX_ROWS) or b"").partition(b"\n")
    if head != _sum_of(body):
        return None
    with contextlib.suppress(*_UNREADABLE, Invalid):
        first, *lines = body.decode("utf-8", "surrogatepass").split("\n")
        fields = json.loads(first)
        people = None if fields["people"] is None else strings_in(fields["people"])
        rows = LeaseRows(lines[:-1], people)
        return JSON.load(KeptLeases, fields, leases=rows) if rows.are_sound() else None
    return None


def store_leases(folder: str, kept: KeptLeases) -> None:
    """Keep leases in the folder of a ledger's state, if that can be written."""
    people = None if kept.leases.people is None else sorted(kept.leases.people)
    fields = {**JSON.dump(kept, "leases"), "people": people}
    # The leases stay the lines that they are: only those that a change may touch are built.
    body = "\n".join((json.dumps(fields), *kept.leases.rows, "")).encode("utf-8", "surrogatepass")
    with contextlib.suppress(OSError):
        make_folders(folder)
        if len(body) < MAX_ROWS:  # more would not be read again
            replace_file(os.path.join(folder, ROWS_FILE), _sum_of(body) + b"\n" + body)


def _sum_of(body: bytes) -> bytes:
    return b"%08x %d" % (zlib.crc32(body, zlib.crc32(FORM)), len(body))
