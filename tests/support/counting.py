"""What one command costs, counted exactly: the modules that it loads, and the gits it starts."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

import gitlease
from support.repos import git, real_clone
from support.task_trees import commit_all, put


@dataclass(frozen=True)
class Cost:
    """The cost of one command: ``modules`` are those of gitlease, packages left out."""

    modules: tuple[str, ...]
    gits: tuple[tuple[str, ...], ...]
    """The words of each git that was started, but for what git starts itself."""

    @property
    def gits_before_push(self) -> int:
        """How many were started before the first push."""
        pushes = [number for number, words in enumerate(self.gits) if "push" in words]
        return pushes[0] if pushes else len(self.gits)


def cost_of(words: Sequence[str], *, cwd: Path) -> Cost:
    """Run ``gitlease`` with these words, which must succeed, and count."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "gitlease", *words],
            cwd=cwd,
            env={**os.environ, "GIT_TRACE2_EVENT": str(trace)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        text = trace.read_text(encoding="utf-8") if trace.exists() else ""
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    ours = sorted(name for name in names if name.split(".")[0] == "gitlease")
    packages = {name.rpartition(".")[0] for name in ours}
    events = map(json.loads, text.splitlines())
    return Cost(
        tuple(name for name in ours if name not in packages),
        tuple(tuple(x["argv"]) for x in events if x["event"] == "start" and "/" not in x["sid"]),
    )


def costs(folder: Path) -> dict[str, Cost]:
    """The cost of everyday commands in clones of a remote on this machine, made in this folder.

    One clone has no task files, and knows that another person holds something elsewhere. The other
    has a commit with a task file to be checked.
    """
    git(folder, "init", "-q", "--bare", "-b", "main", "origin.git")
    jo, kim = (folder / name for name in ("jo", "kim"))
    for clone in (jo, kim):
        real_clone(folder / "origin.git", clone, f"{clone.name}@example.com")
    for name in ("README", "tasks/T1.md"):
        put(jo, name, "---\nid: T1\nstatus: todo\nassigned: []\n---\n")
        commit_all(jo)
        git(jo, "push", "-q", "origin", "HEAD:main")
        if name == "README":
            git(kim, "pull", "-q", "origin", "main")
    put(kim, "README", "staged")
    git(kim, "add", "README")
    cost_of(["claim", "docs/", "--ttl", "1h"], cwd=jo)
    for words in (["list"], ["hook", "pre-commit"]):  # after that, what is known is fresh
        cost_of(words, cwd=kim)
    verbs = ("hook pre-commit", "claim deploy", "renew deploy", "list", "release deploy")
    found = {verb: cost_of(verb.split(), cwd=kim) for verb in verbs}
    for verb in ("check HEAD~1..HEAD", "check --stale"):
        found[verb] = cost_of(verb.split(), cwd=jo)
    return found


FOLDER = str(Path(gitlease.__file__).parent)
WRAPPED = """
import atexit, sys
sys.path.insert(0, sys.argv.pop(1))
from support.counting import entering
with entering() as files:
    atexit.register(lambda: print(*sorted(files), sep="\\n", file=sys.stderr))
    from gitlease.__main__ import main
    main()
"""


@contextlib.contextmanager
def entering() -> Iterator[set[str]]:
    """Collect the named functions of gitlease that all threads begun meanwhile enter.

    Each is "FILE NAME". What a module runs when it is loaded does not count: a reader need not
    follow it.
    """
    functions: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = event == "call" and code.co_flags & inspect.CO_OPTIMIZED
        is_named = not code.co_name.startswith("<")
        if is_function and is_named and code.co_filename.startswith(FOLDER):
            functions.add(f"{os.path.relpath(code.co_filename, FOLDER)} {code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield functions
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def entered_by(words: Sequence[str], *, cwd: Path) -> set[str]:
    """Run ``gitlease`` with these words, which must succeed: the functions that it enters."""
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", WRAPPED, tests, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(FOLDER).parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return {line for line in done.stderr.splitlines() if ".py " in line}


def processes(trace: Path, act: Callable[[], object], patch: pytest.MonkeyPatch) -> int:
    """How many git processes something starts."""
    with patch.context() as inside:
        inside.setenv("GIT_TRACE2_EVENT", str(trace))
        act()
    lines = trace.read_text().splitlines() if trace.exists() else []
    return sum(json.loads(line)["event"] == "start" for line in lines)
