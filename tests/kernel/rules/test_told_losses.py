"""A loss that was only inferred is told by the notice of it; and what a trailer names is read."""

from __future__ import annotations

from kernel.rules.values import KIM, NOON

from gitlease.kernel.rules.errors import LeaseLost, Loss
from gitlease.kernel.rules.ledger import Notice
from gitlease.kernel.rules.loss import explained
from gitlease.kernel.rules.work import Named
from gitlease.tasks.files import read_lines


def notice(scope: str, what: str = "revoked") -> Notice:
    return Notice("n1", "jo@example.com", what, "F001", scope, None, KIM.holder, NOON, "late")


def test_a_notice_about_the_same_part_says_why() -> None:
    guess = LeaseLost("gone", resource="f001", scope="Front")
    told = explained(guess, [notice("front"), notice("back", "taken_over")])
    assert (told.loss, told.holder) == (Loss.REVOKED, KIM.holder)
    assert explained(guess, [notice("back")]) is guess
    whole = LeaseLost("gone", resource="F001", scope=None)
    assert explained(whole, [notice("back")]).loss is Loss.REVOKED
    sure = LeaseLost("gone", resource="F001", scope="front", loss=Loss.EXPIRED)
    assert explained(sure, [notice("front")]) is sure


def test_a_line_names_its_grant_by_what_stands_behind_the_word() -> None:
    lines = ["Fix it", "", "Gitlease: F001 token=42", "Gitlease: a b", "gitlease: F002 token=1"]
    assert read_lines(lines) == [Named(resource="F001", key="f001", token=42)]
