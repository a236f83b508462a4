"""Commits of gitlease's own on branches of work: their subjects by rule, and a branch to be on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import typed
from support.remotes import Remote
from support.repos import commit_file, git, make_clone
from support.snapshots import check_words, raises

from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.settings.schema import read_commit_prefix

pytestmark = pytest.mark.slow

TASK = "---\nid: {}\nstatus: todo\nassigned: []\n---\n"
# A host's rule: every subject on a branch begins with a key.
RULE = """#!/bin/sh
while read -r old new ref; do
  case $ref in refs/heads/*) ;; *) continue;; esac
  git log --format=%s "$new" --not --all | grep -v '^OPS-1: ' >&2 && exit 1
done
exit 0
"""


@pytest.fixture
def jo(path_remote: Remote, tmp_path: Path) -> Path:
    clone = make_clone(path_remote, tmp_path / "jo", "jo@example.com", "Jo")
    for name in ("F001", "F002"):
        commit_file(clone, f"tasks/{name}.md", TASK.format(name), "a task")
    git(clone, "push", "-q", "origin", "HEAD:main")
    return clone


def subjects(clone: Path, *revisions: str) -> list[str]:
    return git(clone, "log", "--format=%s", *revisions).splitlines()


def test_what_gitlease_commits_passes_a_rule_for_subjects(jo: Path, path_remote: Remote) -> None:
    hook = path_remote.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(RULE)
    hook.chmod(0o755)
    git(jo, "config", "lease.commitPrefix", "OPS-1:")
    git(jo, "checkout", "-q", "-b", "topic")
    assert typed(jo, "claim", "F001", "--commit").returncode == 0
    assert subjects(jo, "-1") == ["OPS-1: assign F001 to jo@example.com"]
    commit_file(jo, "work.txt", "work\n", "OPS-1: work")
    landed = typed(jo, "land", "F001")
    assert landed.returncode == 0, landed
    # The commit of the edge is recognised by its subject, and does not land by itself.
    found = subjects(path_remote.bare, "main")
    assert found[:2] == ["OPS-1: work", "a task"]
    # A landing without work makes a commit of its own, whose trailers are no part of the subject.
    git(jo, "checkout", "-q", "-b", "other", "origin/main")
    assert typed(jo, "claim", "F002").returncode == 0
    landed = typed(jo, "land", "F002")
    assert landed.returncode == 0, landed
    message = git(path_remote.bare, "log", "-1", "--format=%B", "main")
    assert message.splitlines()[:2] == ["OPS-1: Finish F002", ""]
    assert message.splitlines()[2].startswith("Gitlease: F002 token=")
    assert typed(jo, "verify").returncode == 0


def test_a_prefix_is_one_short_printable_word_or_more() -> None:
    assert read_commit_prefix("[ops] chore: ", "it") == "[ops] chore:"
    for bad in ("#12", "a\nb", "x" * 41, " "):
        with raises(UsageError):
            read_commit_prefix(bad, "lease.commit_prefix")


@pytest.mark.parametrize("verb", ["claim F001 --commit", "land F001"])
def test_a_detached_head_says_what_jj_users_do(jo: Path, verb: str) -> None:
    assert typed(jo, "claim", "F001").returncode == 0
    git(jo, "checkout", "-q", "--detach")
    plain = typed(jo, *verb.split())
    (jo / ".jj").mkdir()
    under_jj = typed(jo, *verb.split())
    assert (plain.returncode, under_jj.returncode) == (7, 7)
    check_words(plain.stderr)
    check_words(under_jj.stderr)
    git(jo, "switch", "-q", "-c", "topic")
    assert typed(jo, *verb.split()).returncode == 0
