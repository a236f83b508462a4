"""Writes the step of a ledger: of its tree only what changed, and the commit that tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitlease.core.ledger import Ledger
from gitlease.core.moves.step_record import Decided
from gitlease.git.objects import (
    BLOB,
    COMMIT,
    FILE,
    FOLDER,
    TREE,
    TreeEntry,
    WritableObjects,
    read_tree,
    tree_bytes,
)
from gitlease.store.damage import CacheDamaged
from gitlease.store.history import commit_bytes, read_commit
from gitlease.store.records import (
    HEADER_FILE,
    NOTES,
    NOTICES,
    TICKETS,
    Listing,
    check_lease,
    lease_file,
    read_header,
    write_header,
)
from gitlease.store.tree import MAX_TREE


def write_step(objects: WritableObjects, decided: Decided, tip: str, *, replace_tip: bool) -> str:
    """Write a step on top of a tip (``""``: the first), or in its place; returns its commit.

    Raises Invalid, and Unreadable where the tip is not what git would have written.
    """
    below, parents = None, list[str]()
    if tip:
        base = read_commit(objects, tip)
        if base is None:
            raise CacheDamaged(f"the ledger's commit {tip} cannot be read")
        below = base.tree_id
        parents = [*base.parent_ids] if replace_tip else [tip]
    applied = decided.applied
    tree = write_tree(objects, below, changed_files(applied.ledger))
    return objects.write(COMMIT, commit_bytes(applied, decided.record, tree, parents))


def changed_files(ledger: Ledger) -> dict[str, bytes | None]:
    """The files that the changes of a ledger write, by path: their bytes, None where one goes.

    Raises Invalid for what could not be read again: nobody could work with it.
    """
    changes = ledger.changes
    files: dict[str, bytes | None] = {}

    def put(listing: Listing, owner: object, items: tuple[Any, ...]) -> None:
        files[listing.place(owner)] = listing.write(owner, items) if items else None

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
    read_header(files[HEADER_FILE] or b"")
    return files


def write_tree(
    objects: WritableObjects, base: str | None, files: Mapping[str, bytes | None]
) -> str:
    """Write the tree ``base`` with some files new or gone; folders without any go as well."""
    return objects.write(TREE, _tree(objects, base, files))


def _tree(objects: WritableObjects, base: str | None, files: Mapping[str, bytes | None]) -> bytes:
    there = {} if base is None else {x.name: x for x in read_tree(objects, base, MAX_TREE)}
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
        if written := _tree(objects, below, inside):
            there[name] = TreeEntry(name, FOLDER, objects.write(TREE, written))
    return tree_bytes(there.values())
