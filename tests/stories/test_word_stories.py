"""Notes for whoever holds something now: shown once to the session that has it, then listed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.repos import commit_file
from support.typed import Agent, Typist

pytestmark = pytest.mark.nightly

Clones = Callable[..., list[Path]]
WORD = "main is red: push nothing"
TO_HOLDER = f"note F001 '{WORD}' --to-holder"


@pytest.fixture
def desks(clones: Clones) -> tuple[Typist, Typist]:
    clock = ManualClock()
    ada, bob = (Typist(clone, clock) for clone in clones(2))
    ada.ok("claim F001 --any")
    return ada, bob


@pytest.mark.slow
def test_the_holder_is_shown_it_once_and_brief_lists_it(desks: tuple[Typist, Typist]) -> None:
    ada, bob = desks
    left = bob.ok(f"{TO_HOLDER} --json").json
    assert [x["holder"] for x in left["leases"]] == ["w1@example.com"]
    first, second = ada.ok("renew F001"), ada.ok("renew F001")
    assert WORD in first.out + first.err
    assert WORD not in second.out + second.err
    assert WORD in ada.ok("brief").out
    assert ada.ok("list --json").json["warnings"] == []
    ada.ok("release F001")
    assert WORD in bob.ok("claim F001 --any").out


@pytest.mark.slow("False")
@pytest.mark.parametrize("edits", [True, False])
def test_an_agent_is_told_by_a_hook_and_its_sibling_is_not(
    desks: tuple[Typist, Typist], edits: bool
) -> None:
    _, bob = desks
    holder, sibling = Agent(bob), Agent(bob, session="77777777-0000")
    bob.ok("claim F002 --any", env=holder.terminal)
    for agent in (sibling, holder):
        agent.sends("session-start")
        agent.uses_a_tool()
    bob.clock.advance(11)
    desks[0].ok(f"note F002 '{WORD}' --to-holder")
    told = [
        [agent.edits("a") if edits else agent.uses_a_tool() for _ in range(3)]
        for agent in (sibling, holder)
    ]
    assert [sum(WORD in x for x in each) for each in told] == [0, 1]


@pytest.mark.slow
def test_word_for_nobody_is_refused_and_left_nowhere(desks: tuple[Typist, Typist]) -> None:
    ada, bob = desks
    mine = ada.types(f"{TO_HOLDER} --json")
    ada.ok("release F001")
    for refused in (mine, bob.types(f"{TO_HOLDER} --json")):
        assert (refused.code, refused.json["error"]["code"]) == (7, "not_found")
    assert bob.ok("show F001 --json").json["notes"] == []


def test_hint_for_a_name_that_nobody_can_hold_works(desks: tuple[Typist, Typist]) -> None:
    ada, _ = desks
    commit_file(ada.clone, "tasks/F001.md", "---\nid: F001\nstatus: todo\n---\n", "a task")
    for line in ("note nosuch x --to-holder", "note F009 x --to-holder"):
        hints = ada.types(f"{line} --json").json["error"]["hints"]
        assert not [x for x in hints if "--any" in x]
    assert [x for x in ada.types("note F009 x --json").json["error"]["hints"] if "--any" in x]
    assert ada.ok("note nosuch x --json").json["notes"]
