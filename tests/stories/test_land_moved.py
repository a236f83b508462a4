"""A landing moves only what it judged: a branch that moved meanwhile, and pushed work, stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lander import Landings, make_landings
from support.remotes import Remote

from gitlease.kernel.rules.errors import Invalid
from gitlease.landing import landing


@pytest.fixture
def landings(path_remote: Remote, tmp_path: Path) -> Landings:
    made = make_landings(path_remote, tmp_path / "at")
    made.jo.begins()
    return made


def test_what_the_check_commits_does_not_land(landings: Landings) -> None:
    jo, main = landings.jo, landings.main
    with pytest.raises(landing.CheckFailed):
        jo.land(check=("git", "commit", "-qm", "more", "--allow-empty"))
    assert landings.main == main
    assert jo.git("log", "-1", "--format=%s") == "more"


def test_a_commit_made_while_it_waits_is_not_lost(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, main, real = landings.jo, landings.main, landing.Lander._take_out_edge

    def late(self: landing.Lander) -> None:
        real(self)
        jo.git("commit", "-q", "--allow-empty", "-m", "mine")

    monkeypatch.setattr(landing.Lander, "_take_out_edge", late)
    with pytest.raises(Invalid):
        jo.land()
    assert landings.main == main
    assert jo.git("log", "-1", "--format=%s", "topic") == "mine"


def test_a_failed_check_puts_the_branch_back(landings: Landings) -> None:
    jo = landings.jo
    tip, text = jo.git("rev-parse", "topic"), jo.file.read_bytes()
    with pytest.raises(landing.CheckFailed):
        jo.land(check=("false",))
    assert (jo.git("rev-parse", "topic"), jo.file.read_bytes()) == (tip, text)


def test_pushed_work_is_finished_by_a_commit_of_its_own(landings: Landings) -> None:
    jo = landings.jo
    tip = jo.git("rev-parse", "topic")
    jo.git("push", "-q", "origin", "topic")
    jo.land()
    assert landings.main[:2] == ["Finish F001", "work on F001"]
    assert jo.git("rev-parse", "HEAD~1") == tip
