"""Whatever is wrong with gitlease, git goes on, with one warning; and it costs next to nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.faults import FaultProxy, stall
from support.fences import clean_env
from support.ledgers import door
from support.remotes import Remote, Servers, open_remote
from support.repos import git, make_clone, run_git, settle
from support.snapshots import check_words, cleaned

from gitlease.guard.hook_places import SCRIPTS
from gitlease.guard.install import install_hooks
from gitlease.guard.opening import HookContext, open_hooks
from gitlease.kernel.git.repository import discover
from gitlease.kernel.git.run import SystemClock

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "tests" / "agents" / "agent_events"
TOOLS = Path(sys.executable).parent
HEAVY = {
    *("click", "pygit2", "yaml", "dataclasses", "inspect", "hashlib", "asyncio"),
    *("ssl", "socket", "logging", "tempfile"),
}
Clones = Callable[..., list[Path]]


@dataclass
class Hooked:
    """A clone with its hooks really installed, and the environment in which git runs in it."""

    root: Path
    remote: Remote
    path: str

    @property
    def own(self) -> Path:
        return self.root / ".git" / "gitlease"

    def env(self, **more: str) -> dict[str, str]:
        return {**self.remote.env, "PATH": self.path, **more}

    def change(self, name: str = "src/auth/login.py") -> None:
        """Stage a change that was not there before."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.write("more\n")
        git(self.root, "add", "--", name)

    def commit(self, name: str = "src/auth/login.py", *options: str) -> tuple[int, list[str]]:
        """Commit a change; how git ended, and the lines of gitlease."""
        self.change(name)
        return self._said("commit", "-q", "-m", "x", *options)

    def push(self, to: str, branch: str = "new") -> tuple[int, list[str]]:
        return self._said("push", "-q", to, f"HEAD:refs/heads/{branch}")

    def _said(self, *words: str) -> tuple[int, list[str]]:
        done = run_git(self.root, *words, env=self.env())
        assert "internal error" not in done.stderr, done.stderr
        lines = [x for x in done.stderr.splitlines() if x.startswith("gitlease:")]
        return done.returncode, lines


def hooked(root: Path, remote: Remote, *, settings: str = "") -> Hooked:
    """Install the hooks of a clone, for the gitlease of these tests."""
    install_hooks(discover(str(root)), program="")
    if settings:
        (root / ".gitlease.yaml").write_text(settings)
    settle(root / ".git" / "config")
    return Hooked(root, remote, f"{TOOLS}:{clean_env()['PATH']}")


@pytest.fixture
def jo(path_remote: Remote, clones: Clones) -> Hooked:
    return hooked(clones(1)[0], path_remote)


@pytest.fixture
def kim(jo: Hooked, clones: Clones) -> Path:
    """Kim's clone of the same remote."""
    return clones(1)[0]


def claim(clone: Path, *names: str, layer: str | None = None) -> None:
    """Claim by the clock of this machine, which the hooks go by."""
    door(clone, clock=SystemClock(), layer=layer).claim_all(list(names))


BROKEN = {
    "is killed": "#!/bin/sh\nkill -9 $$\n",
    "cannot be imported": f"#!{sys.executable} -IS\nimport gitlease\n",
}


def without_gitlease(path: str) -> str:
    """The PATH without each folder that has a gitlease."""
    folders = [x for x in path.split(":") if not os.path.exists(f"{x}/gitlease")]
    return ":".join(folders)


def in_the_way(jo: Hooked, text: str, tmp_path: Path) -> None:
    """Another gitlease comes first on PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gitlease").write_text(text)
    (tools / "gitlease").chmod(0o755)
    jo.path = f"{tools}:{without_gitlease(jo.path)}"


@pytest.mark.default("is killed")
@pytest.mark.nightly
@pytest.mark.parametrize("broken", [*BROKEN, "is missing"])
def test_a_gitlease_that_is_broken_stops_neither_commit_nor_push(
    jo: Hooked, tmp_path: Path, broken: str
) -> None:
    jo.path = without_gitlease(jo.path)
    if broken in BROKEN:
        in_the_way(jo, BROKEN[broken], tmp_path)
    for status, lines in (jo.commit(), jo.push("origin")):
        assert (status, len(lines)) == (0, 1), lines
        check_words(lines)
    assert git(jo.root, "log", "-1", "--format=%B").strip() == "x"


def test_a_remote_that_hangs_is_waited_for_once(servers: Servers, tmp_path: Path) -> None:
    """Each connection is given a second; the next commit does not wait at all."""
    with (
        open_remote("http", tmp_path / "far", servers=servers) as remote,
        FaultProxy(remote.port) as proxy,
    ):
        clone = make_clone(remote, tmp_path / "far-clone", "w1@example.com", "Worker 1")
        git(clone, "remote", "set-url", "origin", remote.through(proxy.port).url)
        jo = hooked(clone, remote, settings="guard: {timeout: 1s}\n")
        proxy.arm(stall("down", 0))
        for connections in (1, 1):
            status, lines = jo.commit()
            assert (status, len(lines)) == (0, 1), lines
            check_words(lines)
            assert proxy.connections == connections
        proxy.disarm()


def every_file(folder: Path) -> list[Path]:
    """All but the hooks that newer versions of git are told to run from there."""
    files = (x for x in sorted(folder.rglob("*")) if x.is_file())
    return [x for x in files if x.parent != folder / SCRIPTS]


def empty(folder: Path) -> None:
    """Remove all but the hooks."""
    for one in folder.iterdir():
        if one.is_dir() and one.name != SCRIPTS:
            shutil.rmtree(one)
        elif one.is_file():
            one.unlink()


def garble(files: list[Path], data: bytes) -> None:
    for file in files:
        file.chmod(0o600)
        file.write_bytes(data)


def replaced(folder: Path) -> None:
    """A file stands where the folder was."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("x")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "state": lambda own: garble(every_file(own / "state"), b"\0garbage"),
    "store": lambda own: garble(every_file(own / "store.git"), b"\0garbage"),
    "a file for the store": lambda own: replaced(own / "store.git"),
    "everything": lambda own: empty(own),
}


@pytest.mark.nightly
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_here_is_made_anew_and_the_guard_still_guards(
    jo: Hooked, kim: Path, damage: str
) -> None:
    """The remote still knows: nothing that this clone keeps is needed to find out."""
    claim(kim, "src/auth/**")
    claim(jo.root, "docs/**")
    assert jo.commit()[0] == 1
    DAMAGE[damage](jo.own)
    for _ in range(2):
        status, lines = jo.commit()
        assert (status, len(lines)) == (1, 2), lines
        check_words([cleaned(line) for line in lines])
    git(jo.root, "reset", "-q", "--", "src")
    assert jo.commit("free.txt") == (0, [])


def test_a_commit_opens_no_connection_while_the_knowledge_is_fresh(jo: Hooked, kim: Path) -> None:
    claim(jo.root, "docs/**")
    claim(kim, "src/**")
    asked = jo.remote.connections()
    assert jo.commit("free.txt") == (0, [])  # what was claimed here is fresh, though not Kim's
    assert jo.remote.connections() == asked
    for name in ("free.txt", "docs/a.md"):
        assert jo.commit(name) == (0, [])
        assert jo.commit(name, "--amend")[0] == 0
    assert jo.remote.connections() == asked


def test_a_push_asks_for_all_layers_at_once(jo: Hooked, kim: Path) -> None:
    git(jo.root, "config", "lease.layer", "mine")
    claim(jo.root, "docs/**")
    claim(jo.root, "docs/**", layer="global")
    assert jo.commit("free.txt")[0] == 0
    asked = jo.remote.connections()
    assert jo.push("origin") == (0, [])
    assert jo.remote.connections() == asked + 2, "git's own, and one for both layers"
    git(kim, "pull", "-q", env=jo.remote.env)
    claim(kim, "src/**", layer="mine")
    assert jo.commit("src/a.py", "--no-verify")[0] == 0
    asked = jo.remote.connections()
    status, lines = jo.push("origin")
    assert status == 1
    assert "src/a.py" in "".join(lines)
    assert jo.remote.connections() == asked + 4, "for what has moved, and whose work that is"


@pytest.mark.nightly
def test_knowledge_that_is_old_is_asked_for_once_by_all_hooks_of_a_commit(
    path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = Busy(path_remote, clones, monkeypatch)
    for seconds, connections in ((0, 1), (30, 0), (30, 0), (1, 1), (60, 0), (1, 1), (600, 1)):
        worker.clock.advance(seconds)
        before = path_remote.connections()
        worker.commits()
        assert path_remote.connections() - before == connections, seconds


class Busy:
    """Somebody who commits all the time, in this process and by a clock of the test."""

    def __init__(self, remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
        remote.open_to(monkeypatch)
        self.remote, self.clock = remote, ManualClock()
        self.clone, self.other = clones(2)
        (self.clone / "a.txt").write_text("a")
        git(self.clone, "add", "-A")
        self.message = self.clone / ".git" / "COMMIT_EDITMSG"

    def context(self) -> HookContext:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("GITLEASE_")}
        return open_hooks(str(self.clone), environ=environ, clock=self.clock)

    def commits(self) -> None:
        """The hooks of one commit, but for the heartbeat."""
        assert not self.context().hooks.pre_commit().blocked
        self.message.write_text("x\n")
        self.context().hooks.name_leases(str(self.message))
        self.context().guard.refresh()

    def beats(self) -> None:
        """What post-commit has done in the background, where it is time."""
        if self.context().guard.due():
            self.context().beat()

    def live(self) -> list[str]:
        """What is held, as the other clone sees it."""
        found = door(self.other, clock=self.clock).list()
        return sorted(x.resource for x in found if x.state == "active" and x.expires_in > 0)


NAMES = ["F001", "F002", "src/**"]


@pytest.fixture
def worker(path_remote: Remote, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> Busy:
    """Somebody who is busy and holds several things."""
    busy = Busy(path_remote, clones, monkeypatch)
    door(busy.clone, clock=busy.clock).claim_all(NAMES, ttl="15m")
    return busy


def test_a_busy_committer_pushes_at_most_twelve_times_an_hour(worker: Busy) -> None:
    before = worker.remote.pushes()
    for minute in range(30):
        worker.clock.advance(60)
        worker.commits()
        worker.beats()
        if minute % 5 == 4:
            assert worker.live() == NAMES
    assert worker.remote.pushes() - before <= 6
    renewals = {x.renewals for x in door(worker.other, clock=worker.clock).list()}
    assert renewals == {worker.remote.pushes() - before}  # each push renewed them all


def test_a_heartbeat_that_fails_is_told_once_by_the_next_hook(worker: Busy) -> None:
    worker.commits()
    worker.clock.advance(400)
    away = worker.remote.bare.with_name("away.git")
    worker.remote.bare.rename(away)
    for _ in range(2):
        worker.context().beat()
    (message,) = worker.context().inbox.take()
    check_words(message)
    assert worker.context().inbox.take() == ()
    away.rename(worker.remote.bare)
    worker.beats()
    assert worker.context().inbox.take() == ()
    assert worker.live() == NAMES


LIST = """\
import json, sys
from gitlease.guard.entry import run_hook
status = run_hook(sys.argv[1:])
print(json.dumps([status, sorted(sys.modules)]))
"""
LIST_AGENT = """\
import io, json, sys
from gitlease.agents import handling
status = handling.run(sys.argv[1:], stdin=sys.stdin.buffer)
print(json.dumps([status, sorted(sys.modules)]))
"""


def modules(
    jo: Hooked, *argv: str, code: str = LIST, data: bytes = b"", site: bool = False
) -> tuple[int, set[str], list[str]]:
    """The status of a hook in a process of its own, what it has imported, and what it said.

    Without site-packages, unless ``site``: whatever is needed from there would fail, and be said.
    """
    done = subprocess.run(
        [sys.executable, *([] if site else ["-S"]), "-c", code, *argv],
        cwd=jo.root,
        env=clean_env({**jo.env(), "PYTHONPATH": str(ROOT)}),
        input=data,
        capture_output=True,
        timeout=60,
        check=True,
    )
    status, found = json.loads(done.stdout.splitlines()[-1])
    tops = {name.partition(".")[0] for name in found}
    return status, tops, done.stderr.decode().splitlines()


@pytest.mark.nightly
def test_hooks_with_fresh_knowledge_import_little(jo: Hooked, kim: Path) -> None:
    (jo.root / ".gitlease.yaml").write_text("guard: {timeout: 2s}\n")
    claim(kim, "src/auth/**")
    assert jo.commit("free.txt") == (0, [])
    jo.change("free.txt")
    status, imported, lines = modules(jo, "pre-commit")
    assert (status, lines, imported & HEAVY) == (0, [], set())
    jo.change()
    status, imported, lines = modules(jo, "pre-commit")
    assert (status, len(lines), imported & HEAVY) == (1, 2, set())
    message = jo.root / ".git" / "COMMIT_EDITMSG"
    message.write_text("x\n")
    for name in ("prepare-commit-msg", "commit-msg", "post-commit", "post-checkout", "post-merge"):
        status, imported, lines = modules(jo, name, str(message), "message")
        assert (status, lines, imported & HEAVY) == (0, [], set()), name


def test_an_agents_tool_that_has_nothing_due_imports_little(jo: Hooked) -> None:
    claim(jo.root, "src/auth/**")
    assert jo.commit() == (0, [])
    names = [x for x in sorted(EVENTS.glob("*-after-tool*.json")) if "subagent" not in x.name]
    assert names
    for file in names:
        event = file.read_text().replace("/repo", str(jo.root)).encode()
        host = file.name.partition("-")[0]
        for _ in range(2):  # looks at what is held, and notes that under a lock of filelock
            modules(jo, host, "after-tool", code=LIST_AGENT, data=event, site=True)
        done = modules(jo, host, "after-tool", code=LIST_AGENT, data=event)
        status, imported, lines = done
        assert (status, lines, imported & HEAVY) == (0, [], set()), file.name
