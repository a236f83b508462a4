"""The server's hook: put beside what is there, proven to fire, taken out to the byte."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_gitlease, run_program
from support.forge import JO, KIM, Forge, objects_of
from support.hooked import Done, script
from support.illegal import barrier, claim
from support.ledgers import Entry, write_object
from support.remotes import Servers
from support.repos import assert_untouched, commit_by_hand, git, real_clone, snapshot
from support.served import REF, Host, in_folder, own_program, serve

from gitlease.cli.app import run

pytestmark = pytest.mark.slow

MINE = '#!/bin/sh\nwhile read -r old new ref; do echo "mine $ref" >>"$CALLS"; done\n'
# What Gitea writes, as far as it matters: it hands its input to every hook of a folder.
GITEA = """#!/usr/bin/env bash
data=$(cat)
exitcodes=""
hookname=$(basename $0)
GIT_DIR=${GIT_DIR:-$(dirname $0)/..}
for hook in ${GIT_DIR}/hooks/$hookname.d/*; do
  test -x "${hook}" && test -f "${hook}" || continue
  echo "${data}" | "${hook}"
  exitcodes="${exitcodes} $?"
done
for i in ${exitcodes}; do
  [ ${i} -eq 0 ] || exit ${i}
done
"""


@pytest.fixture
def host(tmp_path: Path, servers: Servers) -> Iterator[Host]:
    with serve("path", tmp_path, servers) as found:
        yield found


@pytest.fixture
def forge(host: Host, tmp_path: Path) -> Forge:
    return Forge(tmp_path / "kim.git", host.bare)


def server(host: Host, *words: str, status: int = 0) -> dict[str, Any]:
    """``gitlease server …``; the JSON that it answers."""
    done = run_gitlease(["server", "--json", *words], host.folder)
    assert done.returncode == status, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def pushes(host: Host, forge: Forge, **env: str) -> Done:
    """kim makes the ledger, or moves it on."""
    draft = forge.honest(barrier()) if host.tip() else forge.first(barrier())
    return forge.push(str(host.bare), forge.write(draft), env={"GL_USER": "kim", **env})


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


# --- put in and taken out -----------------------------------------------------------------------


@pytest.mark.default
def test_it_is_installed_proven_and_taken_out_without_a_trace(host: Host) -> None:
    before = snapshot(host.bare)
    answer = server(host, "install", "--identity", "GL_USER", "origin.git")
    assert (answer["live"], answer["proven"]) == (True, True)
    assert (answer["mode"], answer["identity"]) == ("block", "GL_USER")
    assert os.access(answer["program"], os.X_OK)
    assert server(host, "install", "origin.git")["changes"] == []
    state = server(host, "status", "origin.git")
    assert state["hook"] == str(host.bare / "hooks" / "pre-receive")
    assert state["proven"]
    assert server(host, "uninstall", "origin.git")["changes"]
    assert_untouched(before, snapshot(host.bare))
    assert server(host, "uninstall", "origin.git")["changes"] == []
    refused = server(host, "status", "origin.git", status=1)
    assert refused["error"]["code"] == "violations"
    assert not refused["installed"]


@pytest.mark.nightly
def test_gateways_are_listed_by_the_command(host: Host) -> None:
    words = ("--identity", "GL_USER", "--gateway", "leases", "--gateway", "board")
    assert server(host, "install", *words, "origin.git")["gateways"] == ["leases", "board"]
    assert server(host, "status", "origin.git")["gateways"] == ["leases", "board"]


@pytest.mark.parametrize(
    "words",
    [
        ("install", "--mode", "off", "origin.git"),
        ("install", "origin.git"),
        ("install", "--identity", "HTTP_X_USER", "origin.git"),
        ("install", "--identity", "LC_USER", "origin.git"),
        ("install", "--identity", "SSH_CLIENT", "origin.git"),
        ("install", "--identity", "a b", "origin.git"),
        ("status", "--mode", "warn", "origin.git"),
        ("install", "--gateway", "g", "origin.git"),
        ("install", "--identity", "GL_USER", "--gateway=-x", "origin.git"),
    ],
)
def test_bad_words_are_refused(
    words: tuple[str, ...], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(host.folder)
    assert run(["server", *words]) == 2
    assert not (host.bare / "hooks" / "pre-receive").exists()


def test_only_a_bare_repository_itself_gets_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    real_clone(host.bare, host.folder / "kim", "kim@example.com")
    monkeypatch.chdir(host.folder)
    for place in ("kim", "nothing", "origin.git/objects"):
        assert run(["server", "install", place]) in (7, 128)


# --- hooks that are there -----------------------------------------------------------------------


def existing(host: Host, text: str, name: str = "pre-receive", mode: int = 0o750) -> Path:
    path = host.bare / "hooks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_hook_that_is_there_gets_the_same_input_before_ours(host: Host, forge: Forge) -> None:
    existing(host, MINE)
    before = in_folder(host)
    host.install()
    env = {"CALLS": str(host.folder / "calls")}
    assert pushes(host, forge, **env).returncode == 0
    assert calls(host.folder) == [f"mine {REF}"]
    stolen = forge.honest(claim()).of(JO)
    refused = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim", **env})
    assert refused.returncode == 1
    assert calls(host.folder) == [f"mine {REF}"] * 2, "ours judges last"
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


def test_a_hook_that_replaced_ours_is_told_of_and_not_lost(host: Host) -> None:
    existing(host, MINE)
    host.install()
    other = existing(host, "#!/bin/sh\nexit 0\n")
    assert server(host, "status", "origin.git", status=1)["problem"]
    server(host, "install", "origin.git", status=7)
    assert other.read_text() == "#!/bin/sh\nexit 0\n"


@pytest.mark.nightly
@pytest.mark.parametrize("leads", ["../elsewhere", "../nothing"])
def test_a_link_is_kept_like_a_hook(host: Host, leads: str) -> None:
    existing(host, MINE, "../elsewhere")
    (host.bare / "hooks").mkdir(exist_ok=True)
    (host.bare / "hooks" / "pre-receive").symlink_to(leads)
    before = in_folder(host)
    host.install()
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


def test_a_folder_of_hooks_gets_one_more(host: Host, forge: Forge) -> None:
    existing(host, GITEA, mode=0o755)
    existing(host, MINE, "pre-receive.d/gitea", 0o755)
    before = in_folder(host)
    host.install()
    state = server(host, "status", "origin.git")
    assert state["hook"].endswith("pre-receive.d/zz-gitlease")
    assert state["proven"]
    env = {"CALLS": str(host.folder / "calls")}
    assert pushes(host, forge, **env).returncode == 0
    stolen = forge.honest(claim()).of(JO)
    refused = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim", **env})
    assert refused.returncode == 1
    assert "(identity)" in refused.stderr
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


@pytest.mark.default
def test_a_repository_of_gitlabs_keeps_it_with_its_own_hooks(host: Host) -> None:
    (host.bare / "custom_hooks").mkdir()
    answer = server(host, "install", "--identity", "GL_USERNAME", "origin.git")
    assert answer["hook"].endswith("custom_hooks/pre-receive.d/zz-gitlease")
    assert (answer["live"], answer["proven"]) == (True, False)
    server(host, "uninstall", "origin.git")
    assert not list((host.bare / "custom_hooks").iterdir())


# --- gitlease's own faults ----------------------------------------------------------------------


BROKEN = {
    "missing": None,
    "is killed": "#!/bin/sh\nkill -9 $$\n",
    "takes too long": "#!/bin/sh\nkill -ALRM $$\n",
}


@pytest.mark.parametrize("broken", list(BROKEN))
@pytest.mark.parametrize(("mode", "beside"), [("block", False), ("block", True), ("warn", True)])
def test_what_gitlease_did_not_judge_is_accepted_in_mode_warn_alone(
    broken: str, mode: str, beside: bool, host: Host, forge: Forge
) -> None:
    program = host.folder / "broken"
    text = BROKEN[broken]
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    if beside:
        existing(host, MINE)
    host.install(mode=mode, program=str(program))
    # What would be found on PATH instead is none of ours.
    env = {"PATH": f"{Path(sys.executable).parent / 'nowhere'}:/usr/bin:/bin"}
    env["CALLS"] = str(host.folder / "calls")
    work = git(host.bare, "rev-parse", "main")
    for done, ref in (
        (pushes(host, forge, **env), REF),
        (forge.push(str(host.bare), work, "refs/heads/side", env=env), "refs/heads/side"),
    ):
        if mode == "block":
            assert done.returncode == 1
            assert "refused (fault): " in done.stderr
            assert host.tip(ref) == ""
        else:
            assert done.returncode == 0
            assert "gitlease: warning: " in done.stderr
            assert ref in done.stdout
    assert len(calls(host.folder)) == (2 if beside else 0)


@pytest.mark.nightly
def test_a_hook_that_cannot_read_what_is_pushed_refuses_it(host: Host, forge: Forge) -> None:
    existing(host, MINE)
    host.install()
    tools = host.folder / "tools"
    tools.mkdir()
    script(tools / "cat", "exit 1\n")
    done = pushes(host, forge, PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert "refused (fault): " in done.stderr
    assert host.tip() == ""


@pytest.mark.parametrize("part", [0, 60, None])
def test_what_comes_in_part_is_refused(host: Host, part: int | None) -> None:
    host.install()
    tip = git(host.bare, "rev-parse", "main")
    done = run_program(
        [sys.executable, "-P", "-m", "gitlease", "server-hook", "pre-receive", "end"],
        host.bare,
        {"GL_USER": "kim"},
        input=f"{'0' * 40} {tip} refs/heads/side\n"[:part],
    )
    assert done.returncode not in (0, 9), done.stderr


def test_only_usable_settings_of_the_server_count(host: Host, forge: Forge) -> None:
    host.install()
    settings = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "gitlease.mode",
        "GIT_CONFIG_VALUE_0": "warn",
        "GITLEASE_SKIP": "1",
    }
    stolen = forge.first(barrier()).of(JO)
    done = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim", **settings})
    assert done.returncode == 1
    assert "(identity)" in done.stderr
    git(host.bare, "config", "gitlease.mode", "sometimes")
    assert "refused (fault): " in pushes(host, forge).stderr


# --- limits -------------------------------------------------------------------------------------

MOST = 200 * 1024  # kilobytes of memory that a judgement may take, with all of Python


@pytest.fixture
def measured(host: Host, forge: Forge, tmp_path: Path) -> Path:
    """A ledger, and the hook with a gitlease that writes down how much memory it took at most."""
    made = forge.write(forge.first(claim(KIM, "F001")))
    assert forge.push(str(host.bare), made).returncode == 0
    log = tmp_path / "kilobytes"
    program = tmp_path / "measured"
    program.write_text(
        f"#!{sys.executable}\nimport resource, subprocess, sys\n"
        f"done = subprocess.run([{str(own_program(tmp_path))!r}, *sys.argv[1:]])\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
        f"print(used, file=open({str(log)!r}, 'a'))\nsys.exit(done.returncode)\n"
    )
    program.chmod(0o755)
    host.install(program=str(program))
    return log


def test_what_is_huge_is_refused_unread(host: Host, forge: Forge, measured: Path) -> None:
    blob = write_object(forge.path, b"\0" * 5_000_000)
    small = write_object(forge.path, b"x")
    step, taken = forge.honest(barrier()), forge.honest(claim())
    rest = [entry for entry in forge.root_of(step) if entry[1] != b"leases"]
    wide = forge.raw([("100644", b"%08d" % number, small) for number in range(250_000)])

    def with_leases(tree: str) -> str:
        entries = sorted([*rest, ("40000", b"leases", tree)], key=lambda entry: entry[1])
        return forge.by_hand(step, forge.raw(entries))

    files = {taken.file("F100"): Entry("100644", blob)}
    huge = {
        "record": forge.write(replace(taken, files=files)),
        "header": forge.write(replace(step, files={"ledger.yaml": Entry("100644", blob)})),
        "too-large": with_leases(wide),
    }
    before = host.tip(), objects_of(host.bare)
    for rule, made in huge.items():
        done = forge.push(str(host.bare), made, env={"GL_USER": "kim"})
        assert done.returncode == 1
        assert f"refused {REF} ({rule}): " in done.stderr
    assert (host.tip(), objects_of(host.bare)) == before
    assert max(map(int, measured.read_text().split())) < MOST


def with_folder(forge: Forge, name: str) -> str:
    """A commit of kim's on main that adds a folder with very many files."""
    blob = write_object(forge.path, b"id: X\n")
    tree = forge.raw([("100644", b"%07d.md" % number, blob) for number in range(250_000)])
    top, _, below = name.partition("/")
    if below:
        tree = forge.raw([("40000", below.encode(), tree)])
    main = git(forge.server, "rev-parse", "main")
    there = git(forge.path, "ls-tree", main).splitlines()
    root = [*(x for x in there if not x.endswith(f"\t{top}")), f"040000 tree {tree}\t{top}"]
    tree = git(forge.path, "mktree", input="".join(f"{line}\n" for line in root))
    return commit_by_hand(forge.path, tree, [main], "kim@example.com")


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("wide", ""),
        ("src/api", "refused (held): src/api/0000000.md is held by jo@example.com"),
        ("tasks", "refused (too-large): "),
    ],
)
def test_very_many_files_are_judged_in_bounded_memory(
    folder: str, said: str, host: Host, forge: Forge, measured: Path
) -> None:
    held = forge.write(forge.honest(claim(JO, "src/api/", ttl=28_800), actor=JO))
    assert forge.push(str(host.bare), held, env={"GL_USER": "jo"}).returncode == 0
    made = with_folder(forge, folder)
    measured.unlink()
    done = forge.push(str(host.bare), made, "refs/heads/main", env={"GL_USER": "kim"})
    assert done.returncode == bool(said), done.stderr
    assert said in done.stderr
    assert len(done.stderr) < 4_000
    assert (host.tip("refs/heads/main") == made) is (not said)
    assert max(map(int, measured.read_text().split())) < MOST
