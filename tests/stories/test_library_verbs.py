"""The verbs of the library that look, and those that set a repository up; and what is shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import git

import gitlease

pytest_plugins = ["gitlease.testing"]
ADA, BOB = "ada@example.com", "bob@example.com"


@pytest.fixture
def clone(path_remote: Remote, clones: Callable[..., list[Path]]) -> Path:
    return clones(1, path_remote)[0]


def test_a_repository_is_set_up(clone: Path) -> None:
    leases = gitlease.open(clone)
    made = leases.init()
    assert made.settings_file == str(clone / ".gitlease.yaml")
    assert (made.layer, made.revision, made.place) == ("global", 1, leases.status().place)
    again = leases.init()
    assert (again.settings_file, again.id, again.revision) == (None, made.id, 2)
    git(clone, "remote", "set-url", "origin", str(clone / "nowhere"))
    away = gitlease.open(clone)
    assert away.init().id is None
    assert away.warnings


def test_settings_are_read_and_set(clone: Path) -> None:
    leases = gitlease.open(clone)
    assert {x.key for x in leases.config()} >= {"lease.ttl", "tasks.files"}
    with gitlease.open(clone, remote="origin", session="s1") as named:
        assert named.config("lease.remote")[0].source == "remote"
        assert named.whoami().session_source == "session"
    (said,) = leases.config("lease.ttl", "30m")
    assert said == gitlease.Setting("lease.ttl", "30m", "git config (local) lease.ttl")
    anew = gitlease.open(clone)
    assert anew.claim("F001").ttl_seconds == 1_800
    anew.config("lease.ttl", "")
    assert gitlease.open(clone).config("lease.ttl")[0].value == "15m"
    unusable: tuple[tuple[Any, ...], ...] = (
        *((None, "x"), ("lease.ttl", "soon"), (5,), ("lease.tll",)),
    )
    for words in unusable:
        with pytest.raises(gitlease.UsageError):
            leases.config(*words)


def test_stale_claims_are_found_and_retired(clone: Path) -> None:
    text = "---\nid: F001\ntitle: Search\nstatus: in_progress\nassigned: ['@kim']\n---\n"
    settings = 'tasks:\n  files: ["tasks/*.md"]\nstale:\n  after: 1d\n  release: true\n'
    for name, content in ((".gitlease.yaml", settings), ("tasks/F001.md", text)):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text(content, encoding="utf-8")
    git(clone, "add", ".")
    long_ago = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2020-01-01T00:00:00Z")
    git(clone, "commit", "-q", "-m", "assign", env=long_ago)
    git(clone, "push", "-q", "origin", "HEAD")
    leases = gitlease.open(clone)
    judged = {x.rule.id: x for x in leases.check_stale().findings}["stale-edge"]
    assert judged.since == datetime(2020, 1, 1, tzinfo=UTC)
    assert hash(leases.check_stale()) == hash(leases.check_stale())
    fixed = leases.check_stale(fix=True)
    assert "stale-edge" in [x.rule.id for x in fixed.fixed]
    assert "stale-edge" not in [x.rule.id for x in fixed.findings]


def test_states_are_those_that_are_documented() -> None:
    """A checker knows them from the annotations; here it is that these are all there are."""
    from typing import get_args

    from gitlease.core import LeaseState, State
    from gitlease.faces.library import WorkOutcome
    from gitlease.verbs import OUTCOMES

    assert set(get_args(LeaseState)) == {x.value for x in State} | {"planned"}  # by a dry run
    assert set(get_args(WorkOutcome)) == set(OUTCOMES)
    assert str(gitlease.Loss.EXPIRED) == "expired"  # as in JSON, for who compares words
