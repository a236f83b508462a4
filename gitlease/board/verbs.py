"""The board: tasks and leases by state, and recent events, as values.

They come from one look at the ledger and the task files; terminal, page and file show the same.
Times are wall-clock milliseconds; texts are printable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from gitlease.kernel.ledger.edges import without_numbers
from gitlease.kernel.ledger.ledger_session import LedgerSession, LedgerView
from gitlease.kernel.ledger.stepping import history_of
from gitlease.kernel.rules.edge import People
from gitlease.kernel.rules.errors import Invalid, clean
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Lease, State, abandoned_at, free_at
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import Setback, Ticket, is_kept
from gitlease.kernel.rules.loss import keeps_task
from gitlease.kernel.rules.moves.operations import TAKEOVER, Event
from gitlease.kernel.rules.moves.tickets import line_for
from gitlease.kernel.rules.resources import WHOLE, Issues, Resource, fold, scopes_overlap
from gitlease.tasks.queue import Entry, QueueContext, WhyNot, setbacks, survey, waiters
from gitlease.verbs import parameters as takes
from gitlease.verbs import sentences, wire
from gitlease.verbs.table import COMMAND, HTTP, LIBRARY, READING_EXITS, Door, Result, verb


class Section(Enum):
    """The state of a task or lease. BLOCKED: another's lease of a path covers a path of the task,
    it is left to those who wait for it, or it failed, and is left alone or needs a person. WAITING:
    its holder ended the lease and kept the task.

    ABANDONED: expired so long ago that it is free.
    """

    HELD = "held"
    BLOCKED = "blocked"
    WAITING = "waiting"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    FREE = "free"


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """A lease, or a task without one. Texts are empty where there is nothing to show.

    ``ends`` is the lease's expiry; ``lapses`` is when an expired one stops blocking others. If it
    is ``assigned``, the task stays its holder's then. ``mine``: the viewer may act on it.
    ``pool``: the pool whose worker has it. ``setback``: it failed, or waits for a person.
    """

    section: Section
    resource: Resource
    name: str
    title: str = ""
    holder: str = ""
    session: str = ""
    host: str = ""
    branch: str = ""
    reason: str = ""
    scope: str = WHOLE
    ends: int | None = None
    lasts: int = 0
    lapses: int | None = None
    assigned: bool = False
    mine: bool = False
    through: str = ""
    waiting: tuple[Ticket, ...] = ()
    waits_for: tuple[str, ...] = ()
    pool: str = ""
    setback: Setback | None = None

    @property
    def key(self) -> str:
        """Identifies the row."""
        return f"{self.resource.key} {fold(self.scope)}"


@dataclass(frozen=True)
class NewsItem:
    """A recent event; ``loss``: somebody lost a lease."""

    at: int
    what: str
    name: str
    text: str
    loss: bool = False

    @property
    def key(self) -> str:
        """Identifies the item."""
        return f"{self.at} {self.what} {self.name}"


@dataclass(frozen=True, kw_only=True)
class BoardView:
    """A board at one moment. ``changes_at`` is when time alone will change it.

    ``trouble`` is why it may be out of date; ``warnings`` are about parts that cannot be read.
    """

    layer: str
    place: str
    revision: int
    rows: tuple[BoardRow, ...]
    news: tuple[NewsItem, ...]
    now: int = field(compare=False)
    changes_at: int | None = None
    trouble: str = ""
    warnings: tuple[str, ...] = ()

    def is_due(self, made: Instant, now: Instant) -> bool:
        """True if time has changed it since it was made, or may have changed the task files."""
        due = self.changes_at is not None and now.wall_ms >= self.changes_at
        return due or made.elapsed_at_most(now) >= FRESH

    def counts(self) -> list[tuple[Section, int]]:
        """The sections with rows, and how many each has."""
        return [(x, n) for x in Section if (n := len(self.section(x)))]

    def pools(self) -> list[str]:
        """The pools at work, each with the tasks of its workers."""
        found: dict[str, list[str]] = {}
        for row in self.section(Section.HELD):
            found.setdefault(row.pool, []).append(row.name)
        return [f"{pool}: {', '.join(names)}" for pool, names in found.items() if pool]

    def section(self, section: Section) -> tuple[BoardRow, ...]:
        """The rows of one section, in order."""
        return tuple(row for row in self.rows if row.section is section)


WORKER = "work-[0-9a-f]{12}"  # the session of a worker
OF_LEASE = ("holder", "session", "host", "branch", "reason")
_HAPPENED = {
    "displaced": "taken over",
    "completed": "done",
    "run_out": "session ended",
    "noted": "note",
    "lapsed": "lapsed",
    "waiting": "joined the wait queue",
    "left": "left the wait queue",
}
_TAKEN = frozenset({"displaced", "revoked", "retired"})  # somebody lost a lease


def plain(text: str) -> str:
    """Others' text as one printable line, which cannot forge or hide anything."""
    return " ".join(clean(text).split())


def happened(event: Event) -> str:
    """An event of the audit trail, in a word or two."""
    if event.kind in TAKEOVER and event.detail:
        return "claimed"
    if keeps_task(event):
        return "kept"
    return _HAPPENED.get(event.kind, event.kind.replace("_", " "))


def by_whom(event: Event) -> str:
    """Former holder, actor and reason: ``from jo@example.com by kim@example.com: "stuck"``."""
    if event.kind in TAKEOVER and event.detail:
        why = f': "{plain(event.reason)}"' if event.reason else ""
        return f"by {plain(event.by)}, {plain(event.detail)}{why}"
    whose = f"from {plain(event.holder or 'nobody')} " if event.kind in _TAKEN else ""
    run = f" (session {plain(event.session)})" if event.session and not whose else ""
    why = plain(event.reason or event.detail or "")
    return f"{whose}by {plain(event.by)}{run}" + (f': "{why}"' if why else "")


@verb(
    "board",
    """Show tasks and leases at a glance: held, waiting, expired, abandoned and free, with holder,
place, reason and time left, those who wait, and recent events.

On a terminal the board is live until Ctrl-C: it counts down and follows the remote like watch, or
with --cached only this clone's own knowledge. It takes no keys; to search, and for the notes and
history of a resource, use --web. --once prints the board and exits. --export prints it as Markdown,
SVG or HTML.

--web opens the board of the gateway (gitlease serve) that serves this clone on this machine in a
browser. The link works once, within a minute. The browser then keeps a cookie for 12 hours that can
only show the board. --host, --port and --repo are those of the gateway.""",
    examples=(
        "gitlease board",
        "gitlease board --once",
        "gitlease board --export svg > board.svg",
        "gitlease board --web",
    ),
    exits=READING_EXITS,
    done="shown",
    reads=True,
    doors=frozenset({COMMAND, LIBRARY, HTTP}),
)
def board_verb(door: Door, *, cached: takes.Cached = False) -> Result:
    look = door.ledger.look(cached=cached)
    warnings = door.ledger.take_warnings()
    board = make_board(door.ledger, look)
    return Result(body=wire.board(board), value=board, warnings=(*warnings, *board.warnings))


FRESH = 5_000  # milliseconds after which task files are read again
NEWS = 12
LOOKED_BACK = 100  # events of the audit trail; most are renewals


def make_board(session: LedgerSession, look: LedgerView, *, trouble: str = "") -> BoardView:
    """The board of a look, as the session's actor sees it, without contacting the remote.

    Raises what reading the task files may.
    """
    rows, times = _Rows(session, look), _times(look)
    now, ledger = look.moment.now.wall_ms, look.head.ledger
    every = tuple(rows.all())
    warnings = (*session.store.warnings, *session.warnings_of(look.head), *rows.unused())
    return BoardView(
        layer=session.layer,
        place=plain(session.store.place),
        revision=ledger.header.revision if ledger else 0,
        rows=every,
        news=_news(session, look, every),
        now=now,
        changes_at=min((at for at in times if at > now), default=None),
        trouble=plain(trouble),
        warnings=tuple(map(plain, warnings)),
    )


# --- rows -------------------------------------------------------------------------------------


class _Rows:
    """The rows of one look."""

    def __init__(self, session: LedgerSession, look: LedgerView) -> None:
        self._look, self._now = look, look.moment.now.wall_ms
        found = session.edges.everywhere()
        # A task whose id reads as an issue would be taken for that issue.
        if look.policy.issues is not Issues.NONE:
            found = without_numbers(found)
        self._people: People = session.edges.rules.people
        around = QueueContext(
            actor=session.actor,
            people=self._people,
            leases=look.leases,
            policy=look.policy,
            moment=look.moment,
            left_to=waiters(session, look),
            setback=setbacks(look),
        )
        self._setback = around.setback
        self._entries = survey(found.tasks, around)
        self._problems = found.problems
        self._tasks = {x.resource.key: x for x in found.tasks}
        live = [x for x in look.leases if x.state is State.ACTIVE]
        self._leases = list(zip(live, session.views_in(look.head, live), strict=True))

    def all(self) -> Iterator[BoardRow]:
        """Sorted by end, the latest first if it has passed; free tasks in queue order."""
        leased = [self._of_lease(lease, view) for lease, view in self._leases]
        # A leased task has its row by the lease.
        taken = {row.resource.key for row in leased}
        rows = leased + [
            row
            for entry in self._entries
            if entry.task.resource.key not in taken and (row := self._of_task(entry)) is not None
        ]
        for section in Section:
            some = [row for row in rows if row.section is section]
            ended = section in (Section.EXPIRED, Section.ABANDONED)
            if section is not Section.FREE:
                some.sort(key=lambda x: (x.ends is None, x.ends or 0, x.name), reverse=ended)
            yield from some

    def unused(self) -> Iterator[str]:
        """A warning about task files that cannot be used, if any."""
        # A board has one line for it; `queue` lists them all.
        for problem in self._problems[:1]:
            more = len(self._problems) - 1
            rest = f"; and {more} more task files cannot be used: see gitlease queue"
            yield f"{problem.message}{rest if more else ''}"

    def _of_lease(self, lease: Lease, view: LeaseView) -> BoardRow:
        task, policy, moment = self._tasks.get(lease.resource.key), self._look.policy, None
        if (setback := self._setback(lease.resource)) and setback.waits and is_kept(lease):
            section = Section.WAITING
        elif view.state == "active":
            section = Section.HELD
        elif view.abandoned:
            section = Section.ABANDONED
        else:
            section, moment = Section.EXPIRED, self._look.moment
        # All workers of a pool name its process, and each has a session of its own.
        machine, pid, _ = lease.place
        is_worker = pid and re.fullmatch(WORKER, lease.session or "")
        texts: dict[str, Any] = {x: plain(getattr(view, x) or "") for x in OF_LEASE}
        return BoardRow(
            **texts,
            section=section,
            resource=lease.resource,
            name=plain(sentences.named(view)),
            title=plain(task.title) if task else "",
            scope=lease.scope,
            ends=lease.expires_at,
            lasts=lease.duration_ms,
            lapses=None if moment is None else free_at(lease, policy, moment),
            assigned=lease.edge_stays,
            mine=view.mine,
            waiting=self._waiting(lease.resource, lease.scope, lease.paths),
            pool=plain(f"pool {pid} of {lease.holder} on {machine}") if is_worker else "",
            setback=setback,
        )

    def _of_task(self, entry: Entry) -> BoardRow | None:
        # A task without a lease: assigned, blocked by the paths of another's lease, or free.
        task, why = entry.task, entry.why_not
        if why in (WhyNot.DONE, WhyNot.STATUS):
            return None
        row = BoardRow(
            section=Section.FREE,
            resource=task.resource,
            name=plain(task.resource.text),
            title=plain(task.title),
            waits_for=tuple(map(plain, entry.waits_for)),
            setback=entry.setback,
        )
        waiting = self._waiting(task.resource, WHOLE, task.paths)
        if task.assigned:
            names = ", ".join(plain(x.known) for x in self._people.others(task.assigned, ""))
            return replace(row, section=Section.HELD, waiting=waiting, holder=names)
        if why is WhyNot.HELD and entry.lease is not None:
            lease = next(x for x, _ in self._leases if x.lease_id == entry.lease.lease_id)
            return replace(
                row,
                section=Section.BLOCKED,
                waiting=waiting,
                holder=plain(lease.holder),
                ends=lease.expires_at,
                lasts=lease.duration_ms,
                through=plain(lease.resource.text),
            )
        blocked = why in (WhyNot.WAITED_FOR, WhyNot.FAILED)
        return replace(row, section=Section.BLOCKED, waiting=waiting) if blocked else row

    def _waiting(
        self, resource: Resource, scope: str, paths: tuple[str, ...]
    ) -> tuple[Ticket, ...]:
        ledger = self._look.head.ledger
        if ledger is None:
            return ()
        try:
            tickets = line_for(ledger, resource, paths, self._now)
        except Invalid:  # a damaged wait queue blocks nobody
            return ()
        # Scopes divide a name: common paths are in the way whatever the scopes.
        return tuple(x for x in tickets if x.resource.is_path or scopes_overlap(x.scope, scope))


def _times(look: LedgerView) -> Iterator[int]:
    for lease in look.leases:
        if lease.state is State.ACTIVE:
            yield lease.expires_at
            yield free_at(lease, look.policy, look.moment)
            if (gone := abandoned_at(lease, look.policy)) is not None:
                # Abandoned is later than that instant, by the smallest step that the clock has.
                yield gone + 1


# --- news -------------------------------------------------------------------------------------

_TOLD = _TAKEN | {
    *("claimed", "released", "unassigned", "completed", "parked", "run_out", "noted"),
}


def _news(
    session: LedgerSession, look: LedgerView, rows: Sequence[BoardRow]
) -> tuple[NewsItem, ...]:
    # Newest first. Lapses are no operations, so they come from the rows; of what was taken
    # over only the event about the former holder is shown.
    found = []
    for event in history_of(session, look.head, None, LOOKED_BACK):
        if event.kind in _TOLD:
            scope = "" if event.scope in (None, WHOLE) else f" (scope {event.scope})"
            name, what = plain(f"{event.resource}{scope}"), happened(event)
            # An event with a detail tells of a claim after a lapse, by which nobody lost a lease.
            loss = event.kind in _TAKEN and not event.detail
            found.append(NewsItem(event.at, what, name, by_whom(event), loss))
    now = look.moment.now.wall_ms
    for row in rows:
        if row.section in (Section.EXPIRED, Section.ABANDONED) and (row.ends or now) < now:
            by = f"by {row.holder}" + (f" (session {row.session})" if row.session else "")
            found.append(NewsItem(row.ends or now, "lost", row.name, by, True))
    return tuple(sorted(found, key=lambda x: x.at, reverse=True)[:NEWS])
