"""The ledger's history: one commit a step, its message the audit trail.

A message has one line for people, one JSON line for each event, the operations of the step as
data, and says whether it only renews: such a step may be replaced by the next renewal, so that
history grows with decisions and not with time.
"""

from __future__ import annotations

from collections.abc import Iterator

from gitlease.core.outcome import Event
from gitlease.git.objects import GitObjects
from gitlease.store.commit import LedgerCommit, read_commit
from gitlease.store.damage import CacheDamaged
from gitlease.store.messages import RENEWAL, events_in

MAX_STEPS = 1_000_000


def is_renewal(objects: GitObjects, version: str) -> bool:
    """Whether a commit is a renewal that the next one may replace: it has one parent."""
    commit = read_commit(objects, version)
    return (
        commit is not None
        and len(commit.parent_ids) == 1
        and commit.message.rstrip().endswith("\n" + RENEWAL)
    )


def decision(objects: GitObjects, version: str) -> str:
    """The commit that none may replace: this one, or that before a renewal; ``""`` for none."""
    commit = read_commit(objects, version)
    if commit is None:
        return ""
    return commit.parent_ids[0] if is_renewal(objects, version) else version


def first_after(objects: GitObjects, earlier: str, version: str) -> str | None:
    """The first commit after an earlier one on the way to ``version``; None if it is not on it.

    Raises CacheDamaged where the way cannot be read to its end: it may lie beyond.
    """
    after, whole = version, False
    for commit in walk(objects, version):
        if commit.id == earlier:
            return after
        after, whole = commit.id, not commit.parent_ids
    if not whole:
        raise CacheDamaged(f"the ledger's history cannot be read beyond {after}")
    return None


def read_events(objects: GitObjects, version: str, limit: int) -> tuple[Event, ...]:
    """The audit trail from a commit backwards: newest first, at most ``limit`` events."""
    found: list[Event] = []
    for commit in walk(objects, version):
        found += reversed(list(events_in(commit.message)))
        if len(found) >= limit:
            break
    return tuple(found[:limit])


def read_steps(
    objects: GitObjects, earlier: str, version: str, limit: int
) -> tuple[tuple[str, tuple[Event, ...]], ...]:
    """The steps from an earlier commit to a later one, oldest first, with what each tells.

    A renewal that was replaced since counts from the decision before it. Nothing where the way
    cannot be found within ``limit`` steps.
    """
    ends, found = {earlier, decision(objects, earlier)}, list[tuple[str, tuple[Event, ...]]]()
    for commit in walk(objects, version):
        if commit.id in ends:
            return tuple(reversed(found))
        if len(found) == limit:
            break
        found.append((commit.id, tuple(events_in(commit.message))))
    return ()


def walk(objects: GitObjects, version: str) -> Iterator[LedgerCommit]:
    """The commits of a ledger, from one backwards, as far as they can be read."""
    commit = read_commit(objects, version)
    for _ in range(MAX_STEPS):
        if commit is None:
            return
        yield commit
        commit = read_commit(objects, commit.parent_ids[0]) if commit.parent_ids else None
