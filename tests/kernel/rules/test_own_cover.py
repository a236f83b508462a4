"""Where scopes divide a task, each of its holders works on the paths of all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel.rules.values import JO, KIM, SKEW, TTL, lease, moment

from gitlease.kernel.rules.lease import DEFAULT_POLICY, Actor, Lease
from gitlease.kernel.rules.viewpoint import Touched, Viewpoint

LOGIN = Touched("src/auth/login.py")
FILE = Touched("tasks/F001.md", tasks=frozenset({"f001"}))
THEIRS = lease(holder=KIM, scope="back", paths=("src/auth",))


def own(**more: object) -> Lease:
    return lease(**{"scope": "front", "paths": ("src/auth",), **more})  # type: ignore[arg-type]


def found(mine: Lease, who: Actor = JO, *, seconds: float = 10) -> list[str]:
    touched = [LOGIN, FILE]
    judged = Viewpoint(who, DEFAULT_POLICY, moment(seconds)).judge(touched, [THEIRS, mine])
    return [f"{x.severity.value} {x.path}" for x in judged]


BLOCKED = ["block src/auth/login.py", "block tasks/F001.md"]


@pytest.mark.parametrize("paths", ["src/auth", "src/", "src/auth/*.py"])
def test_what_ones_own_part_covers_too_is_free(paths: str) -> None:
    assert found(own(paths=(paths,))) == []


def test_what_it_does_not_cover_is_not() -> None:
    assert found(own(paths=("docs",))) == ["block src/auth/login.py"]
    assert found(own(paths=())) == ["block src/auth/login.py"]


def test_another_task_of_ones_own_frees_nothing() -> None:
    assert found(own(resource="F002")) == BLOCKED
    both = [THEIRS, replace(lease(holder=KIM, resource="F002", scope="back"), token=2)]
    judged = Viewpoint(JO, DEFAULT_POLICY, moment(10)).judge([LOGIN], [*both, own(resource="F002")])
    assert [x.lease.resource.text for x in judged] == ["F001"]


def test_only_a_live_lease_of_ones_own_session_does() -> None:
    late = TTL + SKEW + 1
    theirs = replace(THEIRS, expires_at=THEIRS.expires_at + 3_600_000)
    judged = Viewpoint(JO, DEFAULT_POLICY, moment(late)).judge([LOGIN], [theirs, own()])
    assert [x.severity.value for x in judged] == ["block"]
    run, other = replace(JO, session="ci"), replace(JO, session="other")
    of_run = found(own(holder=run), other)
    assert [x for x in of_run if x in BLOCKED] == [x for x in of_run if x.startswith("block")]
    assert set(BLOCKED) <= set(of_run)
    assert found(own(holder=run), run) == []
