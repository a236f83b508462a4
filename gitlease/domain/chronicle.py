"""Who held what, and when, by the history of one ledger.

What is known exactly, and why:

1. A lease is held from its grant to its end: a release, completion, revocation or displacement,
   and without one until it runs out. Its holder has it no longer then, although nobody else may
   take it yet. No renewal revives what ran out, so this is one time without a gap.
2. History keeps the last renewal before every other step, since only a renewal replaces a renewal.
   So the record as it stood last before its end is there, with the expiry that it had then.
3. Paths are only ever added to a lease: each set of them counts from the record that brought it.
4. Times are the wall clocks of those who wrote. A grant counts as no earlier than the end of what
   stood in its way, by the order of the ledger, whatever the clocks say.

What lies before the oldest state that was read is not known: ``since`` says from when on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitlease.domain.errors import UsageError
from gitlease.domain.frozen import dataclass, replace
from gitlease.domain.lease import Lease, LeaseKey, State
from gitlease.domain.outcome import Event
from gitlease.domain.pattern import fold
from gitlease.domain.resource import WHOLE, parse_resource, scopes_overlap

GRANTS = frozenset({"claimed", "taken_over"})
ENDS: Mapping[str, str] = {
    "released": "released",
    "completed": "completed",
    "revoked": "revoked",
    "displaced": "taken over",
    "retired": "retired",
}
RAN_OUT, GONE, NOW = "ran out", "gone", ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a ledger: the records that differ, each before and after. ``at`` is its time.

    Times are wall-clock milliseconds.
    """

    at: int
    changed: tuple[tuple[Lease | None, Lease | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """What was read of a ledger's history: the records of its oldest state, and what followed.

    ``events`` are in their order, the oldest first. ``since`` is the time of the oldest state, None
    where that is the ledger's beginning; ``tokens`` is the smallest token from which on every grant
    is among the events, 0 where all are. ``damage`` says what could not be read.
    """

    layer: str
    first: tuple[Lease, ...] = ()
    steps: tuple[Step, ...] = ()
    events: tuple[Event, ...] = ()
    since: int | None = None
    tokens: int = 0
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which somebody held something: from ``since`` to before ``until``.

    ``lease`` is the record with what it covered then; ``ended`` how it ended, ``""`` for a record
    that stands in the ledger now.
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

    def meets(self, second: int) -> bool:
        """Whether any of the second that begins then lies in it: git tells time in seconds."""
        return self.since < second + 1_000 and second < self.until

    def surely(self, second: int) -> bool:
        """Whether all of the second that begins then lies in it."""
        return self.since <= second and second + 1_000 <= self.until


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant: its token, of what, to whom, and since and until when."""

    token: int
    resource: str
    key: str
    scope: str
    holder: str
    at: int
    ended: int | None = None

    def follows(self, span: Span) -> bool:
        """Whether it was certainly given after a span: by the ledger's order, or by the clocks."""
        lease = span.lease
        same = self.key == lease.resource.key and scopes_overlap(self.scope, lease.scope)
        return self.token > lease.token and (same or self.at >= span.until)


@dataclass(frozen=True, slots=True)
class Chronicle:
    """Who held what in one ledger. See ``Trail`` for ``since`` and ``tokens``."""

    layer: str
    spans: tuple[Span, ...]
    grants: Mapping[int, Granted]
    since: int | None
    tokens: int

    def knows(self, at: int) -> bool:
        """Whether it tells of this time."""
        return self.since is None or at >= self.since

    def knows_token(self, token: int) -> bool:
        """Whether a grant with this token would be among the grants, if there was one."""
        return token >= self.tokens


def chronicle(trail: Trail) -> Chronicle:
    """What a trail tells."""
    ends = _ends(trail.events)
    spans = _spans(trail, ends)
    grants = _granted(trail.events, ends)
    for span in spans:
        lease = span.lease
        ended = None if span.stands else span.until
        if lease.token not in grants and not _never_held(lease):
            grants[lease.token] = Granted(
                token=lease.token,
                resource=lease.resource.text,
                key=lease.resource.key,
                scope=lease.scope,
                holder=lease.holder,
                at=lease.claimed_at,
                ended=ended,
            )
    return Chronicle(trail.layer, tuple(spans), grants, trail.since, trail.tokens)


def _ends(events: Sequence[Event]) -> dict[int, tuple[int, str]]:
    """When and how the lease with each token ended, by the first event that says so."""
    found: dict[int, tuple[int, str]] = {}
    for event in events:
        if event.token is not None and event.kind in ENDS:
            found.setdefault(event.token, (event.at, ENDS[event.kind]))
    return found


def _granted(events: Sequence[Event], ends: Mapping[int, tuple[int, str]]) -> dict[int, Granted]:
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


def _never_held(lease: Lease) -> bool:
    """Whether a record is of work that was finished without a lease."""
    return lease.state is State.COMPLETED and lease.claimed_at == lease.expires_at


def _spans(trail: Trail, ends: Mapping[int, tuple[int, str]]) -> list[Span]:
    open_now: dict[LeaseKey, Span] = {}
    done: list[Span] = []
    for lease in trail.first:
        if lease.state is State.ACTIVE:
            open_now[lease.key] = Span(trail.layer, lease, lease.claimed_at, lease.expires_at)
    for step in trail.steps:
        for before, after in step.changed:
            gone = before.key if before is not None else None
            was = open_now.pop(gone, None) if gone is not None else None
            now = after if after is not None and after.state is State.ACTIVE else None
            if now is not None and was is not None and _same(was.lease, now):
                open_now[now.key] = _went_on(was, now, done)
                continue
            if was is not None:
                done.append(_ended(was, step, ends, after))
            if now is not None:
                open_now[now.key] = Span(trail.layer, now, now.claimed_at, now.expires_at)
    return [*done, *open_now.values()]


def _same(one: Lease, other: Lease) -> bool:
    return one.lease_id == other.lease_id and one.token == other.token


def _went_on(was: Span, now: Lease, done: list[Span]) -> Span:
    """The time of a lease that was renewed; what it covered before has ended when that changed."""
    if was.lease.patterns == now.patterns:
        return replace(was, lease=now, until=now.expires_at)
    begin = max(was.since, now.renewed_at)
    done.append(replace(was, until=min(was.until, begin), ended=GONE))
    return Span(was.layer, now, begin, now.expires_at)


def _ended(was: Span, step: Step, ends: Mapping[int, tuple[int, str]], after: Lease | None) -> Span:
    """The time of a lease whose record is gone: by its event, else by its step, or it ran out.

    The second in which that step was made is all the lease's: whoever drops a record without a word
    in the audit trail does not shorten it.
    """
    at, how = ends.get(was.lease.token, (step.at + 1_000, GONE))
    if after is not None and _same(was.lease, after):
        at, how = min(at, after.renewed_at), ENDS["completed"]
    if was.lease.expires_at <= at:
        return replace(was, until=was.lease.expires_at, ended=RAN_OUT)
    return replace(was, until=max(at, was.since), ended=how)
