"""A claim that was killed after its push was sent, and whose push the server then refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.remotes import Remote
from support.running import Desk, until

SO_FAR = "has not reached the remote so far"
NO_LONGER = "did not reach the remote, and has no effect"
HOOK = """#!/bin/sh
test -e {0}/open && exit 0
touch {0}/asked
while ! test -e {0}/answer; do sleep 0.02; done
touch {0}/refused
exit 1
"""


@pytest.fixture
def gates(path_remote: Remote, tmp_path: Path) -> Path:
    """Where the server tells that it was asked, and is told to go on."""
    gates = tmp_path / "gates"
    gates.mkdir()
    hook = path_remote.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(gates))
    hook.chmod(0o755)
    return gates


def test_a_command_that_is_told_to_end_takes_its_push_along(jo: Desk, gates: Path) -> None:
    claim = jo.start("claim", "F001")
    until((gates / "asked").exists, "the push")
    claim.terminate()
    _, err = claim.communicate(timeout=60)
    assert (claim.returncode, err) == (128 + signal.SIGTERM, "")
    jo.all_gone()


@pytest.fixture
def left(jo: Desk, gates: Path) -> Desk:
    """Jo's desk after that; the server takes what comes next."""
    claim = jo.start("claim", "F001")
    until((gates / "asked").exists, "the push")
    os.kill(claim.pid, 9)
    claim.wait(60)
    (gates / "answer").touch()
    until((gates / "refused").exists, "the refusal")
    jo.all_gone()
    (gates / "open").touch()
    return jo


@pytest.mark.slow
def test_the_next_command_tells_it_though_it_only_reads(left: Desk) -> None:
    assert SO_FAR in str(left.document("list")["warnings"])
    assert "F001" not in str(left.document("list")["warnings"]), "it is told once"
    left.document("claim", "F002", "--any")
    assert "F001" not in str(left.document("list")["leases"])


def told(desk: Desk, *argv: str, expect: int = 0) -> str:
    """What a command says besides its answer, typed by a person."""
    done = desk.ask(*argv)
    assert done.returncode == expect, done
    return "".join(line for line in done.stderr.splitlines() if "an earlier claim" in line)


@pytest.mark.slow
def test_a_command_that_changes_the_ledger_tells_what_it_came_to_at_once(left: Desk) -> None:
    assert NO_LONGER in str(left.document("claim", "F002", "--any")["warnings"])
    assert "F001" not in str(left.document("list"))
