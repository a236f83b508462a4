"""Two desks whose systems tell the time by other zones, also by one that counts leap seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from support.repos import git
from support.running import Desk

pytestmark = [pytest.mark.one_in(3)]

ZONES = ("right/UTC", "right/America/New_York", "Pacific/Kiritimati")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.usefixtures("path_remote")
def test_both_read_the_same_times(zone: str, clones: Callable[..., list[Path]]) -> None:
    if not Path("/usr/share/zoneinfo", zone).exists():
        pytest.skip(f"there is no {zone} here")
    there, here = clones(2)
    jo, kim = Desk(there, {"TZ": zone}), Desk(here, {"TZ": "UTC"})
    task = there / "tasks" / "T1.md"
    task.parent.mkdir()
    task.write_text("---\nid: T1\nstatus: todo\nassigned: []\n---\n")
    assert jo.ask("hooks", "install").returncode == 0
    lease = jo.document("claim", "T1", "--ttl", "1m")["lease"]
    assert 55 <= lease["expires_in"] <= 60
    (seen,) = kim.document("list")["leases"]
    assert seen["expires_at"] == lease["expires_at"]
    end, start = (datetime.fromisoformat(seen[key]) for key in ("expires_at", "renewed_at"))
    assert (end - start).total_seconds() == 60
    refused = [desk.ask("claim", "T1").stderr for desk in (kim,)]
    assert lease["expires_at"][11:] in refused[0]
    assert jo.document("renew", "T1")["lease"]["state"] == "active"
    git(there, "add", "-A")
    done = jo.ask("check", "--stale", "--json")
    assert done.returncode == 0, done
    assert [x["at"][:16] for x in jo.document("log")["events"][:1]] == [
        x["at"][:16] for x in kim.document("log")["events"][:1]
    ]
    assert jo.document("done", "T1")["status"] == "completed"
