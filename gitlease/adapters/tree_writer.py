"""Writes the tree of a changed ledger: only what changed is written anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gitlease.adapters.records import (
    HEADER_FILE,
    check_lease,
    lease_file,
    notes_file,
    notices_file,
    write_header,
    write_notes,
    write_notices,
)
from gitlease.adapters.records_waiting import waiting_file, write_tickets
from gitlease.domain.ledger import Changes, Header

if TYPE_CHECKING:
    import pygit2


def write_tree(
    repo: pygit2.Repository, base: pygit2.Oid | None, header: Header, changes: Changes
) -> pygit2.Oid:
    """Write the tree of a changed ledger on top of ``base``; only what changed is written anew."""
    files: dict[str, bytes | None] = {}
    for before, after in changes.leases.values():
        if before is not None:
            files[lease_file(before)] = None
        if after is not None:
            files[lease_file(after)] = check_lease(after)
    for key, notes in changes.notes.items():
        resource = changes.note_resources[key]
        files[notes_file(resource)] = write_notes(resource, notes) if notes else None
    for holder, notices in changes.notices.items():
        files[notices_file(holder)] = write_notices(notices[0].to, notices) if notices else None
    for resource, tickets in changes.tickets.values():
        files[waiting_file(resource)] = write_tickets(resource, tickets) if tickets else None
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
