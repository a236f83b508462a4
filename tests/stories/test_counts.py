"""What everyday commands cost at most, in modules, gits and functions: it may only fall."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.counting import costs, entered_by, entering
from support.gateway import serving
from support.repos import git
from support.task_trees import commit_all, put
from support.tools import ERAS, in_memory

# Named functions of gitlease that are entered; each may only fall. The aim is a claim of 650, a
# list of 500 and a hook of 400.
ENTERED = {
    "claim T1": 868,
    "list": 556,
    "hook pre-commit": 400,
    # Beside it threads of the request before may still end, on a busy machine.
    "HTTP claim": 573,
    "MCP claim": 722,
}

# Those of tasks/ by which a claim finds out that a repository has no task files.
OF_TASKS = 14

MOST = {  # modules of gitlease, and gits that it starts, the one that pushes or fetches among them
    # Of the gits one reads the copy of the ledger, one keeps its version, and three write a step.
    # Two more of a claim look at commits: for the ledger's id, and for tasks that are not here.
    "claim deploy": (70, 10),
    "renew deploy": (70, 8),
    "list": (68, 6),
    "release deploy": (70, 8),
    "hook pre-commit": (34, 3),
    # The first command since main moved reads again what main says of the ledger: three gits.
    "check HEAD~1..HEAD": (84, 13),
    "check --stale": (86, 7),
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
    assert all(entered.values())
    counted = {name: len(functions) for name, functions in entered.items()}
    assert {name: n for name, n in counted.items() if n > ENTERED[name]} == {}


@pytest.mark.slow
def test_no_command_enters_more_functions_than_it_did(kim: Path) -> None:
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
def test_a_claim_of_a_name_only_looks_whether_there_are_tasks(kim: Path) -> None:
    entered = entered_by(["claim", "deploy", "--any"], cwd=kim)
    of_tasks = {each for each in entered if each.startswith("tasks/")}
    assert {each.partition(" ")[0] for each in of_tasks} == {"tasks/files.py", "tasks/scan.py"}
    assert len(of_tasks) <= OF_TASKS


@pytest.mark.slow
def test_no_request_enters_more_functions_than_it_did(kim: Path) -> None:
    with entering() as functions, serving(kim) as served:
        served.ask("ann", "PUT", "/v1/leases/warm")
        functions.clear()
        assert served.ask("ann", "PUT", "/v1/leases/deploy").status_code == 201
        entered = {"HTTP claim": set(functions)}
    with entering() as functions, in_memory(kim, ERAS[0]) as client:
        client.document("claim", resources=["mild"])
        functions.clear()
        assert client.document("claim", resources=["build"])["ok"]
        entered["MCP claim"] = set(functions)
    assert_no_more(entered)
