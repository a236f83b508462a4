"""The test support does what it says: remotes serve and count, faults strike."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import availability, fences, ssh_server
from support.clock import ManualClock
from support.faults import (
    FaultProxy,
    answer,
    cut_after,
    stall,
)
from support.fences import clean_env
from support.remotes import Remote, Servers, open_remote
from support.repos import (
    GitFailed,
    assert_untouched,
    commit_file,
    git,
    make_clone,
    real_clone,
    run_git,
    snapshot,
)

pytestmark = pytest.mark.sampled(3)

Clones = Callable[..., list[Path]]


def tip(remote: Remote, ref: str = "refs/heads/main") -> str:
    """What a ref of the bare repository is now; empty when it does not exist."""
    return run_git(remote.bare, "rev-parse", "--verify", "-q", ref).stdout.strip()


@contextmanager
def started(cwd: Path, remote: Remote, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A git command left running; killed at the end if it still does."""
    process = subprocess.Popen(
        ["git", *args],
        cwd=cwd,
        env=clean_env(remote.env),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def eventually(what: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait, bounded, until something is so."""
    waiting = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if what():
            return
        waiting.wait(0.02)
    raise AssertionError("it never came to be")


# Remotes


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
    assert (remote.connections(), remote.pushes()) == (4, 1)
    git(two, "ls-remote", "-q", "origin", env=remote.env)
    assert remote.services() == ["upload-pack"] * 2 + ["receive-pack"] + ["upload-pack"] * 2
    assert git(two, "rev-parse", "origin/main") == commit == tip(remote)
    assert git(one, "config", "--local", "user.email") == "w1@example.com"
    assert git(two, "config", "--local", "user.email") == "w2@example.com"


def test_refused_and_leased_pushes_count_as_one_each(remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    commit_file(one, "a.txt", "one\n")
    commit_file(two, "a.txt", "two\n")
    before = remote.connections()
    git(one, "push", "-q", "--atomic", "origin", "HEAD:refs/x/y", env=remote.env)
    lease = ("push", "-q", "--porcelain", "--force-with-lease=refs/x/y:", "origin")
    assert run_git(two, *lease, "HEAD:refs/x/y", env=remote.env).returncode == 1
    assert remote.connections() - before == remote.pushes() == 2
    assert tip(remote, "refs/x/y") == git(one, "rev-parse", "HEAD")


@pytest.mark.parametrize("kind", ["path", "http", "ssh"])
def test_remotes_of_one_server_count_apart(kind: str, tmp_path: Path, servers: Servers) -> None:
    with (
        open_remote(kind, tmp_path / "a", servers=servers) as first,
        open_remote(kind, tmp_path / "b", servers=servers) as second,
    ):
        real_clone(first.url, tmp_path / "clone", "w1@example.com", name="Worker 1", env=first.env)
        assert (first.connections(), second.connections()) == (1, 0)


def test_protocol_version_two_is_spoken(remote: Remote, tmp_path: Path) -> None:
    trace = {**remote.env, "GIT_TRACE_PACKET": "1"}
    assert "version 2" in run_git(tmp_path, "ls-remote", remote.url, env=trace).stderr


def test_http_compressed_requests_are_understood(http_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    for number in range(60):
        git(one, "commit", "-q", "--allow-empty", "-m", str(number))
    commit_file(two, "b.txt", "b\n")
    git(two, "push", "-q", "origin", "main")
    git(one, "fetch", "-q")
    assert any(request.encoding == "gzip" for request in http_remote.requests())
    assert git(one, "rev-parse", "origin/main") == tip(http_remote)


# Basic auth


def test_basic_auth_demands_credentials(tmp_path: Path, servers: Servers) -> None:
    users = {"alice": "correct horse"}
    with open_remote("http", tmp_path / "r", servers=servers, users=users) as remote:
        with pytest.raises(GitFailed, match="could not read Username"):
            git(tmp_path, "ls-remote", remote.url)
        assert [request.status for request in remote.requests()] == [401]
        assert remote.connections() == 0
        with pytest.raises(GitFailed, match="Authentication failed"):
            git(tmp_path, "ls-remote", remote.as_user("alice", "wrong").url)
        welcome = remote.as_user("alice", "correct horse")
        clone = make_clone(welcome, tmp_path / "clone", "alice@example.com", "Alice")
        commit_file(clone, "a.txt", "a\n")
        git(clone, "push", "-q", "origin", "main")
        assert (remote.connections(), remote.pushes()) == (2, 1)
        assert {request.user for request in remote.requests()} == {None, "alice"}
        assert tip(remote) == git(clone, "rev-parse", "HEAD")


# HTTP faults


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_answer_strikes_once(status: int, http_remote: Remote, clones: Clones) -> None:
    [one] = clones(1)
    fault = http_remote.arm(answer(status))
    assert run_git(one, "fetch", "-q").returncode == 128
    assert fault.fired == 1
    git(one, "fetch", "-q")
    assert fault.fired == 1


# TCP faults


@pytest.fixture
def http_proxy(http_remote: Remote) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", http_remote.port) as proxy:
        yield proxy


@pytest.mark.parametrize("size", [0, 1, 100])
def test_cut_counts_bytes_exactly(
    size: int, http_remote: Remote, http_proxy: FaultProxy, tmp_path: Path
) -> None:
    fault = http_proxy.arm(cut_after("down", bytes=size, times=1))
    url = http_remote.through(http_proxy.port).url
    assert run_git(tmp_path, "ls-remote", url).returncode != 0
    assert http_proxy.links[0].closed.wait(10)
    assert (fault.fired, http_proxy.links[0].down) == (1, size)
    git(tmp_path, "ls-remote", url)


def test_stalled_push_lands_late_after_its_client_died(
    http_remote: Remote, http_proxy: FaultProxy, clones: Clones
) -> None:
    [one] = clones(1, http_remote.through(http_proxy.port))
    before = tip(http_remote)
    commit = commit_file(one, "a.txt", "a\n")
    fault = http_proxy.arm(stall("up", since=b"POST "))
    with started(one, http_remote, "push", "-q", "origin", "main") as process:
        eventually(lambda: fault.fired == 1)
        assert process.poll() is None
    assert tip(http_remote) == before
    http_proxy.release()
    eventually(lambda: tip(http_remote) == commit)


# Pictures of repositories


def test_snapshot_sees_one_changed_config_byte(path_remote: Remote, clones: Clones) -> None:
    [one] = clones(1)
    before = snapshot(one)
    assert_untouched(before, snapshot(one))
    config = one / ".git" / "config"
    config.write_bytes(config.read_bytes().replace(b"w1@example.com", b"w1@example.con"))
    with pytest.raises(AssertionError, match=r"changed: git/config\n(?s:.*)\+.*example\.con"):
        assert_untouched(before, snapshot(one))


def test_snapshot_sees_all_that_a_fetch_does(path_remote: Remote, clones: Clones) -> None:
    one, two = clones(2)
    commit_file(two, "a.txt", "a\n")
    git(two, "push", "-q", "origin", "main", env=path_remote.env)
    before = snapshot(one)
    git(one, "fetch", "-q", env=path_remote.env)
    with pytest.raises(AssertionError) as caught:
        assert_untouched(before, snapshot(one))
    text = str(caught.value)
    assert "added:   git/FETCH_HEAD" in text
    assert "added:   git/objects/" in text
    assert "git/refs/remotes/origin/main" in text
    assert "git/logs/refs/remotes/origin/main" in text


def test_snapshot_overlooks_only_the_directory_of_gitlease(clones: Clones) -> None:
    [one] = clones(1)
    before = snapshot(one)
    own = one / ".git" / "gitlease"
    own.mkdir()
    (own / "state").write_text("x")
    assert_untouched(before, snapshot(one))
    (one / "gitlease").mkdir()
    (one / "README").chmod(0o755)
    (one / "link").symlink_to("README")
    hook = one / ".git" / "hooks"
    hook.mkdir()
    (hook / "pre-push").write_text("")
    with pytest.raises(AssertionError) as caught:
        assert_untouched(before, snapshot(one))
    for wanted in ("added:   tree/gitlease", "changed: tree/README", "added:   tree/link"):
        assert wanted in str(caught.value)
    assert "added:   git/hooks/pre-push" in str(caught.value)


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
    before = snapshot(linked)
    (one / ".git" / "gitlease").mkdir()
    assert_untouched(before, snapshot(linked))
    (one / ".git" / "modules" / "sub" / "gitlease").mkdir()
    assert not any("gitlease" in name for name in snapshot(one / "sub"))


# Clock


def test_manual_clock(manual_clock: ManualClock) -> None:
    clock = manual_clock
    start = clock.now()
    clock.sleep(1.5)
    clock.advance(0.5)
    clock.skew(-60)
    then = clock.now()
    assert (then.wall_ms - start.wall_ms, then.boot_ms - start.boot_ms) == (-58_000, 2_000)
    assert (clock.naps, then.boot_id) == ([1.5], start.boot_id)
    clock.reboot()
    assert (clock.boot_ms, clock.wall_ms) == (0, then.wall_ms)
    assert clock.now().boot_id != start.boot_id
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


# Fences and availability


def test_fences_hold_in_this_process(tmp_path: Path) -> None:
    allowed = {name for name in clean_env() if name.startswith("GIT_")}
    allowed |= {"LC_ALL", "XDG_CACHE_HOME"}
    assert {name for name in os.environ if fences.is_fenced(name)} <= allowed
    assert git(tmp_path, "config", "--get", "init.defaultBranch") == "main"
    assert run_git(tmp_path, "config", "--get", "user.email").returncode == 1
    assert "CLAUDECODE" not in os.environ


def test_clean_env_does_not_see_what_a_test_sets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "GIT_DIR" not in clean_env()
    assert clean_env()["HOME"] != str(tmp_path)
    assert clean_env({"A": "b"})["A"] == "b"


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
