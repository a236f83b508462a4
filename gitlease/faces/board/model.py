"""The board's contents: tasks and leases by state, and recent events.

They come from one look at the ledger and the task files; terminal, page and file show the same.
Times are wall-clock milliseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Invalid
from gitlease.core.frozen import replace
from gitlease.core.lease import Lease, State, abandoned_at, free_at, is_abandoned
from gitlease.core.ledger import Note, Ticket
from gitlease.core.moves.tickets import line_for
from gitlease.core.policy import Issues
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, Resource, scopes_overlap
from gitlease.core.view import LeaseView
from gitlease.engine.edges import without_numbers
from gitlease.engine.queue.order import Entry, Surroundings, WhyNot, survey
from gitlease.engine.queue.queueing import waiters
from gitlease.engine.reading import history_of
from gitlease.faces import sentences
from gitlease.faces.board import phrases
from gitlease.faces.board.phrases import plain
from gitlease.faces.board.shapes import BoardRow, BoardView, NewsItem, OpenedResource, Section

if TYPE_CHECKING:
    from gitlease.core.edge import People, Task
    from gitlease.engine.ledger_session import LedgerSession, Look

NEWS = 12
LOOKED_BACK = 100  # events of the audit trail; most are renewals
HISTORY = 20  # events of an opened resource


def make_board(session: LedgerSession, look: Look, *, trouble: str = "") -> BoardView:
    """The board of a look, as the session's actor sees it, without contacting the remote.

    Raises what reading the task files may.
    """
    rows, times = _Rows(session, look), _times(look)
    now, ledger = look.moment.now.wall_ms, look.head.ledger
    every = tuple(rows.all())
    return BoardView(
        layer=session.layer,
        place=plain(session.store.place),
        revision=ledger.header.revision if ledger else 0,
        rows=every,
        news=_news(session, look, every),
        now=now,
        changes_at=min((at for at in times if at > now), default=None),
        trouble=plain(trouble),
        warnings=tuple(map(plain, (*session.warnings_of(look.head), *rows.unused()))),
    )


def matching(board: BoardView, text: str) -> BoardView:
    """The board with only the rows and news that contain every word of a text."""
    wanted = fold(text).split()

    def has(*texts: str) -> bool:
        text = fold(" ".join(texts))
        return all(word in text for word in wanted)

    return replace(
        board,
        rows=tuple(x for x in board.rows if has(x.section.value, *_texts(x))),
        news=tuple(x for x in board.news if has(x.what, x.name, x.text)),
    )


def open_resource(
    session: LedgerSession, look: Look, board: BoardView, resource: Resource
) -> OpenedResource:
    """A resource with its notes and history, without contacting the remote."""
    ledger, notes = look.head.ledger, tuple[Note, ...]()
    with contextlib.suppress(Invalid):
        notes = ledger.notes(resource) if ledger else ()
    return OpenedResource(
        name=plain(resource.text),
        rows=tuple(x for x in board.rows if x.resource == resource),
        notes=notes,
        events=tuple(
            event
            for event in history_of(session, look.head, resource, HISTORY)
            if event.kind != "displaced" or not event.detail  # the claim says it
        ),
    )


# --- rows -------------------------------------------------------------------------------------


class _Rows:
    """The rows of one look."""

    def __init__(self, session: LedgerSession, look: Look) -> None:
        self._look, self._now = look, look.moment.now.wall_ms
        found = session.edges.everywhere()
        if look.policy.issues is not Issues.NONE:
            found = without_numbers(found)
        self._people: People = session.edges.rules.people
        around = Surroundings(
            actor=session.actor,
            people=self._people,
            leases=look.leases,
            policy=look.policy,
            moment=look.moment,
            left_to=waiters(session, look),
        )
        self._entries = survey(found.tasks, around)
        self._problems = found.problems
        self._tasks = {x.resource.key: x for x in found.tasks}
        live = [x for x in look.leases if x.state is State.ACTIVE]
        self._leases = list(zip(live, session.views(look, live), strict=True))

    def all(self) -> Iterator[BoardRow]:
        """Sorted by end, the latest first if it has passed; free tasks in queue order."""
        leased = [self._of_lease(lease, view) for lease, view in self._leases]
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
        for problem in self._problems[:1]:
            more = len(self._problems) - 1
            rest = f"; and {more} more task files cannot be used: see gitlease queue"
            yield f"{problem.message}{rest if more else ''}"

    def _of_lease(self, lease: Lease, view: LeaseView) -> BoardRow:
        task, policy, moment = self._tasks.get(lease.resource.key), self._look.policy, None
        if view.state == "active":
            section = Section.PARKED if view.parked else Section.HELD
        elif is_abandoned(lease, policy, self._look.moment):
            section = Section.ABANDONED
        else:
            section, moment = Section.EXPIRED, self._look.moment
        return BoardRow(
            section=section,
            resource=lease.resource,
            name=plain(sentences.named(view)),
            title=plain(task.title) if task else "",
            holder=plain(view.holder),
            session=plain(view.session or ""),
            host=plain(view.host or ""),
            branch=plain(view.branch or ""),
            reason=plain(view.reason or ""),
            scope=lease.scope,
            ends=lease.expires_at,
            lasts=lease.duration_ms,
            lapses=None if moment is None else free_at(lease, policy, moment),
            assigned=lease.edge_stays,
            mine=view.mine,
            waiting=self._waiting(lease.resource, lease.scope, lease.paths),
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
        )
        waiting = self._waiting(task.resource, WHOLE, task.paths)
        if task.assigned:
            held = replace(row, section=Section.HELD, waiting=waiting)
            return replace(held, holder=", ".join(self._assignees(task)))
        if why is WhyNot.HELD and entry.lease is not None:
            lease = entry.lease
            return replace(
                row,
                section=Section.BLOCKED,
                waiting=waiting,
                holder=plain(lease.holder),
                ends=lease.expires_at,
                lasts=lease.duration_ms,
                through=plain(lease.resource.text),
            )
        if why is WhyNot.WAITED_FOR:
            return replace(row, section=Section.BLOCKED, waiting=waiting)
        return row

    def _assignees(self, task: Task) -> Iterator[str]:
        return (plain(x.known) for x in self._people.others(task.assigned, ""))

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
        return tuple(x for x in tickets if x.resource.is_path or scopes_overlap(x.scope, scope))


def _texts(row: BoardRow) -> tuple[str, ...]:
    where = (row.session, row.host, row.branch)
    return row.name, row.title, row.holder, *where, row.reason, phrases.waiting_words(row.waiting)


def _times(look: Look) -> Iterator[int]:
    for lease in look.leases:
        if lease.state is State.ACTIVE:
            yield lease.expires_at
            yield free_at(lease, look.policy, look.moment)
            if (gone := abandoned_at(lease, look.policy)) is not None:
                yield gone + 1


# --- news -------------------------------------------------------------------------------------

_LOSSES = frozenset({"displaced", "revoked", "retired"})
_TOLD = frozenset({"claimed", "released", "completed", "parked", "run_out", "noted"}) | _LOSSES


def _news(session: LedgerSession, look: Look, rows: Sequence[BoardRow]) -> tuple[NewsItem, ...]:
    # Newest first. Lapses are no operations, so they come from the rows; of a takeover only the
    # event about the former holder is shown.
    found = []
    for event in history_of(session, look.head, None, LOOKED_BACK):
        if event.kind in _TOLD:
            scope = "" if event.scope in (None, WHOLE) else f" (scope {event.scope})"
            name, what = plain(f"{event.resource}{scope}"), phrases.happened(event)
            loss = event.kind in _LOSSES and not event.detail
            found.append(NewsItem(event.at, what, name, phrases.by_whom(event), loss))
    now = look.moment.now.wall_ms
    for row in rows:
        if row.section in (Section.EXPIRED, Section.ABANDONED) and (row.ends or now) < now:
            whose = f" (session {row.session})" if row.session else ""
            found.append(
                NewsItem(row.ends or now, "lost", row.name, f"by {row.holder}{whose}", True)
            )
    return tuple(sorted(found, key=lambda x: x.at, reverse=True)[:NEWS])
