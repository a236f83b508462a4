"""The interfaces that the ledger needs from the outside: promises and errors of each method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from gitlease.kernel.rules.edge import EdgeEdit, Task
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass, field
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Lease, Moment, Policy, Sighting
from gitlease.kernel.rules.lease_view import LeaseView, view_lease
from gitlease.kernel.rules.ledger import Fate, Ledger
from gitlease.kernel.rules.pace import RemotePace
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.rules.work import WorkPush

if TYPE_CHECKING:
    from gitlease.kernel.rules.moves.operations import Event
    from gitlease.kernel.rules.moves.transitions import Decided


_DOING: list[str] = []


@contextmanager
def doing(text: str) -> Iterator[None]:
    """Name the work in progress while the block runs (``reading task files``), for progress."""
    _DOING.append(text)
    try:
        yield
    finally:
        _DOING.remove(text)


def at_present() -> str | None:
    """The innermost work in progress of any thread, or None."""
    now = _DOING[-1:]  # another thread may empty it meanwhile
    return now[0] if now else None


_SENT: list[str] = []


def note_sent(what: str) -> None:
    """Note that this process is about to send a change to a remote."""
    _SENT[:] = [what]


def may_have_sent() -> bool:
    """Return whether a change may have left this process."""
    return bool(_SENT)


class Clock(Protocol):
    """Both clocks of this machine."""

    def now(self) -> Instant:
        """Read wall and boot clock together."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Asking(Protocol):
    """Requests of one clone's processes to each other, as JSON; it never fails."""

    def ask(self, name: str, what: object) -> None:
        """Ask in the place of what was asked under that name; None: nothing any more."""

    def asked(self) -> Sequence[object]:
        """The requests of living processes, without a connection."""


@dataclass(frozen=True)
class Former:
    """What this clone had seen of a ledger that was restored from an older state.

    ``read`` gives that state, None if it is lost here, and ``seen`` when its records were seen.
    ``settle`` forgets it, once this clone's own leases have been put back.
    """

    read: Callable[[], Ledger | None]
    seen: Callable[[Lease], Sighting | None]
    settle: Callable[[], None]


@dataclass(frozen=True)
class Snapshot:
    """One known state of a ledger; ``ledger`` is None if there is none.

    ``version`` is the store's opaque name of the state (``""`` for none), which a swap expects.
    ``received`` is when it was read, ``seen`` gives this clone's first sighting of a record, and
    ``warnings`` are meant for the user. ``along`` is None where processes share nothing but the
    ledger. ``token_seen`` is the highest fencing token of this ledger that was ever seen, at
    whatever place; 0 if nobody asked for it. ``former`` has what a restored ledger may lack of this
    clone's. ``lost``: there was a ledger in this place, or perhaps there was, whose newest leases
    nobody here knows; ``token_seen`` is of that one then. ``pace`` is what this clone has measured
    of the remote.
    """

    layer: str
    version: str
    ledger: Ledger | None
    received: Instant
    seen: Callable[[Lease], Sighting | None] = lambda _lease: None
    warnings: tuple[str, ...] = ()
    along: Asking | None = None
    token_seen: int = 0
    former: Former | None = None
    lost: bool = False
    pace: RemotePace = RemotePace()

    @property
    def policy(self) -> Policy:
        return self.ledger.header.policy if self.ledger else DEFAULT_POLICY

    def views(self, leases: Iterable[Lease], actor: Actor, moment: Moment) -> tuple[LeaseView, ...]:
        """Leases of this state as an actor sees them at a moment."""
        policy = self.policy
        return tuple(
            view_lease(x, layer=self.layer, actor=actor, policy=policy, moment=moment)
            for x in leases
        )


@dataclass(frozen=True)
class LedgerStep:
    """A state of a ledger between two others, with the audit events of the step to it."""

    ledger: Ledger
    events: tuple[Event, ...]


@dataclass(frozen=True)
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
        """Return whether the next renewal may replace it in history."""
        return self.decided.applied.only_renews

    @property
    def at(self) -> Instant:
        """The instant at which the decision read the clock."""
        return self.decided.moment.now

    @property
    def operations(self) -> tuple[str, ...]:
        """The ids of its operations."""
        return tuple(operation.id for operation in self.decided.record.operations)


@dataclass(frozen=True)
class Prepared:
    """Changes whose objects are written, ready to be swapped; the same bytes on every try.

    ``replacing`` has the layers whose last renewal would be replaced in history, ``appended`` those
    whose server refuses that. ``expected`` has by layer the version of another past to replace.
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
    BUSY = "busy"  # the host says that another push came first, or has the ref's lock
    TROUBLE = "trouble"  # the host failed, and says that it did not take the change
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Swapped:
    """The outcome of a swap, decided by reading, with the heads as they are now.

    ``sent`` is False if it is certain that no request for this change ever left this machine, so
    that it cannot land later. ``detail`` is the remote's message without secrets, ``said`` its
    output after a clean success, and ``hints`` come from its hooks with a refusal. ``locked`` is
    the ref of the work beside the ledger that is locked there. ``unnamed``: the remote did not
    say of the ledger's own ref why this was not done. ``took`` is how many milliseconds it took.
    """

    fate: Fate
    heads: Mapping[str, Snapshot] = field(default_factory=dict)
    cause: Cause = Cause.NONE
    sent: bool = True
    detail: str = ""
    said: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    locked: str = ""
    unnamed: bool = False
    took: int = 0


@dataclass(frozen=True)
class PushRecord:
    """A push of this clone: when it began (wall-clock ms), how many ms it took, and what for.

    ``fate`` is ``landed``, ``lost``, ``refused`` or ``unknown``. ``sent``: with a pack.
    """

    at: int
    took: int
    what: str
    fate: str
    sent: bool


@dataclass(frozen=True)
class Pending:
    """An operation whose outcome was unknown when its command ended.

    ``at`` is the instant of its decision, from which the records that it wrote of ``resources``
    count. ``decision``: history keeps it forever, unlike a renewal.
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
    """One place where ledgers live, one for each layer.

    Every method that asks the remote raises Unavailable when it cannot be reached, Denied when it
    refuses, Invalid for what cannot be a ledger, and Rollback for an older or another one. Damage
    to this clone's copy is repaired on the way; reading a ledger, ``prepare`` and ``swap`` raise
    HeadGone if the remote has moved on by then and the state is lost.
    """

    def known(self, layer: str) -> Snapshot | None:
        """The last known state, without a connection; None before the first contact."""

    def fetch(self, layer: str, there: str = "", *, before_push: bool = False) -> Snapshot:
        """The state now. One connection; none if it is ``there``, the version of a fresh peek.

        ``before_push``: as of ``Storage.fetch``.
        """

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """The versions of the ledgers that exist now. One connection, nothing to be read."""

    def turn(
        self, layers: Sequence[str], seconds: float, on_wait: Callable[[], None]
    ) -> AbstractContextManager[object]:
        """Wait at most so long for other processes of this clone. It only saves work.

        ``on_wait`` is called, perhaps often, while another has it.
        """

    def mark(self, layer: str) -> str:
        """A cheap token that changes whenever this clone learns of another head."""

    def nearby(self, layer: str) -> str:
        """A cheap hint that changes when another clone on this machine ends a lease."""

    def prepare(self, changes: Sequence[Change], *, append: bool = False) -> Prepared:
        """Write the objects of one step in each of several ledgers. No connection.

        ``append``: as additions to history, for a server that refuses replacements.
        """

    def swap(
        self,
        prepared: Prepared,
        work: WorkPush | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        """Replace every base by its change, all or none, if each ref is still at its base.

        ``work``: the refs of the user's work move in the same push. One connection when it is
        applied cleanly; otherwise both sides are read back. ``on_start`` is called once the push
        of the ledger alone has begun, and this thread would only wait for it.
        """

    def confirm(self, layer: str, *, rolled_back: bool = False, another: bool = False) -> Snapshot:
        """Accept the remote's ledger; another past of the known one only if ``rolled_back``, and
        one that the repository's settings do not record only if ``another``."""

    def accept(self, head: Snapshot, *, another: bool) -> None:
        """Use a ledger in this clone beside those of other remotes.

        ``another``: also in the place of the recorded one.
        """

    def doubt(self, head: Snapshot) -> Invalid | None:
        """Why this may not be the ledger that everybody reads, as known without a connection."""

    def admit(self, head: Snapshot, *, grants: bool) -> None:
        """Raise why no step may be written on a head that ``grants`` a lease, or makes a ledger."""

    def pending(self, layer: str) -> Iterable[Pending]:
        """Operations whose commands ended without knowing their outcome."""

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        """Settle a pending operation by the head; forgets it unless undecided."""

    def keep_pending(self, prepared: Prepared) -> None:
        """Remember a change whose outcome this command will not learn."""

    def forget_pending(self, prepared: Prepared) -> None:
        """Forget a change whose outcome became known otherwise."""

    def history(self, layer: str, limit: int, *, older: bool = False) -> tuple[Event, ...]:
        """The audit trail of the last known state, newest first; ``older``: and what the first
        contact left out, if it is needed."""

    def steps(self, before: Snapshot, after: Snapshot, limit: int) -> Sequence[LedgerStep]:
        """Every state after ``before`` up to ``after``, oldest first; none if there are more than
        ``limit`` or no path. If ``before`` has no version: the last ``limit`` ones."""

    def pushes(self, layer: str) -> Sequence[PushRecord]:
        """The last pushes of this clone, oldest first, without a connection; some may be lost."""

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        """Remember notices as shown in this clone; returns those that had been shown before."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about this store: a local ledger, say."""

    @property
    def place(self) -> str:
        """The location for messages, without secrets."""


@dataclass(frozen=True)
class TaskProblem:
    """A task file that cannot be used, with the folded names of the tasks it may be.

    ``message`` begins with the file and, if known, its line. Without ``keys`` it may be any task.
    ``double``: its only fault is that another file has the same id.
    """

    file: str
    message: str
    keys: frozenset[str] = frozenset()
    double: bool = False


@dataclass(frozen=True)
class TaskList:
    """The readable tasks in the order of their files, and the problems of the others.

    ``others`` are files in the place of task files that are no tasks. ``nothing`` says, where there
    is no task, where tasks were looked for and why nothing counts. ``doubts`` say what is unknown
    of the default branch. ``submodules`` lie in the place of task files, or have some: their tasks
    are another ledger's.
    """

    tasks: tuple[Task, ...] = ()
    problems: tuple[TaskProblem, ...] = ()
    others: tuple[str, ...] = ()
    nothing: str = ""
    doubts: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()

    @property
    def has_tasks(self) -> bool:
        """Return whether there is any real task, if only two files with one id."""
        return bool(self.tasks) or any(problem.double for problem in self.problems)


@dataclass(frozen=True)
class TaskChange:
    """One task file to be edited; ``message`` is the subject of the commit that records it, and
    ``trailer`` names the lease that it was claimed with, if any."""

    resource: Resource
    file: str
    edit: EdgeEdit
    message: str
    trailer: str = ""


@dataclass(frozen=True)
class Written:
    """The result of one change: whether the file changed, and the commit that records the edge.

    ``problem`` describes the part that failed, ``""`` if none did. ``in_head``: there was nothing
    to commit, since HEAD has the edge.
    """

    change: TaskChange
    changed: bool
    commit: str | None = None
    problem: str = ""
    in_head: bool = False


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A change of task files that goes with a step of the ledger, kept until both are made.

    ``goal`` is what the ledger must show for the change to be right: ``held``, ``ended``,
    ``completed`` or ``completed part`` for ``holder``, or ``retired`` by anyone. ``operations`` are
    the ids of the step.
    """

    id: str
    holder: str
    goal: str
    operations: tuple[str, ...]
    changes: tuple[TaskChange, ...]
    commit: bool = False
    root: str = ""


INDEX = ":"  # the name of the index among refs


class TaskFiles(Protocol):
    """The task files of one work tree, and of any ref of its repository.

    An unusable task file is a problem that names file and line, never a traceback. ``writes``:
    what is written here is written, as it never is at a gateway.
    """

    writes: bool

    def read(self, ref: str | None = None) -> TaskList:
        """Every task of the work tree, or of a ref. Raises NotFound for an unknown ref."""

    def places(self) -> Sequence[str]:
        """Further places of task files that count, read like refs: the index, HEAD, and the
        default branch of the remote as it was last fetched. Nothing without a work tree."""

    def doubt(self) -> str:
        """Why nothing is known of the default branch; ``""`` if it is known, or there is none."""

    def elsewhere(self, here: TaskList) -> Sequence[tuple[str, TaskList]]:
        """The tasks of these places that the work tree, whose tasks are ``here``, may lack.

        Of the default branch also those that HEAD has otherwise.
        """

    def on_a_branch(self, resource: Resource) -> tuple[str, Task] | None:
        """A task that some branch known here has, and that branch; the newest branches first."""

    def assigned_since(self, task: Task, name: str, ref: str | None) -> int | None:
        """When the file of a task, in the work tree or at a ref, began to name somebody, in ms.

        None if nobody can tell. Without a name: when the file changed last.
        """

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        """Raise Invalid unless every change could be made safely; make none."""

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        """Make the changes in the work tree and, with ``commit``, as one commit of only them.

        Repeating it is safe. A file that cannot be written is a problem in its answer, and the
        others are written all the same.
        """

    def intend(self, intent: Intent) -> None:
        """Remember an intent until it is settled, even if this process is killed."""

    def settled(self, intent: Intent) -> None:
        """Forget an intent."""

    def leave(self, intent: Intent) -> None:
        """Leave an intent behind for the next process that looks."""

    def at(self, root: str) -> TaskFiles | None:
        """The task files of another work tree of this clone; None if it is gone."""

    def left_behind(self) -> Sequence[Intent]:
        """The intents left behind or of ended processes, each given to one caller at a time."""


class Inbox(Protocol):
    """Messages of background work for its owner's next call."""

    def leave(self, texts: Sequence[str]) -> None:
        """Leave some lines; never fails."""

    def take(self) -> tuple[str, ...]:
        """The lines left, oldest first, each only once."""
