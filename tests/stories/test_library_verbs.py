"""The library at a real clone: settings, stale claims, and the logger ``gitlease``."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.running import ROOT, until

import gitlease
from gitlease.testing import MemoryLedger

pytestmark = pytest.mark.slow

pytest_plugins = ["gitlease.testing"]


@pytest.fixture
def clone(path_remote: Remote, clones: Callable[..., list[Path]]) -> Path:
    return clones(1, path_remote)[0]


@pytest.mark.default
def test_a_repository_is_set_up(clone: Path) -> None:
    leases = gitlease.open(clone)
    made = leases.init()
    assert made.settings_file == str(clone / ".gitlease.yaml")
    assert (made.layer, made.revision, made.place) == ("global", 1, leases.status().place)
    again = leases.init()
    assert (again.settings_file, again.id, again.revision) == (None, made.id, 2)
    git(clone, "remote", "set-url", "origin", str(clone / "nowhere"))
    away = gitlease.open(clone)
    assert away.init().id is None
    assert away.warnings


@pytest.mark.nightly
def test_settings_are_read_and_set(clone: Path) -> None:
    leases = gitlease.open(clone)
    assert {x.key for x in leases.config()} >= {"lease.ttl", "tasks.files"}
    with gitlease.open(clone, remote="origin", session="s1") as named:
        assert named.config("lease.remote")[0].source == "remote"
        assert named.whoami().session_source == "session"
    (said,) = leases.config("lease.ttl", "30m")
    assert said == gitlease.Setting("lease.ttl", "30m", "git config (local) lease.ttl")
    anew = gitlease.open(clone)
    assert anew.claim("F001").ttl_seconds == 1_800
    anew.config("lease.ttl", "")
    assert gitlease.open(clone).config("lease.ttl")[0].value == "15m"
    unusable: tuple[tuple[Any, ...], ...] = (
        *((None, "x"), ("lease.ttl", "soon"), (5,), ("lease.tll",)),
    )
    for words in unusable:
        with pytest.raises(gitlease.UsageError):
            leases.config(*words)


def test_stale_claims_are_found_and_retired(clone: Path) -> None:
    text = "---\nid: F001\ntitle: Search\nstatus: in_progress\nassigned: ['@kim']\n---\n"
    settings = 'tasks:\n  files: ["tasks/*.md"]\nstale:\n  after: 1d\n  release: true\n'
    for name, content in ((".gitlease.yaml", settings), ("tasks/F001.md", text)):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text(content, encoding="utf-8")
    git(clone, "add", ".")
    long_ago = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2020-01-01T00:00:00Z")
    git(clone, "commit", "-q", "-m", "assign", env=long_ago)
    git(clone, "push", "-q", "origin", "HEAD")
    leases = gitlease.open(clone)
    judged = {x.rule.id: x for x in leases.check_stale().findings}["stale-edge"]
    assert judged.since == datetime(2020, 1, 1, tzinfo=UTC)
    assert hash(leases.check_stale()) == hash(leases.check_stale())
    fixed = leases.check_stale(fix=True)
    assert "stale-edge" in [x.rule.id for x in fixed.fixed]
    assert "stale-edge" not in [x.rule.id for x in fixed.findings]


def test_states_are_those_that_are_documented() -> None:
    """A checker knows them from the annotations; here it is that these are all there are."""
    from typing import get_args

    from gitlease.kernel.rules.lease import State
    from gitlease.kernel.rules.lease_view import LeaseState
    from gitlease.runs.verbs import OUTCOMES, WorkOutcome

    assert set(get_args(LeaseState)) == {x.value for x in State} | {"planned"}  # by a dry run
    assert set(get_args(WorkOutcome)) == set(OUTCOMES)
    assert str(gitlease.Loss.EXPIRED) == "expired"  # as in JSON, for who compares words


# --- the logger -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_renewals_and_losses_are_logged(
    gitlease_ledger: MemoryLedger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="gitlease")

    def level_of(text: str) -> str:
        found = until(lambda: [x for x in caplog.records if text in x.getMessage()], text)
        return str(found[0].levelname)

    run = gitlease_ledger.session("ada@example.com")
    run.claim("F001")
    gitlease_ledger.advance(minutes=7)
    assert level_of("renewed F001 (token 1) for 900 s") == "DEBUG"
    gitlease_ledger.failing = gitlease.Unavailable("no route to host")
    gitlease_ledger.advance(minutes=7)
    assert level_of("tried again: no route") == "INFO"
    gitlease_ledger.advance(minutes=15)
    assert level_of("F001 was lost: it could not be renewed before it expired") == "WARNING"


def test_no_secret_is_logged(
    path_remote: Remote, clones: Callable[..., list[Path]], caplog: pytest.LogCaptureFixture
) -> None:
    (clone,) = clones(1, path_remote)
    caplog.set_level(logging.DEBUG, logger="gitlease")
    with gitlease.open(clone) as leases:
        leases.claim("F001")
    git(clone, "remote", "set-url", "origin", "http://jo:s3cret@127.0.0.1:9/x.git")
    with pytest.raises(gitlease.Unavailable):
        gitlease.open(clone).claim("F002")
    assert "s3cret" not in caplog.text


def test_nothing_is_printed_where_nothing_is_configured() -> None:
    code = """
import logging, gitlease, threading
from gitlease.testing import MemoryLedger
with MemoryLedger() as ledger:
    told = threading.Event()
    run = ledger.session("ada@example.com", on_lost=lambda *_words: told.set())
    run.claim("F001")
    ledger.failing = gitlease.Unavailable("away")
    ledger.advance(hours=1)
    assert told.wait(60)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_env({"PYTHONPATH": ROOT}),
        capture_output=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == (b"", b"")
