"""Linked work trees of a clone: one for each task that a pool works on."""

from __future__ import annotations

import os
import re
from hashlib import sha256

from gitlease.core.errors import Invalid
from gitlease.git.repository import Repository, ask, ask_line, discover, reason_of

CHECKOUT = 600.0  # seconds for the files of a work tree to be written
_MOVE = ("move it away, or remove it",)
SUFFIX = ".worktrees"  # of the folder beside the work tree that has them

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+|\.\.+|\.lock$|^[.-]|[.]$")


def fit_name(text: str) -> str:
    """A task's name as a part of a branch and of a path: no two have the same.

    What had to be changed ends with a digest of the name, since other names may come to that too.
    """
    fit = _UNFIT.sub("-", text).strip("-") or "task"
    return fit if fit == text else f"{fit}-{sha256(text.encode()).hexdigest()[:8]}"


def open_worktree(repository: Repository, name: str, *, branch: str, base: str) -> Repository:
    """The linked work tree of this name, on its branch; both are made where they are not there.

    A branch that has commits of its own goes on where it is, else it begins at ``base``. Raises
    Invalid where git refuses, or something else has its place.
    """
    path = os.path.join(folder_of(repository), name)
    if os.path.isfile(os.path.join(path, ".git")):
        found = discover(path)
        if os.path.realpath(found.common_dir) == os.path.realpath(repository.common_dir):
            return found
        raise Invalid(f"{path} is a work tree of another repository", hints=_MOVE)
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise Invalid(f"{path} is no work tree of this repository", hints=_MOVE)
    ref = f"refs/heads/{branch}"
    there = ask_line(repository, "rev-parse", "--verify", "--quiet", ref)
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
    said = ask(repository, *words, timeout=CHECKOUT)
    if said.code != 0:
        raise Invalid(f"git worktree add {path}: {reason_of(said)}")
    return discover(path)


def folder_of(repository: Repository) -> str:
    """The folder of a work tree's linked ones, beside it. Invalid without a work tree."""
    if repository.toplevel is None:
        raise Invalid("there is no work tree here: linked ones go beside it")
    return repository.toplevel + SUFFIX


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
        ask(repository, "update-ref", "-d", ref, tip)


def drop_branch(repository: Repository, branch: str, start: str) -> None:
    """Delete a branch on which there is nothing beyond where it began."""
    ref = f"refs/heads/{branch}"
    began = ask_line(repository, "rev-parse", "--verify", "--quiet", f"{start}^{{commit}}")
    if began and began == ask_line(repository, "rev-parse", "--verify", "--quiet", ref):
        ask(repository, "update-ref", "-d", ref, began)


def free_worktree(repository: Repository, name: str) -> str:
    """Where `git worktree add` has room beside a work tree: no such folder, no such branch."""
    fit, number = fit_name(name), 1
    while True:
        tried = fit if number == 1 else f"{fit}-{number}"
        path = os.path.join(f"{repository.toplevel}{SUFFIX}", tried)
        branch = ("rev-parse", "--verify", "--quiet", f"refs/heads/{tried}")
        if not os.path.lexists(path) and not ask_line(repository, *branch):
            return path
        number += 1


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
    said = ask(repository, *words, timeout=CHECKOUT)  # without --force: git itself looks once more
    return None if said.code == 0 else f"{worktree.toplevel} was kept: {reason_of(said)}"
