"""Work that is left unfinished: two people, several clones, and one remote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.hooked import JO, MINUTE, Pair, share_tasks
from support.ledgers import door
from support.remotes import Remote
from support.repos import git
from support.session import LeaseService
from support.workers import Workers

Clones = Callable[..., list[Path]]
HOUR = 3_600
RACERS = 8


def belong_to(person: str, clones: list[Path]) -> None:
    for clone in clones:
        git(clone, "config", "user.email", person)


# --- hooks ----------------------------------------------------------------------------------------


def test_commits_of_its_owner_neither_renew_nor_name_nor_block_it(pair: Pair) -> None:
    jo, kim = pair.jo, pair.kim
    lease = jo.claim("src/api", ago=10 * MINUTE, session="s1")
    service = LeaseService(jo.at(session="s1").ledger)
    service.end_session(park=True, seconds=HOUR)
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


# --- the race -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [True, False])
def test_of_many_runs_of_its_owner_exactly_one_resumes_it(
    path_remote: Remote, clones: Clones, sessions: bool
) -> None:
    """In two clones; the others get the next tasks, each another one, or a clean no."""
    one, two, third = clones(3)
    belong_to(JO, [one, two, third])
    names = [f"T{number:02d}" for number in range(RACERS - 2)]
    share_tasks((one, two, third), names, path_remote.env)
    last = names[-1]
    door(third, session="before").claim(last)
    door(two).list()  # knows it as held
    kept = door(third, session="before").park(last)
    made = []
    for number in range(RACERS):
        who = ["--session", f"s{number}"] if sessions else ["--no-session"]
        made.append((["-C", str((one, two)[number % 2]), *who], path_remote.env))
    with Workers(made) as workers:
        answers = workers.all("next", "--claim")
    got = [a.document["task"]["resource"] for a in answers if a.exit == 0]
    assert sorted(got) == names, [a.document for a in answers if a.exit]
    assert {a.code for a in answers if a.exit} == {"nothing_left"}
    (resumed,) = (a for a in answers if a.exit == 0 and a.document["task"]["resource"] == last)
    lease = resumed.document["lease"]
    assert (lease["parked"], lease["token"]) == (False, kept.token + 1), "before all other grants"
