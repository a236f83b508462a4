"""One person with two addresses: what lapsed under the one goes on under the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.commands import typed
from support.remotes import Remote
from support.repos import commit_file, git

from gitlease.kernel.git.mainline import read_mailmap
from gitlease.kernel.rules.edge import People
from gitlease.kernel.rules.errors import LeaseHeld
from gitlease.library.leases import Leases
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
WORK, HOME, KIM = "w1@example.com", "w2@example.com", "w3@example.com"
TASK = "---\nid: F001\nstatus: todo\nassigned: []\n---\n"
PEOPLE = f'people: {{{WORK}: "jo", {HOME}: "jo"}}\n'
MAILMAP = f"# who is who\nJo Doe <{WORK}> <{HOME}>\n"


def leases(clone: Path, clock: ManualClock) -> Leases:
    return Leases(open_workspace(str(clone), clock=clock))


def prepare(
    clones: Clones, file: str, text: str, *, earlier: bool = False
) -> tuple[list[Path], ManualClock]:
    """Two clones of a person with two addresses, and one of Kim; the lease of the first lapsed."""
    made, clock = clones(3), ManualClock()
    if earlier:  # for commands, which have the machine's clock
        clock = ManualClock(wall_ms=int(time.time() * 1_000) - 7_200_000)
    commit_file(made[0], file, text, "who is who")
    commit_file(made[0], "tasks/F001.md", TASK, "a task")
    git(made[0], "push", "-q", "origin", "HEAD:main")
    leases(made[0], clock).claim("F001")
    git(made[0], "commit", "-qam", "claimed")
    git(made[0], "push", "-q", "origin", "HEAD:main")
    for clone in made[1:]:
        git(clone, "pull", "-q", "origin", "main")
    clock.advance(3_600)
    return made, clock


@pytest.mark.parametrize(("file", "text"), [(".gitlease.yaml", PEOPLE), (".mailmap", MAILMAP)])
def test_the_second_address_goes_on_after_a_lapse(
    clones: Clones, path_remote: Remote, file: str, text: str
) -> None:
    (_, home, kim), clock = prepare(clones, file, text)
    with pytest.raises(LeaseHeld):
        leases(kim, clock).claim("F001")
    assert [(x.resource, x.state.value) for x in leases(home, clock).brief().carried] == [
        ("F001", "lapsed")
    ]
    claimed = leases(home, clock).claim("F001")
    assert (claimed.holder, claimed.state) == (HOME, "active")
    written = (home / "tasks/F001.md").read_text()
    assert WORK not in written
    leases(home, clock).release("F001")
    assert "assigned: []" in (home / "tasks/F001.md").read_text()


def test_a_live_lease_of_the_other_address_is_not_taken(
    clones: Clones, path_remote: Remote
) -> None:
    (work, home, _), clock = prepare(clones, ".mailmap", MAILMAP)
    leases(work, clock).claim("F001")
    with pytest.raises(LeaseHeld):
        leases(home, clock).claim("F001")


def test_a_mailmap_of_a_work_tree_makes_nobody_another(clones: Clones, path_remote: Remote) -> None:
    (_, _, kim), clock = prepare(clones, ".mailmap", MAILMAP)
    commit_file(kim, ".mailmap", f"Jo <{WORK}> <{KIM}>\n", "I am Jo")
    with pytest.raises(LeaseHeld):
        leases(kim, clock).claim("F001")
    assert not leases(kim, clock).brief().carried


def test_a_map_of_addresses() -> None:
    lines = b"A <a@x> <B@x>\n<a@x> <c@x> # again\nA <a@x>\nA <a@x> Old <d@x>\n# <a@x> <e@x>\n\xff\n"
    usual = read_mailmap(lines)
    assert usual == {"b@x": "a@x", "c@x": "a@x"}
    people = People({"a@x": "al", "z@x": "zoe"}, usual=usual | {"z@x": "a@x"})
    assert people.is_mine("al", "b@X")
    assert people.is_mine("A@x", "c@x")
    assert people.name_of("b@x") == "al"
    # Two names in the settings are two people.
    assert not people.is_mine("al", "z@x")
    assert not people.is_mine("al", "d@x")


def test_a_release_by_the_second_address_says_what_comes_first(
    clones: Clones, path_remote: Remote
) -> None:
    (_, home, kim), _ = prepare(clones, ".mailmap", MAILMAP, earlier=True)
    for verb in ("release", "done"):
        refused = typed(home, verb, "F001")
        assert (refused.returncode, "gitlease claim F001" in refused.stderr) == (1, True)
    assert "gitlease claim F001\n" not in typed(kim, "release", "F001").stderr
