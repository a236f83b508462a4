"""Where a program names a resource it may give a path: a ``Path`` is one, and never a name."""

from __future__ import annotations

import os
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


def test_a_duration_beside_a_resource_may_be_a_file(clone: Path, ada: gitlease.Leases) -> None:
    (clone / "1h").touch()
    with raises(gitlease.UsageError):
        ada.claim_all(["F001", "1h"])
    with raises(gitlease.UsageError):
        ada.wait("F001", "1h")
    with pytest.raises(gitlease.UsageError, match="1h is a duration"):
        gitlease.hold("F001", "1h", directory=clone).__enter__()
    assert ada.claim_all(["F001", "path:1h"])[1].resource == "path:1h"
    assert ada.claim_all(["F001", "1h"], any=True)[1].resource == "1h"


def test_what_a_lease_covers_may_be_paths(ada: gitlease.Leases, clone: Path) -> None:
    lease = ada.claim("F001", paths=[README, clone / "src" / "a.py", "src/*.py"])
    assert lease.paths == ("README.md", "src/a.py", "src/*.py")
    with raises(gitlease.UsageError):
        ada.claim("F002", paths=README)  # type: ignore[arg-type]
    with raises(gitlease.UsageError):
        ada.claim_all(README)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [5, None, b"README.md", BYTES, ["F001"]])
def test_what_is_neither_is_a_usage_error(ada: gitlease.Leases, odd: Any) -> None:
    with raises(gitlease.UsageError):
        ada.claim(odd)
    with raises(gitlease.UsageError):
        ada.claim("F001", paths=[odd])
