"""A guardian that dies between two words to it: the command's status is guessed, not an end."""

from __future__ import annotations

from typing import cast

import pytest
from kernel.rules.values import F001
from support.clock import ManualClock

from gitlease.kernel.ledger.heartbeat import Heartbeat
from gitlease.kernel.rules.loss import Hold
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import WHOLE
from gitlease.runs.supervisor import FAILED, UNGUARDED, SupervisedProcess, Supervisor

pytestmark = pytest.mark.default


class Unwatched:
    """A command whose guardian dies while somebody waits, ``when_asked`` to end or before."""

    def __init__(self, *, when_asked: bool) -> None:
        self.to_stop = self.when_asked = when_asked
        self.is_watched, self.was_asked = True, False
        self.told_to_end = self.group_is_left = self.goes_on = self.spares_runs = False

    def guard(self, until_ms: int) -> bool:
        return self.is_watched

    def wait(self, seconds: float) -> int | None:
        if self.when_asked and not self.was_asked:
            return None
        self.is_watched = False
        return 137

    def ask(self) -> None:
        self.was_asked = True

    def left_behind(self) -> list[str]:
        return []


class SteadyHeartbeat:
    def keep(self, *_words: object) -> None: ...
    def drop(self, *_words: object) -> None: ...
    def look(self) -> None: ...
    def left_ms(self, _lease_id: str) -> int:
        return 60_000


@pytest.mark.parametrize("when_asked", [False, True])
def test_a_guessed_status_ends_no_lease(when_asked: bool) -> None:
    clock = ManualClock()
    grant = Grant(F001, WHOLE, None, "an-id", 1)
    ended = Supervisor(
        cast(SupervisedProcess, Unwatched(when_asked=when_asked)),
        cast(Heartbeat, SteadyHeartbeat()),
        [Hold(grant=grant, since=clock.now(), duration_ms=60_000)],
        clock=clock,
        grace=1_000,
    ).attend()
    assert not ended.is_over
    if not when_asked:
        assert (ended.exit, ended.failure, ended.outcome) == (FAILED, UNGUARDED, "failed")
