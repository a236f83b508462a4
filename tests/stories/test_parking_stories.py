"""Work that is left unfinished: two people, several clones, and one remote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.hooked import JO, KIM, MINUTE, Pair
from support.ledgers import door, read_files, text_of
from support.remotes import Remote, Servers, open_remote
from support.repos import git
from support.session import LeaseService
from support.snapshots import check_words, cleaned
from support.workers import Workers

import gitlease
from gitlease.wiring import open_hooks

NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
Clones = Callable[..., list[Path]]
HOUR = 3_600
RACERS = 20


def write_tasks(clone: Path, names: list[str], remote: Remote) -> None:
    """Commit and push some tasks."""
    (clone / "tasks").mkdir()
    for name in names:
        text = f"---\nid: {name}\ntitle: The {name}\nstatus: todo\nassigned: []\n---\n"
        (clone / "tasks" / f"{name}.md").write_text(text, encoding="utf-8")
    git(clone, "add", "tasks")
    git(clone, "commit", "-q", "-m", "tasks")
    git(clone, "push", "-q", "origin", "HEAD:main", env=remote.env)


def belong_to(person: str, clones: list[Path]) -> None:
    for clone in clones:
        git(clone, "config", "user.email", person)


def written(bare: Path, name: str) -> str:
    """The record of one lease, as it stands on the remote."""
    (file,) = (f for f in read_files(bare) if f.startswith("leases/") and f"/{name}-" in f)
    return text_of(bare, file)


# --- one day and the next -------------------------------------------------------------------------


def test_what_is_parked_in_the_evening_is_resumed_elsewhere_in_the_morning(
    path_remote: Remote, clones: Clones
) -> None:
    clock, (desk, laptop, other) = ManualClock(), clones(3)
    belong_to(JO, [desk, laptop])
    write_tasks(desk, ["F001", "F002"], path_remote)
    for clone in (laptop, other):
        git(clone, "pull", "-q", "origin", "main", env=path_remote.env)

    evening = door(desk, clock=clock, session="monday")
    evening.claim("F002", ttl="30m", reason="rate limits")
    kept = evening.park("F002", "16h", note="parser done, tests red")
    assert (kept.parked, kept.session, kept.expires_in) == (True, None, 16 * HOUR)
    assert written(path_remote.bare, "f002").endswith("parked: true")
    with pytest.raises(gitlease.LeaseLost):
        evening.renew("F002")
    assert evening.renew_all() == ()

    clock.advance(15 * HOUR)  # many times its ttl, and nobody renewed it
    kim = door(other, clock=clock)
    with pytest.raises(gitlease.LeaseHeld) as refused:
        kim.claim("F002")
    assert refused.value.views[0].parked
    assert [e.task.resource.text for e in kim.queue() if e.claimable] == ["F001"]

    morning = door(laptop, clock=clock, session="tuesday")
    assert [c.resource for c in morning.brief().carried] == ["F002"]
    assert morning.next_task().resource.text == "F002"
    again = morning.claim_next()
    assert (again.resource, again.session, again.parked) == ("F002", "tuesday", False)
    assert (again.ttl_seconds, again.expires_in, again.reason) == (1_800, 1_800, "rate limits")
    assert again.token > kept.token
    assert "parked" not in written(path_remote.bare, "f002")
    assert f"assigned: [{JO}]" in (laptop / "tasks" / "F002.md").read_text(encoding="utf-8")
    with pytest.raises(gitlease.NotHolder):
        evening.renew("F002")
    assert morning.renew("F002").session == "tuesday"


# --- hooks ----------------------------------------------------------------------------------------


def test_commits_of_its_owner_neither_renew_nor_name_nor_block_it(pair: Pair) -> None:
    jo, kim = pair.jo, pair.kim
    lease = jo.claim("src/api", ago=10 * MINUTE, session="s1")
    service = LeaseService(jo.at(session="s1").ledger)
    service.end_session(park=True, seconds=HOUR)
    before = pair.ledger()
    for session in ("s1", "s2", ""):
        jo.put("src/api/login.py")
        done = jo.commit(env={"GITLEASE_SESSION": session} if session else None)
        assert done.returncode == 0, done.stderr
        assert jo.trailers() == []
    assert jo.beats() == 0
    assert pair.ledger() == before
    desk = open_hooks(str(jo.root), environ={"GITLEASE_SESSION": "s1"})
    assert desk.guard.due() == ()
    assert pair.leases()["src/api"].lease_id == lease.lease_id
    kim.put("src/api/login.py")
    refused = kim.commit()
    assert refused.returncode == 1
    check_words(cleaned(refused.stderr))


def test_a_commit_that_starts_the_task_again_resumes_it(pair: Pair) -> None:
    jo = pair.jo
    jo.claim("F002", session="s1")
    LeaseService(jo.at(session="s1").ledger).end_session(park=True)
    task = jo.root / "tasks" / "F002.md"
    jo.put("tasks/F002.md", task.read_text(encoding="utf-8").replace("todo", "in_progress"))
    done = jo.commit(env={"GITLEASE_SESSION": "s2"})
    assert done.returncode == 0, done.stderr
    view = pair.leases()["F002"]
    assert (view.parked, view.session, view.token) == (False, "s2", 2)
    assert KIM not in view.holder


# --- the end of a session -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        *("path", pytest.param("http", marks=pytest.mark.slow)),
        *(pytest.param(k, marks=NIGHTLY) for k in ("file", "ssh")),
    ],
)
def test_fifty_leases_end_in_one_connection(
    kind: str, clones: Clones, tmp_path: Path, servers: Servers
) -> None:
    with open_remote(kind, tmp_path / "remote", servers=servers) as remote:
        (clone,) = clones(1, remote)
        names = [f"port-{number}" for number in range(50)]
        words = [(["-C", str(clone), "--session", s], remote.env) for s in ("s1", "s2")]
        with Workers(words) as workers:
            assert workers.one(0, "claim", *names).exit == 0
            assert workers.one(1, "claim", "other").exit == 0
            before = (remote.connections(), remote.pushes())
            parked = workers.one(0, "session", "end", "--park=1h")
            assert (remote.connections(), remote.pushes()) == (before[0] + 1, before[1] + 1)
            assert len(parked.document["leases"]) == 50
            assert workers.one(0, "session", "end").document["leases"] == []
            assert workers.one(0, "claim", *names).exit == 0
            before = (remote.connections(), remote.pushes())
            ended = workers.one(1, "session", "end", "s1")
            assert (remote.connections(), remote.pushes()) == (before[0] + 1, before[1] + 1)
            assert len(ended.document["leases"]) == 50
            left = workers.one(0, "session", "list").document["sessions"]
            assert [(s["session"], s["leases"]) for s in left] == [("s2", 1)]


def test_a_session_that_worked_in_two_clones_ends_whole(
    path_remote: Remote, clones: Clones
) -> None:
    one, two = clones(2)
    belong_to(JO, [one, two])
    write_tasks(one, ["F001", "F002"], path_remote)
    git(two, "pull", "-q", "origin", "main", env=path_remote.env)
    door(one, session="s1").claim("F001")
    door(two, session="s1").claim("F002")
    door(one).claim("src/")
    leases = door(one, session="s1")
    assert [s.session for s in leases.sessions()] == ["s1"]
    ended = leases.end_session(release=True, note="to be gone on with")
    assert {x.resource for x in ended} == {"F001", "F002"}
    assert leases.end_session() == ()
    assert [x.resource for x in leases.list()] == ["path:src"]
    assert "assigned: []" in (one / "tasks" / "F001.md").read_text(encoding="utf-8")
    with pytest.raises(gitlease.UsageError):
        door(one).end_session()


# --- the race -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sessions", "racers"),
    [
        *((True, 8), (False, 8)),
        *(pytest.param(x, RACERS, marks=pytest.mark.nightly) for x in (True, False)),
    ],
)
def test_of_many_runs_of_its_owner_exactly_one_resumes_it(
    path_remote: Remote, clones: Clones, sessions: bool, racers: int
) -> None:
    """In two clones; the others get the next tasks, each another one, or a clean no."""
    one, two, third = clones(3)
    belong_to(JO, [one, two, third])
    names = [f"T{number:02d}" for number in range(racers - 2)]
    write_tasks(one, names, path_remote)
    for clone in (two, third):
        git(clone, "pull", "-q", "origin", "main", env=path_remote.env)
    last = names[-1]
    door(third, session="before").claim(last)
    door(two).list()  # knows it as held
    kept = door(third, session="before").park(last)
    made = []
    for number in range(racers):
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
