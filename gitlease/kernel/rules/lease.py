"""A lease: one holder's ephemeral reservation, when it has run out, and who may do what with it.

A lease passes through three standings. *Live*: its holder has it. *Expired*: the holder no longer
has it, and nobody else may take it yet. *Lapsed*: anyone may take it. The gap between the last two
is what makes two correct clients never believe in conflicting leases at once, within the stated
bounds on their clocks: a holder stops by the larger of its clocks, a contender waits by the
smaller of its own, plus margins. Margins are the larger of the policy's and the record's own, so a
new policy never shortens what was granted.

A ``Policy`` has the rules that all clients of a ledger share: it is stored there, not in settings.
``TABLE`` is the whole of who may do what: nothing else decides whose lease it is. Leases
as lines of text stand in ``lease_rows``, and a lease as one caller sees it in ``lease_view``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Annotated, NamedTuple

from gitlease.kernel.rules.errors import MAX_WORD
from gitlease.kernel.rules.frozen import LARGEST, LATER, RARE, dataclass
from gitlease.kernel.rules.instant import LONGEST, MS, Instant, Time, format_duration
from gitlease.kernel.rules.resources import Issues, Resource, Scope, fold

# --- the rules that all clients of a ledger share: stored in it, not in settings ------------------

# What GitHub writes where somebody keeps their address private: the login is in it.
_NO_REPLY = r"(?:[0-9]+\+)?([^+@\s]+)@users\.noreply\.github\.com"  # compiled where it is used
_LOWER = {ord(x): x.lower() for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def is_holder(email: str) -> bool:
    """Return whether this can name a holder: one printable word of at most MAX_WORD characters."""
    return email.split() == [email] and email.isprintable() and len(email) <= MAX_WORD


def person_key(email: str) -> str:
    """The key that the emails, or names, of one person share: ASCII letters in lower case.

    As for mail systems and git's mailmap, nothing else of Unicode is folded: ``straße@`` and
    ``strasse@`` are two mailboxes, and often two persons.
    """
    return email.lower() if email.isascii() else email.translate(_LOWER)


def login_of(email: str) -> str | None:
    """The login of a host that an address hides behind; None for any other address."""
    match = re.fullmatch(_NO_REPLY, person_key(email))
    return None if match is None else match[1]


MAX_ADMINS = 64
DAY = 86_400
SOONEST_ABANDONED = 600  # seconds


class Rule(Enum):
    """How a contender judges that a lease has lapsed (see ``expiry``)."""

    WALL = "wall"
    OBSERVED = "observed"


class History(Enum):
    """The effect of a renewal on the ledger's history."""

    REPLACE = "replace"
    APPEND = "append"


@dataclass(frozen=True)
class Margins:
    """The allowances for time that a lease was granted under; they never shrink for it.

    ``skew`` and ``grace`` in seconds, ``drift`` in parts per million.
    """

    skew: Annotated[int, range(86_400 + 1)] = 60
    drift: Annotated[int, range(500_000 + 1)] = 10_000
    grace: Annotated[int, range(3_600 + 1)] = 5
    rule: Rule = Rule.WALL

    def widest(self, other: Margins) -> Margins:
        """The larger of each margin; of the rules ``observed``, which needs no common clock."""
        if other is self:
            return self
        return Margins(
            skew=max(self.skew, other.skew),
            drift=max(self.drift, other.drift),
            grace=max(self.grace, other.grace),
            rule=Rule.OBSERVED if Rule.OBSERVED in (self.rule, other.rule) else self.rule,
        )


@dataclass(frozen=True)
class Policy:
    """Limits, margins and admins of one ledger. Durations are whole seconds."""

    ttl_max: int = 8 * 3_600
    ttl_min: int = 10
    skew: int = 60
    drift: int = 10_000  # parts per million: 1 %
    grace: int = 5
    rule: Rule = Rule.WALL
    admins: tuple[str, ...] = ()
    history: History = History.REPLACE
    keep_completed: int = 30 * 86_400
    park_max: Annotated[int, LATER] = 86_400  # of older versions, which parked leases for so long
    abandoned_after: Annotated[int, RARE] = 7 * 86_400  # 0: never
    issues: Annotated[Issues, RARE] = Issues.NONE

    @property
    def abandons_early(self) -> bool:
        """Return whether edges are abandoned sooner than clients before format 4 accept."""
        return 0 < self.abandoned_after < DAY

    @property
    def margins(self) -> Margins:
        return _margins(self.skew, self.drift, self.grace, self.rule)

    def is_admin(self, holder: str) -> bool:
        return any(person_key(holder) == person_key(admin) for admin in self.admins)

    def problem(self) -> str | None:
        """The fault that makes this policy unusable, in words; None when it is sound."""
        if not 1 <= self.ttl_min <= self.ttl_max <= LONGEST:
            return "ttl_min and ttl_max must satisfy 1s ≤ ttl_min ≤ ttl_max ≤ ten years"
        for key, most, words in _BOUNDS:
            if not 0 <= getattr(self, key) <= most:
                return f"{key} must be {words}"
        # A day has always been enough, whatever the TTLs.
        least = min(DAY, max(SOONEST_ABANDONED, self.ttl_max))
        if self.abandoned_after and not least <= self.abandoned_after <= LONGEST:
            return (
                f"edges.abandoned_after must be never, or between {format_duration(least)} "
                "(the longest TTL, 10m at least) and ten years"
            )
        if len(self.admins) > MAX_ADMINS:
            return f"at most {MAX_ADMINS} admins"
        return None


_BOUNDS = (
    ("skew", 86_400, "between 0s and 1d"),
    ("drift", 500_000, "between 0% and 50%"),
    ("grace", 3_600, "between 0s and 1h"),
    ("keep_completed", LONGEST, "at most ten years"),
    ("park_max", LONGEST, "at most ten years"),
)


@lru_cache(maxsize=16)
def _margins(skew: int, drift: int, grace: int, rule: Rule) -> Margins:
    return Margins(skew=skew, drift=drift, grace=grace, rule=rule)


DEFAULT_POLICY = Policy()


# --- leases ---------------------------------------------------------------------------------------

MAX_REASON, MAX_NOTE = 500, 2_000
THIRD = 3  # a lease is renewed when more than a third of its time is gone
Session = Annotated[str, 128]


class State(Enum):
    """The state of a lease. Ledgers record only ACTIVE and COMPLETED; the others are derived."""

    ACTIVE = "active"
    EXPIRED = "expired"
    RELEASED = "released"
    COMPLETED = "completed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Actor:
    """The caller: the authenticated holder, and which of its runs.

    ``session_explicit`` says that the session came from a flag or the environment, which is what
    may bind a person-scoped lease to it. ``host`` (see ``place``) and ``branch`` tell people where
    that was.
    """

    holder: str
    session: str | None = None
    session_explicit: bool = False
    host: str | None = None
    branch: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One record of the ledger. Times are wall-clock milliseconds, ``ttl`` whole seconds.

    ``lease_id`` is a fresh nonce for each grant and ``operation`` the id that wrote the record:
    without them two clients could build the same bytes, and both be told "up to date". ``picked``:
    a pool or a run took it from the queue by itself, so its edge protects nothing once it has
    lapsed. ``parked``: an older version kept it for a time. Nothing renews it then, and a claim of
    its holder's goes on by a new grant.
    """

    resource: Resource
    scope: Scope
    holder: str
    session: Session | None
    state: Annotated[State, (State.ACTIVE, State.COMPLETED)]
    token: Annotated[int, range(1, LARGEST + 1)]
    ttl: Annotated[int, range(1, LONGEST + 1)]
    claimed_at: Time
    renewed_at: Time
    expires_at: Time
    renewals: int
    paths: Annotated[tuple[str, ...], "patterns"]
    reason: Annotated[str, MAX_REASON] | None
    host: str | None
    branch: str | None
    edge: bool
    lease_id: str
    operation: str
    margins: Margins
    parked: Annotated[bool, RARE] = False
    picked: Annotated[bool, RARE] = False

    @property
    def edge_stays(self) -> bool:
        """Return whether the task stays its holder's once the lease has lapsed."""
        # Nobody chose what a pool picked: it goes back to the queue.
        return self.edge and not self.picked

    @property
    def place(self) -> HostPlace:
        return place(self.host)

    @property
    def key(self) -> LeaseKey:
        return lease_key(self.resource, self.scope)

    @property
    def duration_ms(self) -> int:
        """Milliseconds, used by all rules of time: ``expires_at - renewed_at``."""
        return self.expires_at - self.renewed_at

    @property
    def renew_at(self) -> int:
        """When it is due to be renewed, in milliseconds since the epoch."""
        return self.renewed_at + self.duration_ms // THIRD

    @property
    def left_behind(self) -> bool:
        """Return whether the end of a session left it for its edge: it ran out on purpose."""
        return self.session is None and not self.duration_ms

    def lets_go_of(self, before: Lease) -> bool:
        """True if it only unbinds the record ``before``, or ends its time: nobody waits for it."""
        # Whoever binds it counts on it as after a grant.
        one, other = ((x.renewals, x.renewed_at, x.expires_at) for x in (before, self))
        same = self.lease_id == before.lease_id and self.session is None
        return same and (one == other or not self.duration_ms)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Every path pattern it covers, its own first: what path conflicts look at."""
        pattern = self.resource.pattern
        return self.paths if pattern is None else (pattern, *self.paths)

    def same_holder(self, actor: Actor) -> bool:
        return same_person(self.holder, actor.holder)

    def answers_to(self, actor: Actor) -> bool:
        """True if the actor is this lease's holder: same person, and not another session's run."""
        return self.same_holder(actor) and self.session in (None, actor.session)

    def is_of_parent(self, actor: Actor) -> bool:
        """True if it is of the session that started the actor's: ``claude:1`` of ``claude:1/2``."""
        started, session = self.session, actor.session
        by = started is not None and session is not None and session.startswith(f"{started}/")
        return by and self.same_holder(actor)


class HostPlace(NamedTuple):
    """The machine of a caller, the process that leads its terminal session or run, and the name
    of its linked work tree, if it is in one."""

    host: str | None
    pid: int | None
    worktree: str | None


def place(host: str | None) -> HostPlace:
    """Read a record's ``host``: ``laptop``, ``laptop:4711``, with a tree ``laptop/T001:4711``."""
    name, pid = _split_process(host or "")
    machine, _, worktree = name.partition("/")
    return HostPlace(machine or None, pid, worktree or None)


def without_process(host: str | None) -> str | None:
    """A record's ``host`` without the process."""
    return _split_process(host or "")[0] or None


def _split_process(host: str) -> tuple[str, int | None]:
    name, colon, pid = host.rpartition(":")
    # int() reads other digits than ASCII ones, too; a record may hold any.
    return (name, int(pid)) if colon and pid.isdecimal() and pid.isascii() else (host, None)


LeaseKey = tuple[str, str]
"""Folded resource and folded scope: at most one record of a ledger has it."""


def lease_key(resource: Resource, scope: str) -> LeaseKey:
    return resource.key, fold(scope)


def same_person(one: str, other: str) -> bool:
    """True if two holders are one person: the ASCII letter case of emails does not matter."""
    return one == other or person_key(one) == person_key(other)


MILLION = 1_000_000


@dataclass(frozen=True)
class Sighting:
    """When this clone first saw this term of a lease, and whether it replaced another.

    A first sighting of a resource is not a change: it says nothing of when it was written. A holder
    counts from ``since``, which stays where a clock that was set back makes ``at`` start again.
    """

    at: Instant
    changed: bool
    since: Instant | None = None


@dataclass(frozen=True)
class Moment:
    """All that a decision knows of time: both clocks now, and when this clone saw which records.

    ``step`` has the ids of the operations that are being applied. A record that one of them wrote
    is of now, by construction: ``seen`` knows only what was there before the step.
    """

    now: Instant
    seen: Callable[[Lease], Sighting | None] = lambda _lease: None
    step: frozenset[str] = frozenset()

    def sighting(self, lease: Lease) -> Sighting:
        """The sighting of this record; one never seen is seen now."""
        return self.seen_before(lease) or Sighting(at=self.now, changed=False)

    def seen_before(self, lease: Lease) -> Sighting | None:
        """The sighting of a record that was there before the step; None if there is none."""
        return None if lease.operation in self.step else self.seen(lease)


class Standing(Enum):
    """The standing of a lease on its way out, for one reader."""

    LIVE = "live"
    EXPIRED = "expired"
    LAPSED = "lapsed"


def holder_has(lease: Lease, moment: Moment) -> bool:
    """True if its own holder may still act on it: by the larger of elapsed boot and wall time."""
    # A holder stops by whichever clock is first, a contender waits for both: they never overlap.
    if moment.now.wall_ms >= lease.expires_at:
        return False
    seen = moment.seen_before(lease)
    return seen is None or (seen.since or seen.at).elapsed_at_most(moment.now) < lease.duration_ms


def standing(lease: Lease, policy: Policy, moment: Moment) -> Standing:
    """How a contender must see this lease now."""
    return _judged(lease, policy, moment)[0]


def has_lapsed(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Return whether anyone may take it now, as far as its term goes."""
    return standing(lease, policy, moment) is Standing.LAPSED


def clock_skewed(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Return whether the record is from the future by more than the allowance: a clock is wrong."""
    return _is_future(lease, policy.margins.widest(lease.margins), moment)


def free_at(lease: Lease, policy: Policy, moment: Moment) -> int:
    """Wall-clock milliseconds, on this reader's clock, after which anyone may take it."""
    return _judged(lease, policy, moment)[1]


def abandoned_at(lease: Lease, policy: Policy) -> int | None:
    """Wall-clock milliseconds after which its edge protects no longer; None if it always does."""
    if not lease.edge or not (policy.abandoned_after or lease.picked):
        return None
    # The record alone says so, without any sighting: clones must agree on whose task it is.
    margin = policy.margins.widest(lease.margins).skew
    after = 0 if lease.picked else policy.abandoned_after
    return lease.expires_at + (after + margin) * MS


def _judged(lease: Lease, policy: Policy, moment: Moment) -> tuple[Standing, int]:
    # And the wall clock of the reader after which anyone may take it.
    margins, seen = policy.margins.widest(lease.margins), moment.sighting(lease)
    now, duration = moment.now.wall_ms, lease.duration_ms
    future = _is_future(lease, margins, moment)
    if future:
        # Leases that an older version parked may last longer than any TTL.
        longest = max(policy.ttl_max, policy.park_max) if lease.parked else policy.ttl_max
        # By a false clock anybody could keep others out for any time.
        duration = min(duration, longest * MS)
    # Both rules must agree. The timestamps of a record from the future mean nothing on this clock.
    by_wall = not future and Rule.WALL in (policy.rule, lease.margins.rule)
    observed = future or margins.rule is Rule.OBSERVED
    wait = 0  # milliseconds that must pass since the record was seen
    if observed:
        # Rounded up: a millisecond too early would be too early.
        wait = duration + -(-duration * margins.drift // MILLION) + margins.grace * MS
    elif seen.changed:
        wait = duration  # under ``wall`` only a change seen here proves that the holder was alive
    ends = [seen.at.wall_ms + wait] if wait or not by_wall else []
    if by_wall:
        ends.append(lease.expires_at + margins.skew * MS)
    elapsed = seen.at.elapsed_at_least(moment.now)
    # Every wait must be over by the smaller of the clocks, too.
    if now > max(ends) and elapsed >= wait:
        return Standing.LAPSED, max(ends)
    live = (by_wall and now < lease.expires_at) or (observed and elapsed < duration)
    return Standing.LIVE if live else Standing.EXPIRED, max(ends)


def _is_future(lease: Lease, margins: Margins, moment: Moment) -> bool:
    return lease.renewed_at > moment.now.wall_ms + margins.skew * MS


class Relation(Enum):
    """How one record relates to one caller at one moment."""

    MINE = "live, and the caller's: same person, unbound or same session"
    MINE_LAPSED = "the caller's own, run out"
    MY_RUN = "the caller's own, bound to a session, and the caller speaks without one"
    MY_OTHER_RUN = "the caller's own, bound to another session"
    THEIRS = "another person's, live or expired but not lapsed"
    THEIRS_LAPSED = "another person's, lapsed, no edge"
    THEIRS_ASSIGNED = "another person's, lapsed, the task still assigned to them"
    THEIRS_ABANDONED = "another person's, lapsed, and its edge protects no longer"
    COMPLETED = "completed work"
    GONE = "completed so long ago that it no longer counts"


class Verdict(Enum):
    """The answer of a verb to a record."""

    YES = "yes"
    FREE = "nothing stands in the way"
    TAKE = "the record may be taken over"
    HELD = "held"
    NEEDS_TAKEOVER = "held, unless taken over with a reason"
    NEEDS_LOOK = (
        "held, unless the caller knows that it is abandoned, or takes it over with a reason"
    )
    LOST = "lost"
    NOT_HOLDER = "not_holder"
    NEEDS_REOPEN = "policy, unless opened again"


@dataclass(frozen=True)
class Verdicts:
    """One row: what claim, renew (and extend), and release (and done) do."""

    claim: Verdict
    renew: Verdict
    end: Verdict


TABLE: Mapping[Relation, Verdicts] = {
    Relation.MINE: Verdicts(Verdict.YES, Verdict.YES, Verdict.YES),
    Relation.MINE_LAPSED: Verdicts(Verdict.TAKE, Verdict.LOST, Verdict.YES),
    Relation.MY_RUN: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.YES),
    Relation.MY_OTHER_RUN: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.HELD),
    Relation.THEIRS: Verdicts(Verdict.HELD, Verdict.NOT_HOLDER, Verdict.HELD),
    Relation.THEIRS_LAPSED: Verdicts(Verdict.TAKE, Verdict.LOST, Verdict.FREE),
    Relation.THEIRS_ASSIGNED: Verdicts(Verdict.NEEDS_TAKEOVER, Verdict.LOST, Verdict.HELD),
    Relation.THEIRS_ABANDONED: Verdicts(Verdict.NEEDS_LOOK, Verdict.LOST, Verdict.HELD),
    Relation.COMPLETED: Verdicts(Verdict.NEEDS_REOPEN, Verdict.LOST, Verdict.FREE),
    Relation.GONE: Verdicts(Verdict.TAKE, Verdict.LOST, Verdict.FREE),
}


def relation(lease: Lease, actor: Actor, policy: Policy, moment: Moment) -> Relation:
    """How ``lease`` stands to ``actor`` now: always exactly one row of the table."""
    # Finished work is in the way of its own holder, too.
    if lease.state is State.COMPLETED:
        over = moment.now.wall_ms >= lease.renewed_at + policy.keep_completed * MS
        return Relation.GONE if over else Relation.COMPLETED
    # One's own by the holder's clock, which runs out first: not by the contender's.
    if lease.answers_to(actor):
        return Relation.MINE if holder_has(lease, moment) else Relation.MINE_LAPSED
    lapsed = has_lapsed(lease, policy, moment)
    if lease.same_holder(actor):
        if lapsed:
            return Relation.MINE_LAPSED
        return Relation.MY_RUN if actor.session is None else Relation.MY_OTHER_RUN
    if not lapsed:
        return Relation.THEIRS
    if not lease.edge:
        return Relation.THEIRS_LAPSED
    # What was picked from the queue has no edge left once it has lapsed.
    over = lease.picked or is_abandoned(lease, policy, moment)
    return Relation.THEIRS_ABANDONED if over else Relation.THEIRS_ASSIGNED


def is_abandoned(lease: Lease, policy: Policy, moment: Moment) -> bool:
    """Return whether a lease ran out so long ago that its edge protects no longer."""
    until = abandoned_at(lease, policy)
    return until is not None and moment.now.wall_ms > until


def state_of(lease: Lease, policy: Policy, moment: Moment, *, mine: bool) -> State:
    """The state to show: a record that ran out reads as expired, for its holder at once."""
    if lease.state is not State.ACTIVE:
        return lease.state
    if mine:
        return State.ACTIVE if holder_has(lease, moment) else State.EXPIRED
    live = standing(lease, policy, moment) is Standing.LIVE
    return State.ACTIVE if live else State.EXPIRED
