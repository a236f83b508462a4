"""The ledger's tree of records in a git object store: read where needed, rewritten where changed.

Objects come from whoever can push, so sizes are asked before contents are read, and nothing is
ever checked out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import (
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
from gitlease.kernel.rules.errors import Invalid, UsageError
from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Lease, State, person_key
from gitlease.kernel.rules.lease_rows import LeaseRows, Reach, row_of
from gitlease.kernel.rules.ledger import LINES_READ, Damage, Header, Ledger, Note, Notice, Ticket
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.moves.transitions import Applied, Decided, StepRecord
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.store.records import (
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
    write_lease,
    write_message,
)
from gitlease.kernel.store.state import KeptLeases, load_leases, store_leases
from gitlease.kernel.store.storage import COPY_LOST, CopyLost, StoredRecords

MAX_COMMIT = 8 * 1024 * 1024  # whatever its message: of the commit only the tree is needed
MAX_MESSAGE = 512 * 1024  # bytes of one step
MAX_STEPS = 1_000_000
MAX_TREE = 8 * 1024 * 1024  # bytes of one folder: far beyond 100,000 records of one resource
LEASE_FOLDERS = ("leases", "paths")

Entries = dict[str, TreeEntry]
Folders = dict[str, Entries]  # by path
Wanted = Callable[[str], bool] | None
Parsed = dict[str, Lease | str]  # by the ids of their files, of any states; or what is wrong
Files = Mapping[str, bytes | None]  # by path: their bytes, None where one goes


class StoreObjects:
    """The objects of a store, of which git has checked that they are complete.

    One that has been lost since raises CopyLost, and ``delete`` is called before.
    """

    def __init__(
        self, objects: Callable[[], GitObjects], delete: Callable[[], None] = lambda: None
    ) -> None:
        self.here, self._delete = objects, delete

    def read(self, id: str, kind: str, limit: int) -> bytes:
        try:
            return self.here().read(id, kind, limit)
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
    """The records of one commit's tree; ``folder`` is that of what a clone keeps of them."""

    def __init__(
        self,
        objects: GitObjects,
        root: str,
        folder: str = "",
        version: str = "",
        parsed: Parsed | None = None,
    ) -> None:
        self._objects, self.root, self._folder, self._version = objects, root, folder, version
        self.folders: Folders = {}  # those that were read so far
        self.parsed: Parsed = {} if parsed is None else parsed
        self._kept: KeptLeases | None = None

    def after(self, root: str, version: str, folders: Folders) -> GitRecords:
        """The records of a tree that was just written, of which these folders are known."""
        other = GitRecords(self._objects, root, self._folder, version, self.parsed)
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
        return map(_sound, self.below("paths"))

    def near(self, reach: Reach) -> Iterator[Lease]:
        rows, damaged = self.live(None) if self._folder else (None, ())
        if rows is None or any(x.file.startswith("paths") for x in damaged):
            yield from self.with_paths()
        else:
            yield from (self._lease(rows.file_of(x)) for x in rows.near(reach))

    def live(self, holder: str | None) -> tuple[LeaseRows, Sequence[Damage]]:
        person = None if holder is None else person_key(holder)
        if self._kept is None or not self._kept.leases.has_all_of(person):
            self._kept = kept_leases(self, self._version, person, self._folder)
        return self._kept.leases, self._kept.damaged

    def every(
        self, tops: Sequence[str] = LEASE_FOLDERS, is_wanted: Wanted = None
    ) -> Iterator[Lease | Damage]:
        for top in tops:
            try:
                yield from self.below(top, is_wanted)
            except Invalid as error:
                yield Damage(top, error.message)

    def below(self, top: str, is_wanted: Wanted = None) -> Iterator[Lease | Damage]:
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
            files = (f"{folder}/{name}" for name in names)
            yield from map(self.record_at, filter(is_wanted, files))

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
        if folder in self.folders:
            return self.folders[folder]
        id: str | None = self.root
        if folder:
            entry = self.entry(folder)
            if entry is not None and entry.mode != FOLDER:
                raise Invalid(f"the ledger's {folder} is not a folder")
            id = None if entry is None else entry.id
        found = {} if id is None else read_folder(self._objects, id, folder or "/")
        self.folders[folder] = found
        return found

    def record_at(self, file: str) -> Lease | Damage:
        try:
            return self.read_at(file)
        except BadRecord as error:
            return Damage(file, str(error))

    def changed_from(self, root: str, tops: Sequence[str]) -> dict[str, bool | None] | None:
        """Return what ``changed_since`` does; None where a tree is damaged, or the old one gone."""
        if not isinstance(self._objects, StoreObjects):
            return None
        old = GitRecords(self._objects.here(), root)
        try:
            for top in tops:
                was, now = old.entries(top), self.entries(top)
                if any(x.mode != FOLDER or not FAN.fullmatch(x.name) for x in now.values()):
                    return None
                for fan in (x for x in was.keys() | now.keys() if was.get(x) != now.get(x)):
                    for records in (old, self):
                        records.entries(f"{top}/{fan}")
        except Invalid:
            return None
        return dict(self.changed_since(old))

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
        return _sound(self.record_at(file))

    @property
    def has_leases(self) -> bool:
        return any(self.entries(top) for top in LEASE_FOLDERS)

    def has_form_of(self, file: str, lease: Lease) -> bool:
        """Return whether a file has the very bytes that gitlease writes for a lease."""
        return self.read(file, MAX_RECORD) == write_lease(lease)

    def read_at(self, file: str) -> Lease:
        """The lease of a file. The same bytes under many names are parsed only once."""
        if not FILE_NAME.fullmatch(file.rsplit("/", 1)[-1]):
            raise BadRecord("its name is not a record's name")
        entry = self.entry(file)
        if entry is None:
            raise BadRecord("missing")
        found = self.parsed.get(entry.id)
        # A link has the same bytes as the file that it was made of.
        if found is None or entry.mode not in (FILE, EXECUTABLE):
            data = read_file(self._objects, entry, MAX_RECORD)
            try:
                found = read_lease(data)
            except BadRecord as error:
                found = str(error)  # one that is raised again and again keeps every frame
            self.parsed[entry.id] = found
        if isinstance(found, str):
            raise BadRecord(found)
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


def _sound(record: Lease | Damage) -> Lease:
    if isinstance(record, Lease):
        return record
    raise Invalid(
        f"the ledger's record {record.shown.rsplit('/', 1)[-1]} is damaged: {record.problem}",
        hints=(f"an admin may drop it: its file is {record.shown}",),
    )


def _entries(records: StoredRecords | None, folder: str) -> Entries:
    try:
        return records.entries(folder) if isinstance(records, GitRecords) else {}
    except Invalid:
        return {}  # nothing in it can be read, so nothing in it is judged


def read_ledger(objects: GitObjects, version: str) -> Ledger:
    """The ledger at a commit; Invalid when there is something else."""
    return Ledger(*read_state(StoreObjects(lambda: objects), version))


def read_state(
    objects: StoreObjects, version: str, folder: str = "", parsed: Parsed | None = None
) -> tuple[Header, GitRecords]:
    """The header and the records at a commit; Invalid when there is something else."""
    try:
        objects.read(version, COMMIT, MAX_COMMIT)
    except Unreadable as error:
        raise Invalid(f"the ledger's ref does not point to a commit: it {error}") from None
    if (commit := read_commit(objects, version)) is None:
        raise Invalid("the ledger's commit is malformed")
    records = GitRecords(objects, commit.tree_id, folder, version, parsed)
    try:
        header = records.read(HEADER_FILE, MAX_HEADER)
    except BadRecord as error:
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    if header is None:
        raise Invalid(f"the ref does not hold a ledger: {HEADER_FILE} is missing")
    return read_header(header), records


# --- what a clone keeps of the records that it has read ---------------------------------------
# It only saves work: what is missing or damaged is read again.

NAMES_KEPT = 500  # that others hold
_HOLDER = re.compile(rb"(?m)^holder: (.*)$")


def kept_leases(tree: GitRecords, version: str, person: str | None, folder: str) -> KeptLeases:
    """The leases of a state that are kept in a folder, among them all those of a person.

    For nobody only those that cover paths are looked for. Of names that others hold no more are
    kept than it takes to know that there are any: one of them is found by its name.
    """
    kept = load_leases(folder) if folder else None
    known = () if kept is None else kept.leases.people
    people = {*(known or ()), *([] if person is None else [person])}
    before = kept if kept is not None and kept.leases.has_all_of(person) else None
    if before is not None and (before.version, before.root) == (version, tree.root):
        return before
    own, others, damaged = dict[str, str](), dict[str, str](), dict[str, Damage]()

    def put(row: str) -> None:
        file, holder, _ = row.split("\t", 2)
        is_other = file.startswith("leases/") and holder not in people
        (others if is_other else own)[file] = row

    def is_wanted(file: str) -> bool:
        if len(others) <= NAMES_KEPT or file.startswith("paths/"):
            return True
        # It takes a tenth of the time of parsing, and there may be a hundred thousand.
        with contextlib.suppress(BadRecord):
            holders = _HOLDER.findall(tree.read(file, MAX_RECORD) or b"")
            if len(holders) == 1 and b"\\" not in holders[0]:
                return person_key(holders[0].decode("utf-8", "replace").strip("\"'")) in people
        return True

    is_whole = known is None  # all leases are kept, whosoever they are
    tops = LEASE_FOLDERS if people or is_whole else ("paths",)
    changed = None if before is None else tree.changed_from(before.root, tops)
    if before is not None and changed is not None:
        for row in before.leases.rows:
            if row.partition("\t")[0] not in changed:
                put(row)
    # Of names that others hold, those beyond the limit were not kept. Once none of the kept ones is
    # left, all is to be read to find the next; and so it is if there is no state to go on from.
    has_enough = bool(others) or is_whole or not people
    if before is None or changed is None or not has_enough:
        read, is_whole = tree.every(tops, is_wanted), is_whole or bool(people)
    else:
        damaged = {x.file: x for x in before.damaged if x.file not in changed}
        there = (x for x in changed if changed[x] is not None)
        read = (tree.record_at(x) for x in there if x.startswith(tops) and is_wanted(x))
    for record in read:
        if isinstance(record, Damage):
            damaged[record.file] = record
        elif record.state is State.ACTIVE:
            put(row_of(record, lease_file(record)))
    rows = (*own.values(), *islice(others.values(), NAMES_KEPT))
    leases = LeaseRows(rows, None if is_whole and len(others) <= NAMES_KEPT else people)
    kept = KeptLeases(version, tree.root, leases, tuple(damaged.values()))
    # A folder that is damaged itself is looked into each time.
    if folder and all(x.file.count("/") == 2 for x in kept.damaged):
        store_leases(folder, kept)
    return kept


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
        if (base := read_commit(objects, tip)) is None:
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
    after = before.after(tree, version, folders)
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


@dataclass(frozen=True)
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

    def is_made_by(self, record: StepRecord, applied: Applied) -> bool:
        """Return whether its bytes are those that gitlease writes for this step."""
        expected = commit_bytes(applied, record, self.tree_id, self.parent_ids)
        return self.objects.read(self.id, COMMIT, MAX_COMMIT) == expected

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
    def step(self) -> StepRecord | None:
        """The step that its message names; None if it names none. Raises BadStep."""
        line = operations_line(self.message)
        return None if line is None else read_step(line)

    @property
    def operations(self) -> frozenset[str] | None:
        try:
            step = self.step
        except BadStep:
            return None
        return None if step is None else frozenset(x.id for x in step.operations)

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
