"""Where a program names a resource it may give a path: a ``Path`` is one, and never a name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.repos import make_repository
from support.snapshots import raises

import gitlease
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]
ADA, BOB = "ada@example.com", "bob@example.com"
README = Path("README.md")
BYTES: Any = type("Odd", (os.PathLike,), {"__fspath__": lambda _self: b"README.md"})()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    make_repository(folder)
    (folder / "src").mkdir()
    for name in ("README.md", "src/a.py", "src/README.md"):
        (folder / name).write_text("x\n", encoding="utf-8")
    return folder


@pytest.fixture
def ada(clone: Path, gitlease_ledger: MemoryLedger) -> gitlease.Leases:
    return gitlease_ledger.open(ADA, directory=clone)


def test_a_path_is_claimed_as_one(
    clone: Path, ada: gitlease.Leases, gitlease_ledger: MemoryLedger
) -> None:
    assert ada.claim(README).resource == "path:README.md"
    assert ada.claim(Path("src/a.py")).resource == "src/a.py"
    assert ada.claim(clone / "README.md").renewals == 1
    below = gitlease_ledger.open(ADA, directory=clone / "src")
    assert below.claim(PurePath("README.md")).resource == "src/README.md"
    assert below.claim(PurePath("../README.md")).token == 1
    with raises(gitlease.UsageError):
        ada.claim("README.md")
    for outside in (Path("../other.py"), Path("/etc/passwd")):
        with pytest.raises(gitlease.UsageError, match="outside"):
            ada.claim(outside)


VERBS: dict[str, Callable[[gitlease.Leases], Any]] = {
    "claim_all": lambda ada: ada.claim_all([README, "F001"]),
    "renew": lambda ada: ada.renew(README),
    "extend": lambda ada: ada.extend(README, "1h"),
    "show": lambda ada: ada.show(README)[0].resource == "path:README.md" or 1 / 0,
    "log": lambda ada: ada.log(README)[0].resource == "path:README.md" or 1 / 0,
    "note": lambda ada: ada.note(README, "half done"),
    "wait": lambda ada: ada.wait(README),
    "watch": lambda ada: [*ada.watch(README, timeout="1s")],
    "fence": lambda ada: ada.fence(README, 1),
    "park": lambda ada: ada.park(README),
    "release": lambda ada: ada.release(README),
    "on_available": lambda ada: ada.on_available(README)(print).stop(),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_every_verb_takes_one(ada: gitlease.Leases, verb: Callable[[gitlease.Leases], Any]) -> None:
    ada.claim("path:README.md")
    verb(ada)
    assert {x.resource for x in ada.list(all=True)} <= {"path:README.md", "F001"}


def test_what_a_lease_covers_may_be_paths(ada: gitlease.Leases, clone: Path) -> None:
    lease = ada.claim("F001", paths=[README, clone / "src" / "a.py", "src/*.py"])
    assert lease.paths == ("README.md", "src/a.py", "src/*.py")
    with raises(gitlease.UsageError):
        ada.claim("F002", paths=README)  # type: ignore[arg-type]
    with raises(gitlease.UsageError):
        ada.claim_all(README)  # type: ignore[arg-type]


def test_a_hold_takes_one(clone: Path, gitlease_ledger: MemoryLedger) -> None:
    bob = gitlease_ledger.open(BOB, directory=clone)

    async def main() -> None:
        async with gitlease.open_async() as leases:
            assert (await leases.show(Path("src/a.py")))[0].holder == ADA

    with gitlease_ledger.stand_in(ADA), gitlease.hold(Path("src/a.py")) as held:
        assert held.tokens == {"src/a.py": 1}
        with pytest.raises(gitlease.LeaseHeld):
            bob.claim(clone / "src")
        asyncio.run(main())


def test_a_task_is_named_by_its_own_resource(clone: Path, gitlease_ledger: MemoryLedger) -> None:
    (clone / "tasks").mkdir()
    (clone / "tasks" / "F001.md").write_text("---\nid: F001\nstatus: todo\n---\n", encoding="utf-8")
    (clone / ".gitlease.yaml").write_text('tasks:\n  files: ["tasks/*.md"]\n', encoding="utf-8")
    ada = gitlease_ledger.open(ADA, directory=clone)
    assert ada.claim(ada.next_task().resource).resource == "F001"
    assert ada.task(ada.task("F001").resource).title == ""


@pytest.mark.parametrize("odd", [5, None, b"README.md", BYTES, ["F001"]])
def test_what_is_neither_is_a_usage_error(ada: gitlease.Leases, odd: Any) -> None:
    with raises(gitlease.UsageError):
        ada.claim(odd)
    with raises(gitlease.UsageError):
        ada.claim("F001", paths=[odd])
