"""A landing never throws away what others write into the work tree while it is under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.lander import Landings, make_landings
from support.remotes import Remote

from gitlease.kernel.rules.errors import GitleaseError, Invalid
from gitlease.landing import landing

pytestmark = pytest.mark.slow

NOTE = "a note of an editor\n"
WRITES = f"printf '{NOTE.strip()}\\n' >> tasks/F001.md"


@pytest.fixture
def landings(path_remote: Remote, tmp_path: Path) -> Landings:
    return make_landings(path_remote, tmp_path / "at")


def before(patch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Have ``act`` happen once, right before the landing's first call of a method."""
    real, acts = getattr(landing.Lander, name), [act]

    def instead(self: landing.Lander, *words: object, **how: object) -> object:
        if acts:
            acts.pop()()
        return real(self, *words, **how)

    patch.setattr(landing.Lander, name, instead)


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_failed_check_wrote_into_the_task_file_is_kept(
    landings: Landings, *, committed: bool
) -> None:
    jo = landings.jo
    jo.begins(commits_edge=committed)
    text, tip = jo.file.read_text(), jo.git("rev-parse", "topic")
    with pytest.raises(landing.CheckFailed) as caught:
        jo.land(check=("sh", "-c", f"{WRITES}; exit 1"))
    assert (jo.file.read_text(), jo.git("rev-parse", "topic")) == (text + NOTE, tip)
    assert jo.git("status", "--porcelain") == " M tasks/F001.md"
    assert "tasks/F001.md" in " ".join(caught.value.hints)
    assert jo.states == {"F001": "active"}
    jo.git("commit", "-qam", "the note")
    assert jo.land().commits
    assert landings.on_main("tasks/F001.md").endswith(NOTE.strip())


@pytest.mark.default
def test_what_a_failed_check_wrote_over_the_edge_is_kept_as_it_is(landings: Landings) -> None:
    jo = landings.jo
    jo.begins()
    tip = jo.git("rev-parse", "topic")
    with pytest.raises(landing.CheckFailed) as caught:
        jo.land(check=("sh", "-c", "sed -i s/done/blocked/ tasks/F001.md; exit 1"))
    assert "status: blocked" in jo.file.read_text()
    assert jo.git("rev-parse", "topic") == tip
    assert "tasks/F001.md" in " ".join(caught.value.hints)


@pytest.mark.default
def test_where_other_files_are_in_the_way_the_branch_stays(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, kim = landings.jo, landings.kim
    kim.git("commit", "-q", "--allow-empty", "-m", "others")
    (kim.root / "README").write_text("other\n")
    kim.git("commit", "-qam", "readme")
    kim.git("push", "-q", "origin", "HEAD:main")
    jo.begins()
    with pytest.raises(landing.CheckFailed) as caught:
        jo.land(check=("sh", "-c", f"{WRITES}; echo mine >>README; exit 1"))
    assert jo.file.read_text().endswith(NOTE)
    assert (jo.root / "README").read_text() == "other\nmine\n"
    assert "README, tasks/F001.md" in " ".join(caught.value.hints)


def test_what_was_written_until_an_overtaken_landing_succeeded_is_kept(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo, kim = landings.jo, landings.kim
    kim.begins("F002", branch=None)
    jo.begins()
    before(monkeypatch, "_push", lambda: kim.git("push", "-q", "origin", "HEAD:main"))
    once = f"test -e .git/checked || {WRITES}; : >.git/checked"
    landed = jo.land(check=("sh", "-c", once))
    assert landings.main[:2] == ["work on F001", "work on F002"]
    assert jo.file.read_text().endswith(NOTE)
    assert any("tasks/F001.md" in x for x in landed.warnings), landed.warnings
    assert jo.git("diff", "--name-only", "HEAD") == "tasks/F001.md"


@pytest.mark.default
def test_what_was_written_in_line_is_kept_and_lands_nothing(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo = landings.jo
    jo.begins()
    text, tip = jo.file.read_text() + NOTE, jo.git("rev-parse", "topic")
    before(monkeypatch, "_wait_in_line", lambda: jo.file.write_text(text))
    with pytest.raises(Invalid, match=r"tasks/F001\.md"):
        jo.land()
    assert (jo.file.read_text(), jo.git("rev-parse", "topic")) == (text, tip)
    assert landings.main[0] == "tasks"


def test_what_was_committed_in_line_stays_on_the_branch(
    landings: Landings, monkeypatch: pytest.MonkeyPatch
) -> None:
    jo = landings.jo
    jo.begins()
    more = ("commit", "-q", "--allow-empty", "-m", "more")
    before(monkeypatch, "_wait_in_line", lambda: jo.git(*more))
    with pytest.raises(GitleaseError):
        jo.land()
    assert jo.git("log", "-1", "--format=%s", "topic") == "more"
    assert landings.main[0] == "tasks"
    assert jo.land().commits == 2


@pytest.mark.default
def test_what_was_staged_and_is_nowhere_else_is_kept(landings: Landings) -> None:
    jo = landings.jo
    jo.begins()
    file = jo.root / "README"
    text = file.read_text()
    file.write_text(text + NOTE)
    jo.git("add", "README")
    file.write_text(text)
    with pytest.raises(Invalid, match="README"):
        jo.land()
    assert jo.git("show", ":README").endswith(NOTE.strip())


@pytest.mark.default
def test_an_edge_that_nobody_touched_is_put_back_to_the_byte(landings: Landings) -> None:
    jo = landings.jo
    jo.begins()
    text = jo.file.read_bytes()
    with pytest.raises(landing.CheckFailed) as caught:
        jo.land(check=("false",))
    assert (jo.file.read_bytes(), caught.value.hints) == (text, ())
    assert jo.git("status", "--porcelain") == " M tasks/F001.md"
