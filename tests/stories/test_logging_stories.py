"""The logger ``gitlease``: renewals, retries and losses, no secrets, and silence by default."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.snapshots import check_words

import gitlease
from gitlease.engine import Swapped
from gitlease.store import RefLedgerStore
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]
ROOT = Path(__file__).resolve().parents[2]
LONG = 60.0


class Told(logging.Handler):
    """Waits for a line."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted, self.come, self.said = wanted, threading.Event(), ""

    def emit(self, record: logging.LogRecord) -> None:
        if self._wanted in record.getMessage():
            self.said = record.levelname
            self.come.set()


@pytest.fixture
def waited(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.DEBUG, logger="gitlease")
    logger, made = logging.getLogger("gitlease"), list[Told]()

    def wait(wanted: str) -> Told:
        made.append(Told(wanted))
        logger.addHandler(made[-1])
        return made[-1]

    yield wait
    for handler in made:
        logger.removeHandler(handler)


def test_renewals_and_losses_are_logged(gitlease_ledger: MemoryLedger, waited: Any) -> None:
    renewed, away = waited("renewed F001 (token 1) for 900 s"), waited("tried again: no route")
    run = gitlease_ledger.session("ada@example.com")
    run.claim("F001")
    gitlease_ledger.advance(minutes=7)
    assert renewed.come.wait(LONG)
    gitlease_ledger.failing = gitlease.Unavailable("no route to host")
    gitlease_ledger.advance(minutes=7)
    assert away.come.wait(LONG)
    lost = waited("F001 was lost: it could not be renewed before it expired")
    gitlease_ledger.advance(minutes=15)
    assert lost.come.wait(LONG)
    assert (renewed.said, away.said, lost.said) == ("DEBUG", "INFO", "WARNING")


def test_a_push_that_is_tried_again_is_logged(
    path_remote: Remote,
    clones: Callable[..., list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = clones(2, path_remote)
    caplog.set_level(logging.DEBUG, logger="gitlease")
    gitlease.open(one).claim("F001")
    swap = RefLedgerStore.swap

    def overtaken(store: RefLedgerStore, *words: Any) -> Swapped:
        monkeypatch.undo()
        gitlease.open(two).claim("F002")
        return swap(store, *words)

    monkeypatch.setattr(RefLedgerStore, "swap", overtaken)
    gitlease.open(one).claim("F003")
    (line,) = caplog.messages
    check_words(line)


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


@pytest.mark.parametrize("imported", ["", "import logging"])
def test_nothing_is_printed_where_nothing_is_configured(imported: str) -> None:
    code = f"""
{imported}
import sys, gitlease, threading
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
        env=clean_env({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == (b"", b"")
