"""The verbs of the library that look, and those that set a repository up; and what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import commit_file, git
from support.snapshots import check_words, raises

import gitlease
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]
ADA, BOB = "ada@example.com", "bob@example.com"


def test_the_log_has_aware_times(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA, session="one")
    began = gitlease_ledger.now
    ada.claim("F001", reason="why")
    gitlease_ledger.advance(hours=1)
    ada.claim("F002")
    ada.done("F002", any=True)
    newest, *_ = found = ada.log()
    assert [(x.kind, x.resource) for x in found] == [
        ("completed", "F002"),
        ("claimed", "F002"),
        ("claimed", "F001"),
    ]
    assert (newest.by, newest.session, newest.at) == (ADA, "one", gitlease_ledger.now)
    assert ada.log("F001")[0] == found[2]
    assert (found[2].at, found[2].reason, found[2].token) == (began, "why", 1)
    assert ada.log(limit=1, cached=True) == found[:1]
    for since in ("30m", timedelta(minutes=30), began + timedelta(minutes=1)):
        assert ada.log(since=since) == found[:2]
    assert ada.log(since=(began + timedelta(minutes=1)).astimezone(UTC).replace(tzinfo=None))
    for bad in (0, True, "3"):
        with pytest.raises(gitlease.UsageError, match="limit"):
            ada.log(limit=bad)  # type: ignore[arg-type]
    with pytest.raises(gitlease.UsageError, match="since"):
        ada.log(since="yesterday")


def test_the_ledger_at_a_glance(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA)
    assert ada.status() == gitlease.LedgerStatus(
        place="memory", layer="global", id=None, revision=0, leases=()
    )
    ada.claim("F001")
    ada.claim("F002", ttl="1h")
    gitlease_ledger.advance(minutes=17)
    found = ada.status()
    assert found.id is not None
    assert [x.resource for x in found.leases] == ["F002"], "the other has lapsed"
    assert ada.whoami() == gitlease.WhoAmI(
        holder=ADA,
        session=None,
        holder_source="git config (command line) user.email",
        session_source="none",
    )


def test_an_extension_tells_that_it_was_capped(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA)
    assert not ada.claim("F001").capped
    assert not ada.extend("F001", "1h").capped
    longest = ada.extend("F001", "3d")
    assert (longest.capped, longest.expires_in) == (True, 8 * 3_600)
    assert longest.seconds_left == 28_800.0
    gitlease_ledger.advance(days=1)
    (over,) = ada.show("F001")
    assert (over.state, over.seconds_left) == ("expired", 0.0)


def test_the_policy_is_read_and_set(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA)
    (most,) = ada.config("ttl_max", ledger=True)
    assert (most.value, most.source) == ("8h", "built-in")
    ada.config("ttl_max", "1h", ledger=True)
    assert ada.config("TTL_MAX", ledger=True)[0] == gitlease.Setting("ttl_max", "1h", "ledger")
    with pytest.raises(gitlease.PolicyRefused):
        ada.claim("F001", ttl="2h")
    with pytest.raises(gitlease.UsageError, match="in memory"):
        ada.verify()
    for bad in (("ttl_mox", "1h"), ("ttl_max", "long"), (None, "1h")):
        with pytest.raises(gitlease.UsageError):
            ada.config(*bad, ledger=True)
    gitlease_ledger.failing = gitlease.Unavailable("away")
    with pytest.raises(gitlease.Unavailable):
        ada.config(ledger=True)
    assert ada.config("ttl_max", ledger=True, cached=True)[0].value == "1h"


def test_a_board_is_read(gitlease_ledger: MemoryLedger) -> None:
    ada, bob = gitlease_ledger.open(ADA, session="one"), gitlease_ledger.open(BOB)
    lease = ada.claim("F001", reason="parser")
    [row] = bob.board().rows
    assert (row.section, row.resource, row.holder, row.mine) == ("held", "F001", ADA, False)
    assert (row.reason, row.session, row.waiting) == ("parser", "one", ())
    assert row.ends_at == lease.expires_at.replace(microsecond=0)
    ada.release("F001")
    board = bob.board()
    assert ([x.what for x in board.news], board.rows) == (["released", "claimed"], ())
    with pytest.raises(gitlease.UsageError, match="cached"):
        bob.board(cached="yes")  # type: ignore[arg-type]
    gitlease_ledger.failing = gitlease.Unavailable("away")
    with pytest.raises(gitlease.Unavailable):
        bob.board()
    assert bob.board(cached=True) == board


def test_what_is_shown_of_a_value_is_one_line(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA, session="one")
    lease = ada.claim("F001", scope="parser")
    until = f"{lease.expires_at:%Y-%m-%dT%H:%M:%SZ}"
    check_words(repr(lease).replace(until, "UNTIL"))
    ada.park("F001", scope="parser")
    assert "parked" in repr(ada.show("F001")[0])
    check_words([repr(ada), repr(gitlease.open_async("."))])
    assert repr(gitlease_ledger).startswith("<MemoryLedger at 20")
    with gitlease_ledger.stand_in(BOB):
        hold = gitlease.hold("F002", ttl="15m")
        check_words(repr(hold))
        with hold:
            check_words(repr(hold))
        with gitlease.session("build") as build:
            check_words(repr(build))
    heard = gitlease_ledger.open(BOB).on_available("F001")(print)
    check_words(repr(heard))
    heard.stop()
    check_words(repr(heard))


@pytest.fixture
def clone(path_remote: Remote, clones: Callable[..., list[Path]]) -> Path:
    return clones(1, path_remote)[0]


def test_a_repository_is_set_up(clone: Path, path_remote: Remote) -> None:
    leases = gitlease.open(clone)
    made = leases.init()
    assert made.settings_file == str(clone / ".gitlease.yaml")
    assert (made.layer, made.revision, made.place) == ("global", 1, leases.status().place)
    again = leases.init()
    assert (again.settings_file, again.id, again.revision) == (None, made.id, 2)
    with raises(gitlease.UsageError):
        leases.init(undo_rollback=True, accept_rollback=True)
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
    assert anew.config("lease.ttl")[0].value == "30m"
    assert anew.claim("F001").ttl_seconds == 1_800
    anew.config("lease.ttl", "")
    assert gitlease.open(clone).config("lease.ttl")[0].value == "15m"
    with raises(gitlease.UsageError) as unknown:
        leases.config("lease.tll")
    assert "lease.ttl" in unknown.value.hints[0]
    unusable: tuple[tuple[Any, ...], ...] = ((None, "x"), ("lease.ttl", "soon"), (5,))
    for words in unusable:
        with pytest.raises(gitlease.UsageError):
            leases.config(*words)
    with raises(gitlease.UsageError):
        leases.config(cached=True)
    leases.config("lease.ttl", "9h")
    assert leases.warnings, "more than the ledger allows"
    [remote] = leases.config("LEASE.REMOTE")
    assert remote.value == "origin"


def test_commits_are_checked(path_remote: Remote, clones: Callable[..., list[Path]]) -> None:
    one, two = clones(2, path_remote)
    gitlease.open(one).claim("path:src/", any=True)
    commit_file(two, "src/a.py", "1\n")
    found = gitlease.open(two).check_commits("HEAD~1..HEAD")
    assert (found.commits, found.passed) == (1, False)
    finding, *_ = found.findings
    assert (finding.rule.id, finding.level, finding.file) == (
        "held-then",
        gitlease.Level.ERROR,
        "src/a.py",
    )
    assert finding.holder == "w1@example.com"
    mine = gitlease.open(one).check_commits("HEAD~0..HEAD", cached=True)
    assert (mine.commits, mine.findings, mine.passed) == (0, (), True)
    with raises(gitlease.UsageError):
        gitlease.open(two).check_commits("nope..HEAD")


def test_stale_claims_are_found_and_retired(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---\nid: F001\ntitle: Search\nstatus: in_progress\nassigned: ['@kim']\n---\n"
    settings = 'tasks:\n  files: ["tasks/*.md"]\nstale:\n  after: 1d\n  release: true\n'
    for name, content in ((".gitlease.yaml", settings), ("tasks/F001.md", text)):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text(content, encoding="utf-8")
    git(clone, "add", ".")
    long_ago = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2020-01-01T00:00:00Z")
    git(clone, "commit", "-q", "-m", "assign", env=long_ago)
    git(clone, "push", "-q", "origin", "HEAD")
    base = git(clone, "rev-parse", "HEAD")
    (clone / ".gitlease.yaml").write_text(settings.replace("1d", "3000d"), encoding="utf-8")
    git(clone, "commit", "-qam", "no claim is stale any more")
    leases = gitlease.open(clone)
    assert leases.check_stale().passed
    with monkeypatch.context() as ci:
        event = tmp_path / "event.json"
        ends = {
            "base": {"ref": "main", "sha": base},
            "head": {"sha": git(clone, "rev-parse", "HEAD")},
        }
        event.write_text(json.dumps({"number": 7, "pull_request": {"number": 7, **ends}}))
        ci.setenv("GITHUB_ACTIONS", "true")
        ci.setenv("GITHUB_EVENT_NAME", "pull_request")
        ci.setenv("GITHUB_EVENT_PATH", str(event))
        judged = {x.rule.id: x for x in leases.check_stale().findings}["stale-edge"]
        assert judged.since == datetime(2020, 1, 1, tzinfo=UTC), "by what was there before"
    git(clone, "reset", "-q", "--hard", base)
    leases = gitlease.open(clone)
    before = [x.rule.id for x in leases.check_stale().findings]
    assert "stale-edge" in before
    assert hash(leases.check_stale()) == hash(leases.check_stale())
    assert "_actions" not in repr(leases.check_stale())
    fixed = leases.check_stale(fix=True)
    assert "stale-edge" in [x.rule.id for x in fixed.fixed]
    assert "stale-edge" not in [x.rule.id for x in fixed.findings]
    with pytest.raises(gitlease.UsageError, match="cached"):
        leases.check_stale(fix=True, cached=True)


def test_states_are_those_that_are_documented() -> None:
    """A checker knows them from the annotations; here it is that these are all there are."""
    from typing import get_args

    from gitlease.core import LeaseState, State
    from gitlease.faces.library import WorkOutcome
    from gitlease.verbs import OUTCOMES

    assert set(get_args(LeaseState)) == {x.value for x in State} | {"planned"}  # by a dry run
    assert set(get_args(WorkOutcome)) == set(OUTCOMES)
    assert str(gitlease.Loss.EXPIRED) == "expired"  # as in JSON, for who compares words
