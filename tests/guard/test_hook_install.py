"""The shims decide by idle markers, never stop git by our fault, and come and go to the byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.fences import clean_env
from support.hook_repos import HOUR, LATER, HookRepo, choose_way, into_files, make_hook_repo
from support.repos import assert_untouched, git, snapshot
from support.snapshots import check_words, raises

from gitlease.guard.hook_places import (
    CHECKED,
    HOOKS,
    SectionForm,
    Way,
    find_section,
    is_current,
    pre_commit_hooks,
    pre_commit_lines,
    section,
    shim,
)
from gitlease.guard.install import HookState, hook_states, install_hooks, uninstall
from gitlease.guard.notes import ACTIVITY, COMMIT, MESSAGE, MOST_PLACES, WHO, IdleMarker
from gitlease.kernel.git.repository import Repository, discover
from gitlease.kernel.rules.errors import Invalid

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
POSTS = [name for name in HOOKS if name.startswith("post-")]
COMMITS = ["pre-commit", "pre-merge-commit"]
MESSAGES = ["prepare-commit-msg", "commit-msg"]
ALL_SHELLS = ["sh", "dash", "bash", "busybox", "ksh93", "mksh", "zsh"]
SHELLS = [shell for shell in ALL_SHELLS if shutil.which(shell)]


@pytest.fixture
def repo(tmp_path: Path) -> HookRepo:
    return make_hook_repo(tmp_path)


@pytest.fixture(params=["files", "config"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """For a test of both: from git 2.54 on the installer leaves hook files alone."""
    return choose_way(request.param, monkeypatch)


@pytest.fixture(autouse=True)
def hook_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "way" not in request.fixturenames:
        into_files(monkeypatch)


def found(repo: HookRepo) -> Repository:
    return discover(str(repo.root))


def put_in(repo: HookRepo, *, dry_run: bool = False) -> tuple[str, ...]:
    """Install all hooks, with the gitlease on PATH; what was said."""
    return install_hooks(found(repo), program="", dry_run=dry_run).messages


def fire(
    repo: HookRepo,
    name: str,
    shell: str = "sh",
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: bytes = b"",
    hook: Path | None = None,
    args: Sequence[str] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run one of the shims of the project, or ``hook``, with a shell, as git would."""
    words = [
        shell,
        *(["sh"] if shell == "busybox" else []),
        str(hook or ROOT / "hooks" / name),
        *args,
    ]
    return subprocess.run(
        words,
        cwd=cwd or repo.root,
        env=clean_env({**repo.env, **(env or {})}),
        input=input,
        capture_output=True,
        check=False,
        timeout=60,
    )


def called(repo: HookRepo) -> set[str]:
    """The hooks that called gitlease since the last time this was asked."""
    return {call.split()[0] for call in repo.calls()}


def states(repo: HookRepo, monkeypatch: pytest.MonkeyPatch) -> dict[str, HookState]:
    monkeypatch.setenv("PATH", repo.env["PATH"])
    return {state.name: state for state in hook_states(found(repo))}


# --- the shims --------------------------------------------------------------------------------


@pytest.mark.default
def test_the_shims_of_the_project_are_what_the_template_makes() -> None:
    assert {file.name for file in (ROOT / "hooks").iterdir()} == set(HOOKS)
    for name in HOOKS:
        file = ROOT / "hooks" / name
        assert file.read_bytes() == shim(name)
        assert os.access(file, os.X_OK)


@pytest.mark.default("pre-commit-SectionForm.CHAIN")
@pytest.mark.parametrize("form", SectionForm)
@pytest.mark.parametrize("name", HOOKS)
def test_a_section_is_found_again_and_every_shell_reads_it(name: str, form: SectionForm) -> None:
    data = shim(name, form)
    placed = find_section(data, name)
    assert placed is not None
    assert is_current(placed, name)
    for shell in SHELLS:
        words = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
        assert subprocess.run(words, input=data, check=False).returncode == 0


@pytest.mark.default("None-starts0-bash", "idle1-starts1-bash", "idle2-starts2-bash")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("idle", "starts"),
    [
        (None, {*COMMITS, *MESSAGES, *POSTS}),
        (IdleMarker(LATER), set()),
        (IdleMarker(LATER, tasks=True), {*COMMITS}),
        (IdleMarker(0), {*COMMITS}),
        (IdleMarker(1), {*COMMITS}),
        (IdleMarker(LATER, 0, LATER), {*MESSAGES, *POSTS}),
        (IdleMarker(LATER, LATER, LATER), {*MESSAGES, "post-merge"}),
        (IdleMarker(0, LATER, LATER), {*COMMITS, *MESSAGES, "post-merge"}),
    ],
)
def test_the_marker_says_which_hooks_start_gitlease(
    repo: HookRepo, shell: str, idle: IdleMarker | None, starts: set[str]
) -> None:
    if idle is not None:
        repo.set_idle(idle)
    for name in HOOKS:
        done = fire(repo, name, shell)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert called(repo) == starts | {"pre-push"}


@pytest.mark.default("bash")
@pytest.mark.parametrize("shell", SHELLS)
def test_whoever_git_is_told_to_be_is_judged_by_gitlease(repo: HookRepo, shell: str) -> None:
    repo.set_idle()
    for given in ("'user.email'='kim@example.com'", "'USER.EMAIL=k'", "'LEASE.session'='x'",
                  "'include.path'='x'", "'includeIf.x.path'='x'"):  # fmt: skip
        assert asked(repo, shell, GIT_CONFIG_PARAMETERS=given), given
    assert asked(repo, shell, GIT_CONFIG_COUNT="1")
    assert not asked(repo, shell, GIT_CONFIG_PARAMETERS="'color.ui'='never::'")


@pytest.mark.default("pre-commit-bash", "prepare-commit-msg-bash", "post-commit-bash")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["pre-commit", "prepare-commit-msg", "post-commit"])
def test_a_marker_serves_whom_it_was_made_for_only(repo: HookRepo, shell: str, name: str) -> None:
    repo.set_idle()

    def passes(**env: str) -> bool:
        done = fire(repo, name, shell, env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        return not called(repo)

    assert passes()
    for variable in WHO:
        assert not passes(**{variable: "other"}), variable
    assert not passes(HOME=clean_env()["HOME"] + "\n")
    assert passes(EDITOR="other", GITLEASE_SESSION="other")
    for marker in (COMMIT, MESSAGE, ACTIVITY):
        (repo.private / marker).write_bytes(b"")
        os.utime(repo.private / marker, (LATER, LATER))
    assert not passes()


@pytest.mark.default("bash")
@pytest.mark.nightly
@pytest.mark.parametrize("shell", SHELLS)
def test_a_marker_from_before_the_settings_changed_is_not_used(
    repo: HookRepo, shell: str, tmp_path: Path
) -> None:
    """Nor one of the same moment: which of the two came first is not known."""
    home, included = tmp_path / "my home", tmp_path / "my settings"
    (home / "x" / "git").mkdir(parents=True)
    (home / ".config" / "git").mkdir(parents=True)
    usual = {"HOME": str(home)}
    moved = {**usual, "XDG_CONFIG_HOME": str(home / "x"), "GIT_CONFIG_GLOBAL": str(home / "g")}
    cases: list[tuple[dict[str, str], list[str | Path]]] = [
        (usual, [".gitconfig", ".config/git/config", repo.root / ".git" / "config"]),
        (moved, ["x/git/config", "g", repo.root / ".gitlease.yaml", included]),
    ]
    made = int(time.time()) + HOUR
    for env, files in cases:
        repo.set_idle(files=(str(included),), read_at=made * 10**9, env=env)
        for file in (home / name for name in files):
            there = file.exists()
            file.touch()
            for later, used in ((0, False), (1, False), (-10, True)):
                os.utime(file, (made + later, made + later))
                assert asked(repo, shell, **env) != used, (file, later)
            if not there:
                file.unlink()


@pytest.mark.default
def test_a_commit_calls_each_hook_a_push_passes_its_lines_and_one_blocks(
    repo: HookRepo, way: Way
) -> None:
    put_in(repo)
    assert repo.commit() == (0, "")
    assert repo.calls() == ["pre-commit ", "prepare-commit-msg ", "commit-msg ", "post-commit "]
    assert repo.push() == (0, "")
    (call,) = repo.calls()
    assert call.startswith("pre-push ")
    assert call.endswith(f"refs/heads/new {'0' * 40};")
    repo.answer(1)
    assert repo.commit() == (1, "")
    assert repo.push()[0] == 1
    assert repo.commit("--no-verify") == (0, "")


@pytest.mark.default("127-False")
@pytest.mark.parametrize(("status", "broken"), [(70, False), (2, False), (127, False), (1, True)])
def test_a_gitlease_that_fails_warns_once_and_git_goes_on(
    repo: HookRepo, status: int, broken: bool
) -> None:
    put_in(repo)
    repo.answer(status, broken=broken)
    code, said = repo.commit()
    assert (code, said.count("\n")) == (0, 1)
    check_words(said)
    assert repo.push()[0] == 0


def test_the_noted_program_comes_first_and_path_when_it_is_gone(
    repo: HookRepo, tmp_path: Path
) -> None:
    noted = tmp_path / "with blanks"
    shutil.move(repo.bin / "gitlease", noted)
    install_hooks(found(repo), program=str(noted))
    assert repo.commit() == (0, "")
    assert len(repo.calls()) == 4
    noted.unlink()
    repo.answer(0)
    assert repo.commit() == (0, "")
    assert len(repo.calls()) == 4


@pytest.mark.default("files")
@pytest.mark.nightly
def test_linked_work_trees_and_folders_share_hooks_and_marker(repo: HookRepo, way: Way) -> None:
    put_in(repo)
    linked = repo.root.parent / "linked"
    git(repo.root, "worktree", "add", "-q", str(linked), env=repo.env)
    repo.calls()
    repo.set_idle()
    (linked / "deep").mkdir()
    for folder in (linked, linked / "deep"):
        commit = ("commit", "-q", "--allow-empty", "-m", "x")
        git(folder, *commit, env=repo.env)
        assert repo.calls() == []
    repo.set_idle(IdleMarker())
    git(linked / "deep", "commit", "-q", "--allow-empty", "-m", "x", env=repo.env)
    assert repo.calls() == ["pre-commit "]
    assert "made" not in " ".join(install_hooks(discover(str(linked)), program="").messages)


def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    with raises(Invalid):
        install_hooks(discover(str(tmp_path / "bare.git")))


# --- where a commit may claim a task -------------------------------------------------------------

ODD = [
    *("tasks", "docs/my  tasks", " lead and trail ", "-rf", "--", "t*[a]?", 'it\'s "so"', "a\\nb"),
    *("$(touch x)", "`touch x`", "$HOME", ";touch x;", ":(exclude)b", ")b", "#b", "zażółć"),
]


def with_tasks(repo: HookRepo, *places: str) -> None:
    repo.set_idle(IdleMarker(clear_until=LATER, tasks=True, below=places))


def stage(repo: HookRepo, name: str, text: str = "x") -> None:
    repo.write(name, text.encode(), 0o644)
    git(repo.root, "--literal-pathspecs", "add", "--", name)


def asked(repo: HookRepo, shell: str = "sh", **env: str) -> bool:
    """Whether the shim of pre-commit starts gitlease, and says nothing itself."""
    done = fire(repo, "pre-commit", shell, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return called(repo) == {"pre-commit"}


@pytest.mark.default("sh")
@pytest.mark.nightly
@pytest.mark.parametrize("shell", SHELLS)
def test_a_commit_away_from_the_tasks_starts_nothing(repo: HookRepo, shell: str) -> None:
    for name in ("README", "docs/notes/a.md", "b", "tasks2/a", "x-tasks"):
        stage(repo, name)
    for place in ODD:
        with_tasks(repo, place, "no such folder")
        assert not asked(repo, shell), place
    with_tasks(repo, *ODD)
    assert not asked(repo, shell)
    assert not (repo.root / "x").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_commit_among_the_tasks_is_looked_at_whatever_their_folder_is_called(
    repo: HookRepo, shell: str
) -> None:
    for place in ODD:
        stage(repo, f"{place}/F001.md")
        with_tasks(repo, "no such folder", place)
        assert asked(repo, shell), place
        with_tasks(repo, f"{place}/F001.md")
        assert asked(repo, shell), place
        git(repo.root, "rm", "-rq", "--cached", ".")
        git(repo.root, "reset", "-q")
        assert not asked(repo, shell), place
    assert not (repo.root / "x").exists()


@pytest.mark.default
def test_places_that_git_would_take_for_something_else_are_left_to_gitlease(repo: HookRepo) -> None:
    for place in ("", ".", "./", "./tasks", "a/../tasks", "../x", "tasks/", "/etc", "a//b", "a\tb"):
        with_tasks(repo, "b", place)
        assert asked(repo), place
    with_tasks(repo, "...", ".tasks", "a/..b/.c.")
    assert not asked(repo)
    with_tasks(repo, *(f"p{n}" for n in range(MOST_PLACES)))
    assert not asked(repo)
    with_tasks(repo, *(f"p{n}" for n in range(MOST_PLACES + 1)))
    assert asked(repo)


@pytest.mark.nightly
def test_real_commits_start_gitlease_where_tasks_are_staged(repo: HookRepo) -> None:
    put_in(repo)
    with_tasks(repo, "my tasks")

    def commit(*words: str, cwd: Path = repo.root) -> list[str]:
        git(cwd, "commit", "-q", "-m", "x", *words, env=repo.env)
        return repo.calls()

    task, other = "my tasks/F001.md", "b.txt"
    stage(repo, other)
    assert commit() == []
    stage(repo, task)
    assert commit() == ["pre-commit "]
    # What is staged for another commit, and an index that git made for this one.
    stage(repo, task, "two")
    repo.write(other, b"two")
    assert commit(other) == []
    repo.write(other, b"three")
    stage(repo, other, "three")
    assert commit(task) == ["pre-commit "]
    assert commit("-a") == []
    repo.write(task, b"three")
    assert commit("-a", cwd=repo.root / "my tasks") == ["pre-commit "]
    assert commit("--amend", "--allow-empty") == []
    magit = ("--literal-pathspecs", "commit", "-q", "-m", "x")
    stage(repo, task, "four")
    git(repo.root, *magit, env=repo.env)
    assert repo.calls() == ["pre-commit "]


@pytest.mark.default("dash")
@pytest.mark.parametrize("shell", SHELLS)
def test_only_what_is_checked_stops_git(repo: HookRepo, shell: str) -> None:
    for status, stops in ((1, {*COMMITS, "pre-push"}), (70, set()), (0, set())):
        repo.answer(status)
        ends = {name: fire(repo, name, shell).returncode for name in HOOKS}
        assert ends == {name: int(name in stops) for name in HOOKS}


@pytest.mark.default("pre-commit-dash", "commit-msg-dash", "pre-push-dash")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["pre-commit", "commit-msg", "pre-push"])
def test_a_strict_script_goes_on_after_our_section(repo: HookRepo, shell: str, name: str) -> None:
    """With -e and -u, a marker that holds, one that does not, and a gitlease that fails."""
    data = b"set -eu\n" + section(name, SectionForm.SECTION) + b'echo "mine $# ${1-}"\ncat\n'
    hook = repo.write("hook", data)
    given = b"in\nput\n"
    among = IdleMarker(clear_until=LATER, tasks=True, below=("a",))
    for idle in (IdleMarker(clear_until=LATER), among, IdleMarker()):
        repo.set_idle(idle)
        for status in (0, 70):
            repo.answer(status)
            done = fire(repo, name, shell, hook=hook, input=given, args=["prepared"])
            assert (done.returncode, done.stdout) == (0, b"mine 1 prepared\n" + given)
    repo.answer(1)
    done = fire(repo, name, shell, hook=hook, input=given, args=["prepared"])
    assert done.returncode == int(name in CHECKED)


@pytest.mark.default
@pytest.mark.parametrize("shell", SHELLS)
def test_the_repository_is_found_however_git_names_it(repo: HookRepo, shell: str) -> None:
    """By GIT_DIR from anywhere, and by its variables."""
    repo.set_idle()
    away = repo.root.parent / "away"
    away.mkdir()
    for env in (
        {"GIT_DIR": str(repo.root / ".git")},
        {"GIT_DIR": "../repo/.git"},
        {"GIT_DIR": "nowhere", "GIT_COMMON_DIR": "../repo/.git"},
    ):
        done = fire(repo, "pre-commit", shell, env=env, cwd=away)
        assert (done.stderr, repo.calls()) == (b"", []), env
    assert fire(repo, "pre-commit", shell, cwd=away).stderr == b""
    assert called(repo) == {"pre-commit"}


# --- installing and uninstalling --------------------------------------------------------------


def test_nothing_is_written_by_a_dry_run_and_nothing_is_done_twice(repo: HookRepo) -> None:
    before = snapshot(repo.root)
    said = put_in(repo, dry_run=True)
    assert_untouched(before, snapshot(repo.root))
    assert put_in(repo) == said
    assert len(said) == len(HOOKS)
    assert put_in(repo) == ()
    assert uninstall(found(repo)).messages
    assert uninstall(found(repo)).changes == ()
    assert_untouched(before, snapshot(repo.root))
    assert not (repo.root / ".git" / "gitlease").exists()


@pytest.mark.default
def test_an_old_or_edited_section_is_renewed_in_its_place(repo: HookRepo) -> None:
    put_in(repo)
    hook = repo.hooks / "pre-commit"
    data = hook.read_bytes()
    hook.write_bytes(data.replace(b" v2 file:", b" v1 file:") + b"echo mine\n")
    check_words(put_in(repo))
    assert hook.read_bytes() == data + b"echo mine\n"


@pytest.mark.nightly
def test_uninstall_says_what_it_leaves(repo: HookRepo) -> None:
    put_in(repo)
    edited, extended = repo.hooks / "pre-commit", repo.hooks / "pre-push"
    edited.write_bytes(edited.read_bytes().replace(b"exit 1", b"exit 3"))
    extended.write_bytes(extended.read_bytes() + b"echo mine\n")
    half = repo.hooks / "post-merge"
    half.write_bytes(half.read_bytes().replace(b"# END gitlease", b"# the end"))
    notes = "\n".join(uninstall(found(repo)).notes)
    check_words(notes)
    assert not edited.exists()
    assert extended.read_bytes() == b"#!/bin/sh\necho mine\n"
    assert half.exists()


def test_a_folder_or_a_name_that_is_taken_is_left_alone(repo: HookRepo) -> None:
    (repo.hooks / "pre-push").mkdir(parents=True)
    repo.write(".git/hooks/pre-commit", b"#!/usr/bin/python3\n")
    repo.write(".git/hooks/pre-commit.before-gitlease", b"old")
    before = snapshot(repo.root)
    plan = install_hooks(found(repo), ["pre-push", "pre-commit"], program="")
    assert (plan.changes, len(plan.notes)) == ((), 2)
    assert_untouched(before, snapshot(repo.root))


@pytest.mark.default("files")
def test_status_proves_that_hooks_fire(
    repo: HookRepo, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that nothing else runs for it, wherever git finds it."""
    for name, value in (("event", "pre-commit"), ("command", "touch ran")):
        git(repo.root, "config", f"hook.other.{name}", value)
    repo.write(".git/hooks/pre-commit", b"#!/bin/sh\ntouch ran\n")
    put_in(repo)
    repo.set_idle()
    monkeypatch.setenv("GITLEASE_SKIP", "1")
    for state in states(repo, monkeypatch).values():
        assert (state.live, state.proven, state.current) == (True, True, True), state
        assert state.program == str(repo.bin / "gitlease")
    assert not (repo.root / "ran").exists()
    assert repo.calls() == []


@pytest.mark.nightly
def test_the_hooks_for_pre_commit_name_what_there_is() -> None:
    import yaml

    items = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert pre_commit_hooks(b"".join(b"- id: %s\n" % item["id"].encode() for item in items)) >= set(
        HOOKS
    )
    for item in items:
        assert item["entry"].split()[:2] == ["gitlease", "hook"]
        assert item["entry"].split()[2] in HOOKS
        assert item["always_run"] is True
        warns = item["entry"].split()[2] in CHECKED
        assert item.get("verbose", False) is warns, "the framework hides what a pass says"
    told = yaml.safe_load("repos:\n" + pre_commit_lines(HOOKS))["repos"][0]["hooks"]
    assert {x["id"] for x in told if x.get("verbose")} == {"gitlease-guard", "gitlease-guard-push"}
