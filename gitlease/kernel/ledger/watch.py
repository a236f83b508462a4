"""Watching: events of leases, reported as they become known.

Two states and two instants are compared, so changes that the clock alone makes (a lease lapses, and
its resource becomes available) are reported like written ones. Whatever came and went in between
two looks is reported from the ledger's history, in its order and with its times.

The remote is looked at often while something happens and less often while nothing does; a lapse is
reported at its instant, but only after a look whether there is a renewal. A remote that cannot be
reached for a while is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from gitlease.kernel.ledger.heads import HeadWatcher, Pace, Polling
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import Snapshot
from gitlease.kernel.rules.errors import GitleaseError, HeadGone, Invalid
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import LONGEST, MS, moment_of
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Lease,
    LeaseKey,
    Moment,
    Policy,
    Standing,
    State,
    free_at,
    same_person,
    standing,
)
from gitlease.kernel.rules.lease_view import LeaseView, view_lease
from gitlease.kernel.rules.ledger import Ledger, Notice
from gitlease.kernel.rules.moves.claiming import rivals_of
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.resources import Resource, fold, scopes_overlap


@dataclass(frozen=True)
class LeaseEvent:
    """One event: ``at`` in wall-clock milliseconds, by its writer's clock.

    ``lease`` is its lease, as it is or last was; an available resource has none. What made a
    resource free for anyone to claim is followed by ``available``, and ``assigned`` comes from
    ``assignments_between`` alone, along with a claim.
    """

    kind: str
    resource: Resource
    scope: str
    at: int
    lease: Lease | None = None


@dataclass(frozen=True)
class LedgerAt:
    """One state of a ledger at one moment; ``ledger`` is None if there is none."""

    ledger: Ledger | None
    moment: Moment

    @property
    def policy(self) -> Policy:
        return self.ledger.header.policy if self.ledger else DEFAULT_POLICY

    def blocks(self, lease: Lease) -> bool:
        """Return whether it keeps others out: not lapsed, or protected by an edge, or completed."""
        if lease.state is State.COMPLETED:
            return self.moment.now.wall_ms < lease.renewed_at + self.policy.keep_completed * MS
        return lease.edge_stays or not self.lapsed(lease)

    def lapsed(self, lease: Lease) -> bool:
        """Return whether anyone may take it by now, edges aside."""
        if lease.state is not State.ACTIVE:
            return False
        return standing(lease, self.policy, self.moment) is Standing.LAPSED

    def blocked(self, resource: Resource, scope: str, paths: tuple[str, ...] = ()) -> bool:
        """Return whether anything stands against a claim by one who holds nothing."""
        if self.ledger is None:
            return False
        try:
            rivals = rivals_of(self.ledger, resource, scope, paths)
        except Invalid:
            return True  # a record that cannot be read keeps everybody out
        # An edge protects a task's name, never its paths.
        return any(self.blocks(x) if x.resource == resource else not self.lapsed(x) for x in rivals)


Part = tuple[Resource, str]
"""A resource and a scope of its work."""


def events_between(
    before: LedgerAt, after: LedgerAt, parts: Sequence[Part] = (), said: Sequence[Event] = ()
) -> list[LeaseEvent]:
    """The events from one state to the next; resources that became available come last.

    ``parts`` leaves out what shares no work with any of them, and tells of each when it becomes
    available; without any of them all is told, of each lease that kept others out. ``said`` is what
    the audit trail has of the step, for its times.
    """
    return _Comparison(before, after, parts, said).events()


def assignments_between(before: LedgerAt, after: LedgerAt, *, holder: str) -> list[LeaseEvent]:
    """The tasks that a person has in the later state by an edge, and had not in the earlier one.

    ``at`` is when the lease was claimed that says so, or renewed where it had no edge till then.
    What a person keeps by an edge while it is claimed anew is not new.
    """
    had, found = _assigned_to(before, holder), list[LeaseEvent]()
    for resource, lease in _assigned_to(after, holder).items():
        if resource not in had:
            same = any(x.lease_id == lease.lease_id for x in _leases(before.ledger, ()))
            at = lease.renewed_at if same else lease.claimed_at
            found.append(_of("assigned", lease, at))
    return sorted(found, key=lambda happening: happening.at)


def _assigned_to(scene: LedgerAt, holder: str) -> dict[Resource, Lease]:
    return {
        lease.resource: lease
        for lease in _leases(scene.ledger, ())
        if lease.edge and lease.state is State.ACTIVE and same_person(lease.holder, holder)
    }


def next_lapse(scene: LedgerAt, parts: Sequence[Part] = ()) -> int | None:
    """The first instant, in wall-clock milliseconds, after which another lease has lapsed."""
    times = [
        free_at(lease, scene.policy, scene.moment)
        for lease in _leases(scene.ledger, parts)
        if lease.state is State.ACTIVE and not scene.lapsed(lease)
    ]
    return min(times, default=None)


def _leases(ledger: Ledger | None, parts: Sequence[Part]) -> Iterator[Lease]:
    if ledger is None:
        return
    if not parts:
        yield from ledger.every_lease()
        return
    seen = set[LeaseKey]()
    for resource, scope in parts:
        for lease in _rivals(ledger, resource, scope):
            if lease.key not in seen:
                seen.add(lease.key)
                yield lease


def _rivals(
    ledger: Ledger, resource: Resource, scope: str, paths: tuple[str, ...] = ()
) -> Iterable[Lease]:
    try:
        return rivals_of(ledger, resource, scope, paths)
    except Invalid:
        return ()  # what cannot be read is no news


class _Comparison:
    def __init__(
        self, before: LedgerAt, after: LedgerAt, parts: Sequence[Part], said: Sequence[Event]
    ) -> None:
        self._before, self._after, self._parts = before, after, parts
        self._told_at = {event.token: event.at for event in said if event.kind == "released"}
        self._old = {x.key: x for x in _leases(before.ledger, parts)}
        self._new = {x.key: x for x in _leases(after.ledger, parts)}

    def events(self) -> list[LeaseEvent]:
        found = [*self._endings(), *self._beginnings(), *self._lapses()]
        # Last, since these have their times from what made them available.
        return found + list(self._openings(found))

    def _endings(self) -> Iterator[LeaseEvent]:
        for key, lease in self._old.items():
            now = self._new.get(key)
            if lease.state is not State.ACTIVE or (now and now.lease_id == lease.lease_id):
                continue
            notice = self._notice(lease)
            if notice is None and self._was_released(lease, now):
                at = self._told_at.get(lease.token, self._after.moment.now.wall_ms)
                yield _of("released", lease, at)
            elif notice is not None and notice.what == "revoked":
                yield _of("revoked", lease, notice.at)
            # What was taken over is told of whoever has it now.

    def _was_released(self, lease: Lease, now: Lease | None) -> bool:
        """Return whether a grant that is there no more was given back, and had not run out."""
        if now is None:
            try:
                if self._after.ledger is not None:
                    self._after.ledger.leases_of(lease.resource)
            except Invalid:
                return False  # a damaged record was not released
            return not self._was_cleared(lease)
        if now.state is not State.ACTIVE or self._before.lapsed(lease):
            return False
        # What an older version parked is resumed by a new grant, and not released before.
        resumed = lease.parked and same_person(lease.holder, now.holder)
        return not resumed and now.claimed_at < lease.expires_at

    def _was_cleared(self, lease: Lease) -> bool:
        """True if it ran out and a later claim of its holder's took its place: that is told."""
        ledger = self._after.ledger
        rivals = _rivals(ledger, lease.resource, lease.scope, lease.paths) if ledger else ()
        return any(
            same_person(x.holder, lease.holder) and x.claimed_at >= lease.expires_at for x in rivals
        )

    def _beginnings(self) -> Iterator[LeaseEvent]:
        for key, lease in self._new.items():
            was = self._old.get(key)
            same = was is not None and was.lease_id == lease.lease_id
            if lease.state is State.COMPLETED:
                if was is None or was.state is not State.COMPLETED or not same:
                    yield _of("completed", lease, lease.renewed_at)
            elif not same:
                taken = self._takes_over(lease, was)
                yield _of("taken_over" if taken else "claimed", lease, lease.claimed_at)
            elif was is not None and was.renewals != lease.renewals:
                yield _of("renewed", lease, lease.renewed_at)

    def _takes_over(self, lease: Lease, was: Lease | None) -> bool:
        """True if a grant displaced another's lease: its holder was told so, or it had run out."""
        active = was is not None and was.state is State.ACTIVE
        if was is not None and active and not same_person(was.holder, lease.holder):
            notice = self._notice(was)
            if notice is not None:
                return notice.what == "taken_over"
            return lease.claimed_at >= was.expires_at
        others = (x for x in self._old.values() if x.state is State.ACTIVE and x is not was)
        notices = (notice for x in others if (notice := self._notice(x)) is not None)
        return any(n.what == "taken_over" and n.at == lease.claimed_at for n in notices)

    def _lapses(self) -> Iterator[LeaseEvent]:
        after = self._after
        for key, lease in self._new.items():
            was = self._old.get(key)
            known = was and was.lease_id == lease.lease_id and self._before.lapsed(was)
            if after.lapsed(lease) and not known:
                yield _of("lapsed", lease, free_at(lease, after.policy, after.moment))

    def _openings(self, found: Sequence[LeaseEvent]) -> Iterator[LeaseEvent]:
        asked: list[tuple[Resource, str, tuple[str, ...]]] = [(r, s, ()) for r, s in self._parts]
        if not asked:
            asked = [
                (x.resource, x.scope, x.paths)
                for x in self._old.values()
                if x.state is State.ACTIVE and self._before.blocks(x)
            ]
        for asked_of in asked:
            if self._before.blocked(*asked_of) and not self._after.blocked(*asked_of):
                resource, scope, _ = asked_of
                ends = (
                    x.at
                    for x in found
                    if x.kind in ("released", "revoked", "lapsed")
                    and x.resource == resource
                    and scopes_overlap(x.scope, scope)
                )
                at = max(ends, default=self._after.moment.now.wall_ms)
                yield LeaseEvent("available", resource, scope, at)

    def _notice(self, lease: Lease) -> Notice | None:
        """The notice of a lease's end to its holder, as long as the ledger has it."""
        ledger, end = self._after.ledger, f"-{lease.lease_id[:8]}"
        notices = () if ledger is None else ledger.losses(lease.holder)
        about = (n for n in notices if fold(n.resource) == fold(lease.resource.text))
        return next((n for n in about if n.id.endswith(end)), None)


def _of(kind: str, lease: Lease, at: int) -> LeaseEvent:
    return LeaseEvent(kind, lease.resource, lease.scope, at, lease)


LOOK = 7.0  # seconds between looks in the first minute, and while something happens
LOOK_MOST = 30.0
SLOWER = 1.3
MINUTE = 60.0
MOST_STEPS = 2_000  # between two looks that are told one by one
ENDED = {"released": State.RELEASED, "revoked": State.REVOKED}


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """Something that happened to a lease, or that made a resource available.

    ``kind`` is ``claimed``, ``renewed``, ``released``, ``completed``, ``lapsed``, ``taken_over``,
    ``revoked``, ``available`` or ``assigned``. ``lease`` is the lease it is about,
    as it is or last was, with its ``holder``, ``session`` and ``token``; what is available is
    nobody's.
    """

    kind: str
    resource: str
    scope: str
    layer: str
    at: datetime
    holder: str | None = None
    session: str | None = None
    token: int | None = None
    lease: LeaseView | None = None


class Watcher:
    """Watches some parts of a layer, or all of it, for one session.

    ``assignments``: only what is newly assigned to the session's holder, wherever it was claimed.
    ``on_trouble`` is called once when the remote stops answering; ``on_begin`` gets the first state
    seen, after which nothing is missed. ``patient``: a remote that is away from the start is waited
    for as well.
    """

    def __init__(
        self,
        session: LedgerSession,
        parts: Sequence[Part] = (),
        *,
        assignments: bool = False,
        patient: bool = False,
        on_trouble: Callable[[GitleaseError], None] = lambda _error: None,
        on_begin: Callable[[Snapshot], None] = lambda _head: None,
    ) -> None:
        self._session, self._parts = session, tuple(parts)
        self._assignments, self._patient, self._on_begin = assignments, patient, on_begin
        self._watcher = HeadWatcher(session)
        self._polling = Polling(
            session.clock,
            Pace(soonest=LOOK, longest=LOOK_MOST, slower=SLOWER, lively=MINUTE),
            self._nap,
            # Watchers that began together must not all ask at the same moment.
            jitter=lambda: session.terms.dice.uniform(0.7, 1.0),
            on_trouble=on_trouble,
        )
        self._head: Snapshot | None = None
        self._scene: LedgerAt | None = None  # what events were last reported from

    @property
    def trouble(self) -> GitleaseError | None:
        """The error while the remote is unreachable."""
        return self._polling.trouble

    def events(self, *, seconds: int | None = None) -> Iterator[WatchEvent]:
        """Events from now on, for at most ``seconds``; without a limit it never ends.

        Raises any error of the first look at the remote, and later those that are not Unavailable;
        if it is patient, only such.
        """
        left, began = float(LONGEST if seconds is None else seconds), self._session.clock.now()
        if not self._patient:
            self._look(is_due=True)
            left -= began.elapsed_at_most(self._session.clock.now()) / MS
        yield from self._polling.run(self._look, at_once=self._patient, seconds=left)

    def _nap(self, seconds: float) -> bool:
        # However soon something lapses, it is never a busy loop.
        return self._watcher.nap(max(0.05, min(seconds, self._until_lapse())))

    def _look(self, is_due: bool) -> list[WatchEvent]:
        before = self._scene
        if before is None:
            # In any case: events are told from a state that the remote has now.
            head = self._watcher.fetch()
            self._head, self._scene = head, self._scene_of(head)
            self._on_begin(head)
            return []
        if is_due:
            self._watcher.look()
        old, new = self._head, self._watcher.refresh() or self._watcher.fetch()
        self._head, after = new, self._scene_of(new)
        try:
            happened = self._on_the_way(before, after, old, new)
        except HeadGone:  # nothing can be compared any more with what this clone has lost
            self._head = self._watcher.fetch()
            happened, after = [], self._scene_of(self._head)
        self._scene = after
        return [self._told(x, after) for x in happened]

    def _on_the_way(
        self, before: LedgerAt, after: LedgerAt, old: Snapshot | None, new: Snapshot
    ) -> list[LeaseEvent]:
        """The events of each step from one state to the other, oldest first."""
        # The clock is looked at only with the last: till then what was live at the last look is.
        moved = old is not None and old.version != new.version
        steps = self._session.store.steps(old, new, MOST_STEPS) if old and moved else ()
        found, said = list[LeaseEvent](), steps[-1].events if steps else ()
        for step in steps[:-1]:
            then = LedgerAt(step.ledger, before.moment)
            found += self._between(before, then, step.events)
            before = then
        return found + self._between(before, after, said)

    def _between(
        self, before: LedgerAt, after: LedgerAt, said: Sequence[Event]
    ) -> list[LeaseEvent]:
        if self._assignments:
            return assignments_between(before, after, holder=self._session.actor.holder)
        return events_between(before, after, self._parts, said)

    def _until_lapse(self) -> float:
        """Seconds until the next lease lapses; while the remote is away it would not be told."""
        lapse = None
        if self._scene is not None and not self.trouble:
            lapse = next_lapse(self._scene, self._parts)
        if lapse is None:
            return float(LONGEST)
        wait = (lapse - self._session.clock.now().wall_ms) / MS
        # In the past: the clocks disagree, and looking more often does not help.
        return wait + 0.01 if wait >= 0 else float(LONGEST)

    def _scene_of(self, head: Snapshot) -> LedgerAt:
        return LedgerAt(head.ledger, self._session.moment(head))

    def _told(self, happening: LeaseEvent, scene: LedgerAt) -> WatchEvent:
        lease, session, view = happening.lease, self._session, None
        if lease is not None:
            view = view_lease(
                replace(lease, state=ENDED.get(happening.kind, lease.state)),
                layer=session.layer,
                actor=session.actor,
                policy=scene.policy,
                moment=scene.moment,
            )
        return WatchEvent(
            kind=happening.kind,
            resource=happening.resource.text,
            scope=happening.scope,
            layer=session.layer,
            at=moment_of(happening.at),
            holder=view.holder if view else None,
            session=view.session if view else None,
            token=view.token if view else None,
            lease=view,
        )
