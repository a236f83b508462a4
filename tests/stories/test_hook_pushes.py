"""What another holds by now is not pushed, though it was committed before anybody held it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.hooked import (
    WAYS_AROUND,
    Pair,
    Person,
    blocks,
    goes_on,
    task_text,
)
from support.repos import git, real_clone
from support.running import until
from support.snapshots import check_words

from gitlease.kernel.git.files import Notes

pytestmark = pytest.mark.slow

LOGIN = "src/api/login.py"


@pytest.fixture
def late(pair: Pair) -> Pair:
    """jo committed to src/api on main, and then kim took it."""
    pair.jo.saves(LOGIN)
    pair.kim.claim("src/api/", reason="rate limits")
    return pair


def refs(pair: Pair) -> str:
    """The branches and tags of the remote."""
    return git(pair.remote, "for-each-ref", "refs/heads", "refs/tags")


def is_stopped(pair: Pair, *words: str, path: str = LOGIN) -> str:
    """Push, and see that it is refused for this path and the remote stays as it was."""
    before = refs(pair)
    said = blocks(pair.jo.run("push", "-q", *words))
    assert f"gitlease: {path} " in said
    assert refs(pair) == before
    return said


@pytest.mark.default
def test_what_was_committed_before_it_was_held_is_not_pushed(late: Pair) -> None:
    assert ': "rate limits"' in is_stopped(late)
    late.kim.release("src/api/")
    goes_on(late.jo.run("push", "-q"))
    assert late.on_remote("main") == late.jo.head()


@pytest.mark.default
def test_what_this_clone_knew_a_moment_ago_is_not_enough(pair: Pair) -> None:
    """A commit trusts fresh knowledge, a push asks."""
    pair.jo.put("docs/guide.md")
    pair.jo.commit()
    pair.kim.claim("src/api/")
    pair.jo.put(LOGIN)
    goes_on(pair.jo.commit())
    is_stopped(pair)


@pytest.mark.default
def test_a_push_stops_where_the_ledger_was_rolled_back(pair: Pair) -> None:
    """What others hold is not known then, and a push needs to know."""
    pair.kim.claim("docs/")
    before = pair.ledger().strip()
    pair.kim.claim("F001")
    pair.jo.at().guard.check((), strict=True)  # it has seen what is gone now
    git(pair.remote, "update-ref", "refs/gitlease/global", before)
    pair.jo.put("notes.txt")  # which nobody is known to hold
    pair.jo.commit("--no-verify")
    done = pair.jo.run("push", "-q")
    assert done.returncode == 1, done.stderr
    check_words(re.findall("gitlease: .*", done.stderr))


def test_however_it_is_pushed(late: Pair) -> None:
    for words in (
        ["origin", "HEAD:refs/for/main"],
        ["--all", "origin"],
        ["--mirror", "origin"],
        ["--atomic", "origin", "HEAD:a", "HEAD:b"],
        ["--force-with-lease", "origin", "main"],
    ):
        is_stopped(late, *words)


@pytest.mark.nightly
def test_a_ledger_is_no_work(late: Pair) -> None:
    """Whoever carries a ledger to another host pushes the leases of everybody."""
    late.jo.git("fetch", "-q", "origin", "refs/gitlease/global:refs/carried")
    other = late.base / "other.git"
    git(late.base, "init", "-q", "--bare", str(other))
    words = ("refs/carried:refs/gitlease/global",)
    goes_on(late.jo.run("push", "-q", str(other), *words))
    is_stopped(late, "origin", *words, "main")


@pytest.mark.parametrize("words", [[":refs/gitlease/global", "main"], ["--mirror"]])
def test_nobody_but_gitlease_moves_a_ledger(pair: Pair, words: list[str]) -> None:
    pair.kim.claim("src/api/")
    before = refs(pair)
    done = pair.jo.run("push", "-q", "origin", *words)
    assert done.returncode == 1
    check_words(re.findall("gitlease: .*", done.stderr))
    assert not WAYS_AROUND.search(done.stderr)
    assert refs(pair) == before
    pair.jo.git("config", "lease.guardMode", "warn")
    done = pair.jo.run("push", "-q", "--dry-run", "origin", *words)
    assert done.returncode == 0, done.stderr
    assert "gitlease: warning: refs/gitlease/" in done.stderr


@pytest.mark.nightly
def test_ones_own_work_of_another_branch_is_judged_where_it_lands(late: Pair) -> None:
    """jo had pushed before kim took it; the branch that all build on does not have it yet."""
    late.jo.git("push", "-q", "origin", "main:side", env={"GITLEASE_SKIP": "1"})
    late.kim.saves("README")
    late.kim.git("push", "-q")
    goes_on(late.jo.run("pull", "-q", "--no-rebase", "--no-edit"))
    is_stopped(late)
    late.kim.git("push", "-q", "origin", "HEAD:develop")
    goes_on(late.jo.run("push", "-q", "origin", "main:develop"))
    late.jo.git("push", "-q", env={"GITLEASE_SKIP": "1"})
    goes_on(late.jo.run("push", "-q", "origin", "main:side"))


@pytest.fixture
def landed(pair: Pair) -> Pair:
    """kim holds src/api/ and has pushed work on it to main and to side; jo knows of both."""
    pair.kim.claim("src/api/")
    pair.kim.saves(LOGIN)
    pair.kim.git("push", "-q", "origin", "main", "main:side")
    pair.jo.git("fetch", "-q")
    return pair


def test_a_forced_push_takes_no_held_work_away(landed: Pair) -> None:
    landed.jo.saves("docs/guide.md")
    is_stopped(landed, "--force", "origin", "main")
    is_stopped(landed, "--force", "origin", "main", ":side")
    landed.jo.git("merge", "-q", "--no-edit", "origin/main")
    goes_on(landed.jo.run("push", "-q", "--force", "origin", "main"))


def test_main_is_not_deleted_with_held_work(landed: Pair) -> None:
    git(landed.remote, "config", "receive.denyDeleteCurrent", "ignore")
    goes_on(landed.jo.run("push", "-q", "origin", ":main"))
    landed.kim.git("push", "-q", "origin", "main")
    landed.jo.git("fetch", "-q")
    goes_on(landed.jo.run("push", "-q", "origin", ":side"))
    is_stopped(landed, "origin", ":main")
    landed.kim.release("src/api/")
    goes_on(landed.jo.run("push", "-q", "origin", ":main"))


@pytest.mark.nightly
def test_what_the_remote_has_and_nobody_here_knows_is_left_to_git(landed: Pair) -> None:
    landed.kim.saves(LOGIN)
    landed.kim.git("push", "-q", "origin", "main")
    landed.jo.saves("docs/guide.md")
    done = landed.jo.run("push", "-q", "origin", "main")
    assert done.returncode == 1
    assert "gitlease" not in done.stderr
    before = refs(landed)
    for word in ("--force", "-qf", "+main"):
        done = landed.jo.run("push", "-q", "origin", *(["main"] * (word[0] == "-")), word)
        assert done.returncode == 1
        check_words(re.findall("gitlease: .*", done.stderr))
    done = landed.jo.run("push", "-q", "origin", ":main")
    assert (done.returncode, refs(landed)) == (1, before)
    check_words(re.findall("gitlease: .*", done.stderr))
    landed.jo.git("config", "remote.origin.push", "+refs/heads/main:refs/heads/main")
    done = landed.jo.run("push", "-q", "origin")
    assert (done.returncode, refs(landed)) == (1, before)
    landed.kim.release("src/api/")
    goes_on(landed.jo.run("push", "-q", "--force", "origin", "main"))


@pytest.mark.parametrize(("by", "moved"), [("origin", False), ("url", True)])
def test_what_a_clone_of_one_branch_took_in_has_landed_already(
    pair: Pair, by: str, moved: bool
) -> None:
    """No ref of such a clone follows main; what the remote has is asked, and what was fetched."""
    pair.jo.saves(LOGIN)
    pair.jo.git("push", "-q", "origin", "main", "main^:refs/heads/develop")
    lee = Person("lee", pair.base / "lee", dict(pair.jo.env))
    real_clone(pair.remote, lee.root, lee.email, "--single-branch", "-b", "develop")
    assert lee.gitlease("hooks", "install").returncode == 0
    pair.kim.claim("src/api/")
    lee.saves("docs/guide.md")
    place = "origin" if by == "origin" else str(pair.remote)
    lee.git("fetch", "-q", place, "main")
    lee.git("merge", "-q", "--no-edit", "FETCH_HEAD")
    if moved:
        pair.jo.saves("README.md")
        pair.jo.git("push", "-q", "origin", "main", env={"GITLEASE_SKIP": "1"})
    else:
        (lee.root / ".git" / "FETCH_HEAD").unlink()
    goes_on(lee.run("push", "-q", "origin", "develop"))
    lee.saves(LOGIN)
    blocks(lee.run("push", "-q", "origin", "develop"))


@pytest.mark.nightly
def test_what_was_taken_off_main_again_has_not_landed(pair: Pair) -> None:
    """Whatever was fetched last: of a branch that is known here its own word holds."""
    pair.jo.saves(LOGIN)
    pair.jo.git("push", "-q", "origin", "main")
    pair.jo.git("fetch", "-q")
    pair.kim.git("push", "-q", "-f", "origin", "main", env={"GITLEASE_SKIP": "1"})
    pair.kim.claim("src/api/")
    is_stopped(pair, "origin", "main")


def test_what_git_commits_without_asking_is_found_by_the_push(pair: Pair) -> None:
    pair.jo.git("switch", "-q", "-c", "side")
    pair.jo.saves(LOGIN)
    patch = pair.jo.git("format-patch", "-1", "--stdout")
    pair.jo.git("switch", "-q", "main")
    pair.kim.claim("src/api/")
    goes_on(pair.jo.run("am", "-q", input=patch + "\n"))
    is_stopped(pair, "origin", "main")


def test_what_the_shared_remote_has_is_not_judged_again_on_its_way_to_another(
    pair: Pair, tmp_path: Path
) -> None:
    """A backup, a fork or a deployment gets what everybody has had for long."""
    pair.jo.saves(LOGIN)
    goes_on(pair.jo.run("push", "-q"))
    pair.kim.claim("src/api/")
    git(tmp_path, "init", "-q", "--bare", "backup.git")
    pair.jo.git("remote", "add", "backup", str(tmp_path / "backup.git"))
    goes_on(pair.jo.run("push", "-q", "backup", "main"))
    pair.jo.put(LOGIN)
    pair.jo.git("commit", "-qam", "new", env={"GITLEASE_SKIP": "1"})
    blocks(pair.jo.run("push", "-q", "backup", "main"))


def test_a_push_that_lands_a_task_ends_its_lease(pair: Pair) -> None:
    pair.jo.claim("F001")
    pair.jo.put("tasks/F001.md", task_text("F001", status="done", paths="src/api"))
    pair.jo.put(LOGIN)
    pair.jo.commit()
    goes_on(pair.jo.run("push", "-q", "origin", "HEAD:refs/heads/topic"))
    pair.jo.gitlease("hook", "landed")
    assert pair.leases()["F001"].state == "active", "another branch ends nothing"
    goes_on(pair.jo.run("push", "-q"))
    until(lambda: pair.leases()["F001"].state == "completed", "the lease is completed")
    pair.kim.claim("src/api/")
    until(lambda: Notes(str(pair.jo.private)).of("words"), "jo will read of it")
    check_words(pair.jo.gitlease("whoami").stderr + (pair.jo.gitlease("list").stderr))
