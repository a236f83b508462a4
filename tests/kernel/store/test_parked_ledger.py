"""A ledger that an older version wrote, with parked leases, read and carried on by this one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.commands import ROOT
from support.old_version import FIRST_SECOND, Version
from support.repos import git, make_repository
from support.session import LeaseService

from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.errors import LeaseHeld, LeaseLost
from gitlease.kernel.rules.lease import State
from gitlease.kernel.rules.ledger import is_kept
from gitlease.kernel.rules.resources import parse_resource
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.default

STREAM = Path(__file__).with_name("parked.fast-export")
F001, F002, F003, F004, DOCS = map(parse_resource, ("F001", "F002", "F003", "F004", "docs/"))
HOUR, DAY = 3_600, 86_400
LAST_TOKEN = 6


@dataclass
class OldLedger:
    """Two people's clones of a remote with that ledger, and the time there."""

    base: Path

    def __post_init__(self) -> None:
        self.clock = ManualClock(wall_ms=(FIRST_SECOND + 60) * 1_000)
        remote = make_repository(self.base / "remote.git", "--bare")
        git(remote, "fast-import", "--quiet", input=STREAM.read_text(encoding="utf-8"))
        for name in ("jo", "kim"):
            clone = make_repository(self.base / name, email=f"{name}@example.com")
            git(clone, "remote", "add", "origin", str(remote))

    def of(self, name: str, session: str | None = None) -> LeaseService:
        place = str(self.base / name)
        found = open_workspace(place, clock=self.clock, session=session, environ={})
        return LeaseService(found.ledger)


@pytest.fixture
def old(tmp_path: Path) -> OldLedger:
    return OldLedger(tmp_path)


def test_what_was_parked_is_its_owner_s_and_no_session_s(old: OldLedger) -> None:
    views = {x.resource: x for x in old.of("jo", "five").read().leases}
    assert {x: y.holder.partition("@")[0] for x, y in views.items()} == {
        **dict.fromkeys(("F001", "F003", "path:docs"), "jo"),
        **dict.fromkeys(("F002", "F004"), "kim"),
    }
    # F003 was resumed, in a session.
    assert {x for x, y in views.items() if y.session} == {"F003"}
    assert {x for x, y in views.items() if y.mine} == {"F001", "path:docs"}
    times = {x: y.expires_at.timestamp() - FIRST_SECOND for x, y in views.items()}
    assert times["F001"] == 1 + 4 * HOUR
    assert times["path:docs"] == 7 + DAY
    with pytest.raises(LeaseHeld):
        old.of("kim").claim([F001])
    with pytest.raises(LeaseLost):
        old.of("jo").renew([F001])


def test_it_expires_when_the_parking_ends(old: OldLedger) -> None:
    old.clock.advance(4 * HOUR)
    assert {x.resource: x.state for x in old.of("jo").read().leases}["F001"] == "expired"
    with pytest.raises(LeaseHeld) as refused:
        old.of("kim").claim([F001])
    assert refused.value.by_edge or refused.value.views[0].assigned, "the task is still jo's"
    with pytest.raises(LeaseHeld):
        old.of("kim").claim([DOCS])
    old.clock.advance(DAY)
    done = old.of("kim").claim([DOCS])
    assert (done.status, done.leases[0].token) == ("taken_over", LAST_TOKEN + 1)


def test_it_is_resumed_kept_and_released_and_the_past_stays_legal(old: OldLedger) -> None:
    lease = old.of("jo", "five").claim([F001]).leases[0]
    assert (lease.token, lease.session) == (LAST_TOKEN + 1, "five")
    assert old.of("jo", "five").keep([F001], note="which colour?").status == "kept"
    with pytest.raises(LeaseHeld):
        old.of("kim").claim([F001])
    assert old.of("kim", "k").claim([F004]).leases[0].token == LAST_TOKEN + 2
    old.of("jo").release([DOCS])
    taken = ClaimOptions(takeover=True, reason="jo is away")
    old.clock.advance(HOUR)
    assert old.of("kim").claim([F001], taken).status == "taken_over"
    records = list(old.of("jo").look().leases)
    assert not any(x.parked or is_kept(x) for x in records)
    assert {x.resource for x in records if x.state is State.ACTIVE} == {F001, F002, F003, F004}
    present = Version(Path(ROOT), now=old.clock.wall_ms / 1_000)
    assert present.ask(old.base / "kim", "verify")["ok"]
