"""What a clone measures of a remote at each contact, and keeps beside what it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.memory import Fault
from support.paced_world import PacedWorld

from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.pace import RemotePace
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.state import Known, StateFolder

JO, KIM = Actor("jo@example.com"), Actor("kim@example.com")
PACE = RemotePace((1_200, 1_300), (500,), 2.5, 40.0)


@pytest.fixture
def world() -> PacedWorld:
    made = PacedWorld()
    made.claim(JO, "first")
    made.of(KIM).read()
    return made


def test_accepted_pushes_and_reads_are_measured(world: PacedWorld) -> None:
    world.claim(KIM, "K1")
    assert (world.pace(KIM).push, world.pace(KIM).read) == (1.2, 0.5)
    world.of(JO).read()
    assert world.pace(JO).reads[-1] == 500


def test_only_steps_of_others_are_changes(world: PacedWorld) -> None:
    world.claim(JO, "J1")
    world.claim(JO, "J2")
    world.of(JO).renew([parse_resource("J1")])
    assert world.pace(JO).changes == 0
    for name in ("K1", "K2", "K3"):
        world.claim(KIM, name)
    world.of(JO).read()
    assert world.pace(JO).changes == pytest.approx(3, rel=0.01)


def test_a_step_of_another_process_of_the_clone_is_none(world: PacedWorld) -> None:
    store = world.store(JO)
    assert store.known("global") is not None
    world.claim(JO, "J1")
    store.fetch("global")
    assert world.pace(JO).changes == 0


def test_an_own_step_whose_answer_was_lost_is_none(world: PacedWorld) -> None:
    world.remote.pushes.append(Fault.UNANSWERED)
    world.claim(JO, "J1")
    assert world.pace(JO).changes == 0
    assert world.holders()


def test_a_lost_push_counts_the_change_that_it_met(world: PacedWorld) -> None:
    world.claim(KIM, "K1")
    before = world.pace(JO)
    world.claim(JO, "J1")
    after = world.pace(JO)
    assert after.changes == pytest.approx(1, rel=0.01)
    assert len(after.pushes) == len(before.pushes) + 1, "the lost one says nothing of its pace"


def test_a_clock_set_back_or_another_boot_is_no_time(world: PacedWorld) -> None:
    watched = world.pace(JO).watched
    world.clock.reboot()
    world.of(JO).read()
    assert world.pace(JO).watched == pytest.approx(watched, abs=1)
    world.clock.skew(-3_600)
    world.of(JO).read()
    assert 0 <= world.pace(JO).watched < watched + 2


def known(at: int = 100, **changes: Any) -> Known:
    base, received = (Instant(1_800_000_000_000 + x * 1_000, x * 1_000, "b") for x in (0, at))
    return replace(Known("ledger-1", "a" * 40, 7, received, base), **changes)


def test_it_is_kept_and_the_later_contact_counts(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path))
    folder.save(known(pace=PACE))
    assert StateFolder(str(tmp_path)).load() == known(pace=PACE)
    folder.save(known(90, pace=RemotePace((7,)), revision=9, version="b" * 40))
    kept = folder.load()
    assert kept is not None
    assert (kept.revision, kept.pace) == (9, PACE)


@pytest.mark.parametrize(
    "damage", [None, 7, [], [1, 2, 3, 4], [[], [], "x", 0], [["x"], [], 0, 0], [[], [], 1e999, 0]]
)
def test_damage_to_it_is_no_damage_to_what_is_known(tmp_path: Path, damage: object) -> None:
    StateFolder(str(tmp_path)).save(known(pace=PACE))
    file = tmp_path / "known.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pace": damage}))
    kept = StateFolder(str(tmp_path)).load()
    assert kept is not None
    assert kept.version == known().version
    assert kept.pace.rate >= 0
