"""What everyday commands cost at most, in modules and in gits: the numbers may only fall."""

from __future__ import annotations

from pathlib import Path

from support.counting import costs

MOST = {  # modules of gitlease, and gits that it starts, the one that pushes or fetches among them
    "claim deploy": (
        82,
        5,
    ),  # two look at commits: for the ledger's id, and for tasks that are not here
    "renew deploy": (80, 3),
    "list": (78, 4),
    "release deploy": (83, 3),
    "hook pre-commit": (47, 3),
    "check HEAD~1..HEAD": (108, 10),
    "check --stale": (125, 5),
}


def test_no_command_costs_more_than_it_did(tmp_path: Path) -> None:
    found = costs(tmp_path)
    assert {
        name: (len(cost.modules), len(cost.gits))
        for name, cost in found.items()
        if len(cost.modules) > MOST[name][0] or len(cost.gits) > MOST[name][1]
    } == {}
    assert found["claim deploy"].gits_before_push <= 4
