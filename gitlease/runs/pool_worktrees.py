"""The work trees of a pool, one for each task: the task is claimed and its command runs there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from gitlease.kernel.git.branches import Branches
from gitlease.kernel.git.repository import CHECKOUT, Repository, ask, fit_name
from gitlease.kernel.ledger import claim
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.heartbeat import in_a_run
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    NotFound,
    PolicyRefused,
)
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.runs.records import RunPlace, claiming, runs_of
from gitlease.runs.worktrees import (
    drop_branch,
    drop_finished,
    folder_of,
    open_worktree,
    remove_worktree,
)
from gitlease.tasks.queue import Entry

BRANCHES = "work"  # the folder of branches, one for each task
KIND = "work"
MOVED = "reset: moving to "  # of git's reflog; a landing moves its branch so


class PassOver(Protocol):
    """Leaves a task alone for a while, and says why; ``where`` is what was kept of it."""

    def __call__(self, name: str, error: Exception, where: str = "") -> None: ...


@dataclass(frozen=True)
class TaskWorktree:
    """A work tree that was made for a task, its branch, and the ledger opened in it."""

    tree: Repository
    branch: str
    place: RunPlace

    @property
    def folder(self) -> str:
        return self.tree.toplevel or self.tree.git_dir


class PoolWorktrees:
    """Makes a linked work tree from ``base`` for a task, and claims the task there.

    ``open_at`` opens the ledger in a folder. ``lands``: a finished task lands on the base.
    """

    def __init__(
        self,
        place: RunPlace,
        base: str,
        *,
        open_at: Callable[[str], RunPlace],
        lands: bool,
        warn: Callable[[str], None],
        pass_over: PassOver,
    ) -> None:
        self.base = base
        self.lands = lands
        self._place = place
        self._open_at = open_at
        self._warn = warn
        self._pass_over = pass_over
        self._tidied = set[str]()
        self._claimed: dict[Resource, TaskWorktree] = {}

    def fetch(self) -> bool:
        """Fetch the base; return whether it is a remote's branch."""
        source = Branches(self._place.repository).tracked(self.base)
        if source is not None:
            Branches(self._place.repository).fetch(*source)
        return source is not None

    def claim(self, task: Task, options: ClaimOptions) -> Answer | None:
        """Claim a task in a new work tree; None if it was passed over."""
        name = task.resource.text
        try:
            worktree = self._open(task)
        except (GitleaseError, OSError) as error:
            self._pass_over(name, error)
            return None
        try:
            with claiming(worktree.place, options) as (run, noting):
                answer = claim.claim(worktree.place.ledger, [task.resource], noting)
        except GitleaseError as refusal:
            kept = remove_worktree(self._place.repository, worktree.tree)
            # git keeps the branch of a work tree that is kept.
            if not os.path.lexists(worktree.folder):
                drop_branch(self._place.repository, worktree.branch, self.base)
            if isinstance(refusal, LeaseHeld):
                self._warn(f"passed over: {refusal.message}")
            elif isinstance(refusal, Invalid | NotFound | PolicyRefused):
                where = worktree.folder if kept else f"branch {worktree.branch}"
                self._pass_over(name, refusal, where)
            else:
                raise
            return None
        self._claimed[task.resource] = worktree
        return replace(answer, run=run)

    def claimed_in(self, task: Task) -> TaskWorktree:
        """The work tree in which a task was claimed."""
        return self._claimed.pop(task.resource)

    def catch_up(self, worktree: TaskWorktree) -> None:
        """Take in what others landed before the claim: only now are their paths free."""
        if self.lands and self.fetch():
            merge = ("merge", "--ff-only", "--quiet", self.base)
            ask(worktree.tree, *merge, timeout=CHECKOUT)

    def remove(self, worktree: TaskWorktree) -> str | None:
        """Remove a work tree, and its branch if that has landed; return why it was kept."""
        kept = remove_worktree(self._place.repository, worktree.tree)
        if self.lands and kept is None:
            drop_branch(self._place.repository, worktree.branch, self.base)
        return kept

    def tidy(self, entries: Sequence[Entry], skip: Collection[str]) -> None:
        """Remove what is left here of tasks that were finished elsewhere, except those to skip."""
        repository = self._place.repository
        try:
            there = set(os.listdir(folder_of(repository))) - self._tidied
        except OSError:
            return
        runs = runs_of(self._place)
        for task in (x.task for x in entries if x.task.is_done):
            name = task.resource.text
            fit = fit_name(name)
            if fit not in there or fold(name) in skip:
                continue
            self._tidied.add(fit)
            if runs.in_the_way((), name, self._place.layer) is None:
                branch = f"{BRANCHES}/{fit}"
                with contextlib.suppress(GitleaseError):
                    drop_finished(repository, fit, branch=branch, base=self.base, file=task.file)

    def _open(self, task: Task) -> TaskWorktree:
        folder = fit_name(task.resource.text)
        branch = f"{BRANCHES}/{folder}"
        tree = open_worktree(self._place.repository, folder, branch=branch, base=self.base)
        if self.lands:
            self._undo_landing(tree, branch, task)
        opened = self._open_at(tree.toplevel or tree.git_dir)
        return TaskWorktree(tree, branch, in_a_run(opened, KIND, always=True))

    def _undo_landing(self, tree: Repository, branch: str, task: Task) -> None:
        """Move a branch back if a landing was killed and left its task finished, off the base."""
        # The base is known to be without it, since the task is taken. The command goes on from its
        # own commits.
        log = ask(tree, "reflog", "show", "--format=%H %gs", f"refs/heads/{branch}", "--")
        moves = [x.partition(" ") for x in os.fsdecode(log.out).splitlines()]
        for commit, _, why in moves:
            entry = self._place.queue.find(task.resource, ref=commit).entry
            if not why.startswith(MOVED) or entry is None or not entry.task.is_done:
                if commit != moves[0][0]:
                    ask(tree, "reset", "-q", "--keep", commit, timeout=CHECKOUT)
                return
