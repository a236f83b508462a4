"""Ledgers on remotes of every format of objects and refs, over every transport."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.remotes import KINDS, Remote, Servers, open_remote
from support.repos import git, make_clone, run_git
from support.running import Desk

pytestmark = pytest.mark.nightly

SHA256 = ("--object-format=sha256",)
REFTABLE = ("--ref-format=reftable",)


def opened(
    kind: str, tmp_path: Path, servers: Servers, *options: str, name: str = "origin"
) -> Iterator[Remote]:
    known = run_git(tmp_path, "init", "-q", *options, str(tmp_path / "probe"))
    if known.returncode:
        pytest.skip(f"this git knows no {' '.join(options)}")
    with open_remote(kind, tmp_path / name, servers=servers, name=name, options=options) as made:
        yield made


@pytest.fixture(
    params=[x if x == "path" else pytest.param(x, marks=pytest.mark.slow) for x in KINDS]
)
def remote(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Remote]:
    yield from opened(request.param, tmp_path, servers, *SHA256)


@pytest.fixture(params=[REFTABLE, (*SHA256, *REFTABLE)], ids=" ".join)
def reftable(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Iterator[Remote]:
    yield from opened("path", tmp_path, servers, *request.param)


@pytest.fixture
def sha256(tmp_path: Path, servers: Servers) -> Iterator[Remote]:
    yield from opened("path", tmp_path, servers, *SHA256)


def desk(remote: Remote, tmp_path: Path, name: str) -> Desk:
    return Desk(make_clone(remote, tmp_path / name, f"{name}@example.com", name), env=remote.env)


def stores(desk: Desk) -> list[str]:
    """The formats of objects in a clone's private stores, that of the usual place first."""
    folder = desk.clone / ".git" / "gitlease"
    found = sorted(folder.glob("store*.git"), key=lambda x: len(x.name))
    return [git(x, "rev-parse", "--show-object-format") for x in found]


def live_with_it(remote: Remote, tmp_path: Path) -> None:
    """Two people, every verb that writes, and a winner of each race."""
    ada, jo = (desk(remote, tmp_path, name) for name in ("ada", "jo"))
    assert ada.document("claim", "F001", "src/", "--ttl", "1h")["status"] == "claimed"
    assert jo.document("claim", "src/a.py", expect=1)["error"]["holder"] == "ada@example.com"
    assert ada.document("renew", "F001")["status"] == "renewed"
    assert ada.document("renew", "F001")["status"] == "renewed"
    jo.document("note", "F001", "look here")
    ada.document("release", "F001", "--note", "half done")
    with ThreadPoolExecutor(2) as both:
        codes = list(both.map(lambda who: who.ask("claim", "F002").returncode, (ada, jo)))
    assert sorted(codes) == [0, 1]
    assert jo.document("done", "F009", "--any")["status"] == "completed"
    events = [x["kind"] for x in jo.document("log")["events"]]
    assert {"claimed", "noted", "released", "completed"} <= set(events)
    assert ada.ask("verify").returncode == 0


@pytest.mark.slow
def test_a_ledger_of_sha256_objects(remote: Remote, tmp_path: Path) -> None:
    live_with_it(remote, tmp_path)
    tip = git(remote.bare, "rev-parse", "refs/gitlease/global")
    assert len(tip) == 64


def test_a_ledger_in_a_reftable(reftable: Remote, tmp_path: Path) -> None:
    live_with_it(reftable, tmp_path)


@pytest.mark.default("new")
@pytest.mark.slow
@pytest.mark.parametrize(("own", "ledger"), [(SHA256, ()), ((), SHA256)], ids=["new", "old"])
def test_a_ledger_of_another_format_than_the_repository(
    own: tuple[str, ...], ledger: tuple[str, ...], tmp_path: Path, servers: Servers
) -> None:
    for work in opened("path", tmp_path, servers, *own):
        for elsewhere in opened("path", tmp_path, servers, *ledger, name="ledger"):
            ada, jo = (desk(work, tmp_path, name) for name in ("ada", "jo"))
            for one in (ada, jo):
                git(one.clone, "config", "lease.remote", elsewhere.url)
            ada.document("claim", "F001")
            assert stores(ada) == ["sha256" if ledger else "sha1"]
            assert jo.document("claim", "F001", expect=1)["error"]["code"] == "held"
            before = elsewhere.connections()
            ada.document("renew", "F001")
            assert elsewhere.connections() == before + 1


def test_a_server_judges_ledgers_of_sha256(sha256: Remote, tmp_path: Path) -> None:
    ada, jo = (desk(sha256, tmp_path, name) for name in ("ada", "jo"))
    assert Desk(sha256.bare).ask("server", "install", ".", "--no-identity").returncode == 0
    ada.document("claim", "F001")
    assert jo.document("claim", "F001", expect=1)["error"]["code"] == "held"
    ada.document("renew", "F001")
    tip = git(sha256.bare, "rev-parse", "refs/gitlease/global")
    forged = git(jo.clone, "commit-tree", "-m", "mine", git(jo.clone, "rev-parse", "HEAD^{tree}"))
    refused = run_git(jo.clone, "push", "-q", "-f", "origin", f"{forged}:refs/gitlease/global")
    assert "gitlease" in refused.stderr
    assert git(sha256.bare, "rev-parse", "refs/gitlease/global") == tip
