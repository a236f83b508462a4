"""The first command of a clone that has one branch, which names another place than the default.

It learns the default branch and goes on where that says, in the same command.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import commit_file, git
from support.typed import Typist

import gitlease

pytestmark = pytest.mark.default

KINDS = {
    "one branch": ("--single-branch", "-b", "feature"),
    "shallow": ("--depth=1", "-b", "feature"),
}
COMMANDS = (
    "list --json",
    "status --json",
    "show deploy --json",
    "queue --all --json",
    "next --json",
    "claim deploy --any --json",
    "claim T1 --json",
)


class Project:
    """A remote whose ledger lies where main says, in which Ada holds ``deploy``."""

    def __init__(self, ada: Path, remote: Remote, folder: Path) -> None:
        self.remote, self.folder, self.clock = remote, folder, ManualClock()
        self.ada = Typist(ada, self.clock)

    def begin(self, feature: str, main: str) -> None:
        """Push a branch ``feature`` and then main, each with these settings."""
        task = "---\nid: T1\nstatus: todo\nassigned: []\n---\n"
        commit_file(self.ada.clone, "tasks/T1.md", task)
        for branch, settings in (("feature", feature), ("main", main)):
            commit_file(self.ada.clone, ".gitlease.yaml", settings)
            git(self.ada.clone, "push", "-q", "origin", f"HEAD:{branch}")
        git(self.ada.clone, "fetch", "-q")
        self.ada.ok("init")
        git(self.ada.clone, "commit", "-qam", "record the ledger", "--allow-empty")
        git(self.ada.clone, "push", "-q", "origin", "HEAD:main")
        self.ada.ok("claim deploy --any")

    def clone(self, kind: str, name: str = "jo") -> Typist:
        url = self.remote.bare.as_uri()
        git(self.folder, "clone", "-q", *KINDS[kind], url, name)
        git(self.folder / name, "config", "user.email", "jo@example.com")
        return Typist(self.folder / name, self.clock)


@pytest.fixture
def project(clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path) -> Project:
    return Project(clones(1)[0], path_remote, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_first_command_goes_on_where_main_says(project: Project, kind: str) -> None:
    project.begin("lease: {ref_prefix: refs/third}\n", "lease: {ref_prefix: refs/other}\n")
    for number, line in enumerate(COMMANDS):
        jo = project.clone(kind, f"jo{number}")
        typed = jo.types(line)
        assert typed.code == (1 if "claim deploy" in line else 0), typed
        if "queue" not in line and "next" not in line and "T1" not in line:
            assert "w1@example.com" in typed.out, line
        if typed.code == 0:
            assert "refs/third in .gitlease.yaml" in str(typed.json["warnings"]), line
        assert jo.ok("list --cached --json").json["leases"], "and knows it from then on"
    assert git(project.remote.bare, "for-each-ref", "refs/third") == ""
    leases = project.ada.ok("list --json").json["leases"]
    assert {x["resource"] for x in leases} == {"deploy", "T1"}


@pytest.mark.parametrize("layers", [("", "team"), ("old", "team"), ("team", "")])
def test_first_command_begins_again_in_the_layer_of_main(
    project: Project, layers: tuple[str, str]
) -> None:
    feature, main = (f"lease: {{layer: {x}}}\n" if x else "lease: {ttl: 1h}\n" for x in layers)
    project.begin(feature, main)
    for number, line in enumerate(("list --json", "next --json", "claim deploy --any")):
        typed = project.clone("one branch", f"jo{number}").types(line)
        assert typed.code == (1 if line.startswith("claim") else 0), typed
        if line.startswith("list"):
            assert [x["resource"] for x in typed.json["leases"]] == ["deploy"], "once"


def test_library_that_was_opened_before_goes_on_there(project: Project) -> None:
    project.begin("lease: {ref_prefix: refs/third}\n", "lease: {ref_prefix: refs/other}\n")
    leases = gitlease.open(project.clone("one branch").clone)
    assert [x.holder for x in leases.list()] == ["w1@example.com"]
    assert leases.claim("T1").token == 2
    assert {x.resource for x in leases.list()} == {"deploy", "T1"}


def test_nothing_is_asked_or_granted_while_main_cannot_be_learnt(project: Project) -> None:
    project.begin("lease: {ref_prefix: refs/third}\n", "lease: {ref_prefix: refs/other}\n")
    jo = project.clone("one branch")
    away = project.remote.bare.with_suffix(".away")
    os.rename(project.remote.bare, away)
    try:
        for line in ("list", "next", "claim T1"):
            typed = jo.types(line)
            assert typed.code == 7, typed
            assert "where the ledger is cannot be told" in typed.err
    finally:
        with contextlib.suppress(OSError):
            os.rename(away, project.remote.bare)
    jo.clock.advance(61)
    jo.ok("claim T1")
    assert git(project.remote.bare, "for-each-ref", "refs/third") == ""
