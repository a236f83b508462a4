"""``gitlease verify`` in a real clone: what it says, how it ends, and where its history is from."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import read_files, set_tip, tip, write_tree
from support.remotes import Remote
from support.repos import assert_untouched, commit_file, git, make_clone, real_clone, snapshot
from support.snapshots import check_words

import gitlease
from gitlease.cli.app import run

REF = "refs/gitlease/global"


class Clone:
    """One clone, and what its commands say."""

    def __init__(self, path: Path, remote: Path) -> None:
        self.path, self.remote = path, remote

    def say(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run([words[0], "-C", str(self.path), *words[1:]])
        return status, out.getvalue(), err.getvalue()

    def ok(self, *words: str) -> str:
        status, out, err = self.say(*words)
        assert status == 0, (words, out, err)
        return out

    def document(self, *words: str, status: int = 0) -> dict[str, Any]:
        ended, out, err = self.say(*words, "--json")
        assert ended == status, (words, out, err)
        found: dict[str, Any] = json.loads(out)
        return found

    def tamper(self) -> str:
        """Somebody writes a step by hand on top of the ledger: a record is gone."""
        files = {k: v for k, v in read_files(self.remote).items() if not k.startswith("leases/")}
        tree = write_tree(self.remote, files)
        words = ("commit-tree", "-p", REF, "-m", "nothing to see here", tree)
        who = {f"GIT_{x}_{y}": "eve@example.com" for x in ("AUTHOR", "COMMITTER") for y in NAMES}
        made = git(self.remote, *words, env=who)
        set_tip(self.remote, made)
        return made


NAMES = ("NAME", "EMAIL")


@pytest.fixture
def clone(path_remote: Remote, tmp_path: Path) -> Clone:
    found = Clone(
        make_clone(path_remote, tmp_path / "jo", "jo@example.com", "Jo"), path_remote.bare
    )
    found.ok("claim", "F001", "--any", "--ttl", "1h")
    found.ok("renew", "F001")
    found.ok("renew", "F001")
    found.ok("claim", "src/")
    return found


def test_a_sound_ledger_says_what_was_checked(clone: Clone) -> None:
    before = snapshot(clone.path)
    status, out, err = clone.say("verify")
    assert (status, err) == (0, "")
    *unjudged, last = out.splitlines()
    commits = git(clone.remote, "rev-list", "--count", REF)
    check_words(last)
    assert f"{commits} commits" in last
    check_words(last)
    check_words([line.partition(": ")[0] for line in unjudged])
    found = clone.document("verify")
    assert found["commit"] == tip(clone.remote)
    assert (found["revision"], found["grants"], found["violations"]) == (4, 2, [])
    assert_untouched(before, snapshot(clone.path))


def test_what_was_tampered_with_is_told_with_commit_and_rule(clone: Clone) -> None:
    made = clone.tamper()
    other = Clone(clone.path.parent / "kim", clone.remote)
    real_clone(clone.remote, other.path, "kim@example.com")
    status, out, err = other.say("verify")
    assert (status, err) == (1, "")
    assert f"{made}: operations: " in out
    assert out.splitlines()[-1].endswith("1 violation")
    failed = other.document("verify", status=1)
    assert failed["error"]["code"] == "violations"
    assert {one["commit"] for one in failed["violations"]} == {made}
    assert {one["rule"] for one in failed["violations"]} == {"operations"}
    assert all(one["message"] for one in failed["violations"])


def test_a_ref_without_a_ledger_is_refused(clone: Clone) -> None:
    commit_file(clone.path, "README", "text")
    status, out, err = clone.say("verify", "HEAD")
    assert (status, out) == (7, "")
    check_words(err)
    status, _, err = clone.say("verify", "nowhere")
    assert status == 7
    check_words(err.splitlines()[0][:22])
    for words in (("HEAD", "--layer", "x"), ("HEAD", "--cached"), ("HEAD", "--remote", "origin")):
        assert clone.say("verify", *words)[0] == 2
    assert clone.say("verify", "--layer", "empty")[0] == 7
    status, _, err = clone.say("verify", "--cached", "--layer", "empty")
    assert status == 7
    check_words(err)


def test_a_tip_that_was_seen_must_have_stayed(clone: Clone) -> None:
    seen = tip(clone.remote)
    clone.ok("claim", "F002", "--any")
    clone.ok("verify", "--tip", seen)
    before = git(clone.remote, "rev-parse", f"{seen}^")
    found = clone.document("verify", before, "--tip", seen, status=1)
    assert [(x["commit"], x["rule"]) for x in found["violations"]] == [(seen, "rewound")]
    status, _, err = clone.say("verify", "--tip", "nowhere")
    assert status == 7
    check_words(err.splitlines()[0])


def test_without_the_remote_only_what_is_known_is_checked(clone: Clone) -> None:
    clone.remote.rename(clone.remote.with_suffix(".away"))
    status, _, err = clone.say("verify")
    assert status == 5
    assert "verify --cached" in err
    status, out, err = clone.say("verify", "--cached")
    assert status == 0
    check_words(err)
    check_words(out)


def test_a_program_gets_what_was_verified(clone: Clone) -> None:
    async def awaited() -> gitlease.Verified:
        async with gitlease.open_async(clone.path) as opened:
            return await opened.verify()

    leases = gitlease.open(clone.path)
    found = leases.verify()
    assert (found.broken, found.leases) == ((), 2)
    assert asyncio.run(awaited()).tip == found.tip == leases.verify(cached=True).tip
    check_words(leases.warnings)
    assert leases.verify(found.tip, tips=[found.tip]).commits == found.commits
    made = clone.tamper()
    git(clone.path, "fetch", "-q", "origin", REF)
    assert [x.commit for x in leases.verify(made).broken] == [made]
    unknown: list[dict[str, Any]] = [{"ref": "nope"}, {"tips": ["nope"]}, {"ref": "HEAD"}]
    for words in unknown:
        with pytest.raises((gitlease.NotFound, gitlease.Invalid)):
            leases.verify(**words)
    unusable: list[dict[str, Any]] = [{"tips": "nope"}, {"tips": [5]}, {"ref": 5}]
    for words in (*unusable, {"ref": "HEAD", "cached": True}):
        with pytest.raises(gitlease.UsageError):
            leases.verify(**words)
