"""The line of those who wait: who stands where, who is let go first, and what a ticket is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from kernel.rules.values import (
    F001,
    JO,
    KIM,
    NOON,
    StoredRecords,
    claim,
    empty,
    fresh,
    moment,
    step,
)
from support.snapshots import check_words, raises

from gitlease.kernel.rules.errors import Invalid, LeaseHeld, PolicyRefused, UsageError
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.ledger import MAX_STEP, TICKETS_KEPT, Ledger, Ticket
from gitlease.kernel.rules.moves.operations import LeaveTicket, Outcome, TakeTicket
from gitlease.kernel.rules.moves.tickets import LONGEST_TICKET, SKEW, NotYourTurn, line, place
from gitlease.kernel.rules.moves.transitions import apply
from gitlease.kernel.rules.resources import Resource, parse_resource

LEE = Actor("lee@example.com")
MAX = Actor("max@example.com")
F002 = parse_resource("F002")
SOON = NOON + 600 * MS


def take(who: Actor, ticket: str, *what: Resource, **more: Any) -> TakeTicket:
    more = {"until": SOON, **more}
    return TakeTicket(id=fresh(), actor=who, resources=what or (F001,), ticket=ticket, **more)


def leave(who: Actor, ticket: str, *what: Resource) -> LeaveTicket:
    return LeaveTicket(id=fresh(), actor=who, resources=what or (F001,), ticket=ticket)


def tickets(ledger: Ledger, what: Resource = F001, at: float = 0) -> list[str]:
    """The ids of those who wait, in their order."""
    return [t.id for t in line(ledger.tickets(what), NOON + round(at * MS))]


def in_line(*who: Actor, **more: Any) -> Ledger:
    """A ledger in which these wait, one second after the other: t0, t1 and so on."""
    ledger = empty()
    for number, one in enumerate(who):
        ledger, _ = step(ledger, take(one, f"t{number}", **more), when=moment(number))
    return ledger


def ahead(ledger: Ledger, who: Actor, ticket: str | None, scope: str = "*", at: float = 60) -> int:
    return place(ledger, {F001: ()}, scope, who, ticket, NOON + round(at * MS)).ahead


def test_who_knows_an_id_puts_nobody_else_out_of_the_line() -> None:
    ledger = in_line(JO)
    with raises(PolicyRefused):
        step(ledger, take(KIM, "t0"), when=moment(5))
    ledger, _ = step(ledger, claim(KIM, ticket="t0"), when=moment(5))
    assert tickets(ledger) == ["t0"]


# --- taking and leaving ---------------------------------------------------------------------------


def test_a_ticket_says_who_waits_since_when_and_until_when() -> None:
    ledger, outcome = step(
        empty(), take(replace(JO, session="s1"), "t", scope="parser"), when=moment(5)
    )
    (ticket,) = ledger.tickets(F001)
    assert ticket == Ticket(
        id="t",
        resource=F001,
        scope="parser",
        holder=JO.holder,
        session="s1",
        since=NOON + 5 * MS,
        until=SOON,
    )
    assert (outcome.status, outcome.changed, outcome.leases) == ("waiting", True, ())
    assert [(e.kind, e.by, e.resource, e.scope) for e in outcome.events] == [
        ("waiting", JO.holder, "F001", "parser")
    ]


def test_the_line_is_in_the_order_of_arrival_and_then_of_ids() -> None:
    """A ticket that is taken again keeps its place, and lasts longer."""
    ledger = in_line(JO, KIM, LEE)
    for name in ("b", "a"):
        ledger, _ = step(ledger, take(MAX, name), when=moment(9))
    assert tickets(ledger) == ["t0", "t1", "t2", "a", "b"]
    first, *_ = ledger.tickets(F001)
    again = take(JO, "t0", since=first.since, until=SOON + MS)
    ledger, _ = step(ledger, again, when=moment(100))
    assert tickets(ledger) == ["t0", "t1", "t2", "a", "b"]
    assert [t.until for t in ledger.tickets(F001)][:2] == [SOON + MS, SOON]


def test_nobody_can_have_waited_since_tomorrow_or_wait_for_years() -> None:
    ledger, _ = step(empty(), take(JO, "t", since=NOON + 10**9, until=NOON + 10**15), when=moment())
    (ticket,) = ledger.tickets(F001)
    assert (ticket.since, ticket.until) == (NOON, NOON + LONGEST_TICKET)
    far = Ticket("far", F001, "*", KIM.holder, None, NOON, NOON + LONGEST_TICKET + SKEW + 1)
    fair = replace(far, id="fair", until=far.until - 1)
    assert [t.id for t in line([far, fair], NOON)] == ["fair"], "nor is it believed"


def test_leaving_takes_ones_own_ticket_away_and_no_other() -> None:
    ledger = in_line(JO, KIM)
    after, outcome = step(ledger, leave(JO, "t0"), when=moment(5))
    assert tickets(after) == ["t1"]
    assert (outcome.status, outcome.changed) == ("left", True)
    for nothing in (leave(JO, "t1"), leave(JO, "gone"), leave(KIM, "t1", F002)):
        applied = apply(after, [nothing], moment(5))
        assert not applied.changed


def test_what_has_run_out_counts_no_more_and_makes_room() -> None:
    ledger = in_line(JO, KIM)
    assert tickets(ledger, at=599.9) == ["t0", "t1"]
    assert tickets(ledger, at=600) == []
    ledger, _ = step(ledger, take(LEE, "t2", until=SOON + MS), when=moment(600))
    assert [t.id for t in ledger.tickets(F001)] == ["t2"]


def test_a_line_is_bounded() -> None:
    """And so is the number of lines that one step stands in."""
    ledger = empty()
    for number in range(TICKETS_KEPT):
        ledger, _ = step(ledger, take(KIM, f"t{number}"), when=moment())
    with raises(PolicyRefused):
        apply(ledger, [take(JO, "one-more")], moment())
    assert apply(ledger, [take(KIM, "t7")], moment()).changed, "but a place may be kept"
    names = [parse_resource(f"T{n}") for n in range(MAX_STEP + 1)]
    applied = apply(empty(), [take(JO, "t", *names[:-1])], moment())
    assert (len(applied.ledger.header.ring), applied.only_renews) == (1, True)
    for asked in ([take(JO, "t", *names)], [take(JO, "t", *names[:-1]), take(JO, "u", names[-1])]):
        with raises(UsageError):
            apply(empty(), asked, moment())


# --- where one stands ----------------------------------------------------------------------------


def test_a_place_counts_those_before_and_behind() -> None:
    """Of several resources the one counts where that is furthest behind."""
    ledger = in_line(JO, KIM, LEE)
    found = place(ledger, {F001: ()}, "*", KIM, "t1", NOON)
    assert (found.ahead, found.behind, found.kept) == (1, 1, True)
    newcomer = place(ledger, {F001: ()}, "*", MAX, None, NOON)
    assert (newcomer.ahead, newcomer.behind, newcomer.kept) == (3, 0, False)
    ledger, _ = step(ledger, take(MAX, "both", F001, F002), when=moment(9))
    assert place(ledger, {F002: ()}, "*", MAX, "both", NOON).ahead == 0
    assert place(ledger, {F001: (), F002: ()}, "*", MAX, "both", NOON).ahead == 3


def test_only_those_who_want_the_same_part_stand_before() -> None:
    ledger, _ = step(empty(), take(KIM, "p", scope="parser"), when=moment())
    ledger, _ = step(ledger, take(LEE, "l", scope="lexer"), when=moment(1))
    assert ahead(ledger, JO, None, "parser") == 1
    assert ahead(ledger, JO, None, "docs") == 0
    assert ahead(ledger, JO, None, "*") == 2


def test_what_ones_own_run_waits_for_stands_in_nobodys_way() -> None:
    one, other = replace(JO, session="one"), replace(JO, session="other")
    ledger = in_line(JO, one)
    assert ahead(ledger, JO, None) == 1, "the person is not the run"
    assert ahead(ledger, one, None) == 0
    assert ahead(ledger, other, None) == 1
    assert ahead(ledger, replace(JO, holder="JO@example.com"), None) == 1


# --- what a claim does with it -------------------------------------------------------------------


@pytest.mark.parametrize("passing", [None, 0, 1])
def test_a_claim_without_a_ticket_lets_those_who_wait_go_first(passing: int | None) -> None:
    """L2: who polls does not starve who waits."""
    ledger = in_line(KIM, LEE)
    with pytest.raises(NotYourTurn) as refused:
        apply(ledger, [claim(JO, passing=passing)], moment(9))
    assert refused.value.waiting == ("t0", "t1")
    passed, outcome = step(ledger, claim(JO, passing=2), when=moment(30))
    assert (outcome.status, tickets(passed)) == ("claimed", [])


@pytest.mark.parametrize("passing", [0, 1])
def test_a_claim_that_waits_its_turn_lets_those_before_it_go_first(passing: int) -> None:
    ledger = in_line(KIM, LEE, JO)
    with pytest.raises(NotYourTurn) as refused:
        apply(ledger, [claim(JO, ticket="t2", passing=passing)], moment(9))
    assert isinstance(refused.value, LeaseHeld)
    assert (refused.value.waiting, refused.value.code) == (("t0", "t1"), "held")
    check_words(refused.value.message)
    assert not refused.value.conflicts


@pytest.mark.parametrize(("who", "left"), [(0, ["t1", "t2", "t3"]), (2, ["t3"])])
def test_who_is_granted_it_or_was_passed_over_is_out_of_the_line(who: int, left: list[str]) -> None:
    people = (JO, KIM, LEE, MAX)
    wish = claim(people[who], ticket=f"t{who}", passing=who)
    ledger, outcome = step(in_line(*people), wish, when=moment(9))
    assert (outcome.status, outcome.leases[0].token) == ("claimed", 1)
    assert tickets(ledger) == left
    _, outcome = step(ledger, claim(people[who], passing=0), when=moment(10))
    assert outcome.status == "renewed", "one's own, whoever waits for it"


def test_a_refused_claim_leaves_the_ticket_where_it_is() -> None:
    ledger, _ = step(empty(), claim(KIM), when=moment(5))
    ledger, _ = step(ledger, take(JO, "t0"), when=moment(6))
    with pytest.raises(LeaseHeld) as held:
        apply(ledger, [claim(JO, ticket="t0", passing=0)], moment(9))
    assert not isinstance(held.value, NotYourTurn)
    assert tickets(ledger) == ["t0"]


def test_a_grant_drops_what_has_run_out_when_it_writes_the_line_anyway() -> None:
    ledger, _ = step(empty(), take(KIM, "old", until=NOON + 5 * MS), when=moment())
    ledger, _ = step(ledger, take(JO, "mine"), when=moment(1))
    after, _ = step(ledger, claim(JO, ticket="mine", passing=0), when=moment(9))
    assert after.tickets(F001) == ()
    same, _ = step(ledger, claim(LEE), when=moment(700))
    assert same.tickets(F001) == ledger.tickets(F001)


def test_a_batch_over_several_resources_stands_in_each_line() -> None:
    ledger, _ = step(in_line(KIM), take(JO, "both", F001, F002), when=moment(5))
    wishes = [claim(JO, what, ticket="both", passing=0) for what in ("F002", "F001")]
    with pytest.raises(NotYourTurn):
        apply(ledger, wishes, moment(9))
    ledger, _ = step(ledger, leave(KIM, "t0"), when=moment(10))
    wishes = [claim(JO, what, ticket="both", passing=0) for what in ("F002", "F001")]
    ledger, _ = step(ledger, *wishes, when=moment(11))
    assert tickets(ledger) == tickets(ledger, F002) == []


# --- who waits for some of the same files ---------------------------------------------------------

SRC, FILE, DOCS = map(parse_resource, ("src/", "src/x", "docs/"))


def test_who_waits_for_some_of_the_same_files_goes_first() -> None:
    """Paths of a task give way to them, too."""
    ledger, _ = step(empty(), take(KIM, "t", FILE), when=moment())
    for wish in (claim(JO, "src/"), claim(JO, "*/x"), claim(JO, paths=("src/**",))):
        with pytest.raises(NotYourTurn) as refused:
            apply(ledger, [wish], moment(9))
        assert refused.value.waiting == ("t",)
    check_words(refused.value.message)
    passed, _ = step(ledger, claim(JO, "*/x", passing=1), when=moment(30))
    assert tickets(passed, FILE) == [], "who was passed over is out of the line"
    for free in (claim(JO, paths=("docs/**",)), claim(JO)):
        assert apply(ledger, [free], moment(9)).changed


def test_a_waiter_is_counted_once_however_many_lines_it_stands_in() -> None:
    ledger, _ = step(empty(), take(KIM, "k", SRC, FILE, DOCS), when=moment())
    ledger, _ = step(ledger, take(LEE, "l", FILE), when=moment(1))
    with pytest.raises(NotYourTurn) as refused:
        apply(ledger, [claim(JO, "src/")], moment(9))
    assert refused.value.waiting == ("k", "l")
    check_words(refused.value.message)
    at = place(ledger, {FILE: ()}, "*", LEE, "l", NOON)
    assert (at.ahead, at.behind, at.kept) == (1, 0, True)


def test_a_grant_gives_up_every_place_that_it_serves() -> None:
    ledger, _ = step(empty(), take(JO, "t", F001, SRC, DOCS), when=moment())
    after, _ = step(ledger, claim(JO, paths=("src/**",), ticket="t", passing=0), when=moment(9))
    assert [tickets(after, what) for what in (F001, SRC, DOCS)] == [[], [], ["t"]]


def test_who_waits_for_another_part_of_a_task_is_in_nobodys_way_by_its_paths() -> None:
    """Scopes of a path divide no line, though."""
    ledger, _ = step(empty(), take(KIM, "t", F001, SRC, scope="lexer"), when=moment())
    own, other = (claim(JO, x, scope="parser", paths=("src/**",)) for x in ("F001", "F002"))
    assert apply(ledger, [own], moment(9)).changed
    for wish in (other, claim(JO, "src/", scope="parser")):
        with pytest.raises(NotYourTurn):
            apply(ledger, [wish], moment(9))


# --- a line that cannot be read ------------------------------------------------------------------


class Unreadable(StoredRecords):
    """Records of which the line is damaged."""

    def tickets(self, resource: Resource) -> Any:
        raise Invalid("who waits for F001 cannot be read")


def test_a_damaged_line_keeps_nobody_from_claiming() -> None:
    ledger = replace(empty(), records=cast(Any, Unreadable(empty())))
    assert ledger.tickets(F001) == ()
    assert ledger.tickets_damage(F001) == "who waits for F001 cannot be read"
    for wish in (claim(JO), claim(JO, ticket="t", passing=0)):
        applied = apply(ledger, [wish], moment())
        assert isinstance(applied.results[0], Outcome)
    mended = apply(ledger, [take(JO, "t")], moment()).ledger
    assert tickets(mended) == ["t"], "who takes a ticket makes the line anew"
    assert mended.tickets_damage(F001) is not None, "until it is written"
