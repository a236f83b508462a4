"""A host at a pace counts exactly who connected, what was sent, and what of it won."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.paced import Connection, PacedHost, Tally
from support.repos import commit_file, git, run_git


@pytest.fixture
def host(tmp_path: Path) -> PacedHost:
    return PacedHost(tmp_path / "host")


def test_each_connection_is_noted_with_its_clone_and_its_pack(
    host: PacedHost, tmp_path: Path
) -> None:
    jo, kim = (host.clone(tmp_path / who, who) for who in ("jo", "kim"))
    assert host.connections() == [], "a copy of another clone asks nobody"
    for clone, name in ((jo, "a"), (kim, "b")):
        commit_file(clone, name, name)
    git(jo, "push", "-q", "origin", "main", "HEAD:refs/other/one")
    assert run_git(kim, "push", "-q", "origin", "main").returncode == 1
    git(kim, "fetch", "-q")
    git(jo, "ls-remote", "-q")
    assert host.connections() == [
        Connection("receive-pack", "jo", ("refs/heads/main", "refs/other/one"), landed=True),
        Connection("receive-pack", "kim"),
        Connection("upload-pack", "kim"),
        Connection("upload-pack", "jo"),
    ]
    assert host.tally() == Tally(pushes=2, packs=1, landed=1, fetches=2)
    assert host.tally("kim") == Tally(pushes=1, fetches=1)
    assert (host.remote.pushes(), host.remote.fetches()) == (2, 2)


def test_a_pack_that_loses_the_race_on_the_server_did_not_land(
    host: PacedHost, tmp_path: Path
) -> None:
    jo = host.clone(tmp_path / "jo", "jo")
    commit_file(jo, "a", "a")
    hook = host.bare / "hooks" / "pre-receive"
    # Somebody else moves the ref while the pack is judged.
    meanwhile = "env -u GIT_QUARANTINE_PATH git update-ref -d refs/heads/main\n"
    hook.write_text(hook.read_text() + meanwhile)
    assert run_git(jo, "push", "-q", "origin", "main").returncode == 1
    assert host.tally() == Tally(pushes=1, packs=1)


def test_the_times_are_those_that_a_clone_is_given(tmp_path: Path) -> None:
    host = PacedHost(tmp_path / "host", connection=0.5, pack=0.7)
    jo = host.clone(tmp_path / "jo", "jo")
    kim = host.clone(tmp_path / "kim", "kim", hurried=True)
    for clone, ends in ((jo, ["0.5", "0.7"]), (kim, ["0", "0"])):
        for service in ("uploadpack", "receivepack"):
            words = git(clone, "config", f"remote.origin.{service}").split()
            assert words[-2:] == ends
