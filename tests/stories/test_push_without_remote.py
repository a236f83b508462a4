"""What a fenced push says in a clone that has lost its remote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.repos import git
from support.typed import Typist

pytestmark = pytest.mark.default


@pytest.mark.parametrize("verb", ["push", "land F001", "init --move"])
def test_ledger_of_a_removed_remote_is_not_called_local(
    clones: Callable[..., list[Path]], verb: str
) -> None:
    jo = Typist(clones(1)[0], ManualClock())
    jo.ok("claim F001 --any")
    git(jo.clone, "remote", "remove", "origin")
    refused = jo.types(verb)
    assert refused.code == 7
    assert "has no remote" in refused.err
    assert "local to this clone" not in refused.err


def test_ledger_that_is_local_is_called_so(clones: Callable[..., list[Path]]) -> None:
    jo = Typist(clones(1)[0], ManualClock())
    jo.ok("claim F001 --local --any")
    refused = jo.types("push --local")
    assert refused.code == 2
    assert "local to this clone" in refused.err
