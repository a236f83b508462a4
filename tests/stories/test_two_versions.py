"""Two versions on one ledger: the last one that parked leases, and the present one.

An older version comes from this repository's history; without it these tests are skipped, and
``kernel/store/test_parked_ledger.py`` has what the older one wrote. All commands are processes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.commands import ROOT
from support.ledgers import header_of
from support.old_version import TASK, Library, Version, need_old_version, two_clones

pytestmark = pytest.mark.slow

HOUR, DAY = 3_600, 86_400
NAMES = [f"F{number:03d}" for number in range(1, 13)]


@pytest.fixture
def old() -> Version:
    return Version(need_old_version())


@pytest.fixture
def new() -> Version:
    return Version(Path(ROOT))


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    return two_clones(tmp_path, {name: TASK.format(name) for name in NAMES})


def legal(versions: tuple[Version, Version], clones: tuple[Path, Path]) -> None:
    """Both versions find no broken rule in the ledger, and nothing to say of the commits."""
    for version, clone in zip(versions, clones, strict=True):
        assert version.ask(clone, "verify")["ok"]
        assert version.ask(clone, "check")["violations"] == []


def at(seconds: float, *versions: Version) -> None:
    """Let it be so many seconds later for both."""
    for version in versions:
        version.ahead = seconds


def error(version: Version, clone: Path, *words: str, code: int = 1) -> Any:
    return version.ask(clone, *words, code=code)["error"]


def row(version: Version, clone: Path, name: str) -> Any:
    (found,) = (x for x in version.ask(clone, "list")["leases"] if x["resource"] == name)
    return found


def test_what_the_old_one_parks_the_new_one_reads_as_its_owner_s(
    old: Version, new: Version, clones: tuple[Path, Path]
) -> None:
    jo, kim = clones
    old.ask(jo, "claim", "F001", session="one")
    until = old.ask(jo, "park", "F001", "--for", "2h", "--note", "half", session="one")["lease"]
    assert error(new, kim, "claim", "F001")["code"] == "held"
    for clone in clones:
        seen = row(new, clone, "F001")
        assert (seen["state"], seen["session"]) == ("active", None)
        assert seen["expires_at"] == until["expires_at"]
    assert new.ask(kim, "next")["task"]["resource"] == "F002"
    assert error(new, jo, "renew", "F001", code=3)["code"] == "lost"
    at(3 * HOUR, old, new)
    assert new.ask(jo, "show", "F001")["leases"][0]["state"] == "expired"
    assert error(new, kim, "claim", "F001")["code"] == "held", "it is still assigned"
    resumed = new.ask(jo, "claim", "F001", session="two")["lease"]
    assert (resumed["session"], resumed["token"]) == ("two", 2)
    seen = row(old, kim, "F001")
    assert (seen["state"], seen["session"]) == ("active", "two")
    assert error(old, kim, "claim", "F001")["session"] == "two"
    at(3 * HOUR + 60, old, new)
    later = new.ask(jo, "renew", "F001", session="two")["lease"]
    assert later["expires_at"] > resumed["expires_at"]
    assert row(old, jo, "F001")["renewals"] == 1
    # And the old one resumes what it parked once more, over the other's records.
    old.ask(jo, "park", "F001", "--for", "2h", session="two")
    assert old.ask(jo, "claim", "F001")["lease"]["token"] == 3
    new.ask(jo, "release", "F001")
    assert old.ask(kim, "claim", "F001")["lease"]["token"] == 4
    legal((old, new), clones)


def test_what_the_new_one_keeps_the_old_one_respects(
    old: Version, new: Version, clones: tuple[Path, Path]
) -> None:
    jo, kim = clones
    new.ask(jo, "claim", "F001", session="one")
    assert new.ask(jo, "release", "F001", "--keep", "--note", "which?", session="one")["ok"]
    assert row(old, kim, "F001")["state"] == "expired"
    assert old.ask(kim, "show", "F001")["notes"][0]["text"] == "which?"
    for seconds in (0, DAY):
        at(seconds, old, new)
        assert error(old, kim, "claim", "F001")["code"] == "held"
        # Neither hands it out, to its owner or to others.
        for clone in clones:
            assert old.ask(clone, "next")["task"]["resource"] == "F002"
            assert new.ask(clone, "next")["task"]["resource"] == "F002"
    assert error(old, kim, "release", "F001")["code"] == "held"
    for verb in ("queue", "brief", "board", "log", "doctor"):
        done = old.run(kim, verb, "--json")
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1), done
    resumed = old.ask(jo, "claim", "F001", session="two")["lease"]
    assert (resumed["session"], resumed["token"]) == ("two", 2)
    assert new.ask(jo, "release", "F001", "--keep", session="two")["ok"], "kept again"
    # Once it counts as abandoned, either version lets another have it.
    at(9 * DAY, old, new)
    assert old.ask(kim, "claim", "F001")["status"] == "taken_over"
    assert row(new, jo, "F001")["holder"] == "kim@example.com"
    legal((old, new), clones)


def test_each_takes_over_from_the_other_what_has_expired(
    old: Version, new: Version, clones: tuple[Path, Path]
) -> None:
    jo, kim = clones
    holders, now = ((old, jo), (new, kim)), 0
    for turn in range(4):
        version, clone = holders[turn % 2]
        other, place = holders[(turn + 1) % 2]
        status = version.ask(clone, "claim", "src/")["status"]
        assert status == ("taken_over" if turn else "claimed")
        assert error(other, place, "claim", "src/x")["code"] == "held"
        now += HOUR
        at(now, old, new)
        assert error(version, clone, "renew", "src/", code=3)["code"] == "lost"
    legal((old, new), clones)


# --- races ----------------------------------------------------------------------------------------


@pytest.fixture
def four(old: Version, new: Version, clones: tuple[Path, Path]) -> Iterator[list[Library]]:
    """Both versions in both clones, each a session of its own."""
    with ExitStack() as stack:
        made = []
        for clone in clones:
            for name, version in (("old", old), ("new", new)):
                made.append(version.library(clone, f"{name}-{clone.name}"))
                stack.callback(made[-1].close)
        yield made


def at_once(four: list[Library], name: str, *words: str, **terms: Any) -> list[Any]:
    for one in four:
        one.tell(name, *words, **terms)
    return [one.answer() for one in four]


def test_of_all_who_claim_the_same_exactly_one_gets_it(
    old: Version, new: Version, clones: tuple[Path, Path], four: list[Library], tmp_path: Path
) -> None:
    rounds, won = 40, Counter[str]()
    for number in range(rounds):
        answers = at_once(four, "claim", f"race-{number % 8}", any=True)
        winners = [x for x in answers if "error" not in x]
        assert len(winners) == 1, answers
        assert {x["error"] for x in answers if "error" in x} == {"held"}, answers
        assert winners[0]["token"] == number + 1
        won[winners[0]["session"]] += 1
        winner = next(x for x in four if x.session == winners[0]["session"])
        for name in ("renew", "release"):
            winner.tell(name, f"race-{number % 8}")
            assert "error" not in winner.answer()
    assert sum(won.values()) == rounds
    assert {x.partition("-")[0] for x in won} == {"old", "new"}, "both versions win some"
    assert header_of(tmp_path / "remote.git").sequence == rounds
    legal((old, new), clones)


def test_all_get_different_tasks_and_none_that_is_parked_or_kept(
    old: Version, new: Version, clones: tuple[Path, Path], four: list[Library]
) -> None:
    jo, kim = clones
    old.ask(jo, "claim", "F001", session="one")
    old.ask(jo, "park", "F001", session="one")
    new.ask(kim, "claim", "F002", session="one")
    new.ask(kim, "release", "F002", "--keep", session="one")
    answers = [x for _ in range(2) for x in at_once(four, "claim_next")]
    assert not [x for x in answers if "error" in x], json.dumps(answers)
    names = [x["resource"] for x in answers]
    # An older version resumes for its owner what it parked, once.
    assert len({*names}) == len(names) == 8
    assert "F002" not in names
    assert not [x for x in answers if x["resource"] == "F001" and x["session"].endswith("kim")]
    legal((old, new), clones)
