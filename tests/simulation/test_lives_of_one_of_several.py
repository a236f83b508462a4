"""The invariants where half of all claims ask for any one of several resources."""

from __future__ import annotations

from collections import Counter

import pytest
from simulation.commands import RESOURCES, SCOPES, TTLS, Commands
from simulation.lives import life
from simulation.machines import Process
from simulation.weather import Weather

from gitlease.kernel.ledger import claim
from gitlease.kernel.ledger.answers import Answer, ClaimOptions

FOUL = Weather(faults=0.4, kills=0.1, disturbed=0.1, lagging=0.1, rollbacks=0.003)
PLAIN = Commands._claim
taken = Counter[int]()


def claim_one(self: Commands, process: Process) -> Answer:
    """A claim of any of up to four, some of them the same or overlapping; sometimes it waits."""
    dice = self._dice
    if dice.random() < 0.5:
        return PLAIN(self, process)
    wanted = [dice.choice(RESOURCES) for _ in range(dice.randint(2, 4))]
    options = ClaimOptions(
        one=True,
        scope=dice.choice(SCOPES),
        ttl=dice.choice(TTLS),
        reopen=dice.random() < 0.7,
    )
    session = self._session(process)
    wait = 30 if dice.random() < 0.2 else None
    answer = claim.claim(session, wanted, options, wait=wait)
    assert answer.status in ("claimed", "taken_over"), "nothing of one's own is renewed"
    granted = [x for x in answer.leases if x.state != "completed"]
    assert len(granted) == 1
    taken[wanted.index(next(x for x in wanted if x.text == granted[0].resource))] += 1
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_any_of_several_keeps_the_invariants(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commands, "_claim", claim_one)
    life(seed, observed=bool(seed % 2), weather=FOUL, steps=100)


@pytest.mark.slow("0", "3", "6")
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(9))
def test_any_of_several_keeps_them_through_long_lives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Commands, "_claim", claim_one)
    taken.clear()
    life(seed, steps=400)
    assert min(taken[0], taken[1]) > 0
