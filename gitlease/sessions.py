"""What a run leaves behind when it stops: leases that are parked, and the end of its session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gitlease.answers import Answer, several
from gitlease.domain.errors import GitleaseError, Invalid, UsageError
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.lapse import holder_has
from gitlease.domain.lease import Lease, State
from gitlease.domain.operations import EndSession, Grant, Park
from gitlease.domain.parking import PARKED, RELEASED
from gitlease.domain.resource import Resource
from gitlease.domain.view import LeaseView
from gitlease.edges import Planned
from gitlease.intents import ENDED
from gitlease.reading import Look
from gitlease.stepping import LeaseSteps
from gitlease.swapping import fresh_id

AT_ONCE = 128  # leases that one step ends: the audit trail has a line for each


@dataclass(frozen=True, slots=True)
class OwnSession:
    """One run of the caller's, with its live leases. ``current``: it is the caller's own.

    ``since`` is when it got the oldest of them, and ``expires_at`` when the first of them ends.
    """

    session: str
    leases: tuple[LeaseView, ...]
    current: bool

    @property
    def since(self) -> datetime:
        return min(view.claimed_at for view in self.leases)

    @property
    def expires_at(self) -> datetime:
        return min(view.expires_at for view in self.leases)


@dataclass(frozen=True, slots=True)
class SessionsReading:
    """The runs of the caller's that hold anything, by their names."""

    sessions: tuple[OwnSession, ...] = ()
    warnings: tuple[str, ...] = ()


class SessionSteps(LeaseSteps):
    """The verbs ``park``, ``session end`` and ``session list``."""

    def park(
        self,
        resources: Sequence[Resource],
        *,
        seconds: int | None = None,
        scope: str | None = None,
        reason: str | None = None,
        note: str | None = None,
    ) -> Answer:
        """Keep one's own live leases of these resources for a later session; all or none.

        ``seconds`` are capped to the policy's ``park_max``; None: as long as that. Raises
        LeaseLost, NotHolder, and PolicyRefused where nothing may be parked.
        """
        operations = [
            Park(
                id=fresh_id(),
                actor=self.actor,
                resource=resource,
                seconds=seconds,
                scope=scope,
                reason=reason,
                note=note,
            )
            for resource in several(resources)
        ]
        return self._change("park", operations)

    def end_session(
        self,
        session: str | None = None,
        *,
        below: bool = False,
        known: bool = False,
        park: bool = False,
        seconds: int | None = None,
        note: str | None = None,
        commit: bool | None = None,
    ) -> Answer:
        """Release, or park, everything that is bound to a session of the caller's; None: its own.

        One push, and another for each further ``AT_ONCE`` leases; none where nothing is held, which
        is no error. ``below``: of the sessions named ``SESSION/…`` too, which work for it.
        ``known``: what this clone knows of is enough, and the remote is not asked for more. What
        cannot be ended, since its task file cannot be edited, is among ``refused``. Raises
        UsageError where there is no session.
        """
        name = self.actor.session if session is None else session
        if name is None:
            raise UsageError(
                "there is no session here to end",
                hints=("name one; `session list` shows those of yours that hold anything",),
            )
        end = EndSession(
            id=fresh_id(), actor=self.actor, grants=(), park=park, seconds=seconds, note=note
        )
        done = Answer(status=PARKED if park else RELEASED, changed=False)
        tried: set[str] = set()
        self.mended(self.settle_first)
        look, fresh = self.mended(self.known_look), known
        while True:
            found = () if look is None else _bound(look, name, below=below, live=park)
            left = [x for x in found if self._is_own(x) and x.lease_id not in tried][:AT_ONCE]
            if left:
                tried |= {x.lease_id for x in left}
                done = _joined(done, self._end(replace(end, id=fresh_id()), left, commit))
                look = self.mended(self.known_look)
            elif fresh:
                return done
            elif not tried:  # nothing is held is never said from old knowledge
                look = self.look()
                done = replace(done, warnings=done.warnings + look.warnings)
            fresh = True

    def sessions(self, *, cached: bool = False) -> SessionsReading:
        """The sessions of this person that have live leases."""
        look = self.look(cached=cached)
        own = [x for x in look.leases if x.session is not None and self._is_own(x)]
        found: dict[str, list[LeaseView]] = {}
        for view in self.views(look, own):
            if view.state == State.ACTIVE.value and view.session is not None:
                found.setdefault(view.session, []).append(view)
        current = self.actor.session
        sessions = (OwnSession(name, tuple(found[name]), name == current) for name in sorted(found))
        return SessionsReading(tuple(sessions), look.warnings)

    # --- how ----------------------------------------------------------------------------------

    def _is_own(self, lease: Lease) -> bool:
        return lease.state is State.ACTIVE and lease.same_holder(self.actor)

    def _end(self, end: EndSession, leases: Sequence[Lease], commit: bool | None) -> Answer:
        """One step: the leases, and the edges of those that are tasks, unless they are parked."""
        if end.park:
            return self._change("session end", [replace(end, grants=_grants(leases))])
        planned, refused = self._plans([x.resource for x in leases], commit)
        whole = {p.resource for p in planned}
        grants = _grants([x for x in leases if x.resource in whole])
        if not grants:
            return Answer(status=RELEASED, refused=refused, changed=False)
        ops = [replace(end, grants=grants)]
        answer = self._together(
            "session end", ops, planned, goal=ENDED, commit=commit, checked=True
        )
        return replace(answer, refused=refused + answer.refused)

    def _plans(
        self, resources: Sequence[Resource], commit: bool | None
    ) -> tuple[list[Planned], tuple[GitleaseError, ...]]:
        """What the end means for the task files, and what speaks against it: each by itself."""
        wanted = list(dict.fromkeys(resources))
        try:
            return self._checked_plans(wanted, commit), ()
        except Invalid:
            planned: list[Planned] = []
            refused: list[GitleaseError] = []
        for resource in wanted:
            try:
                planned += self._checked_plans([resource], commit)
            except Invalid as error:
                error.resource = error.resource or resource.text
                refused.append(error)
        return planned, tuple(refused)

    def _checked_plans(self, resources: Sequence[Resource], commit: bool | None) -> list[Planned]:
        planned = self.edges.plan_end(resources)
        self.edges.check(planned, commit=self.recorded(commit))
        return planned


def _bound(look: Look, session: str, *, below: bool, live: bool) -> list[Lease]:
    """The records of a session, whoever's; only ``live`` ones where the others stay."""
    return [
        x
        for x in look.leases
        if x.session is not None
        and (x.session == session or (below and x.session.startswith(f"{session}/")))
        and (not live or holder_has(x, look.moment))
    ]


def _grants(leases: Sequence[Lease]) -> tuple[Grant, ...]:
    return tuple(Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in leases)


def _joined(one: Answer, other: Answer) -> Answer:
    """Both as one answer: several steps of one command."""
    return replace(
        other,
        leases=one.leases + other.leases,
        edge=other.edge if one.edge == "none" else one.edge,
        written=one.written + other.written,
        refused=one.refused + other.refused,
        capped_to_max=one.capped_to_max or other.capped_to_max,
        changed=one.changed or other.changed,
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )
