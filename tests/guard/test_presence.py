"""Who works where in a clone, by its notes: others, the way out, and conversations that go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.repos import make_repository

from gitlease.guard import presence
from gitlease.guard.presence import BY_PLACE
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.settings import identity

NOW = 1_800_000_000.0
HERE = (4_242, "this morning")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "clone")


def enters(clone: Path, session: str, *names: str, now: float = NOW) -> str:
    """Note an agent's session, which is the key of its note, too."""
    git_dir = str(clone / ".git")
    who = Actor("jo@example.com", session=session)
    presence.note_agent(git_dir, session, who, (session, *names), by="claude", now=now)
    return git_dir


def test_whoever_is_alone_is_alone_until_another_comes(clone: Path) -> None:
    git_dir = enters(clone, "one")
    assert presence.is_alone([git_dir], "one")
    assert not presence.is_alone([git_dir], "two")
    enters(clone, "two")
    assert not presence.is_alone([git_dir], "one")


def test_a_name_given_by_the_work_tree_hides_nobody_where_several_have_it(clone: Path) -> None:
    tree = f"{BY_PLACE}linked"
    git_dir = enters(clone, "one", tree)
    enters(clone, "two", tree, now=NOW + 5)

    def others(*names: str, key: str = "one") -> list[str]:
        found = presence.others([git_dir], names, now=NOW, key=key)
        return [x.session for x in found]

    assert others("one", tree) == ["two"]
    assert others("two", tree, key="two") == ["one"]
    assert others("one", "two") == []
    assert others("three", key="three") == ["one", "two"]


def test_the_way_out_is_named_after_the_shortest_of_ones_names(clone: Path) -> None:
    enters(clone, "two")
    repository = discover(str(clone))
    for names, branch in ((["claude:89abcdef", "mine-1"], "mine-1"), ([], "mine")):
        shared = presence.shared_with(repository, names, now=NOW, key="mine")
        assert shared is not None
        assert os.path.basename(shared.way_out) == branch


def test_a_conversation_goes_on_only_for_the_one_that_ended_in_its_process(clone: Path) -> None:
    common = str(clone / ".git")
    presence.end_conversation(common, "before", HERE, now=NOW)
    assert presence.has_ended(common, "before", HERE)
    assert not presence.has_ended(common, "before", (4_242, "another start"))
    assert not presence.has_ended(common, "other", HERE)
    presence.begin_conversation(common, "after", HERE, clears=True, now=NOW + 1)
    assert identity.continued(common, "after") == "before"
    assert identity.continued(common, "other") == "other"


def test_a_session_without_a_sign_is_gone_after_half_an_hour(clone: Path) -> None:
    git_dir = enters(clone, "one")
    for seconds, there in ((0, 1), (1_799, 1), (1_800, 0), (-1_799, 1), (-1_800, 0)):
        assert len(presence.others([git_dir], [], now=NOW + seconds)) == there


def test_a_clone_has_the_git_directories_of_all_its_work_trees(clone: Path) -> None:
    common = str(clone / ".git")
    assert presence.git_dirs_of(common) == [common]
    for name in ("b", "a"):
        (clone / ".git" / "worktrees" / name).mkdir(parents=True)
    linked = [str(clone / ".git" / "worktrees" / name) for name in ("a", "b")]
    assert presence.git_dirs_of(common) == [common, *linked]
