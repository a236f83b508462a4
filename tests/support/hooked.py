"""Two people with a clone each of one bare remote, and gitlease's hooks installed in both."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gitlease.guard.notes import STARTED
from gitlease.kernel.git.files import Notes
from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.ledger.answers import ClaimOptions
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import parse_resource
from gitlease.wiring.workspace import Workspace, open_workspace
from support.clock import ManualClock
from support.commands import run_gitlease
from support.repos import copy_repository, git, make_repository, real_clone, run_git, settle
from support.session import LeaseService

MINUTE = 60
NAMES = ("jo", "kim")
JO, KIM = "jo@example.com", "kim@example.com"
# What a refusal must never tell: agents run what they read.
WAYS_AROUND = re.compile(
    r"no-verify|GITLEASE_SKIP|guard\.?mode|takeover|--force|\brevoke\b|bypass|override|\boff\b|"
    r"hooksPath|uninstall|\bwarn\b",
    re.IGNORECASE,
)
CODE = "".join(f"line {number}\n" for number in range(30))

Done = subprocess.CompletedProcess[str]


def task_text(name: str, *, status: str = "todo", assigned: str = "[]", paths: str = "") -> str:
    """A task file."""
    more = f"paths: [{paths}]\n" if paths else ""
    head = f"id: {name}\ntitle: work on {name}\nstatus: {status}\nassigned: {assigned}\n{more}"
    return f"---\n{head}---\n# {name}\n\nText.\n"


def share_tasks(
    clones: Sequence[Path],
    names: Iterable[str],
    env: Mapping[str, str],
    text: Callable[[str], str] = task_text,
) -> None:
    """Commit and push task files from the first clone; the others pull them."""
    first, *others = clones
    (first / "tasks").mkdir()
    for name in names:
        (first / "tasks" / f"{name}.md").write_text(text(name), encoding="utf-8")
    git(first, "add", "tasks")
    git(first, "commit", "-q", "-m", "tasks")
    git(first, "push", "-q", "origin", "HEAD:main", env=env)
    for clone in others:
        git(clone, "pull", "-q", "origin", "main", env=env)


FILES = {
    "README": "read me\n",
    "src/api/login.py": CODE,
    "src/api/limits.py": CODE.replace("line", "limit"),
    "src/web/page.py": CODE.replace("line", "page"),
    "docs/guide.md": CODE.replace("line", "guide"),
    "tasks/F001.md": task_text("F001", paths="src/api"),
    "tasks/F002.md": task_text("F002"),
    "tasks/F003.md": task_text("F003", status="in_progress"),
}


@dataclass
class Person:
    """One of the two, in one work tree. ``env`` is added to what every command of theirs gets."""

    name: str
    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def email(self) -> str:
        return f"{self.name}@example.com"

    @property
    def private(self) -> Path:
        """What gitlease keeps in this clone."""
        return self.root / ".git" / "gitlease"

    def run(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        input: str | None = None,
    ) -> Done:
        """Run git; however it ends."""
        return run_git(cwd or self.root, *words, env={**self.env, **(env or {})}, input=input)

    def git(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Run git, which must succeed; its output."""
        return git(self.root, *words, env={**self.env, **(env or {})})

    def gitlease(self, *words: str) -> Done:
        """Run a command of gitlease's."""
        return run_gitlease(words, self.root, self.env)

    def put(self, name: str, text: str | None = None) -> Path:
        """Write a file and stage it; without a text, the same with a line more."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            text = (path.read_text(encoding="utf-8") if path.exists() else "") + "one more line\n"
        path.write_text(text, encoding="utf-8")
        self.git("--literal-pathspecs", "add", "--", name)
        return path

    def commit(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        """Commit what is staged, with a message unless the words bring one."""
        brings = {"-m", "-F", "--amend", "-C", "-c", "-t", "-v", "--no-edit", "-e", "--squash"}
        message = () if brings & {w.partition("=")[0] for w in words} else ("-m", "work")
        return self.run("commit", "-q", *message, *words, env=env)

    def saves(self, *names: str, message: str = "work") -> str:
        """Change files and commit them past every hook; the commit's id."""
        for name in names:
            self.put(name)
        skip = {"GITLEASE_SKIP": "1"}
        self.git("commit", "-q", "-m", message, env=skip)
        return self.head()

    def head(self, name: str = "HEAD") -> str:
        return self.git("rev-parse", "-q", "--verify", name)

    def message(self, name: str = "HEAD") -> str:
        return self.run("log", "-1", "--format=%B", name).stdout

    def trailers(self) -> list[str]:
        """What the trailers of ours say, as git itself reads them."""
        form = "--format=%(trailers:key=Gitlease,valueonly,unfold)"
        return self.git("log", "-1", form).splitlines()

    # --- the ledger, in this process --------------------------------------------------------------

    def at(
        self,
        *,
        clock: ManualClock | None = None,
        session: str | None = None,
        layer: str | None = None,
    ) -> Workspace:
        return open_workspace(str(self.root), clock=clock, session=session, layer=layer, environ={})

    def claim(
        self,
        *names: str,
        ago: int = 0,
        ttl: int | None = None,
        scope: str = "*",
        session: str | None = None,
        layer: str | None = None,
        paths: tuple[str, ...] = (),
        reason: str | None = None,
    ) -> LeaseView:
        """Claim, as it were so many seconds ago; the (first) lease."""
        clock = past(ago) if ago else None
        answer = LeaseService(self.at(clock=clock, session=session, layer=layer).ledger).claim(
            [parse_resource(name) for name in names],
            ClaimOptions(scope=scope, ttl=ttl, paths=paths, reason=reason, any_name=True),
        )
        return answer.leases[0]

    def release(self, name: str) -> None:
        LeaseService(self.at().ledger).release([parse_resource(name)])

    def beats(self) -> int:
        """How many heartbeats hooks started."""
        names = Notes(str(self.private)).of(STARTED)
        return sum(not name.startswith("main ") for name in names)  # a fetch of the main branch


@dataclass
class Pair:
    """jo and kim, their remote, and a gitlease that writes down which hooks call it."""

    base: Path

    def __post_init__(self) -> None:
        self.remote = self.base / "remote.git"
        self.calls_file = self.base / "calls"
        env = {"CALLS": str(self.calls_file)}
        self.jo, self.kim = (Person(name, self.base / name, dict(env)) for name in NAMES)

    def calls(self) -> list[str]:
        """The hooks that called gitlease since the last time this was asked."""
        if not self.calls_file.exists():
            return []
        lines = self.calls_file.read_text(encoding="utf-8").splitlines()
        self.calls_file.unlink()
        return [line.split()[1] for line in lines if line.startswith("hook ")]

    def leases(self) -> dict[str, LeaseView]:
        """What the ledger on the remote says now of every lease, by resource."""
        read = LeaseService(self.kim.at().ledger).read()
        return {view.resource: view for view in read.leases}

    def ledger(self, layer: str = "global") -> str:
        """The id of the ledger's newest commit on the remote, empty where there is none."""
        return run_git(self.remote, "rev-parse", "-q", "--verify", f"refs/gitlease/{layer}").stdout

    def on_remote(self, name: str) -> str:
        """The id that a branch of the remote has, empty where there is none."""
        found = run_git(self.remote, "rev-parse", "-q", "--verify", name).stdout
        return found.strip()


def past(seconds: int) -> ManualClock:
    """A clock that stands so long ago, within the same boot of this machine."""
    now = SystemClock().now()
    long = seconds * 1_000
    return ManualClock(now.wall_ms - long, now.boot_ms - long, now.boot_id)


def make_pair(base: Path) -> Pair:
    """A fresh pair below ``base``, to be copied by ``copy_pair`` for each test."""
    pair = Pair(base)
    program = base / "bin" / "gitlease"
    program.parent.mkdir()
    start = shlex.join([sys.executable, "-P", "-m", "gitlease"])
    program.write_text(
        f'#!/bin/sh\n[ -z "${{CALLS-}}" ] || echo "$*" >>"$CALLS"\nexec {start} "$@"\n'
    )
    program.chmod(0o755)
    git(base, "init", "-q", "--bare", "-b", "main", str(pair.remote))
    make_repository(pair.jo.root)
    pair.jo.git("remote", "add", "origin", str(pair.remote))
    for name, text in FILES.items():
        pair.jo.put(name, text)
    pair.jo.git("commit", "-q", "-m", "begin")
    pair.jo.git("push", "-q", "-u", "origin", "main")
    real_clone(pair.remote, pair.kim.root, KIM)
    for one in (pair.jo, pair.kim):
        done = one.gitlease("hooks", "install")
        assert done.returncode == 0, done.stderr
        (one.private / "program").write_text(f"{program}\n", encoding="utf-8")
    pair.calls()
    return pair


def copy_pair(made: Pair, base: Path) -> Pair:
    """The same anew for one test: only the remote's place differs."""
    pair = Pair(base)
    copy_repository(made.remote, pair.remote, {})
    for old, new in ((made.jo, pair.jo), (made.kim, pair.kim)):
        copy_repository(old.root, new.root, {str(made.remote): str(pair.remote)})
        settle(new.root / ".git" / "config")
    return pair


def blocks(done: Done, *, holder: str = KIM) -> str:
    """That git was stopped as it should: by whom and until when, never a way around it."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert f"is held by {holder}" in done.stderr, done.stderr
    assert re.search(r"until \S*\d\d:\d\d:\d\dZ, expires in \d", done.stderr), done.stderr
    assert not (found := WAYS_AROUND.search(done.stderr)), (found, done.stderr)
    return done.stderr


def goes_on(done: Done, *said: str) -> str:
    """That git did it; each of the texts is in what was said, and with none, nothing was."""
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    for text in said:
        assert text in done.stderr, done.stderr
    if not said:
        assert "gitlease" not in done.stderr, done.stderr
    return done.stderr


def script(path: Path, text: str) -> str:
    """A script for GIT_EDITOR and the like; the words that start it."""
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return shlex.quote(os.fspath(path))
