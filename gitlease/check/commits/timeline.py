"""Who held what, and when, by the history of one ledger.

What is known exactly, and why:

1. A lease is held from its grant to its end: a release, completion, revocation or displacement,
   else until it runs out. Then its holder no longer has it, although nobody else may take it yet.
   No renewal revives what ran out, so this is one span without a gap.
2. History keeps the last renewal before every other step, since only a renewal replaces a renewal.
   So the last record before the end is there, with the expiry that it had then.
3. Paths are only ever added to a lease: each set of them counts from the record that added it.
4. Times are the wall clocks of the writers. A grant counts as no earlier than the end of what stood
   in its way, by the order of the ledger, whatever the clocks say.

Nothing is known from before the oldest state that was read, which is of ``since``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitlease.core.errors import UsageError
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import Lease, LeaseKey, State
from gitlease.core.outcome import LAPSED, Event
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import WHOLE, parse_resource, scopes_overlap
from gitlease.store.history_reader import GRANTS, HistoryStep, LedgerHistory

RAN_OUT, GONE, NOW = "expired", "gone", ""
ENDS: Mapping[str, str] = {
    "released": "released",
    "completed": "completed",
    "revoked": "revoked",
    "displaced": "taken over",
    "retired": "retired",
    LAPSED: RAN_OUT,
}
Ends = Mapping[int, tuple[int, str]]  # when and how the lease with a token ended


@dataclass(frozen=True, slots=True)
class Tenure:
    """A span in which somebody held something: from ``since`` to before ``until``.

    ``lease`` is the record with what it covered then; ``ended`` says how it ended, ``""`` for a
    record that is in the ledger now.
    """

    layer: str
    lease: Lease
    since: int
    until: int
    ended: str = NOW

    @property
    def stands(self) -> bool:
        """Whether it is in the ledger now, run out or not."""
        return self.ended == NOW

    def meets(self, second: int | None) -> bool:
        """Whether any of the second that begins then lies in it: git's dates have seconds."""
        return second is not None and self.since < second + 1_000 and second < self.until

    def surely(self, second: int) -> bool:
        """Whether all of the second that begins then lies in it."""
        return self.since <= second and second + 1_000 <= self.until


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant: its token, resource and holder, and its beginning and end."""

    token: int
    resource: str
    key: str
    scope: str
    holder: str
    at: int
    ended: int | None = None

    def follows(self, tenure: Tenure) -> bool:
        """Whether it was certainly later: by the order of the ledger, or by the clocks."""
        lease = tenure.lease
        same = self.key == lease.resource.key and scopes_overlap(self.scope, lease.scope)
        return self.token > lease.token and (same or self.at >= tenure.until)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who held what in one ledger. See ``LedgerHistory`` for ``since`` and ``tokens``."""

    layer: str
    tenures: tuple[Tenure, ...]
    grants: Mapping[int, Granted]
    since: int | None
    tokens: int

    def knows(self, at: int | None) -> bool:
        """Whether it reaches back to this time."""
        return at is not None and (self.since is None or at >= self.since)


def timeline(history: LedgerHistory) -> Timeline:
    """The timeline of a ledger's history."""
    ends: dict[int, tuple[int, str]] = {}
    for event in history.events:
        if event.token is not None and event.kind in ENDS:
            ends.setdefault(event.token, (event.at, ENDS[event.kind]))
    tenures = _tenures(history, ends)
    grants = _granted(history.events, ends)
    for tenure in tenures:
        lease = tenure.lease
        finished_only = lease.state is State.COMPLETED and lease.claimed_at == lease.expires_at
        if lease.token not in grants and not finished_only:
            grants[lease.token] = Granted(
                token=lease.token,
                resource=lease.resource.text,
                key=lease.resource.key,
                scope=lease.scope,
                holder=lease.holder,
                at=lease.claimed_at,
                ended=None if tenure.stands else tenure.until,
            )
    return Timeline(history.layer, tuple(tenures), grants, history.since, history.tokens)


def _granted(events: Sequence[Event], ends: Ends) -> dict[int, Granted]:
    found: dict[int, Granted] = {}
    for event in events:
        token, resource = event.token, event.resource
        # A takeover by a renewal has the token of the grant that came before it.
        if event.kind not in GRANTS or token is None or resource is None or token in found:
            continue
        found[token] = Granted(
            token=token,
            resource=resource,
            key=_key(resource),
            scope=event.scope or WHOLE,
            holder=event.holder or event.by,
            at=event.at,
            ended=ends[token][0] if token in ends else None,
        )
    return found


def _key(resource: str) -> str:
    try:
        return parse_resource(resource).key
    except UsageError:
        return fold(resource)


def _tenures(history: LedgerHistory, ends: Ends) -> list[Tenure]:
    open_now: dict[LeaseKey, Tenure] = {}
    done: list[Tenure] = []
    for lease in history.first:
        if lease.state is State.ACTIVE:
            open_now[lease.key] = _begun(history.layer, lease)
    for step in history.steps:
        for before, after in step.changed:
            was = open_now.pop(before.key, None) if before is not None else None
            now = after if after is not None and after.state is State.ACTIVE else None
            if now is not None and was is not None and _same(was.lease, now):
                open_now[now.key] = _went_on(was, now, done)
                continue
            if was is not None:
                done.append(_ended(was, step, ends, after))
            if now is not None:
                open_now[now.key] = _begun(history.layer, now)
    return [*done, *open_now.values()]


def _begun(layer: str, lease: Lease) -> Tenure:
    return Tenure(layer, lease, lease.claimed_at, lease.expires_at)


def _same(one: Lease, other: Lease) -> bool:
    return one.lease_id == other.lease_id and one.token == other.token


def _went_on(was: Tenure, now: Lease, done: list[Tenure]) -> Tenure:
    # If what it covers has changed, the span of the former coverage ends.
    if was.lease.patterns == now.patterns:
        return replace(was, lease=now, until=now.expires_at)
    begin = max(was.since, now.renewed_at)
    done.append(replace(was, until=min(was.until, begin), ended=GONE))
    return Tenure(was.layer, now, begin, now.expires_at)


def _ended(was: Tenure, step: HistoryStep, ends: Ends, after: Lease | None) -> Tenure:
    # Its end is that of its event, else of its step, unless it ran out before. The whole second of
    # that step counts: dropping a record without an event does not shorten a lease.
    at, how = ends.get(was.lease.token, (step.at + 1_000, GONE))
    if after is not None and _same(was.lease, after):
        at, how = min(at, after.renewed_at), ENDS["completed"]
    if was.lease.expires_at <= at:
        return replace(was, until=was.lease.expires_at, ended=RAN_OUT)
    return replace(was, until=max(at, was.since), ended=how)
