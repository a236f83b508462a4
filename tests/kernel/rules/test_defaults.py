"""What holds where nobody said otherwise, and the words that records, events and answers use."""

from __future__ import annotations

from dataclasses import asdict

from gitlease.kernel.ledger.acts import TAKEN
from gitlease.kernel.rules.errors import Loss
from gitlease.kernel.rules.lease import DEFAULT_POLICY, History, Rule, State
from gitlease.kernel.rules.moves import operations
from gitlease.kernel.rules.moves.operations import Event
from gitlease.kernel.rules.resources import Issues


def test_the_policy_of_a_new_ledger() -> None:
    assert asdict(DEFAULT_POLICY) == {
        "ttl_max": 28_800,
        "ttl_min": 10,
        "skew": 60,
        "drift": 10_000,
        "grace": 5,
        "rule": Rule.WALL,
        "admins": (),
        "history": History.REPLACE,
        "keep_completed": 2_592_000,
        "park_max": 86_400,
        "abandoned_after": 604_800,
        "issues": Issues.NONE,
    }


def test_an_event_says_no_more_than_it_was_told() -> None:
    assert Event("claimed", "op", 1, "jo@example.com")[4:] == (None,) * 7


def test_the_words_that_are_kept_and_sent() -> None:
    assert [x.value for x in Loss] == [
        "taken_over",
        "revoked",
        "expired",
        "released_elsewhere",
        "unreachable_past_deadline",
    ]
    assert [x.value for x in State] == ["active", "expired", "released", "completed", "revoked"]
    assert operations.BARRIER == "barrier"
    assert operations.TAKEOVER == ("taken_over", "displaced")
    assert {"displaced", "revoked", "retired"} == TAKEN
