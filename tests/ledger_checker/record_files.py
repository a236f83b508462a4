"""Tracks the records of leases as their files change from commit to commit."""

from __future__ import annotations

from collections.abc import Iterable

from ledger_checker.form import BadForm, LeaseRecord, lease_path, read_lease
from ledger_checker.state import JudgedStep, Key, LeaseTable, about
from ledger_checker.tree_reader import FileChange


class RecordFiles:
    """The current records, and the file of each."""

    def __init__(self) -> None:
        self.table = LeaseTable()
        self._keys: dict[str, Key] = {}
        self._places: dict[Key, str] = {}

    def take(self, step: JudgedStep, changes: Iterable[FileChange]) -> None:
        """Apply the files that a step changes, and note the changed records in the step."""
        listed = list(changes)
        before: dict[Key, LeaseRecord] = {}
        after: dict[Key, LeaseRecord] = {}
        for change in listed:
            key = self._keys.pop(change.path, None)
            if key is not None:
                before[key] = self.table.by_key[key]
                del self._places[key]
        for change in listed:
            lease = _read(step, change) if change.blob else None
            if lease is None:
                continue
            if lease.key in self._places:
                step.breaks("record", f"there are two records of {about(lease)}")
                continue
            self._keys[change.path], self._places[lease.key] = lease.key, change.path
            after[lease.key] = lease
        for key in before.keys() - after.keys():
            self.table.drop(key)
        for lease in after.values():
            self.table.put(lease)
        for key in before | after:
            old, new = before.get(key), after.get(key)
            if old != new:
                step.changed[key] = old, new


def _read(step: JudgedStep, change: FileChange) -> LeaseRecord | None:
    """The record in a file, even in a wrong place; None if it is not one."""
    if change.data is None:
        step.breaks("record", f"{change.path} {change.problem}")
        return None
    try:
        lease = read_lease(change.data)
    except BadForm as error:
        step.breaks("record", f"{change.path}: {error}")
        return None
    if lease_path(lease) != change.path:
        step.breaks("record", f"{change.path}: its name and its content disagree")
    return lease
