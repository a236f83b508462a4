"""How bad it is in a world."""

from __future__ import annotations

from gitlease.kernel.rules.frozen import dataclass


@dataclass(frozen=True)
class Weather:
    """How bad it is. Probabilities are of one request, one command or one disturbance.

    ``drift``: how far the boot clocks are off, as a part of one; within what the policy allows.
    ``upheavals``: of each step, that the ledger is deleted, or is to move.
    """

    faults: float = 0.25
    kills: float = 0.04
    disturbed: float = 0.05
    suspended: float = 0.01
    slow: float = 0.05
    lagging: float = 0.0
    rollbacks: float = 0.0
    drift: float = 0.004
    upheavals: float = 0.0
