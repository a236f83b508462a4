"""Whatever calls hooks here already: ours come beside it, fire, and go without a trace."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from support.fences import clean_env, raise_fences
from support.hook_repos import HookRepo, choose_way, into_files, make_hook_repo
from support.repos import assert_untouched, git, run_git, snapshot
from support.snapshots import check_words

from gitlease.guard import hook_places as places
from gitlease.guard.hook_places import (
    CHECKED,
    HOOKS,
    Way,
    hook_lines,
    lefthook_snippet,
    pre_commit_lines,
)
from gitlease.guard.install import Plan, hook_states, install_hooks, uninstall
from gitlease.kernel.git.repository import discover

pytestmark = pytest.mark.slow

CALLS = ["pre-commit ", "prepare-commit-msg ", "commit-msg ", "post-commit "]
MINE = b'echo mine >>"$CALLS"\n'
PYTHON = b"#!/usr/bin/env python3\nimport os\nprint('mine', file=open(os.environ['CALLS'], 'a'))\n"
PUSH = b'#!/bin/sh\nwhile read -r a b c d; do echo "mine $c" >>"$CALLS"; done\n'
# What husky 9.1.7 writes, as far as it matters: every hook of its folder sources this.
HUSKY = b"""#!/usr/bin/env sh
n=$(basename "$0")
s=$(dirname "$(dirname "$0")")/$n
[ ! -f "$s" ] && exit 0
[ "${HUSKY-}" = "0" ] && exit 0
sh -e "$s" "$@"
c=$?
[ $c != 0 ] && echo "husky - $n script failed (code $c)"
exit $c
"""


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


def put_in(repo: HookRepo) -> Plan:
    return install_hooks(discover(str(repo.root)), program="")


def take_out(repo: HookRepo) -> Plan:
    return uninstall(discover(str(repo.root)))


def all_proven(repo: HookRepo, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv("PATH", repo.env["PATH"])
    monkeypatch.setenv("CALLS", str(repo.calls_file))
    return all(s.live and s.proven for s in hook_states(discover(str(repo.root))))


@pytest.mark.default("files")
@pytest.mark.nightly
def test_no_hooks_at_all(repo: HookRepo, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(repo.root)
    assert not repo.hooks.exists()
    assert put_in(repo).way is way
    assert repo.hooks.exists() == (way is Way.FOLDER)
    assert repo.commit() == (0, "")
    assert repo.calls() == CALLS
    assert all_proven(repo, monkeypatch)
    git(repo.root, "update-ref", "-d", "ORIG_HEAD")
    take_out(repo)
    assert not repo.hooks.exists()
    after = snapshot(repo.root)
    assert {k for k in after if "hooks" in k} == {k for k in before if "hooks" in k}


@pytest.mark.default("files--False")
@pytest.mark.parametrize(
    ("data", "fires"),
    [
        (b"#!/bin/sh\n" + MINE, True),
        (b"#!/usr/bin/env bash\n" + MINE + b"exec true\n", True),
        (b"#!/bin/sh\n" + MINE + b": \r\ncat <<X >/dev/null\r\nhere\r\nX\r\n", True),
        (PYTHON, True),
        (MINE, True),
        (b"", False),
    ],
)
def test_an_existing_hook_still_runs_and_comes_back_to_the_byte(
    repo: HookRepo, way: Way, data: bytes, fires: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ours is not in the same file, git runs the other one though ours refuses."""
    hook = repo.write(".git/hooks/pre-commit", data, 0o700)
    before = snapshot(repo.root)
    put_in(repo)
    assert all_proven(repo, monkeypatch)
    assert repo.calls() == []
    assert repo.commit() == (0, "")
    mine = ["mine"] if fires else []
    assert repo.calls() == [CALLS[0], *mine, *CALLS[1:]]
    repo.answer(1)
    assert repo.commit() == (1, "")
    assert repo.calls() == [CALLS[0], *(mine if way is Way.CONFIG else [])]
    take_out(repo)
    assert snapshot(repo.root)["git/hooks/pre-commit"] == before["git/hooks/pre-commit"]
    assert [file.name for file in repo.hooks.iterdir()] == [hook.name]


@pytest.mark.nightly
def test_a_hook_that_refuses_still_refuses(repo: HookRepo, way: Way) -> None:
    for last in (b"exit 3\n", b"false\n", b"false"):
        hook = repo.write(".git/hooks/pre-commit", b"#!/bin/sh\n" + last)
        put_in(repo)
        assert repo.commit()[0] == 1
        take_out(repo)
        assert hook.read_bytes() == b"#!/bin/sh\n" + last


@pytest.mark.default("files-False")
@pytest.mark.parametrize("python", [False, True])
def test_what_a_push_says_is_read_by_both(repo: HookRepo, way: Way, python: bool) -> None:
    data = PUSH
    if python:
        data = PYTHON.replace(b"'mine'", b"'mine', open(0).read().split()[2]")
    repo.write(".git/hooks/pre-push", data)
    put_in(repo)
    assert repo.push() == (0, "")
    ours, mine = repo.calls()
    assert "refs/heads/new" in ours
    assert mine == "mine refs/heads/new"
    repo.answer(1)
    assert repo.push()[0] == 1
    take_out(repo)
    assert (repo.hooks / "pre-push").read_bytes() == data


def test_a_link_is_neither_followed_nor_lost(repo: HookRepo) -> None:
    target = repo.root.parent / "scripts" / "check"
    target.parent.mkdir()
    target.write_bytes(b"#!/bin/sh\n" + MINE)
    target.chmod(0o755)
    repo.hooks.mkdir()
    link = repo.hooks / "pre-commit"
    link.symlink_to(os.path.relpath(target, repo.hooks))
    was = os.readlink(link)
    put_in(repo)
    assert target.read_bytes() == b"#!/bin/sh\n" + MINE
    assert repo.commit() == (0, "")
    assert repo.calls() == [CALLS[0], "mine", *CALLS[1:]]
    take_out(repo)
    assert os.readlink(link) == was
    assert target.read_bytes() == b"#!/bin/sh\n" + MINE


@pytest.mark.nightly
def test_a_folder_of_hooks_in_the_work_tree(
    repo: HookRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("tools/hooks/pre-commit", b"#!/bin/sh\n" + MINE)
    git(repo.root, "config", "core.hooksPath", "tools/hooks")
    before = snapshot(repo.root)
    plan = put_in(repo)
    check_words(plan.notes[0])
    assert all_proven(repo, monkeypatch)
    take_out(repo)
    assert_untouched(before, snapshot(repo.root))


def test_a_folder_of_hooks_outside_is_never_written_to(repo: HookRepo) -> None:
    outside = repo.root.parent / "company"
    outside.mkdir()
    (outside / "pre-commit").write_bytes(b"#!/bin/sh\n")
    git(repo.root, "config", "core.hooksPath", str(outside))
    before = snapshot(repo.root)
    plan = put_in(repo)
    assert (plan.way, plan.changes, list(scripts(plan))) == (Way.OUTSIDE, (), list(HOOKS))
    check_words(plan.notes[0])
    take_out(repo)
    assert_untouched(before, snapshot(repo.root))
    assert [f.read_bytes() for f in outside.iterdir()] == [b"#!/bin/sh\n"]


def scripts(plan: Plan) -> dict[str, str]:
    """What people are told to add, by the script that it is for."""
    found: dict[str, str] = {}
    for line in plan.lines:
        if line.startswith("# "):
            name = line.split()[1]
        found[name] = found.get(name, "") + (f"{line}\n" if not line.startswith("# ") else "")
    return found


ANSWERS = {"lets it go": 0, "refuses": 1, "fails": 70, "is broken": 1, "is missing": 127}


@pytest.mark.default("lets it go--True")
@pytest.mark.parametrize(
    ("gitlease", "strict", "husky"),
    [
        ("lets it go", "", True),
        ("refuses", "set -eu\n", False),
        ("refuses", "", True),
        ("fails", "set -eu\n", False),
        ("is broken", "set -eu\n", True),
        ("is missing", "", False),
    ],
)
def test_the_lines_that_are_told_stop_a_script_wherever_they_stand(
    repo: HookRepo, gitlease: str, strict: str, husky: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for a refusal; what follows them is run, and reads what git says, as without them."""
    folder = repo.root / ".husky" if husky else repo.root.parent / "company"
    folder.mkdir()
    git(repo.root, "config", "core.hooksPath", str(folder))
    if husky:
        git(repo.root, "config", "core.hooksPath", ".husky")
    mine = 'echo "mine $(cat)" >>"$CALLS"\ntrue\n'
    for name, lines in scripts(put_in(repo)).items():
        hook = folder / os.path.basename(name)
        hook.write_text(f"#!/bin/sh\n{strict}gitlease_in=before\n{lines}{mine}")
        hook.chmod(0o755)
    repo.answer(ANSWERS[gitlease], broken=gitlease == "is broken")
    if gitlease == "is missing":
        (repo.bin / "gitlease").unlink()
        folders = [
            x for x in clean_env()["PATH"].split(":") if not shutil.which("gitlease", path=x)
        ]
        monkeypatch.setitem(raise_fences().environ, "PATH", ":".join(folders))
    stops = gitlease == "refuses"
    before = git(repo.root, "rev-parse", "HEAD")
    assert (repo.commit()[0] != 0) == stops
    assert (git(repo.root, "rev-parse", "HEAD") == before) == stops
    assert any(call.startswith("mine") for call in repo.calls()) != stops
    assert (repo.push()[0] != 0) == stops
    remote = repo.root.parent / "remote.git"
    assert (run_git(remote, "rev-parse", "-q", "--verify", "new").stdout == "") == stops
    calls = repo.calls()
    if gitlease not in ("is missing", "is broken"):
        assert calls[0].startswith("pre-push HEAD ")
    read = [call for call in calls if call.startswith("mine")]
    assert [f"refs/heads/new {'0' * 40}" in call for call in read] == ([] if stops else [True])
    if not stops:
        assert repo.push()[0] == 0  # nothing is new: git says nothing, and nothing is read
        assert "mine " in repo.calls()


def shown_states(repo: HookRepo) -> dict[str, tuple[bool, bool, str]]:
    return {s.name: (s.live, s.proven, s.way) for s in hook_states(discover(str(repo.root)))}


@pytest.mark.parametrize("husky", [False, True])
def test_the_lines_that_are_told_are_live_once_they_are_added(
    repo: HookRepo, husky: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no second call comes beside them, and they stay when ours are taken out."""
    folder = repo.root / ".husky" if husky else repo.root.parent / "company"
    folder.mkdir()
    git(repo.root, "config", "core.hooksPath", ".husky/_" if husky else str(folder))
    if husky:
        repo.write(".husky/_/h", HUSKY, 0o644)
        for name in HOOKS:
            repo.write(f".husky/_/{name}", b'#!/usr/bin/env sh\n. "$(dirname "$0")/h"')
    plan = put_in(repo)
    assert (plan.way, plan.changes) == (Way.HUSKY if husky else Way.OUTSIDE, ())
    for name, lines in scripts(plan).items():
        hook = folder / os.path.basename(name)
        hook.write_text(f"#!/bin/sh\n# ours\nset -eu\n\n{lines}echo no >>ran\n")
        hook.chmod(0o644 if husky else 0o755)
    monkeypatch.setenv("PATH", repo.env["PATH"])
    check_words(str(shown_states(repo)))
    assert not (repo.root / "ran").exists()
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    again = put_in(repo)
    assert (again.changes, again.lines) == ((), ())
    check_words(again.notes)
    take_out(repo)
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.nightly
def test_other_lines_are_no_call(repo: HookRepo) -> None:
    own, other = hook_lines("pre-commit")[0], "\n".join(hook_lines("pre-push"))
    for text in (
        f"# {own}",
        f"true  # {own}",
        f"echo '{own}'",
        f"{own} || true",
        f"exit 0\n{own}",
        'gitlease hook pre-commit "$@"',
        other,
    ):
        hook = repo.write(".git/hooks/pre-commit", f"#!/bin/sh\n{text}\n".encode())
        before = hook.read_bytes()
        assert shown_states(repo)["pre-commit"] == (False, False, ""), text
        put_in(repo)
        assert b"# BEGIN gitlease pre-commit" in hook.read_bytes()
        take_out(repo)
        assert hook.read_bytes() == before


def problems(repo: HookRepo) -> set[str]:
    """What is wrong with the hooks that a manager carries."""
    states = hook_states(discover(str(repo.root)))
    return {state.problem for state in states}


@pytest.mark.default
def test_pre_commit(repo: HookRepo) -> None:
    config = b"# mine\nrepos:\n- repo: meta\n  hooks:\n  - id: identity\n"
    file = repo.write(".pre-commit-config.yaml", config, 0o640)
    before = snapshot(repo.root)
    plan = put_in(repo)
    assert (plan.way, plan.changes) == (Way.PRE_COMMIT, ())
    *lines, last = plan.lines
    assert last == "pre-commit install " + " ".join(f"-t {name}" for name in HOOKS)
    assert_untouched(before, snapshot(repo.root))
    file.write_bytes(config + "\n".join(line.removeprefix("  ") for line in lines).encode())
    assert [x["repo"] for x in yaml.safe_load(file.read_bytes())["repos"]] == ["meta", "local"]
    before = snapshot(repo.root)
    plan = put_in(repo)
    assert (plan.changes, plan.lines) == ((), ())
    check_words(plan.notes[0])
    assert problems(repo) == {
        f"git does not call pre-commit yet: pre-commit install -t {n}" for n in HOOKS
    }
    made = b"#!/usr/bin/env bash\n# File generated by pre-commit: https://pre-commit.com\n"
    hook = repo.write(".git/hooks/pre-commit", made)
    state = hook_states(discover(str(repo.root)))[0]
    assert (state.live, state.proven, state.way) == (True, False, "pre-commit")
    hook.unlink()
    repo.hooks.rmdir()
    check_words(take_out(repo).notes[0])
    assert_untouched(before, snapshot(repo.root))


def test_lefthook(repo: HookRepo) -> None:
    main = b"pre-commit:\n  jobs:\n    - run: true\n"
    file = repo.write("lefthook.yml", main, 0o644)
    before = snapshot(repo.root)
    plan = put_in(repo)
    assert (plan.way, plan.changes) == (Way.LEFTHOOK, ())
    assert_untouched(before, snapshot(repo.root))
    snippet, _, extends = "\n".join(plan.lines).partition("# lefthook.yml\n")
    repo.write("lefthook-gitlease.yml", snippet.encode(), 0o644)
    assert put_in(repo).lines == plan.lines
    file.write_bytes(main + extends.encode())
    before = snapshot(repo.root)
    plan = put_in(repo)
    assert (plan.changes, plan.lines) == ((), ())
    check_words(plan.notes[0])
    assert problems(repo) == {"git does not call lefthook yet: lefthook install"}
    check_words(take_out(repo).notes[0])
    assert_untouched(before, snapshot(repo.root))


FORMER = (
    b"# BEGIN gitlease reference-transaction v2 file: see `gitlease hooks --help`\n"
    b"exit 1\n# END gitlease reference-transaction\n"
)


@pytest.mark.nightly
def test_the_former_hook_of_refs_is_removed(repo: HookRepo, way: Way) -> None:
    """Stashes work again, and another's lines in that hook stay."""
    name = "reference-transaction"
    hook = repo.write(f".git/hooks/{name}", b"#!/bin/sh\n" + FORMER + MINE)
    script = repo.write(f".git/gitlease/hooks/{name}", b"#!/bin/sh\n" + FORMER)
    git(repo.root, "config", "--local", f"hook.gitlease-{name}.command", str(script))
    take_out(repo)
    assert not script.exists()
    assert run_git(repo.root, "config", f"hook.gitlease-{name}.command").returncode == 1
    assert hook.read_bytes() == b"#!/bin/sh\n" + MINE


@pytest.mark.parametrize("moved", ["{}.legacy", "old-hooks/{}"])
def test_a_hook_that_a_manager_moved_is_removed(repo: HookRepo, moved: str) -> None:
    """One of a chain, too: the hook that it goes on to takes its place again."""
    python = repo.write(".git/hooks/commit-msg", PYTHON)
    put_in(repo)
    (repo.hooks / "old-hooks").mkdir()
    for name in HOOKS:
        (repo.hooks / name).rename(repo.hooks / moved.format(name))
    take_out(repo)
    assert [x for x in repo.hooks.rglob("*") if x.is_file() and b"gitlease" in x.read_bytes()] == []
    assert (repo.hooks / moved.format("commit-msg")).read_bytes() == PYTHON
    assert not python.exists()


@pytest.mark.nightly
def test_a_chain_that_pre_commit_moved_goes_on_and_is_live(
    repo: HookRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write(".git/hooks/pre-commit", PYTHON)
    put_in(repo)
    hook = (repo.hooks / "pre-commit").rename(repo.hooks / "pre-commit.legacy")
    env = clean_env(repo.env)
    subprocess.run([hook], cwd=repo.root, env=env, stdin=subprocess.DEVNULL, check=True)
    assert repo.calls() == ["pre-commit ", "mine"]
    framework = repo.write(
        "framework", b"#!/bin/sh\n[ $2 = hook-impl ] && exec $6/pre-commit.legacy\n"
    )
    made = f"#!/bin/sh\n# File generated by pre-commit\nINSTALL_PYTHON={framework}\n"
    repo.write(".git/hooks/pre-commit", made.encode())
    monkeypatch.setenv("PATH", repo.env["PATH"])
    state = hook_states(discover(str(repo.root)))[0]
    assert (state.live, state.proven) == (True, True)
    assert "pre-commit.legacy" in state.way


def commands() -> list[tuple[str, list[str]]]:
    """What pre-commit and lefthook are given for each hook, and husky's people to type."""
    hooks = yaml.safe_load("repos:\n" + pre_commit_lines(HOOKS))["repos"][0]["hooks"]
    words = [(hook["stages"][0], shlex.split(hook["entry"])) for hook in hooks]
    runs = yaml.safe_load(lefthook_snippet(HOOKS))
    words += [(name, ["sh", "-c", runs[name]["commands"]["gitlease"]["run"]]) for name in HOOKS]
    lines = [(name, "\n".join(hook_lines(name))) for name in HOOKS]
    return words + [(name, ["sh", "-e", "-c", text, "husky"]) for name, text in lines]


def run(
    repo: HookRepo, words: list[str], env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    env = clean_env({**repo.env, **(env or {})})
    return subprocess.run(words, cwd=repo.root, env=env, input=b"", check=False)


def test_the_commands_for_managers_stop_git_only_for_what_was_checked(repo: HookRepo) -> None:
    for status in (0, 1, 70):
        repo.answer(status)
        for name, words in commands():
            stops = status == 1 and name in CHECKED
            assert run(repo, words).returncode == int(stops), words
    repo.answer(1, broken=True)
    for _, words in commands():
        assert run(repo, words).returncode == 0, words
    (repo.bin / "gitlease").unlink()
    for _, words in commands():
        assert shutil.which("gitlease") or run(repo, words).returncode == 0, words


@pytest.mark.default("given0")
@pytest.mark.parametrize("given", [["my repo/.git/MSG"], ["Jo's/.git/MSG", "commit", "HEAD"]])
def test_managers_pass_on_what_git_said_of_a_message(repo: HookRepo, given: list[str]) -> None:
    """A file of any name, and whether it is an amended commit, which the source tells."""
    fake = '#!/bin/sh\nshift 2\nprintf "<%s>" "$@" >>"$CALLS"\n'
    (repo.bin / "gitlease").write_text(fake)
    named = ("PRE_COMMIT_COMMIT_MSG_SOURCE", "PRE_COMMIT_COMMIT_OBJECT_NAME")
    source = dict(zip(named, given[1:], strict=False))
    for name, words in commands():
        if name not in ("prepare-commit-msg", "commit-msg"):
            continue
        words, env = list(words), {}
        if words[-1] == "husky":
            words += given
        elif words[-1] == "gitlease":  # pre-commit's: files are added to the words
            words, env = [*words, given[0]], source if name == "prepare-commit-msg" else {}
        else:
            for number, word in enumerate(given, 1):  # lefthook's: as it puts them into the text
                words[-1] = words[-1].replace(f"{{{number}}}", word)
        assert run(repo, words, env).returncode == 0
        (said,) = repo.calls()
        assert said.startswith(f"<{given[0]}>")
        if name == "prepare-commit-msg":
            assert ("<commit><HEAD>" in said) == (given[1:] == ["commit", "HEAD"])


@pytest.mark.nightly
def test_a_git_that_reads_hooks_from_its_configuration(
    repo: HookRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it shows with any git: what is set up, and that each command calls its hook."""
    monkeypatch.setattr(places, "git_version", lambda top: (2, 54))
    hook = repo.write(".git/hooks/pre-commit", b"#!/bin/sh\n" + MINE)
    before = snapshot(repo.root)
    plan = put_in(repo)
    assert (plan.way, len(plan.messages)) == (Way.CONFIG, 2 * len(HOOKS))
    assert put_in(repo).messages == ()
    assert hook.read_bytes() == b"#!/bin/sh\n" + MINE
    for name in HOOKS:
        assert git(repo.root, "config", f"hook.gitlease-{name}.event") == name
        command = git(repo.root, "config", f"hook.gitlease-{name}.command")
        words = ["sh", "-c", f'{command} "$@"', command, "x"]
        done = subprocess.run(words, cwd=repo.root, env=clean_env(repo.env), input=b"", check=False)
        assert done.returncode == 0
    assert [call.split()[0] for call in repo.calls()] == list(HOOKS)
    take_out(repo)
    assert_untouched(before, snapshot(repo.root))
