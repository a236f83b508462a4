"""What dead runs held is ended in every layer, and each of them is told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kernel.rules.values import JO
from support.session import MemoryWorld

from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.rules.errors import Unavailable
from gitlease.kernel.rules.lease import Actor
from gitlease.runs import dead_runs


def test_what_ended_here_is_told_beside_what_ended_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MemoryWorld()
    here, team, away = (
        world.of(Actor(JO.holder), layer=layer).session for layer in ("global", "team", "away")
    )
    told = {"global": ("F001: gone",), "team": ("F002: gone",)}

    def ends(session: LedgerSession, *_: object) -> tuple[str, ...]:
        if session is away:
            raise Unavailable("not now")
        return told[session.layer]

    runs: Any = SimpleNamespace(layers_of_dead=lambda _: frozenset({"global", "team", "away"}))
    monkeypatch.setattr(dead_runs, "end_in_layer", ends)
    ended = dead_runs.end_dead_runs(here, runs, lambda: [away, team])
    assert ended == ("F001: gone", "F002: gone")
