"""What a ledger's size costs: 10 to 100,000 leases, and 10 to 10,000 of paths.

``python benchmarks/scale.py`` writes each ledger to a bare remote on this machine's disk at once,
in the records of the product, and times single commands of somebody else's clone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from support.fences import clean_env  # noqa: E402
from support.ledgers import make_lease, write_ledger  # noqa: E402
from support.remotes import Remote, Servers, open_remote  # noqa: E402
from support.repos import git, make_clone  # noqa: E402

NAMES = (10, 100, 1_000, 10_000, 100_000)
PATHS = (10, 100, 1_000, 10_000)
HEADS = ("first", "claim", "renew", "show", "hook", "first KiB", "bytes a decision")


class Scene:
    """One ledger, and a clone that did not know of it."""

    def __init__(
        self,
        remote: Remote,
        folder: Path,
        python: str,
        number: int,
        form: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._python, self._bare, self._clock = python, remote.bare, clock
        now = time.time_ns() // 1_000_000
        write_ledger(
            remote.bare,
            [make_lease(form.format(n), at=now, ttl=8 * 3_600, token=n + 1) for n in range(number)],
        )
        self.clone = make_clone(remote, folder / "clone", "jo@example.com", "Jo")
        self._env = clean_env({**remote.env, "PYTHONPATH": str(ROOT)})
        self._form, self._number = form, number

    def row(self, rounds: int) -> list[float]:
        """Seconds of a first contact and of each command, KiB that the first moved, and bytes."""
        first = self._words("claim", self._form.format(self._number))
        moved = _bytes(self.clone / ".git" / "gitlease" / "store.git") / 1024
        self._words("hooks", "install")
        (self.clone / "file").write_text("text\n", encoding="utf-8")
        git(self.clone, "add", "file")
        took: dict[str, list[float]] = {"claim": [], "renew": [], "show": [], "hook": []}
        before, decisions = self._packed(), 0
        for number in range(self._number + 1, self._number + 1 + rounds):
            name = self._form.format(number)
            took["claim"].append(self._words("claim", name))
            took["renew"].append(self._words("renew", name))
            decisions += 2
            took["show"].append(self._words("show", name))
            hook = ["sh", str(self.clone / ".git" / "hooks" / "pre-commit")]
            took["hook"].append(self._timed(hook))
        added = (self._packed() - before) / decisions
        return [first, *map(median, took.values()), moved, added]

    def _packed(self) -> int:
        """The bytes that the remote has, packed as a server packs them now and then."""
        git(self._bare, "repack", "-adq")
        return _bytes(self._bare)

    def _words(self, *words: str) -> float:
        return self._timed([self._python, "-m", "gitlease", *words])

    def _timed(self, line: Sequence[str]) -> float:
        began = self._clock()
        subprocess.run(line, cwd=self.clone, env=self._env, capture_output=True, check=True)
        return self._clock() - began


def core() -> float:
    """The seconds of a core that all commands so far have used."""
    used = os.times()
    return used.children_user + used.children_system


def _bytes(repository: Path) -> int:
    """The bytes of the objects that a repository has, without the indexes of its packs."""
    every = (repository / "objects").rglob("*")
    return sum(x.stat().st_size for x in every if x.is_file() and x.suffix not in (".idx", ".rev"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed (5)")
    parser.add_argument("--most", type=int, default=max(NAMES), help="the largest ledger (100000)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the commands")
    parser.add_argument("--cpu", action="store_true", help="seconds of a core, not of time")
    asked = parser.parse_args()
    clock = core if asked.cpu else time.perf_counter
    if asked.rounds < 1:
        parser.error("--rounds must be at least 1")
    kinds = (("names", NAMES, "T{:06d}"), ("paths", PATHS, "src/part{:06d}/"))
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder, "servers")) as servers:
        print(f"median seconds of {asked.rounds}; first: a claim in a clone that knows nothing")
        print(f"{'':<14}" + "".join(f"{head:>17}" for head in HEADS))
        for kind, numbers, form in kinds:
            for number in (n for n in numbers if n <= asked.most):
                place = Path(folder, f"{kind}{number}")
                with open_remote("path", place, servers=servers) as remote:
                    row = Scene(remote, place, asked.python, number, form, clock).row(asked.rounds)
                shown = "".join(f"{x:>17.3f}" for x in row[:5])
                print(f"{number:>7} {kind:<6}{shown}{row[5]:>17.0f}{row[6]:>17.0f}", flush=True)


if __name__ == "__main__":
    main()
