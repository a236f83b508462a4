"""Any sequence of moves by several people: what must hold after each of them.

Each has a wall clock of its own, within the allowance, and remembers what it saw change when, as a
clone does; each decides on the newest state, as a swap that is applied does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from core.values import (
    NOON,
    as_stored,
    claim,
    complete,
    empty,
    end,
    extend,
    leave_ticket,
    note,
    park,
    release,
    renew,
    retire,
    retirement,
    revoke,
    set_policy,
    take_ticket,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gitlease.core import (
    MS,
    Actor,
    GitleaseError,
    Instant,
    Lease,
    LeaseKey,
    Ledger,
    Moment,
    Operation,
    Sighting,
    State,
    apply,
    holder_has,
    overlap,
    parse,
    parse_resource,
    same_person,
    scopes_overlap,
)

ACTORS = (
    Actor("jo@example.com"),
    Actor("jo@example.com", session="build-7"),
    Actor("jo@example.com", session="agent", session_explicit=True),
    Actor("kim@example.com"),
    Actor("lee@example.com", session="agent", session_explicit=True),
)
RESOURCES = ("F001", "F002", "src/auth/**", "src/*/login.py")
PLACES = ("src/auth/login.py", "docs/")

LONG_THERE = Sighting(Instant(wall_ms=NOON - 10**9, boot_ms=-(10**9), boot_id="boot"), False)

people = st.integers(0, len(ACTORS) - 1)
resources = st.sampled_from(RESOURCES)
scopes = st.sampled_from([None, "*", "parser", "lexer"])


@dataclass
class Clone:
    """One person's view of time: an offset, and since when it has seen each record.

    What it has not seen change counts as there since its first contact, long ago.
    """

    actor: Actor
    offset: int = 0
    records: dict[LeaseKey, tuple[Lease, Sighting]] = field(default_factory=dict)

    def now(self, true: int) -> Instant:
        return Instant(wall_ms=NOON + true + self.offset, boot_ms=true, boot_id="boot")

    def look(self, ledger: Ledger, true: int) -> None:
        for record in ledger.every_lease():
            known = self.records.get(record.key)
            if known is None or known[0] != record:
                sighting = Sighting(self.now(true), changed=known is not None)
                self.records[record.key] = (record, sighting)

    def moment(self, true: int) -> Moment:
        def seen(lease: Lease) -> Sighting | None:
            known = self.records.get(lease.key)
            return known[1] if known and known[0] == lease else LONG_THERE

        return Moment(now=self.now(true), seen=seen)


def conflict(one: Lease, other: Lease) -> bool:
    """By the words of the contract, apart from whose they are.

    Paths that two scopes of one task both cover, as its file may have them, are shared.
    """
    same_task = one.resource == other.resource
    if same_task and scopes_overlap(one.scope, other.scope):
        return True
    shared = set(one.paths) & set(other.paths) if same_task else set()
    return any(
        overlap(parse(a), parse(b))
        for a in set(one.patterns) - shared
        for b in set(other.patterns) - shared
    )


class Moves(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.true = 0
        self.ledger = empty()
        self.clones = [Clone(actor) for actor in ACTORS]
        self.tokens: dict[str, int] = {}
        self.highest = 0

    @initialize(
        offsets=st.lists(st.integers(-30_000, 29_999), min_size=5, max_size=5),
        policy=st.sampled_from([{}, {"rule": "observed"}, {"admins": "kim@example.com"}]),
    )
    def begin(self, offsets: list[int], policy: dict[str, str]) -> None:
        for clone, offset in zip(self.clones, offsets, strict=True):
            clone.offset = offset
        if policy:
            self.apply(3, set_policy(ACTORS[3], **policy))

    # --- moves ------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 9, 10, 30, 59, 61, 65, 120, 600]))
    def time_passes(self, seconds: int) -> None:
        self.true += seconds * MS

    @rule(who=people)
    def looks(self, who: int) -> None:
        self.clones[who].look(self.ledger, self.true)

    @rule(
        who=people,
        what=resources,
        scope=st.sampled_from(["*", "*", "parser", "lexer"]),
        ttl=st.sampled_from([10, 30, 60]),
        more=st.sampled_from([{}, {}, {"reopen": True}, {"paths": PLACES[:1]}, {"edge": True}]),
        takeover=st.booleans(),
    )
    def claims(
        self, who: int, what: str, scope: str, ttl: int, more: dict[str, object], takeover: bool
    ) -> None:
        actor = ACTORS[who]
        wish = claim(actor, what, scope=scope, ttl=ttl, takeover=takeover, reason="why", **more)
        self.apply(who, wish)

    @rule(
        who=people,
        what=st.lists(
            st.sampled_from((*RESOURCES, "src/auth/x.py", "docs/")), min_size=2, max_size=4
        ),
        ttl=st.sampled_from([10, 30]),
        paths=st.sampled_from([(), PLACES]),
    )
    def claims_several(self, who: int, what: list[str], ttl: int, paths: tuple[str, ...]) -> None:
        """In one step, and what they cover overlaps."""
        actor = ACTORS[who]
        self.apply(who, *(claim(actor, x, ttl=ttl, paths=paths) for x in dict.fromkeys(what)))

    @rule(who=people, what=st.one_of(st.none(), resources), scope=scopes)
    def renews(self, who: int, what: str | None, scope: str | None) -> None:
        self.apply(who, renew(ACTORS[who], what, scope=scope if what else None))

    @rule(who=people, what=resources, seconds=st.sampled_from([5, 90, 100_000]))
    def extends(self, who: int, what: str, seconds: int) -> None:
        self.apply(who, extend(ACTORS[who], seconds, what))

    @rule(who=people, what=resources, scope=scopes, finish=st.booleans())
    def ends(self, who: int, what: str, scope: str | None, finish: bool) -> None:
        ending: Callable[..., Operation] = complete if finish else release
        self.apply(who, ending(ACTORS[who], what, scope=scope))

    @rule(who=people, what=resources, scope=scopes, seconds=st.sampled_from([None, 5, 90, 10**6]))
    def parks(self, who: int, what: str, scope: str | None, seconds: int | None) -> None:
        self.apply(who, park(ACTORS[who], what, scope=scope, seconds=seconds))

    @rule(who=people, parks=st.booleans())
    def ends_its_session(self, who: int, parks: bool) -> None:
        """By what the clone knew when it looked last, so some of it is no longer so."""
        actor = ACTORS[who]
        known = [lease for lease, _ in self.clones[who].records.values()]
        own = [x for x in known if x.session is not None and x.session == actor.session]
        self.apply(who, end(actor, *own, park=parks, seconds=60))

    @rule(who=people, what=resources, assigned=st.booleans())
    def retires(self, who: int, what: str, assigned: bool) -> None:
        """By what the clone knew when it looked last: whatever is live stays (S2, S7)."""
        known = [lease for lease, _ in self.clones[who].records.values()]
        of = [x for x in known if x.resource == parse_resource(what)]
        self.apply(who, retire(ACTORS[who], retirement(*of, what=what, assigned=assigned)))

    @rule(who=people, what=resources)
    def revokes(self, who: int, what: str) -> None:
        self.apply(who, revoke(ACTORS[who], what))

    @rule(who=people, what=resources, scope=scopes, seconds=st.sampled_from([5, 600]))
    def stands_in_line(self, who: int, what: str, scope: str | None, seconds: int) -> None:
        until = NOON + self.true + seconds * MS
        wish = take_ticket(ACTORS[who], f"of-{who}", what, scope=scope or "*", until=until)
        self.apply(who, wish)

    @rule(who=people, what=resources, passing=st.integers(0, 2), leaves=st.booleans())
    def comes_forward(self, who: int, what: str, passing: int, leaves: bool) -> None:
        """A claim by one's ticket, or none: it changes nothing about whose leases are whose."""
        actor, ticket = ACTORS[who], f"of-{who}"
        if leaves:
            self.apply(who, leave_ticket(actor, ticket, what))
        else:
            self.apply(who, claim(actor, what, ttl=10, ticket=ticket, passing=passing))

    @rule(who=people, what=resources)
    def notes(self, who: int, what: str) -> None:
        self.apply(who, note(ACTORS[who], "words", what))

    def apply(self, who: int, *operations: Operation) -> None:
        """Decide on the newest state, at this person's instant, and look at what came of it."""
        clone, before = self.clones[who], self.ledger
        clone.look(before, self.true)
        old = {x.lease_id: x for x in before.every_lease()}
        live = self.believers()
        try:
            applied = apply(before, operations, clone.moment(self.true))
        except GitleaseError:
            assert {x.lease_id: x for x in before.every_lease()} == old
            return
        self.ledger = as_stored(applied.ledger)
        clone.look(self.ledger, self.true)
        new = {x.lease_id: x for x in self.ledger.every_lease()}
        kinds = {event.kind for event in applied.events}
        for lease in (x for outcome in applied.outcomes for x in outcome.leases):
            if lease.state in (State.ACTIVE, State.COMPLETED):
                assert lease.lease_id in new, "S6: what is reported is not in the ledger"
        assert self.ledger.header.revision == before.header.revision + applied.changed
        self.check_tokens(new)
        self.check_others_are_left_alone(clone.actor, old, new, kinds)
        if not kinds & {"released", "completed", "revoked"}:
            for lease in live:
                own = lease.answers_to(clone.actor)  # and has run out, by this clock of theirs
                assert own or lease.lease_id in new, "S2: a live lease was neither ended nor lapsed"

    # --- what must hold ---------------------------------------------------------------------------

    def check_tokens(self, new: dict[str, Lease]) -> None:
        for lease in new.values():
            if lease.lease_id in self.tokens:
                assert self.tokens[lease.lease_id] == lease.token, "S4: a token changed"
            else:
                assert lease.token > self.highest, "S4: a grant without a greater token"
        self.tokens |= {x.lease_id: x.token for x in new.values()}
        self.highest = max([self.highest, *self.tokens.values()])
        assert self.ledger.header.token == self.highest

    def check_others_are_left_alone(
        self, actor: Actor, old: dict[str, Lease], new: dict[str, Lease], kinds: set[str]
    ) -> None:
        for lease_id, lease in old.items():
            if same_person(lease.holder, actor.holder):
                continue
            if lease_id in new:
                assert new[lease_id] == lease, "S7: another's lease was changed"

    def believers(self) -> list[Lease]:
        """Active leases that some clone of their holder knows as they are, and has by its clock."""
        found = []
        for lease in self.ledger.every_lease():
            if lease.state is not State.ACTIVE:
                continue
            for clone in self.clones:
                mine = lease.answers_to(clone.actor) and self.knows(clone, lease)
                if mine and holder_has(lease, clone.moment(self.true)):
                    found.append(lease)
                    break
        return found

    def knows(self, clone: Clone, lease: Lease) -> bool:
        """Whether this clone has the record as it is: only then may it act on it."""
        known = clone.records.get(lease.key)
        return known is not None and known[0] == lease

    @invariant()
    def at_most_one_live_holder_of_overlapping_work(self) -> None:
        for one, other in itertools.combinations(self.believers(), 2):
            if one.holder == other.holder and (
                one.session == other.session or None in (one.session, other.session)
            ):
                continue
            assert not conflict(one, other), "S3: two live holders of overlapping work"

    @invariant()
    def records_are_sound(self) -> None:
        policy = self.ledger.header.policy
        for lease in self.ledger.every_lease():
            longest = max(policy.ttl_max, policy.park_max) if lease.parked else policy.ttl_max
            assert 0 <= lease.duration_ms <= longest * MS + 60_000
            assert not (lease.parked and lease.session)
            assert lease.state in (State.ACTIVE, State.COMPLETED)


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class ManyMoves(Moves):
    """The same, far more of it."""


TestManyMoves = pytest.mark.slow(ManyMoves.TestCase)
TestManyMoves.settings = settings(max_examples=1_000, stateful_step_count=30, deadline=None)
