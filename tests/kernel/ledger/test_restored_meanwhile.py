"""A deleted ledger that is there again between two looks of one clone."""

from __future__ import annotations

import pytest
from kernel.rules.values import F001, JO, KIM
from support.memory import MemoryClone, MemoryRefs
from support.session import LeaseService, MemoryWorld, ledger_session

from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.admission import RemoteFacts
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace

pytestmark = pytest.mark.default

F002 = parse_resource("F002")


def test_what_a_clone_has_seen_outlasts_a_restoration_between_two_looks() -> None:
    """S3: Kim's clone forgot what it had, and believed whatever was there."""
    world = MemoryWorld()
    refs = MemoryRefs(world.remote)
    world.of(JO).claim([F001])
    recorded = world.remote.ledger(world.remote.refs["global"]).header.ledger_id
    clone = MemoryClone()

    def kim() -> LeaseService:
        facts = RemoteFacts(recorded=lambda: recorded)
        store = RefLedgerStore(StorePlace(refs, clone.state, "origin", facts), world.clock)
        return LeaseService(ledger_session(store, clock=world.clock, actor=KIM))

    kim().claim([F002])
    world.remote.force("global", "")
    done = list[str]()

    def meanwhile(kind: str) -> None:
        done.append(kind)
        if len(done) == 2:
            restore(world.of(JO).session)

    world.remote.during = meanwhile
    kim().read()
    world.remote.during = lambda _: None
    assert kim().renew([F002]).leases[0].token == 2
