"""A server that says that a ref is locked, or that another push came first, and names no ref."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.ledgers import door
from support.rejecting_server import rejects

from gitlease.kernel.git.run import GitResult
from gitlease.kernel.rules.errors import Unavailable
from gitlease.kernel.store import transport

pytestmark = pytest.mark.default

LEDGER, MAIN = "refs/gitlease/global", "refs/heads/main"
LOCK = "Unable to create '/r/x.lock': File exists."


@pytest.mark.parametrize("words", ["cannot lock ref", "failed to lock"])
def test_answer_that_names_no_ref_is_tried_a_few_times(
    clones: Callable[..., list[Path]], tmp_path: Path, words: str
) -> None:
    """The ref does not move, so the command ends: exit 5, and try again later."""
    (clone,) = clones(1)
    told = rejects(clone, tmp_path / "server", words)
    with pytest.raises(Unavailable, match=r"^a ref is locked on the remote: "):
        door(clone).claim("F001")
    assert told.pushes == 6


@pytest.mark.parametrize(
    ("printed", "unnamed"),
    [
        (f"cannot lock ref '{LEDGER}': {LOCK}", False),
        (f"cannot lock ref '{MAIN}': {LOCK}", True),
        (f"cannot lock ref: {LOCK}", True),
    ],
)
def test_only_the_ledgers_own_lock_is_that_of_other_changes(printed: str, *, unnamed: bool) -> None:
    note = "[remote rejected] (atomic transaction failed)"
    out = "".join(f"!\t1:{x}\t{note}\n" for x in (LEDGER, MAIN))
    result = GitResult(1, out.encode(), f"remote: error: {printed}\n", timed_out=False)
    pushed = transport.read_push(result, [LEDGER], 1.0, far=False, work=[MAIN])
    assert pushed.unnamed is unnamed
