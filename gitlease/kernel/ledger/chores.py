"""What is done around every contact of a session with its ledger, beside what was asked for.

Each chore belongs to one part, and ``in_order`` gives a session its chores.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
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
    Inbox,
    Intent,
    LedgerStore,
    Pending,
    Snapshot,
    TaskChange,
    TaskList,
)
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.edge import People
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import Actor, Lease, State, same_person
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import NOTED, Fate, Ledger, Notice, is_of_kept
from gitlease.kernel.rules.moves.operations import TAKEOVER, Acknowledge, Operation, Outcome
from gitlease.kernel.rules.resources import WHOLE

if TYPE_CHECKING:
    from gitlease.kernel.ledger.answers import Answer
    from gitlease.kernel.ledger.ledger_session import LedgerSession


class Chore(Protocol):
    """One thing that is done around the steps and readings of a session.

    A chore that has nothing to do at one of these moments leaves that method as it is here.
    """

    def learn(self, session: LedgerSession) -> None:
        """Learn what this clone lacks before anything is planned or waited for; never fails."""
        return

    def watch(self, session: LedgerSession) -> None:
        """Have the next contact with the remote show by the way what this chore must know."""
        return

    def before(self, session: LedgerSession) -> tuple[str, ...]:
        """Do what must be done before a step is planned, once for each step; return messages."""
        return ()

    def rehearsed(self, session: LedgerSession) -> Iterable[Operation]:
        """The operations that ``before`` carries out, for a step that is only rehearsed."""
        return ()

    def read(self, session: LedgerSession, head: Snapshot) -> tuple[str, ...]:
        """Do what a state shows that was fetched to be read; return messages."""
        return ()

    def after(self, session: LedgerSession, head: Snapshot | None) -> tuple[str, ...]:
        """Messages once a step was carried out or refused, with the state as known then."""
        return ()

    def has_landed(self, session: LedgerSession) -> bool:
        """Tell whether the last contact may have shown that work of the caller has landed."""
        return False

    def landed(
        self, session: LedgerSession, leases: Sequence[Lease], *, ended: str | None = None
    ) -> Answer | None:
        """End those of the caller's leases whose work has landed; None if none has.

        The run of the session ``ended`` is over.
        """
        return None

    def remarks(self, session: LedgerSession, leases: Sequence[Lease]) -> tuple[str, ...]:
        """Describe what is known of others' leases that are in the caller's way; never fails."""
        return ()


def in_order(
    main_branch: Chore | None = None,
    dead_runs: Chore | None = None,
    landed_tasks: Chore | None = None,
) -> tuple[Chore, ...]:
    """The chores of a session. Each of the moments calls them in this order.

    1. The default branch, of which a clone learns what it lacks: all others may ask about tasks.
    2. What became of open changes: it asks the ledger only if there are some, and what still may
       land after that decides which edits are finished.
    3. Edits of killed commands, before anything is planned on these files.
    4. Dead runs, which only a clone has: a claim of theirs that may still land is open, and the
       leases that they lose are free to the step that follows.
    5. Landed tasks, which are judged once their edges are settled.
    """
    chores = main_branch, OpenChanges(), InterruptedEdits(), dead_runs, landed_tasks
    return tuple(chore for chore in chores if chore is not None)


def remarks(session: LedgerSession, leases: Sequence[Lease]) -> tuple[str, ...]:
    """Describe what is known of others' leases that are in the caller's way; never fails."""
    return tuple(text for chore in session.chores for text in chore.remarks(session, leases))


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

    messages: tuple[str, ...] = ()
    open: tuple[Pending, ...] = ()


def settle(store: LedgerStore, waiting: Iterable[Pending], head: Snapshot) -> Settled:
    """Settle the changes that a head decides."""
    messages, still = [], []
    for pending in list(waiting):
        became = store.settle(pending, head)
        if became is Fate.UNDECIDED:
            still.append(pending)
        else:
            messages.append(_became(pending, became))
    return Settled(tuple(messages), tuple(still))


def pending_messages(
    store: LedgerStore, head: Snapshot, waiting: Iterable[Pending] | None = None
) -> tuple[str, ...]:
    """Messages about the changes that a head decides; by default about all open ones.

    One that may still land is reported once in this clone.
    """
    waiting = tuple(store.pending(head.layer) if waiting is None else waiting)
    if not waiting:
        return ()
    settled = settle(store, waiting, head)
    still = {x.operations[0]: x for x in settled.open}
    before = store.shown(head.layer, list(still)) if still else frozenset()
    undecided = (_became(x, Fate.UNDECIDED) for key, x in still.items() if key not in before)
    return (*settled.messages, *undecided)


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
        return settled.messages

    def read(self, session: LedgerSession, head: Snapshot) -> tuple[str, ...]:
        return pending_messages(session.store, head)

    def after(self, session: LedgerSession, head: Snapshot | None) -> tuple[str, ...]:
        # Only those of before: what became of the step itself, its answer or refusal says.
        open_before, self._open = self._open, ()
        if head is None or not open_before:
            return ()
        return pending_messages(session.store, head, open_before)


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
        messages: list[str] = []
        head = head or store.fetch(session.layer)
        open_still = {op for p in store.pending(session.layer) for op in p.operations}
        for intent in left:
            # What may still land is neither finished nor given up.
            if open_still.intersection(intent.operations):
                files.leave(intent)
            else:
                messages += finish_or_forget(session.edges, intent, head.ledger)
        return tuple(messages)


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
    messages = [f"an interrupted command is not finished yet: {text}" for text in problems]
    return tuple(messages) + tuple(
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


# --- messages to a person -------------------------------------------------------------------------

_SPOKE = "session"  # begins an entry of this clone's memory: a session, and its holder


def _way_back(holder: str) -> str:
    """The command with which a session goes on as the holder that it was."""
    return f"git config user.email {shlex.quote(holder)}"


class Mailbox:
    """What a session's person must be told beside the answer: losses, notes, and the inbox."""

    def __init__(self, session: LedgerSession, inbox: Inbox | None) -> None:
        """Only a clone has an ``inbox``, and remembers as whom its sessions speak."""
        self._session, self._inbox = session, inbox
        self._keeps_holders = self._remembers_holders = inbox is not None

    def leave(self, texts: Sequence[str]) -> None:
        """Leave some lines for the person's next call."""
        if self._inbox is not None:
            self._inbox.leave(texts)

    def take(self) -> tuple[str, ...]:
        """The lines left, oldest first, each only once."""
        return () if self._inbox is None else self._inbox.take()

    def messages(self, head: Snapshot | None) -> tuple[str, ...]:
        """Notices about this holder's lost leases, shown once in this clone."""
        # A dry run marks nothing as shown.
        if self._session.is_dry:
            return ()
        session, unread = self._session, list[Notice]()
        notices = self._notices(head)
        if notices:
            unread = unread_notices(session.store, session.layer, notices, session.actor)
        others = self._leases_of_other_identity(head)
        return (*others, *(describe(notice) for notice in unread), *self.take())

    def acknowledgement(self, head: Snapshot | None) -> list[Operation]:
        """The operation that marks as read what a state has for this run."""
        actor = self._session.actor
        ids = tuple(n.id for n in self._notices(head) if is_to(n, actor))
        return [Acknowledge(id=fresh_id(), actor=actor, notices=ids)] if ids else []

    def _notices(self, head: Snapshot | None) -> Sequence[Notice]:
        holder = self._session.actor.holder
        return head.ledger.notices(holder) if head and head.ledger else ()

    def other_identity(self) -> tuple[str, ...]:
        """The same warning as in every answer, by this clone's copy: once for each session."""
        if not self._other_holders():  # without reading the ledger
            return ()
        return self._leases_of_other_identity(self._session.store.known(self._session.layer))

    def way_back_to(self, view: LeaseView) -> str:
        """The command that makes a lease the caller's again, if this session holds it as another.

        Waiting does not help then: the session would wait for itself. ``""`` for other leases.
        """
        same = view.layer == self._session.layer and view.session == self._session.actor.session
        others = self._other_holders() if same and view.state == State.ACTIVE.value else ()
        return next((_way_back(x) for x in others if same_person(x, view.holder)), "")

    def _other_holders(self) -> list[str]:
        actor = self._session.actor
        if not self._keeps_holders or actor.session is None:
            return []
        before = f"{_SPOKE} {actor.session} as "
        holders = {x.removeprefix(before) for x in self._spoken() if x.startswith(before)}
        return sorted(x for x in holders if not same_person(x, actor.holder))

    def _leases_of_other_identity(self, head: Snapshot | None) -> tuple[str, ...]:
        """Say once that this session holds leases as another holder, as it spoke here before."""
        actor, name = self._session.actor, self._session.actor.session
        if not self._remembers_holders or name is None or head is None or head.ledger is None:
            return ()
        self._remembers_holders = False
        now, messages = self._session.clock.now().wall_ms, list[str]()
        for holder in self._other_holders():
            own = head.ledger.live(holder)[0].of_person(holder)
            live = (x for x in own if x.session == name and x.expires_at > now)
            if names := ", ".join(dict.fromkeys(x.resource.text for x in live)):
                back = _way_back(holder)
                messages.append(
                    f"session {name} holds {names} as {holder}, and user.email is "
                    f"{actor.holder or 'unset'} now; to go on with that: {back}"
                )
        return tuple(messages)

    def _spoken(self) -> frozenset[str]:
        return self._session.store.shown(self._session.layer, ())

    def remember_holder(self, outcomes: Sequence[Outcome | GitleaseError]) -> None:
        """Remember in this clone as whom its session holds leases."""
        actor = self._session.actor
        if actor.session is None or not self._keeps_holders or self._session.is_dry:
            return
        leases = (x for outcome in outcomes if isinstance(outcome, Outcome) for x in outcome.leases)
        if any(x.session == actor.session and x.same_holder(actor) for x in leases):
            self._session.store.shown(
                self._session.layer, [f"{_SPOKE} {actor.session} as {actor.holder}"]
            )


NOTICES_BACK = 200  # events
CLAIMED = "claimed after its lapse"


def unread_notices(
    store: LedgerStore, layer: str, notices: Sequence[Notice], actor: Actor
) -> list[Notice]:
    """The notices that this run has not seen in this clone; marks them as shown.

    A notice about another run of the same person stays unread for that run, and is shown to that
    run alone if the person caused it, or if it is a note.
    """
    run = f" to {actor.session}" if actor.session else ""
    keys = {
        n.id + run if is_to(n, actor) else f"{n.id} of another run": n
        for n in notices
        if is_to(n, actor) or not (n.what == NOTED or same_person(n.by, n.to))
    }
    if not keys:
        return []
    before = store.shown(layer, list(keys))
    unread = [n for key, n in keys.items() if key not in before]
    return [replace(n, what=CLAIMED) if _is_claim(store, layer, n) else n for n in unread]


def _is_claim(store: LedgerStore, layer: str, notice: Notice) -> bool:
    # A ledger tells of a claim after a lapse as of a deliberate one, which always has a reason.
    if notice.what != TAKEOVER[0] or notice.reason is None:
        return notice.what == TAKEOVER[0]
    operation = notice.id.partition("-")[0]
    events = store.history(layer, NOTICES_BACK)
    return any(e.operation == operation and e.detail for e in events if e.kind in TAKEOVER)


def is_to(notice: Notice, actor: Actor) -> bool:
    """Return whether it is about this run or the person, not another run."""
    return notice.session in (None, actor.session)


def describe(notice: Notice) -> str:
    """A notice as one line."""
    scope = "" if notice.scope == WHOLE else f" (scope {notice.scope})"
    session = f" (session {notice.session})" if notice.session else ""
    why = f': "{notice.reason}"' if notice.reason else ""
    if notice.what == NOTED:
        more = f" (in full: show {notice.resource})" if why.endswith('…"') else ""
        return f"note on {notice.resource}{scope} by {notice.by}{why}{more}"
    if notice.what == CLAIMED:
        return (
            f"{notice.by} claimed {notice.resource}{scope}, after your lease{session} lapsed{why}"
        )
    done = "kept for later" if is_of_kept(notice) else _DONE.get(notice.what, notice.what)
    return f"your claim of {notice.resource}{scope}{session} was {done} by {notice.by}{why}"


_DONE = {
    "taken_over": "taken over",
    "replaced": "replaced, after it had lapsed,",
    "run_out": "ended with its session",
}
