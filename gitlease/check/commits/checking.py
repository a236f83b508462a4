"""The check of commits against the claims of others, by the ledgers and their history.

It has no holder, changes nothing, and reports what it could not check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from gitlease.check.ci import CiContext
from gitlease.check.commits.broken_claims import Judgement, LedgerState
from gitlease.check.commits.range import Chosen
from gitlease.check.commits.timeline import Timeline, timeline
from gitlease.check.commits.violations import find
from gitlease.check.rules import no_ledger
from gitlease.core.errors import GitleaseError, NotFound
from gitlease.core.expiry import Moment
from gitlease.core.finding import Finding
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS
from gitlease.core.persons import Addresses
from gitlease.core.resources.pattern import fold
from gitlease.engine.notices import told_by, unread_records
from gitlease.engine.ports import Clock, LedgerStore, Snapshot, TaskFiles, doing
from gitlease.guard.commit_facts import CommitFacts, CommitReader
from gitlease.store.history_reader import HistoryReader, LedgerHistory

SETTINGS = ".gitlease.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found. ``shown`` is what was checked, ``commits`` how many there were.

    ``unread`` are the records of the ledgers that could not be read: the check has not passed then.
    """

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    shown: str = ""
    commits: int = 0
    warnings: tuple[str, ...] = ()


class CheckService:
    """Checks chosen commits against the ledgers of some layers.

    ``people`` are the names of holders; ``trailer``: each commit must name a lease.
    """

    def __init__(
        self,
        chosen: Chosen,
        store: LedgerStore,
        commits: CommitReader,
        histories: HistoryReader,
        tasks: TaskFiles,
        *,
        clock: Clock,
        layers: Sequence[str],
        people: Mapping[str, str],
        trailer: bool,
        context: CiContext,
    ) -> None:
        self._chosen, self._store, self._reader = chosen, store, commits
        self._histories, self._tasks, self._clock = histories, tasks, clock
        self._layers = tuple(dict.fromkeys(layers))
        self._people, self._trailer, self._context = people, trailer, context

    def check(self, *, cached: bool = False, fetched: bool = False) -> Checked:
        """Check the commits. One connection for each layer.

        ``cached`` uses the ledgers as this clone knows them, and reports their age; ``fetched``:
        they were fetched just now. Raises what the store raises: Unavailable if a ledger cannot be
        read, which is never taken for an empty one.
        """
        chosen = self._chosen
        heads = [self._head(layer, cached=cached, fetched=fetched) for layer in self._layers]
        with doing(f"reading {len(chosen.commits)} commits"):
            commits = self._reader.read(chosen.commits)
        with doing("reading the history of the ledger"):
            histories = self._read_histories(heads, commits, older=not cached)
            timelines = [timeline(history) for history in histories]
        with doing(f"comparing {len(commits)} commits with the leases of their time"):
            found, unplaced = self._placed(
                find(commits, self._judgement(heads, timelines, commits))
            )
        if chosen.commits and all(head.ledger is None for head in heads):
            found.append(no_ledger(self._layers, self._store.place))
        warnings = [*self._context.problems, *chosen.warnings, *self._store.warnings]
        if chosen.base and any(x.path == SETTINGS for one in commits for x in one.touched):
            warnings.append(
                f"{SETTINGS} is changed here: the check goes by that of {chosen.base[:10]}, "
                "from before the change"
            )
        for head in heads:
            warnings += self._head_warnings(head, cached=cached)
        unread = [text for head in heads for text in unread_records(head)]
        warnings += [text for history in histories for text in history.damage]
        warnings += _unknown_past(commits, timelines, self._clock.now().wall_ms)
        warnings += unplaced
        if chosen.cut:
            warnings.append(f"only the newest {len(chosen.commits)} commits were checked")
        return Checked(
            findings=tuple(found),
            unread=tuple(unread),
            shown=chosen.shown,
            commits=len(chosen.commits),
            warnings=tuple(dict.fromkeys(warnings)),
        )

    def _head(self, layer: str, *, cached: bool, fetched: bool) -> Snapshot:
        known = self._store.known(layer) if cached or fetched else self._store.fetch(layer)
        if known is None and fetched:  # nothing is kept of a ledger that does not exist
            known = self._store.fetch(layer)
        if known is None:
            raise NotFound(
                f"this clone has never fetched the ledger {layer}",
                hints=("run it once without --cached",),
            )

        return known

    def _read_histories(
        self, heads: Sequence[Snapshot], commits: Sequence[CommitFacts], *, older: bool
    ) -> list[LedgerHistory]:
        if not commits:
            return [LedgerHistory(layer=head.layer) for head in heads]
        since = oldest(commits, self._clock.now().wall_ms)
        named = [x for commit in commits for x in (*commit.named, *commit.mentioned)]

        def read(head: Snapshot) -> LedgerHistory:
            token = min((x.token for x in named if x.layer == head.layer), default=None)
            return self._histories.read(
                head.layer, head.version, since=since, token=token, older=older
            )

        return [read(head) for head in heads]

    def _judgement(
        self,
        heads: Sequence[Snapshot],
        timelines: Sequence[Timeline],
        commits: Sequence[CommitFacts],
    ) -> Judgement:
        holders = {x.holder for one in timelines for x in one.grants.values()}
        holders |= {x.lease.holder for one in timelines for x in one.tenures}
        emails, request = self._context.emails, self._context.request
        canonical = self._reader.canonical((*sorted(holders), *self._people, *emails))
        addresses = Addresses(canonical=canonical, names=self._people)
        people = {f"@{login}": addresses.of_login(login) for login in self._context.logins}
        people |= {email: addresses.of(email) for email in emails}
        ledgers = {}
        for head, one in zip(heads, timelines, strict=True):
            moment = Moment(now=self._clock.now(), seen=head.seen)
            ledgers[head.layer] = LedgerState(one, head.policy, moment)
        return Judgement(
            addresses=addresses,
            pushers=frozenset() if request else frozenset().union(*people.values()),
            requesters=people if request else {},
            trailer=self._trailer,
            ledgers=ledgers,
            landing=cache(lambda: self._reader.differing(commits[-1].id)),
        )

    def _head_warnings(self, head: Snapshot, *, cached: bool) -> Iterator[str]:
        yield from head.warnings
        if head.ledger is None:
            yield f"there is no ledger {head.layer} on {self._store.place}: nobody holds anything"
        elif cached:
            age = head.received.elapsed_at_most(self._clock.now()) // MS
            yield f"this goes by the ledger {head.layer} as this clone knew it {age}s ago"
        if not cached:
            yield from told_by(self._store, head)

    def _placed(self, found: list[Finding]) -> tuple[list[Finding], list[str]]:
        """Place findings about claims of tasks at the edge's line of the task's file."""
        if not any(x.resource for x in found):
            return found, []
        try:
            tasks = {task.resource.key: task for task in self._tasks.read().tasks}
        except GitleaseError as error:
            return found, [f"the task files could not be read: {error.message}"]
        placed = []
        for one in found:
            task = tasks.get(fold(one.resource or ""))
            placed.append(replace(one, file=task.file, line=task.line) if task else one)
        return placed, []


def oldest(commits: Iterable[CommitFacts], now: int) -> int:
    """The earliest time that matters to these commits."""
    times = [t for x in commits for t in (x.made(now), x.recorded) if t is not None]
    return min(times, default=now)


def _unknown_past(
    commits: Sequence[CommitFacts], timelines: Iterable[Timeline], now: int
) -> Iterator[str]:
    for one in timelines:
        if older := sum(not one.knows(commit.made(now)) for commit in commits):
            number = "1 commit is" if older == 1 else f"{older} commits are"
            yield (
                f"{number} older than the history of the ledger {one.layer}: who held what then "
                "is unknown"
            )
