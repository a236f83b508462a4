"""The user's repository, found in all the shapes that git knows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.repos import assert_untouched, commit_file, git, make_repository, snapshot

from gitlease.kernel.git import repository
from gitlease.kernel.git.repository import ConfigEntry, GitConfig, Repository, discover
from gitlease.kernel.git.run import GitResult
from gitlease.kernel.git.run import run_git as run_real_git
from gitlease.kernel.rules.errors import GitleaseError, Invalid, NotARepository


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit on main and a folder `src/deep`."""
    root = tmp_path / "repo"
    make_repository(root)
    commit_file(root, "src/deep/a.txt", "a")
    return root


def refusal(start: Path | str) -> GitleaseError:
    with pytest.raises(GitleaseError) as raised:
        discover(str(start))
    return raised.value


def test_main_work_tree(repo: Path) -> None:
    found = discover(str(repo))
    assert (found.toplevel, found.folder, found.worktree) == (str(repo), "", None)
    assert found.git_dir == found.common_dir == str(repo / ".git")
    assert found.object_format == "sha1"
    assert found.branch() == "main"


def test_two_processes_and_nothing_changed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    real = run_real_git

    def counting(args: list[str], **options: object) -> object:
        calls.append(args)
        return real(args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(repository, "run_git", counting)
    before = snapshot(repo)
    found = discover(str(repo))
    assert found.branch() == "main"
    assert found.remote_names() == ()
    assert found.clone_id
    assert [args[0] for args in calls] == ["rev-parse", "config"]
    assert_untouched(before, snapshot(repo))


def test_subfolder_and_link_to_it_are_the_same_clone(repo: Path, tmp_path: Path) -> None:
    odd = repo / 'a "b" ü'
    odd.mkdir()
    (tmp_path / "link").symlink_to(repo)
    for place in (odd, tmp_path / "link" / odd.name):
        found = discover(str(place))
        assert (found.toplevel, found.folder) == (str(repo), 'a "b" ü')
        assert found.clone_id == discover(str(repo)).clone_id


def test_linked_work_tree(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    found = discover(str(tmp_path / "linked" / "src"))
    assert (found.toplevel, found.folder) == (str(tmp_path / "linked"), "src")
    assert found.worktree == "linked"
    assert found.common_dir == str(repo / ".git")
    assert found.git_dir == str(repo / ".git" / "worktrees" / "linked")
    assert found.branch() == "side"
    assert found.clone_id == discover(str(repo)).clone_id


def test_clone_id_differs_between_clones_and_machines(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "-q", str(repo), str(tmp_path / "other"))
    ids = [discover(str(place)).clone_id for place in (repo, repo, tmp_path / "other")]
    assert ids[0] == ids[1] != ids[2]
    assert all(len(i) == 8 and int(i, 16) >= 0 for i in ids)
    monkeypatch.setattr(repository, "short_host", lambda: "elsewhere")
    assert discover(str(repo)).clone_id != ids[0]


def test_bare_repository_and_its_work_tree(repo: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))
    found = discover(str(bare / "refs/heads"))
    assert (found.toplevel, found.folder, found.worktree) == (None, "", None)
    assert found.common_dir == found.git_dir == str(bare)
    git(bare, "worktree", "add", "-q", str(tmp_path / "tree"), "main")
    found = discover(str(tmp_path / "tree"))
    assert (found.toplevel, found.worktree) == (str(tmp_path / "tree"), "tree")
    assert found.common_dir == str(bare)


def test_git_dir_of_the_environment_holds(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(repo / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repo))
    found = discover(str(tmp_path))
    assert (found.toplevel, found.git_dir) == (str(repo), str(repo / ".git"))
    assert found.folder == ""


def test_hook_of_a_server_runs_in_the_git_folder(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", ".")
    found = discover(str(repo / ".git"))
    assert (found.toplevel, found.folder, found.git_dir) == (None, "", str(repo / ".git"))


def test_inside_the_git_folder(repo: Path) -> None:
    error = refusal(repo / ".git/refs")
    assert isinstance(error, NotARepository)
    assert error.hints == (f"cd {repo}",)


def test_no_repository(repo: Path, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere", repo / "src/deep/a.txt"):
        assert isinstance(refusal(place), NotARepository)


def test_git_dir_that_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "gone"))
    error = refusal(tmp_path)
    assert isinstance(error, NotARepository)
    assert str(tmp_path / "gone") in error.message
    assert "GIT_DIR" in error.hints[0]


def test_linked_work_tree_whose_repository_is_gone(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    repo.rename(tmp_path / "moved")
    error = refusal(tmp_path / "linked")
    assert isinstance(error, NotARepository)
    assert "worktrees/linked" in error.message


def test_repository_of_somebody_else(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    error = refusal(repo)
    assert isinstance(error, Invalid)
    assert error.hints == (f"git config --global --add safe.directory {repo}",)


# Branches


def test_branches(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "team/topic", str(tmp_path / "new"))
    assert discover(str(tmp_path / "new")).branch() == "team/topic"
    found, head = discover(str(repo)), repo / ".git" / "HEAD"
    git(repo, "checkout", "-q", "--detach")
    assert found.branch() is None
    head.unlink()
    assert found.branch() is None
    head.symlink_to("refs/heads/main")
    assert found.branch() == "main"


def test_reftable_asks_git(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = discover(str(repo))
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")

    def answer(args: list[str], **options: object) -> object:
        assert list(args)[-3:] == ["symbolic-ref", "-q", "HEAD"]
        return GitResult(0, b"refs/heads/topic\n", "")

    monkeypatch.setattr(repository, "run_git", answer)
    assert found.branch() == "topic"


# Configuration


def entry(key: str, value: str, scope: str = "local") -> ConfigEntry:
    return ConfigEntry(key, value, scope, ".git/config")


CONFIG = GitConfig(
    (
        entry("lease.ttl", "1h", "global"),
        entry("remote.My.Fork.url", "one"),
        entry("remote.My.Fork.url", "two"),
        entry("lease.ttl", "5m"),
        entry("lease.Sub.Part.key", "x"),
        entry("leases.ttl", "no"),
    )
)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("lease.ttl", ["1h", "5m"]),
        ("LEASE.Ttl", ["1h", "5m"]),
        ("Remote.My.Fork.url", ["one", "two"]),
        ("remote.my.fork.url", []),
        ("lease", []),
    ],
)
def test_keys(key: str, values: list[str]) -> None:
    assert CONFIG.get_all(key) == values
    assert CONFIG.get(key) == (values[-1] if values else None)
    keys = [found.key for found in CONFIG.section("Lease")]
    assert keys == ["lease.ttl", "lease.ttl", "lease.Sub.Part.key"]


def test_configuration_for_real(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = tmp_path / "extra"
    extra.write_text("[lease]\n\tlayer = included\n")
    with (repo / ".git" / "config").open("a") as file:
        file.write("[lease]\n\tttl\n\tremote =\n\tsession = a \\\n b\n")
        file.write(f'[includeIf "gitdir:{repo}/"]\n\tpath = {extra}\n')
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'lease.guardmode'='warn'")
    found = discover(str(repo / "src")).config
    assert found.get("lease.ttl") == "true"
    assert found.get("lease.remote") == ""
    assert found.get("lease.session") == "a  b"
    assert found.get("lease.layer") == "included"
    places = {e.key: (e.scope, e.origin) for e in found.section("lease")}
    assert places["lease.ttl"] == ("local", ".git/config")
    assert places["lease.layer"] == ("local", str(extra))


def test_value_with_line_breaks_and_bytes_that_are_no_text(repo: Path) -> None:
    git(repo, "config", "lease.session", "one\ntwo = 3")
    with (repo / ".git" / "config").open("ab") as file:
        file.write(b"[user]\n\temail = j\xff@example.com\n")
    found = discover(str(repo)).config
    assert found.get("lease.session") == "one\ntwo = 3"
    assert found.get("user.email") == "j\udcff@example.com"


# Remotes


@pytest.mark.parametrize(
    ("config", "names", "url"),
    [
        ((), (), None),
        ((("url", "one"), ("url", "two")), ("origin",), "one"),
        ((("pushurl", "p1"), ("pushurl", "p2"), ("url", "one")), ("origin",), "p1"),
        ((("url", "one"), ("url", ""), ("url", "two")), ("origin",), "two"),
        ((("url", "one"), ("pushurl", "")), ("origin",), "one"),
        ((("url", ""),), (), None),
        ((("prune", "true"),), (), None),
    ],
)
def test_remote_url(
    repo: Path, config: tuple[tuple[str, str], ...], names: tuple[str, ...], url: str | None
) -> None:
    for key, value in config:
        git(repo, "config", "--add", f"remote.origin.{key}", value)
    found = discover(str(repo))
    assert found.remote_names() == names
    assert found.remote_url("origin") == url


def test_main_branch_of_a_remote_added_by_hand(tmp_path: Path) -> None:
    from gitlease.kernel.git.branches import Branches
    from gitlease.kernel.git.repository import main_branch

    there, here = tmp_path / "there", tmp_path / "here"
    trunk = "refs/remotes/origin/trunk"
    git(tmp_path, "init", "-q", "-b", "trunk", str(there))
    git(there, "-c", "user.email=a@b", "-c", "user.name=a", "commit", "-q", "--allow-empty", "-mx")
    git(tmp_path, "init", "-q", str(here))
    git(here, "remote", "add", "origin", str(there))
    fetched = partial(_fetched_without_head, here)
    assert main_branch(fetched(), ["origin"]) == trunk, "the only one"
    git(there, "branch", "other")
    assert main_branch(fetched(), ["origin"]) is None
    git(here, "config", "init.defaultBranch", "trunk")
    assert main_branch(fetched(), ["origin"]) == trunk, "as this person calls it"
    git(here, "config", "init.defaultBranch", "main")
    assert main_branch(fetched(), ["origin"], now=9e9) == trunk, "as the remote says"
    assert main_branch(fetched(), ["origin"]) == trunk
    assert "trunk" in Branches(fetched()).main(["origin"])
    git(there, "symbolic-ref", "HEAD", "refs/heads/none")
    git(here, "remote", "set-url", "origin", f"{there}/.git")
    assert main_branch(fetched(), ["origin"], now=9e9) is None, "another remote by this name"


def _fetched_without_head(here: Path) -> Repository:
    git(here, "fetch", "-q", "origin")
    git(here, "remote", "set-head", "-d", "origin")
    return discover(str(here))
