"""The guard over what this clone knows of the ledgers: fresh enough, or fetched within a limit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gitlease.core.errors import Denied, GitleaseError, Rollback, Unavailable
from gitlease.core.expiry import Moment
from gitlease.core.frozen import replace
from gitlease.core.instant import MS
from gitlease.core.lease import Actor, Lease
from gitlease.core.lease_rows import LeaseRows
from gitlease.core.relation import Relation, relation
from gitlease.core.resources.resource import LOCAL_LAYER
from gitlease.core.view import LeaseView
from gitlease.engine.ports import Clock, Inbox, LedgerStore, Snapshot
from gitlease.guard.findings import Freshness, GuardReport, damage_told
from gitlease.guard.ports import CachedLedger, IdleMarker, Unreachable, WatchFiles
from gitlease.guard.rules import (
    GuardFinding,
    PushedCommit,
    Severity,
    Touched,
    Viewpoint,
    reach_of,
    renew_at,
    still_blocks,
)

if TYPE_CHECKING:
    from gitlease.engine.ledger_session import LedgerSession

OWN = (Relation.MINE, Relation.PARKED)


class GuardService:
    """Judges changes of files against the leases of some layers, for one actor.

    ``store`` is opened only when what is kept is too old, since that takes its time. ``tasks``
    gives the places of task files, relative to the root, whose changes may claim a task; None
    where no change does. ``one_holder``: whoever passes the marker of this clone is this actor.

    Leases are kept alive, and losses told, in all layers ``in_use``. ``local`` opens the store of
    ``--local``.
    """

    def __init__(
        self,
        watch: WatchFiles,
        store: Callable[[], LedgerStore],
        *,
        clock: Clock,
        actor: Actor,
        layers: Sequence[str],
        max_age: int,
        tasks: Callable[[], tuple[str, ...]] | None = None,
        one_holder: bool = True,
        in_use: Sequence[str] = (),
        local: Callable[[], LedgerStore] | None = None,
    ) -> None:
        self._watch, self._open, self._local = watch, store, local or store
        self._clock, self._actor, self._layers = clock, actor, tuple(dict.fromkeys(layers))
        self._max_age, self._tasks, self._one_holder = max_age, tasks, one_holder
        self._usual = self._layers[-1]  # where commands without the name of a layer go
        self._in_use = tuple(dict.fromkeys((*self._layers, *in_use)))
        self._stores: dict[bool, LedgerStore] = {}
        self._lost: list[str] = []
        self._asked: dict[str, bool] = {}  # the layers that were asked for, and who answered
        self._there: dict[str, str] = {}  # where a peek has just found them

    def fetch_all(self) -> GuardReport:
        """Fetch every layer in use once; nothing is judged. ``offline`` says how old what is known
        is where the remote does not answer, or did not lately."""
        look = Freshness()
        for layer in self._in_use:
            known = self._state(layer, look, fresh=True)
            if known is not None:
                look.noticed(known, self._age_ms(known) // MS)
        self.refresh()
        warnings = (*self.lost(), *dict.fromkeys(look.warnings))
        return GuardReport(warnings=warnings, offline=look.offline())

    def check(self, touched: Sequence[Touched], *, strict: bool = False) -> GuardReport:
        """What of the touched paths others hold. ``strict``: asks the remote whatever is known."""
        findings: list[GuardFinding] = []
        views: dict[str, LeaseView] = {}
        old: set[str] = set()
        look = Freshness()
        reach = reach_of(touched)
        for known in self._all(look, strict=strict):
            view = self._view(known)
            look.noticed(known, self._age_ms(known) // MS)
            found = view.judge(touched, known.leases.near(*reach))
            findings += found
            if look.failure is not None and not self._is_young(known):
                old |= {f.lease.lease_id for f in found}
            views |= {f.lease.lease_id: view.seen(f.lease, known.layer) for f in found}
        self._notice_losses(self._everywhere())
        return GuardReport(
            findings=tuple(findings),
            views=views,
            warnings=(*self.lost(), *dict.fromkeys(look.warnings)),
            offline=look.offline(),
            old=frozenset(old),
        )

    def but_their_own(
        self, guarded: GuardReport, carried: Sequence[PushedCommit], *, lost: Sequence[Touched]
    ) -> GuardReport:
        """The same without what only the own work of those leases touches, and not of what is lost;
        ``carried`` are all commits that a push brings."""
        gone = {one.path for one in lost}
        kept = tuple(
            found
            for found in guarded.findings
            if found.path in gone
            or still_blocks(
                found, carried, layer=guarded.views[found.lease.lease_id].layer, actor=self._actor
            )
        )
        return replace(guarded, findings=kept)

    def others_hold(self) -> bool:
        """Whether others hold anything that the guard would stop the caller for. Asks nobody."""
        return any(
            self._view(known).severity(lease) is Severity.BLOCK
            for known in self._known()
            for lease in known.leases
        )

    def lost(self) -> tuple[str, ...]:
        """What became of leases of the caller's that it does not know yet, each said once."""
        lost, self._lost = tuple(dict.fromkeys(self._lost)), []
        return lost

    def held(self, *, parents: bool = False) -> Iterator[tuple[str, Lease]]:
        """The caller's own live leases with their layers, parked ones too.

        ``parents``: also those of the session that started the caller's.
        By what this clone knows: asks nobody.
        """
        for known in self._known():
            view = self._view(known)
            for lease in known.leases.of_person(self._actor.holder):
                if view.as_own(lease, parents=parents) in OWN:
                    yield known.layer, lease

    def under(self, touched: Sequence[Touched]) -> list[tuple[str, Lease]]:
        """The leases of the caller or its parents that a change falls under. Asks nobody."""
        return [
            (known.layer, lease)
            for known in self._known()
            for lease in self._view(known).under(
                touched, known.leases.near(*reach_of(touched)), parents=True
            )
        ]

    def renewable(
        self, sessions: Collection[str] | None = None, carried: Collection[str] = ()
    ) -> list[tuple[str, Lease]]:
        """The live leases that are kept alive, with their layers. Asks nobody.

        Those of the caller; with ``sessions`` those bound to any of these, and of the person's own
        those that are ``carried`` (their ids). What is parked is left alone.
        """
        now = self._clock.now().wall_ms
        return [
            (known.layer, lease)
            for known in self._everywhere()
            for lease in known.leases.of_person(self._actor.holder)
            if lease.expires_at > now and not lease.parked and self._keeps(lease, sessions, carried)
        ]

    def due(self, renewable: Iterable[tuple[str, Lease]] | None = None) -> tuple[str, ...]:
        """The layers in which it is time to renew: a third of the time of a lease is gone."""
        now = self._clock.now().wall_ms
        of = self.renewable() if renewable is None else renewable
        late = (layer for layer, x in of if now >= renew_at(x))
        return tuple(dict.fromkeys(late))

    def refresh(self, sessions: Collection[str] = ()) -> None:
        """Keep what this clone knows now for the next hooks.

        What was lost, of these sessions as well, is told by ``lost``. Nobody is asked but the
        remote, once, for the reason of each loss.
        """
        known = {layer: self._known_now(layer) for layer in self._in_use}
        self._set_idle_marker(known)
        self._notice_losses([x for x in known.values() if x is not None], sessions)

    def beat(self, session: LedgerSession, inbox: Inbox, leases: Sequence[Lease]) -> None:
        """Renew these leases; nobody waits for it, so what it finds is left.

        Never raises GitleaseError: the next hook or command of this run tells.
        """
        from gitlease.guard.heartbeat import renew_known

        said = renew_known(session, leases)
        self.refresh()
        inbox.leave([*said, *self.lost()])

    # --- how ----------------------------------------------------------------------------------

    def _all(self, look: Freshness, *, strict: bool) -> list[CachedLedger]:
        self._there = self._peeked(look) if strict else {}
        states = {layer: self._state(layer, look, strict=strict) for layer in self._layers}
        others = {x: self._known_now(x) for x in self._in_use if x not in states}
        self._set_idle_marker(states | others)
        return [known for known in states.values() if known is not None]

    def _peeked(self, look: Freshness) -> dict[str, str]:
        """Where several layers are, by one connection: most have not moved, and need no other."""
        remote = [layer for layer in self._layers if layer != LOCAL_LAYER]
        if len(remote) < 2:
            return {}
        try:
            return dict(self._opened(remote[0]).peek(remote))
        except (Unavailable, Denied) as error:
            self._fail(look, error)
        except GitleaseError:  # said of the layer that it is about
            pass
        return {}

    def _fail(self, look: Freshness, error: GitleaseError) -> None:
        look.failure = Unreachable(self._clock.now(), error.message)
        self._watch.set_unreachable(look.failure)

    def _state(
        self, layer: str, look: Freshness, *, strict: bool = False, fresh: bool = False
    ) -> CachedLedger | None:
        """What is known of a layer: kept, read from this clone's copy, or fetched."""
        kept = self._known_now(layer)
        if kept is not None and not (strict or fresh) and self._is_young(kept):
            return kept
        if look.failure is None and not strict and layer != LOCAL_LAYER:
            look.failure = self._failed_lately()
        if look.failure is None:
            self._asked[layer] = False
            try:
                head = self._opened(layer).fetch(layer, self._there.pop(layer, ""))
                self._asked[layer] = True
                self._watch.set_unreachable(None)
                return self._keep(head)
            except (Unavailable, Denied) as error:
                self._fail(look, error)
            except GitleaseError as error:
                look.is_blind(error.message)
                if strict and isinstance(error, Rollback):  # what is held is not known: S10
                    look.failure = Unreachable(self._clock.now(), error.message)
                return kept
        if kept is None:
            look.is_blind()
        return kept

    def _failed_lately(self) -> Unreachable | None:
        """A remote that did not answer is not waited for again at once."""
        failure = self._watch.unreachable()
        if failure is None or not failure.at.same_boot(self._clock.now()):
            return None
        ago = failure.at.elapsed_at_most(self._clock.now())
        return failure if ago <= self._max_age * MS else None

    def _is_young(self, known: CachedLedger) -> bool:
        return self._age_ms(known) <= self._max_age * MS

    def _age_ms(self, known: CachedLedger) -> int:
        return known.received.elapsed_at_most(self._clock.now())

    def _known(self) -> Iterator[CachedLedger]:
        """What this clone knows of each layer that is judged by."""
        return (known for known in self._everywhere() if known.layer in self._layers)

    def _everywhere(self) -> list[CachedLedger]:
        """What this clone knows of each layer in use."""
        every = map(self._known_now, self._in_use)
        return [known for known in every if known is not None]

    def _keeps(
        self, lease: Lease, sessions: Collection[str] | None, carried: Collection[str]
    ) -> bool:
        if sessions is None:
            return lease.answers_to(self._actor)
        own = lease.lease_id in carried if lease.session is None else lease.session in sessions
        return own and lease.same_holder(self._actor)

    def _known_now(self, layer: str) -> CachedLedger | None:
        """What this clone knows: as it was kept, else read from the copy of the ledger."""
        kept = self._watch.load(layer)
        if kept is not None:
            return kept
        try:
            head = self._opened(layer).known(layer)
        except GitleaseError:
            return None  # to be fetched then
        return self._keep(head) if head is not None else None

    def _keep(self, head: Snapshot) -> CachedLedger:
        leases, damage = head.ledger.live() if head.ledger else (LeaseRows(()), [])
        layer, at = head.layer, head.received
        known = CachedLedger(layer=layer, version=head.version, received=at, leases=leases)
        if head.ledger is not None:
            known = replace(
                known,
                policy=head.ledger.header.policy,
                damage=damage_told(damage),
                notices=head.ledger.notices(self._actor.holder),
                seen=head.seen,
            )
        self._watch.save(known)
        return known

    def _notice_losses(self, every: Iterable[CachedLedger], sessions: Collection[str] = ()) -> None:
        """Find what is yet to be told, by what the remote has: time alone may be the wrong reason.

        Another may have taken over what ran out, or have revoked it. The remote is asked once for
        each loss, and not where it did not answer lately.
        """
        for known in every:
            layer, ended = known.layer, self._ran_out(known, sessions)
            news = set(ended)
            news -= self._opened(layer).shown(layer, list(ended)) if ended else set()
            if news and layer not in self._asked:
                known = self._state(layer, Freshness(), fresh=True) or known
                ended = self._ran_out(known, sessions)
            if known.notices:
                from gitlease.engine.notices import told, unread_notices

                unread = unread_notices(self._opened(layer), layer, known.notices, self._actor)
                self._lost += [told(notice) for notice in unread]
            if news:
                self._lost += self._told_of(known, [ended[x] for x in ended if x in news])

    def _ran_out(self, known: CachedLedger, sessions: Collection[str]) -> dict[str, Lease]:
        """The caller's own leases that ended by themselves, by what is told once to each run."""
        moment, run = self._view(known).moment, self._actor.session or ""
        return {
            f"ran out {x.lease_id} {x.expires_at} {run}".rstrip(): x
            for x in known.leases.of_person(self._actor.holder)
            for actor in (self._actor, *(replace(self._actor, session=s) for s in sessions))
            if x.answers_to(actor)
            and not x.left_behind
            and relation(x, actor, known.policy, moment) is Relation.MINE_LAPSED
        }

    def _told_of(self, known: CachedLedger, ended: Iterable[Lease]) -> list[str]:
        from gitlease.guard.heartbeat import ran_out

        age = None if self._asked.get(known.layer) else self._age_ms(known) // MS
        return [ran_out(x, known.layer, self._usual, age=age) for x in ended]

    def _opened(self, layer: str) -> LedgerStore:
        own = layer == LOCAL_LAYER
        if own not in self._stores:
            self._stores[own] = self._local() if own else self._open()
        return self._stores[own]

    def _view(self, known: CachedLedger) -> Viewpoint:
        return Viewpoint(self._actor, known.policy, Moment(now=self._clock.now(), seen=known.seen))

    def _set_idle_marker(self, states: Mapping[str, CachedLedger | None]) -> None:
        """What the shims may go by until somebody looks again: it is the same for all who pass."""
        if not self._one_holder:
            return
        now = self._clock.now().wall_ms
        clear: list[int] = []
        held: list[Lease] = []
        for layer, known in states.items():
            judged = layer in self._layers
            if known is None:
                clear += [0] if judged else []
                continue
            own = known.leases.of_person(self._actor.holder)
            held += [x for x in own if x.expires_at > now]
            runs = any(x.session is not None for x in own)
            free = not runs and not known.leases.has_others(self._actor.holder)
            if judged:
                clear.append(now + self._max_age * MS - self._age_ms(known) if free else 0)
        renewable = [x for x in held if not x.parked]
        until = max((x.expires_at for x in renewable), default=0)
        renew = min((renew_at(x) for x in renewable), default=0)
        clear += [x.expires_at for x in held]  # then somebody has to tell that it ran out
        idle = IdleMarker(
            clear_until=max(min(clear, default=0) // MS, 0),
            renew_at=renew // MS,
            held_until=until // MS,
            tasks=self._tasks is not None,
            below=self._tasks() if self._tasks is not None else (),
        )
        self._watch.set_idle_marker(idle, {k: s.version if s else "" for k, s in states.items()})
