"""Writes the tree of a changed ledger: only what changed is written anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid
from gitlease.core.ledger import Changes, Header
from gitlease.git.libgit2 import read_object
from gitlease.store.fields import BadRecord
from gitlease.store.records import (
    HEADER_FILE,
    check_lease,
    lease_file,
    notes_file,
    notices_file,
    read_header,
    read_notes,
    read_notices,
    write_header,
    write_notes,
    write_notices,
)
from gitlease.store.records_waiting import waiting_file, write_tickets

if TYPE_CHECKING:
    import pygit2


def changed_files(header: Header, changes: Changes) -> dict[str, bytes | None]:
    """The files of the tree that a change writes, by path: their bytes, or None where one goes.

    Raises Invalid for what could not be read again: nobody could work with it.
    """
    files: dict[str, bytes | None] = {}
    for before, after in changes.leases.values():
        if before is not None:
            files[lease_file(before)] = None
        if after is not None:
            files[lease_file(after)] = check_lease(after)
    for key, notes in changes.notes.items():
        resource = changes.note_resources[key]
        file = notes_file(resource)
        files[file] = _readable(file, write_notes(resource, notes), read_notes) if notes else None
    for holder, found in changes.notices.items():
        file = notices_file(holder)
        data = _readable(file, write_notices(found[0].to, found), read_notices) if found else None
        files[file] = data
    for resource, tickets in changes.tickets.values():
        files[waiting_file(resource)] = write_tickets(resource, tickets) if tickets else None
    files |= dict.fromkeys(changes.dropped)
    files[HEADER_FILE] = write_header(header)
    read_header(files[HEADER_FILE] or b"")
    return files


def _readable(file: str, data: bytes, read: Callable[..., object]) -> bytes:
    try:
        read(data, file=file)
    except BadRecord as error:
        raise Invalid(f"the change cannot be recorded: {error}") from None
    return data


def write_tree(
    repo: pygit2.Repository, base: pygit2.Oid | None, header: Header, changes: Changes
) -> pygit2.Oid:
    """Write the tree of a changed ledger on top of ``base``; only what changed is written anew."""
    return _write(repo, base, changed_files(header, changes)) or repo.TreeBuilder().write()


def _write(
    repo: pygit2.Repository, base: pygit2.Oid | None, files: Mapping[str, bytes | None]
) -> pygit2.Oid | None:
    import pygit2

    existing = read_object(repo, base) if base is not None else None
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
