"""What git's hooks cost: a commit with and without them, and each hook alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from support.remotes import Remote
from support.repos import git, make_clone, settle

from benchmarks.bench import ROOT, Bench
from benchmarks.verb_bench import START

PLAIN = "commit without hooks"
FREE, BUSY = "nothing held", "others hold"
GATED = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")
GATE_AIM_MS = 3.0  # a hook that has nothing to do
COMMIT_AIM_MS = 8.0  # all of them together, in one commit
LOOK_AIM = 9  # starts of Python of a hook that has to look


class HookBench(Bench):
    """Three clones of one remote: without hooks, with nothing held, and with others at work."""

    base = PLAIN

    def __init__(self, remote: Remote, folder: Path, python: str) -> None:
        super().__init__(remote, folder, python)
        self._clones = {PLAIN: self.clone}
        for state in (FREE, BUSY):
            clone = make_clone(remote, folder / state.replace(" ", "-"), "jo@example.com", "Jo")
            git(clone, "config", "lease.layer", state.replace(" ", "-"))
            git(clone, "config", "lease.guardMaxAge", "1h")
            self._gitlease(clone, "hooks", "install")
            settle(clone / ".git" / "config")
            self._clones[state] = clone
        self._gitlease(self.clone, "claim", "elsewhere/", "--ttl", "8h", "--layer", "others-hold")
        self._number = 0
        for clone in self._clones.values():
            self._change(clone)
            self._timed("warm-up", clone, ["git", "commit", "-qm", "warm-up"])
        self.timings.clear()

    def names(self) -> list[str]:
        """What is compared with, commits with hooks, each hook alone."""
        commits = [f"commit, {state}" for state in (FREE, BUSY)]
        alone = [f"{hook}, {FREE}" for hook in GATED]
        return [PLAIN, START, *commits, *alone, f"pre-commit, {BUSY}", "pre-push"]

    def aim(self, name: str, took: float, base: float) -> bool | None:
        """By whether the hook has to look, and of a push by its connections."""
        if name == "pre-push":
            return max(self.timings[name].connections) <= 1
        if name == f"commit, {FREE}":
            return took - base <= COMMIT_AIM_MS
        if name == f"pre-commit, {BUSY}":
            return took <= LOOK_AIM * median(self.timings[START].ms)
        return took <= GATE_AIM_MS if name.endswith(f", {FREE}") else None

    def round(self) -> None:
        """A commit in each clone, and each hook alone."""
        self._timed(START, self.clone, [self.python, "-c", "pass"])
        for state, clone in self._clones.items():
            self._change(clone)
            if state != PLAIN:
                self._hook(state, clone, "pre-commit")
            name = state if state == PLAIN else f"commit, {state}"
            self._timed(name, clone, ["git", "commit", "-qm", f"change {self._number}"])
        message = self._clones[FREE] / ".git" / "COMMIT_EDITMSG"
        for hook in GATED[1:]:
            words = [str(message)] if "msg" in hook else []
            self._hook(FREE, self._clones[FREE], hook, *words)
        self._timed("pre-push", self._clones[BUSY], ["git", "push", "-q", "--dry-run"])

    def _hook(self, state: str, clone: Path, hook: str, *words: str) -> None:
        line = ["sh", str(clone / ".git" / "hooks" / hook), *words]
        self._timed(f"{hook}, {state}", clone, line)

    def _change(self, clone: Path) -> None:
        self._number += 1
        (clone / "changed").write_text(f"change {self._number}\n", encoding="utf-8")
        git(clone, "add", "changed")

    def _gitlease(self, clone: Path, *words: str) -> None:
        self._timed(words[0], clone, [self.python, "-m", "gitlease", *words])

    def _timed(self, name: str, clone: Path, line: list[str]) -> None:
        env: Mapping[str, str] = {**self.env, "PYTHONPATH": str(ROOT)}
        self._process(name, line, env, cwd=clone)
