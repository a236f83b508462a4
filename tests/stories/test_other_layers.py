"""Ledgers of other layers than ``global`` and ``local``: where they are, and what names them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import commit_file, git
from support.typed import Typist

pytestmark = pytest.mark.default

TEAM = "refs/gitlease/team"


@pytest.fixture
def pair(clones: Callable[..., list[Path]]) -> tuple[Typist, Typist]:
    """Two people, of whom the first has a lease in the layer of their team."""
    clock = ManualClock()
    jo, kim = (Typist(clone, clock) for clone in clones(2))
    jo.ok("claim deploy --layer team --ttl 1h")
    kim.ok("list --layer team")
    return jo, kim


@pytest.mark.parametrize("line", ["ref_prefix: refs/heads/gitlease", "layer: other"])
def test_checked_out_branch_does_not_decide_where_another_layer_is(
    pair: tuple[Typist, Typist], path_remote: Remote, line: str
) -> None:
    jo, kim = pair
    for one in pair:
        git(one.clone, "checkout", "-q", "-b", "old")
        commit_file(one.clone, ".gitlease.yaml", f"lease: {{{line}}}\n")
    refused = kim.types("claim deploy --layer team --json").json["error"]
    assert (refused["code"], refused["lease"]["layer"]) == ("held", "team")
    assert jo.ok("renew deploy --layer team --json").json["lease"]["renewals"] == 1
    refs = git(path_remote.bare, "for-each-ref", "--format=%(refname)").split()
    assert [x for x in refs if "gitlease" in x] == [TEAM]


def test_answers_name_the_layer(pair: tuple[Typist, Typist]) -> None:
    jo, kim = pair
    assert "in layer team" in jo.ok("renew deploy --layer team").out
    assert "(layer team, " in kim.types("claim deploy --layer team").err
    assert "in layer" not in jo.ok("claim build").out


def test_backup_at_another_url_is_a_rollback_of_the_layer_there_only(
    pair: tuple[Typist, Typist], path_remote: Remote, tmp_path: Path
) -> None:
    jo, _ = pair
    backup = tmp_path / "backup.git"
    shutil.copytree(path_remote.bare, backup)
    jo.ok("claim build --layer team --ttl 1h")
    git(jo.clone, "remote", "set-url", "origin", str(backup))
    for words in ("list", "claim test"):
        error = jo.types(f"{words} --layer team --json").json["error"]
        assert (error["code"], path_remote.url in error["message"]) == ("rollback", True)
    git(jo.clone, "remote", "set-url", "origin", path_remote.url)
    assert jo.ok("renew build --layer team --json").json["lease"]["renewals"] == 1
