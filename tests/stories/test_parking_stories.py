"""What an older version parked, beside the hooks of this one."""

from __future__ import annotations

import pytest
from support import older
from support.hooked import MINUTE, Pair
from support.session import LeaseService

HOUR = 3_600


@pytest.mark.slow
def test_commits_of_its_owner_neither_renew_nor_name_nor_block_it(pair: Pair) -> None:
    jo, kim = pair.jo, pair.kim
    lease = jo.claim("src/api", ago=10 * MINUTE, session="s1")
    service = LeaseService(jo.at(session="s1").ledger)
    older.park_session(service.session, "s1", seconds=HOUR)
    before = pair.ledger()
    for session in ("s1", "s2"):
        jo.put("src/api/login.py")
        done = jo.commit(env={"GITLEASE_SESSION": session})
        assert done.returncode == 0, done.stderr
        assert jo.trailers() == []
    assert jo.beats() == 0
    assert pair.ledger() == before
    assert pair.leases()["src/api"].lease_id == lease.lease_id
    kim.put("src/api/login.py")
    assert kim.commit().returncode == 1
