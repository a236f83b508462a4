"""The wait: look politely, wake when it may be free, and stop in time."""

from __future__ import annotations

import random
from collections.abc import Callable

from gitlease.answers import Answer
from gitlease.domain.duration import format_duration
from gitlease.domain.errors import LeaseHeld, WaitTimeout
from gitlease.domain.instant import MS
from gitlease.ports import Clock

NOTICE_WITHIN = 5.0  # seconds between looks in the first minute of a wait
NOTICE_LATER = 15.0


def wait_until_free(
    attempt: Callable[[], Answer],
    *,
    seconds: int,
    clock: Clock,
    dice: random.Random,
    on_wait: Callable[[LeaseHeld], None],
) -> Answer:
    """Try until it is not held, for at most ``seconds``; WaitTimeout when it still is then."""
    began = clock.now()
    while True:
        try:
            return attempt()
        except LeaseHeld as held:
            waited = began.elapsed_at_most(clock.now()) / MS
            if waited >= seconds:
                raise _timeout(held, seconds) from None
            on_wait(held)
            clock.sleep(_nap(held, waited, seconds, clock.now().wall_ms, dice))


def _nap(held: LeaseHeld, waited: float, seconds: int, now_ms: int, dice: random.Random) -> float:
    """Until it may be free, at most until the next look, and never past the end of the wait."""
    look = NOTICE_WITHIN if waited < 60 else NOTICE_LATER
    nap = look * dice.uniform(0.7, 1.3)
    if held.free_at is not None:
        until_free = (held.free_at - now_ms) / MS
        if until_free > 0:  # otherwise the clocks disagree, and looking more often does not help
            nap = min(nap, until_free + dice.uniform(0.05, 0.3))
    return max(0.05, min(nap, seconds - waited))


def _timeout(held: LeaseHeld, seconds: int) -> WaitTimeout:
    timeout = WaitTimeout(
        f"waited {format_duration(seconds)}: {held.message}",
        resource=held.resource,
        scope=held.scope,
        conflicts=held.conflicts,
        free_at=held.free_at,
        holder=held.holder,
    )
    timeout.views, timeout.warnings = held.views, held.warnings
    return timeout
