"""The dead runs of this clone, and ending what they hold, before each step (see ``DeadRun``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.moves.operations import Operation, Outcome, RunOut, Unbind, grant_of

if TYPE_CHECKING:
    from gitlease.kernel.rules.moves.operations import Grant

Elsewhere = Callable[[], Sequence[LedgerSession]]


def dead_runs_of(session: LedgerSession, runs: Runs) -> Iterator[tuple[DeadRun, list[Operation]]]:
    """The dead runs of this clone, and what lets go of all that they were granted or bound."""
    for dead in runs.dead(session.layer, session.actor):
        actor, ends = replace(session.actor, session=dead.session), list[Operation]()
        if dead.may_outlive:
            if not _has_live(session, dead):
                yield dead, []
            continue
        known = {grant.lease_id for grant in (*dead.granted, *dead.bound)}
        granted, bound = dead.granted, dead.bound
        if dead.shares:
            # What a nested run works under, or its command claimed, stays held. The record
            # stays as well, so that the rest ends once that run has.
            mine = session.in_session(dead.session)
            kept = {x.lease_id for x in session.caller.of_live_runs(mine)}
            left = {x.lease_id for x in mine} - kept
            granted = tuple(x for x in granted if x.lease_id in left)
            bound = tuple(x for x in bound if x.lease_id in left)
            if not granted and not bound:
                continue
        # What the command of a dead run claimed in its session is nobody's any more.
        ends_all = dead.alone and not dead.shares
        below = session.in_session(dead.session, but=known) if ends_all else ()
        if own := (*granted, *map(grant_of, below)):
            ends.append(RunOut(id=fresh_id(), actor=actor, grants=own))
        if bound:
            ends.append(Unbind(id=fresh_id(), actor=actor, grants=bound))
        yield dead, ends


def _has_live(session: LedgerSession, dead: DeadRun) -> bool:
    """Tell whether a lease of a dead run has not run out yet."""
    ids, now = {x.lease_id for x in (*dead.granted, *dead.bound)}, session.clock.now().wall_ms
    own = (x for x in session.own_live() if x.expires_at > now)
    return any(x.lease_id in ids or (dead.alone and x.session == dead.session) for x in own)


def end_dead_runs(session: LedgerSession, runs: Runs, elsewhere: Elsewhere) -> tuple[str, ...]:
    """End what dead runs of this clone hold, in every layer; return messages.

    ``elsewhere`` gives the person's sessions in the other layers.
    """
    messages = [*end_in_layer(session, runs, elsewhere)]
    if runs.layers_of_dead(session.actor) - {session.layer}:
        others = elsewhere()
        for other in others:

            def beside(other: LedgerSession = other) -> Sequence[LedgerSession]:
                return [x for x in (session, *others) if x is not other]

            with suppress(GitleaseError):  # the next command tries again
                messages += end_in_layer(other, runs, beside)
    return tuple(messages)


def end_in_layer(session: LedgerSession, runs: Runs, elsewhere: Elsewhere) -> tuple[str, ...]:
    """End what dead runs hold in the layer of a session; return messages."""
    messages = list[str]()
    for dead, ends in dead_runs_of(session, runs):
        freed = list[Lease]()
        try:
            freed += _carry_out(session, ends)
            # What its command claimed in other layers ends with it as well.
            ends_all = dead.alone and not (dead.may_outlive or dead.shares)
            for other in elsewhere() if ends_all else ():
                freed += _end_session(other, dead.session)
        except GitleaseError:  # the step that follows reports it
            break
        # After the step: a kill in between has the next command do it again. A claim whose
        # outcome is still unknown may yet land.
        lands = dead.claims and bool(list(session.store.pending(session.layer)))
        if not lands and not dead.shares:
            dead.forget()
        messages += [
            f"{x.resource}: session {dead.session} is dead, and no longer holds it" for x in freed
        ]
    return tuple(messages)


def _end_session(session: LedgerSession, name: str) -> list[Lease]:
    """End what a run that has ended still holds in its own session; return that."""
    left = session.in_session(name)
    if not left:
        return []
    actor = replace(session.actor, session=name)
    return _carry_out(
        session, [RunOut(id=fresh_id(), actor=actor, grants=tuple(map(grant_of, left)))]
    )


def _carry_out(session: LedgerSession, ends: Sequence[Operation]) -> list[Lease]:
    if not ends:
        return []
    step = session.transaction.carry_out(ends, together=False, what="the end of a run")
    results = (x for x in step.applied.results if isinstance(x, Outcome))
    return [lease for result in results for lease in result.leases]


@dataclass(frozen=True)
class DeadRun:
    """A run of this clone whose processes are gone: what it was granted, and what it bound.

    ``alone``: its session was its own, and all that was claimed in it ends with it.
    ``claims``: it was killed while its claim was on its way.
    ``may_outlive``: its guardian is gone as well, and what it started may work on, so its leases
    are left to lapse.
    ``shares``: a nested run works on in its session, and what that has stays held.
    """

    session: str
    granted: tuple[Grant, ...]
    bound: tuple[Grant, ...]
    alone: bool
    forget: Callable[[], None]
    may_outlive: bool = False
    claims: bool = False
    shares: bool = False


class Runs(Protocol):
    """The runs of this clone."""

    def live(self, layer: str) -> frozenset[str]:
        """The ids of the leases of a layer that live runs have."""

    def layers_of_dead(self, actor: Actor) -> frozenset[str]:
        """The layers in which this person has dead runs."""

    def dead(self, layer: str, actor: Actor) -> Sequence[DeadRun]:
        """The dead runs of this person under leases of a layer."""
