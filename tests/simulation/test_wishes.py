"""Wishes of clones that lost a race, as a model: whole small worlds, lives, and broken variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from simulation import wishes
from simulation.shared_state import OwnTime
from simulation.wish_costs import contend, racing, wishing
from simulation.wish_worlds import LIFE, Explorer, World, life
from simulation.wishes import (
    DONE,
    LEDGER,
    MOVED,
    Client,
    Push,
    Remote,
    Wish,
    may_carry,
)

from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.ledger import RingEntry
from gitlease.kernel.rules.moves.operations import Claim

Patch = pytest.MonkeyPatch
TURN = ("claim", "release")
THREE = (("claim",), ("claim",), ("wait",))
NAMES = ("F001", "F002", "F003")
SMALL = {
    "three": World(THREE, NAMES),
    "three for one": World(THREE, ("F001", "F001", "F002")),
    "kills": World(THREE, NAMES, crashes=1),
    "replicas": World(THREE, NAMES, lags=1),
    "mirror": World(THREE, NAMES, mirrors=1),
    "in turn": World((TURN, ("wait",)), ("F001", "F002"), silences=1, lags=1),
    "silence": World(THREE, NAMES, silences=1),
    "lapse": World((TURN, ("wait",)), ("F001", "F001"), instants=(0, 12), silences=1),
    "release": World((TURN, ("claim",), ("wait",)), NAMES),
    "release and kills": World((TURN, ("wait",), ("wait",)), NAMES, crashes=1),
    "silence and kills": World((TURN, TURN), ("F001", "F001"), silences=1, crashes=1),
}


@pytest.mark.nightly("silence", "silence and kills", "release and kills", "mirror", "replicas")
@pytest.mark.slow("three for one", "lapse", "kills", "in turn", "release")
@pytest.mark.default
@pytest.mark.parametrize("world", SMALL)
def test_wishes_keep_the_rules_in_every_state(world: str) -> None:
    explorer = Explorer(SMALL[world])
    result = explorer.explore()
    assert not result.broken, "\n".join([*result.trace, result.broken])
    assert result.states > 1_000
    assert world != "three" or explorer.joined, "one step carries out the wishes of several"


# --- broken variants ------------------------------------------------------------------------------


def move_each_ref_by_itself(patch: Patch) -> None:
    """A host without atomic pushes."""
    serve = wishes.serve

    def serves(push: Push, remote: Remote) -> tuple[str, Remote]:
        answers = []
        for move in push.moves:
            answer, remote = serve(Push((move,), push.base), remote)
            answers.append(answer)
        return (DONE if answers.count(DONE) == len(answers) else MOVED), remote

    patch.setattr(wishes, "serve", serves)


def compare_the_ledger_alone(patch: Patch) -> None:
    """A host that compares no old value of a ref that is deleted, if wishes were deleted."""

    def serves(push: Push, remote: Remote) -> tuple[str, Remote]:
        if any(move.ref == LEDGER and remote.ledger != move.old for move in push.moves):
            return MOVED, remote
        for move in push.moves:
            remote = remote.moved(move.ref, move.new)
        return DONE, remote

    patch.setattr(wishes, "serve", serves)


def leave_the_wishes_there(patch: Patch) -> None:
    patch.setattr(Client, "expected", lambda *_: [])


def carry_out_what_was_withdrawn(patch: Patch) -> None:
    def every(client: Client, remote: Remote) -> dict[int, Wish]:
        states = (text.partition(" ") for text in remote.wishes)
        found = {n: identity for n, (state, _, identity) in enumerate(states) if state[0:1] in "ow"}
        return {n: client.objects.wishes[identity] for n, identity in found.items() if identity}

    patch.setattr(Client, "open_wishes", every)


def give_up_without_withdrawing(patch: Patch) -> None:
    patch.setattr(Client, "fence", lambda *_: [])


def read_nothing_after_withdrawing(patch: Patch) -> None:
    patch.setattr(wishes, "is_to_be_read_again", lambda _: False)


def believe_what_comes_late(patch: Patch) -> None:
    patch.setattr(wishes, "is_in_time", lambda *_: True)


def write_no_word_before_a_wish(patch: Patch) -> None:
    note = Client.note

    def notes(client: Client, attempt: wishes.Attempt) -> None:
        if not attempt.wished:
            note(client, attempt)

    patch.setattr(Client, "note", notes)


LATE = World(THREE, NAMES, instants=(0, 12))
OFF: dict[Callable[[Patch], None], tuple[World, str]] = {
    move_each_ref_by_itself: (SMALL["three"], "S6"),
    compare_the_ledger_alone: (SMALL["three"], "S6"),
    leave_the_wishes_there: (SMALL["three"], "S6"),
    carry_out_what_was_withdrawn: (SMALL["three"], "S6"),
    give_up_without_withdrawing: (SMALL["three"], "S6"),
    read_nothing_after_withdrawing: (SMALL["mirror"], "S6"),
    believe_what_comes_late: (LATE, "S3"),
    write_no_word_before_a_wish: (SMALL["kills"], "L3"),
}


@pytest.mark.slow("read_nothing_after_withdrawing")
@pytest.mark.default
@pytest.mark.parametrize("off", OFF, ids=lambda off: off.__name__)
def test_a_rule_of_wishes_that_is_off_is_found_out(
    off: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    off(monkeypatch)
    world, rule = OFF[off]
    result = Explorer(world).explore()
    print(*result.trace, result.broken, sep="\n")
    assert result.broken.startswith(rule)


@pytest.mark.slow
def test_a_mirror_that_puts_back_a_withdrawn_wish_is_beyond_the_promise() -> None:
    """The design page says so, and what limits it: ``may_carry``, and the note that stays."""
    result = Explorer(World(THREE, NAMES, mirrors=1, mirrored="withdrawn")).explore()
    assert result.broken.startswith("S6")


# --- which wishes are carried out -----------------------------------------------------------------


def test_a_wish_is_carried_out_only_while_its_operation_is_known_to_be_new() -> None:
    explorer = Explorer(SMALL["three"])
    header = explorer.objects.header(explorer.begin().remote.ledger)
    at, resource = OwnTime().at(0), explorer.resources[0]
    claim = Claim(id="c" * 20, actor=explorer.actors[0], resource=resource, lease_id="d" * 20)
    wish = Wish(claim, at, header.revision)
    assert may_carry(header, wish, at)
    assert not may_carry(replace(header, revision=header.revision + 65), wish, at)
    late = RingEntry("f" * 20, header.revision + 1, "claimed")
    assert not may_carry(replace(header, revision=3, ring=(late,)), wish, at)
    done = RingEntry(wish.claim.id, header.revision, "claimed")
    assert not may_carry(replace(header, ring=(*header.ring, done)), wish, at)
    assert not may_carry(header, wish, OwnTime().at(41))


# --- lives ----------------------------------------------------------------------------------------


def lived(seeds: Sequence[int]) -> Counter[str]:
    kinds = Counter[str]()
    for seed in seeds:
        result = life(seed, LIFE)
        assert not result.broken, "\n".join([*result.trace[-40:], f"seed {seed}: {result.broken}"])
        kinds += result.kinds
    return kinds


def test_wishes_keep_the_rules_in_lives_of_five_clients() -> None:
    kinds = lived(range(3))
    assert kinds.keys() >= {"silence", "late", "kill", "lag", "time"}


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(4))
def test_wishes_keep_the_rules_in_many_lives(part: int) -> None:
    assert lived(range(1_000 * (part + 1), 1_000 * (part + 1) + 100))["mirror"] > 10


# --- costs ----------------------------------------------------------------------------------------


def test_wishes_save_pushes_where_many_contend_and_cost_nothing_where_nobody_does() -> None:
    assert contend(1, 0.0, wishing(2), seed=1) == contend(1, 0.0, racing, seed=1)
    assert contend(2, 0.0, wishing(2), seed=1) == contend(2, 0.0, racing, seed=1)
    many = contend(20, 0.0, wishing(2), seed=1)
    assert many.pushes <= 60
    assert many.pushes * 2 < contend(20, 0.0, racing, seed=1).pushes
