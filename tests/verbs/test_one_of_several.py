"""``claim --one``: the first of several that is free, one's own leases not among them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from doors.fake import Desk, make_desks, words
from support.gateway import serving
from support.remotes import Remote
from support.snapshots import check_words
from support.tasks import task
from support.tools import in_memory

import gitlease
from gitlease.kernel.ledger import heads as polling
from gitlease.kernel.ledger import wait as waiting
from gitlease.kernel.rules.edge import Progress
from gitlease.testing import MemoryLedger

pytestmark = pytest.mark.default
pytest_plugins = ["gitlease.testing"]
PORTS = ("port-1", "port-2", "port-3")


def got(desk: Desk, *argv: str) -> str:
    """The one resource that a claim got."""
    document = desk.ok("claim", *argv, "--one", "--json").json
    assert [document["lease"]] == document["leases"]
    name: str = document["lease"]["resource"]
    return name


def refused(desk: Desk, *argv: str) -> str:
    """The code of a refusal, whose first line is held to its snapshot."""
    ran = desk.run("claim", *argv, "--one")
    check_words(ran.err)
    again = desk.run("claim", *argv, "--one", "--json").json["error"]
    code: str = again["code"]
    return code


def test_each_takes_the_first_free_one_in_its_own_order() -> None:
    ada, bob = make_desks()
    assert got(ada, *PORTS) == "port-1"
    assert got(bob, "port-3", "port-1", "port-2") == "port-3"
    assert got(bob, *PORTS) == "port-2"
    ada.ok("release", "port-1")
    assert got(bob, *PORTS) == "port-1"


@pytest.mark.parametrize("sessions", [(None, None), ("s1", "s2"), (None, "s1"), ("s1", "s1")])
def test_two_terminals_of_one_person_get_two(sessions: tuple[str | None, str | None]) -> None:
    """Without sessions, with them, and within one: no lease is renewed in the place of a grant."""
    ada, _ = make_desks()
    one, other = (replace(ada, session=name) for name in sessions)
    assert [got(one, *PORTS), got(other, *PORTS), got(one, *PORTS)] == [*PORTS]
    assert refused(other, *PORTS) == "held"
    tokens = [x["token"] for x in ada.ok("list", "--json").json["leases"]]
    assert sorted(tokens) == [1, 2, 3]


def test_one_s_own_lease_is_taken_as_long_as_anybody_s() -> None:
    """The clock of the terminal that has it may be behind: it counts until it has lapsed."""
    ada, bob = make_desks()
    got(ada, *PORTS, "--ttl", "10m")
    ada.clock.advance(610)
    assert got(ada, *PORTS) == "port-2"
    ada.clock.advance(51)
    assert got(ada, *PORTS) == "port-1"
    assert bob.run("claim", "port-1", "port-2", "--one").code == 1


def test_paths_and_tasks_are_taken_if_nothing_overlaps() -> None:
    tasks = [task(f"F00{n}", paths=(f"src/f{n}/",)) for n in range(1, 5)]
    ada, bob = make_desks(*tasks)
    ada.ok("claim", "src/f1/a.py")
    ada.ok("claim", "docs/")
    mixed = ("F001", "docs/*.md", "F002", "src/", "F003")
    assert got(bob, *mixed) == "F002"
    assert bob.tasks["F002"].assigned == ("bob@example.com",)
    assert not bob.tasks["F001"].assigned
    assert not bob.tasks["F003"].assigned
    # Ada's lease of a file below is her own, and in the way all the same.
    assert got(ada, *mixed) == "F003"
    assert refused(ada, *mixed) == "held"


def test_tasks_of_others_and_finished_ones_are_passed_over() -> None:
    tasks = [
        task("F001", status="done", progress=Progress.DONE),
        task("F002", "ada@example.com"),
        task("F003"),
        task("F004"),
    ]
    _, bob = make_desks(*tasks)
    bob.tasks.unwritable.add("tasks/F003.md")
    ran = bob.ok("claim", "F001", "F002", "F003", "F004", "--one")
    assert ran.out.startswith("claimed F004 ")
    check_words(ran.err)
    assert refused(bob, "F001", "F002", "F003", "F004") == "held"
    assert refused(bob, "F001", "F002") == "held"
    assert refused(bob, "F001") == "policy"
    assert got(bob, "F001", "F002", "--reopen") == "F001"


def test_what_was_abandoned_is_taken_when_nothing_is_free() -> None:
    """And whoever had it is told, as with every claim of it."""
    ada, bob = make_desks(*map(task, ("F001", "F002")))
    ada.ok("claim", "F001")
    bob.clock.advance(8 * 86_400)
    assert got(bob, "F001", "F002") == "F002"
    assert got(bob, "F002", "F001") == "F001"
    assert "F001" in ada.ok("list").err


def test_a_wait_takes_what_is_abandoned_while_others_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polling, "GLANCE", 60.0)
    monkeypatch.setattr(waiting, "LOOK_LATER", 600.0)
    ada, bob = make_desks(*map(task, ("F001", "F002")))
    ada.ok("config", "--ledger", "edges.abandoned_after", "8h")
    ada.ok("claim", "F001", "--ttl", "1m")
    ada.clock.advance(4 * 3_600)
    ada.ok("claim", "F002", "--ttl", "8h")
    began = bob.clock.wall_ms
    assert got(bob, "F002", "F001", "--wait", "6h") == "F001"
    assert bob.clock.wall_ms - began < 4.2 * 3_600_000, "as soon as it is, not at the limit"
    assert got(bob, "F003", "--any") == "F003"


def test_the_refusal_is_that_of_the_one_that_becomes_free_first() -> None:
    ada, bob = make_desks()
    for name, ttl in (("port-1", "30m"), ("port-2", "10m"), ("port-3", "20m")):
        ada.ok("claim", name, "--ttl", ttl)
    error = bob.run("claim", *PORTS, "--one", "--json").json["error"]
    assert (error["resource"], len(error["conflicts"])) == ("port-2", 1)
    assert error["free_at"] == "2026-11-20T12:11:00Z"
    many = [f"port-{n}" for n in range(1, 9)]
    for name in many[3:]:
        ada.ok("claim", name, "--ttl", "1h")
    assert refused(bob, *many) == "held"
    # What the refusal says to type does what it says.
    ran = bob.run("claim", *PORTS, "--one", "--ttl", "5m")
    line = next(x for x in ran.err.splitlines() if x.startswith("hint: gitlease claim"))
    waits = shlex.split(line.removeprefix("hint: gitlease "))
    assert bob.ok(*waits).out.startswith("claimed port-2 ")


WRONG = [
    ("claim", "--one"),
    ("claim", "port-1", "--one", "--all"),
    ("claim", "port-1", "port-2", "--one", "--new"),
    ("claim", "port-1", "port-2", "--one", "--takeover", "--reason", "they left"),
    ("claim", "port-1", "port-2", "--one", "--takeover", "--expect-holder", "jo@example.com"),
    ("claim", "port-1", "../x", "--one"),
    ("claim", "port-1", "10m", "--one"),
    ("claim", "port-1", "--one", "--wait", "soon"),
    ("claim", "port-1", "--one", "--ttl", "9d"),
    ("run", "--next", "--one", "--", "true"),
    ("run", "--one", "--", "true"),
    ("run", "port-1", "--one", "--new", "--", "true"),
    ("dispatch", "port-1", "--one", "--takeover", "--reason", "x", "--", "true"),
    ("renew", "port-1", "--one"),
]


@pytest.mark.parametrize("argv", WRONG, ids=words)
def test_what_does_not_fit_is_refused(argv: tuple[str, ...]) -> None:
    ada, _ = make_desks()
    ran = ada.run(*argv)
    assert ran.code in (2, 6, 125)
    assert ran.out == ""
    check_words(ran.err)
    assert ada.ok("list", "--json").json["leases"] == []


def test_a_resource_named_twice_is_one_of_them() -> None:
    ada, _ = make_desks()
    assert got(ada, "port-1", "Port-1", "port-1", "port-2") == "port-1"
    assert got(ada, "src/", "src/a.py", "path:src") == "path:src"
    assert refused(ada, "src/", "src/a.py", "src") == "held"


def test_unknown_names_are_asked_about_before_any_is_claimed() -> None:
    ada, _ = make_desks(task("F001"))
    assert (
        ada.run("claim", "F001", "port-1", "--one", "--json").json["error"]["code"] == "not_found"
    )
    assert got(ada, "port-1", "F001", "--any") == "port-1"


def test_a_dry_run_says_which_it_would_be() -> None:
    ada, bob = make_desks()
    got(bob, *PORTS)
    document = ada.ok("claim", *PORTS, "--one", "--dry-run", "--json").json
    assert [x["resource"] for x in document["leases"]] == ["port-2"]
    assert got(ada, *PORTS) == "port-2"


def test_in_python(gitlease_ledger: MemoryLedger) -> None:
    ada, bob = gitlease_ledger.open("ada@example.com"), gitlease_ledger.open("bob@example.com")
    assert [ada.claim_one(PORTS).resource, bob.claim_one(PORTS).resource] == ["port-1", "port-2"]
    assert ada.claim_one(iter(PORTS), dry_run=True).state == "planned"
    assert ada.claim_one(PORTS, ttl="5m").resource == "port-3"
    with pytest.raises(gitlease.LeaseHeld, match="none of port-1, port-2, port-3 is free") as held:
        bob.claim_one(PORTS)
    assert held.value.resource == "port-3"
    assert bob.claim_one(PORTS, wait="10m").resource == "port-3"
    for wrong in ("port-1", [], [1]):
        with pytest.raises(gitlease.UsageError):
            ada.claim_one(wrong)  # type: ignore[arg-type]


def test_a_hold_keeps_one_and_waits_beside_its_own(gitlease_ledger: MemoryLedger) -> None:
    """Of two, one is held by the code that waits: the other ends the wait, so it is no deadlock."""
    bob = gitlease_ledger.open("bob@example.com")
    with gitlease_ledger.stand_in("ada@example.com"):
        with gitlease.hold(*PORTS[:2], one=True) as first:
            assert list(first.tokens) == ["port-1"]
            bob.claim("port-2", ttl="10m")
            with gitlease.hold(*PORTS[:2], one=True, wait="20m") as second:
                assert list(second.tokens) == ["port-2"]
                with (
                    pytest.raises(gitlease.UsageError, match="never end"),
                    gitlease.hold(*PORTS[:2], one=True, wait="20m"),
                ):
                    pass
        for wrong in ({"new": True}, {"takeover": True, "reason": "x"}):
            with pytest.raises(gitlease.UsageError):
                gitlease.hold(*PORTS, one=True, **wrong)
    assert bob.claim_all(PORTS)


@pytest.mark.slow
def test_over_http_a_repeated_key_returns_the_earlier_answer(
    path_remote: Remote, clones: Callable[..., list[Path]]
) -> None:
    (clone,) = clones(1)
    with serving(clone) as served:

        def ask(key: str | None, **body: object) -> tuple[int, str]:
            headers = {} if key is None else {"Idempotency-Key": key}
            done = served.ask("ada", "POST", "/v1/leases:claim", json=body, headers=headers)
            document = done.json()
            return done.status_code, document.get("code") or document["lease"]["resource"]

        any_port = {"resources": [*PORTS], "one": True}
        assert ask("k1", **any_port) == (201, "port-1")
        assert ask("k1", **any_port) == (201, "port-1")
        assert ask("k2", **any_port) == (201, "port-2")
        assert ask(None, **any_port) == (201, "port-3")
        assert ask("k1", **any_port) == (201, "port-1")
        assert ask(None, **any_port) == (409, "held")
        assert ask("k3", resources=[*PORTS, "port-4"], one=True) == (201, "port-4")
        served.ask("ada", "DELETE", "/v1/leases/port-1")
        assert ask("k1", **any_port) == (412, "lost")
        assert ask(None, resources=[*PORTS], one=True, new=True)[0] == 400
        assert served.ask("ada", "PUT", "/v1/leases/p", json={"one": True}).status_code == 400
        jo = gitlease.connect(served.url, token=served.secret("jo"))
        assert jo.claim_one(PORTS).resource == "port-1"
        with pytest.raises(gitlease.LeaseHeld, match="none of port-1, port-2, port-3 is free"):
            jo.claim_one(PORTS)
    with serving(clone) as later:  # which has only what the ledger has
        later.secrets.update(served.secrets)

        def again(**body: object) -> int:
            headers = {"Idempotency-Key": "k2"}
            done = later.ask("ada", "POST", "/v1/leases:claim", json=body, headers=headers)
            return done.status_code

        assert again(resources=[*PORTS]) == 400, "all of them were not asked for"
        assert again(resources=["port-1", "port-3"], one=True) == 400
        assert again(resources=[*PORTS], one=True) == 201


def test_the_tool_takes_one(path_remote: Remote, clones: Callable[..., list[Path]]) -> None:
    (clone,) = clones(1)
    with in_memory(clone) as one:
        found = [one.document("claim", resources=[*PORTS], one=True) for _ in range(3)]
        assert [x["lease"]["resource"] for x in found] == [*PORTS]
        text = one.text("claim", resources=[*PORTS], one=True)
        assert text.startswith(
            "held: none of port-1, port-2, port-3 is free: port-1 is held by w1@"
        )
        assert one.document("claim", resources="port-1")["status"] == "renewed"
