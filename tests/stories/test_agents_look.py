"""What an agent's hooks know of others: in a fresh clone, and soon after something happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.repos import git, real_clone
from support.typed import Agent, Typist

from gitlease.guard import has_traces

Clones = Callable[..., list[Path]]


@pytest.fixture
def ada(clones: Clones) -> Typist:
    ada = Typist(clones(1)[0], ManualClock())
    ada.ok("init")
    return ada


def fresh(ada: Typist, name: str = "fresh") -> Agent:
    """An agent of Bob in a clone in which no command of gitlease has run."""
    place = ada.clone.parent / name
    real_clone(git(ada.clone, "remote", "get-url", "origin"), place, "bob@example.com")
    return Agent(Typist(place, ada.clock), session=f"{name}-1111")


def test_the_first_edit_in_a_fresh_clone_is_guarded(ada: Typist) -> None:
    ada.ok("claim src/auth/")
    agent = fresh(ada)
    assert not has_traces(str(agent.at.clone / ".git"))
    assert agent.edits("src/auth/login.py").startswith("deny")
    assert agent.edits("docs/a.md") == ""


def test_a_remote_without_a_ledger_is_asked_once_a_day(clones: Clones) -> None:
    agent = Agent(Typist(clones(1)[0], ManualClock()))
    asked: list[str] = []
    background = agent._background
    agent._background = lambda words, *, cwd: asked.append(words[2]) or background(words, cwd=cwd)  # type: ignore[method-assign, func-returns-value]
    for _ in range(3):
        agent.sends("session-start")
        agent.edits("a")
        agent.uses_a_tool()
    assert asked == ["look-now"]
    assert not has_traces(str(agent.at.clone / ".git"))
    agent.at.clock.advance(86_401)
    agent.sends("session-start")
    assert asked == ["look-now"] * 2


def test_a_claim_by_others_is_known_to_the_edit_after_next(ada: Typist) -> None:
    """Though what is known is younger than ``guard.max_age``."""
    agent = fresh(ada)
    agent.sends("session-start")
    agent.edits("src/auth/login.py")
    ada.clock.advance(11)
    ada.ok("claim src/auth/")
    agent.edits("src/auth/login.py")
    assert agent.edits("src/auth/login.py").startswith("deny")


def test_a_displaced_agent_is_told_at_its_next_event_but_one(ada: Typist) -> None:
    agent = fresh(ada)
    agent.at.ok("claim F001 --any", env=agent.terminal)
    agent.sends("session-start")
    agent.uses_a_tool()
    ada.ok("config admins w1@example.com --ledger")
    ada.clock.advance(11)
    ada.ok("revoke F001 --reason urgent")
    answers = [agent.uses_a_tool() for _ in range(2)]
    assert "F001" in answers[1]
