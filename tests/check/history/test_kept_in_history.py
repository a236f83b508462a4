"""A kept task in a history: older versions know each of its operations, and carry it out alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from check.history.book import Book
from kernel.rules.values import F001, JO, claim, fresh, moment, only, park, renew

from gitlease.kernel.rules.ledger import WAITS, is_kept
from gitlease.kernel.rules.moves.operations import RunOut, grant_of

pytestmark = pytest.mark.default

RUN = replace(JO, session="work-0123456789ab")


def test_what_was_picked_is_kept_in_one_legal_step(book: Book) -> None:
    book.step(claim(RUN, edge=True, picked=True), when=moment(0))
    grants = (grant_of(only(book.ledger)),)
    end = RunOut(id=fresh()[: -len(WAITS)] + WAITS, actor=RUN, grants=grants, note="which?")
    book.step(renew(RUN), claim(RUN), end, when=moment(1))
    record = only(book.ledger)
    assert (record.picked, record.edge, record.session, is_kept(record)) == (
        False,
        True,
        None,
        True,
    )
    setback = book.ledger.setback(F001)
    assert setback is not None
    assert setback.waits
    book.step(claim(JO), when=moment(2))
    assert book.ledger.setback(F001) is None
    assert book.broken() == []


def test_what_was_parked_is_legal_as_before(book: Book) -> None:
    book.step(claim(RUN, edge=True), when=moment(0))
    book.step(park(RUN, seconds=3_600), when=moment(1))
    assert (only(book.ledger).parked, only(book.ledger).session) == (True, None)
    book.step(claim(JO), when=moment(2))
    assert (only(book.ledger).parked, only(book.ledger).token) == (False, 2)
    assert book.broken() == []
