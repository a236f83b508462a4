"""The check of commits: what they did to the claims of others, by the ledgers and their history.

It has no holder, and changes nothing: to read is enough. What it could not look at it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from gitlease.domain.addresses import Addresses
from gitlease.domain.chronicle import Chronicle, Trail, chronicle
from gitlease.domain.deeds import Deed, Judgement, Standing, oldest
from gitlease.domain.errors import GitleaseError, NotFound
from gitlease.domain.finding import Finding
from gitlease.domain.frozen import dataclass, field, replace
from gitlease.domain.instant import MS
from gitlease.domain.lapse import Moment
from gitlease.domain.pattern import fold
from gitlease.domain.policy import DEFAULT_POLICY
from gitlease.domain.violations import find, no_ledger
from gitlease.domain.violations_held import NOBODY
from gitlease.notices import unread_records
from gitlease.ports import Clock, LedgerStore, Snapshot, TaskFiles
from gitlease.ports_check import Asked, Chosen, Commits, Trails
from gitlease.reading import LeaseReader

T = TypeVar("T")
SETTINGS = ".gitlease.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """The settings of the check. ``people`` are what holders are called; ``trailer``: each commit
    must name a lease.
    """

    people: Mapping[str, str] = field(default_factory=dict)
    trailer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found. ``shown`` is what was checked, ``commits`` how many there were.

    ``unread`` are the records of the ledgers that could not be read: it is no pass then.
    """

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    shown: str = ""
    commits: int = 0
    warnings: tuple[str, ...] = ()


class CheckService:
    """Checks commits against the ledgers of some layers."""

    def __init__(
        self,
        store: LedgerStore,
        commits: Commits,
        trails: Trails,
        tasks: TaskFiles,
        *,
        clock: Clock,
        layers: Sequence[str],
        rules: CheckRules,
        asked: Asked,
    ) -> None:
        self._store, self._commits, self._trails, self._tasks = store, commits, trails, tasks
        self._clock, self._layers = clock, tuple(dict.fromkeys(layers))
        self._rules, self._asked = rules, asked

    def check(self, chosen: Chosen, *, cached: bool = False, fetched: bool = False) -> Checked:
        """Check some commits. One connection for each layer.

        ``cached`` goes by what this clone knows of the ledgers, and says how old that is;
        ``fetched`` says that they were fetched just now. Raises what the store raises: Unavailable
        where a ledger cannot be read, which is never taken for an empty one.
        """
        heads = [self._head(layer, cached=cached, fetched=fetched) for layer in self._layers]
        deeds = self._commits.read(chosen)
        trails = self._read_trails(heads, deeds)
        told = {trail.layer: chronicle(trail) for trail in trails}
        addresses = self._addresses(chosen, told.values())
        people, request = self._people(addresses), self._asked.request
        judgement = Judgement(
            addresses=addresses,
            bringers=frozenset() if request else frozenset().union(*people.values()),
            requesters=people if request else {},
            trailer=self._rules.trailer,
            ledgers={head.layer: self._standing(head, told[head.layer]) for head in heads},
        )
        found, unplaced = self._placed(find(deeds, judgement))
        if chosen.commits and all(head.ledger is None for head in heads):
            found.append(no_ledger([head.layer for head in heads], self._store.place))
        said = [*self._asked.problems, *chosen.warnings, *self._store.warnings]
        said += _new_settings(deeds, chosen)
        for head in heads:
            said += self._of_head(head, cached=cached)
        unread = [text for head in heads for text in unread_records(head)]
        said += [text for trail in trails for text in trail.damage]
        said += _unknown_past(deeds, told.values(), self._clock.now().wall_ms)
        said += unplaced
        if chosen.cut:
            said.append(f"only the newest {len(chosen.commits)} commits were checked")
        return Checked(
            findings=tuple(found),
            unread=tuple(unread),
            shown=chosen.shown,
            commits=len(chosen.commits),
            warnings=tuple(dict.fromkeys(said)),
        )

    # --- what is read -----------------------------------------------------------------------------

    def _head(self, layer: str, *, cached: bool, fetched: bool) -> Snapshot:
        def read() -> Snapshot:
            known = self._store.known(layer) if cached or fetched else self._store.fetch(layer)
            if known is None and fetched:  # of a ledger that is not there nothing is kept
                known = self._store.fetch(layer)
            if known is None:
                raise NotFound(
                    f"this clone knows nothing of the ledger {layer} yet",
                    hints=("ask once without --cached",),
                )
            return known

        return self._mended(layer, read)

    def _mended(self, layer: str, act: Callable[[], T]) -> T:
        """What ``act`` gives; what is damaged of this clone's copy is made anew."""
        reader = LeaseReader(self._store, clock=self._clock, actor=NOBODY, layer=layer)
        return reader.mended(act)

    def _read_trails(self, heads: Sequence[Snapshot], deeds: Sequence[Deed]) -> list[Trail]:
        """The history of each ledger, as far back as the commits and what they name need it."""
        if not deeds:
            return [Trail(layer=head.layer) for head in heads]
        since = oldest(deeds, self._clock.now().wall_ms)
        named = [x for deed in deeds for x in (*deed.named, *deed.mentioned)]

        def read(head: Snapshot) -> Trail:
            token = min((x.token for x in named if x.layer == head.layer), default=None)
            return self._trails.trail(head.layer, head.version, since=since, token=token)

        return [self._mended(head.layer, partial(read, head)) for head in heads]

    def _addresses(self, chosen: Chosen, told: Iterable[Chronicle]) -> Addresses:
        holders = {x.holder for one in told for x in one.grants.values()}
        holders |= {x.lease.holder for one in told for x in one.spans}
        every = (*sorted(holders), *self._rules.people, *self._asked.emails)
        names = self._rules.people
        return Addresses(canonical=self._commits.canonical(chosen, every), names=names)

    def _people(self, addresses: Addresses) -> dict[str, frozenset[str]]:
        """Whoever brings the commits or asks for them, where that is known, and their keys."""
        people = {f"@{login}": addresses.of_login(login) for login in self._asked.logins}
        return people | {email: addresses.of(email) for email in self._asked.emails}

    def _standing(self, head: Snapshot, told: Chronicle) -> Standing:
        policy = head.ledger.header.policy if head.ledger else DEFAULT_POLICY
        return Standing(told, policy, Moment(now=self._clock.now(), seen=head.seen))

    # --- what is said -----------------------------------------------------------------------------

    def _of_head(self, head: Snapshot, *, cached: bool) -> Iterator[str]:
        """What a person should know of the ledger that was read."""
        yield from head.warnings
        if head.ledger is None:
            yield f"there is no ledger {head.layer} on {self._store.place}: nobody holds anything"
            return
        if cached:
            age = head.received.elapsed_at_most(self._clock.now()) // MS
            yield f"by what this clone knew of the ledger {head.layer} {age}s ago"

    def _placed(self, found: Sequence[Finding]) -> tuple[list[Finding], list[str]]:
        """The findings at the edge's line of the task's file, where the claim is one of a task."""
        if not any(x.resource for x in found):
            return list(found), []
        try:
            tasks = {task.resource.key: task for task in self._tasks.read().tasks}
        except GitleaseError as error:
            return list(found), [f"the task files could not be read: {error.message}"]
        placed = []
        for one in found:
            task = tasks.get(fold(one.resource or ""))
            placed.append(replace(one, file=task.file, line=task.line) if task else one)
        return placed, []


def _new_settings(deeds: Sequence[Deed], chosen: Chosen) -> Iterator[str]:
    """That commits bring other settings, which are not those that they are checked by."""
    if chosen.base and any(x.path == SETTINGS for deed in deeds for x in deed.touched):
        yield (
            f"{SETTINGS} is changed here: checked is by the one of {chosen.base[:10]}, "
            "which was there before"
        )


def _unknown_past(deeds: Sequence[Deed], told: Iterable[Chronicle], now: int) -> Iterator[str]:
    """How many commits are older than what a ledger tells of."""
    for one in told:
        times = (deed.made(now) for deed in deeds)
        older = sum(at is None or not one.knows(at) for at in times)
        if older:
            commits = "1 commit is" if older == 1 else f"{older} commits are"
            yield (
                f"{commits} older than the history of the ledger {one.layer}: who held what then "
                "cannot be known"
            )
