"""A task has landed only if a checkout of what landed says so, through all of git's filters."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import run_gitlease
from support.hooked import script, task_text
from support.lander import Landings, Person, make_landings
from support.ledgers import workspace
from support.remotes import Remote
from support.repos import git, real_clone

from gitlease.kernel.rules.errors import Invalid
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow

SECRET = "tr a-zA-Z n-za-mN-ZA-M"


def filters(person: Person, *, clean: str = SECRET, smudge: str = SECRET) -> None:
    """Have a clone write task files through filters."""
    person.git("config", "filter.secret.clean", clean)
    person.git("config", "filter.secret.smudge", smudge)


@pytest.fixture
def landings(path_remote: Remote, tmp_path: Path) -> Landings:
    """Task files are not readable in git's objects."""
    made = make_landings(path_remote, tmp_path / "at")
    filters(made.jo)
    (made.jo.root / ".gitattributes").write_text("tasks/*.md filter=secret\n")
    made.jo.git("add", ".gitattributes")
    made.jo.git("add", "--renormalize", "tasks")
    made.jo.git("commit", "-qm", "secret tasks")
    made.jo.git("push", "-q", "origin", "HEAD:main")
    assert "status" not in made.on_main("tasks/F001.md")
    return made


def token_of(person: Person) -> int:
    (lease,) = Leases(workspace(person.root, clock=person.clock)).list()
    return lease.token


def checked_out(landings: Landings, folder: Path) -> str:
    """The file of the task as a new clone has it."""
    clone = real_clone(landings.bare, folder, "eve@example.com", "--no-checkout")
    filters(Person(clone, landings.jo.clock))
    git(clone, "checkout", "-q", "main")
    return (clone / "tasks" / "F001.md").read_text()


@pytest.mark.parametrize("committed", [True, False])
def test_a_task_in_a_file_with_a_filter_lands(
    landings: Landings, tmp_path: Path, *, committed: bool
) -> None:
    jo = landings.jo
    jo.begins()
    if committed:
        jo.git("commit", "-qam", "the edge")
    text = jo.file.read_text()
    with pytest.raises(Exception, match="false"):
        jo.land(check=("false",))
    assert jo.file.read_text() == text
    assert jo.land(check=("grep", "-q", "status: done", "tasks/F001.md")).commits
    there = checked_out(landings, tmp_path / "eve")
    assert "status: done" in there
    assert "assigned: []" in there
    assert jo.git("status", "--porcelain") == ""
    assert jo.states == {"F001": "completed"}
    assert jo.land().already


@pytest.mark.parametrize(
    "broken",
    [
        {"clean": "cat"},  # what lands would not be secret
        {"clean": "sed s/done/todo/ | " + SECRET},
        {"smudge": f"{SECRET} | sed s/done/todo/"},
    ],
    ids=["cat", "clean", "smudge"],
)
def test_what_a_checkout_would_not_show_as_done_does_not_land(
    landings: Landings, broken: dict[str, str]
) -> None:
    jo = landings.jo
    jo.begins()
    jo.git("commit", "-qam", "the edge")
    main, tip, text = landings.main, jo.git("rev-parse", "topic"), jo.file.read_text()
    filters(jo, **broken)
    # By the other filter git may call any task file changed that it has to compare again.
    with pytest.raises(Invalid, match=r"tasks/F00\d\.md"):
        jo.land()
    assert (landings.main, jo.git("rev-parse", "topic")) == (main, tip)
    assert jo.states == {"F001": "active"}
    filters(jo)
    assert jo.file.read_text() == text


def test_a_clone_that_lacks_the_filter_completes_nothing(landings: Landings) -> None:
    jo = landings.jo
    jo.begins()
    jo.git("commit", "-qam", "the edge")
    for name in ("clean", "smudge"):
        jo.git("config", "--unset", f"filter.secret.{name}")
    main = landings.main
    with pytest.raises(Invalid):
        jo.land()
    assert landings.main == main
    assert jo.states == {"F001": "active"}


def test_a_main_that_cannot_be_read_completes_nothing(landings: Landings) -> None:
    """As after a landing without a fence that was killed before it completed the lease."""
    jo = landings.jo
    jo.begins()
    jo.git("commit", "-qam", "the edge")
    jo.git("commit", "-q", "--allow-empty", "-m", f"work\n\nGitlease: F001 token={token_of(jo)}\n")
    jo.git("push", "-q", "origin", "HEAD:main")
    for name in ("clean", "smudge"):
        jo.git("config", "--unset", f"filter.secret.{name}")
    with pytest.raises(Invalid, match="unknown whether"):
        jo.land()
    assert jo.states == {"F001": "active"}


@pytest.mark.default
def test_a_task_whose_file_is_not_in_git_does_not_land(path_remote: Remote, tmp_path: Path) -> None:
    jo = make_landings(path_remote, tmp_path / "at").jo
    new = jo.root / "tasks" / "F009.md"
    for staged in (False, True):
        new.write_text(task_text("F009"), encoding="utf-8")
        if staged:
            jo.git("add", "tasks/F009.md")
        else:
            jo.begins("F009")
        with pytest.raises(Invalid, match=r"tasks/F009\.md"):
            jo.land("F009")
    assert jo.states == {"F009": "active"}


# --- clones without blobs -------------------------------------------------------------------------


def without_blobs(landings: Landings, folder: Path) -> Path:
    git(landings.bare, "config", "uploadpack.allowFilter", "true")
    git(landings.bare, "config", "uploadpack.allowAnySHA1InWant", "true")
    url = f"file://{landings.bare}"
    return real_clone(url, folder, "eve@example.com", "--filter=blob:none")


@pytest.mark.parametrize("base", ["main", "release"])
def test_a_task_lands_in_a_clone_without_blobs_after_its_file_changed(
    path_remote: Remote, tmp_path: Path, base: str
) -> None:
    landings = make_landings(path_remote, tmp_path / "at")
    eve = Person(without_blobs(landings, tmp_path / "partial"), landings.jo.clock)
    eve.begins()
    kim = landings.kim
    kim.file.write_text(kim.file.read_text() + "More.\n")
    kim.git("commit", "-qam", "more")
    kim.git("push", "-q", "origin", f"HEAD:{base}")
    assert eve.land(base=base).commits == 1
    there = git(landings.bare, "show", f"{base}:tasks/F001.md")
    assert "status: done" in there
    assert there.endswith("More.")


@pytest.mark.default
def test_a_clone_without_blobs_reads_what_has_landed_elsewhere(
    path_remote: Remote, tmp_path: Path
) -> None:
    landings = make_landings(path_remote, tmp_path / "at")
    eve = Person(without_blobs(landings, tmp_path / "partial"), landings.jo.clock)
    eve.begins()
    eve.git(
        "commit", "-q", "--allow-empty", "-m", f"work\n\nGitlease: F001 token={token_of(eve)}\n"
    )
    eve.git("push", "-q", "origin", "HEAD:release")
    kim = landings.kim
    kim.git("pull", "-q", "origin", "release")
    kim.file.write_text(kim.file.read_text().replace("todo", "done"))
    kim.git("commit", "-qam", "done")
    kim.git("push", "-q", "origin", "HEAD:release")
    eve.git("checkout", "-q", "--", "tasks")
    assert eve.land(base="release").already
    assert eve.states == {"F001": "completed"}


def test_a_pool_lands_in_a_clone_without_blobs(path_remote: Remote, tmp_path: Path) -> None:
    landings = make_landings(path_remote, tmp_path / "at")
    clone = without_blobs(landings, tmp_path / "partial")
    # Its base moves on to blobs that the clone lacks.
    kim = landings.kim
    (kim.root / "big.txt").write_text("big\n")
    kim.git("add", "big.txt")
    kim.git("commit", "-qm", "more")
    kim.git("push", "-q", "origin", "HEAD:main")
    command = tmp_path / "command"
    script(
        command,
        'cat big.txt && echo done >"$GITLEASE_RESOURCE.txt" && git add . && git commit -qm work',
    )
    done = run_gitlease(
        ["work", "--land", "--worktrees", "--until-empty", "--", str(command)], clone
    )
    assert done.returncode == 0, done.stderr
    assert landings.main[0] == "work"
    for name in ("F001", "F002"):
        assert "status: done" in landings.on_main(f"tasks/{name}.md")
