"""What the engine needs of the outside world: what each method promises, and what it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from gitlease.core.edge import EdgeEdit, Task
from gitlease.core.expiry import Sighting
from gitlease.core.frozen import dataclass, field
from gitlease.core.instant import Instant
from gitlease.core.lease import Lease
from gitlease.core.ledger import Fate, Ledger
from gitlease.core.resources.resource import Resource

if TYPE_CHECKING:  # hooks know ports, and have no time for the table of transitions
    from gitlease.core.moves.step_record import Decided
    from gitlease.core.outcome import Event
    from gitlease.core.work_push import WorkPush


_DOING: list[str] = []


@contextmanager
def doing(text: str) -> Iterator[None]:
    """Say what is done while the block runs (``reading task files``), for a face to show it."""
    _DOING.append(text)
    try:
        yield
    finally:
        _DOING.remove(text)


def at_present() -> str | None:
    """The innermost of what is being done, from any thread; None where nothing says so."""
    now = _DOING[-1:]
    return now[0] if now else None


class Clock(Protocol):
    """Both clocks of this machine."""

    def now(self) -> Instant:
        """Read wall and boot clock together."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One known state of a ledger ref: None as ``ledger`` when the ref does not exist.

    ``version`` is the store's opaque name of the state (a commit id; ``""`` for no ref), which a
    swap expects. ``received`` is when it was read. ``seen`` tells when this clone first saw a
    record. ``warnings`` are facts that a person should know of what was read.
    """

    layer: str
    version: str
    ledger: Ledger | None
    received: Instant
    seen: Callable[[Lease], Sighting | None] = lambda _lease: None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """A state of a ledger on the way between two others, with what was said of the step to it."""

    ledger: Ledger
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A decided step of one ledger on ``base``; ``what`` names it for people."""

    base: Snapshot
    decided: Decided
    what: str

    @property
    def ledger(self) -> Ledger:
        return self.decided.applied.ledger

    @property
    def renewal(self) -> bool:
        """Whether history may replace it by the next renewal."""
        return self.decided.applied.only_renews

    @property
    def at(self) -> Instant:
        """The instant at which the decision read the clock."""
        return self.decided.moment.now

    @property
    def operations(self) -> tuple[str, ...]:
        """The ids of what it carries."""
        return tuple(operation.id for operation in self.decided.record.operations)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Changes whose objects are written, ready to be swapped; the same bytes on every try.

    ``replacing`` has the layers whose last renewal would be replaced in history, ``appended`` those
    where it would have been, but for a server that refuses that. ``expected`` has versions of other
    pasts that are to be replaced, by their layers.
    """

    changes: Mapping[str, Change]
    versions: Mapping[str, str]
    replacing: frozenset[str] = frozenset()
    appended: frozenset[str] = frozenset()
    expected: Mapping[str, str] = field(default_factory=dict)

    def replaces(self, layer: str) -> str:
        """The version that the ref of a layer must have."""
        return self.expected.get(layer, self.changes[layer].base.version)


class Cause(Enum):
    """Why a swap was not applied."""

    NONE = "none"
    MOVED = "moved"
    REFUSED = "refused"
    WORK = "work"  # what was to move with it was refused, not the ledger's change
    BUSY = "busy"  # the ref's lock was taken: another push, or one that was killed
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Swapped:
    """The outcome of a swap, decided by reading, with the heads as they are now.

    ``sent`` is False where it is certain that no request for this change, by this try or another,
    left this machine, so that it cannot land later. ``detail`` is what the remote said, without
    secrets, ``said`` the lines that it printed at a clean success, and ``hints`` those that its
    hooks gave with a refusal.
    """

    fate: Fate
    heads: Mapping[str, Snapshot] = field(default_factory=dict)
    cause: Cause = Cause.NONE
    sent: bool = True
    detail: str = ""
    said: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation whose outcome was not known when its command ended.

    ``at`` is the instant of its decision, from which the records count that it wrote of
    ``resources``, whoever finds them in the ledger, and when. ``decision``: history keeps it for
    ever, as no renewal is.
    """

    operations: tuple[str, ...]
    layer: str
    expected: str
    base_revision: int
    version: str
    what: str
    at: Instant | None = None
    resources: tuple[str, ...] = ()
    decision: bool = False


class LedgerStore(Protocol):
    """One place where ledgers live, with a ref for each layer.

    Every method that asks the remote raises Unavailable when it cannot be reached, Denied when it
    refuses, Invalid for what cannot be a ledger, and Rollback for an older or another one. What is
    damaged of this clone's copy is made anew on the way; reading a ledger, and ``prepare`` and
    ``swap``, raise HeadGone where the remote has another state by then: it was lost.
    """

    def known(self, layer: str) -> Snapshot | None:
        """The last known state, asking nobody; None before the first contact."""

    def fetch(self, layer: str, there: str = "") -> Snapshot:
        """The state now. One connection; none if it is ``there``, as a peek has just found it."""

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """The versions at the refs now, of those that are. One connection, no objects."""

    def turn(self, layers: Sequence[str], seconds: float) -> AbstractContextManager[object]:
        """Waits so long at most for others of this clone that change these. It only saves work."""

    def mark(self, layer: str) -> str:
        """A word that differs whenever this clone has come to know another head. It is cheap."""

    def nearby(self, layer: str) -> str:
        """A word that differs when another clone on this machine has ended a lease, if it can tell.

        It is cheap, and worth no belief: who sees it change asks the remote.
        """

    def prepare(self, changes: Sequence[Change]) -> Prepared:
        """Write the objects of one step in each of several ledgers. No connection."""

    def swap(self, prepared: Prepared) -> Swapped:
        """Replace every base by its change, all or none, if each ref is still its base.

        One connection when it is applied cleanly; otherwise the refs are read back.
        """

    def append_only(self, prepared: Prepared) -> Prepared:
        """The same changes as additions to history, for a server that refuses replacements."""

    def confirm(self, layer: str, *, rolled_back: bool = False) -> Snapshot:
        """Accept the ledger that the remote has now as the one of this clone.

        Another past of the same ledger only where it is said to be ``rolled_back``.
        """

    def pending(self, layer: str) -> Iterable[Pending]:
        """Operations of commands that ended without knowing their outcome."""

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        """What became of a pending operation, given the head; forgets it unless undecided."""

    def keep_pending(self, prepared: Prepared) -> None:
        """Remember a change whose outcome this command will not find out any more."""

    def forget_pending(self, prepared: Prepared) -> None:
        """Forget a change whose outcome became known otherwise."""

    def history(self, layer: str, limit: int, *, older: bool = False) -> tuple[Event, ...]:
        """The audit trail of the last known state, newest first; ``older``: see ``deepen``."""

    def deepen(self, layer: str) -> bool:
        """Fetch the history that a first contact left out; False, asking nobody, for none."""

    def steps(self, before: Snapshot, after: Snapshot, limit: int) -> Sequence[LedgerStep]:
        """Every state after one of this clone's up to another, oldest first; nothing where there
        are more than ``limit``, or no way leads there. After no state: the last ``limit`` ones."""

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        """Remember notices as shown in this clone; returns those that had been shown before."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about this store: a local ledger, say."""

    @property
    def place(self) -> str:
        """Where it is, for messages: without secrets."""


class WorkStore(LedgerStore, Protocol):
    """A store whose ledgers lie in the repository of the work: both can move together."""

    def swap_with(self, prepared: Prepared, work: WorkPush | None) -> Swapped:
        """Like ``swap``, with the refs of ``work`` in the same push: all of them, or none.

        Only a clean success of all counts; otherwise both sides are read back.
        """


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """A task file that cannot be used: where, why, and which tasks it may be (folded names).

    ``message`` begins with the file, and its line where there is one. Without ``keys`` it may be
    any task. ``double``: nothing is wrong with it but that another file has the same id.
    """

    file: str
    message: str
    keys: frozenset[str] = frozenset()
    double: bool = False


@dataclass(frozen=True, slots=True)
class TaskList:
    """What the task files say: readable tasks in the order of their files, and the others."""

    tasks: tuple[Task, ...] = ()
    problems: tuple[TaskProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskChange:
    """One task file to be edited; ``message`` is the subject of the commit that records it."""

    resource: Resource
    file: str
    edit: EdgeEdit
    message: str


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one change: whether the file changed, and the commit that records the edge.

    ``problem`` says what could not be done of it, ``""`` where all was.
    """

    change: TaskChange
    changed: bool
    commit: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A change of task files that goes with a step of the ledger, kept until both are made.

    ``goal`` is what the ledger must show for the change to be right: ``held``, ``ended``,
    ``completed`` or ``completed part`` for ``holder``, or ``retired``, by whomever. ``operations``
    are the ids of the step.
    """

    id: str
    holder: str
    goal: str
    operations: tuple[str, ...]
    changes: tuple[TaskChange, ...]
    commit: bool = False
    root: str = ""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last sign of life of a task's assignees: ``at`` in ms, and ``what`` was seen of them.

    ``doubt`` says why this clone may lack a later one, ``""`` where it does not.
    """

    at: int | None = None
    what: str = ""
    doubt: str = ""


LookForLife = Callable[[Task, Sequence[str], bool], LastSeen]
"""Finds the last sign of life on a task of some holders, or of names as its file has them.

With True it asks the remote whether this clone lacks any of the work, and never fails.
"""


class TaskFiles(Protocol):
    """The task files of one work tree, and of any ref of its repository.

    Whatever cannot be used as a task file is a problem that names file and line, never a traceback.
    """

    def exist(self) -> bool:
        """Whether the project has any task file. Parses none."""

    def read(self, ref: str | None = None) -> TaskList:
        """Every task: of the work tree, or of a ref (NotFound where there is no such ref)."""

    def was_moved(self, task: Task, message: str) -> bool:
        """Whether a claim put this task in progress: one made here, or by a commit with a message
        that begins with ``message``. Not where it was so before, and not where git cannot tell.
        """

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        """See that every change could be made safely, and make none. Invalid where not."""

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        """Make the changes in the work tree and, with ``commit``, as one commit of only them.

        What is made already is left: to repeat it is safe. A file that cannot be written is a
        problem in its answer, and does not keep the others from being written.
        """

    def intend(self, intent: Intent) -> None:
        """Remember an intent until it is settled, also when this process is killed."""

    def settled(self, intent: Intent) -> None:
        """Forget an intent."""

    def leave(self, intent: Intent) -> None:
        """Leave an intent behind, for whichever process looks next: this one or another."""

    def at(self, root: str) -> TaskFiles | None:
        """The task files of another work tree of this clone; None where it is gone."""

    def left_behind(self) -> Sequence[Intent]:
        """The intents that were left, or whose processes are no more; each to one at a time."""


class Inbox(Protocol):
    """What work in the background has to say to whom it was done for, at their next call."""

    def leave(self, texts: Sequence[str]) -> None:
        """Leave some lines. It never fails."""

    def take(self) -> tuple[str, ...]:
        """The lines that were left, the oldest first, each only once."""
