"""A ledger's history, checked by rules of its own: what is legal passes, and nothing else does."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pygit2
import pytest
from check.history.book import Book
from kernel.rules.test_audit import PEOPLE, Eyes, Player
from kernel.rules.values import (
    JO,
    KIM,
    NOON,
    SKEW,
    TTL,
    claim,
    empty,
    fresh,
    moment,
    note,
    release,
    renew,
    set_policy,
)
from ledger_checker.checker import NoLedger, verify
from ledger_checker.form import UnknownFormat
from support.forge import Forge, objects_in
from support.illegal import ILLEGAL, make_scene
from support.repos import git

from gitlease.check import replay
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.ledger import Ledger
from gitlease.kernel.rules.moves import claiming
from gitlease.kernel.rules.moves.operations import Restore
from gitlease.kernel.rules.moves.transitions import decide
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import write_header, write_lease
from gitlease.kernel.store.tree import read_ledger

# What only a server sees: who pushes, its own clock, its other refs, and how it makes a ledger.
BEYOND_HISTORY = {
    "renew_in_anothers_name",
    "early_takeover_by_a_clock_ahead",
    "renewal_from_the_future",
    "renewal_from_the_past",
    "new_ledger_with_a_policy_of_its_own",
    "deletion",
    "tag_at_the_ref",
    "blob_at_the_ref",
    "ref_below_a_ledger",
    "ref_in_other_letters",
    "ref_of_the_layer_that_never_leaves_a_clone",
    "ledgers_in_other_letters",
    "ref_in_a_namespace",
}
REWOUND = {"rewind", "renewal_that_forgets_the_one_that_it_replaces"}  # known by an older tip


# --- what is legal ------------------------------------------------------------------------------


def play(book: Book, seed: int, steps: int, *, replacing: bool) -> None:
    """Play as the audit's test does, and write every step."""
    player, seconds = Player(seed), 0.0
    eyes = {who: Eyes(player.dice) for who in PEOPLE}
    for _ in range(steps):
        seconds += player.dice.choice((0.123, 1, 30, 400, 1_000))
        who = player.dice.choice(PEOPLE)
        when = eyes[who].moment(seconds)
        operations = player.batch(book.ledger, who, when.now.wall_ms)
        together = player.dice.random() < 0.5
        try:
            decided = decide(book.ledger, operations, when, together=together)
        except GitleaseError:
            continue
        if decided.applied.changed:
            book.write(decided, replacing=replacing)


@pytest.mark.default("1-False")
@pytest.mark.slow
@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("seed", [1, 5, 12])
def test_every_move_of_the_table_is_found_legal(book: Book, seed: int, replacing: bool) -> None:
    play(book, seed, 60, replacing=replacing)
    found = book.check(*book.tips)
    assert found.broken == ()
    assert found.commits + found.hidden == len(book.tips)
    assert found.revision == len(book.tips)
    assert found.leases > 0


@pytest.mark.slow
def test_every_move_of_many_plays_is_found_legal(tmp_path: Path) -> None:
    for seed in range(100, 160):
        book = Book(tmp_path / f"{seed}.git")
        play(book, seed, 60, replacing=seed % 2 == 0)
        assert book.check(*book.tips).broken == (), seed


# --- what a server refuses ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    folder = tmp_path_factory.mktemp("illegal")
    git(folder, "init", "-q", "--bare", "server.git")
    make_scene(folder / "server.git", folder / "jo.git")
    return Forge(folder / "kim.git", folder / "server.git")


@pytest.mark.default("bind_what_another_holds")
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ILLEGAL.keys() - BEYOND_HISTORY))
def test_what_is_illegal_is_found(forge: Forge, name: str) -> None:
    bad, tip = ILLEGAL[name](forge), forge.tip()
    seen = [tip] if name in REWOUND else []
    found = verify(forge.path, bad.new, seen)
    assert found.broken
    assert all(one.message.isprintable() for one in found.broken)
    known = set(git(forge.path, "rev-list", tip).split()) - {tip}
    assert not known & {one.commit for one in found.broken}
    try:
        replayed = replay.verify(discover(str(forge.path)), bad.new, seen, environ=os.environ)
    except replay.NoLedger:
        assert name == "new_ledger_with_a_policy_that_is_none"
        return
    assert replayed.broken
    assert {one.commit for one in replayed.broken} <= {one.commit for one in found.broken}


# --- each rule by hand --------------------------------------------------------------------------


def test_a_takeover_waits_for_the_margin(book: Book) -> None:
    """Legal for whoever does not see the other's record; a second later it is for everybody."""
    blind = decide(empty(), [claim(JO)], moment(0))
    book.write(blind)
    skew = book.ledger.header.policy.skew
    late = moment(TTL + skew + 0.001)
    taken = decide(book.ledger, [claim(KIM)], late)
    early = replace(taken, record=replace(taken.record, at=moment(TTL + skew).now.wall_ms))
    book.write(early)
    assert "lapse" in book.broken()
    book.tips.pop()
    book.write(taken)
    assert book.broken() == []


@pytest.mark.slow
def test_what_is_abandoned_may_be_taken_and_not_a_moment_before(book: Book) -> None:
    book.step(claim(JO, edge=True), when=moment(0))
    gone = TTL + book.ledger.header.policy.skew + book.ledger.header.policy.abandoned_after
    taken = decide(book.ledger, [claim(KIM, abandoned=True)], moment(gone + 0.001))
    book.write(replace(taken, record=replace(taken.record, at=moment(gone).now.wall_ms)))
    assert "takeover" in book.broken()
    book.tips.pop()
    book.write(taken)
    assert book.broken() == []


def test_paths_of_a_lapsed_edge_are_free_and_were_taken_before(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: older clients ended the edge of another task that covered a common path."""
    for name in ("T-1", "T-2"):
        book.step(claim(JO, name, edge=True, paths=(f"{name}/",)), when=moment())
    late = moment(TTL + SKEW + 1)
    book.step(claim(KIM, "T-1/a.py"), when=late)
    assert book.broken() == []
    assert {str(x.resource) for x in book.ledger.every_lease()} == {"T-1", "T-2", "T-1/a.py"}

    monkeypatch.setattr(claiming, "only_edge", lambda *_: False)  # as older clients
    taken = claim(KIM, "T-9", paths=("T-2/a.py",), takeover=True, reason="now")
    book.step(taken, when=late)
    assert not book.ledger.leases_of(parse_resource("T-2"))
    assert verify(book.path, book.tip).broken == ()


@pytest.mark.slow
def test_admins_are_given_up_by_who_confirms_it(book: Book) -> None:
    book.step(set_policy(JO, admins=JO.holder), when=moment(0))
    asked = set_policy(JO, admins=f"none {JO.holder}")
    none = decide(book.ledger, [asked], moment(1))
    book.write(none)
    assert book.broken() == []
    book.tips.pop()
    silent = replace(asked, changes=(("admins", "none"),))
    book.write(replace(none, record=replace(none.record, operations=(silent,))))
    assert book.broken() == ["admin"]


def test_operation_id_that_the_ring_forgot_is_counted_alone(book: Book) -> None:
    """What no server's hook can refuse condemns no ledger."""
    first = note(JO, "again")
    book.step(first, when=moment(0))
    for number in range(3):
        book.step(*(note(KIM, "x", f"T{number}-{n}") for n in range(64)), when=moment(1 + number))
    assert book.ledger.header.entry(first.id) is None
    book.step(first, when=moment(9))
    found = book.replay()
    assert (found.broken, len(found.unjudged)) == ((), 1)


@pytest.mark.nightly
def test_the_chain_of_digests_holds(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    book.forged(
        lambda ledger: ledger.with_header(replace(ledger.header, digest="0" * 64)),
        release(JO),
        when=moment(1),
    )
    assert book.broken() == ["digest"]


def restore(who: Actor, above: int) -> Restore:
    return Restore(id=fresh(), actor=who, above=above)


def test_an_epoch_begins_where_tokens_of_another_past_are_gone_over(book: Book) -> None:
    """Those that the step itself gives count as well, in a first step too."""
    book.step(claim(JO), restore(JO, 1), claim(JO, "F002"), restore(JO, 5), when=moment(0))
    assert (book.ledger.header.epoch, book.ledger.header.sequence) == (1, 0)
    book.step(restore(KIM, 10**12), claim(KIM, "F003"), when=moment(1))
    assert (book.ledger.header.epoch, book.ledger.header.sequence) == (1, 1)
    book.step(restore(KIM, 2 * 10**12), claim(KIM, "F004"), when=moment(2))
    assert (book.ledger.header.epoch, book.ledger.header.sequence) == (3, 1)
    assert book.broken() == []


@pytest.mark.slow
@pytest.mark.parametrize(("epoch", "sequence", "rule"), [(2, 0, "epoch"), (1, 1, "token")])
def test_an_epoch_is_the_next_and_begins_with_its_first_token(
    book: Book, epoch: int, sequence: int, rule: str
) -> None:
    def other(ledger: Ledger) -> Ledger:
        return ledger.with_header(replace(ledger.header, epoch=epoch, sequence=sequence))

    book.forged(other, restore(JO, 9), when=moment(0))
    assert book.broken() == [rule]


def test_lease_id_that_left_the_ledger_is_counted_alone(book: Book) -> None:
    first = claim(JO)
    book.step(first, when=moment(0))
    book.step(release(JO), when=moment(1))
    book.step(replace(claim(KIM), lease_id=first.lease_id), when=moment(2))
    found = book.replay()
    assert (found.broken, len(found.unjudged)) == ((), 1)
    book.step(replace(claim(JO, "F002"), lease_id=first.lease_id), when=moment(3))
    assert [x.rule for x in book.replay().broken] == ["nonce"], "as at a server: it is there"


@pytest.mark.nightly
def test_a_policy_that_keeps_every_renewal_is_held_to_it(book: Book) -> None:
    book.step(claim(JO), set_policy(JO, history="append"), when=moment(0))
    for second in (1, 2):
        book.write(decide(book.ledger, [renew(JO)], moment(second)), replacing=True)
    assert book.broken() == ["revision"]


def test_what_only_the_taker_could_know_is_counted_and_not_judged(book: Book) -> None:
    book.step(set_policy(JO, rule="observed"), when=moment(0))
    book.step(claim(JO), when=moment(1))
    seen = Eyes(random.Random(0))
    seen.moment(2).sighting(book.ledger.every_lease()[0])
    book.step(claim(KIM), when=seen.moment(99_000))
    found = book.check()
    assert found.broken == ()
    assert len(found.unjudged) == 1


# --- more renewals than a ring keeps ------------------------------------------------------------


Change = Callable[[Ledger], Ledger]


def many_leases(book: Book, number: int, *, forge: Change = lambda ledger: ledger) -> list[str]:
    """Claim in big steps and renew one by one; the rules that the tip breaks, changed by hand."""
    names = [f"r{n}" for n in range(number)]
    for start in range(0, number, 50):
        book.step(*(claim(JO, name) for name in names[start : start + 50]), when=moment(start))
    for second, name in enumerate(names):
        decided = decide(book.ledger, [renew(JO, name)], moment(number + second / 10))
        if name == names[-1]:
            applied = replace(decided.applied, ledger=forge(decided.applied.ledger))
            decided = replace(decided, applied=applied)
        book.write(decided, replacing=True)
    assert book.ledger.header.ring[0].revision > number // 50 + 1
    return book.broken()


def first_lease(ledger: Ledger) -> Lease:
    (lease,) = ledger.leases_of(parse_resource("r0"))
    return lease


@pytest.mark.slow
def test_renewals_that_the_ring_forgot_are_legal(book: Book) -> None:
    """S6: the ring forgets, and renewals replace each other: neither is anybody's fault."""
    assert many_leases(book, 150) == []


@pytest.mark.default("fields0")
@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"token": 999},
        {"expires_at": NOON + 10**9},
        {"renewals": 10_000},
        {"ttl": 10**6},
        {"holder": KIM.holder},
        {"session": "b"},
    ],
)
def test_what_the_ring_forgot_still_fits_its_grant(book: Book, fields: dict[str, Any]) -> None:
    assert many_leases(book, 150, forge=lambda x: x.put(replace(first_lease(x), **fields)))


# --- commits that were seen ---------------------------------------------------------------------


def test_a_renewal_may_have_been_replaced_and_nothing_else(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    for second in (1, 2, 3):
        book.write(decide(book.ledger, [renew(JO)], moment(second)), replacing=True)
    decision, *renewals = book.tips
    found = book.check(*book.tips)
    assert (found.broken, found.commits, found.hidden) == ((), 2, 2)
    assert git(book.path, "rev-list", "--count", book.tip) == "2"
    rewound = verify(book.path, renewals[0], book.tips)
    assert {one.rule for one in rewound.broken} == {"rewound"}
    assert {one.commit for one in rewound.broken} == set(renewals[1:])
    before = verify(book.path, decision, [book.tip])
    assert [one.rule for one in before.broken] == ["rewound"]


@pytest.mark.slow
def test_a_sampled_tip_of_which_nothing_is_left_is_said(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    found = book.check("0" * 40)
    assert found.broken == ()
    assert len(found.unjudged) == 1


# --- what cannot be judged ----------------------------------------------------------------------


def amended(book: Book, path: str, data: bytes) -> None:
    """The tip once more, with another file in it."""
    blob = book.repo.create_blob(data)
    index = pygit2.Index()
    commit = book.repo[book.tip]
    assert isinstance(commit, pygit2.Commit)
    index.read_tree(commit.tree)
    index.add(pygit2.IndexEntry(path, blob, pygit2.enums.FileMode.BLOB))
    tree = index.write_tree(book.repo)
    made = book.repo.create_commit(
        None, commit.author, commit.committer, commit.message, tree, commit.parent_ids
    )
    book.tips[-1] = str(made)


def header_bytes(book: Book, **changes: Any) -> bytes:
    return write_header(replace(book.ledger.header, **changes))


def test_a_format_without_operations_is_said(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    data = header_bytes(book, digest=None).replace(b"format: 2", b"format: 1", 1)
    amended(book, "ledger.yaml", data.replace(b"digest: null\n", b""))
    book.ledger = read_ledger(objects_in(book.repo), book.tip)
    assert b"format: 1\n" in git(book.path, "show", f"{book.tip}:ledger.yaml").encode()
    book.step(claim(KIM, "F002"), when=moment(1))
    found = book.check()
    assert (found.broken, found.commits) == ((), 2)
    assert len(found.unjudged) == 1


@pytest.mark.slow
def test_a_format_never_falls(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    book.step(release(JO), when=moment(1))
    amended(book, "ledger.yaml", header_bytes(book).replace(b"format: 2", b"format: 1", 1))
    assert book.broken() == ["format"]


def test_an_odd_address_is_its_writers_own(book: Book) -> None:
    odd = replace(JO, holder="'jo.\"<o'neil>@example.com.")
    book.step(claim(odd), when=moment(0))
    assert book.broken() == []


@pytest.mark.nightly
def test_a_newer_format_is_no_violation(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    amended(book, "ledger.yaml", b"format: 99\nwhatever: [else\n")
    with pytest.raises(UnknownFormat):
        book.check()


def test_what_is_no_ledger_is_told(book: Book) -> None:
    tree = book.repo.TreeBuilder().write()
    who = pygit2.Signature("x", "x@example.com", 0, 0)
    made = str(book.repo.create_commit(None, who, who, "x", tree, []))
    with pytest.raises(NoLedger):
        verify(book.path, made)


@pytest.mark.slow
def test_a_part_of_a_history_is_judged_from_there(book: Book, tmp_path: Path) -> None:
    for number in range(6):
        book.step(claim(JO, f"F{number}"), when=moment(number))
    git(book.path, "update-ref", "refs/heads/main", book.tip)
    git(tmp_path, "clone", "-q", "--bare", "--depth=3", f"file://{book.path}", "part.git")
    found = verify(tmp_path / "part.git", book.tip)
    assert (found.broken, found.commits) == ((), 3)
    assert len(found.unjudged) == 1


def test_records_are_read_strictly(book: Book) -> None:
    book.step(claim(JO), when=moment(0))
    (lease,) = book.ledger.every_lease()
    path = git(book.path, "ls-tree", "-r", "--name-only", book.tip, "leases/")
    amended(book, path, write_lease(lease).replace(b'"*"', b"'*'"))
    assert book.broken() == ["record"]
