"""A claim that was killed after its push was sent, and whose push the server then refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import Desk, until
from support.snapshots import check_words

pytestmark = [pytest.mark.sampled(2)]

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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_takes_its_push_along(
    jo: Desk, gates: Path, how: signal.Signals
) -> None:
    claim = jo.start("claim", "F001")
    until((gates / "asked").exists, "the push")
    claim.send_signal(how)
    _, err = claim.communicate(timeout=60)
    assert (claim.returncode, err) == (128 + how, "")
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


@pytest.mark.parametrize("verb", [["list"], ["status"], ["show", "F001"], ["log"], ["queue"]])
def test_the_next_command_tells_it_though_it_only_reads(left: Desk, verb: list[str]) -> None:
    (said,) = [x for x in left.document(*verb)["warnings"] if "F001" in x]
    check_words(said)
    assert SO_FAR in said
    assert "F001" not in str(left.document("list")["warnings"]), "it is told once"
    left.document("claim", "F002", "--any")
    assert "F001" not in str(left.document("list")["leases"])


def told(desk: Desk, *argv: str, expect: int = 0) -> str:
    """What a command says besides its answer, typed by a person."""
    done = desk.ask(*argv)
    assert done.returncode == expect, done
    return "".join(line for line in done.stderr.splitlines() if "an earlier claim" in line)


@pytest.mark.parametrize(
    ("verb", "expect"),
    [
        (["wait", "F001"], 0),
        (["watch", "--timeout", "1s"], 0),
        (["fence", "F001", "1"], 3),
        (["check", "HEAD~1..HEAD"], 0),
    ],
)
def test_a_command_that_asks_for_something_else_tells_it_once(
    left: Desk, verb: list[str], expect: int
) -> None:
    (left.clone / "work.txt").write_text("work")
    git(left.clone, "add", "work.txt")
    git(left.clone, "commit", "-q", "-m", "work")
    assert SO_FAR in told(left, *verb, expect=expect)
    assert not told(left, *verb, expect=expect)


def test_whoever_waits_in_vain_is_told_it_too(left: Desk, kim: Desk) -> None:
    kim.document("claim", "F001", "--any")
    assert NO_LONGER in told(left, "wait", "F001", "--timeout", "1s", expect=1)


def test_a_command_that_changes_the_ledger_tells_what_it_came_to_at_once(left: Desk) -> None:
    (said,) = [x for x in left.document("claim", "F002", "--any")["warnings"] if "F001" in x]
    assert NO_LONGER in said
    assert "F001" not in str(left.document("list"))


def test_a_command_that_is_refused_or_changes_nothing_tells_it_too(left: Desk, kim: Desk) -> None:
    assert SO_FAR in str(left.document("release", "F009")["warnings"])
    kim.document("claim", "F003", "--any")
    refused = left.document("claim", "F003", "--any", expect=1)
    assert NO_LONGER in str(refused["warnings"])
