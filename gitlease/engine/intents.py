"""Task file edits that follow a step of the ledger, and their completion after a kill.

An intent is remembered before the ledger is changed, and forgotten when the files are written. The
next command finishes or forgets one that a killed command left behind, depending on the ledger, so
that a lease and its edge never disagree for longer than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gitlease.core.edge import EdgeEdit, People, printable
from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import replace
from gitlease.core.lease import Lease, State, same_person
from gitlease.core.ledger import Ledger
from gitlease.core.moves.operations import (
    Bind,
    Claim,
    Complete,
    EndSession,
    Operation,
    Outcome,
    Pick,
    Retire,
)
from gitlease.core.resources.resource import WHOLE
from gitlease.engine.edges import Edges, Planned, changes_of
from gitlease.engine.ports import Intent, TaskChange, TaskList, Written

# Goals of an intent.
HELD, ENDED, COMPLETED, RETIRED = "held", "ended", "completed", "retired"
PART = "completed part"  # of a task, which is done with the last of several


class Intents:
    """The changes of task files that go with steps of one ledger."""

    def __init__(self, edges: Edges) -> None:
        self._files, self._people = edges.files, edges.rules.people
        self._holder = edges.holder

    def begin(
        self, planned: Iterable[Planned], *, goal: str, operations: Sequence[str], commit: bool
    ) -> Intent | None:
        """Remember the planned edits; None if there are none. Raises Invalid."""
        changes = tuple(changes_of(planned))
        if not changes:
            return None
        intent = Intent(
            id=operations[0],
            holder=self._holder,
            goal=goal,
            operations=tuple(operations),
            changes=changes,
            commit=commit,
        )
        self._files.intend(intent)
        return intent

    def forget(self, intent: Intent | None) -> None:
        """Drop an intent whose step the ledger refused."""
        if intent is not None:
            self._files.settled(intent)

    def fulfil(
        self, intent: Intent | None, planned: Iterable[Planned], *, commit: bool
    ) -> tuple[tuple[Written, ...], tuple[str, ...]]:
        """Write the decided edits; failures are returned as warnings, and tried again later."""
        if intent is None:
            return (), ()
        try:
            written = self._files.write(changes_of(planned), commit=commit)
        except GitleaseError as error:
            written, problems = (), [error.message]
        else:
            problems = [f"{w.change.file}: {w.problem}" for w in written if w.problem]
        if not problems:
            self._files.settled(intent)
            return written, ()
        # The ledger has changed, and that must be said: the intent stays for the next command.
        self._files.leave(intent)
        said = "the ledger has the change, but the task file could not be updated"
        return written, tuple(f"{said}: {problem}" for problem in problems)

    def left_behind(self) -> Sequence[Intent]:
        """The intents of killed commands, and those that could not be written so far."""
        return self._files.left_behind()

    def leave(self, intent: Intent | None) -> None:
        """Leave it to a later command, while the outcome of its step is unknown."""
        if intent is not None:
            self._files.leave(intent)

    def repair(self, intent: Intent, ledger: Ledger | None) -> tuple[str, ...]:
        """Finish the edits of a killed command if the ledger has its step; returns warnings."""
        files = self._files.at(intent.root)
        confirmed = (self._confirmed_part(intent, x, ledger) for x in intent.changes)
        wanted = [change for change in confirmed if change is not None]
        if files is None or not wanted:
            self._files.settled(intent)
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
            self._files.leave(intent)
        else:
            self._files.settled(intent)
        said = [f"an interrupted command is not finished yet: {text}" for text in problems]
        return tuple(said) + tuple(
            f"finished an interrupted command: {w.change.message}, in {w.change.file}"
            for w in written
            if (w.changed or w.commit) and not w.problem
        )

    def _confirmed_part(
        self, intent: Intent, change: TaskChange, ledger: Ledger | None
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
                if not any(self._people.is_mine(name, holder) for holder in live)
            )
            return replace(change, edit=replace(change.edit, remove=gone))
        if intent.goal == RETIRED:
            made = ledger is not None and any(map(ledger.header.entry, intent.operations))
            return change if made and not self._claimed_again(change, leases) else None
        if intent.goal == ENDED and not held:
            return replace(change, edit=given_back(change.edit, leases, intent.holder))
        if intent.goal in (COMPLETED, PART) and done and not held:
            part = intent.goal == PART
            return replace(change, edit=finished(change.edit, leases, intent.holder, part=part))
        return None

    def _claimed_again(self, change: TaskChange, leases: Iterable[Lease]) -> bool:
        active = [x.holder for x in leases if x.state is State.ACTIVE]
        names = change.edit.remove
        return any(self._people.is_mine(name, holder) for name in names for holder in active)


def matched(
    operations: Sequence[Operation], planned: Sequence[Planned], outcomes: Mapping[str, Outcome]
) -> Iterator[tuple[Operation, Planned]]:
    """Pair each operation with the plans that took effect.

    For a Pick, the task picked; for the end of a session, its own leases; for a retirement, the
    tasks that were retired.
    """
    if isinstance(operations[0], Pick):
        picked = outcomes[operations[0].id].leases[0].resource
        yield operations[0], next(p for p in planned if p.resource == picked)
    elif isinstance(operations[0], EndSession):
        ended = {lease.resource for lease in outcomes[operations[0].id].leases}
        yield from ((operations[0], p) for p in planned if p.resource in ended)
    elif isinstance(operations[0], Retire):
        retired = set(outcomes[operations[0].id].retired)
        yield from ((operations[0], p) for p in planned if p.resource in retired)
    else:
        about_files = (op for op in operations if not isinstance(op, Bind))
        yield from zip(about_files, planned, strict=True)


def decided(
    planned: Planned, op: Operation, outcome: Outcome, ledger: Ledger, people: People, layer: str
) -> Planned:
    """The plan adjusted to the ledger's decision: whose edges go, and whether the caller's does."""
    edit = planned.edit
    if isinstance(op, Retire):
        return planned
    if isinstance(op, Claim | Pick):
        # Edges of others that stay although the caller holds the lease: then none is added.
        add = None if outcome.assigned else edit.add
        gone = (*outcome.unassigned, *planned.outdated)
        planned = replace(planned, edit=replace(edit, remove=gone, add=add))
        if planned.task is None:
            return planned
        from gitlease.core.trailers import trailer

        mine = (trailer(x, layer) for x in outcome.leases if x.resource == planned.resource)
        return replace(planned, trailer=next(mine, ""))
    leases = ledger.leases_of(planned.resource) if planned.task else []
    if any(x.state is State.ACTIVE and x.edge and x.same_holder(op.actor) for x in leases):
        return replace(planned, edit=EdgeEdit())  # another scope is held: still one's work
    # A name that stands for several people stays with whoever of them is at work.
    live = [x.holder for x in leases if x.state is State.ACTIVE]
    gone = tuple(n for n in edit.remove if not any(people.is_mine(n, who) for who in live))
    edit = replace(edit, remove=gone)
    if isinstance(op, Complete):
        part = op.scope not in (None, WHOLE)
        return replace(planned, edit=finished(edit, leases, op.actor.holder, part=part))
    return replace(planned, edit=given_back(edit, leases, op.actor.holder))


def left_to_others(planned: Sequence[Planned], outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Warnings about files that name others although the caller holds the lease."""
    files = {p.resource: p.task.file for p in planned if p.task}
    return tuple(
        f"{files.get(lease.resource, lease.resource)} is assigned to "
        f"{', '.join(map(printable, o.assigned))}, and stays so"
        for o in outcomes
        if o.assigned
        for lease in o.leases[:1]
    )


def edge_word(planned: Sequence[Planned], written: Sequence[Written]) -> str:
    """``added``, ``removed``, ``kept`` or ``none``; the first that applies to any plan."""
    changed = {w.change.file for w in written if w.changed}
    words = {_edge_word(p, changed) for p in planned if p.task is not None}
    return next((w for w in ("added", "removed", "kept") if w in words), "none")


def _edge_word(planned: Planned, changed: set[str]) -> str:
    edit, wrote = planned.edit, planned.task is not None and planned.task.file in changed
    if edit.add is not None:
        if wrote and not planned.mine:
            return "added"
        return "kept" if planned.mine else "none"
    if planned.mine and set(planned.mine) <= set(edit.remove):
        return "removed" if wrote else "none"
    return "kept" if planned.mine else "none"


def finished(
    edit: EdgeEdit, leases: Sequence[Lease], holder: str, *, part: bool = False
) -> EdgeEdit:
    """The edit for a completed lease; the status stays while others work on the task.

    A ``part`` finishes the task if it is the last of several that were claimed.
    """
    others = any(x.state is State.ACTIVE and not same_person(x.holder, holder) for x in leases)
    only = part and sum(x.state is State.COMPLETED for x in leases) < 2
    return replace(edit, status=None) if others or only else edit


def given_back(edit: EdgeEdit, leases: Sequence[Lease], holder: str) -> EdgeEdit:
    """The edit for a released lease; the status stays if a part of the task is finished."""
    some = any(x.state is State.COMPLETED for x in leases)
    return replace(edit, status=None) if some else finished(edit, leases, holder)


def _located(
    known: TaskList, wanted: Iterable[TaskChange]
) -> tuple[list[TaskChange], list[TaskChange]]:
    # A file may have been renamed meanwhile, or be on another branch.
    files = {t.resource: t.file for t in known.tasks}
    broken = {p.file for p in known.problems}
    here = [replace(c, file=files.get(c.resource, c.file)) for c in wanted]
    away = [c for c in here if c.resource not in files and c.file not in broken]
    return [c for c in here if c not in away], away
