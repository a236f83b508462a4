"""An agent's session ends with all that it claimed, in whichever layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.typed import Agent, Typist

pytestmark = pytest.mark.default


def held(jo: Typist, layer: str) -> list[str]:
    return [x["resource"] for x in jo.ok(f"list --layer {layer} --json").json["leases"]]


def test_the_end_of_an_agents_session_is_in_every_layer(clones: Callable[..., list[Path]]) -> None:
    (clone,) = clones(1)
    jo = Typist(clone, ManualClock())
    jo.ok("agent claude install")
    jo.ok("claim mine --any --layer team")
    agent = Agent(jo)
    agent.sends("session-start", source="startup")
    jo.ok("claim deploy --any", env=agent.terminal)
    jo.ok("claim port --any --layer team", env=agent.terminal)
    assert (held(jo, "global"), held(jo, "team")) == (["deploy"], ["mine", "port"])
    agent.sends("session-end", reason="other")
    assert (held(jo, "global"), held(jo, "team")) == ([], ["mine"])
