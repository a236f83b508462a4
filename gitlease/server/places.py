"""Where ledgers may be: the settings that say so, and refs that have a ledger elsewhere.

Clients follow the settings on the default branch. Whoever changes them there, or keeps a second
ledger at another ref, could lead others away from a live lease.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from gitlease.kernel.git.files import Unreadable
from gitlease.kernel.git.objects import BLOB, GitObjects, TreeEntry, read_tree
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.settings.schema import DEFAULT_REMOTE, LEDGER, PREFIX, Settings
from gitlease.kernel.store.records import HEADER_FILE, MAX_HEADER, read_header
from gitlease.kernel.store.tree import MAX_TREE, read_commit

LAYER, REMOTE = "lease.layer", "lease.remote"


def moved_settings(before: Settings, after: Settings, ids: Container[str]) -> list[str]:
    """The keys by which clients would look elsewhere for their ledgers, or refuse the one here.

    ``ids`` are those of the ledgers here: to record one of them is no change.
    """
    changed = []
    if (before.remote or DEFAULT_REMOTE) != (after.remote or DEFAULT_REMOTE):
        changed.append(REMOTE)
    if before.ref_prefix != after.ref_prefix:
        changed.append(PREFIX)
    if before.layer != after.layer:
        changed.append(LAYER)
    recorded, records = (x.ledger for x in (before, after))
    if recorded != records and records not in ids:
        changed.append(LEDGER)
    return changed


def has_ledger(objects: GitObjects, version: str) -> bool:
    """Return whether clients could read a ledger at an object: whatever its message says."""
    try:
        commit = read_commit(objects, version)
        if commit is None:
            return False
        entry = _header_of(read_tree(objects, commit.tree_id, MAX_TREE))
        if entry is None:
            return False
        data = objects.read(entry.id, BLOB, MAX_HEADER)
    except (Unreadable, ValueError):
        return False
    try:
        read_header(data)
    except GitleaseError as error:
        # With a way out it is of a newer format. Anything else is a file that has the same name.
        return bool(error.hints)
    return True


def _header_of(entries: Iterable[TreeEntry]) -> TreeEntry | None:
    return next((x for x in entries if x.name == HEADER_FILE and not x.is_folder), None)
