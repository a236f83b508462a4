"""The guard over this clone's copies of the ledgers: recent enough, or fetched within a limit."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitlease.guard.notes import IdleMarker, Origin, drop_idle_marker, write_idle_marker
from gitlease.guard.reports import (
    DAMAGE_SHOWN,
    CachedLedger,
    Freshness,
    GuardReport,
    PushedCommit,
    Unreachable,
    reach_of,
)
from gitlease.kernel.git.files import load_json, make_folders, store_json
from gitlease.kernel.ledger.ports import Clock, LedgerStore, Snapshot
from gitlease.kernel.rules.errors import (
    AnotherLedger,
    Denied,
    GitleaseError,
    LeaseLost,
    Loss,
    Rollback,
    Unavailable,
)
from gitlease.kernel.rules.frozen import JSON, Damaged, dataclass, replace
from gitlease.kernel.rules.instant import MS, humanize_duration, rfc3339
from gitlease.kernel.rules.lease import (
    THIRD,
    Actor,
    Lease,
    Moment,
    Relation,
    Sighting,
    person_key,
    relation,
)
from gitlease.kernel.rules.lease_rows import LeaseRows
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import (
    LOCAL_LAYER,
    WHOLE,
    layer_words,
    parse_resource,
    word_anywhere,
)
from gitlease.kernel.rules.viewpoint import (
    GuardFinding,
    Severity,
    Touched,
    Viewpoint,
)
from gitlease.kernel.store.state import StateFolder, load_leases

if TYPE_CHECKING:
    from gitlease.guard.whose import Makers, Naming, Superseded
    from gitlease.kernel.ledger.ledger_session import LedgerSession


@dataclass(frozen=True)
class GuardedLayers:
    """The layers that changes are judged in, the default one last, and all that are ``in_use``."""

    judged: Sequence[str]
    in_use: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class MarkerRules:
    """How the idle marker is made.

    ``tasks`` gives the places of task files, relative to the root, whose changes may claim a task;
    None if no change does. ``one_holder``: everybody who passes the marker is the guard's actor.
    """

    tasks: Callable[[], tuple[str, ...]] | None = None
    one_holder: bool = True


class GuardService:
    """Judges changes of files against the leases of some layers, for one actor.

    ``store`` is opened only when the cached state is too old. Leases are renewed, and losses
    reported, in all layers in use. ``local`` opens the store of ``--local``.
    """

    def __init__(
        self,
        watch: WatchFolder,
        store: Callable[[], LedgerStore],
        *,
        clock: Clock,
        actor: Actor,
        layers: GuardedLayers,
        max_age: int,
        marker: MarkerRules | None = None,
        local: Callable[[], LedgerStore] | None = None,
    ) -> None:
        # Opening a store takes git and the settings of its remote: most hooks need neither.
        self._watch, self._open, self._local = watch, store, local or store
        self._clock = clock
        self._actor = actor
        self._layers = tuple(dict.fromkeys(layers.judged))
        self._default_layer = self._layers[-1]
        self._in_use = tuple(dict.fromkeys((*self._layers, *layers.in_use)))
        self._max_age = max_age
        self._marker = marker or MarkerRules()
        self._stores: dict[bool, LedgerStore] = {}
        self._losses: list[str] = []
        self._fetched: dict[str, bool] = {}  # by layer: whether the remote answered
        self._peeked: dict[str, str] = {}  # heads that a peek has just found

    def fetch_all(self) -> GuardReport:
        """Fetch every layer in use once; nothing is judged."""
        freshness = Freshness()
        for layer in self._in_use:
            cached = self._state(layer, freshness, fresh=True)
            if cached is not None:
                freshness.add_ledger(cached, self._age_ms(cached) // MS)
        self.refresh()
        return self._report(freshness)

    def check(self, touched: Sequence[Touched], *, strict: bool = False) -> GuardReport:
        """Report which touched paths others hold. ``strict`` asks the remote in any case."""
        findings: list[GuardFinding] = []
        views: dict[str, LeaseView] = {}
        old: set[str] = set()
        freshness = Freshness()
        self._peeked = self._peek(freshness) if strict else {}
        states = {layer: self._state(layer, freshness, strict=strict) for layer in self._layers}
        others = {x: self._load(x) for x in self._in_use if x not in states}
        self._set_idle_marker(states | others)
        for cached in filter(None, states.values()):
            freshness.add_ledger(cached, self._age_ms(cached) // MS)
            if cached.doubt:
                continue  # its leases are not those of the people here
            view, near = self._near(cached, touched, freshness)
            judged = view.judge(touched, near)
            findings += judged
            # Of several layers some may have been fetched, and block; the others only warn.
            if freshness.failure is not None and not self._is_young(cached):
                old |= {f.lease.lease_id for f in judged}
            views |= {f.lease.lease_id: view.seen(f.lease, cached.layer) for f in judged}
        self._notice_losses(self._cached(self._in_use))
        report = self._report(freshness)
        return replace(report, findings=tuple(findings), views=views, old=frozenset(old))

    def with_superseded(
        self,
        report: GuardReport,
        commits: Sequence[Naming],
        makers: Callable[[Iterable[str]], Makers],
    ) -> GuardReport:
        """Add the superseded ones among the commits of a push, by the state just fetched.

        ``makers`` gets the addresses of people.
        """
        if not commits:
            return report
        # Loaded only here: most hooks are of commits, and name no lease.
        from gitlease.guard.pushed_work import naming_in, superseded_in

        found: list[Superseded] = []
        for layer in self._layers:
            cached = self._load(layer)
            if cached is None or cached.doubt:
                continue
            mine = cached.leases.of_person(self._actor.holder)
            some = naming_in(layer, commits, mine)
            if not some:
                continue
            try:
                store = self._store(layer)
                head = store.known(layer)
                if head is not None:
                    moment = Moment(now=self._clock.now(), seen=head.seen)
                    view = Viewpoint(self._actor, head.policy, moment)
                    found += superseded_in(head, store, some, view, makers)
            except GitleaseError as error:
                # What is not known is not taken for a yes.
                why = f"whether a later lease superseded these commits is unknown: {error.message}"
                report = replace(report, offline=report.offline or why)
        return replace(report, superseded=tuple(found))

    def without_own_work(
        self,
        report: GuardReport,
        carried: Sequence[PushedCommit],
        *,
        lost: Sequence[Touched],
        makers: Makers | None = None,
    ) -> GuardReport:
        """Drop findings that only the leaseholders' own commits touch, unless their path is lost.

        ``carried`` are all commits of a push; superseded ones that have landed are dropped, too.
        """
        from gitlease.guard.pushed_work import blocking

        lost_paths = {path.path for path in lost}
        kept = list[GuardFinding | None]()
        for finding in report.findings:
            layer = report.views[finding.lease.lease_id].layer
            blocker = blocking(finding, carried, layer, self._actor, makers)
            kept.append(finding if finding.path in lost_paths else blocker)
        brought = {commit.id for commit in carried}
        superseded = tuple(x for x in report.superseded if x.commit in brought)
        return replace(report, findings=tuple(filter(None, kept)), superseded=superseded)

    def others_hold(self) -> bool:
        """Tell whether others hold anything that would block the caller. Asks no remote."""
        return any(
            # Of so many that not all are kept, some are taken to be live.
            cached.leases.people is not None
            or any(self._view(cached).severity(x) is Severity.BLOCK for x in cached.leases)
            for cached in self._cached(self._layers)
            if not cached.doubt
        )

    def lost(self) -> tuple[str, ...]:
        """Return news of leases that the caller has lost, each once."""
        losses = tuple(dict.fromkeys(self._losses))
        self._losses = []
        return losses

    def held(self, *, parents: bool = False) -> Iterator[tuple[str, Lease]]:
        """The caller's own live leases with their layers. Asks no remote.

        ``parents``: also those of the session that started the caller's.
        """
        for cached in self._cached(self._layers):
            view = self._view(cached)
            for lease in cached.leases.of_person(self._actor.holder):
                if view.as_own(lease, parents=parents) is Relation.MINE:
                    yield cached.layer, lease

    def under(self, touched: Sequence[Touched]) -> list[tuple[str, Lease]]:
        """The leases of the caller or its parents that a change falls under. Asks no remote."""
        reach = reach_of(touched)
        return [
            (cached.layer, lease)
            for cached in self._cached(self._layers)
            for lease in self._view(cached).under(touched, cached.leases.near(*reach), parents=True)
        ]

    def renewable(
        self, sessions: Collection[str] | None = None, carried: Collection[str] = ()
    ) -> list[tuple[str, Lease]]:
        """The caller's live leases to renew, with their layers. Asks no remote.

        With ``sessions`` those bound to any of these, and those ``carried`` (ids) that no session
        has.
        """
        now = self._clock.now().wall_ms
        return [
            (cached.layer, lease)
            for cached in self._cached(self._in_use)
            for lease in cached.leases.of_person(self._actor.holder)
            if lease.expires_at > now
            and not lease.parked
            and (
                lease.answers_to(self._actor)
                if sessions is None
                else lease.same_holder(self._actor)
                and (
                    lease.lease_id in carried
                    if lease.session is None
                    else lease.session in sessions
                )
            )
        ]

    def due(self, renewable: Iterable[tuple[str, Lease]] | None = None) -> tuple[str, ...]:
        """The layers in which it is time to renew: a third of a lease's time is gone."""
        now = self._clock.now().wall_ms
        leases = self.renewable() if renewable is None else renewable
        return tuple(dict.fromkeys(layer for layer, x in leases if now >= x.renew_at))

    def refresh(self, sessions: Collection[str] = ()) -> None:
        """Update the idle marker, and collect losses of the caller and these sessions for ``lost``.

        The remote is asked only for the reason of a loss, once.
        """
        cached = {layer: self._load(layer) for layer in self._in_use}
        self._set_idle_marker(cached)
        self._notice_losses([x for x in cached.values() if x is not None], sessions)

    def _report(self, freshness: Freshness) -> GuardReport:
        warnings = (*self.lost(), *dict.fromkeys(freshness.warnings))
        return GuardReport(warnings=warnings, offline=freshness.offline())

    # --- the state of a layer ---------------------------------------------------------------------

    def _peek(self, freshness: Freshness) -> dict[str, str]:
        # One connection for several layers: most have not moved and need no fetch.
        remote = [layer for layer in self._layers if layer != LOCAL_LAYER]
        if len(remote) < 2:
            return {}
        try:
            return dict(self._store(remote[0]).peek(remote))
        except (Unavailable, Denied) as error:
            self._fail(freshness, error)
        except GitleaseError:  # reported for the layer that it is about
            pass
        return {}

    def _fail(self, freshness: Freshness, error: GitleaseError) -> None:
        freshness.failure = Unreachable(self._clock.now(), error.message)
        self._watch.set_unreachable(freshness.failure)

    def _state(
        self, layer: str, freshness: Freshness, *, strict: bool = False, fresh: bool = False
    ) -> CachedLedger | None:
        kept = self._load(layer)
        # A push asks in any case: a lease of a minute ago may be the one that it lands on.
        if kept is not None and not (strict or fresh) and self._is_young(kept):
            return kept
        if freshness.failure is None and not strict and layer != LOCAL_LAYER:
            # A remote that did not answer is not waited for again at once.
            known = self._watch.unreachable()
            now = self._clock.now()
            if known is not None and known.at.same_boot(now):
                is_recent = known.at.elapsed_at_most(now) <= self._max_age * MS
                freshness.failure = known if is_recent else None
        if freshness.failure is None:
            # Noted before: a remote that raises anything was asked, too, and is not asked again for
            # a loss.
            self._fetched[layer] = False
            try:
                head = self._store(layer).fetch(layer, self._peeked.pop(layer, ""))
                self._fetched[layer] = True
                self._watch.set_unreachable(None)
                return self._keep(head)
            except (Unavailable, Denied) as error:
                self._fail(freshness, error)
            except GitleaseError as error:
                freshness.mark_unknown(error.message)
                recorded = isinstance(error, AnotherLedger) and error.recorded
                # The real leases are unknown, but for a copy that is not the ledger's repository.
                if strict and isinstance(error, Rollback) and not recorded:
                    freshness.failure = Unreachable(self._clock.now(), error.message)
                return kept
        if kept is None:
            freshness.mark_unknown()
        return kept

    def _near(
        self, cached: CachedLedger, touched: Sequence[Touched], freshness: Freshness
    ) -> tuple[Viewpoint, Iterable[Lease]]:
        # At least the leases that cover a change. Where too many names are held to keep them all,
        # its tasks are looked up in the ledger.
        reach, names = reach_of(touched)
        near = {x.key: x for x in cached.leases.near(reach, names)}
        if names and cached.leases.people is not None:
            try:
                store = self._store(cached.layer)
                head = store.known(cached.layer) or store.fetch(cached.layer)
                cached = replace(cached, seen=head.seen)
                if head.ledger is not None:
                    every = map(head.ledger.leases_of, map(parse_resource, names))
                    near |= {x.key: x for leases in every for x in leases}
            except GitleaseError as error:
                freshness.mark_unknown(error.message)
        return self._view(cached), near.values()

    def _is_young(self, cached: CachedLedger) -> bool:
        return self._age_ms(cached) <= self._max_age * MS

    def _age_ms(self, cached: CachedLedger) -> int:
        return cached.received.elapsed_at_most(self._clock.now())

    def _cached(self, layers: Iterable[str]) -> list[CachedLedger]:
        return [cached for cached in map(self._load, layers) if cached is not None]

    def _load(self, layer: str) -> CachedLedger | None:
        kept = self._watch.load(layer)
        if kept is not None and kept.leases.has_all_of(person_key(self._actor.holder)):
            return kept
        try:
            head = self._store(layer).known(layer)
        except GitleaseError:
            return None  # it will be fetched
        return self._keep(head) if head is not None else None

    def _keep(self, head: Snapshot) -> CachedLedger:
        holder = self._actor.holder
        layer = head.layer
        leases, damage = head.ledger.live(holder) if head.ledger else (LeaseRows(()), [])
        doubt = self._store(layer).doubt(head)
        told_damage: tuple[str, ...] = ()
        if damage:
            from gitlease.kernel.ledger.ledger_session import of_damage

            told_damage = of_damage(damage, shown=DAMAGE_SHOWN)
        cached = CachedLedger(
            layer=layer,
            version=head.version,
            received=head.received,
            leases=leases,
            policy=head.policy,
            damage=told_damage,
            notices=head.ledger.notices(holder) if head.ledger else (),
            seen=head.seen,
            doubt=doubt.message if doubt is not None else "",
        )
        self._watch.save(cached)
        return cached

    def _store(self, layer: str) -> LedgerStore:
        is_local = layer == LOCAL_LAYER
        if is_local not in self._stores:
            self._stores[is_local] = self._local() if is_local else self._open()
        return self._stores[is_local]

    def _view(self, cached: CachedLedger) -> Viewpoint:
        moment = Moment(now=self._clock.now(), seen=cached.seen)
        return Viewpoint(self._actor, cached.policy, moment)

    # --- losses -----------------------------------------------------------------------------------

    def _notice_losses(
        self, ledgers: Iterable[CachedLedger], sessions: Collection[str] = ()
    ) -> None:
        # By the remote's state: a lease that ran out may have been taken over, or revoked. The
        # remote is asked once for each loss, unless it failed to answer lately.
        for cached in ledgers:
            layer = cached.layer
            ended = self._ran_out(cached, sessions)
            news = set(ended)
            news -= self._store(layer).shown(layer, list(ended)) if ended else set()
            if news and layer not in self._fetched:
                cached = self._state(layer, Freshness(), fresh=True) or cached
                ended = self._ran_out(cached, sessions)
            if cached.notices:
                from gitlease.kernel.ledger.chores import describe, unread_notices

                unread = unread_notices(self._store(layer), layer, cached.notices, self._actor)
                self._losses += [describe(notice) for notice in unread]
            if news:
                age = None if self._fetched.get(layer) else self._age_ms(cached) // MS
                self._losses += [
                    ran_out(ended[x], layer, self._default_layer, age=age)
                    for x in ended
                    if x in news
                ]

    def _ran_out(self, cached: CachedLedger, sessions: Collection[str]) -> dict[str, Lease]:
        # By a key under which the store remembers that this run was told.
        moment, run = self._view(cached).moment, self._actor.session or ""
        return {
            f"ran out {x.lease_id} {x.expires_at} {run}".rstrip(): x
            for x in cached.leases.of_person(self._actor.holder)
            # A beat renews for several sessions, and so has to tell of the losses of each.
            for actor in (self._actor, *(replace(self._actor, session=s) for s in sessions))
            if x.answers_to(actor)
            and not x.left_behind
            and relation(x, actor, cached.policy, moment) is Relation.MINE_LAPSED
        }

    def _set_idle_marker(self, states: Mapping[str, CachedLedger | None]) -> None:
        # Else somebody else would pass by a marker that was made of this actor's leases.
        if not self._marker.one_holder:
            return
        now = self._clock.now().wall_ms
        tasks = self._marker.tasks
        clear: list[int] = []
        held: list[Lease] = []
        for layer, cached in states.items():
            judged = layer in self._layers
            if cached is None:
                # Nothing is known of it: every hook has to look.
                clear += [0] if judged else []
                continue
            leases = cached.leases.of_person(self._actor.holder)
            held += [x for x in leases if x.expires_at > now]
            runs = any(x.session is not None for x in leases)
            runs = runs or bool(cached.doubt)  # or nobody would be warned of it
            free = not runs and not cached.leases.has_others(self._actor.holder)
            if judged:
                clear.append(now + self._max_age * MS - self._age_ms(cached) if free else 0)
        renewable = [x for x in held if not x.parked]
        clear += [x.expires_at for x in held]  # then its loss has to be reported
        idle = IdleMarker(
            clear_until=max(min(clear, default=0) // MS, 0),
            renew_at=min((x.renew_at for x in renewable), default=0) // MS,
            held_until=max((x.expires_at for x in renewable), default=0) // MS,
            tasks=tasks is not None,
            below=tasks() if tasks is not None else (),
        )
        self._watch.set_idle_marker(idle, {k: s.version if s else "" for k, s in states.items()})


BEAT_AGAIN = 60  # seconds after which a heartbeat that changed nothing is tried again, at most
SHORTEST_KEPT = THIRD * BEAT_AGAIN  # seconds of a lease that one activity a minute keeps alive
TRIES = 12  # of the heartbeat in the time of a lease, at least


def retry_interval(leases: Iterable[Lease]) -> int:
    """Seconds until a heartbeat that changed nothing is tried again, by the shortest lease."""
    shortest = min((x.duration_ms // MS for x in leases), default=BEAT_AGAIN * TRIES)
    return max(1, min(BEAT_AGAIN, shortest // TRIES))


def renew_known(session: LedgerSession, leases: Sequence[Lease]) -> list[str]:
    """Renew leases of the cached state in one push; the messages for the holder."""
    # Nobody waits for it: an error would be seen by no one.
    try:
        from gitlease.kernel.ledger.acts import renew_grants
        from gitlease.kernel.rules.moves.operations import grant_of

        answer = renew_grants(session, [*map(grant_of, leases)], in_use=False)
    except GitleaseError as error:
        return [*error.warnings, f"your leases were not renewed: {error.message}"]
    usual = session.store.warnings  # of the place itself, nothing new
    news = [text for text in answer.warnings if text not in usual]
    head = session.store.known(session.layer)
    notices = head.ledger.losses(session.actor.holder) if head and head.ledger else ()
    noticed = {(x.resource, x.scope) for x in notices}
    for x in answer.refused:
        # A loss is told by a notice in the ledger, or as having run out.
        is_loss = isinstance(x, LeaseLost) and head is not None and head.ledger is not None
        if not is_loss or (x.loss is not Loss.EXPIRED and (x.resource, x.scope) not in noticed):
            news.append(x.message)
    return news


def ran_out(lease: Lease, layer: str, default_layer: str, *, age: int | None = None) -> str:
    """The message that a lease ran out, with the command to claim it again.

    ``age``: the remote did not confirm it, and the state is that many seconds old.
    """
    name = word_anywhere(lease.resource.text)
    words = ["gitlease", "claim", name, *layer_words(layer, default_layer)]
    words += [] if lease.scope == WHOLE else ["--scope", lease.scope]
    # Without an edge it may not be a task.
    words += [] if lease.edge or lease.resource.is_path else ["--any"]
    when = rfc3339(lease.expires_at)
    if age is not None:
        known = f"by what this clone knew {humanize_duration(age)} ago"
        when += f", {known} (the remote could not be asked)"
    again = shlex.join(words)
    return f"your lease of {lease.resource} expired at {when}; to go on with it: {again}"


# --- the copies: what may be known of the leases without git and without parsing ------------------
# Whatever is wrong with them, they are of no use, and no harm: the guard asks the ledger then.

# Hooks write these on every commit, so each is a file of its own, which needs no lock.
FAILURE = "unreachable.json"  # beside the states of the layers of a place
FACTS = "watched.json"  # in the state of a layer: what hooks need to know beside its leases
LONGEST_MESSAGE = 1_000
NOT_KEPT: Mapping[str, Any] = {"leases": LeaseRows(()), "seen": lambda _lease: None}


class WatchFolder:
    """The kept copies of each layer, and the idle marker in the clone's ``folder``.

    The leases are those that the store keeps. It only saves work between two hooks, and never
    fails. ``origin`` is what the idle markers of this process are made from.
    """

    def __init__(
        self, folder: str, state: Callable[[str], str], clock: Clock, origin: Origin
    ) -> None:
        self._folder, self._state, self._clock, self._origin = folder, state, clock, origin
        self._read: dict[str, tuple[str, LeaseRows]] = {}  # by layer, with their version

    def load(self, layer: str) -> CachedLedger | None:
        """Return what is kept of a layer, if it is of the head that this clone has now."""
        state = self._state(layer)
        known = StateFolder(state).load()
        version = known.version if known else ""
        try:
            facts = load_json(os.path.join(state, FACTS))
            kept = JSON.load(CachedLedger, facts, **NOT_KEPT)
        except Damaged:
            return None
        now, is_of_head = self._clock.now(), (kept.layer, kept.version) == (layer, version)
        # A sighting of before a reboot, or a clock that was set back, counts anew.
        is_past = not kept.received.same_boot(now) if known is None else known.at(now) is not known
        leases = self._leases(layer, version) if is_of_head and not is_past else None
        if leases is None:
            return None

        def seen(lease: Lease) -> Sighting | None:
            file = leases.file_of(lease)
            return known.sighting(file) if known is not None and file else None

        received = kept.received if known is None else known.received
        return replace(kept, leases=leases, seen=seen, received=received)

    def save(self, watched: CachedLedger) -> None:
        self._write(watched.layer, FACTS, JSON.dump(watched, *NOT_KEPT))
        self._read[watched.layer] = watched.version, watched.leases

    def _leases(self, layer: str, version: str) -> LeaseRows | None:
        before, leases = self._read.get(layer, ("", LeaseRows(())))
        if before == version:
            return leases
        kept = load_leases(self._state(layer))
        if kept is None:
            return None
        self._read[layer] = kept.version, kept.leases
        return kept.leases if kept.version == version else None

    def set_idle_marker(self, idle: IdleMarker, versions: Mapping[str, str]) -> None:
        """Write the marker for the shims, unless the heads of the layers are no longer these."""
        now = self._clock.now().wall_ms // MS
        write_idle_marker(self._folder, idle, self._origin, now=now)
        # Whoever moved a head meanwhile took the marker of before it away, and this one came after.
        for layer, version in versions.items():
            known = StateFolder(self._state(layer)).load()
            if (known.version if known else "") != version:
                drop_idle_marker(self._folder)

    def unreachable(self) -> Unreachable | None:
        """Return the last failure to reach the remote; None if it was reached since."""
        with contextlib.suppress(Damaged):
            failure = load_json(os.path.join(self._state(""), FAILURE))
            return JSON.load(Unreachable, failure)
        return None

    def set_unreachable(self, failure: Unreachable | None) -> None:
        """Keep a failure, so that hooks do not each wait for the same remote; None: it answers."""
        if failure is None:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._state(""), FAILURE))
        else:
            short = replace(failure, message=failure.message[:LONGEST_MESSAGE])
            self._write("", FAILURE, JSON.dump(short))

    def _write(self, layer: str, name: str, value: object) -> None:
        folder = self._state(layer).rstrip("/")
        with contextlib.suppress(OSError):
            make_folders(folder)
            store_json(os.path.join(folder, name), value)
