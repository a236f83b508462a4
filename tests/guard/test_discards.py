"""Which shell commands throw away a work tree, as far as they are written out."""

from __future__ import annotations

import pytest

from gitlease.guard import Discard
from gitlease.guard.discards import LONGEST, discards


def found(command: str, folder: str = "/r") -> list[str]:
    return [one.words for one in discards(command, folder) if not one.settings]


@pytest.mark.parametrize(
    "command",
    [
        *("git stash", "git stash -u", "git stash push -- a", "git stash save x", "git stash -k"),
        *("git reset --hard", "git reset --merge HEAD", "git reset --keep v1"),
        *("git checkout -f", "git checkout --force main", "git checkout -qf", "git checkout -- ."),
        *("git checkout .", "git checkout HEAD -- .", "git checkout HEAD .", "git checkout :/"),
        *("git restore .", "git restore --staged --worktree .", "git restore -s HEAD -SW :/"),
        *("git clean -f", "git clean -xdf", "git clean --force -d"),
        *("git switch main", "git switch -c new", "git switch -", "git checkout main"),
        *("git checkout -b new origin/main", "git checkout -", "git checkout --detach"),
        *(
            "timeout 5 git stash",
            "nice -n 10 git stash",
            "sudo -E git stash",
            "/bin/time git stash",
        ),
        *("bash -c 'git stash'", "cd /r; sh -ec 'ls && git stash -u'", "git stash branch other"),
        *("git stash # don't", "ls # don't\ngit stash"),
        *("git stash pop", "git stash apply", "git stash drop", "git stash clear"),
        *("git checkout -- a.py", "git checkout main -- a.py", "git checkout a.py"),
        *("git restore a.py", "git restore -s HEAD a.py", "git rm -r src", "git rm -qf a.py"),
        *("git read-tree -u --reset HEAD", "git worktree remove --force ../b"),
        *("git checkout-index -f -a", "git checkout-index -fa", "git worktree remove b -f"),
        *("git pull --autostash", "git pull --rebase --autostash", "git rebase --autostash main"),
        *("git -c rebase.autoStash=true pull --rebase", "git -c merge.autostash merge x"),
        *("/usr/bin/git stash", "git -c a.b=c stash", "git --no-pager stash"),
    ],
)
def test_what_throws_away_is_seen(command: str) -> None:
    assert len(found(command)) == 1, command


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git stash list",
            "git stash show -p",
            "git stash create",
            "git stash store abc",
            "git stash -h",
        ),
        *(
            "git reset",
            "git reset --soft HEAD~1",
            "git -c rebase.autostash=true pull --no-autostash",
            "git -c rebase.autostash=false rebase main",
            "git reset a.py",
            "git clean -n",
            "git clean -nf",
        ),
        *(
            "git checkout HEAD",
            "git checkout",
            "git checkout -p",
            "git rm a.py",
            "git rm -r --cached a",
        ),
        *("git checkout-index -a", "git checkout-index --prefix=x/ -a"),
        *("git read-tree HEAD", "git worktree remove b", "git pull --rebase", "git rebase main"),
        *(
            "git restore -p a.py",
            "git restore --staged .",
            "git switch --help",
            "git checkout $FILE",
        ),
        *("git status", "git commit -m 'git stash'", "echo git stash", "echo 'a; git stash'"),
        *("git log --grep=stash", "legit stash", "git add . && git commit -m reset", ""),
        *(
            "git stash 'unclosed",
            "cd $X && git stash",
            "cd - ; git stash",
        ),
        *(
            "cat <<EOF\ngit stash\nEOF\n",
            "cat > a <<-'E' ; true\n\tgit reset --hard\n\tE\n",
            "cd ''",
        ),
        "git stash " + "x" * LONGEST,
    ],
)
def test_what_does_not_is_let_through(command: str) -> None:
    assert found(command) == []


@pytest.mark.parametrize(
    "command",
    [
        *(
            "npm test && {}",
            "true; {}",
            "{} | cat",
            "({})",
            "a || {} &",
            "x\n{}\ny",
            "{} 2>&1 >/dev/null",
        ),
        *(
            "if {}; then b; fi",
            "A=1 B='c d' {}",
            "sudo {}",
            "x=$({})",
            "{{ {}; }}",
            "a <<E\nx\nE\n{}",
        ),
    ],
)
def test_it_is_found_wherever_it_stands(command: str) -> None:
    assert found(command.format("git stash -u")) == ["git stash -u"]


def test_folders_are_followed() -> None:
    both = "cd sub && git stash; git -C ../b reset --hard"
    assert list(discards(both, "/r")) == [
        Discard("git stash", "/r/sub", stash=True),
        Discard("git -C ../b reset --hard".replace("-C ../b ", ""), "/r/sub/../b"),
    ]
    assert list(discards("git worktree remove -f ../b", "/r")) == [
        Discard("git worktree remove -f ../b", "/r", removes="../b")
    ]


def at(command: str) -> list[tuple[str, bool, bool]]:
    return [(one.folder, one.git_dir, one.deletes) for one in discards(command, "/r")]


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        ("git --git-dir=/x/.git stash", [("/r", False, False), ("/x/.git", True, False)]),
        ("git --git-dir /x/.git stash", [("/r", False, False), ("/x/.git", True, False)]),
        ("git --work-tree=../y reset --hard", [("/r", False, False), ("/r/../y", False, False)]),
        ("git -C /x --git-dir=.git stash", [("/x", False, False), ("/x/.git", True, False)]),
        ("GIT_DIR=/x/.git git stash", [("/r", False, False), ("/x/.git", True, False)]),
        ("env GIT_WORK_TREE=/y git clean -f", [("/r", False, False), ("/y", False, False)]),
        ("export GIT_DIR=/x/.git; git stash", [("/r", False, False), ("/x/.git", True, False)]),
        ("GIT_DIR=$X git stash", [("/r", False, False)]),
        ("git -C $X stash", []),
        ("rm -rf ../b", [("/r/../b", False, True)]),
        ("sudo rm -r --force /b/ c", [("/b/", False, True), ("/r/c", False, True)]),
        ("cd /b && rm -fR ./*", [("/b/.", False, True)]),
        ("rm -f a; rm b; rm -rf $X *.o; rmdir -p c; farm -r x", []),
    ],
)
def test_a_folder_named_by_any_means_is_seen(
    command: str, folders: list[tuple[str, bool, bool]]
) -> None:
    assert at(command) == folders


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("git rebase main", [("rebase.autostash",)]),
        ("git merge x", [("merge.autostash",)]),
        ("git pull", [("rebase.autostash", "merge.autostash")]),
        ("git pull --rebase", [("rebase.autostash",)]),
        ("git pull --ff-only", [("merge.autostash",)]),
        ("git -c rebase.autostash=false pull", [("merge.autostash",)]),
        ("git -c merge.autostash=0 -c rebase.autostash=no pull", []),
        ("git rebase --no-autostash main", []),
        ("git rebase --continue", []),
    ],
)
def test_settings_that_stash_are_named(command: str, settings: list[tuple[str, ...]]) -> None:
    assert [one.settings for one in discards(command, "/r")] == settings
