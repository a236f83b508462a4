"""What a merge of any number of parents changes on its own account, and whose work it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.repos import commit_by_hand, git, make_repository, run_git
from support.task_trees import commit_all, put

from gitlease.guard import merges
from gitlease.guard.history import Changed, committed, staged
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import Invalid

JO, KIM, LEE, ZOE = (f"{name}@example.com" for name in ("jo", "kim", "lee", "zoe"))
TOLD = "work\n\nGitlease: src/ token=7 scope=parser"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`main`, where kim has landed a change of `path`, and `jo` with one of jo's; `base` is before.

    `lee` and `zoe` have other files that are new.
    """
    root = make_repository(tmp_path / "repo")
    put(root, "path", "as it was\n")
    put(root, "other", "as it was\n")
    commit_all(root)
    git(root, "branch", "base")
    for name in ("lee", "zoe"):
        git(root, "switch", "-q", "-c", name, "base")
        saves(root, f"{name}@example.com", **{name: f"{name}\n"})
    git(root, "switch", "-q", "-c", "jo", "base")
    saves(root, JO, path="jo's\n")
    git(root, "switch", "-q", "main")
    saves(root, KIM, message=TOLD, path="kim's\n")
    return root


def by(email: str) -> dict[str, str]:
    return {f"GIT_{who}_EMAIL": email for who in ("AUTHOR", "COMMITTER")}


def saves(root: Path, email: str, message: str = "work", **texts: str | None) -> str:
    """Commit some files, or that they are gone; the commit's id."""
    for name, text in texts.items():
        if text is None:
            (root / name).unlink()
        else:
            put(root, name, text, old=False)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message, env=by(email))
    return git(root, "rev-parse", "HEAD")


def merge(root: Path, *parents: str, **texts: str | None) -> list[Changed]:
    """What a commit by hand changes: the files of the first parent but for these."""
    git(root, "reset", "-q", "--hard")
    git(root, "switch", "-q", "--detach", parents[0])
    for name, text in texts.items():
        if text is None:
            (root / name).unlink(missing_ok=True)
        else:
            put(root, name, text, old=False)
    git(root, "add", "-A")
    ids = [git(root, "rev-parse", parent) for parent in parents]
    made = commit_by_hand(root, git(root, "write-tree"), ids, JO)
    return committed(discover(str(root)), [made])[made]


def people(found: Sequence[Changed]) -> dict[str, list[str]]:
    """Whose work is given up, for each path that is touched; nobody's for a plain change."""
    return {x.path: [who for work in x.lost for who in work.people] for x in found}


@pytest.mark.default
@pytest.mark.parametrize("first", ["main", "jo"])
@pytest.mark.parametrize(("text", "lost"), [("jo's\n", KIM), ("kim's\n", JO)])
def test_a_side_that_is_followed_gives_up_the_work_of_the_other(
    root: Path, first: str, text: str, lost: str
) -> None:
    """Whichever of them is "ours"."""
    other = "jo" if first == "main" else "main"
    found = merge(root, first, other, path=text)
    assert people(found) == {"path": [lost]}
    assert found[0].lost[0].named == ((work_named(root),) if lost == KIM else ())


def work_named(root: Path) -> object:
    from gitlease.kernel.rules.work import read_trailer

    return read_trailer(git(root, "log", "-1", "--format=%(trailers:valueonly)", "main").strip())


@pytest.mark.nightly
@pytest.mark.parametrize(("first", "kept"), [("main", True), ("gone", False)])
def test_a_deletion_is_work_as_well(root: Path, first: str, kept: bool) -> None:
    git(root, "switch", "-q", "-c", "gone", "base")
    saves(root, LEE, path=None)
    other = "gone" if first == "main" else "main"
    found = merge(root, first, other, path="kim's\n" if kept else None)
    assert people(found) == {"path": [LEE if kept else KIM]}


def test_what_no_side_has_is_the_merge_s_own(root: Path) -> None:
    assert people(merge(root, "main", "jo", path="both\n")) == {"path": []}
    marked = "<<<<<<< main\nkim's\n=======\njo's\n>>>>>>> jo\n"
    assert people(merge(root, "main", "jo", path=marked)) == {"path": []}


@pytest.mark.slow
def test_what_git_alone_would_not_have_left_out_is_given_up(root: Path) -> None:
    """Where git has nothing against either side, as in a conflict."""
    assert people(merge(root, "main", "lee", path="as it was\n", lee="lee\n")) == {"path": [KIM]}
    assert people(merge(root, "main", "lee")) == {"lee": [LEE]}
    assert people(merge(root, "main", "lee", lee="lee\n")) == {}


@pytest.mark.slow
def test_a_merge_of_many_is_judged_as_one_of_two(root: Path) -> None:
    both = {"lee": "lee\n", "zoe": "zoe\n"}
    assert people(merge(root, "main", "lee", "zoe", **both)) == {}
    assert people(merge(root, "main", "lee", "zoe", path="as it was\n", **both)) == {"path": [KIM]}
    assert people(merge(root, "base", "main", "lee", lee="lee\n")) == {"path": [KIM]}
    assert people(merge(root, "main", "lee", "jo", path="jo's\n", lee="lee\n")) == {"path": [KIM]}
    assert people(merge(root, "lee", "jo", "main", path="kim's\n")) == {"path": [JO]}
    assert people(merge(root, "main", "jo", "zoe", path="mine\n", zoe="zoe\n")) == {"path": []}


@pytest.mark.nightly
def test_a_parent_counts_once(root: Path) -> None:
    parents = ("main", "base", "main", "base")
    assert people(merge(root, *parents, path="as it was\n")) == {"path": [KIM]}
    assert people(merge(root, *parents, path="kim's\n")) == {}
    assert people(merge(root, "main", "main", path="as it was\n")) == {"path": []}


def test_all_of_one_side_s_work_on_a_path_is_given_up(root: Path) -> None:
    """Also what lies below another's, and what a merge made of it."""
    git(root, "switch", "-q", "main")
    saves(root, LEE, path="lee's on top\n")
    git(root, "switch", "-q", "-c", "side", "main~1")
    saves(root, ZOE, path="zoe's on top\n")
    run_git(root, "merge", "-q", "main")
    saves(root, "mo@example.com", path="mo's of both\n")
    lost = people(merge(root, "jo", "side", path="jo's\n"))["path"]
    assert sorted(lost) == [KIM, LEE, "mo@example.com", ZOE]


@pytest.mark.slow
def test_what_is_staged_is_judged_like_the_commit(root: Path) -> None:
    git(root, "switch", "-q", "main")
    assert run_git(root, "merge", "-q", "jo").returncode == 1
    for side, lost in (("jo", KIM), ("main", JO)):
        git(root, "checkout", "-q", side, "--", "path")
        assert people(staged(discover(str(root)))) == {"path": [lost]}
    git(root, "merge", "--abort")
    git(root, "merge", "-q", "--no-commit", "lee", "zoe")
    assert staged(discover(str(root))) == []
    git(root, "checkout", "-q", "lee", "--", "path")
    assert people(staged(discover(str(root)))) == {"path": [KIM]}


def test_before_a_merge_is_made_git_names_what_is_merged_elsewhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its pre-merge-commit hook: there is no MERGE_HEAD yet."""
    git(root, "switch", "-q", "main")
    git(root, "merge", "-q", "--no-commit", "-X", "theirs", "jo")
    (root / ".git" / "MERGE_HEAD").unlink()
    monkeypatch.setenv(f"GITHEAD_{git(root, 'rev-parse', 'jo')}", "jo")
    assert people(staged(discover(str(root)))) == {"path": [KIM]}


LINES = [f"line {number}\n" for number in range(20)]
KIMS, LEES, BOTH = (
    "".join(f"{word} {number}\n" if number in where else LINES[number] for number in range(20))
    for word, where in (("kim", {3}), ("lee", {3, 4}), ("both", {3}))
)


def renamed(root: Path, to: str, mine: str | None, theirs: str) -> None:
    """`mine`: kim's change of src/a, on main; `moved`: lee renames it, with another text."""
    git(root, "switch", "-q", "main")
    saves(root, LEE, **{"src/a": "".join(LINES)})
    git(root, "switch", "-q", "-c", "moved")
    saves(root, LEE, "work", **{"src/a": None, to: theirs})
    git(root, "switch", "-q", "main")
    saves(root, KIM, "work", **{"src/a": mine})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "first", "theirs"),
    [("src/b", "main", LEES), ("docs/a", "moved", LEES), ("docs/a", "main", "".join(LINES))],
)
def test_work_on_a_file_is_given_up_where_a_side_renamed_it(
    root: Path, to: str, first: str, theirs: str
) -> None:
    """Where its name went with the side that is followed; whether or not that is a conflict."""
    renamed(root, to, KIMS, theirs)
    other = "moved" if first == "main" else "main"
    found = merge(root, first, other, **{"src/a": None, to: theirs})
    assert people(found)["src/a"] == [KIM]
    assert people(merge(root, first, other, **{"src/a": None, to: BOTH}))["src/a"] == [KIM]
    kept = people(merge(root, first, other, **{"src/a": None, to: KIMS}))
    assert kept == ({} if theirs != LEES else {"src/a": [LEE], to: [LEE]})
    back = people(merge(root, first, other, **{"src/a": KIMS, to: None}))
    assert back == {"src/a": [LEE], to: [LEE]}


def test_what_a_merge_chose_is_its_maker_s_work(root: Path) -> None:
    """Nothing is what it only brings: git alone would have made that of anybody."""
    git(root, "switch", "-q", "-c", "chosen", "jo")
    git(root, "merge", "-q", "-s", "ours", "-m", TOLD, "main~0", env=by(LEE))
    git(root, "merge", "-q", "-m", "brought", "zoe", env=by("mo@example.com"))
    git(root, "switch", "-q", "-c", "later", "main")
    saves(root, KIM, path="kim's again\n")
    found = merge(root, "chosen", "later", path="kim's again\n", zoe="zoe\n")
    assert people(found) == {"path": [JO, LEE]}
    assert found[0].lost[1].named == (work_named(root),)
    assert people(merge(root, "chosen", "later", path="jo's\n", zoe=None)) == {
        "path": [KIM],
        "zoe": [ZOE],
    }


@pytest.mark.slow
def test_attributes_and_drivers_count_as_they_would_on_a_server(root: Path) -> None:
    """Those of the files count, and those of the clone do not."""
    git(root, "switch", "-q", "main")
    rules = "joined merge=union\ndriven merge=mine\n"
    saves(root, KIM, **{"deep/.gitattributes": rules})
    names = [f"deep/{name}" for name in ("joined", "driven")]
    saves(root, KIM, **dict.fromkeys(names, "as it was\n"))
    git(root, "switch", "-q", "-c", "side")
    saves(root, LEE, **dict.fromkeys(names, "lee's\n"))
    git(root, "switch", "-q", "main")
    saves(root, KIM, **dict.fromkeys(names, "kim's\n"))
    git(root, "config", "merge.mine.driver", "echo driven >%A")
    git(root, "merge", "-q", "-m", "both", "side")
    assert (root / names[0]).read_text() == "kim's\nlee's\n"
    assert (root / names[1]).read_text() == "driven\n"
    made = git(root, "rev-parse", "HEAD")
    bare = root.parent / "bare"
    git(root, "clone", "-q", "--bare", ".", str(bare))
    for place in (root, bare):
        assert people(committed(discover(str(place)), [made])[made]) == {names[1]: []}


def test_odd_names_are_looked_up_as_they_are(root: Path) -> None:
    names = ("-rf *", ":(top)x", "line\nbreak", "tab\tand ü", '"q"')
    git(root, "switch", "-q", "main")
    saves(root, KIM, **dict.fromkeys(names, "kim's\n"))
    git(root, "switch", "-q", "jo")
    saves(root, JO, **dict.fromkeys(names, "jo's\n"))
    expected = {name: [KIM] for name in ("path", *names)}
    assert people(merge(root, "jo", "main", path="jo's\n")) == expected


@pytest.mark.nightly
def test_more_paths_than_one_process_takes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "PATHS_TOLD", 9)
    names = [f"f{number}" for number in range(9)]
    git(root, "switch", "-q", "main")
    saves(root, KIM, **dict.fromkeys(names, "kim's\n"))
    git(root, "switch", "-q", "jo")
    saves(root, JO, **dict.fromkeys(names, "jo's\n"))
    expected = {name: [KIM] for name in [*names, "path"]}
    assert people(merge(root, "jo", "main")) == expected


def test_what_is_too_much_to_look_at_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merges, "MAX_PARENTS", 3)
    assert people(merge(root, "main", "lee", "lee", "main", lee="lee\n")) == {}
    with pytest.raises(Invalid):
        merge(root, "main", "lee", "jo", "zoe")
    monkeypatch.setattr(merges, "MAX_WORK", 0)
    with pytest.raises(Invalid):
        merge(root, "main", "jo", path="jo's\n")


def test_looking_at_merges_leaves_nothing_behind(root: Path) -> None:
    before = sorted((root / ".git/objects").rglob("*"))
    git(root, "switch", "-q", "main")
    git(root, "merge", "-q", "-s", "ours", "-m", "all", "jo", "lee", "zoe")
    made = git(root, "rev-parse", "HEAD")
    after = sorted((root / ".git/objects").rglob("*"))
    assert people(committed(discover(str(root)), [made])[made]) == {
        "path": [JO],
        "lee": [LEE],
        "zoe": [ZOE],
    }
    assert sorted((root / ".git/objects").rglob("*")) == after != before
    assert list((root / ".git").rglob("gitlease*")) == []


def test_a_file_that_only_one_side_renamed_hides_no_other(root: Path) -> None:
    """Every side has it, if under another name: nobody loses anything by its old one."""
    git(root, "switch", "-q", "jo")
    git(root, "mv", "other", "moved")
    git(root, "commit", "-q", "-m", "rename", env=by(JO))
    assert people(merge(root, "main", "jo", path="kim's\n")) == {"path": [JO]}
    assert people(merge(root, "main", "jo", path="jo's\n")) == {"path": [KIM]}
