"""The policy of a ledger: its limits, and how people set and read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.lease import DEFAULT_POLICY, MAX_ADMINS, History, Margins, Policy, Rule
from gitlease.kernel.rules.policy import KEYS, change_policy, check_change, policy_words
from gitlease.kernel.rules.resources import Issues


def test_the_defaults_are_those_of_the_contract() -> None:
    words = policy_words(DEFAULT_POLICY)
    assert words["ttl_max"] == "8h"
    assert words["ttl_min"] == "10s"
    assert words["skew"] == "1m"
    assert words["rule"] == "wall"
    assert words["admins"] == ""
    assert tuple(words) == KEYS
    changed = change_policy(DEFAULT_POLICY, {"ttl_min": "10h", "ttl_max": "20h"})
    assert (changed.ttl_min, changed.ttl_max) == (36_000, 72_000), "together"
    check_change("edges.abandoned_after", "10m")  # which some ledger takes
    with pytest.raises(UsageError):
        check_change("edges.abandoned_after", "9m")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("ttl_max", "1h", 3_600),
        ("skew", "0", 0),
        ("grace", "1h", 3_600),
        ("drift", "1.5%", 15_000),
        ("drift", "50%", 500_000),
        ("rule", "Observed", Rule.OBSERVED),
        ("history", "append", History.APPEND),
        ("admins", "a@x, b@x  a@x", ("a@x", "b@x")),
        ("admins", "", ()),
        ("keep_completed", "0", 0),
        ("park_max", "2d", 172_800),
        ("edges.abandoned_after", "never", 0),
        ("edges.abandoned_after", "1d", 86_400),
        ("issues", "GitHub", Issues.GITHUB),
    ],
)
def test_a_setting_is_understood(key: str, text: str, value: object) -> None:
    attribute = key.removeprefix("edges.")
    assert getattr(change_policy(DEFAULT_POLICY, {key: text}), attribute) == value


BAD = {
    "colour": ["red"],
    "ttl_max": ["9s", "11y"],
    "ttl_min": ["0", "9h"],
    "skew": ["25h", "-1s"],
    "grace": ["2h"],
    "drift": ["1", "51%", "-1%", "nan%", "%"],
    "rule": ["moon"],
    "history": [""],
    "edges.abandoned_after": ["7h", "9m", "0"],
    "abandoned_after": ["2d"],
    "park_max": ["11000d"],
    "admins": ["a\x07b", "x" * 255, " ".join(f"a{n}@x" for n in range(MAX_ADMINS + 1))],
}


@pytest.mark.parametrize("key", BAD)
def test_a_bad_setting_is_refused(key: str) -> None:
    for text in BAD[key]:
        with pytest.raises(UsageError):
            change_policy(DEFAULT_POLICY, {key: text})


@given(
    st.builds(
        Policy,
        ttl_max=st.integers(1_000, 10**8),
        ttl_min=st.integers(1, 1_000),
        skew=st.integers(0, 86_400),
        drift=st.integers(0, 500_000),
        grace=st.integers(0, 3_600),
        rule=st.sampled_from(Rule),
        admins=st.lists(st.sampled_from(["a@x", "b@x", "c@x"]), unique=True).map(tuple),
        history=st.sampled_from(History),
        keep_completed=st.integers(0, 10**8),
        abandoned_after=st.sampled_from([0, 86_400, 10**8]),
    )
)
def test_what_is_shown_can_be_set(policy: Policy) -> None:
    assert change_policy(DEFAULT_POLICY, policy_words(policy)) == policy


def test_an_admin_is_one_in_any_letters() -> None:
    policy = Policy(admins=("Jo@Example.com",))
    assert policy.is_admin("jo@example.COM")
    assert not policy.is_admin("joe@example.com")
    assert not DEFAULT_POLICY.is_admin("jo@example.com")


def test_the_widest_of_two_margins_has_the_larger_of_each() -> None:
    one = Margins(skew=1, drift=20, grace=3, rule=Rule.WALL)
    other = Margins(skew=10, drift=2, grace=3, rule=Rule.OBSERVED)
    widest = Margins(skew=10, drift=20, grace=3, rule=Rule.OBSERVED)
    assert one.widest(other) == other.widest(one) == widest
