"""The last version that parked leases, from this repository's history, beside the present one.

``python tests/support/old_version.py`` prints a ledger that the older version wrote, as git's
fast-export stream: ``tests/kernel/store/parked.fast-export`` was made so.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.commands import LONG, ROOT, run_program
from support.fences import clean_env, raise_fences
from support.repos import git, make_repository, real_clone, run_git

LAST_WITH_PARK = "c21166d76ef68dd8a402e4ef8d14dace5b02a866"
PARTS = ("gitlease", "hooks")
FIRST_SECOND = 1_800_000_000  # of the recorded ledger, since the epoch

# A program under a clock that is so many milliseconds ahead; with ``now``, one that stands there.
SHIFTED = """
import sys
try:
    from gitlease.kernel.git import run
except ImportError:  # an older layout
    from gitlease.git import run
plain = run.SystemClock.now
ahead, now = int(sys.argv.pop(1)), int(sys.argv.pop(1))
def shifted(self):
    found = plain(self)
    here = dict(wall_ms=found.wall_ms + ahead, boot_ms=found.boot_ms + ahead)
    if now:
        here = dict(wall_ms=now, boot_ms=now)
    return type(found)(**here, boot_id=found.boot_id)
run.SystemClock.now = shifted
"""
COMMAND = f"""{SHIFTED}
from gitlease.__main__ import main
main()
"""
# A library that does what it reads, a line each: who wins is decided within milliseconds.
LIBRARY = """
import json, sys
import gitlease
with gitlease.open(".", session=sys.argv[1] or None) as leases:
    print(json.dumps(gitlease.__file__), flush=True)
    for line in sys.stdin:
        name, *words, terms = json.loads(line)
        try:
            found = getattr(leases, name)(*words, **terms)
        except gitlease.GitleaseError as error:
            answer = {"error": error.code, "text": str(error)}
        else:
            answer = {x: getattr(found, x, None) for x in ("resource", "session", "token")}
        print(json.dumps(answer), flush=True)
"""


@functools.cache
def old_version() -> Path | None:
    """A folder with the older version; None where the repository's history lacks it."""
    if not (Path(ROOT) / ".git").exists():
        return None
    if run_git(Path(ROOT), "cat-file", "-e", f"{LAST_WITH_PARK}^{{tree}}").returncode:
        return None
    folder = Path(tempfile.mkdtemp(prefix="older-", dir=raise_fences().root))
    archive = folder / "older.tar"
    git(Path(ROOT), "archive", "-o", str(archive), LAST_WITH_PARK, *PARTS)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    return folder


def need_old_version() -> Path:
    """The older version; the test is skipped in a shallow clone and outside of any.

    Also in continuous integration, where a checkout may have no history: what matters most of
    this is asked of a recorded ledger as well.
    """
    found = old_version()
    if found is None:
        pytest.skip(f"the history here lacks the older version {LAST_WITH_PARK[:12]}")
    return found


@dataclass
class Version:
    """One of the two versions; its commands run ``ahead`` seconds from now, or at ``now``."""

    program: Path
    ahead: float = 0
    now: float = 0

    @property
    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.program)}

    def run(self, clone: Path, *words: str, session: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end, however it ends."""
        times = [str(round(x * 1_000)) for x in (self.ahead, self.now)]
        own = ["--session", session] if session else []
        return run_program(
            [sys.executable, "-P", "-c", COMMAND, *times, *words, *own], clone, self.env
        )

    def ask(self, clone: Path, *words: str, code: int = 0, session: str = "") -> Any:
        """Run a command with --json, which must end so; its document."""
        done = self.run(clone, *words, "--json", session=session)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout)

    def library(self, clone: Path, session: str = "") -> Library:
        return Library(self, clone, session)


class Library:
    """A process with the library of a version; it is told what to do, and answers later."""

    def __init__(self, version: Version, clone: Path, session: str) -> None:
        self.session = session
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", LIBRARY, session],
            cwd=clone,
            env=clean_env(version.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        place = self.answer()
        assert Path(place).is_relative_to(version.program), place

    def tell(self, name: str, *words: str, **terms: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *words, terms]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate(timeout=LONG)
        assert self._process.returncode == 0


TASK = "---\nid: {}\nstatus: todo\n---\n"


def two_clones(base: Path, tasks: Mapping[str, str]) -> tuple[Path, Path]:
    """Jo's and Kim's clones of a bare remote with these task files."""
    remote = make_repository(base / "remote.git", "--bare")
    jo = real_clone(remote, base / "jo", "jo@example.com")
    (jo / "tasks").mkdir()
    for name, text in tasks.items():
        (jo / "tasks" / f"{name}.md").write_text(text, encoding="utf-8")
    git(jo, "add", "tasks")
    git(jo, "commit", "-q", "-m", "tasks")
    git(jo, "push", "-q", "origin", "HEAD:main")
    return jo, real_clone(remote, base / "kim", "kim@example.com")


def record() -> str:
    """A ledger in which the older version parked leases, as a stream of git's."""
    program = old_version()
    assert program is not None, "the history lacks the older version"
    base = Path(tempfile.mkdtemp(dir=raise_fences().root))
    jo, kim = two_clones(base, {x: TASK.format(x) for x in ("F001", "F002", "F003", "F004")})
    old = Version(program, now=FIRST_SECOND)
    typed: list[tuple[Path, str, tuple[str, ...]]] = [
        (jo, "one", ("claim", "F001", "--path", "src/api")),
        (jo, "one", ("park", "F001", "--for", "4h", "--note", "half done")),
        (kim, "", ("claim", "F002")),
        (jo, "two", ("claim", "F003")),
        (jo, "two", ("park", "F003", "--for", "2h")),
        (jo, "three", ("claim", "F003")),
        (jo, "", ("claim", "docs/")),
        (jo, "", ("park", "docs/", "--for", "1d")),
        (kim, "k", ("claim", "F004")),
        (kim, "k", ("session", "end", "--park")),
    ]
    for number, (clone, session, words) in enumerate(typed):
        old.now = FIRST_SECOND + number
        old.ask(clone, *words, session=session)
    return git(base / "remote.git", "fast-export", "--full-tree", "refs/gitlease/global") + "\n"


if __name__ == "__main__":
    print(record(), end="")
