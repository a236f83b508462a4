"""What a push brings to a remote is known from what git tells its pre-push hook."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.counting import processes
from support.repos import commit_file, git, make_repository, run_git

from gitlease.guard import pushes as pushes_module
from gitlease.guard.pushes import Push, outgoing
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import Invalid

ZERO = "0" * 40
UNKNOWN = "1" * 40
HOOK = '#!/bin/sh\ncat > "$(git rev-parse --git-common-dir)/said"\nexit 1\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one commit, which its remote `origin` has on main."""
    bare = tmp_path / "bare"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(bare))
    made = make_repository(tmp_path / "clone")
    git(made, "remote", "add", "origin", str(bare))
    commit_file(made, "first", "x\n")
    git(made, "push", "-q", "origin", "main")
    return made


def told(clone: Path, *words: str) -> list[str]:
    """The lines that git gives the hook of such a push, which the hook then refuses."""
    hook = clone / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    run_git(clone, "push", "-q", *words)
    hook.unlink()
    said = clone / ".git/said"
    lines = said.read_text(encoding="utf-8").splitlines(keepends=True)
    said.unlink()
    return lines


def pushes(clone: Path, *words: str, remote: str = "origin") -> list[Push]:
    lines = told(clone, remote, *words)
    return outgoing(discover(str(clone)), lines, remote=remote, environ={})


def test_commits_count_wherever_they_are_to_land_anew(clone: Path) -> None:
    """Whoever made them. What the main branch has was judged when it came there."""
    git(clone, "config", "user.email", "jo@example.com")
    git(clone, "checkout", "-q", "-b", "topic")
    mine = commit_file(clone, "mine", "x\n")
    git(clone, "config", "user.email", "kim@example.com")
    theirs = commit_file(clone, "theirs", "x\n")
    git(clone, "push", "-q", "origin", "topic", "main:side")

    def lands(*words: str, strict: bool = True) -> list[tuple[str, ...]]:
        lines = told(clone, "origin", *words)
        found = outgoing(
            discover(str(clone)),
            lines,
            remote="origin",
            environ={},
            shared="origin",
            strict=strict,
        )
        return [push.every for push in found]

    both = (theirs, mine)
    assert lands("topic:main") == [both]
    assert lands("topic:main", "topic:side") == [both, both]
    assert lands("topic:main", "topic:side", strict=False) == [both, ()], "all build on main"
    assert lands("topic:new") == [()], "where nothing was, nothing changes"
    git(clone, "update-ref", "refs/remotes/origin/main", "topic")
    assert lands("topic:main") == [both], "what the remote has is known better"
    assert lands("topic:side") == [()], "main has it"


def head(clone: Path, name: str = "HEAD") -> str:
    return git(clone, "rev-parse", name)


def test_the_commits_of_an_update_are_those_since_the_remotes(clone: Path) -> None:
    old = head(clone)
    new = [commit_file(clone, name, "x\n") for name in ("a", "b")]
    [push] = pushes(clone, "main")
    assert push == Push("refs/heads/main", new[1], old, (new[1], new[0]), "update")
    git(clone, "push", "-q", "origin", "main")
    git(clone, "commit", "-q", "--amend", "-m", "again")
    [push] = pushes(clone, "--force", "main")
    assert push.commits == (head(clone),)


def test_a_new_branch_brings_what_no_branch_of_the_remote_has(clone: Path) -> None:
    git(clone, "switch", "-q", "-c", "side")
    new = commit_file(clone, "a", "x\n")
    [push] = pushes(clone, "side:refs/heads/theirs")
    assert push == Push("refs/heads/theirs", new, "", (new,), "new")
    git(clone, "branch", "same", "main")
    [push] = pushes(clone, "same")
    assert push.commits == ()


def test_a_deleted_branch_and_a_ledger_bring_nothing(clone: Path) -> None:
    git(clone, "push", "-q", "origin", "main:side")
    assert pushes(clone, ":side") == [Push("refs/heads/side", "", head(clone), (), "delete")]
    commit_file(clone, "a", "x\n")
    [push] = pushes(clone, "main:refs/gitlease/global")
    assert (push.kind, push.commits) == ("ledger", ())
    line = f"refs/heads/main {head(clone)} refs/heads/leases/global {ZERO}\n"
    for prefix, kind in (("refs/heads/leases", "ledger"), ("refs/heads/lease", "new")):
        repository = discover(str(clone))
        [push] = outgoing(repository, [line], remote="origin", environ={}, ref_prefix=prefix)
        assert push.kind == kind


def test_a_remote_that_is_ahead_is_compared_by_what_is_known_of_it(clone: Path) -> None:
    new = commit_file(clone, "a", "x\n")
    line = f"refs/heads/main {new} refs/heads/main {UNKNOWN}\n"
    [push] = outgoing(discover(str(clone)), [line], remote="origin", environ={})
    assert push == Push("refs/heads/main", new, UNKNOWN, (new,), "update")


def test_tags_are_peeled(clone: Path) -> None:
    new = commit_file(clone, "a", "x\n")
    git(clone, "tag", "-a", "-m", "one", "v1")
    git(clone, "tag", "-a", "-m", "no commit", "blob", "HEAD:a")
    [blob, tag] = pushes(clone, "--tags")
    assert (tag.remote_ref, tag.local_oid, tag.commits) == (
        "refs/tags/v1",
        head(clone, "v1"),
        (new,),
    )
    assert tag.local_oid != new
    assert blob.commits == ()


def test_many_tags_of_what_is_there_take_one_process(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        git(clone, "tag", "-a", "-m", "x", f"v{number}", "HEAD")
    lines = told(clone, "origin", "--tags")
    assert len(lines) == 20
    repository = discover(str(clone))

    def look() -> list[Push]:
        return outgoing(repository, lines, remote="origin", environ={})

    assert processes(tmp_path / "trace", look, monkeypatch) == 1
    assert all(push.commits == () and push.kind == "new" for push in look())
    lines = told(clone, "origin", "v1")
    assert processes(tmp_path / "trace1", look, monkeypatch) == 1


def test_a_remote_may_be_a_url_or_keep_its_branches_elsewhere(clone: Path, tmp_path: Path) -> None:
    new = commit_file(clone, "a", "x\n")
    url = git(clone, "remote", "get-url", "origin")
    for remote in (url, str(tmp_path / "unknown *[")):
        line = f"refs/heads/main {new} refs/heads/new {ZERO}\n"
        [push] = outgoing(discover(str(clone)), [line], remote=remote, environ={})
        assert push.commits == (new,)
    git(clone, "remote", "rename", "origin", "o")
    git(clone, "config", "remote.o.fetch", "+refs/heads/*:refs/elsewhere/*")
    git(clone, "update-ref", "-d", "refs/remotes/o/main")
    git(clone, "fetch", "-q", "o")
    [push] = pushes(clone, "main:new", remote="o")
    assert push.commits == (new,)


def test_too_many_commits_are_cut_and_it_is_said(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = [commit_file(clone, name, "x\n") for name in ("a", "b", "c")]
    monkeypatch.setattr(pushes_module, "MAX_COMMITS", 2)
    [push] = pushes(clone, "main")
    assert (push.commits, push.cut) == ((new[2], new[1]), True)
    monkeypatch.setattr(pushes_module, "MAX_COMMITS", 3)
    [push] = pushes(clone, "main")
    assert (len(push.commits), push.cut) == (3, False)


def test_what_is_no_line_of_a_push_is_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = f"refs/heads/main {head(clone)} refs/heads/main {ZERO}\n"
    capitals = good.replace(head(clone), "A" * 40)
    repository = discover(str(clone))
    for odd in ("x\n", f"a {ZERO} b --all\n", f"a HEAD refs/heads/b {ZERO}\n", capitals):
        with pytest.raises(Invalid):
            outgoing(repository, [good, odd], remote="origin", environ={})
    assert outgoing(repository, ["\n"], remote="origin", environ={}) == []
    unknown = f"refs/heads/main {UNKNOWN} refs/heads/main {ZERO}\n"
    with pytest.raises(Invalid):
        outgoing(repository, [unknown], remote="origin", environ={})
    monkeypatch.setattr(pushes_module, "MAX_REFS", 3)
    with pytest.raises(Invalid):
        outgoing(repository, [good] * 4, remote="origin", environ={})


def test_the_pre_commit_framework_says_it_in_variables(clone: Path) -> None:
    old, new = head(clone), commit_file(clone, "a", "x\n")
    repository = discover(str(clone))
    usual = {
        "PRE_COMMIT_REMOTE_NAME": "origin",
        "PRE_COMMIT_REMOTE_BRANCH": "refs/heads/main",
        "PRE_COMMIT_LOCAL_BRANCH": "refs/heads/main",
    }
    given = usual | {"PRE_COMMIT_FROM_REF": old, "PRE_COMMIT_TO_REF": new}
    [push] = outgoing(repository, [], remote="", environ=given)
    assert push == Push("refs/heads/main", new, old, (new,), "update")
    [push] = outgoing(repository, [], remote="", environ=usual)  # new from its first commit
    assert push == Push("refs/heads/main", new, "", (new,), "new")
    line = f"refs/heads/main {new} refs/heads/other {ZERO}\n"
    [push] = outgoing(repository, [line], remote="origin", environ=given)
    assert push.remote_ref == "refs/heads/other"
    assert outgoing(repository, [], remote="origin", environ={}) == []
    for odd in ("--all", "nothing", "HEAD:a"):
        with pytest.raises(Invalid):
            outgoing(repository, [], remote="", environ=given | {"PRE_COMMIT_TO_REF": odd})
