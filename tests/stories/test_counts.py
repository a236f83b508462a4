"""What everyday commands cost at most, in modules and in gits: the numbers may only fall."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.counting import costs, entered_by, entering
from support.gateway import serving
from support.repos import git
from support.task_trees import commit_all, put
from support.tools import ERAS, in_memory

ENTERED = {  # files of gitlease whose functions are called; each may only fall
    "claim T1": 58,
    "list": 48,  # some of them for the place of the ledger, and what main says
    "hook pre-commit": 25,
    # Beside it threads of the request before may still end, on a busy machine.
    "HTTP claim": 54,
    "MCP claim": 56,
}

MOST = {  # modules of gitlease, and gits that it starts, the one that pushes or fetches among them
    # Of the gits one reads the copy of the ledger, one keeps its version, and three write a step.
    # Two more of a claim look at commits: for the ledger's id, and for tasks that are not here.
    "claim deploy": (68, 10),
    "renew deploy": (68, 8),
    "list": (66, 6),
    "release deploy": (68, 8),
    "hook pre-commit": (34, 3),
    # The first command since main moved reads again what main says of the ledger: three gits.
    "check HEAD~1..HEAD": (82, 13),
    "check --stale": (84, 7),
}


def test_no_command_costs_more_than_it_did(tmp_path: Path) -> None:
    found = costs(tmp_path)
    assert {
        name: (len(cost.modules), len(cost.gits))
        for name, cost in found.items()
        if len(cost.modules) > MOST[name][0] or len(cost.gits) > MOST[name][1]
    } == {}
    assert found["claim deploy"].gits_before_push <= 8


@pytest.fixture
def kim(clones: Callable[..., list[Path]]) -> Path:
    """A clone that knows that somebody else holds something."""
    jo, kim = clones(2)
    entered_by(["claim", "docs/", "--ttl", "1h"], cwd=jo)
    entered_by(["list"], cwd=kim)
    return kim


def assert_no_more(entered: dict[str, set[str]]) -> None:
    print({x: len(f) for x, f in entered.items()})
    assert all(entered.values())
    assert not {x: sorted(files) for x, files in entered.items() if len(files) > ENTERED[x]}


@pytest.mark.nightly
def test_no_command_enters_more_files_than_it_did(kim: Path) -> None:
    put(kim, "tasks/T1.md", "---\nid: T1\nstatus: todo\nassigned: []\n---\n")
    commit_all(kim)
    kim.joinpath("README").write_text("staged")
    git(kim, "add", "README")
    entered_by(["hook", "pre-commit"], cwd=kim)
    entered = {
        words: entered_by(words.split(), cwd=kim)
        for words in ("hook pre-commit", "claim T1", "list")
    }
    assert_no_more(entered)


@pytest.mark.slow
def test_no_request_enters_more_files_than_it_did(kim: Path) -> None:
    with entering() as files, serving(kim) as served:
        served.ask("ann", "PUT", "/v1/leases/warm")
        files.clear()
        assert served.ask("ann", "PUT", "/v1/leases/deploy").status_code == 201
        entered = {"HTTP claim": set(files)}
    with entering() as files, in_memory(kim, ERAS[0]) as client:
        client.document("claim", resources=["mild"])
        files.clear()
        assert client.document("claim", resources=["build"])["ok"]
        entered["MCP claim"] = set(files)
    assert_no_more(entered)
