"""Merges at random, judged alike by the guard, the pushes, the check and the server.

What is right is said by an oracle that knows who landed what (``support.merges``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.merges import HELD, HOLDER, INVENTED, MERGER, PATHS, STRATEGIES, Landed
from support.remotes import Servers
from support.repos import commit_by_hand
from support.served import Host, serve

from gitlease.check.opening import CheckContext
from gitlease.guard.hooks import HookDecision
from gitlease.guard.opening import open_hooks
from gitlease.kernel.rules.errors import LeaseHeld
from gitlease.kernel.rules.viewpoint import Severity
from gitlease.landing.opening import open_push
from gitlease.landing.plan import PushRequest
from gitlease.verbs.findings import Level
from gitlease.wiring.workspace import open_workspace

pytestmark = pytest.mark.slow

SOME, MANY = range(8), range(8, 160)


class Table:
    """jo, who merges what is on a server, and kim, who holds src/auth/ there."""

    def __init__(self, host: Host) -> None:
        self.host, self.jo = host, host.person("jo")
        lease = host.person("kim").claim("src/auth/", ttl=7_200)
        self.trailer = f"Gitlease: src/auth token={lease.token}"
        # A client believes a token of no stranger's commit: who is in no trailer is a known bot.
        (self.root / ".git" / "info").mkdir(exist_ok=True)
        (self.root / ".git" / "info" / "exclude").write_text(".gitlease.yaml\n")
        (self.root / ".gitlease.yaml").write_text(f"bots: [{INVENTED}]\n")

    @property
    def root(self) -> Path:
        return self.jo.root

    def play(self, seed: int) -> None:
        """One merge, and what each judge says of it."""
        dice = random.Random(seed)
        landed = Landed(dice, self.trailer)
        landed.put_into(self.host.bare)
        self.jo.git("fetch", "-q", "--prune", "origin")
        names = landed.parents()
        self.prepare(names)
        made = landed.by_hand if dice.random() < 0.5 else lambda names: self.by_git(landed, names)
        files = made(names)
        by = HOLDER if dice.random() < 0.15 else MERGER
        broken = landed.broken(names, files) if by == MERGER else set()
        told = f"seed {seed}: {names} by {by}"
        pushed = broken | (landed.landing(names, files) if by == MERGER else set())
        right = {"guard": broken, "check": broken, "push": pushed, "server": pushed}
        right["gitlease push"] = set(sorted(pushed)[:1])
        assert self.judged(names, files, by) == right, told

    def prepare(self, names: Sequence[str]) -> None:
        for at in ("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG"):
            (self.root / ".git" / at).unlink(missing_ok=True)
        self.jo.git("reset", "-q", "--hard")
        self.jo.git("clean", "-fdq")
        self.jo.git("checkout", "-q", "-f", "--detach", f"origin/{names[0]}")

    def by_git(self, landed: Landed, names: Sequence[str]) -> dict[str, str]:
        """The tree of git's own merge, where somebody decides what conflicts, and more."""
        how = landed.dice.choice(STRATEGIES)
        others = [f"origin/{name}" for name in names[1:]]
        self.jo.run("merge", "-q", "--no-commit", "--no-ff", how, *others)
        unmerged = set(self.jo.git("diff", "--name-only", "--diff-filter=U").split())
        files = {x: (self.root / x).read_text() for x in PATHS if (self.root / x).exists()}
        sides = [landed.tips[name].files for name in names]
        for path in PATHS:
            if path in unmerged or landed.dice.random() < 0.15:
                landed.decide(path, files, sides)
        return files

    # --- the judges -------------------------------------------------------------------------------

    def judged(self, names: Sequence[str], files: dict[str, str], by: str) -> dict[str, set[str]]:
        """The held paths that each judge stops this merge for."""
        self.prepare(names)
        self.jo.git("config", "user.email", by)
        for path in PATHS:
            (self.root / path).unlink(missing_ok=True)
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        self.jo.git("add", "-A")
        parents = [self.jo.head(f"origin/{name}") for name in names]
        (self.root / ".git" / "MERGE_HEAD").write_text("".join(f"{x}\n" for x in parents[1:]))
        desk = open_hooks(str(self.root), environ={})
        found = {"guard": stopped(desk.hooks.pre_commit())}
        made = commit_by_hand(self.root, self.jo.git("write-tree"), parents, by)
        self.jo.git("update-ref", "--no-deref", "HEAD", made)
        (self.root / ".git" / "MERGE_HEAD").unlink()
        line = f"HEAD {made} refs/heads/main {self.jo.head('origin/main')}"
        found["push"] = stopped(desk.hooks.pre_push([line], "origin"))
        found["gitlease push"] = self.fenced()
        found["check"] = self.checked(made)
        found["server"] = self.received(by)
        return found

    def fenced(self) -> set[str]:
        opened = open_workspace(str(self.root), environ={})
        wish = PushRequest(remote="origin", refspecs=("HEAD:main",), hooks=False)
        try:
            open_push(opened).push(wish, dry_run=True)
        except LeaseHeld as refused:
            # It names the first of them, and its commit
            return {path for path in HELD if refused.message.startswith(f"{path} (commit ")}
        return set()

    def checked(self, made: str) -> set[str]:
        desk = CheckContext(str(self.root), environ={})
        chosen = desk.choose("origin/main..HEAD")
        every = desk.service(chosen).check().findings
        found = [x for x in every if x.commit == made and x.level is Level.ERROR]
        return {path for path in HELD for x in found if path in " ".join((x.message, *x.evidence))}

    def received(self, by: str) -> set[str]:
        user = by.partition("@")[0]
        done = self.jo.run("push", "-q", "origin", "HEAD:main", env={"GL_USER": user})
        if done.returncode == 0:
            return set()
        assert "refused (held)" in done.stderr, done.stderr
        return {path for path in HELD if f"{path} is held by {HOLDER}" in done.stderr}


def stopped(ruling: HookDecision) -> set[str]:
    found = {x.path for x in ruling.report.findings if x.severity is Severity.BLOCK}
    assert ruling.blocked == bool(found), ruling
    return found


@pytest.fixture
def table(tmp_path: Path, servers: Servers) -> Iterator[Table]:
    with serve("path", tmp_path, servers) as host:
        host.install()
        Landed(random.Random(0), "").put_into(host.bare)
        yield Table(host)


@pytest.mark.parametrize("seeds", [SOME, pytest.param(MANY, marks=pytest.mark.nightly)])
def test_merges_at_random_are_judged_alike(table: Table, seeds: range) -> None:
    for seed in seeds:
        table.play(seed)
