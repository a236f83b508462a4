"""Whoever was displaced cannot end the claim of the next holder; their own leftovers go."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.hooked import task_text
from support.repos import commit_file, git
from support.typed import Typist

pytestmark = pytest.mark.slow

JO, KIM = "jo@example.com", "kim@example.com"


@dataclass
class Two:
    """jo, whose lease was taken over, and kim, who has it now; each in a clone, by one clock."""

    clock: ManualClock
    jo: Typist
    kim: Typist

    def is_kims(self, name: str) -> bool:
        """Whether the ledger has one live lease of a name, and it is kim's."""
        (lease,) = self.kim.ok(f"show {name} --json").json["leases"]
        return bool((lease["holder"], lease["state"]) == (KIM, "active"))


@pytest.fixture
def two(clones: Callable[..., list[Path]]) -> Two:
    one, other = clones(2)
    commit_file(one, "tasks/F001.md", task_text("F001"))
    git(one, "push", "-q", "origin", "HEAD:main")
    git(other, "pull", "-q", "origin", "main")
    for clone, email in ((one, JO), (other, KIM)):
        git(clone, "config", "user.email", email)
    clock = ManualClock()
    return Two(clock, Typist(one, clock), Typist(other, clock))


def take_over(two: Two, name: str, *options: str) -> None:
    """Let jo's lease of a name lapse, and kim take it over."""
    two.jo.ok(f"claim {name} --ttl 60s --any")
    two.clock.advance(600)
    two.kim.ok(" ".join(("claim", name, "--any", *options)))


@pytest.mark.default
@pytest.mark.parametrize("options", ["", "--note 'half done'"])
def test_a_displaced_holder_is_refused_and_told_who_holds_it_now(two: Two, options: str) -> None:
    take_over(two, "deploy")
    for _ in range(2):
        told = two.jo.types(f"release deploy {options} --json")
        assert told.code == 1
        error = told.json["error"]
        assert (error["code"], error["holder"], error["resource"]) == ("held", KIM, "deploy")
        assert two.is_kims("deploy")


@pytest.mark.default
def test_the_name_of_a_displaced_holder_leaves_its_own_task_file(two: Two) -> None:
    take_over(two, "F001", "--takeover --reason 'jo is away'")
    file = two.jo.clone / "tasks" / "F001.md"
    now = two.clock.wall_ms / 1_000
    os.utime(file, (now, now))  # what is newer than the ledger's decisions counts
    assert JO in file.read_text(encoding="utf-8")
    told = two.jo.types("release F001 --json")
    assert (told.code, told.json["error"]["code"]) == (1, "held")
    assert any("tasks/F001.md" in x and KIM in x for x in told.json["warnings"]), told
    assert JO not in file.read_text(encoding="utf-8")
    assert two.is_kims("F001")
    again = two.jo.types("release F001 --json")
    assert (again.code, again.json["error"]["code"]) == (1, "held")
    assert not again.json.get("warnings"), "nothing is left"


def test_what_nobody_holds_is_released_as_often_as_one_likes(two: Two) -> None:
    take_over(two, "deploy")
    two.kim.ok("release deploy")
    assert two.jo.ok("release deploy --json").json["status"] == "released"
