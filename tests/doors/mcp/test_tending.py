"""What a tool server without hooks does for the leases that were claimed through it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from support.clock import ManualClock
from support.repos import git
from support.snapshots import check_words

from gitlease.kernel.ledger import claim
from gitlease.kernel.rules.resources import parse_resource
from gitlease.mcp.server import AskedPlace
from gitlease.mcp.stdio import CloneBackend
from gitlease.wiring.workspace import Workspace, open_workspace

MINUTE = 60


class Clock(ManualClock):
    """The same clock for calls that may be cancelled."""

    def woken(self, _woken: threading.Event) -> ManualClock:
        return self


def test_it_renews_for_an_hour_after_the_last_call_then_lets_go_and_says_so(
    clones: Callable[..., list[Path]],
) -> None:
    (clone,) = clones(1)
    git(clone, "config", "user.email", "jo@example.com")
    clock = Clock()

    def opened(directory: str | None, *, thread: str) -> Workspace:
        return open_workspace(directory or ".", environ={}, clock=clock)

    def live() -> list[str]:
        look = opened(str(clone), thread="").ledger.look()
        return [x.resource.text for x in look.leases if x.expires_at > clock.now().wall_ms]

    backend = CloneBackend(str(clone), opener=opened)
    with backend.caller({}, None, threading.Event(), AskedPlace(writes=True)) as caller:
        caller.granted(claim.claim(caller.ledger, [parse_resource("deploy")]))
    for _ in range(11):
        clock.advance(5 * MINUTE)
        backend.tend()
        assert live() == ["deploy"]
    clock.advance(6 * MINUTE)
    backend.tend()
    assert live() == []
    with backend.caller({}, None, threading.Event(), AskedPlace(writes=True)) as caller:
        answer = claim.claim(caller.ledger, [parse_resource("other")])
    check_words(answer.warnings)
