"""A landing that failed puts the index back, and says what became of the task's file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lander import Landings, make_landings
from support.remotes import Remote

from gitlease.landing import landing

pytestmark = pytest.mark.slow


@pytest.fixture
def landings(path_remote: Remote, tmp_path: Path) -> Landings:
    return make_landings(path_remote, tmp_path / "at")


@pytest.mark.parametrize("check", ["exit 1", "echo a note >> tasks/F001.md; exit 1"])
def test_a_staged_edge_is_staged_again(landings: Landings, check: str) -> None:
    jo = landings.jo
    jo.begins("F002")
    jo.begins(branch=None)
    jo.git("add", "tasks")
    before = jo.git("ls-files", "-s")
    with pytest.raises(landing.CheckFailed):
        jo.land(check=("sh", "-c", check))
    assert jo.git("ls-files", "-s") == before
    assert "status: todo" in jo.file.read_text()
    assert jo.git("diff-files", "--name-only").splitlines() == (
        ["tasks/F001.md"] if "note" in check else []
    )


@pytest.mark.parametrize("committed", [False, True])
def test_a_removed_task_file_comes_back_and_is_reported(
    landings: Landings, *, committed: bool
) -> None:
    jo = landings.jo
    jo.begins(commits_edge=committed)
    text, tip = jo.file.read_bytes(), jo.git("rev-parse", "topic")
    with pytest.raises(landing.CheckFailed) as caught:
        jo.land(check=("sh", "-c", "rm tasks/F001.md; exit 1"))
    assert (jo.file.read_bytes(), jo.git("rev-parse", "topic")) == (text, tip)
    assert caught.value.hints == ("tasks/F001.md was removed meanwhile, and is put back as it was",)


@pytest.mark.parametrize(
    "made", ["mkdir tasks/F001.md; echo mine > tasks/F001.md/x", "ln -s F002.md tasks/F001.md"]
)
@pytest.mark.parametrize("finished", [False, True])
def test_what_took_the_place_of_the_task_file_is_kept_and_reported(
    landings: Landings, made: str, *, finished: bool
) -> None:
    jo = landings.jo
    jo.begins()
    if finished:
        jo.land(push=False)
    tip = jo.git("rev-parse", "topic")
    with pytest.raises(landing.CheckFailed) as caught:
        jo.land(check=("sh", "-c", f"rm tasks/F001.md; {made}; exit 1"))
    if "mkdir" in made:
        assert (jo.file / "x").read_text() == "mine\n"
    else:
        assert jo.file.is_symlink()
    assert jo.git("rev-parse", "topic") == tip
    [told] = caught.value.hints
    assert told.startswith("tasks/F001.md changed meanwhile")
    assert "stays as it is" not in told
