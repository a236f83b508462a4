"""How long an edge lives: two people, each with a clone, and what is said to whom it keeps out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import git
from support.session import LeaseService
from support.stale import DAY, KIM, Story
from support.typed import Typist

from gitlease.core import LeaseHeld, parse_resource
from gitlease.engine import Answer, ClaimOptions

pytestmark = [pytest.mark.sampled(2)]

F001 = parse_resource("F001")
Clones = Callable[..., list[Path]]


@pytest.fixture
def story(path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(clones(2), path_remote, monkeypatch)


def service(story: Story, clone: Path) -> LeaseService:
    return LeaseService(story.at(clone).ledger)


def claim(story: Story, clone: Path, name: str = "F001", **how: Any) -> Answer:
    return service(story, clone).claim([parse_resource(name)], ClaimOptions(**how))


def refused(story: Story, clone: Path, name: str = "F001", **how: Any) -> LeaseHeld:
    with pytest.raises(LeaseHeld) as caught:
        claim(story, clone, name, **how)
    return caught.value


def assigned(clone: Path, name: str = "F001") -> str:
    return next(
        line
        for line in (clone / "tasks" / f"{name}.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("assigned:")
    )


# --- abandoned ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "by"), [("release", "another"), ("done", "its assignee")])
def test_an_abandoned_task_is_ended_by_its_assignee_or_claimed_first(
    story: Story, verb: str, by: str
) -> None:
    jo, kim = Typist(story.jo, story.clock), Typist(story.kim, story.clock)
    story.kim_takes()
    story.days(8)
    refused = jo.types(f"{verb} F001 --json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "held")
    assert refused.json["error"]["holder"] == KIM
    assert assigned(story.jo) == f"assigned: [{KIM}]"
    (record,) = jo.ok("list --all --json").json["leases"]
    assert (record["holder"], record["assigned"]) == (KIM, True), "nothing was ended"
    clone, who = (story.kim, kim) if by == "its assignee" else (story.jo, jo)
    if who is jo:
        jo.ok("claim F001")
    ended = who.ok(f"{verb} F001 --json").json
    assert (ended["status"], ended["edge"]) == (
        {"release": "released", "done": "completed"}[verb],
        "removed",
    )
    assert assigned(clone) == "assigned: []"


def test_nobody_waits_for_an_edge(story: Story) -> None:
    """Not for one that is there, nor for one that is left when a lease runs out meanwhile."""
    story.kim_takes()
    held: list[LeaseHeld] = []
    jo = service(story, story.jo)
    with pytest.raises(LeaseHeld) as caught:
        jo.claim([F001], ClaimOptions(), wait=2 * DAY, on_wait=held.append)
    assert held, "while the lease was live, it was worth waiting"
    assert not held[0].by_edge
    assert caught.value.by_edge
    assert sum(story.clock.naps) < 3_600
    before = len(story.clock.naps)
    with pytest.raises(LeaseHeld):
        jo.wait([F001])
    assert len(story.clock.naps) == before


# --- scopes and paths -----------------------------------------------------------------------------


def status(clone: Path, name: str = "F001") -> str:
    text = (clone / "tasks" / f"{name}.md").read_text(encoding="utf-8")
    return next(line for line in text.splitlines() if line.startswith("status:"))


# --- given back -----------------------------------------------------------------------------------


def test_what_is_given_back_is_to_do_again_unless_its_status_is_to_be_kept(story: Story) -> None:
    kim = service(story, story.kim)
    kim.start(F001)
    assert status(story.kim) == "status: in_progress"
    back = kim.release([F001])
    assert [w.change.edit.status for w in back.written] == ["todo"]
    assert (status(story.kim), assigned(story.kim)) == ("status: todo", "assigned: []")

    kim.start(F001)
    kim.release([F001], keep_status=True)
    assert (status(story.kim), assigned(story.kim)) == ("status: in_progress", "assigned: []")


def test_in_progress_goes_back_whoever_had_moved_it(story: Story) -> None:
    kim = service(story, story.kim)
    text = (story.kim / "tasks/F001.md").read_text(encoding="utf-8")
    story.put(story.kim, "tasks/F001.md", text.replace("status: todo", "status: in_progress"))
    story.commit(story.kim, "I do this one", "-a")
    kim.claim([F001], ClaimOptions(commit=True))
    kim.release([F001], commit=True)
    assert (status(story.kim), assigned(story.kim)) == ("status: todo", "assigned: []")


def test_a_status_that_a_start_had_committed_goes_back(story: Story) -> None:
    kim = service(story, story.kim)
    kim.claim([F001], ClaimOptions(commit=True))
    kim.start(F001, ClaimOptions(commit=True))
    story.put(story.kim, "tasks/F001.md", (story.kim / "tasks/F001.md").read_text() + "More.\n")
    story.commit(story.kim, "say more")
    kim.release([F001], commit=True)
    assert (status(story.kim), assigned(story.kim)) == ("status: todo", "assigned: []")
    assert git(story.kim, "status", "--porcelain") == ""


def test_a_status_stays_while_others_are_on_it_or_a_part_is_finished(story: Story) -> None:
    kim, jo = service(story, story.kim), service(story, story.jo)
    kim.start(F001, ClaimOptions(scope="parser"))
    jo.claim([F001], ClaimOptions(scope="ui"))
    kim.release([F001])
    assert (status(story.kim), assigned(story.kim)) == ("status: in_progress", "assigned: []")

    kim.start(F001, ClaimOptions(scope="parser"))
    jo.complete(F001)
    kim.release([F001])
    assert (status(story.kim), assigned(story.kim)) == ("status: in_progress", "assigned: []")
