"""A lost lease says why, whichever verb finds it out, and whatever became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.snapshots import check_words

import gitlease
from gitlease.kernel.rules.ledger import ENDS_TOLD, Notice
from gitlease.kernel.rules.loss import explained
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]
ADA, BOB = "ada@example.com", "bob@example.com"
Ledger = MemoryLedger
Leases = gitlease.Leases
Loss = gitlease.Loss


def lapse(ledger: Ledger, bob: Leases) -> None:
    ledger.advance(minutes=17)


def retire(ledger: Ledger, bob: Leases) -> None:
    lapse(ledger, bob)
    bob.claim("F001")


def come_and_go(ledger: Ledger, bob: Leases) -> None:
    retire(ledger, bob)
    bob.release("F001")


def again(ledger: Ledger) -> Leases:
    """The same run of Ada's, as another of its processes has it."""
    return ledger.open(ADA, session="s1")


WAYS: dict[str, tuple[Callable[[Ledger, Leases], Any], gitlease.Loss]] = {
    "revoked": (lambda _ledger, bob: bob.revoke("F001", reason="x"), Loss.REVOKED),
    "lapsed": (lapse, Loss.EXPIRED),
    "taken and given back": (come_and_go, Loss.TAKEN_OVER),
    "taken over": (retire, Loss.TAKEN_OVER),
    "released": (lambda ledger, _: again(ledger).release("F001"), Loss.RELEASED_ELSEWHERE),
    "done": (lambda ledger, _: again(ledger).done("F001", any=True), Loss.RELEASED_ELSEWHERE),
    "its session ended": (
        lambda ledger, _: ledger.open(ADA, session="s2").end_session("s1"),
        Loss.RELEASED_ELSEWHERE,
    ),
}
VERBS: dict[str, Callable[[Leases], Any]] = {
    "renew": lambda ada: ada.renew("F001"),
    "extend": lambda ada: ada.extend("F001", "1h"),
    "fence": lambda ada: ada.fence("F001", 1),
}


@pytest.fixture
def ledger() -> Any:
    with MemoryLedger() as made:
        made.open(BOB).config("admins", BOB, ledger=True)
        yield made


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("way", WAYS)
def test_every_verb_says_why(ledger: Ledger, way: str, verb: str) -> None:
    ada, (end, loss) = again(ledger), WAYS[way]
    ada.claim("F001")
    end(ledger, ledger.open(BOB))
    with pytest.raises(gitlease.LeaseLost) as lost:
        VERBS[verb](ada)
    assert lost.value.loss is loss
    if way == "revoked":
        check_words(str(lost.value))
        assert lost.value.holder == BOB


@pytest.mark.parametrize("what", sorted(ENDS_TOLD))
def test_every_word_that_is_left_of_a_loss_explains_it(what: str) -> None:
    word = Notice("1", ADA, what, "F001", "*", "s1", BOB, 0, "idle")
    bare = gitlease.LeaseLost("you do not hold f001", resource="f001")
    assert bare.loss is Loss.RELEASED_ELSEWHERE
    told = explained(bare, [word])
    assert (told.whose, told.resource) == (BOB, "F001")
    assert told.loss is {
        "taken_over": Loss.TAKEN_OVER,
        "revoked": Loss.REVOKED,
        "retired": Loss.EXPIRED,
        "replaced": Loss.EXPIRED,
    }.get(what, Loss.RELEASED_ELSEWHERE)
    sure = gitlease.LeaseLost("lost", resource="F001", loss=Loss.UNREACHABLE)
    assert explained(sure, [word]) is sure
    other = gitlease.LeaseLost("lost", resource="F002")
    assert explained(other, [word]) is other
