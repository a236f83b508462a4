"""Checks commits that were seen at a ledger's ref at other times.

Each must still be in its history; only a renewal may have been replaced, by a renewal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger_checker.commit import StepCommit
from ledger_checker.form import BadForm, LedgerHeader, read_header
from ledger_checker.state import BrokenRule, JudgedStep
from ledger_checker.tree_reader import BLOB, HEADER, MAX_HEADER, Objects

_Seen = tuple[StepCommit, LedgerHeader]


class SampledTips:
    """Sampled commits, checked against the history as it is read."""

    def __init__(self, objects: Objects, tips: Iterable[str], commits: Sequence[str]) -> None:
        """``commits`` is the history. Reads the tips that are not in it."""
        lacking = dict.fromkeys(tips).keys() - set(commits)
        self._seen = {tip: _read(objects, tip) for tip in sorted(lacking)}
        self._above: dict[str, list[str]] = {}
        for tip, seen in self._seen.items():
            if seen is not None and len(seen[0].parents) == 1:
                self._above.setdefault(seen[0].parents[0], []).append(tip)
        self._replaced: set[str] = set()
        self._last = ""

    @property
    def gone(self) -> list[str]:
        """Those that the repository no longer has."""
        return [tip for tip, seen in self._seen.items() if seen is None]

    def passes(self, step: JudgedStep) -> None:
        """Note a step of the history, which may have replaced a tip."""
        for tip in self._above.get(self._last, ()):
            seen = self._seen[tip]
            if seen is not None and _replaces(step, *seen):
                self._replaced.add(tip)
        self._last = step.id

    def broken(self) -> list[BrokenRule]:
        """The tips that are neither in the history nor were legally replaced."""
        message = "it was at the ref, but is no longer in the history"
        return [
            BrokenRule(tip, "rewound", message)
            for tip, seen in self._seen.items()
            if seen is not None and tip not in self._replaced
        ]


def _replaces(step: JudgedStep, commit: StepCommit, header: LedgerHeader) -> bool:
    """Whether a step may have replaced another one: both are renewals, and it is later."""
    if not (commit.renewal and step.commit.renewal and step.header.revision > header.revision):
        return False
    ring = {entry[0] for entry in step.header.ring}
    mine = [id for id, revision, _ in header.ring if revision == header.revision]
    reaches = bool(step.header.ring) and step.header.ring[0][1] <= header.revision
    return not reaches or all(id in ring for id in mine)


def _read(objects: Objects, tip: str) -> _Seen | None:
    commit = objects.commit(tip)
    entry = None if commit is None else objects.folder(commit.tree)[0].get(HEADER)
    data = "" if entry is None else objects.read(entry.id, BLOB, MAX_HEADER)
    try:
        return (commit, read_header(data)) if commit and isinstance(data, bytes) else None
    except BadForm:
        return None
