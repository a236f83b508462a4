"""Killed at each system call that changes something: the next command knows what became of it.

A sample runs with the slow tests. The complete sweep, whose results stand in tests/SOAK.md:

    SYSCALL_KILLS=complete .venv/bin/pytest -m slow -n 0 tests/stories/test_syscall_kills.py

A number instead of ``complete`` is how many calls of each command are tried; 300-350 are those.

What stays to be done by a person: where git itself is killed as it writes the person's own index or
branch (``--commit``), its lock stays there, as it does after any git that is killed. Every command
names it until it is gone, and the next one commits the edge.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import kill_nth
from support.availability import missing
from support.commands import run_program
from support.remotes import Remote, Servers
from support.repos import git, make_clone, run_git
from support.running import ROOT, until
from support.workers import Answer, Workers

pytestmark = pytest.mark.nightly

SEED = 13
SAMPLE = 3  # calls of each command, each of both kinds of kill
TASK = "---\nid: F001\nstatus: todo\nassigned: []\n---\n\nText.\n"
JO, KIM = "jo@example.com", "kim@example.com"
_GIT = shutil.which("git") or "git"
TYPED = {0, 1, 3, 4, 5, 7}


@dataclass(frozen=True)
class Command:
    """What is killed, and what it finds: whether the lease is held before.

    ``by_libgit``: as a process that lives long writes the copy of the ledger.
    """

    words: tuple[str, ...]
    held: bool
    by_libgit: bool = False

    @property
    def verb(self) -> str:
        return self.words[0]

    @property
    def resource(self) -> str:
        return self.words[1]


COMMANDS = {
    "claim": Command(("claim", "deploy", "--any"), held=False),
    "renew": Command(("renew", "deploy"), held=True),
    "release": Command(("release", "deploy"), held=True),
    "assign": Command(("claim", "F001"), held=False),
    "assign and commit": Command(("claim", "F001", "--commit"), held=False),
    "unassign": Command(("release", "F001"), held=True),
    "unassign and commit": Command(("release", "F001", "--commit"), held=True),
    "claim by libgit2": Command(("claim", "deploy", "--any"), held=False, by_libgit=True),
    "renew by libgit2": Command(("renew", "deploy"), held=True, by_libgit=True),
}
LONG_LIVED = """\
from gitlease.cli import call
call.LONG |= {"claim", "renew"}
from gitlease.__main__ import main
main()
"""


class Stage:
    """Two people's clones and what they share, put back as it was before each kill."""

    def __init__(self, folder: Path, remote: Remote, servers: Servers, command: Command) -> None:
        self.command, self._servers = command, servers
        self._now, self._saved = folder / "now", folder / "saved"
        self._bare = remote.bare
        self.jo = make_clone(remote, self._now / "jo", JO, "Jo")
        (self.jo / "tasks").mkdir()
        (self.jo / "tasks" / "F001.md").write_text(TASK, encoding="utf-8")
        git(self.jo, "add", "tasks")
        git(self.jo, "commit", "-q", "-m", "tasks")
        git(self.jo, "push", "-q", "origin", "HEAD:main")
        self.kim = make_clone(remote, self._now / "kim", KIM, "Kim")
        self.people = Workers([(["-C", str(x)], {}) for x in (self.jo, self.kim)])
        for number in (0, 1):
            assert self.people.one(number, "claim", f"own{number}", "--any").exit == 0
        if command.held:
            more = command.words[2:] if "--commit" in command.words else ()
            assert self.ask(0, "claim", command.resource, "--any", *more).exit == 0
        assert self.ask(1, "list").exit == 0
        shutil.copytree(self._now, self._saved / "now", symlinks=True)
        shutil.copytree(self._bare, self._saved / "bare", symlinks=True)

    def ask(self, who: int, *words: str) -> Answer:
        return self.people.one(who, *words)

    def put_back(self) -> None:
        for saved, now in ((self._saved / "now", self._now), (self._saved / "bare", self._bare)):
            shutil.rmtree(now)
            shutil.copytree(saved, now, symlinks=True)

    def kill(self, number: int, whom: str) -> dict[str, Any]:
        """Run Jo's command and kill it there; what came of it, with its answer if it gave one."""
        tracer = [sys.executable, kill_nth.__file__, str(number), whom, "--"]
        program = ["-c", LONG_LIVED] if self.command.by_libgit else ["-m", "gitlease"]
        command = [sys.executable, *program, "--json", "-C", str(self.jo)]
        done = run_program(
            [*tracer, *command, *self.command.words],
            None,
            {"PYTHONPATH": ROOT, "PATH": os.path.dirname(_GIT)},
        )
        found: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
        found["answer"] = json.loads(done.stdout) if done.stdout.endswith("}\n") else None
        found["said"] = done.stdout + done.stderr
        until(lambda: not self._servers.http.busy, "the end of what the server does")
        return found

    def leases(self, who: int) -> dict[str, str]:
        """The holder of each live lease, as somebody finds it on the remote."""
        found = self.ask(who, "list")
        assert found.exit == 0, found
        names = [lease["resource"] for lease in found.document["leases"]]
        assert len(names) == len(set(names)), names
        return {lease["resource"]: lease["holder"] for lease in found.document["leases"]}

    def assigned(self) -> list[str]:
        text = (self.jo / "tasks" / "F001.md").read_text(encoding="utf-8")
        (line,) = [line for line in text.splitlines() if line.startswith("assigned:")]
        return [JO] if JO in line else []

    def judge(self, found: dict[str, Any]) -> str:
        """See that nothing is broken, that the next commands know, and that they go on from there.

        Whether the command took effect, "held" or "free", and whether git left a lock.
        """
        verb, resource = self.command.verb, self.command.resource
        assert "Traceback" not in found["said"]
        assert found["exit"] in TYPED | {-9}
        status = self.ask(0, "status")
        assert status.exit == 0, status
        holder = self.leases(1).get(resource)
        assert holder in (JO, None)
        if found["exit"] == 0:
            assert found["answer"]["ok"], found
            assert (holder is None) == (verb == "release"), "it said so"
        if verb == "renew":
            assert holder == JO
        if resource == "F001":
            assert self.assigned() == ([JO] if holder else []), "lease and edge agree"
        outcome = "held" if holder else "free"
        if left := self._locks():
            self._unlock(left)
            outcome += ", and git's lock left"
        again = self.ask(0, *self.command.words)
        assert again.exit == 0, again
        rival = self.ask(1, "claim", resource, "--any")
        if verb == "release":
            assert rival.exit == 0, rival
        else:
            assert rival.code == "held", rival
            assert rival.document["error"]["holder"] == JO
        if resource == "F001":
            assert self.assigned() == ([] if verb == "release" else [JO])
        if "--commit" in self.command.words:
            assert git(self.jo, "status", "--porcelain") == ""
        self._git_works()
        return outcome

    def _locks(self) -> list[Path]:
        own = self.jo / ".git" / "gitlease"
        return [x for x in (self.jo / ".git").rglob("*.lock") if not x.is_relative_to(own)]

    def _unlock(self, left: list[Path]) -> None:
        """Every command names the lock of a killed git, and the next one after that commits.

        Where the edge is committed already gitlease has no need of it: then git itself names it.
        """
        assert "--commit" in self.command.words, left
        for words in () if self._committed() else (("status",), self.command.words):
            said = f"{self.ask(0, *words).document}"
            assert any(str(lock) in said for lock in left), (left, said)
            assert "Once no git is running here, remove that file." in said, said
        for lock in left:
            lock.unlink()
        assert self.ask(0, "status").exit == 0
        assert self._committed()

    def _committed(self) -> bool:
        """Whether the edge is committed as the command has it."""
        assigned = JO in git(self.jo, "show", "HEAD:tasks/F001.md")
        return assigned == (self.command.verb == "claim")

    def _git_works(self) -> None:
        """The person's own repository is whole, and nothing in it is locked."""
        assert not self._locks()
        checked = run_git(self.jo, "fsck", "--strict", "--no-dangling")
        assert checked.returncode == 0, checked
        assert all(line[3:] == "tasks/F001.md" for line in self._changed())

    def _changed(self) -> list[str]:
        return run_git(self.jo, "status", "--porcelain").stdout.splitlines()


@pytest.fixture(params=list(COMMANDS))
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, http_remote: Remote, servers: Servers
) -> Iterator[Stage]:
    if not kill_nth.calls():
        missing("system calls are traced on Linux on x86_64 and aarch64 only")
    made = Stage(tmp_path, http_remote, servers, COMMANDS[request.param])
    with made.people:
        yield made


@pytest.mark.slow(
    *("claim-caller", "renew-all", "assign-caller", "assign and commit-all", "unassign-caller"),
    "claim by libgit2-caller",
)
@pytest.mark.parametrize("whom", ["caller", "all"])
def test_a_kill_at_any_system_call_leaves_nothing_to_repair(
    stage: Stage, whom: str, capsys: pytest.CaptureFixture[str]
) -> None:
    how_many = os.environ.get("SYSCALL_KILLS", str(SAMPLE))
    everything = stage.kill(0, whom)
    assert everything["exit"] == 0, everything
    assert everything["calls"] > 50, everything
    # Another time it may make a few calls more.
    numbers = list(range(1, everything["calls"] + 20))
    if "-" in how_many:
        first, _, last = how_many.partition("-")
        numbers = list(range(int(first), int(last) + 1))
    elif how_many != "complete":
        chosen = random.Random(f"{SEED}/{stage.command.words}/{whom}")
        numbers = sorted(chosen.sample(range(1, everything["calls"] + 1), int(how_many)))
    outcomes, wrong = Counter[str](), []
    for number in numbers:
        stage.put_back()
        found = stage.kill(number, whom)
        if not found["killed"]:
            continue
        try:
            outcomes[stage.judge(found)] += 1
        except AssertionError as error:
            wrong.append(f"{number}, {found['killed'][:300]}: {str(error)[:800]}")
    with capsys.disabled():
        by_name = everything["by_name"]
        print(f"\n{' '.join(stage.command.words)}, {whom}: {dict(outcomes)}, {by_name}", flush=True)
    assert not wrong, "\n".join(wrong)
    assert outcomes
