"""A crowd at one ledger: how many claims a second, and how long the unluckiest one takes.

``python benchmarks/crowd.py`` has so many people claim different names one after the other for so
many seconds: each in a clone of their own, all in one clone, and in work trees of one. Beside them
raw pushes compare and swap one ref from as many clones, and one person claims alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from support.fences import clean_env  # noqa: E402
from support.remotes import Remote, Servers, open_remote  # noqa: E402
from support.repos import git, make_clone  # noqa: E402

RAW = "refs/benchmark/raw"


@dataclass
class Crowd:
    """What a crowd came to: the seconds of each claim, of all together, and what was asked."""

    took: list[float]
    seconds: float
    connections: int
    pushes: int

    def row(self, name: str) -> str:
        """One line of the table."""
        if len(self.took) < 2:
            return f"{name:<26} too few claims"
        many = len(self.took)
        p99 = quantiles(self.took, n=100, method="inclusive")[98]
        return (
            f"{name:<26} {many / self.seconds:>9.2f} {median(self.took):>9.2f} {p99:>9.2f}"
            f" {max(self.took):>9.2f} {self.pushes / many:>9.2f} {self.connections / many:>9.2f}"
        )


def crowd(
    remote: Remote, places: Sequence[Path], seconds: float, act: Callable[[Path, int, int], None]
) -> Crowd:
    """Have each place act again and again for a time."""
    asked, pushed, began = remote.connections(), remote.pushes(), time.monotonic()

    def one(number: int) -> list[float]:
        took: list[float] = []
        while (start := time.monotonic()) - began < seconds:
            act(places[number], number, len(took))
            took.append(time.monotonic() - start)
        return took

    with ThreadPoolExecutor(len(places)) as threads:
        every = [x for some in threads.map(one, range(len(places))) for x in some]
    lasted = time.monotonic() - began
    return Crowd(every, lasted, remote.connections() - asked, remote.pushes() - pushed)


def claiming(remote: Remote, python: str, layer: str) -> Callable[[Path, int, int], None]:
    """A claim of a name of one's own, on a ledger of this crowd."""
    env = clean_env({**remote.env, "PYTHONPATH": str(ROOT)})

    def claim(place: Path, number: int, count: int) -> None:
        words = ["claim", f"w{number}-{count}", "--layer", layer, "--session", f"w{number}"]
        subprocess.run(
            [python, "-m", "gitlease", *words], cwd=place, env=env, capture_output=True, check=True
        )

    return claim


def swapping(remote: Remote) -> Callable[[Path, int, int], None]:
    """A push of one commit on top of what is there, again until it is in time."""
    env = clean_env(remote.env)

    def swap(place: Path, number: int, count: int) -> None:
        while True:
            there = git(place, "ls-remote", "origin", RAW, env=env).split("\t")[0]
            words = ["commit-tree", "-m", f"{number}-{count}", "HEAD^{tree}"]
            made = git(place, *words, env={**remote.env, "GIT_COMMITTER_NAME": str(number)})
            lease = f"--force-with-lease={RAW}:{there}"
            done = subprocess.run(
                ["git", "push", "-q", lease, "origin", f"{made}:{RAW}"],
                cwd=place,
                env=env,
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return

    return swap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--transport", default="path", choices=("path", "file", "http", "ssh"))
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the claims")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Servers(Path(folder, "servers")) as servers,
        open_remote(asked.transport, Path(folder), servers=servers) as remote,
    ):
        many = asked.clients
        made = [
            make_clone(remote, Path(folder, f"c{n}"), f"w{n}@example.com", f"W{n}")
            for n in range(many)
        ]
        trees = [Path(folder, f"t{n}") for n in range(many)]
        for tree in trees:
            git(made[0], "worktree", "add", "-q", "--detach", str(tree), env=remote.env)
        heads = ("claims/s", "median s", "p99 s", "worst s", "pushes", "asked")
        print(f"{many} clients, {asked.seconds:g}s each, {asked.transport}")
        print(f"{'':<26} " + " ".join(f"{head:>9}" for head in heads))
        for name, places in {
            "one alone": made[:1],
            "clones": made,
            "one clone": made[:1] * many,
            "work trees of one clone": trees,
        }.items():
            act = claiming(remote, asked.python, name.replace(" ", "-"))
            print(crowd(remote, places, asked.seconds, act).row(name), flush=True)
        raw = crowd(remote, made, asked.seconds, swapping(remote))
        print(raw.row("raw pushes, as many clones"))


if __name__ == "__main__":
    main()
