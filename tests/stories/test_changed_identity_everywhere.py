"""Every verb of a session whose user.email changed says so, and refusals name the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.repos import git
from support.typed import Typist

pytestmark = pytest.mark.slow

JO, BOT = "jo@example.com", "bot@example.com"
WAY = f"git config user.email {JO}"
HINT = f"hint: {WAY}  # your session holds it under that address"


@pytest.fixture
def jo(clones: Callable[..., list[Path]]) -> Typist:
    """Jo's clone, whose session holds m1 as Jo and goes on as a bot."""
    (clone,) = clones(1)
    git(clone, "config", "user.email", JO)
    typist = Typist(clone, ManualClock(), {"GITLEASE_SESSION": "run-1"})
    typist.ok("claim m1 --any")
    git(clone, "config", "user.email", BOT)
    return typist


def test_verbs_that_find_nothing_to_do_say_under_which_address_there_is_something(
    jo: Typist,
) -> None:
    for line in ("release --all", "land", "whoami", "whoami --json"):
        told = jo.types(line)
        assert WAY in told.out + told.err, (line, told)
    assert "you hold nothing here" in jo.ok("release --all").out
    assert "you hold no task here" in jo.types("land").err


def test_whoami_of_who_holds_nothing_elsewhere_says_no_more(jo: Typist) -> None:
    assert "user.email is" not in jo.ok("whoami --session other").err
    git(jo.clone, "config", "user.email", JO)
    assert jo.ok("whoami").err == ""


def test_a_session_is_not_told_to_wait_for_itself(jo: Typist) -> None:
    for line in (
        "claim m1 --any",
        "renew m1",
        "release m1",
        "done m1 --any",
        "wait m1 --timeout 2s",
    ):
        told = jo.types(line)
        assert told.code, line
        assert HINT in told.err, (line, told)
        assert not any(x.startswith("gitlease wait") or "--wait" in x for x in told.hints), told
    git(jo.clone, "config", "user.email", JO)
    jo.ok("claim m1 --any")


def test_another_session_waits_for_it(jo: Typist) -> None:
    told = jo.types("claim m1 --any --session other")
    assert any(x.startswith("gitlease wait") for x in told.hints), told
    assert WAY not in told.err


def test_no_hint_leads_to_an_address_that_the_session_never_had(
    jo: Typist, clones: Callable[..., list[Path]]
) -> None:
    """A lease of somebody else with the same session name gives nobody their address."""
    other = clones(2)[1]
    git(other, "config", "user.email", "al@example.com")
    told = Typist(other, jo.clock, {"GITLEASE_SESSION": "run-1"}).types("claim m1 --any")
    assert told.code == 1
    assert "git config user.email" not in told.err


def test_a_loss_is_told_by_the_release_of_everything_that_finds_nothing(jo: Typist) -> None:
    jo.ok(f"config admins {BOT} --ledger")
    jo.ok("revoke m1 --reason late")
    git(jo.clone, "config", "user.email", JO)
    assert f"was revoked by {BOT}" in jo.ok("release --all").err
