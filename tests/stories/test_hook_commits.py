"""What another holds is not committed by mistake, whatever command of git makes the commit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.hooked import (
    CODE,
    JO,
    KIM,
    Pair,
    Person,
    blocks,
    goes_on,
    script,
    task_text,
)
from support.snapshots import check_words, cleaned

F002 = "tasks/F002.md"

pytestmark = pytest.mark.slow


def is_stopped(jo: Person, *words: str, path: str) -> str:
    """Commit, and see that it is refused for this path and leaves the branch where it was."""
    before = jo.run("rev-parse", "HEAD").stdout
    said = blocks(jo.commit(*words))
    assert f"gitlease: {path} " in said
    assert jo.run("rev-parse", "HEAD").stdout == before
    return said


@pytest.mark.default("src/api/")
@pytest.mark.nightly
@pytest.mark.parametrize("held", ["src/api/", "src/**/login.py", "SRC/API/Login.py"])
def test_a_path_that_another_holds_is_not_committed(pair: Pair, held: str) -> None:
    pair.kim.claim(held, reason="rate limits")
    pair.jo.put("src/api/login.py")
    pair.jo.put("docs/guide.md")
    said = is_stopped(pair.jo, path="src/api/login.py")
    assert ': "rate limits"' in said
    assert "docs/guide.md" not in said
    assert said.count(KIM) == 1


def test_the_file_of_a_claimed_task_is_not_committed(pair: Pair) -> None:
    pair.kim.claim("F002")
    for words in (("rm", "-q", F002), ("mv", F002, "tasks/F009.md")):
        pair.jo.git("reset", "-q", "--hard")
        pair.jo.git(*words)
        assert "(lease of F002" in blocks(pair.jo.commit())


ODD = [
    b"src/odd/ leading and trailing ",
    b"src/odd/two\nlines",
    b'src/odd/"quoted" and \\ and \t tab',
    b"src/odd/it's $(touch owned) `x`",
    b"src/odd/latin-1 \xe9\xff",
    b"src/odd/-n",
    b"src/odd/:(exclude)a",
]


@pytest.mark.nightly
def test_odd_names_are_covered_by_the_folder_they_are_in(pair: Pair) -> None:
    pair.kim.claim("src/odd/")
    (pair.jo.root / "src/odd").mkdir()
    for name in ODD:
        with open(os.path.join(os.fsencode(pair.jo.root), name), "wb") as file:
            file.write(b"odd\n")
    pair.jo.git("add", "-A")
    said = blocks(pair.jo.commit())
    lines = [line for line in said.splitlines() if KIM in line]
    assert len(lines) == len(ODD)
    for line in lines:
        assert line.startswith("gitlease: src/odd/")
        assert all(letter.isprintable() or letter == "\t" for letter in line)
    assert not (pair.jo.root / "owned").exists()


def test_a_partial_commit_is_judged_by_what_it_takes(pair: Pair) -> None:
    pair.kim.claim("src/api/")
    pair.jo.put("src/api/login.py")
    pair.jo.put("docs/guide.md")
    goes_on(pair.jo.commit("docs/guide.md"))
    assert pair.jo.git("show", "--format=", "--name-only") == "docs/guide.md"
    is_stopped(pair.jo, "src/api/login.py", path="src/api/login.py")
    pair.jo.put("docs/guide.md")
    is_stopped(pair.jo, "--include", "docs/guide.md", path="src/api/login.py")


def conflict(pair: Pair) -> None:
    """kim and jo changed the same line, and kim's is on the remote."""
    for one, text in ((pair.kim, "kim's\n"), (pair.jo, "jo's\n")):
        one.put("src/api/login.py", text + CODE)
        one.git("commit", "-q", "-m", f"{one.name}'s", env={"GITLEASE_SKIP": "1"})
    pair.kim.git("push", "-q", "origin", "main")
    pair.jo.git("fetch", "-q")


def test_a_conflict_that_is_resolved_otherwise_than_by_its_holder_is_stopped(pair: Pair) -> None:
    conflict(pair)
    pair.kim.claim("src/api/")
    assert pair.jo.run("merge", "-q", "origin/main").returncode == 1
    pair.jo.put("src/api/login.py", "both\n" + CODE)
    is_stopped(pair.jo, "--no-edit", path="src/api/login.py")
    pair.jo.git("checkout", "-q", "MERGE_HEAD", "--", "src/api/login.py")
    goes_on(pair.jo.commit("--no-edit"))
    assert len(pair.jo.git("log", "-1", "--format=%P").split()) == 2


@pytest.mark.nightly
def test_a_picked_commit_that_stops_is_checked_when_it_is_committed(pair: Pair) -> None:
    """git itself runs no pre-commit for a pick without a conflict: the push is checked then."""
    conflict(pair)
    pair.kim.claim("src/api/")
    assert pair.jo.run("cherry-pick", "origin/main").returncode == 1
    pair.jo.put("src/api/login.py", "both\n" + CODE)
    is_stopped(pair.jo, "--no-edit", path="src/api/login.py")


def test_a_rebase_goes_through_and_stops_where_it_edits_what_is_held(
    pair: Pair, tmp_path: Path
) -> None:
    """Commits that were made are carried over as they are; the next push judges them."""
    pair.jo.saves("docs/guide.md", message="one")
    pair.jo.saves("src/web/page.py", message="two")
    pair.kim.saves("README")
    pair.kim.git("push", "-q", "origin", "main")
    pair.kim.claim("src/api/")
    pair.jo.git("fetch", "-q")
    goes_on(pair.jo.run("rebase", "-q", "origin/main"))
    assert pair.jo.git("log", "-3", "--format=%s").split() == ["two", "one", "work"]
    todo = script(tmp_path / "todo", 'sed -i "1s/^pick/edit/" "$1"\n')
    pair.jo.run("rebase", "-q", "-i", "HEAD~2", env={"GIT_SEQUENCE_EDITOR": todo})
    pair.jo.put("src/api/login.py")
    is_stopped(pair.jo, "--amend", "--no-edit", path="src/api/login.py")
    pair.jo.git("reset", "-q", "--hard")  # git itself would commit it unasked
    goes_on(pair.jo.run("rebase", "--continue", env={"GIT_EDITOR": "true"}))
    assert pair.jo.git("log", "-3", "--format=%s").split() == ["two", "one", "work"]


def test_a_bare_repository_may_be_given_a_work_tree(pair: Pair) -> None:
    """As people keep the files of their home folder."""
    pair.kim.claim("src/api/")
    bare = pair.base / "files.git"
    (pair.jo.root / ".git").rename(bare)
    words = (f"--git-dir={bare}", f"--work-tree={pair.jo.root}")
    assert pair.jo.run(*words, "config", "core.bare", "true").returncode == 0
    (pair.jo.root / "src/api/login.py").write_text("mine\n")
    check_words(cleaned(blocks(pair.jo.run(*words, "commit", "-qam", "work"))))
    assert pair.jo.run(*words, "reset", "-q", "--hard").returncode == 0
    (pair.jo.root / "docs/guide.md").write_text("mine\n")
    goes_on(pair.jo.run(*words, "commit", "-qam", "work"))


@pytest.mark.nightly
def test_a_linked_work_tree_is_a_run_of_its_own(pair: Pair, tmp_path: Path) -> None:
    linked = Person("jo", tmp_path / "linked", pair.jo.env)
    pair.jo.git("worktree", "add", "-q", "-b", "side", str(linked.root))
    session = linked.at().identity.actor.session
    assert session is not None
    assert session.startswith("worktree:linked-")
    linked.claim("src/api/")
    other = Person("jo", tmp_path / "other", pair.jo.env)
    pair.jo.git("worktree", "add", "-q", "-b", "other", str(other.root))
    for one in (linked, other, pair.jo):
        one.put("src/api/login.py")
    goes_on(linked.commit())
    assert f"session {session}" in blocks(other.commit(), holder=JO)
    goes_on(pair.jo.commit(), f"warning: src/api/login.py is held by {JO} (lease of src/api, ")


def test_what_git_tells_its_hooks_reaches_no_other_repository(pair: Pair) -> None:
    """A hook has GIT_DIR, GIT_INDEX_FILE and more: the ledger and its store must not see them."""
    pair.kim.claim("src/web/")
    index = str(pair.jo.root / ".git" / "other")
    env = {"GIT_DIR": str(pair.jo.root / ".git"), "GIT_WORK_TREE": str(pair.jo.root)}
    env |= {"GIT_INDEX_FILE": index, "GIT_PREFIX": "docs/", "GIT_NAMESPACE": "strange"}
    pair.jo.put("docs/guide.md")
    pair.jo.git("read-tree", "HEAD", env={"GIT_INDEX_FILE": index})
    pair.jo.put("tasks/F002.md", task_text("F002", status="in_progress"))
    pair.jo.git("add", "tasks/F002.md", env={"GIT_INDEX_FILE": index})
    staged = pair.jo.git("ls-files", "--stage")
    refs = pair.jo.git("for-each-ref")
    objects = loose(pair.jo)
    del env["GIT_NAMESPACE"]
    goes_on(pair.jo.commit(env=env), "claimed F002")
    assert pair.leases()["F002"].holder == JO
    assert pair.jo.git("ls-files", "--stage") == staged
    assert [x for x in pair.jo.git("for-each-ref").splitlines() if "gitlease" in x] == []
    assert len(refs.splitlines()) == len(pair.jo.git("for-each-ref").splitlines())
    new = loose(pair.jo) - objects
    kinds = sorted(pair.jo.git("cat-file", "-t", x) for x in new)
    assert kinds == ["commit", "tree", "tree"]


def loose(one: Person) -> set[str]:
    """The objects in a clone's own store."""
    words = ("cat-file", "--batch-check=%(objectname)", "--batch-all-objects")
    return set(one.git(*words).split())


def test_whoever_git_is_told_to_be_is_judged_as_such(pair: Pair) -> None:
    """jo's knowledge that nobody else holds anything is not zed's."""
    pair.jo.claim("src/api/")
    pair.jo.put("docs/a.md")
    goes_on(pair.jo.commit())
    pair.jo.put("src/api/login.py")
    pair.jo.git("add", "-A")
    zed = ("-c", "user.email=zed@example.com")
    said = blocks(pair.jo.run(*zed, "commit", "-qm", "zed's"), holder=JO)
    assert "src/api/login.py" in said
    goes_on(pair.jo.run(*zed, "commit", "-q", "--allow-empty", "-m", "x", "docs"))
    goes_on(pair.jo.commit())
    check_words(pair.jo.trailers())
