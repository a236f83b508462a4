"""What happened between two states of a ledger: every kind, by what is written and by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernel.rules.values import (
    F001,
    JO,
    KIM,
    NOON,
    SKEW,
    TTL,
    claim,
    complete,
    empty,
    extend,
    holding,
    lease,
    moment,
    release,
    renew,
    revoke,
    set_policy,
    step,
)
from support.snapshots import check_words

from gitlease.kernel.ledger.watch import (
    LeaseEvent,
    LedgerAt,
    Part,
    assignments_between,
    events_between,
    next_lapse,
)
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor, Sighting
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import Acknowledge, Operation, Park
from gitlease.kernel.rules.resources import parse_resource

LEE = Actor("lee@example.com")
LAPSE = TTL + SKEW  # seconds after which a lease that is not renewed has lapsed


def scene(ledger: Ledger | None, at: float) -> LedgerAt:
    return LedgerAt(ledger, moment(at))


def between(
    before: Ledger | None, after: Ledger | None, start: float, end: float, *parts: Part
) -> list[str]:
    """What is told of it, in words."""
    return told(events_between(scene(before, start), scene(after, end), parts))


def told(events: Sequence[LeaseEvent]) -> list[str]:
    words = []
    for e in events:
        part = "" if e.scope == "*" else f"/{e.scope}"
        who = f" {e.lease.holder.partition('@')[0]}" if e.lease else ""
        words.append(f"{e.kind} {e.resource}{part}{who}")
    return words


def after(ledger: Ledger, *operations: Operation, at: float) -> Ledger:
    """The ledger with these carried out one after the other, all at that time."""
    for operation in operations:
        ledger, _ = step(ledger, operation, when=moment(at))
    return ledger


def part(word: str, scope: str = "*") -> Part:
    return parse_resource(word), scope


HELD = after(empty(), claim(JO), at=0)


# --- every kind -------------------------------------------------------------------------------


def test_a_claim_and_its_renewals_by_whatever_verb() -> None:
    (event,) = events_between(scene(empty(), 0), scene(HELD, 5))
    assert (event.kind, event.at, event.resource) == ("claimed", NOON, F001)
    assert event.lease == HELD.every_lease()[0]
    for how in (renew(JO), extend(JO, 3_600), claim(JO, reason="why")):
        (event,) = events_between(scene(HELD, 5), scene(after(HELD, how, at=100), 105))
        assert (told([event]), event.at) == (["renewed F001 jo"], NOON + 100 * MS)
    assert between(HELD, HELD, 1, 100) == between(None, None, 1, 100) == []


def test_a_release_makes_it_available() -> None:
    freed = after(HELD, release(JO), at=100)
    events = events_between(scene(HELD, 5), scene(freed, 105))
    assert told(events) == ["released F001 jo", "available F001"]
    assert events[0].lease == HELD.every_lease()[0]
    assert {e.at for e in events} == {NOON + 105 * MS}, "known when it is seen"
    assert events[1].lease is None


def test_a_lease_lapses_by_the_clock_alone_and_is_available_then() -> None:
    assert between(HELD, HELD, 5, TTL + 1) == [], "expired, and nobody may take it yet"
    events = events_between(scene(HELD, LAPSE), scene(HELD, LAPSE + 0.001))
    assert told(events) == ["lapsed F001 jo", "available F001"]
    assert {e.at for e in events} == {NOON + LAPSE * MS}
    assert between(HELD, HELD, LAPSE + 1, LAPSE + 2) == [], "which is told once"


def test_a_lapsed_lease_with_an_edge_is_not_available() -> None:
    edged = holding(lease(edge=True))
    assert between(edged, edged, 5, LAPSE + 1) == ["lapsed F001 jo"]
    freed = after(edged, release(JO), at=LAPSE + 5)
    assert between(edged, freed, LAPSE + 1, LAPSE + 9) == ["released F001 jo", "available F001"]


def test_a_takeover_of_a_lapsed_lease_is_one_also_when_its_holder_was_told() -> None:
    taken = after(HELD, claim(KIM), at=LAPSE + 1)
    assert between(HELD, taken, 5, LAPSE + 5) == ["taken_over F001 kim"]
    assert between(HELD, taken, LAPSE + 0.5, LAPSE + 5) == ["taken_over F001 kim"]
    ids = tuple(n.id for n in taken.notices(JO.holder))
    told_of = after(taken, Acknowledge(id="heard", actor=JO, notices=ids), at=LAPSE + 2)
    assert between(HELD, told_of, 5, LAPSE + 5) == ["taken_over F001 kim"]


def test_a_revocation_with_the_time_of_it() -> None:
    ruled = after(HELD, set_policy(KIM, admins=KIM.holder), at=1)
    ended = after(ruled, revoke(KIM), at=100)
    events = events_between(scene(ruled, 5), scene(ended, 105))
    assert told(events) == ["revoked F001 jo", "available F001"]
    assert {e.at for e in events} == {NOON + 100 * MS}
    other = after(ended, claim(LEE), at=103)
    assert between(ruled, other, 5, 105) == ["revoked F001 jo", "claimed F001 lee"]


def test_only_what_shares_work_with_the_parts_is_told() -> None:
    ledger = after(empty(), claim(JO, scope="parser"), claim(KIM, "F002"), at=0)
    assert between(empty(), ledger, 0, 5, part("F002")) == ["claimed F002 kim"]
    assert between(empty(), ledger, 0, 5, part("F001", "lexer")) == []
    check_words(between(empty(), ledger, 0, 5, part("f001", "Parser")))
    both = part("F001"), part("F002")
    check_words(between(empty(), ledger, 0, 5, *both))


def assigned(before: Ledger, later: Ledger, holder: str = JO.holder) -> list[tuple[str, int]]:
    """What is newly assigned to a person, and how many seconds after noon."""
    found = assignments_between(scene(before, 0), scene(later, 900), holder=holder)
    assert {x.kind for x in found} <= {"assigned"}
    assert all(x.lease and x.lease.holder == holder for x in found)
    return [(x.resource.text, (x.at - NOON) // MS) for x in found]


def test_a_task_is_assigned_with_the_claim_that_says_so() -> None:
    both = after(empty(), claim(JO, "F002", edge=True), at=50)
    both = after(both, claim(JO, "F001", edge=True), claim(JO, "port-1"), at=70)
    assert assigned(empty(), both) == [("F002", 50), ("F001", 70)]
    assert assigned(empty(), both, KIM.holder) == []
    edged = after(HELD, claim(JO, edge=True), at=100)
    assert assigned(HELD, edged) == [("F001", 100)], "by a claim of what was held without an edge"


def test_what_was_assigned_before_is_not_assigned_again() -> None:
    mine = after(empty(), claim(JO, edge=True), at=0)
    assert assigned(mine, after(mine, renew(JO), at=50)) == []
    assert assigned(mine, after(mine, claim(JO, edge=True), at=LAPSE + 1)) == [], "it had lapsed"
    parked = after(mine, Park(id="park-1", actor=JO, resource=F001, seconds=3_600), at=50)
    assert assigned(parked, after(parked, claim(JO, edge=True), at=60)) == []
    freed = after(mine, release(JO), at=50)
    assert assigned(freed, after(freed, claim(JO, edge=True), at=60)) == [("F001", 60)]
    assert assigned(mine, after(mine, complete(JO), at=50)) == []


def test_the_next_lapse_is_the_first_of_those_that_have_not_lapsed() -> None:
    ledger = holding(lease(resource="F001"), lease(resource="F002", since=50))
    assert next_lapse(scene(ledger, 5)) == NOON + LAPSE * MS
    assert next_lapse(scene(ledger, LAPSE + 1)) == NOON + (LAPSE + 50) * MS
    assert next_lapse(scene(ledger, LAPSE + 200)) is None
    assert next_lapse(scene(ledger, 5), [part("F002")]) == NOON + (LAPSE + 50) * MS
    assert next_lapse(scene(ledger, 5), [part("F003")]) is None
    assert next_lapse(scene(None, 5)) is None


def test_whoever_saw_the_record_change_counts_from_then() -> None:
    seen = Sighting(at=moment(100).now, changed=True)
    late = LedgerAt(HELD, moment(LAPSE + 10, seen))
    assert events_between(scene(HELD, 5), late) == []
    assert next_lapse(late) == NOON + (100 + TTL) * MS


def test_a_damaged_record_is_no_news_and_nothing_becomes_available_by_it() -> None:
    from support.memory import Broken, MemoryRecords, Step

    held = Step(header=HELD.header, leases={x.key: x for x in HELD.every_lease()})
    damaged = Step(header=HELD.header, broken={"leases/x.yaml": Broken("not YAML", F001)})
    before, later = (replace(HELD, records=MemoryRecords(s)) for s in (held, damaged))
    assert between(before, later, 5, 15) == []
    assert between(before, later, 5, 15, part("F001")) == []
    assert between(later, before, 15, 25) == ["claimed F001 jo"]
