"""The local ledger of a clone is told of where it is asked for, not with every answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.typed import Typist

pytestmark = pytest.mark.slow

ALONE = "which nobody else sees"


@pytest.fixture
def jo(clones: Callable[..., list[Path]]) -> Typist:
    (clone,) = clones(1)
    typist = Typist(clone, ManualClock(), {"GITLEASE_SESSION": "run-1"})
    assert ALONE in typist.ok("claim disk --any --local").err
    return typist


def test_answers_about_the_shared_ledger_do_not_speak_of_the_local_one(jo: Typist) -> None:
    for line in ("brief", "session list", "renew --all", "session end nobody", "release --all"):
        told = jo.ok(line)
        assert ALONE not in told.out + told.err, (line, told)


def test_a_lease_of_the_local_ledger_is_named_with_its_layer(jo: Typist) -> None:
    assert "disk in layer local" in jo.ok("renew --all").out
    assert "in layer local" in jo.ok("brief").out
    assert "released disk in layer local" in jo.ok("release --all").out


def test_an_answer_about_the_local_ledger_alone_says_so(jo: Typist) -> None:
    for line in ("list --local", "brief --local", "session list --local", "renew disk --local"):
        assert ALONE in jo.ok(line).err, line
