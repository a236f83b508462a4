"""The test support does what it says: remotes serve and count, faults strike."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import availability, fences, ssh_server
from support.faults import (
    FaultProxy,
    cut_after,
    stall,
)
from support.fences import clean_env
from support.remotes import Remote
from support.repos import (
    assert_untouched,
    commit_file,
    git,
    real_clone,
    run_git,
    snapshot,
)
from support.running import until

pytestmark = pytest.mark.slow

Clones = Callable[..., list[Path]]


def tip(remote: Remote, ref: str = "refs/heads/main") -> str:
    """What a ref of the bare repository is now; empty when it does not exist."""
    return run_git(remote.bare, "rev-parse", "--verify", "-q", ref).stdout.strip()


# Remotes


@pytest.mark.default("path")
@pytest.mark.nightly
def test_remote_clones_pushes_and_fetches_and_counts_exactly(
    remote: Remote, tmp_path: Path
) -> None:
    one, two = (
        real_clone(remote.url, tmp_path / who, f"{who}@example.com", name=who, env=remote.env)
        for who in ("w1", "w2")
    )
    assert (remote.connections(), remote.pushes(), remote.fetches()) == (2, 0, 2)
    commit = commit_file(one, "a.txt", "one\n")
    git(one, "push", "-q", "origin", "main", env=remote.env)
    assert (remote.connections(), remote.pushes()) == (3, 1)
    git(two, "fetch", "-q", env=remote.env)
    git(two, "ls-remote", "-q", "origin", env=remote.env)
    assert remote.services() == ["upload-pack"] * 2 + ["receive-pack"] + ["upload-pack"] * 2
    assert git(two, "rev-parse", "origin/main") == commit == tip(remote)
    lease = ("push", "-q", "--porcelain", "--force-with-lease=refs/heads/main:", "origin")
    assert run_git(two, *lease, "HEAD:main", env=remote.env).returncode == 1
    assert (remote.connections(), remote.pushes()) == (6, 2)
    trace = {**remote.env, "GIT_TRACE_PACKET": "1"}
    assert "version 2" in run_git(tmp_path, "ls-remote", remote.url, env=trace).stderr


# TCP faults


@pytest.fixture
def http_proxy(http_remote: Remote) -> Iterator[FaultProxy]:
    with FaultProxy(http_remote.port) as proxy:
        yield proxy


def test_cut_counts_bytes_exactly(
    http_remote: Remote, http_proxy: FaultProxy, tmp_path: Path
) -> None:
    fault = http_proxy.arm(cut_after("down", bytes=100, times=1))
    url = http_remote.through(http_proxy.port).url
    assert run_git(tmp_path, "ls-remote", url).returncode != 0
    assert http_proxy.links[0].closed.wait(60)
    assert (fault.fired, http_proxy.links[0].down) == (1, 100)
    git(tmp_path, "ls-remote", url)


@pytest.mark.nightly
def test_stalled_push_lands_late_after_its_client_died(
    http_remote: Remote, http_proxy: FaultProxy, clones: Clones
) -> None:
    [one] = clones(1, http_remote.through(http_proxy.port))
    before = tip(http_remote)
    commit = commit_file(one, "a.txt", "a\n")
    fault = http_proxy.arm(stall("up", since=b"POST "))
    with subprocess.Popen(
        ["git", "push", "-q", "origin", "main"],
        cwd=one,
        env=clean_env(http_remote.env),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        until(lambda: fault.fired == 1, "the fault strikes")
        assert process.poll() is None
        process.kill()
    assert tip(http_remote) == before
    http_proxy.release()
    until(lambda: tip(http_remote) == commit, "the push lands")


# Pictures of repositories


@pytest.mark.default
def test_snapshot_sees_all_but_the_directory_of_gitlease(clones: Clones) -> None:
    [one] = clones(1)
    before = snapshot(one)
    own = one / ".git" / "gitlease"
    own.mkdir()
    (own / "state").write_text("x")
    assert_untouched(before, snapshot(one))
    (one / "gitlease").mkdir()
    (one / "README").chmod(0o755)
    (one / "link").symlink_to("README")
    config = one / ".git" / "config"
    config.write_bytes(config.read_bytes().replace(b"w1@example.com", b"w1@example.con"))
    git(one, "fetch", "-q")
    with pytest.raises(AssertionError) as caught:
        assert_untouched(before, snapshot(one))
    for wanted in (
        "added:   tree/gitlease",
        "changed: tree/README",
        "added:   tree/link",
        "changed: git/config",
        "added:   git/FETCH_HEAD",
    ):
        assert wanted in str(caught.value)


def test_snapshot_of_linked_work_trees_submodules_and_bare_repositories(
    path_remote: Remote, clones: Clones, tmp_path: Path
) -> None:
    [one] = clones(1)
    linked = tmp_path / "linked"
    git(one, "worktree", "add", "-q", str(linked))
    git(one, "submodule", "--quiet", "add", path_remote.url, "sub", env=path_remote.env)
    places = {
        linked: (tmp_path / "linked" / "README", one / ".git" / "worktrees" / "linked" / "HEAD"),
        one / "sub": (one / "sub" / "README", one / ".git" / "modules" / "sub" / "HEAD"),
        path_remote.bare: (path_remote.bare / "config", path_remote.bare / "HEAD"),
    }
    for repo, files in places.items():
        for file in files:
            before = snapshot(repo)
            file.write_bytes(file.read_bytes() + b"\n")
            with pytest.raises(AssertionError, match=f"changed: .*{file.name}"):
                assert_untouched(before, snapshot(repo))
        assert_untouched(snapshot(repo), snapshot(repo))


# Fences and availability


def test_fences_hold_in_this_process(tmp_path: Path) -> None:
    allowed = {name for name in clean_env() if name.startswith("GIT_")}
    allowed |= {"LC_ALL", "XDG_CACHE_HOME"}
    assert {name for name in os.environ if fences.is_fenced(name)} <= allowed
    assert git(tmp_path, "config", "--get", "init.defaultBranch") == "main"
    assert run_git(tmp_path, "config", "--get", "user.email").returncode == 1
    assert "CLAUDECODE" not in os.environ


@pytest.mark.default
def test_fences_name_what_appeared() -> None:
    built = fences.build({"PATH": "/bin", "GIT_DIR": "x", "CODEX_CI": "1", "CI": "true"})
    try:
        assert {"GIT_DIR", "CODEX_CI"}.isdisjoint(built.environ)
        assert built.environ["CI"] == "true"
        assert built.violations() == []
        (built.home / ".gitconfig").write_text("[user]\n")
        built.global_config.write_text("[user]\n")
        assert built.violations() == [
            "HOME/.gitconfig",
            "the global git configuration was changed",
        ]
    finally:
        built.remove()
    assert not built.root.exists()


@pytest.mark.nightly
def test_missing_servers_skip_at_a_desk_and_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ssh_server, "_find", lambda name: availability.missing(f"no {name}"))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no sshd"):
        ssh_server.SshServer(tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no sshd"):
        ssh_server.SshServer(tmp_path)
