"""A session whose user.email changes is told so, and how to go on with what it holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.repos import git
from support.typed import Agent, Typist

pytestmark = pytest.mark.slow

JO, BOT = "jo@example.com", "bot@example.com"
WAY = f"git config user.email {JO}"


@pytest.fixture
def jo(clones: Callable[..., list[Path]]) -> Typist:
    (clone,) = clones(1)
    git(clone, "config", "user.email", JO)
    return Typist(clone, ManualClock(), {"GITLEASE_SESSION": "run-1"})


def test_every_answer_says_as_whom_the_session_holds_its_leases(jo: Typist) -> None:
    jo.ok("claim F001 --any")
    git(jo.clone, "config", "user.email", BOT)
    for line in ("claim F001 --any", "renew F001", "renew --all", "release F001"):
        told = jo.types(line)
        assert WAY in told.err, (line, told)
        assert f"session run-1 holds F001 as {JO}" in told.err
    for line in ("brief", "status", "list --mine"):
        told = jo.types(line)
        assert WAY in told.out + told.err, (line, told)
    git(jo.clone, "config", "user.email", JO)
    told = jo.ok("renew F001")
    assert "user.email" not in told.err
    jo.ok("release F001")
    git(jo.clone, "config", "user.email", BOT)
    assert WAY not in jo.types("brief").err, "it holds nothing"


@pytest.mark.default
def test_another_session_and_a_lapsed_lease_are_no_reason(jo: Typist) -> None:
    jo.ok("claim F001 --any --ttl 60s")
    git(jo.clone, "config", "user.email", BOT)
    assert WAY not in jo.types("claim F001 --any --session other").err
    jo.clock.advance(600)
    assert WAY not in jo.ok("claim F001 --any").err


def test_an_agent_is_told_at_the_start_of_its_session(jo: Typist) -> None:
    agent = Agent(jo)
    jo.env.pop("GITLEASE_SESSION")
    jo.ok("claim F001 --any", env=agent.terminal)
    git(jo.clone, "config", "user.email", BOT)
    said = agent.sends("session-start", source="resume")
    assert f"session {agent.name} holds F001 as {JO}" in said
    assert WAY in said
