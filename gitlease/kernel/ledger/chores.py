"""What is done around every contact of a session with its ledger, beside what was asked for.

Each chore belongs to one part, and ``in_order`` gives a session its chores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from gitlease.kernel.ledger.edges import (
    COMPLETED,
    ENDED,
    HELD,
    PART,
    RETIRING,
    Edges,
    finished,
    given_back,
)
from gitlease.kernel.ledger.ports import (
    Intent,
    LedgerStore,
    Pending,
    Snapshot,
    TaskChange,
    TaskList,
)
from gitlease.kernel.rules.edge import People
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import State, same_person
from gitlease.kernel.rules.ledger import Fate, Ledger

if TYPE_CHECKING:
    from gitlease.kernel.ledger.ledger_session import LedgerSession


class Chore(Protocol):
    """One thing that is done around the steps and readings of a session.

    A chore that has nothing to do at one of these moments leaves that method as it is here.
    """

    def before(self, session: LedgerSession) -> tuple[str, ...]:
        """Do what must be done before a step is planned, once for each step; return messages."""
        return ()

    def read(self, session: LedgerSession, head: Snapshot) -> tuple[str, ...]:
        """Do what a state shows that was fetched to be read; return messages."""
        return ()

    def after(self, session: LedgerSession, head: Snapshot | None) -> tuple[str, ...]:
        """Messages once a step was carried out or refused, with the state as known then."""
        return ()


def in_order() -> tuple[Chore, ...]:
    """The chores of a session. Each of the three moments calls them in this order.

    1. What became of open changes: it asks the ledger only if there are some, and what still may
       land after that decides which edits are finished.
    2. Edits of killed commands, before anything is planned on these files.
    """
    return OpenChanges(), InterruptedEdits()


# --- changes of unknown outcome -------------------------------------------------------------------

BECAME = {
    Fate.APPLIED: "had reached the remote",
    Fate.LOST: "did not reach the remote, and has no effect",
    Fate.UNKNOWN: "is too old to tell its outcome",
    Fate.UNDECIDED: "has not reached the remote so far, and cannot once the ledger changes",
}


@dataclass(frozen=True)
class Settled:
    """Messages about earlier changes, and those changes that may still land."""

    said: tuple[str, ...] = ()
    open: tuple[Pending, ...] = ()


def settle(store: LedgerStore, waiting: Iterable[Pending], head: Snapshot) -> Settled:
    """Settle the changes that a head decides."""
    said, still = [], []
    for pending in list(waiting):
        became = store.settle(pending, head)
        if became is Fate.UNDECIDED:
            still.append(pending)
        else:
            said.append(_became(pending, became))
    return Settled(tuple(said), tuple(still))


def told_by(
    store: LedgerStore, head: Snapshot, waiting: Iterable[Pending] | None = None
) -> tuple[str, ...]:
    """Messages about the changes that a head decides; by default about all open ones.

    One that may still land is reported once in this clone.
    """
    settled = settle(store, store.pending(head.layer) if waiting is None else waiting, head)
    still = {x.operations[0]: x for x in settled.open}
    before = store.shown(head.layer, list(still)) if still else frozenset()
    undecided = (_became(x, Fate.UNDECIDED) for key, x in still.items() if key not in before)
    return (*settled.said, *undecided)


def _became(pending: Pending, fate: Fate) -> str:
    what = pending.what.removeprefix("this ").removeprefix("the ")
    return f"an earlier {what} {BECAME[fate]}"


def open_changes(session: LedgerSession) -> Settled:
    """Settle the changes that earlier commands left open, by the ledger as it is now."""
    waiting = list(session.store.pending(session.layer))
    if not waiting:
        return Settled()
    return settle(session.store, waiting, session.store.fetch(session.layer))


class OpenChanges(Chore):
    """Tells what became of changes whose outcome was unknown when their command ended."""

    def __init__(self) -> None:
        self._open: tuple[Pending, ...] = ()

    def before(self, session: LedgerSession) -> tuple[str, ...]:
        settled = open_changes(session)
        self._open = settled.open
        return settled.said

    def read(self, session: LedgerSession, head: Snapshot) -> tuple[str, ...]:
        return told_by(session.store, head)

    def after(self, session: LedgerSession, head: Snapshot | None) -> tuple[str, ...]:
        # Only those of before: what became of the step itself, its answer or refusal says.
        open_before, self._open = self._open, ()
        return () if head is None else told_by(session.store, head, open_before)


# --- task files half edited -----------------------------------------------------------------------


class InterruptedEdits(Chore):
    """Finishes or forgets the task file edits of killed commands, as the ledger says."""

    def before(self, session: LedgerSession) -> tuple[str, ...]:
        return self._finish(session, None)

    def read(self, session: LedgerSession, head: Snapshot) -> tuple[str, ...]:
        return self._finish(session, head)

    def _finish(self, session: LedgerSession, head: Snapshot | None) -> tuple[str, ...]:
        files, store = session.edges.files, session.store
        left = files.left_behind()
        if not left:
            return ()
        said: list[str] = []
        head = head or store.fetch(session.layer)
        open_still = {op for p in store.pending(session.layer) for op in p.operations}
        for intent in left:
            # What may still land is neither finished nor given up.
            if open_still.intersection(intent.operations):
                files.leave(intent)
            else:
                said += finish_or_forget(session.edges, intent, head.ledger)
        return tuple(said)


def finish_or_forget(edges: Edges, intent: Intent, ledger: Ledger | None) -> tuple[str, ...]:
    """Finish the edits of a killed command if the ledger has its step; returns warnings."""
    files = edges.files.at(intent.root)
    confirmed = (_confirmed_part(edges.rules.people, intent, x, ledger) for x in intent.changes)
    wanted = [change for change in confirmed if change is not None]
    # The work tree is gone, or the ledger has not the step: nothing is left to do.
    if files is None or not wanted:
        edges.files.settled(intent)
        return ()
    try:
        here, away = _located(files.read(), wanted)
        written = files.write(here, commit=intent.commit)
    except GitleaseError as error:
        away, written, problems = [], (), [error.message]
    else:
        problems = [f"{w.change.file}: {w.problem}" for w in written if w.problem]
    problems += [f"there is no task file of {c.resource} here ({c.message})" for c in away]
    if problems:
        edges.files.leave(intent)
    else:
        edges.files.settled(intent)
    said = [f"an interrupted command is not finished yet: {text}" for text in problems]
    return tuple(said) + tuple(
        f"finished an interrupted command: {w.change.message}, in {w.change.file}"
        for w in written
        if (w.changed or w.commit) and not w.problem
    )


def _confirmed_part(
    people: People, intent: Intent, change: TaskChange, ledger: Ledger | None
) -> TaskChange | None:
    leases = [] if ledger is None else ledger.leases_of(change.resource)
    own = [x for x in leases if same_person(x.holder, intent.holder)]
    held = any(x.state is State.ACTIVE and x.edge for x in own)
    done = any(x.state is State.COMPLETED for x in own)
    if intent.goal == HELD and held:
        # Who works on another scope stays an assignee, whoever's edge was taken over.
        live = [x.holder for x in leases if x.state is State.ACTIVE and x not in own]
        gone = tuple(
            name
            for name in change.edit.remove
            if not any(people.is_mine(name, holder) for holder in live)
        )
        return replace(change, edit=replace(change.edit, remove=gone))
    if intent.goal == RETIRING:
        # The record that was retired is gone: only its operation tells that it was.
        made = ledger is not None and any(map(ledger.header.entry, intent.operations))
        active = [x.holder for x in leases if x.state is State.ACTIVE]
        again = any(people.is_mine(x, holder) for x in change.edit.remove for holder in active)
        return change if made and not again else None
    if intent.goal == ENDED and not held:
        return replace(change, edit=given_back(change.edit, leases, intent.holder))
    if intent.goal in (COMPLETED, PART) and done and not held:
        part = intent.goal == PART
        return replace(change, edit=finished(change.edit, leases, intent.holder, part=part))
    return None


def _located(
    known: TaskList, wanted: Iterable[TaskChange]
) -> tuple[list[TaskChange], list[TaskChange]]:
    # A file may have been renamed meanwhile, or be on another branch.
    files = {t.resource: t.file for t in known.tasks}
    broken = {p.file for p in known.problems}
    here = [replace(c, file=files.get(c.resource, c.file)) for c in wanted]
    away = [c for c in here if c.resource not in files and c.file not in broken]
    return [c for c in here if c not in away], away
