"""The ledger's tree of records in a git object store: read where needed, rewritten where changed.

Objects come from whoever can push, so sizes are asked before contents are read, and nothing is
ever checked out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from gitlease.core.errors import Invalid
from gitlease.core.lease import Lease
from gitlease.core.ledger import Damage, Ledger, Note, Notice, Ticket
from gitlease.core.resources.resource import Resource
from gitlease.git.libgit2 import as_lost, object_header, read_object
from gitlease.store.damage import CacheDamaged
from gitlease.store.fields import BadRecord
from gitlease.store.records import (
    FILE_NAME,
    HEADER_FILE,
    MAX_HEADER,
    MAX_MESSAGES,
    MAX_RECORD,
    lease_file,
    notes_file,
    notices_file,
    read_header,
    read_lease,
    read_notes,
    read_notices,
    resource_hash,
)
from gitlease.store.records_waiting import read_tickets, waiting_file

if TYPE_CHECKING:
    import pygit2

MAX_TREE = 8 * 1024 * 1024  # bytes of one folder: far beyond 100,000 records of one resource
MAX_RECORDS = 200_000
LEASE_FOLDERS = ("leases", "paths")

_BLOB, _EXECUTABLE, _TREE = 0o100644, 0o100755, 0o040000
_FAN = re.compile(r"[0-9a-f]{2}")

Entries = dict[str, tuple["pygit2.Oid", int]]


class Objects:
    """Reads objects of a store, never larger than asked for."""

    def __init__(self, repo: pygit2.Repository) -> None:
        self.repo = repo

    def blob(self, oid: pygit2.Oid, limit: int) -> bytes:
        """The bytes of a blob; BadRecord when it is none or larger than ``limit``."""
        import pygit2

        kind, size = self._header(oid)
        if kind != pygit2.enums.ObjectType.BLOB:
            raise BadRecord("not a file")
        if size > limit:
            raise BadRecord(f"larger than {limit} bytes")
        return bytes(self._get(oid).read_raw())

    def tree(self, oid: pygit2.Oid, what: str) -> pygit2.Tree:
        """A tree; Invalid when it is none or has more entries than a ledger can have."""
        import pygit2

        kind, size = self._header(oid)
        if kind != pygit2.enums.ObjectType.TREE or size > MAX_TREE:
            raise Invalid(f"the ledger's folder {what} is damaged")
        return cast("pygit2.Tree", self._get(oid))

    def _get(self, oid: pygit2.Oid) -> pygit2.Object:
        import pygit2

        try:
            with as_lost():
                return self.repo[oid]
        except (KeyError, pygit2.GitError):
            raise CacheDamaged(f"this clone's copy of the ledger is damaged: {oid}") from None

    def _header(self, oid: pygit2.Oid) -> tuple[int, int]:
        import pygit2

        try:
            return object_header(self.repo, oid)
        except (KeyError, pygit2.GitError):
            # git checks that what it fetches is complete, so the store has lost it since.
            raise CacheDamaged(
                f"this clone's copy of the ledger has lost an object: {oid}"
            ) from None


class GitRecords:
    """The records of one commit's tree: the store's side of a Ledger."""

    def __init__(self, repo: pygit2.Repository, root: pygit2.Oid) -> None:
        self._objects = Objects(repo)
        self._root = self._objects.tree(root, "/")
        self._folders: dict[str, Entries] = {}
        self._parsed: dict[pygit2.Oid, Lease | BadRecord] = {}

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
            raise Invalid(f"a record in the place of {resource} is of another resource")
        return found

    def with_paths(self) -> list[Lease]:
        found = []
        for file, problem in self._files("paths"):
            if problem is not None:
                raise _damaged(file, problem)
            found.append(self._lease(file))
        return found

    def every(self) -> Iterator[Lease | Damage]:
        for top in LEASE_FOLDERS:
            try:
                for file, problem in self._files(top):
                    if problem is not None:
                        yield Damage(file, problem)
                        continue
                    try:
                        yield self._read_lease(file)
                    except BadRecord as error:
                        yield Damage(file, str(error))
            except Invalid as error:
                yield Damage(top, error.message)

    def notes(self, resource: Resource) -> tuple[Note, ...]:
        file = notes_file(resource)
        try:
            data = self._read(file)
            return () if data is None else read_notes(data, file=file)
        except BadRecord as error:
            raise Invalid(f"the notes of {resource} are damaged ({file}): {error}") from None

    def notices(self, holder: str) -> tuple[Notice, ...]:
        file = notices_file(holder)
        try:
            data = self._read(file)
            return () if data is None else read_notices(data, file=file)
        except (BadRecord, Invalid):
            return ()  # a courtesy, that must not keep its reader from working

    def tickets(self, resource: Resource) -> tuple[Ticket, ...]:
        file = waiting_file(resource)
        try:
            data = self._read(file)
            return () if data is None else read_tickets(data, file=file)
        except BadRecord as error:
            raise Invalid(f"who waits for {resource} cannot be read ({file}): {error}") from None

    def entries(self, folder: str) -> Entries:
        """The entries of a folder, {} where there is none; Invalid when it is damaged."""
        if folder in self._folders:
            return self._folders[folder]
        found: Entries = {}
        tree = self._tree(folder)
        for entry in tree or ():
            name = entry.name or ""
            if name in found:
                raise Invalid(f"the ledger's folder {folder} has an entry twice")
            found[name] = (entry.id, int(entry.filemode))
        self._folders[folder] = found
        return found

    def _tree(self, folder: str) -> pygit2.Tree | None:
        tree = self._root
        for part in folder.split("/"):
            if part not in tree:
                return None
            if int(tree[part].filemode) != _TREE:
                raise Invalid(f"the ledger's folder {folder} is none")
            tree = self._objects.tree(tree[part].id, folder)
        return tree

    def _lease(self, file: str) -> Lease:
        try:
            return self._read_lease(file)
        except BadRecord as error:
            raise _damaged(file, str(error)) from None

    def _read_lease(self, file: str) -> Lease:
        """The lease of a file. The same bytes under many names are parsed only once."""
        if not FILE_NAME.fullmatch(file.rsplit("/", 1)[-1]):
            raise BadRecord("its name is not that of a record")
        oid = self._blob(file)
        if oid is None:
            raise BadRecord("missing")
        if oid not in self._parsed:
            try:
                self._parsed[oid] = read_lease(self._objects.blob(oid, MAX_RECORD))
            except BadRecord as error:
                self._parsed[oid] = error
        found = self._parsed[oid]
        if isinstance(found, BadRecord):
            raise found
        if lease_file(found) != file:
            raise BadRecord("its name and its content disagree")
        return found

    def _blob(self, file: str) -> pygit2.Oid | None:
        folder, name = file.rsplit("/", 1)
        entry = self.entries(folder).get(name)
        if entry is None:
            return None
        oid, mode = entry
        if mode not in (_BLOB, _EXECUTABLE):
            raise BadRecord("not a regular file")
        return oid

    def _read(self, file: str) -> bytes | None:
        oid = self._blob(file)
        return None if oid is None else self._objects.blob(oid, MAX_MESSAGES)

    def _files(self, top: str) -> Iterator[tuple[str, str | None]]:
        """Every file below a folder, with what is wrong with it where that is known already."""
        count = 0
        for fan, (_, mode) in self.entries(top).items():
            if mode != _TREE or not _FAN.fullmatch(fan):
                yield f"{top}/{fan}", "not a folder of records"
                continue
            try:
                names = self.entries(f"{top}/{fan}")
            except Invalid as error:
                yield f"{top}/{fan}", error.message
                continue
            for name in names:
                count += 1
                if count > MAX_RECORDS:
                    raise Invalid(f"the ledger has more than {MAX_RECORDS} records in {top}")
                yield f"{top}/{fan}/{name}", None


def _damaged(file: str, problem: str) -> Invalid:
    damage = Damage(file, problem)
    return Invalid(
        f"the ledger's record {damage.shown.rsplit('/', 1)[-1]} is damaged: {problem}",
        hints=(f"an admin may drop it: its file is {damage.shown}",),
    )


def changed_records(old: Ledger | None, new: Ledger) -> list[tuple[str, bool | None]]:
    """The lease files that differ between two states, and whether each was there; None when gone.

    Only the folders of records are looked into, two levels deep, and only where they differ:
    whatever else somebody pushed costs nothing. Without an old state all may have been there.
    """
    changed: list[tuple[str, bool]] = []
    gone: set[str] = set()
    for top in LEASE_FOLDERS:
        before = {} if old is None else _entries(old, top)
        after = _entries(new, top)
        for fan in before.keys() | after.keys():
            if before.get(fan) == after.get(fan) or not _FAN.fullmatch(fan):
                continue
            was = _entries(old, f"{top}/{fan}") if old is not None and fan in before else {}
            now = _entries(new, f"{top}/{fan}") if fan in after else {}
            gone |= {f"{top}/{fan}/{name}" for name in was.keys() - now.keys()}
            changed += [
                (f"{top}/{fan}/{name}", name in was)
                for name, entry in now.items()
                if was.get(name) != entry
            ]
    # A record that gains paths moves from one folder to the other: that is a change as well.
    moved = {file.partition("/")[2] for file in gone}
    found: list[tuple[str, bool | None]] = [(file, None) for file in gone]
    for file, there in changed:
        found.append((file, old is None or there or file.partition("/")[2] in moved))
    return found


def _entries(ledger: Ledger, folder: str) -> Entries:
    try:
        return cast("GitRecords", ledger.records).entries(folder)
    except (Invalid, CacheDamaged):
        return {}  # nothing in it can be read, so nothing in it is judged


def read_ledger(repo: pygit2.Repository, commit: pygit2.Oid) -> Ledger:
    """The ledger at a commit; Invalid when there is something else."""
    import pygit2

    objects = Objects(repo)
    try:
        kind, size = object_header(repo, commit)
        if kind != pygit2.enums.ObjectType.COMMIT or size > MAX_TREE:
            raise Invalid("the ledger's ref does not point to a commit")
        root = cast("pygit2.Commit", read_object(repo, commit)).tree_id
        tree = objects.tree(root, "/")
        if HEADER_FILE not in tree:
            raise Invalid(f"the ref holds no ledger: there is no {HEADER_FILE}")
        if int(tree[HEADER_FILE].filemode) not in (_BLOB, _EXECUTABLE):
            raise BadRecord("not a regular file")
        data = objects.blob(tree[HEADER_FILE].id, MAX_HEADER)
    except BadRecord as error:
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    except KeyError as error:
        # git checks that what it fetches is complete, so the store has lost it since.
        raise CacheDamaged(f"this clone's copy of the ledger has lost {error}") from None
    except pygit2.GitError as error:
        raise Invalid(f"the ledger's commit cannot be read: {error}") from None
    return Ledger(header=read_header(data), records=GitRecords(repo, root))
