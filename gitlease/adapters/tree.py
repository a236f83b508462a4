"""The ledger's tree of records in a git object store: read where needed, rewritten where changed.

Objects come from whoever can push, so sizes are asked before contents are read, and nothing is
ever checked out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from gitlease.adapters.fields import BadRecord
from gitlease.adapters.records import (
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
    write_header,
    write_lease,
    write_notes,
    write_notices,
)
from gitlease.domain.errors import Invalid
from gitlease.domain.lease import Lease
from gitlease.domain.ledger import Changes, Damage, Header, Ledger, Note, Notice
from gitlease.domain.resource import Resource

if TYPE_CHECKING:
    import pygit2

MAX_TREE = 8 * 1024 * 1024  # bytes of one folder: far beyond 100,000 records of one resource
MAX_RECORDS = 200_000
LEASE_FOLDERS = ("leases", "paths")

_BLOB, _EXECUTABLE = 0o100644, 0o100755


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
        return bytes(self.repo[oid].read_raw())

    def tree(self, oid: pygit2.Oid, what: str) -> pygit2.Tree:
        """A tree; Invalid when it is none or has more entries than a ledger can have."""
        import pygit2

        kind, size = self._header(oid)
        if kind != pygit2.enums.ObjectType.TREE or size > MAX_TREE:
            raise Invalid(f"the ledger's folder {what} is damaged")
        return cast("pygit2.Tree", self.repo[oid])

    def _header(self, oid: pygit2.Oid) -> tuple[int, int]:
        try:
            kind, size = self.repo.odb.read_header(oid)
        except KeyError:
            raise BadRecord("missing") from None
        return int(kind), int(size)


class GitRecords:
    """The records of one commit's tree: the store's side of a Ledger."""

    def __init__(self, repo: pygit2.Repository, root: pygit2.Oid) -> None:
        self._objects = Objects(repo)
        self._root = self._objects.tree(root, "/")
        self._folders: dict[str, dict[str, tuple[pygit2.Oid, int]]] = {}

    def of(self, resource: Resource) -> list[Lease]:
        found, digest = [], resource_hash(resource)
        for top in LEASE_FOLDERS:
            folder = f"{top}/{digest[:2]}"
            for name in self._list(folder):
                if digest in name and self._digest(name) == digest:
                    found.append(self._lease(f"{folder}/{name}"))
        keys = {lease.key for lease in found}
        if len(keys) != len(found):
            raise Invalid(f"the ledger has two records of {resource}", resource=resource.text)
        if any(lease.resource != resource for lease in found):
            raise Invalid(f"a record in the place of {resource} is of another resource")
        return found

    def with_paths(self) -> list[Lease]:
        return [self._lease(file) for file in self._files("paths")]

    def every(self) -> Iterator[Lease | Damage]:
        for top in LEASE_FOLDERS:
            try:
                files = list(self._files(top))
            except Invalid as error:
                yield Damage(top, error.message)
                continue
            for file in files:
                try:
                    yield self._lease(file)
                except Invalid as error:
                    yield Damage(file, error.message)

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

    def _lease(self, file: str) -> Lease:
        try:
            data = self._read(file)
            if data is None:
                raise BadRecord("missing")
            return read_lease(data, file=file)
        except BadRecord as error:
            name = file.rsplit("/", 1)[-1]
            raise Invalid(
                f"the ledger's record {name} is damaged: {error}",
                hints=(f"an admin may drop it: its file is {file}",),
            ) from None

    def _read(self, file: str) -> bytes | None:
        folder, name = file.rsplit("/", 1)
        entry = self._list(folder).get(name)
        if entry is None:
            return None
        oid, mode = entry
        if mode not in (_BLOB, _EXECUTABLE):
            raise BadRecord("not a regular file")
        limit = MAX_RECORD if file.startswith(LEASE_FOLDERS) else MAX_MESSAGES
        return self._objects.blob(oid, limit)

    def _files(self, top: str) -> Iterator[str]:
        count = 0
        for fan in self._list(top):
            for name in self._list(f"{top}/{fan}"):
                count += 1
                if count > MAX_RECORDS:
                    raise Invalid(f"the ledger has more than {MAX_RECORDS} records in {top}")
                yield f"{top}/{fan}/{name}"

    def _list(self, folder: str) -> dict[str, tuple[pygit2.Oid, int]]:
        """The entries of a folder, {} where there is none."""
        if folder in self._folders:
            return self._folders[folder]
        tree = self._root
        for part in folder.split("/"):
            if part not in tree:
                return self._folders.setdefault(folder, {})
            try:
                tree = self._objects.tree(tree[part].id, folder)
            except BadRecord:
                raise Invalid(f"the ledger's folder {folder} is missing") from None
        entries = {e.name or "": (e.id, int(e.filemode)) for e in tree}
        return self._folders.setdefault(folder, entries)

    @staticmethod
    def _digest(name: str) -> str | None:
        found = FILE_NAME.fullmatch(name)
        return found[1] if found else None


def read_ledger(repo: pygit2.Repository, commit: pygit2.Oid) -> Ledger:
    """The ledger at a commit; Invalid when there is something else."""
    import pygit2

    objects = Objects(repo)
    try:
        kind, size = repo.odb.read_header(commit)
        if int(kind) != pygit2.enums.ObjectType.COMMIT or size > MAX_TREE:
            raise Invalid("the ledger's ref does not point to a commit")
        root = cast("pygit2.Commit", repo[commit]).tree_id
        tree = objects.tree(root, "/")
        if HEADER_FILE not in tree:
            raise Invalid(f"the ref holds no ledger: there is no {HEADER_FILE}")
        data = objects.blob(tree[HEADER_FILE].id, MAX_HEADER)
    except BadRecord as error:
        raise Invalid(f"the ledger's header {HEADER_FILE} is damaged: {error}") from None
    except (KeyError, pygit2.GitError) as error:
        raise Invalid(f"the ledger's commit cannot be read: {error}") from None
    return Ledger(header=read_header(data), records=GitRecords(repo, root))


def write_tree(
    repo: pygit2.Repository, base: pygit2.Oid | None, header: Header, changes: Changes
) -> pygit2.Oid:
    """Write the tree of a changed ledger on top of ``base``; only what changed is written anew."""
    files: dict[str, bytes | None] = {}
    for before, after in changes.leases.values():
        if before is not None:
            files[lease_file(before)] = None
        if after is not None:
            files[lease_file(after)] = write_lease(after)
    for key, notes in changes.notes.items():
        resource = changes.note_resources[key]
        files[notes_file(resource)] = write_notes(resource, notes) if notes else None
    for holder, notices in changes.notices.items():
        files[notices_file(holder)] = write_notices(notices[0].to, notices) if notices else None
    files |= dict.fromkeys(changes.dropped)
    files[HEADER_FILE] = write_header(header)
    return _write(repo, base, files) or repo.TreeBuilder().write()


def _write(
    repo: pygit2.Repository, base: pygit2.Oid | None, files: Mapping[str, bytes | None]
) -> pygit2.Oid | None:
    import pygit2

    existing = repo[base] if base is not None else None
    tree = existing if isinstance(existing, pygit2.Tree) else None
    builder = repo.TreeBuilder(tree) if tree is not None else repo.TreeBuilder()
    folders: dict[str, dict[str, bytes | None]] = {}
    for path, data in files.items():
        head, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(head, {})[rest] = data
        elif data is not None:
            builder.insert(head, repo.create_blob(data), pygit2.enums.FileMode.BLOB)
        elif builder.get(head) is not None:
            builder.remove(head)
    for name, inside in folders.items():
        entry = tree[name] if tree is not None and name in tree else None
        below = entry.id if isinstance(entry, pygit2.Tree) else None
        written = _write(repo, below, inside)
        if written is not None:
            builder.insert(name, written, pygit2.enums.FileMode.TREE)
        elif builder.get(name) is not None:
            builder.remove(name)
    return builder.write() if len(builder) else None
