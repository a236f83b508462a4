"""Linked work trees: one for each task that a pool works on."""

from __future__ import annotations

import os

from gitlease.kernel.git.repository import (
    CHECKOUT,
    Repository,
    ask,
    ask_line,
    discover,
)
from gitlease.kernel.git.run import allowed_protocols
from gitlease.kernel.rules.errors import Invalid

_MOVE = ("move it away, or remove it",)


def open_worktree(repository: Repository, name: str, *, branch: str, base: str) -> Repository:
    """The linked work tree of this name, on its branch; both are made where they are not there.

    A branch that has commits of its own goes on where it is, else it begins at ``base``. Raises
    Invalid where git refuses, or something else has its place.
    """
    path = os.path.join(folder_of(repository), name)
    if os.path.isfile(os.path.join(path, ".git")):
        tree = discover(path)
        if os.path.realpath(tree.common_dir) == os.path.realpath(repository.common_dir):
            return tree
        raise Invalid(f"{path} is a work tree of another repository", hints=_MOVE)
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise Invalid(f"{path} is no work tree of this repository", hints=_MOVE)
    ref = f"refs/heads/{branch}"
    there = ask_line(repository, "rev-parse", "--verify", "--quiet", ref)
    # A branch of an earlier run with nothing new begins again at today's base.
    if there and ask(repository, "merge-base", "--is-ancestor", ref, base).code == 0:
        there = ""
    new = [] if there else ["-B", branch, "--no-track"]
    ask(repository, "worktree", "prune")  # one whose folder was removed has its branch still
    words = [
        "worktree",
        "add",
        "--quiet",
        *new,
        "--end-of-options",
        path,
        branch if there else base,
    ]
    # Where a partial clone lacks files of the base, git fetches them now; it asks for no password.
    online = {
        "GIT_ALLOW_PROTOCOL": allowed_protocols(os.environ),
        "GIT_NO_LAZY_FETCH": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    result = ask(repository, *words, timeout=CHECKOUT, env=online)
    if result.code != 0:
        raise Invalid(f"git worktree add {path}: {result.reason}")
    return discover(path)


def folder_of(repository: Repository) -> str:
    """The folder of a work tree's linked ones, beside it. Invalid without a work tree."""
    folder = repository.linked_trees
    if folder is None:
        raise Invalid("there is no work tree here: linked ones go beside it")
    return folder


def drop_finished(repository: Repository, name: str, *, branch: str, base: str, file: str) -> None:
    """Remove the work tree and the branch of a task that was finished elsewhere.

    Both stay if they have anything beside commits to the task's own ``file``.
    """
    path, ref = os.path.join(folder_of(repository), name), f"refs/heads/{branch}"
    if not os.path.isfile(os.path.join(path, ".git")):
        return
    tree = discover(path)
    if os.path.realpath(tree.common_dir) != os.path.realpath(repository.common_dir):
        return
    tip = ask_line(repository, "rev-parse", "--verify", "--quiet", ref)
    changed = ask(repository, "diff", "--name-only", "-z", f"{base}...{ref}", "--")
    files = set(os.fsdecode(changed.out).split("\0")) - {""}
    bare = tree.branch() == branch and tip and changed.code == 0 and files <= {file}
    if bare and remove_worktree(repository, tree) is None:
        # With what it was: a commit that came meanwhile keeps the branch.
        ask(repository, "update-ref", "-d", ref, tip)


def drop_branch(repository: Repository, branch: str, start: str) -> None:
    """Delete a branch on which there is nothing beyond where it began."""
    ref = f"refs/heads/{branch}"
    began = ask_line(repository, "rev-parse", "--verify", "--quiet", f"{start}^{{commit}}")
    if began and began == ask_line(repository, "rev-parse", "--verify", "--quiet", ref):
        ask(repository, "update-ref", "-d", ref, began)


def remove_worktree(repository: Repository, worktree: Repository) -> str | None:
    """Remove a linked work tree; why it was kept, where it has what is nowhere else.

    Its branch stays. It is kept with changes that are not committed, or a head that no branch has.
    """
    if not os.path.isfile(os.path.join(str(worktree.toplevel), ".git")):
        ask(repository, "worktree", "prune")  # its command has removed it
        return None
    if not ask_line(worktree, "symbolic-ref", "-q", "HEAD"):
        return f"{worktree.toplevel} was kept: its head is on no branch"
    changed = ask(worktree, "status", "--porcelain", "--untracked-files=normal")
    if changed.code != 0 or changed.out:
        return f"{worktree.toplevel} was kept: it has changes that are not committed"
    words = ("worktree", "remove", "--end-of-options", str(worktree.toplevel))
    result = ask(
        repository, *words, timeout=CHECKOUT
    )  # without --force: git itself looks once more
    return None if result.code == 0 else f"{worktree.toplevel} was kept: {result.reason}"


def commits_behind(repository: Repository, ref: str) -> int:
    """How many commits of a ref HEAD lacks; 0 if git cannot tell."""
    result = ask(repository, "rev-list", "--count", f"HEAD..{ref}", "--")
    return int(result.out) if result.code == 0 else 0
