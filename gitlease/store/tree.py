"""The ledger's tree of records in a git object store: read where needed, rewritten where changed.

Objects come from whoever can push, so sizes are asked before contents are read, and nothing is
ever checked out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gitlease.core.errors import Invalid, UsageError
from gitlease.core.frozen import dataclass, field
from gitlease.core.instant import MS
from gitlease.core.lease import ROW_SHAPE, Lease, LeaseRows, Reach, State, heads_in, row_of
from gitlease.core.ledger import LINES_READ, Damage, Header, Ledger, Note, Notice, Ticket
from gitlease.core.moves.operations import Event
from gitlease.core.moves.transitions import Applied, Decided, StepRecord
from gitlease.core.resources import Resource
from gitlease.git.files import Unreadable, make_folders
from gitlease.git.objects import (
    BLOB,
    COMMIT,
    EXECUTABLE,
    FILE,
    FOLDER,
    TREE,
    Absent,
    GitObjects,
    TreeEntry,
    WritableObjects,
    read_tree,
    tree_bytes,
)
from gitlease.store.records import (
    FAN,
    FILE_NAME,
    HEADER_FILE,
    MAX_HEADER,
    MAX_MESSAGES,
    MAX_RECORD,
    MAX_RECORDS,
    NOTES,
    NOTICES,
    RENEWAL,
    TICKETS,
    BadRecord,
    BadStep,
    Listing,
    check_lease,
    events_in,
    lease_file,
    operations_line,
    read_header,
    read_lease,
    read_step,
    resource_hash,
    write_header,
    write_message,
)
from gitlease.store.state import load_text, store_text
from gitlease.store.storage import COPY_LOST, CopyLost, StoredRecords

MAX_COMMIT = 8 * 1024 * 1024  # whatever its message: of the commit only the tree is needed
MAX_MESSAGE = 512 * 1024  # bytes of one step
MAX_STEPS = 1_000_000
MAX_TREE = 8 * 1024 * 1024  # bytes of one folder: far beyond 100,000 records of one resource
LEASE_FOLDERS = ("leases", "paths")

Entries = dict[str, TreeEntry]
Folders = dict[str, Entries]  # by path
Files = Mapping[str, bytes | None]  # by path: their bytes, None where one goes


class StoreObjects:
    """The objects of a store, of which git has checked that they are complete.

    One that has been lost since raises CopyLost, and ``delete`` is called before.
    """

    def __init__(
        self, objects: Callable[[], GitObjects], delete: Callable[[], None] = lambda: None
    ) -> None:
        self._objects, self._delete = objects, delete

    def read(self, id: str, kind: str, limit: int) -> bytes:
        try:
            return self._objects().read(id, kind, limit)
        except Absent:
            self._delete()
            raise CopyLost(f"{COPY_LOST} ({id})") from None


def read_file(objects: GitObjects, entry: TreeEntry, limit: int) -> bytes:
    """The bytes of a record; BadRecord for what is no file, and for more than ``limit`` of them."""
    if entry.mode not in (FILE, EXECUTABLE):
        raise BadRecord("not a regular file")
    try:
        return objects.read(entry.id, BLOB, limit)
    except Unreadable as error:
        raise BadRecord(str(error)) from None


def read_folder(objects: GitObjects, id: str, what: str) -> Entries:
    """The entries of a tree; Invalid when it is damaged, or larger than that of a ledger can be."""
    try:
        listed = read_tree(objects, id, MAX_TREE)
    except Unreadable as error:
        raise Invalid(f"the ledger's folder {what} is damaged: it {error}") from None
    found = {entry.name: entry for entry in listed}
    if len(found) != len(listed):
        raise Invalid(f"the ledger's folder {what} has an entry twice")
    return found


class GitRecords:
    """The records of one commit's tree; ``kept`` is the folder of what a clone keeps of them."""

    def __init__(self, objects: GitObjects, root: str, kept: str = "") -> None:
        self._objects, self.root, self._kept = objects, root, kept
        self.folders: Folders = {}  # those that were read so far
        self.parsed: dict[str, Lease | BadRecord] = {}  # by the ids of their files
        self._rows: dict[str, list[tuple[str, str]] | None] = {}

    def after(self, root: str, folders: Folders) -> GitRecords:
        """The records of a tree that was just written, of which these folders are known."""
        other = GitRecords(self._objects, root, self._kept)
        other.folders = folders
        return other

    def of(self, resource: Resource) -> list[Lease]:
        found, digest = [], resource_hash(resource)
        for top in LEASE_FOLDERS:
            folder = f"{top}/{digest[:2]}"
            for name in self.entries(folder):
                if digest in name and (named := FILE_NAME.fullmatch(name)) and named[1] == digest:
                    found.append(self._lease(f"{folder}/{name}"))
        keys = {lease.key for lease in found}
        if len(keys) != len(found):
            raise Invalid(f"the ledger has two records of {resource}", resource=resource.text)
        if any(lease.resource != resource for lease in found):
            raise Invalid(f"the record stored for {resource} is of another resource")
        return found

    def with_paths(self) -> Iterator[Lease]:
        for found in self.below("paths"):
            if isinstance(found, Damage):
                raise _damaged(found)
            yield found

    def near(self, reach: Reach) -> Iterator[Lease]:
        rows = self._kept_rows("paths", self._kept)
        if rows is None:
            yield from self.with_paths()
            return
        for state, told in rows:
            if state == DAMAGED:
                yield self._lease(damaged_file(told))
            elif reach.meets(heads_in(told)):
                yield self._lease(told.partition("\t")[0])

    def live(self) -> tuple[LeaseRows, list[Damage]]:
        found = self._live(self._kept)
        return found if found[0].are_sound() or not self._kept else self._live("")

    def _live(self, kept: str) -> tuple[LeaseRows, list[Damage]]:
        live, damaged = list[str](), list[Damage]()
        for top in LEASE_FOLDERS:
            rows = self._kept_rows(top, kept)
            live += [told for state, told in rows or () if state == LIVE]
            broken = (damaged_file(told) for state, told in rows or () if state == DAMAGED)
            for found in self._every(top) if rows is None else map(self.record_at, broken):
                if isinstance(found, Damage):
                    damaged.append(found)
                elif found.state is State.ACTIVE:
                    live.append(row_of(found, lease_file(found)))
        return LeaseRows(live), damaged

    def _kept_rows(self, top: str, kept: str) -> list[tuple[str, str]] | None:
        if kept and top not in self._rows:
            self._rows[top] = kept_rows(self, top, kept)
        return self._rows.get(top) if kept else None

    def every(self) -> Iterator[Lease | Damage]:
        for top in LEASE_FOLDERS:
            yield from self._every(top)

    def _every(self, top: str) -> Iterator[Lease | Damage]:
        try:
            yield from self.below(top)
        except Invalid as error:
            yield Damage(top, error.message)

    def below(self, top: str) -> Iterator[Lease | Damage]:
        """Every record below a folder; Invalid where there are more than a ledger can have."""
        count = 0
        for fan, entry in self.entries(top).items():
            folder = f"{top}/{fan}"
            if entry.mode != FOLDER or not FAN.fullmatch(fan):
                yield Damage(folder, "not a folder of records")
                continue
            try:
                names = self.entries(folder)
            except Invalid as error:
                yield Damage(folder, error.message)
                continue
            # Counted before any is read: whoever can push may have put any number there.
            count += len(names)
            if count > MAX_RECORDS:
                raise Invalid(f"the ledger has more than {MAX_RECORDS} records in {top}")
            for name in names:
                yield self.record_at(f"{folder}/{name}")

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        return self._listed(NOTES, resource)

    def notices(self, holder: str) -> tuple[Notice, ...]:
        try:
            return self._listed(NOTICES, holder)
        except Invalid:
            return ()  # a courtesy, that must not keep its reader from working

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        return self._listed(TICKETS, resource)

    def every_ticket(self) -> Iterator[Ticket]:
        fans = self._names("waiting")
        files = (f"waiting/{fan}/{name}" for fan in fans for name in self._names(f"waiting/{fan}"))
        for file in islice(files, LINES_READ):
            try:
                data = self.read(file, MAX_MESSAGES)
                yield from () if data is None else TICKETS.read(data, file=file)
            except BadRecord:  # a courtesy, as notices are
                continue

    def _names(self, folder: str) -> Iterable[str]:
        try:
            return self.entries(folder)
        except Invalid:
            return ()

    def _listed(self, listing: Listing, owner: object) -> tuple[Any, ...]:
        file = listing.place(owner)
        try:
            data = self.read(file, MAX_MESSAGES)
            return () if data is None else listing.read(data, file=file)
        except BadRecord as error:
            raise Invalid(f"the {listing.items} of {owner} are damaged ({file}): {error}") from None

    def entries(self, folder: str) -> Entries:
        """The entries of a folder, {} where there is none; Invalid when it is damaged."""
        if folder not in self.folders:
            self.folders[folder] = self._entries(folder)
        return self.folders[folder]

    def _entries(self, folder: str) -> Entries:
        if not folder:
            return read_folder(self._objects, self.root, "/")
        above, _, name = folder.rpartition("/")
        entry = self.entries(above).get(name)
        if entry is None:
            return {}
        if entry.mode != FOLDER:
            raise Invalid(f"the ledger's {folder} is not a folder")
        return read_folder(self._objects, entry.id, folder)

    def record_at(self, file: str) -> Lease | Damage:
        try:
            return self.read_at(file)
        except BadRecord as error:
            return Damage(file, str(error))

    def changed_since(self, before: StoredRecords | None) -> list[tuple[str, bool | None]]:
        # Only the folders of records are looked into, two levels deep, and only where they differ:
        # whatever else somebody pushed costs nothing.
        old: Entries = {}
        new: Entries = {}
        for top in LEASE_FOLDERS:
            was, now = _entries(before, top), _entries(self, top)
            for fan in was.keys() | now.keys():
                if was.get(fan) != now.get(fan) and FAN.fullmatch(fan):
                    folder = f"{top}/{fan}"
                    old |= {f"{folder}/{name}": x for name, x in _entries(before, folder).items()}
                    new |= {f"{folder}/{name}": x for name, x in _entries(self, folder).items()}
        gone = old.keys() - new.keys()
        # A record that gains paths moves from one folder to the other: that is a change as well.
        moved = {file.partition("/")[2] for file in gone}
        found: list[tuple[str, bool | None]] = [(file, None) for file in gone]
        for file, entry in new.items():
            if old.get(file) != entry:
                there = file in old or file.partition("/")[2] in moved
                found.append((file, before is None or there))
        return found

    def _lease(self, file: str) -> Lease:
        found = self.record_at(file)
        if isinstance(found, Damage):
            raise _damaged(found)
        return found

    def read_at(self, file: str) -> Lease:
        """The lease of a file. The same bytes under many names are parsed only once."""
        if not FILE_NAME.fullmatch(file.rsplit("/", 1)[-1]):
            raise BadRecord("its name is not a record's name")
        entry = self.entry(file)
        if entry is None:
            raise BadRecord("missing")
        found = self.parsed.get(entry.id)
        if found is None:
            try:
                found = read_lease(read_file(self._objects, entry, MAX_RECORD))
            except BadRecord as error:
                found = error
            self.parsed[entry.id] = found
        if isinstance(found, BadRecord):
            raise found
        # One record that was copied under many names must not be as many leases.
        if lease_file(found) != file:
            raise BadRecord("its name and its content disagree")
        return found

    def entry(self, file: str) -> TreeEntry | None:
        """The entry at a path; None where there is none."""
        folder, _, name = file.rpartition("/")
        return self.entries(folder).get(name)

    def read(self, file: str, limit: int) -> bytes | None:
        """The bytes of a file, None where there is none. Raises BadRecord."""
        entry = self.entry(file)
        return None if entry is None else read_file(self._objects, entry, limit)


def _damaged(damage: Damage) -> Invalid:
    return Invalid(
        f"the ledger's record {damage.shown.rsplit('/', 1)[-1]} is damaged: {damage.problem}",
        hints=(f"an admin may drop it: its file is {damage.shown}",),
    )


def _entries(records: StoredRecords | None, folder: str) -> Entries:
    try:
        return records.entries(folder) if isinstance(records, GitRecords) else {}
    except Invalid:
        return {}  # nothing in it can be read, so nothing in it is judged


def read_ledger(objects: GitObjects, version: str) -> Ledger:
    """The ledger at a commit; Invalid when there is something else."""
    return Ledger(*read_state(StoreObjects(lambda: objects), version))


def read_state(objects: StoreObjects, version: str, kept: str = "") -> tuple[Header, GitRecords]:
    """The header and the records at a commit; Invalid when there is something else."""
    try:
        objects.read(version, COMMIT, MAX_COMMIT)
    except Unreadable as error:
        raise Invalid(f"the ledger's ref does not point to a commit: it {error}") from None
    commit = read_commit(objects, version)
    if commit is None:
        raise Invalid("the ledger's commit is malformed")
    records = GitRecords(objects, commit.tree_id, kept)
    try:
        header = records.read(HEADER_FILE, MAX_HEADER)
    except BadRecord as error:
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    if header is None:
        raise Invalid(f"the ref does not hold a ledger: {HEADER_FILE} is missing")
    return read_header(header), records


# --- what a clone keeps of the records that it has read ---------------------------------------
# An id proves the content, so a folder whose id is known is not looked into, and of another one
# only the files with new ids are read. It only saves work: what is missing or damaged is read
# again.

MAX_BYTES = 256 * 1024 * 1024
FORM = f"records 2 {ROW_SHAPE}"
LIVE, ENDED, DAMAGED = "live", "ended", "damaged"
_FOLDER = "\x1e"  # before what is kept of a folder: no line has it
_ROW = r"(?m)^[0-9a-f]{40,64}\t(\w+)\t(.*)$"
_PART = (  # of a folder; by one expression, because there may be a hundred thousand lines
    r"([0-9a-f]{{2}}) [0-9a-f]{{40,64}}\n(?:[0-9a-f]{{40}}(?:[0-9a-f]{{24}})?\t(?:"
    r"(?:live|ended)\t{top}/\1/[^\t\n]*\t[^\t\n]*\t[^\t\n]*\t[^\t\n]{heads}\t[^\t\n]*"
    r'|damaged\t"{top}/\1/[^\t\n]*)\n)*+'
)


def file_of_rows(kept: str, top: str) -> str:
    return os.path.join(kept, f"{top}.rows")


def kept_rows(tree: GitRecords, top: str, kept: str) -> list[tuple[str, str]] | None:
    """Every record below a folder, in its order: a state, and what that tells.

    Of a record that is LIVE or ENDED its line, as ``row_of`` has it; of one that is DAMAGED its
    file. None where a folder itself is damaged, or too large.
    """
    read = load_text(file_of_rows(kept, top), MAX_BYTES, form=f"{FORM} {top}")
    parts = [] if read is None else read.split(_FOLDER)[1:]
    # An odd line, of whoever wrote it, must not look like no rival.
    is_sound = re.compile(_PART.format(top=top, heads="+" if top == "paths" else "*")).fullmatch
    known = {x[:2]: x[3:] for x in parts} if all(map(is_sound, parts)) else {}
    found, changed, count = dict[str, str](), False, 0
    try:
        every = tree.entries(top)
        for fan, entry in every.items():
            if entry.mode != FOLDER or not FAN.fullmatch(fan):
                return None
            head, _, lines = known.get(fan, "").partition("\n")
            if head != entry.id:
                lines, changed = _read(tree, f"{top}/{fan}", lines), True
            found[fan] = f"{entry.id}\n{lines}"
            count += lines.count("\n")
            if count > MAX_RECORDS:
                return None
    except Invalid:
        return None
    if changed or len(found) != len(known):
        with contextlib.suppress(OSError):
            make_folders(kept)
            text = "".join(f"{_FOLDER}{fan} {lines}" for fan, lines in found.items())
            if len(text) < MAX_BYTES // 4:  # whatever its letters: more would not be read again
                store_text(file_of_rows(kept, top), text, form=f"{FORM} {top}")
    return [row for lines in found.values() for row in re.findall(_ROW, lines)]


def damaged_file(told: str) -> str:
    """The file that a row which is DAMAGED tells of."""
    return str(json.loads(told))


def _read(tree: GitRecords, folder: str, lines: str) -> str:
    known = {}
    for line in lines.split("\n")[:-1]:
        id, state, told = line.split("\t", 2)
        if state != DAMAGED:
            known[id, told.partition("\t")[0]] = line
    found = []
    for name, entry in tree.entries(folder).items():
        file = f"{folder}/{name}"
        same = known.get((entry.id, file)) if entry.mode in (FILE, EXECUTABLE) else None
        found.append(f"{same or _line(tree, file, entry.id)}\n")
    return "".join(found)


def _line(tree: GitRecords, file: str, id: str) -> str:
    try:
        lease = tree.read_at(file)
    except BadRecord:
        return f"{id}\t{DAMAGED}\t{json.dumps(file)}"
    state = LIVE if lease.state is State.ACTIVE else ENDED
    return f"{id}\t{state}\t{row_of(lease, file)}"


# --- writing a step ---------------------------------------------------------------------------


def write_step(
    objects: WritableObjects, decided: Decided, tip: str, *, replace_tip: bool
) -> tuple[str, tuple[Header, GitRecords] | None]:
    """Write a step on top of a tip (``""``: the first), or in its place.

    Returns its commit, and what is there if it need not be read back.
    Raises Invalid, and Unreadable where the tip is not what git would have written.
    """
    below, parents = None, list[str]()
    if tip:
        base = read_commit(objects, tip)
        if base is None:
            raise CopyLost(f"the ledger's commit {tip} cannot be read")
        below = base.tree_id
        parents = [*base.parent_ids] if replace_tip else [tip]
    applied, records = decided.applied, decided.applied.ledger.records
    changes, files = applied.ledger.changes, changed_files(applied.ledger)
    # What is damaged, and dropped, may be a folder with others in it.
    before = records if isinstance(records, GitRecords) and not changes.dropped else None
    before = before if before is not None and before.root == below else None
    folders = dict(before.folders) if before else {}
    tree = write_tree(objects, below, files, folders)
    version = objects.write(COMMIT, commit_bytes(applied, decided.record, tree, parents))
    if before is None:
        return version, None
    after = before.after(tree, folders)
    for lease in (new for _, new in changes.leases.values() if new is not None):
        folder, _, name = lease_file(lease).rpartition("/")
        after.parsed[folders[folder][name].id] = lease
    return version, (read_header(files[HEADER_FILE] or b""), after)


def changed_files(ledger: Ledger) -> dict[str, bytes | None]:
    """The files that the changes of a ledger write.

    Raises Invalid for what could not be read again: nobody could work with it.
    """
    changes = ledger.changes
    files: dict[str, bytes | None] = {}

    def put(listing: Listing, owner: object, items: tuple[Any, ...]) -> None:
        files[listing.place(owner)] = listing.write(owner, items) if items else None

    # First what goes: mostly the same file is written again.
    for before, after in changes.leases.values():
        if before is not None:
            files[lease_file(before)] = None
        if after is not None:
            files[lease_file(after)] = check_lease(after)
    for resource, notes in changes.notes.values():
        put(NOTES, resource, notes)
    for holder, notices in changes.notices.values():
        put(NOTICES, holder, notices)
    for resource, tickets in changes.tickets.values():
        put(TICKETS, resource, tickets)
    files |= dict.fromkeys(changes.dropped)
    files[HEADER_FILE] = write_header(ledger.header)
    # Read back before it is pushed: a header that cannot be read would shut everybody out.
    read_header(files[HEADER_FILE] or b"")
    return files


def write_tree(objects: WritableObjects, base: str | None, files: Files, known: Folders) -> str:
    """Write the tree ``base`` with some files new or gone; folders without any go as well.

    The ``known`` folders of it are not read; afterwards they are those of the new tree.
    """
    return objects.write(TREE, _tree(objects, "", base, files, known))


def _tree(
    objects: WritableObjects, place: str, base: str | None, files: Files, known: Folders
) -> bytes:
    if place in known or base is None:
        there = dict(known.get(place, {}))
    else:
        there = {x.name: x for x in read_tree(objects, base, MAX_TREE)}
    folders: dict[str, dict[str, bytes | None]] = {}
    for path, data in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(name, {})[rest] = data
        elif data is None:
            there.pop(name, None)
        else:
            there[name] = TreeEntry(name, FILE, objects.write(BLOB, data))
    for name, inside in folders.items():
        entry = there.pop(name, None)
        below = entry.id if entry is not None and entry.mode == FOLDER else None
        if written := _tree(objects, f"{place}/{name}".lstrip("/"), below, inside, known):
            there[name] = TreeEntry(name, FOLDER, objects.write(TREE, written))
    known[place] = dict(sorted(there.items()))
    return tree_bytes(there.values())


# --- commits: one a step, whose bytes are the same for everybody --------------------------------

NOBODY = "gitlease"  # where nothing is left of a holder's name

_AROUND = "".join(map(chr, range(33))) + ",:;<>\"\\'"  # what git takes off a name's ends
_ID = rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)"
_TREE, _PARENT = re.compile(rb"tree " + _ID), re.compile(rb"parent " + _ID)
_COMMITTER = re.compile(rb"\ncommitter [^\n]*> (\d{1,15}) [+-]\d{4}(?:\n|$)")


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """A commit of a ledger. ``time`` is in seconds since the epoch, as whoever made it says.

    ``objects`` has its records.
    """

    id: str
    tree_id: str
    parent_ids: tuple[str, ...]
    time: int
    message: str
    objects: GitObjects = field(repr=False, compare=False)

    @property
    def only_renews(self) -> bool:
        return self.message.rstrip().endswith("\n" + RENEWAL)

    @property
    def is_renewal(self) -> bool:
        """Return whether it only renews, and is not the first: the next renewal may replace it."""
        return len(self.parent_ids) == 1 and self.only_renews

    @property
    def before(self) -> str:
        return self.parent_ids[0] if self.parent_ids else ""

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(events_in(self.message))

    @property
    def operations(self) -> frozenset[str] | None:
        try:
            step = read_step(operations_line(self.message) or "")
        except BadStep:
            return None
        return frozenset(operation.id for operation in step.operations)

    @property
    def records(self) -> GitRecords:
        return GitRecords(self.objects, self.tree_id)


def read_commit(
    objects: GitObjects, version: str, stored: GitObjects | None = None
) -> LedgerCommit | None:
    """A commit of a ledger; None where there is none, or none that can be read.

    Its records are ``stored`` there; without that among the same objects.
    """
    try:
        head, _, message = objects.read(version, COMMIT, MAX_COMMIT).partition(b"\n\n")
    except Unreadable:
        return None
    first, *lines = head.split(b"\n")
    tree, committer = _TREE.fullmatch(first), _COMMITTER.search(head)
    if tree is None or committer is None:
        return None
    parents = []
    for line in lines:
        if (parent := _PARENT.fullmatch(line)) is None:
            break
        parents.append(parent[1].decode())
    # Whatever encoding it claims to have.
    text = message.decode("utf-8", "replace")
    made, kept = int(committer[1]), stored or objects
    return LedgerCommit(version, tree[1].decode(), tuple(parents), made, text, kept)


def walk(
    objects: GitObjects, version: str, stored: GitObjects | None = None
) -> Iterator[LedgerCommit]:
    """The commits of a ledger, from one backwards, as far as they can be read."""
    commit = read_commit(objects, version, stored)
    for _ in range(MAX_STEPS):
        if commit is None:
            return
        yield commit
        commit = read_commit(objects, commit.before, stored) if commit.before else None


def commit_bytes(applied: Applied, record: StepRecord, tree: str, parents: Sequence[str]) -> bytes:
    """The commit of a step: the same for whoever carries it out."""
    holder = record.writer
    # No sign that git would take for the end of a name or an address.
    email = holder.replace("<", "").replace(">", "")
    name = email.split("@", 1)[0].strip().strip(_AROUND) or NOBODY
    who = f"{name} <{email.strip(_AROUND) or NOBODY}> {record.at // MS} +0000"
    message = write_message(applied.events, record, renewal=applied.only_renews)
    if len(message.encode()) > MAX_MESSAGE:
        raise UsageError("this is too large for one step of a ledger: split it up")
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    return "\n".join([*lines, f"author {who}", f"committer {who}", "", message]).encode()
