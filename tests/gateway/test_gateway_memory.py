"""The objects that a gateway keeps: as many after many requests as after a few."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from support.gateway import Served

pytestmark = pytest.mark.slow

TURNS = 24


def kept() -> Counter[str]:
    """How many objects of each class of gitlease there are."""
    gc.collect()
    types = (type(x) for x in gc.get_objects())  # of some classes __module__ is a descriptor
    return Counter(x.__qualname__ for x in types if str(x.__module__).startswith("gitlease."))


def test_requests_leave_no_objects_behind(gate: Served) -> None:
    jo, kim = gate.caller("jo"), gate.caller("kim")

    def turns(count: int) -> Counter[str]:
        for number in range(count):
            path = f"/v1/leases/t{number % 4}"
            assert jo.put(path).status_code == 201
            assert kim.put(path).status_code == 409
            assert jo.patch(path, json={}).json()["status"] == "renewed"
            assert kim.get(path).status_code == 200
            assert jo.post("/lfs/locks/verify", json={}).status_code == 200
            assert jo.delete(path).status_code == 200
        return kept()

    before = turns(TURNS)
    grown = turns(TURNS) - before
    # A ledger has its last 128 operations, and some ledgers are kept. Of what was read a number is
    # kept, which tests/kernel/store/test_git_counting.py holds.
    some = {"RingEntry", "Event", "Lease", "Resource"}
    assert {x: n for x, n in grown.items() if n >= TURNS and x not in some} == {}
