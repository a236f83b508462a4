"""The logger ``gitlease``: renewals, retries and losses, no secrets, and silence by default."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.running import ROOT, until

import gitlease
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]


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
