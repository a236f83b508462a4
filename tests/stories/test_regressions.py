"""A permanent reproducer for each fault that use by hand once found, on real remotes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.fences import clean_env
from support.ledgers import door
from support.remotes import Remote
from support.repos import git

from gitlease.kernel.git.repository import without_secrets
from gitlease.kernel.rules.errors import LeaseHeld, Rollback

pytestmark = pytest.mark.slow

Clones = Callable[..., Sequence[Path]]


def cli(clone: Path, *words: str, out: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gitlease", *words],
        cwd=clone,
        env=clean_env(),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        check=False,
    )


@pytest.mark.default("path:path:x")
@pytest.mark.nightly
@pytest.mark.parametrize("word", ["path:path:x", "./path:d/*.py"])
@pytest.mark.usefixtures("path_remote")
def test_a_path_that_begins_like_the_prefix_harms_nobody(clones: Clones, word: str) -> None:
    one, two = clones(2)
    claimed = door(one).claim(word)
    assert door(two).claim("docs/").mine
    with pytest.raises(LeaseHeld):
        door(two).claim(claimed.resource)
    door(one).release(claimed.resource)
    assert [lease.resource for lease in door(two).list()] == ["path:docs"]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_rollback_that_was_overtaken_is_not_believed(
    path_remote: Remote, clones: Clones, steps: int
) -> None:
    """Three steps have more operations than the ledger remembers by their ids."""
    eve, dan = clones(2)
    clock = ManualClock()
    door(dan, clock=clock).list()
    door(eve, clock=clock).claim("RA")
    backup = path_remote.bare.with_suffix(".bak")
    shutil.copytree(path_remote.bare, backup)
    held = door(eve, clock=clock).claim("RB")
    shutil.rmtree(path_remote.bare)
    backup.rename(path_remote.bare)
    for step in range(steps):
        names = [f"S{step}-{number}" for number in range(60)]
        given = max(x.token for x in door(dan, clock=clock).claim_all(names))
    with pytest.raises(Rollback):
        door(eve, clock=clock).claim("RD")
    for words in (["list"], ["renew", held.resource], ["release", held.resource]):
        assert cli(eve, *words).returncode == 7
    assert cli(eve, "init", "--undo-rollback").returncode == 0
    assert {x.resource for x in door(eve, clock=clock).list()} == {"RA", "RB"}
    with pytest.raises(Rollback):
        door(dan, clock=clock).claim("RD")
    assert cli(dan, "init", "--accept-rollback").returncode == 0
    for folder in (eve, dan):
        assert door(folder, clock=clock).claim(f"RE-{folder.name}").token > given


def test_only_an_admin_undoes_a_rollback_where_there_are_admins(
    path_remote: Remote, clones: Clones
) -> None:
    eve, dan = clones(2)
    email = git(eve, "config", "user.email").strip()
    assert cli(eve, "config", "--ledger", "admins", email).returncode == 0
    backup = git(path_remote.bare, "rev-parse", "refs/gitlease/global").strip()
    for folder in (eve, dan):
        assert cli(folder, "claim", f"R-{folder.name}").returncode == 0
    git(path_remote.bare, "update-ref", "refs/gitlease/global", backup)
    for way in ("--undo-rollback", "--accept-rollback"):
        assert cli(dan, "init", way).returncode == 6
    assert cli(eve, "list").returncode == 7
    assert cli(eve, "init", "--undo-rollback").returncode == 0


@pytest.mark.parametrize(
    "url",
    ["https://u:SEC/RET@127.0.0.1:1/x.git", "https://127.0.0.1:1/x.git?token=SECRET"],
)
@pytest.mark.usefixtures("path_remote")
def test_no_secret_of_a_url_is_ever_said(clones: Clones, url: str) -> None:
    assert "SEC" not in without_secrets(f"see {url} there")
    for words in (["list"], ["claim", "F1", "--json"], ["status", "--json"]):
        ran = cli(clones(1)[0], *words, "--remote", url)
        assert ran.returncode == 5
        assert "SEC" not in ran.stdout + ran.stderr
        assert "RET" not in ran.stdout + ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.usefixtures("path_remote")
def test_an_answer_that_cannot_be_written_is_said_in_one_line(clones: Clones) -> None:
    clone = clones(1)[0]
    with open("/dev/full", "w", encoding="utf-8") as full:
        for words in (["claim", "F1"], ["list", "--json"]):
            ran = cli(clone, *words, out=full.fileno())
            assert ran.returncode == 70
            assert "Traceback" not in ran.stderr


@pytest.mark.usefixtures("path_remote")
def test_what_was_killed_while_it_was_written_down_is_not_a_change(clones: Clones) -> None:
    (one,) = clones(1)
    door(one).claim("F1")
    pending = one / ".git/gitlease/state/default/global/pending"
    pending.mkdir(exist_ok=True)
    half = {"process": 0, "operations": ["op-1"], "layer": "global", "what": "claim of F9"}
    (pending / "op-1.json.123.tmp").write_text(json.dumps(half), encoding="utf-8")
    assert "F9" not in cli(one, "list").stderr
