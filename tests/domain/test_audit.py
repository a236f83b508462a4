"""The audit of a step: whatever the table does is legal, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from domain.values import (
    JO,
    KIM,
    TTL,
    as_stored,
    at,
    claim,
    empty,
    fresh,
    holding,
    lease,
    moment,
    note,
    release,
    renew,
    revoke,
    set_policy,
)
from support.audited import pusher, with_header, written_of

from gitlease.domain.audit import Illegal, Pusher, Written, judge
from gitlease.domain.edge import Assignee
from gitlease.domain.errors import GitleaseError
from gitlease.domain.lapse import Sighting
from gitlease.domain.lease import Actor
from gitlease.domain.ledger import RING_SIZE, Ledger, RingEntry
from gitlease.domain.operations import (
    Acknowledge,
    Barrier,
    Claim,
    Complete,
    EndSession,
    Extend,
    Grant,
    LeaveTicket,
    Operation,
    Park,
    Release,
    Renew,
    Retire,
    Retirement,
    Revoke,
    SetPolicy,
    TakeTicket,
)
from gitlease.domain.policy import Policy, Rule
from gitlease.domain.resource import Resource, parse_resource
from gitlease.domain.transitions import apply

LIVE = 10
BASE = holding(
    lease(),
    lease(resource="F002", holder=KIM),
    lease(resource="src/", holder=KIM, ttl=8 * 3_600),
    lease(resource="F004", ttl=60, since=-3_600),
)


def step(ledger: Ledger, *operations: Operation, by: Actor = KIM, seconds: float = LIVE) -> Written:
    """What a client would write of some operations."""
    when = moment(seconds)
    applied = apply(ledger, operations, when)
    return written_of(ledger, applied, by.holder, when.now.wall_ms)


def refused(
    written: Written,
    *,
    by: Pusher | None = None,
    seconds: float = LIVE,
    before: Ledger | None = BASE,
) -> str:
    """The rule that a step breaks."""
    with pytest.raises(Illegal) as caught:
        judge(before, written, by or pusher(KIM.holder), moment(seconds).now.wall_ms)
    assert caught.value.message.isprintable()
    return caught.value.rule


def legal(
    written: Written, *, by: Actor = KIM, seconds: float = LIVE, before: Ledger | None = BASE
) -> None:
    judge(before, written, pusher(by.holder), moment(seconds).now.wall_ms)


# --- whatever the table does is legal -------------------------------------------------------------

PEOPLE = (
    JO,
    KIM,
    replace(JO, holder="Jo@example.com", session="a", session_explicit=True),
    replace(JO, session="b"),
    replace(KIM, session="a"),
)
NAMES = ("F001", "f002", "F003", "src/", "src/a.py", "*.py")
OTHERS = (
    (),
    (Assignee("@x", ("x@example.com",)), Assignee("team", ("y@example.com", "z@example.com"))),
    (Assignee("nobody"), Assignee("jo", (JO.holder,))),
)


class Player:
    """Somebody who does this and that, the same every time that a seed is played."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.names: list[str] = []

    def resource(self) -> Resource:
        """One that no other operation of the batch is about."""
        name = self.names.pop(self.dice.randrange(len(self.names)))
        return parse_resource(name.swapcase() if self.dice.random() < 0.1 else name)

    def batch(self, ledger: Ledger, who: Actor, now_ms: int) -> list[Operation]:
        self.names = list(NAMES)
        if self.dice.random() < 0.25:
            return [self.sweep(ledger, who)]
        return [self.one(ledger, who, now_ms) for _ in range(self.dice.choice((1, 1, 1, 2, 3)))]

    def sweep(self, ledger: Ledger, who: Actor) -> Operation:
        """An operation over many leases at once."""
        pick = self.dice.choice
        every = [x for x in ledger.every_lease() if self.dice.random() < 0.8]
        grants = tuple(_grant(x) for x in every)
        match pick(("renew", "grants", "end", "retire")):
            case "renew":
                return Renew(id=fresh(), actor=who, ttl=pick((None, 120)))
            case "grants":
                return Renew(id=fresh(), actor=who, grants=grants or (_grant(lease()),))
            case "end":
                return EndSession(
                    id=fresh(),
                    actor=who,
                    grants=grants,
                    park=pick((True, False)),
                    seconds=pick((None, 77)),
                    note=pick((None, "bye")),
                )
            case _:
                names = dict.fromkeys(x.resource for x in every)
                items = (
                    Retirement(
                        resource=name,
                        reason=pick(("tidy", "old")),
                        grants=tuple(_grant(x) for x in every if x.resource == name),
                        assigned=pick((True, False)),
                        unassigned=pick(OTHERS),
                        note=pick((None, "was retired")),
                    )
                    for name in names
                )
                return Retire(id=fresh(), actor=who, items=tuple(items))

    def one(self, ledger: Ledger, who: Actor, now_ms: int) -> Operation:
        pick, what = self.dice.choice, self.resource()
        base: dict[str, Any] = {"id": fresh(), "actor": who}
        about: dict[str, Any] = {**base, "resource": what}
        scope = pick(("*", "*", "parser", "ui"))
        ticket = f"{who.holder[:1].lower()}{pick('12')}"
        text = pick((None, "half done"))
        kinds = "claim claim claim claim renew extend release complete park revoke note policy"
        match pick((*kinds.split(), "barrier", "acknowledge", "ticket", "leave")):
            case "claim":
                return Claim(
                    **about,
                    lease_id=fresh(),
                    scope=scope,
                    ttl=pick((None, 60, 3_600)),
                    reason=pick((None, "because", "why")),
                    paths=pick(((), ("lib/x",), ("docs/**", "src/a.py"))),
                    takeover=pick((True, False)),
                    reopen=pick((True, False)),
                    edge=pick((True, False)),
                    assigned=pick(OTHERS),
                    ticket=pick((None, ticket)),
                    passing=pick((None, None, 0, 2)),
                )
            case "renew":
                return Renew(**about, scope=pick((None, scope)), ttl=pick((None, 120)))
            case "extend":
                return Extend(**about, seconds=pick((30, 5_000, 10**6)))
            case "release":
                return Release(**about, scope=pick((None, scope)), note=text)
            case "complete":
                return Complete(**about, lease_id=fresh(), scope=pick((None, scope)))
            case "park":
                return Park(**about, seconds=pick((None, 100, 10**7)), reason=text, note=text)
            case "revoke":
                return Revoke(**about, reason="stuck", scope=pick((None, scope)))
            case "note":
                return note(who, "hello\n\tthere", what.text)
            case "policy":
                return set_policy(who, **pick(POLICIES))
            case "acknowledge":
                known = ledger.notices(who.holder)
                return Acknowledge(**base, notices=tuple(n.id for n in known[: pick((1, 9))]))
            case "ticket":
                return TakeTicket(
                    **base,
                    resources=(what, self.resource()) if len(self.names) > 3 else (what,),
                    ticket=ticket,
                    until=now_ms + pick((10**5, 10**7, 10**9)),
                    scope=scope,
                    since=pick((None, now_ms - 5_000)),
                )
            case "leave":
                return LeaveTicket(**base, resources=(what,), ticket=ticket)
            case _:
                return Barrier(**base)


POLICIES = (
    {"ttl_max": "4h", "skew": "90s"},
    {"admins": "jo@example.com, kim@example.com"},
    {"skew": "60s", "park_max": "1h"},
)


def _grant(x: Any) -> Grant:
    return Grant(x.resource, x.scope, x.session, x.lease_id, x.token)


def play(seed: int, steps: int) -> int:
    """Play, and see that each step is legal; how many there were."""
    player, seconds, legal_steps = Player(seed), 0.0, 0
    ledger, before = empty(), None
    for _ in range(steps):
        seconds += player.dice.choice((0.123, 1, 30, 400, 1_000))
        who, when = player.dice.choice(PEOPLE), moment(seconds)
        operations = player.batch(ledger, who, when.now.wall_ms)
        try:
            applied = apply(ledger, operations, when, together=player.dice.random() < 0.5)
        except GitleaseError:
            continue
        if not applied.changed:
            continue
        written = written_of(ledger, applied, who.holder, when.now.wall_ms)
        late = when.now.wall_ms + player.dice.choice((-3_000, 0, 2_000))
        judge(before, written, pusher(who.holder), late)
        ledger = before = as_stored(applied.ledger)
        legal_steps += 1
    return legal_steps


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(120))
def test_every_move_of_the_table_is_legal(seed: int) -> None:
    assert play(seed, 60) > 5


# --- what only a server can say -------------------------------------------------------------------


def test_a_step_is_its_pushers_own() -> None:
    written = step(BASE, claim(KIM, "F009"))
    legal(written)
    judge(BASE, written, Pusher(("kim@home.org", "KIM@example.com"), "kim"), written.at)
    judge(BASE, written, Pusher(None, "somebody"), written.at)
    assert refused(written, by=pusher(JO.holder)) == "identity"
    assert refused(written, by=Pusher((), "nobody")) == "identity"
    assert refused(replace(written, author=JO.holder)) == "identity"


@pytest.mark.parametrize(("off", "fine"), [(59, True), (-59, True), (61, False), (-61, False)])
def test_time_may_differ_by_the_allowance_and_no_more(off: int, fine: bool) -> None:
    written = step(BASE, renew(KIM, "F002"))
    if fine:
        legal(written, seconds=LIVE + off)
    else:
        assert refused(written, seconds=LIVE + off) == "clock"


def test_no_policy_makes_a_push_impossible() -> None:
    strict = holding(lease(holder=KIM), policy=Policy(skew=0))
    written = step(strict, renew(KIM))
    legal(written, seconds=LIVE + 9, before=strict)
    assert refused(written, seconds=LIVE + 11, before=strict) == "clock"


def test_a_takeover_waits_for_the_end_by_the_judges_clock() -> None:
    """By the rule ``observed`` only the taker knows how long it has seen the record."""
    policy = Policy(rule=Rule.OBSERVED)
    observed = holding(lease(margins=policy.margins), policy=policy)
    long_ago = Sighting(at=at(-100_000), changed=True)
    for seconds, fine in ((TTL - 100, False), (TTL, True)):
        when = moment(seconds, seen=long_ago)
        applied = apply(observed, [claim(KIM)], when)
        written = written_of(observed, applied, KIM.holder, when.now.wall_ms)
        if fine:
            legal(written, seconds=seconds, before=observed)
        else:
            assert refused(written, seconds=seconds, before=observed) == "takeover"


def test_what_a_holder_believes_in_is_not_taken_by_a_clock_ahead() -> None:
    just = moment(TTL + 61)
    applied = apply(BASE, [claim(KIM)], just)
    written = written_of(BASE, applied, KIM.holder, just.now.wall_ms)
    legal(written, seconds=TTL + 61)
    legal(written, seconds=TTL + 2)
    assert refused(written, seconds=TTL) == "clock"


# --- what nothing explains ------------------------------------------------------------------------


def edited(make: Callable[[Written], Written], rule: str) -> None:
    assert refused(make(step(BASE, claim(KIM, "F009")))) == rule


def test_a_header_that_does_not_follow_is_refused() -> None:
    edited(lambda w: with_header(w, revision=w.header.revision + 1), "revision")
    edited(lambda w: with_header(w, revision=w.header.revision - 1), "revision")
    edited(lambda w: with_header(w, epoch=1), "epoch")
    edited(lambda w: with_header(w, ledger_id="other"), "ledger-id")
    edited(lambda w: with_header(w, sequence=w.header.sequence - 1), "token")
    edited(lambda w: with_header(w, sequence=w.header.sequence - 2), "token")
    edited(lambda w: with_header(w, sequence=w.header.sequence + 1), "token")
    edited(lambda w: with_header(w, policy=Policy(skew=1)), "policy")
    edited(lambda w: with_header(w, ring=()), "ring")


def test_a_ring_that_lies_is_refused() -> None:
    written = step(BASE, claim(KIM, "F009"))
    (entry,) = written.header.ring
    called = replace(entry, outcome="renewed")
    assert refused(with_header(written, ring=(called,))) == "ring"
    assert refused(with_header(written, ring=(replace(entry, outcome="won"),))) == "outcome"
    assert refused(with_header(written, ring=(replace(entry, outcome="held"),))) == "unexplained"
    more = RingEntry("made-up", entry.revision, "claimed")
    assert refused(with_header(written, ring=(entry, more))) == "outcome"
    harmless = RingEntry("made-up", entry.revision, "lost")
    legal(with_header(written, ring=(entry, harmless)))


def test_an_operation_is_never_applied_again() -> None:
    asked = claim(KIM, "F009")
    first = apply(BASE, [asked], moment(LIVE))
    after = as_stored(first.ledger)
    again = written_of(BASE, first, KIM.holder, moment(LIVE).now.wall_ms)
    ring = (*after.header.ring, replace(again.header.ring[0], revision=after.header.revision + 1))
    twice = with_header(again, revision=after.header.revision + 1, ring=ring)
    assert refused(twice, before=after) == "ring"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("token", 1, "token"),
        ("lease_id", "", "lease_id"),
        ("ttl", 60, "record"),
        ("expires_at", 10**15, "record"),
        ("renewed_at", 1, "record"),
        ("claimed_at", 1, "record"),
        ("renewals", 9, "record"),
        ("operation", "other", "record"),
        ("holder", JO.holder, "holder"),
    ],
)
def test_every_field_of_a_record_counts(field: str, value: Any, rule: str) -> None:
    written = step(BASE, claim(KIM, "F009"))
    (key,) = written.leases
    record = written.leases[key]
    assert record is not None
    wrong = replace(record, **{field: value})
    changed = replace(written, leases={key: wrong})
    if rule == "lease_id":  # a nonce is the writer's own choice
        legal(changed)
    else:
        assert refused(changed) == rule


def test_nothing_else_may_change_along() -> None:
    written = step(BASE, claim(KIM, "F009"))
    theirs = BASE.leases_of(parse_resource("F001"))[0]
    gone = {**written.leases, theirs.key: None}
    assert refused(replace(written, leases=gone)) == "unexplained"
    assert refused(replace(written, dropped=("leases/x",))) == "unexplained"
    noted = step(BASE, note(KIM, "psst", "F002"))
    assert refused(replace(written, notes=noted.notes)) == "notes"
    assert refused(replace(noted, notes={})) == "notes"


def test_a_message_tells_what_is_done_and_nothing_else() -> None:
    written = step(BASE, claim(KIM, "F009", reason="mine"))
    (event,) = written.events
    for lie in (
        (),
        (event, event),
        (event._replace(reason="jo said so"),),
        (event._replace(kind="renewed"),),
        (event._replace(operation="other"),),
    ):
        assert refused(replace(written, events=lie)) == "message"
    assert refused(replace(written, renewal=True)) == "message"
    quiet = step(BASE, renew(KIM, "F002"))
    assert refused(replace(quiet, renewal=False)) == "message"


def test_only_ones_own_is_ended_and_only_by_admins_anothers() -> None:
    for theft in (release(JO), renew(JO)):
        written = step(BASE, theft, by=KIM)
        told = tuple(event._replace(by=KIM.holder) for event in written.events)
        assert refused(replace(written, events=told)) in ("held", "holder")
    admins = holding(*BASE.every_lease(), policy=Policy(admins=(JO.holder,)))
    revoked = step(admins, revoke(JO, "F002"), by=JO)
    legal(revoked, by=JO, before=admins)
    told = tuple(event._replace(by=KIM.holder) for event in revoked.events)
    mine = replace(revoked, events=told, author=KIM.holder)
    assert refused(mine, before=admins) == "policy"


def test_policy_is_an_admins_word() -> None:
    admins = holding(policy=Policy(admins=(JO.holder,)))
    changed = step(admins, SetPolicy(id=fresh(), actor=JO, changes=(("skew", "5s"),)), by=JO)
    legal(changed, by=JO, before=admins)
    told = tuple(event._replace(by=KIM.holder) for event in changed.events)
    forged = replace(changed, events=told, author=KIM.holder)
    assert refused(forged, before=admins) == "policy"
    silent = with_header(step(admins, Barrier(id=fresh(), actor=KIM)), policy=Policy())
    assert refused(silent, before=admins) == "policy"


def test_the_first_step_makes_the_ledger() -> None:
    written = step(empty(), claim(KIM, "F009"))
    legal(written, before=None)
    assert refused(with_header(written, epoch=3), before=None) == "epoch"
    assert refused(with_header(written, revision=2), before=None) == "revision"
    assert refused(with_header(written, policy=Policy(skew=0)), before=None) == "policy"


def test_a_batch_longer_than_the_ring_and_the_message_is_judged_whole() -> None:
    claims = [claim(KIM, f"N{number}") for number in range(RING_SIZE + 90)]
    written = step(BASE, *claims)
    legal(written)
    hidden = claim(KIM, "F001")
    blind = holding(*(x for x in BASE.every_lease() if x.resource.key != "f001"))
    blind = blind.with_header(BASE.header)
    long = [*claims[:201], hidden, *claims[201:], claim(KIM, "Z1")]
    assert refused(step(blind, *long)) == "held"
    freed = as_stored(apply(BASE, claims, moment(LIVE)).ledger)
    legal(step(freed, *(release(KIM, c.resource.text) for c in claims)), before=freed)


@pytest.mark.parametrize("what", ["end", "park", "renew", "retire", "retire edges"])
def test_a_sweep_over_more_than_a_message_tells_is_judged_whole(what: str) -> None:
    every = [
        lease(resource=f"N{number}", holder=KIM, edge=what == "retire edges")
        for number in range(230)
    ]
    before = holding(*every)
    kept = [_grant(x) for x in before.every_lease()]
    base: dict[str, Any] = {"id": fresh(), "actor": KIM}
    by, seconds = KIM, float(LIVE)
    match what:
        case "renew":
            sweep: Operation = Renew(**base)
        case "end" | "park":
            sweep = EndSession(
                **base, grants=tuple(reversed(kept)), park=what == "park", note="bye"
            )
        case _:
            by, seconds = JO, TTL + 100.0
            items = (
                Retirement(
                    resource=grant.resource,
                    reason="tidy",
                    grants=(grant,),
                    assigned=True,
                    unassigned=(Assignee("@x", ("x@example.com",)),) if "edges" in what else (),
                    note="was left lying",
                )
                for grant in kept
            )
            sweep = Retire(id=fresh(), actor=JO, items=tuple(items))
    written = step(before, sweep, by=by, seconds=seconds)
    assert written.cut
    legal(written, by=by, seconds=seconds, before=before)


def test_a_sweep_that_takes_anothers_along_is_refused() -> None:
    every = [lease(resource=f"N{number}", holder=KIM) for number in range(230)]
    ledger = holding(*every, lease(resource="Z1"))
    kept = [_grant(x) for x in ledger.every_lease() if x.same_holder(KIM)]
    written = step(ledger, EndSession(id=fresh(), actor=KIM, grants=tuple(kept)))
    theirs = ledger.leases_of(parse_resource("Z1"))[0]
    robbed = replace(written, leases={**written.leases, theirs.key: None})
    assert refused(robbed, before=ledger) == "unexplained"
