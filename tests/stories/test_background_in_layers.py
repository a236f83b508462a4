"""What a command in the background or a pool claims in another layer ends with it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import commit_file, git
from support.running import Desk, desks_in, until

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="orphans are adopted on Linux"),
    pytest.mark.default,
]

TASK = "---\nid: F001\ntitle: The first\nstatus: todo\nassigned: []\n---\n"


@pytest.fixture
def jo(path_remote: Remote, clones: Callable[..., list[Path]]) -> Iterator[Desk]:
    """A clone with one task on the default branch."""
    (clone,) = clones(1)
    commit_file(clone, "tasks/F001.md", TASK)
    git(clone, "push", "-q", "origin", "HEAD:main", env=path_remote.env)
    with desks_in([clone]) as (desk,):
        yield desk


def held(desk: Desk, layer: str) -> list[str]:
    leases = desk.document("list", "--layer", layer)["leases"]
    return [x["resource"] for x in leases if x["state"] == "active"]


def claims(desk: Desk) -> list[str]:
    """A command that claims in another layer, and writes down what that layer has then."""
    claim = shlex.join(desk.words("claim", "port", "--layer", "team", "--any"))
    seen = shlex.join(desk.words("list", "--layer", "team"))
    return ["sh", "-c", f"{claim} >/dev/null && {seen} >{desk.clone}/.git/seen"]


def test_what_a_dispatched_command_claims_in_another_layer_ends_with_it(jo: Desk) -> None:
    jo.document("dispatch", "F001", "--", *claims(jo))
    seen = jo.clone / ".git" / "seen"
    until(lambda: seen.exists() and "port" in seen.read_text(encoding="utf-8"), "the claim")
    until(lambda: held(jo, "global") == held(jo, "team") == [], "the end of the run")


def test_what_a_task_of_a_pool_claims_in_another_layer_ends_with_it(jo: Desk) -> None:
    worked = jo.ask("work", "--until-empty", "--done-on-success", "--", *claims(jo))
    assert worked.returncode == 0, worked
    assert "port" in (jo.clone / ".git" / "seen").read_text(encoding="utf-8")
    assert (held(jo, "global"), held(jo, "team")) == ([], [])
