"""Texts that agents hand to a shell: some discard work in the work tree, the others do not.

``|`` at the start of a line begins the next text; a text may have several lines.
"""

from __future__ import annotations

DENIED_TEXTS = r"""
| git stash
| git stash -u
| git stash push -- a
| git stash save x
| git stash -k
| git stash pop
| git stash apply
| git stash drop
| git stash clear
| git stash branch other
| git reset --hard
| git reset --merge HEAD
| git reset --keep v1
| git reset -q --hard origin/main
| git checkout -f
| git checkout -- .
| git checkout HEAD .
| git checkout main
| git checkout -b new origin/main
| git checkout -
| git checkout --detach
| git checkout a.py
| git checkout $FILE
| git switch main
| git switch -
| git switch -c new
| git restore .
| git restore --staged --worktree .
| git restore -s HEAD -SW :/
| git restore a.py
| git clean -f
| git clean -xdf
| git clean --force -d
| git rm -r src
| git rm -qf a.py
| git read-tree -u --reset HEAD
| git checkout-index -fa
| git pull --rebase --autostash
| git rebase --autostash main
| rm -rf *
| rm -r src
| rm -fR ./*
| rm -rf .git
| sudo rm -r --force src
| rm -rf "$BUILD"/*
| git worktree remove --force .
| (cd /tmp && ls); git reset --hard
| (cd /tmp; git status) && git stash
| cd $X && git stash
| cd - ; git stash
| cd src && git reset --hard
| git -C . reset --hard
| git -C "$ROOT" clean -fd
| cd "$(git rev-parse --show-toplevel)" && git checkout -- a.py
| git -c a.b=c stash
| git --no-pager --git-dir=.git stash
| GIT_DIR=.git git stash
| A=1 B='c d' git reset --hard
| /usr/bin/git stash
| npm test && git stash -u
| make || git reset --hard
| npm start & git stash
| git fetch; git reset --hard origin/main
| git add -A
git stash
| git reset \
  --hard
| timeout -k 1 5 git stash
| nice -n 10 git stash
| sudo -E -u build git stash
| /bin/time -p git stash
| env -i PATH=/bin git stash
| if git diff --quiet; then git checkout main; fi
| for f in a b; do git checkout $f; done
| { git stash; }
| ! git stash
| x=$(git stash)
| echo "done: $(git stash)"
| git commit -m "use `git reset --hard` here"
| git ls-files -m | xargs git checkout --
| ls | xargs -n 1 rm -rf
| find . -name build -exec rm -r {} +
| bash -c 'git stash'
| sh -ec "ls && git stash -u"
| eval "git reset --hard"
| bash <<EOF
git reset --hard
EOF
| cat <<EOF >a && git stash
text
EOF
| cat >a <<'EOF'
don't
EOF
git checkout -- a
| ls # don't
git stash
| git stash # don't
| git stash 2>/dev/null
| git reset -q >/dev/null --hard
| git commit -m "it's" && git reset --hard
| echo \" ; git stash ; echo \"
| echo a\\; git stash
| git reset "--hard"
| git reset -q '--hard' HEAD
| "git" stash
| 'git' "stash" -u
| "/usr/bin/git" "checkout" main
| "rm" "-rf" src
| git "clean" '-fd'
| sudo -n "git" stash
| eval git stash
| eval "git" reset '--hard'
| eval "cd src && git stash"
| eval eval 'git stash'
| cat <<E | bash
git stash
E
| cat <<'E' | sed 's/a b/c/' | sudo sh -e
git reset --hard
E
| bash <<<'git stash'
| busybox rm -rf src
| busybox sh -c 'rm -r src'
| stdbuf -oL git stash
| f() { git stash; }; f
| f ()
{
  git reset --hard
}
f
| function f { git stash; }; f
| coproc git stash
| git reset $(git merge-base a b) --hard
| git reset `git merge-base a b` --hard
| cat <<NEVER; git stash
| git reset -q \
--hard
"""

ALLOWED_TEXTS = r"""
| git stash list
| git stash show -p
| git stash create
| git stash store abc
| git stash -h
| git stash list --format='%gd' | head
| git reset
| git reset --soft HEAD~1
| git reset a.py
| git reset HEAD~1 -- a.py
| git clean -n
| git clean -nfd
| git checkout
| git checkout HEAD
| git checkout -p
| git checkout --patch main
| git switch --help
| git restore --staged .
| git restore -S a.py
| git restore -p a.py
| git rm a.py
| git rm -r --cached src
| git rm -rn src
| git checkout-index -a
| git read-tree HEAD
| git worktree remove b
| git worktree add ../b
| git pull --rebase
| git pull --no-autostash
| git rebase main
| git merge main
| git status
| git log --grep=stash
| git log -- checkout
| git log --oneline | grep 'reset --hard'
| git show stash@{0}
| git diff stash
| git branch clean
| git help checkout
| git config alias.undo 'reset --hard'
| git add restore && git commit -m clean
| git commit -m 'git stash'
| git commit -m "drop it; git reset --hard"
| git commit -am "never (git clean -fd)"
| git commit -m "fix
git checkout main
rm -rf src"
| git commit -m 'first
git stash' -m 'rm -rf *'
| git commit -m "$(cat <<'EOF'
say "why": `git reset --hard` lost work
git stash; rm -rf *
EOF
)"
| git commit -F - <<EOF
git stash
EOF
| cat <<EOF
git stash
EOF
| cat >a <<-'E' ; true
	git reset --hard
	E
| cat <<A >a
git checkout main
A
cat <<"B" >b
it's git clean -f
B
| gh pr create --title x --body "$(cat <<EOF
We run git checkout main here.
git restore .
EOF
)"
| python - <<EOF
os.system("git stash")
git stash
EOF
| python -c 'import os; print("a"); os.system("git stash")'
| echo git stash
| echo 'a; git stash'
| echo "a && git reset --hard"
| echo 'it is' "don't; git stash" end
| echo \
git stash
| printf 'git stash\n' >>notes.md
| grep -rn 'git reset --hard' .
| grep -e "; git stash" a | wc -l
| rg git\ stash
| # git stash
| ls # && git stash
| legit stash
| make stash
| npm run clean
| ssh host git reset --hard
| docker exec box git reset --hard
| git-stash-tool pop
| stash=git; echo $stash
| sed -i 's/git stash/git commit/; s/rm -r x//' a
| awk '/git checkout/ { print }' a
| jq '.["git clean -f"]' a
| test -e reset; echo checkout
| rm -f a
| rm a b
| rmdir -p c
| farm -r x
| rm -rf /nowhere/build
| rm -r /nowhere/b 2>/dev/null
| cd /nowhere/b && git reset --hard
| (cd /nowhere/b && git stash)
| cd /nowhere; git checkout main
| git -C /nowhere/b stash
| git -C '/nowhere/b' clean -fd
| git worktree remove --force /nowhere/b
| echo a\; git stash
| echo a\&\& git reset --hard
| find . -name \(; echo a \| git stash
| git stash "list"
| git clean '-n'
| git rm "-r" --cached src
| "git stash"
| "git" "log" --grep "git stash"
| echo "git" stash
| eval echo git stash
| eval "$(ssh-agent)" && git commit -m 'git stash'
| cat <<E | grep "| bash "
git stash
E
| cat <<E | tee a | wc -l
git stash
E
| cat <<<'git stash'
| functional git stash
| busybox rm a
| git log "reset --hard"
| cat <<E >a
function f { git stash; }
E
"""


def texts_in(table: str) -> list[str]:
    """Return the texts of a table."""
    return table.strip().removeprefix("| ").split("\n| ")
