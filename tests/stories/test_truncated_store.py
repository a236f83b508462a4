"""Files of gitlease's own that are cut short, or something else by now: every command comes back.

What lies in the clone's git directory is a cache. Whatever becomes of one of its files, the next
commands give the right answer, and so they do when one file after the other goes bad.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git, run_git
from support.running import Desk

from gitlease.kernel.store.state import FORM, ROWS_FILE

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]
Harm = Callable[[Path], object]
ROUNDS = 2


def cut(share: float) -> Harm:
    def harm(file: Path) -> None:
        data = file.read_bytes()
        file.chmod(0o644)
        file.write_bytes(data[: int(len(data) * share)])

    return harm


def instead(make: Harm) -> Harm:
    def harm(file: Path) -> None:
        file.unlink()
        make(file)

    return harm


HARMS: dict[str, Harm] = {
    "empty": cut(0),
    "a few bytes": cut(0.1),
    "half": cut(0.5),
    "nearly all": cut(0.95),
    "pipe": instead(os.mkfifo),
    "folder": instead(Path.mkdir),
    "loop": instead(lambda file: file.symlink_to(file.name)),
    "gone": Path.unlink,
}


class World:
    """Two people with leases, of whom the first one's clone is harmed."""

    def __init__(self, clones: list[Path]) -> None:
        self.jo, self.kim = map(Desk, clones)
        self.own = clones[0] / ".git" / "gitlease"
        self._round = 0
        (clones[0] / "tasks").mkdir()
        (clones[0] / "tasks" / "T1.md").write_text("---\nid: T1\nstatus: todo\nassigned: []\n---\n")
        self.kim.document("claim", "K1", "docs/")
        self.jo.document("list")
        self.jo.document("claim", "F1", "T1", "--any")
        self.kim.document("claim", "K2")
        assert self.jo.ask("hooks", "install").returncode == 0

    def pack(self) -> None:
        """What git makes of a store in time, if it can."""
        store = f"--git-dir={self.own / 'store.git'}"
        run_git(self.own, store, "gc", "-q")
        run_git(self.own, store, "multi-pack-index", "write")
        run_git(self.own, store, "commit-graph", "write", "--reachable")

    def files(self) -> list[Path]:
        return sorted(x for x in self.own.rglob("*") if x.is_file() and not x.is_symlink())

    def still_works(self) -> None:
        self._round += 1
        name, jo = f"N{self._round}", self.jo
        held = {x["resource"] for x in jo.document("list")["leases"]}
        assert held == {"F1", "T1", "K1", "K2", "path:docs"}
        assert jo.document("claim", "K1", "--any", expect=1)["error"]["code"] == "held"
        assert jo.document("claim", name, "--any")["lease"]["mine"]
        assert jo.document("renew", "F1")["status"] == "renewed"
        assert jo.document("release", name)["status"] == "released"
        assert jo.ask("log", "-n", "5").returncode == 0
        git(jo.clone, "commit", "-q", "--allow-empty", "-m", "with hooks")


@pytest.mark.slow("1")
@pytest.mark.nightly
@pytest.mark.parametrize(
    "seed", [*(1, 2, 3, 39), *(pytest.param(x, marks=pytest.mark.nightly) for x in range(4, 12))]
)
@pytest.mark.usefixtures("path_remote")
def test_files_that_go_bad_one_after_the_other_harm_no_command(seed: int, clones: Clones) -> None:
    world, dice = World(clones(2)), random.Random(seed)
    for _ in range(ROUNDS):
        if dice.random() < 0.4:
            world.pack()
        file = dice.choice(world.files())
        how = dice.choice(list(HARMS))
        print(f"{file.relative_to(world.own)}: {how}")
        HARMS[how](file)
        world.still_works()


@pytest.mark.nightly("a few bytes", "nearly all", "folder", "gone")
@pytest.mark.parametrize("how", HARMS)
@pytest.mark.usefixtures("path_remote")
def test_each_file_in_turn(how: str, clones: Clones) -> None:
    world = World(clones(2))
    if how in ("half", "pipe", "gone"):
        world.pack()
    for file in world.files():
        if file.exists():
            HARMS[how](file)
            world.still_works()


@pytest.mark.parametrize(("how", "what"), [("pipe", "??/*"), ("half", "info/commit-graph")])
@pytest.mark.usefixtures("path_remote")
def test_what_git_would_wait_for(what: str, how: str, clones: Clones) -> None:
    world = World(clones(2))
    if "graph" in what:
        world.pack()
    for file in (world.own / "store.git" / "objects").glob(what):
        HARMS[how](file)
    world.still_works()


# --- what is wrong, and has the right check sum ---------------------------------------------------

WRONG: dict[str, Callable[[bytes], bytes]] = {
    "fields of another version": lambda body: body.replace(b'"grace"', b'"grade"'),
    "lines without a head": lambda body: body.replace(b"/src", b""),
    "no text": lambda _: b"\xff\n",
}


@pytest.mark.parametrize("how", WRONG)
def test_lines_that_are_wrong_let_nobody_in(how: str, path_remote: Remote, clones: Clones) -> None:
    first, second = (Desk(clone, env=path_remote.env) for clone in clones(2))
    first.document("claim", "path:src/")
    first.document("claim", "F001")
    second.document("claim", "path:docs/")
    (second.clone / "src").mkdir()
    (second.clone / "src" / "a.py").write_text("1\n")
    git(second.clone, "add", "src/a.py")
    assert second.ask("hook", "pre-commit").returncode == 1, "which keeps lines of all of it"
    state = next((second.clone / ".git" / "gitlease" / "state").glob("*/global"))
    file = state / ROWS_FILE
    head, _, body = file.read_bytes().partition(b"\n")
    assert head == sum_of(body), "this is how they are summed up"
    wrong = WRONG[how](body)
    assert wrong != body
    file.write_bytes(sum_of(wrong) + b"\n" + wrong)
    assert second.document("claim", "path:src/z", expect=1)["error"]["code"] == "held"
    for _ in range(2):
        assert second.ask("hook", "pre-commit").returncode == 1, "what another holds stays so"


def sum_of(body: bytes) -> bytes:
    return b"%08x %d" % (zlib.crc32(body, zlib.crc32(FORM)), len(body))
