"""The history of a ledger that was deleted and put back, by rules of its own and by the replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from check.history.book import Book
from kernel.rules.values import (
    JO,
    KIM,
    at,
    claim,
    extend,
    fresh,
    lease,
    moment,
    release,
    renew,
    set_policy,
)

from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import EndWait, PutBack, Restore

pytestmark = pytest.mark.default

DAY = 86_400
WAIT = 87_329
Change = Callable[[Ledger], Ledger]


def restores(who: Actor = JO) -> Restore:
    return Restore(id=fresh(), actor=who, above=0, waits=True)


def ends(who: Actor = JO) -> EndWait:
    return EndWait(id=fresh(), actor=who)


def back(*leases: Lease) -> PutBack:
    return PutBack(id=fresh(), actor=KIM, leases=leases)


def seen(token: int = 7, **more: object) -> Lease:
    given = {"holder": KIM, "resource": "F002", "since": -60, **more}
    return replace(lease(**given), token=token)  # type: ignore[arg-type]


@pytest.fixture
def restored(book: Book) -> Book:
    """Jo, the admin, has put it back with a lease of Kim's; it waits."""
    book.step(set_policy(JO, admins=JO.holder), when=moment(-300))
    book.step(claim(KIM, "F001"), when=moment(-200))
    book.step(restores(), when=moment(0))
    return book


def test_a_restored_ledger_is_legal_from_its_first_wait_to_its_next_grant(restored: Book) -> None:
    """S2, S4, S7."""
    restored.step(renew(KIM), when=moment(10))
    restored.step(extend(KIM, 3_600), when=moment(20))
    restored.step(back(seen(), seen(8, resource="F003", paths=("src/**",))), when=moment(30))
    restored.step(renew(KIM, "F002"), when=moment(40))
    restored.step(release(KIM, "F003"), when=moment(50))
    restored.step(claim(JO, "F009"), when=moment(WAIT))
    restored.step(restores(), when=moment(WAIT + 60))
    restored.step(ends(), when=moment(WAIT + 70))
    restored.step(claim(JO, "F010"), when=moment(WAIT + 80))
    assert restored.broken() == []
    assert restored.ledger.header.format == 5


def test_later_renewals_and_lapsed_leases_give_way(restored: Book) -> None:
    there = next(iter(restored.ledger.every_lease()))
    later = replace(there, renewals=3, renewed_at=at(700).wall_ms, expires_at=at(1_600).wall_ms)
    restored.step(back(later), when=moment(800))
    restored.step(back(seen(9, resource="F001", since=1_700)), when=moment(1_750))
    assert restored.broken() == []


def _header(**changes: object) -> Change:
    return lambda x: x.with_header(replace(x.header, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (_header(closed_until=None), {"wait"}),
        (_header(closed_until=at(60).wall_ms), {"wait"}),
        (_header(epoch=1, sequence=0), {"epoch"}),
        (_header(sequence=1), {"token"}),
    ],
)
def test_no_restoration_is_forged(book: Book, change: Change, rules: set[str]) -> None:
    """S2 and S4: without the wait, with a shorter one, or with an epoch of another time."""
    book.step(claim(KIM, "F001"), when=moment(-200))
    book.forged(change, restores(), when=moment(0))
    assert set(book.broken()) == rules


def test_nobody_else_restores_and_ends_the_wait(restored: Book) -> None:
    """An operation of another is written in place of the admin's."""
    for operation in (restores(), ends()):
        decided = restored.step(operation, when=moment(10))
        restored.tips.pop()
        forged = replace(operation, actor=KIM)
        record = replace(decided.record, operations=(forged,))
        restored.write(replace(decided, record=record))
        assert "admin" in restored.broken()
        restored.tips.pop()


def test_no_grant_comes_during_the_wait(restored: Book) -> None:
    """S2: as if it had been decided on a ledger that grants."""
    closed = restored.ledger.header
    restored.ledger = restored.ledger.with_header(replace(closed, closed_until=None))
    restored.forged(_header(closed_until=closed.closed_until), claim(JO, "F009"), when=moment(10))
    assert "wait" in restored.broken()


def test_nothing_is_put_back_otherwise_than_it_was(restored: Book) -> None:
    """S2: a longer term, and another holder's lease."""

    def longer(ledger: Ledger) -> Ledger:
        new = next(x for x in ledger.every_lease() if x.resource.text == "F002")
        return ledger.put(replace(new, expires_at=new.expires_at + 60_000))

    restored.forged(longer, back(seen()), when=moment(10))
    assert restored.broken() == ["record"]
