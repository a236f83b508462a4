"""What binds a lease, ends with a session or is parked, in a history: the exact record of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from check.history.book import Book
from kernel.rules.values import JO, KIM, TTL, claim, fresh, moment, renew
from support.forge import objects_in

from gitlease.kernel.rules.lease import Actor, Margins, Rule
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves.operations import Bind, Park, RunOut, Unbind, grant_of
from gitlease.kernel.rules.moves.transitions import decide
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.tree import read_ledger

RUN = replace(JO, session="run-1", host="laptop:12")


def bind(who: Actor, *names: str) -> Bind:
    return Bind(id=fresh(), actor=who, resources=tuple(map(parse_resource, names)))


def unbind(who: Actor, book: Book) -> Unbind:
    return Unbind(id=fresh(), actor=who, grants=tuple(map(grant_of, book.ledger.every_lease())))


def run_out(who: Actor, book: Book) -> RunOut:
    return RunOut(id=fresh(), actor=who, grants=tuple(map(grant_of, book.ledger.every_lease())))


def test_what_a_run_binds_goes_back_to_its_person(book: Book) -> None:
    book.step(claim(replace(JO, host="desk:9"), edge=True), when=moment(0))
    book.step(bind(RUN, "F001"), claim(RUN), when=moment(1))
    book.step(unbind(RUN, book), when=moment(2))
    assert [(x.session, x.host) for x in book.ledger.every_lease()] == [(None, "laptop")]
    book.step(bind(RUN, "F001"), when=moment(3))
    book.step(renew(RUN), unbind(JO, book), when=moment(4))
    book.step(bind(RUN, "F001"), when=moment(5))
    book.step(run_out(RUN, book), when=moment(6))
    (left,) = book.ledger.every_lease()
    assert (left.session, left.expires_at) == (None, moment(6).now.wall_ms)
    assert book.broken() == []


@pytest.mark.parametrize("change", [{"paths": ("docs/",)}, {"edge": False}, {"renewals": 1}])
def test_several_operations_on_a_lease_leave_what_each_of_them_makes_of_it(
    book: Book, change: dict[str, Any]
) -> None:
    book.step(claim(RUN, edge=True), when=moment(0))
    batch = (renew(RUN), claim(RUN, paths=("lib/",)), renew(RUN, ttl=120))
    book.step(*batch, when=moment(1))
    assert book.broken() == []
    book.tips.pop()
    book.ledger = read_ledger(objects_in(book.repo), book.tip)
    book.forged(
        lambda ledger: ledger.put(replace(ledger.every_lease()[0], **change)),
        *batch,
        when=moment(1),
    )
    assert set(book.broken()) == {"record"}


def test_what_has_no_edge_is_gone_when_it_runs_out(book: Book) -> None:
    book.step(claim(RUN), when=moment(0))
    (lease,) = book.ledger.every_lease()
    book.step(run_out(RUN, book), when=moment(1))
    assert (book.ledger.every_lease(), book.broken()) == ([], [])
    book.tips.pop()
    book.ledger = read_ledger(objects_in(book.repo), book.tip)
    now = moment(1).now.wall_ms
    kept = replace(lease, session=None, renewed_at=now, expires_at=now)
    ended = run_out(RUN, book)
    book.forged(lambda ledger: ledger.put(replace(kept, operation=ended.id)), ended, when=moment(1))
    assert book.broken() == ["record"]


@pytest.mark.parametrize(
    "change",
    [
        {"session": "run-2"},
        {"host": "elsewhere"},
        {"renewals": 1},
        {"expires_at": moment(99_000).now.wall_ms},
        {"edge": False},
        {"margins": Margins(1, 1, 1, Rule.WALL)},
    ],
)
@pytest.mark.parametrize("kind", ["bind", "unbind", "run out"])
def test_what_only_binds_or_ends_changes_nothing_else(
    book: Book, kind: str, change: dict[str, Any]
) -> None:
    book.step(claim(JO if kind == "bind" else RUN, edge=True), when=moment(0))
    made = {"bind": bind(RUN, "F001"), "unbind": unbind(RUN, book), "run out": run_out(RUN, book)}
    book.forged(
        lambda ledger: ledger.put(replace(ledger.every_lease()[0], **change)),
        made[kind],
        when=moment(1),
    )
    assert set(book.broken()) == {"record"}


def test_nobody_binds_what_ran_out(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    bound = decide(book.ledger, [bind(RUN, "F001")], moment(1))
    book.write(replace(bound, record=replace(bound.record, at=moment(TTL).now.wall_ms)))
    assert "lost" in book.broken()


def test_nobody_binds_what_shares_work_with_another_run(book: Book) -> None:
    book.step(claim(JO, "src/"), claim(JO, "F002"), when=moment(0))
    book.step(claim(replace(JO, session="run-2"), "src/a.py"), when=moment(1))
    wanted = bind(RUN, "src/", "F002")
    book.step(wanted, when=moment(2))
    assert book.broken() == []
    book.tips.pop()
    book.ledger = read_ledger(objects_in(book.repo), book.tip)
    whole = next(x for x in book.ledger.every_lease() if x.resource == parse_resource("src/"))
    bound = replace(whole, session=RUN.session, host=RUN.host, operation=wanted.id)
    book.forged(lambda ledger: ledger.put(bound), wanted, when=moment(2))
    assert book.broken() == ["exclusive", "commit"]


def test_picked_tasks_in_a_history_are_judged_by_their_mark(book: Book) -> None:
    picked: dict[str, Any] = {"edge": True, "picked": True}
    late = TTL + book.ledger.header.policy.skew + 1
    book.step(claim(RUN, **picked), claim(RUN, "F002", **picked), when=moment(0))
    book.step(renew(RUN), claim(RUN, "F002", edge=True), when=moment(1))
    book.step(run_out(RUN, book), when=moment(2))
    book.step(claim(KIM, abandoned=True, **picked), when=moment(late))
    book.step(claim(JO, "F002", **picked), when=moment(late))
    assert {x.resource.text: x.picked for x in book.ledger.every_lease()} == {
        "F001": True,
        "F002": False,
    }
    book.step(Park(id=fresh(), actor=KIM, resource=parse_resource("F001")), when=moment(late + 1))
    book.step(claim(KIM, **picked), when=moment(late + 2))
    assert book.broken() == []


def test_forged_mark_is_noticed(book: Book) -> None:
    book.step(claim(JO, edge=True), when=moment(0))

    def marked(ledger: Ledger) -> Ledger:
        (record,) = ledger.every_lease()
        return ledger.put(replace(record, picked=True))

    book.forged(marked, claim(JO, ttl=600), when=moment(1))
    assert book.broken() == ["record"]
