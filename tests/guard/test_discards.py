"""Which shell commands throw away a work tree, as far as they are written out."""

from __future__ import annotations

import pytest

from gitlease.guard import Discard
from gitlease.guard.discards import LONGEST, discards

# Each kind of command once; " | " stands between them.
THROWS_AWAY = """
git stash | git stash -u | git stash push -- a | git stash save x | git stash -k | git stash pop
git stash branch other | git stash drop | git stash clear | git stash apply | git switch -
git reset --hard | git reset --merge HEAD | git reset --keep v1 | git switch main
git checkout -f | git checkout -qf | git checkout -- . | git checkout HEAD . | git checkout :/
git checkout main | git checkout -b new origin/main | git checkout - | git checkout --detach
git checkout -- a.py | git checkout main -- a.py | git checkout a.py | git checkout-index -fa
git restore . | git restore --staged --worktree . | git restore -s HEAD -SW :/ | git restore a.py
git clean -f | git clean -xdf | git clean --force -d | git rm -r src | git rm -qf a.py
git read-tree -u --reset HEAD | git worktree remove --force ../b | git worktree remove b -f
git pull --rebase --autostash | git rebase --autostash main | git checkout-index -f -a
git -c rebase.autoStash=true pull --rebase | git -c merge.autostash merge x
timeout 5 git stash | nice -n 10 git stash | sudo -E git stash | /bin/time git stash
bash -c 'git stash' | cd /r; sh -ec 'ls && git stash -u' | git stash # don't
/usr/bin/git stash | git -c a.b=c stash | git --no-pager stash
"""
KEEPS = """
git stash list | git stash show -p | git stash create | git stash store abc | git stash -h
git reset | git reset --soft HEAD~1 | git reset a.py | git clean -n | git clean -nf
git -c rebase.autostash=true pull --no-autostash | git -c rebase.autostash=false rebase main
git checkout HEAD | git checkout | git checkout -p | git rm a.py | git rm -r --cached a
git checkout-index -a | git checkout-index --prefix=x/ -a | git checkout $FILE
git read-tree HEAD | git worktree remove b | git pull --rebase | git rebase main
git restore -p a.py | git restore --staged . | git switch --help | git stash 'unclosed
git status | git commit -m 'git stash' | echo git stash | echo 'a; git stash' | legit stash
git log --grep=stash | git add . && git commit -m reset | cd $X && git stash | cd - ; git stash
"""
PLACES = """
npm test && {} / true; {} / ({}) / a || {} & / x#{}#y / {} 2>&1 >/dev/null / if {}; then b; fi
A=1 B='c d' {} / sudo {} / x=$({}) / {{ {}; }} / a <<E#x#E#{}
"""


def found(command: str) -> list[str]:
    return [one.words for one in discards(command, "/r") if not one.settings]


def test_commands_that_throw_away_are_seen() -> None:
    for command in THROWS_AWAY.strip().replace("\n", " | ").split(" | "):
        assert len(found(command)) == 1, command


def test_commands_that_do_not_are_let_through() -> None:
    heredocs = "cat <<EOF\ngit stash\nEOF\n", "cat > a <<-'E' ; true\n\tgit reset --hard\n\tE\n"
    commands = KEEPS.strip().replace("\n", " | ").split(" | ")
    for command in (*commands, *heredocs, "", "cd ''", "git stash " + "x" * LONGEST):
        assert found(command) == [], command


def test_a_command_is_found_wherever_it_stands() -> None:
    places = PLACES.strip().replace("\n", " / ").replace("#", "\n").split(" / ")
    for place in ("{} | cat", "ls # don't\n{}", *places):
        command = place.format("git stash -u")
        assert found(command) == ["git stash -u"], command


def test_folders_are_followed() -> None:
    both = "cd sub && git stash; git -C ../b reset --hard"
    assert list(discards(both, "/r")) == [
        Discard("git stash", "/r/sub", stash=True),
        Discard("git reset --hard", "/r/sub/../b"),
    ]
    assert list(discards("git worktree remove -f ../b", "/r")) == [
        Discard("git worktree remove -f ../b", "/r", removes="../b")
    ]


R, X = ("/r", False, False), ("/x/.git", True, False)


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        ("git --git-dir=/x/.git stash", [R, X]),
        ("git --git-dir /x/.git stash", [R, X]),
        ("git --work-tree=../y reset --hard", [R, ("/r/../y", False, False)]),
        ("git -C /x --git-dir=.git stash", [("/x", False, False), X]),
        ("GIT_DIR=/x/.git git stash", [R, X]),
        ("env GIT_WORK_TREE=/y git clean -f", [R, ("/y", False, False)]),
        ("export GIT_DIR=/x/.git; git stash", [R, X]),
        ("GIT_DIR=$X git stash", [R]),
        ("git -C $X stash", []),
        ("sudo rm -r --force /b/ c", [("/b/", False, True), ("/r/c", False, True)]),
        ("cd /b && rm -fR ./*", [("/b/.", False, True)]),
        ("rm -f a; rm b; rm -rf $X *.o; rmdir -p c; farm -r x", []),
    ],
)
def test_a_folder_named_by_any_means_is_seen(
    command: str, folders: list[tuple[str, bool, bool]]
) -> None:
    seen = [(one.folder, one.git_dir, one.deletes) for one in discards(command, "/r")]
    assert seen == folders


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
