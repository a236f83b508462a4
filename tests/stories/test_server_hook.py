"""The server's hook: put beside what is there, proven to fire, taken out to the byte."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_gitlease
from support.fences import clean_env
from support.forge import JO, KIM, Entry, Forge, objects_of
from support.hooked import script
from support.illegal import barrier, claim
from support.ledgers import write_object
from support.remotes import Servers
from support.repos import assert_untouched, git, real_clone, run_git, snapshot
from support.served import REF, Host, in_folder, own_program, serve
from support.snapshots import check_words

from gitlease.faces.cli import run
from gitlease.install import HookForm, find_shim
from gitlease.install.server import shim

pytestmark = [pytest.mark.sampled(2)]

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


def pushes(
    host: Host, forge: Forge, *, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """kim makes the ledger, or moves it on."""
    draft = forge.honest(barrier()) if host.tip() else forge.first(barrier())
    done = forge.push(str(host.bare), forge.write(draft), env={"GL_USER": "kim", **(env or {})})
    return done


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


# --- put in and taken out -----------------------------------------------------------------------


def test_it_is_installed_proven_and_taken_out_without_a_trace(host: Host) -> None:
    before = snapshot(host.bare)
    answer = server(host, "install", "--identity", "GL_USER", "origin.git")
    assert answer["live"]
    assert answer["proven"]
    assert answer["mode"] == "block"
    assert answer["identity"] == "GL_USER"
    assert answer["next"] == ["gitlease server status origin.git"]
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


def test_gateways_are_listed_by_the_command(host: Host) -> None:
    words = ("--identity", "GL_USER", "--gateway", "leases", "--gateway", "board")
    answer = server(host, "install", *words, "origin.git")
    assert answer["gateways"] == ["leases", "board"]
    assert server(host, "install", "origin.git")["gateways"] == ["leases", "board"]
    assert git(host.bare, "config", "--get-all", "gitlease.gateways").split() == ["leases", "board"]
    git(host.bare, "config", "--unset-all", "gitlease.gateways")
    assert server(host, "status", "origin.git")["gateways"] == []


@pytest.mark.slow
def test_the_mode_stays_until_another_is_asked_for(host: Host) -> None:
    assert (
        server(host, "install", "--no-identity", "--mode", "warn", "origin.git")["mode"] == "warn"
    )
    assert server(host, "install", "--identity", "GL_USER", "origin.git")["mode"] == "warn"
    assert server(host, "install", "--mode", "block", "origin.git")["identity"] == "GL_USER"


def test_who_is_whose_holder_is_the_hosts_own_word_and_stays(host: Host) -> None:
    git(host.bare, "config", "gitlease.jo_x.holder", "jo@example.com")
    git(host.bare, "config", "--add", "gitlease.jo_x.holder", "jo@home.org")
    server(host, "install", "--identity", "GL_USER", "origin.git")
    state = server(host, "status", "origin.git")
    assert state["holders"] == {"jo_x": ["jo@example.com", "jo@home.org"]}
    assert "holder" in " ".join(server(host, "uninstall", "origin.git")["warnings"])
    assert git(host.bare, "config", "--get-all", "gitlease.jo_x.holder")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install", "--mode", "off", "origin.git"), "'off' is not one of 'block', 'warn'"),
        (("install", "origin.git"), "hint: name the variable that says who pushes, --identity"),
        (("install", "--identity", "HTTP_X_USER", "origin.git"), "clients can set it"),
        (("install", "--identity", "LC_USER", "origin.git"), "clients can set it"),
        (("install", "--identity", "GIT_COMMITTER_EMAIL", "origin.git"), "clients can set it"),
        (("install", "--identity", "SERVER_NAME", "origin.git"), "SERVER_NAME"),
        (("install", "--identity", "REMOTE_IDENT", "origin.git"), "REMOTE_IDENT"),
        (("install", "--identity", "SSH_CLIENT", "origin.git"), "SSH_CLIENT"),
        (("install", "--identity", "a b", "origin.git"), "is not the name of a variable"),
        (("status", "--mode", "warn", "origin.git"), "cannot be combined with status"),
        (("uninstall", "--gateway", "g", "origin.git"), "cannot be combined with uninstall"),
        (("install", "--gateway", "g", "origin.git"), "this server does not know who pushes"),
        (("install", "--identity", "GL_USER", "--gateway=-x", "origin.git"), "invalid gateway"),
        (("reinstall", "origin.git"), "'reinstall' is not one of 'install'"),
    ],
)
def test_bad_words_are_refused(
    words: tuple[str, ...],
    said: str,
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(host.folder)
    assert run(["server", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (host.bare / "hooks" / "pre-receive").exists()


@pytest.mark.parametrize("place", ["kim", "nothing", "origin.git/objects"])
def test_only_a_bare_repository_itself_gets_it(
    place: str, host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real_clone(host.bare, host.folder / "kim", "kim@example.com")
    monkeypatch.chdir(host.folder)
    assert run(["server", "install", place]) in (7, 128)
    assert capsys.readouterr().err


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
    assert pushes(host, forge, env=env).returncode == 0
    assert calls(host.folder) == [f"mine {REF}"]
    stolen = forge.honest(claim()).of(JO)
    refused = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim", **env})
    assert refused.returncode == 1
    assert calls(host.folder) == [f"mine {REF}"] * 2, "ours judges last"
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


@pytest.mark.slow
def test_what_the_other_hook_refuses_is_refused(host: Host, forge: Forge) -> None:
    existing(host, "#!/bin/sh\necho not today >&2\nexit 3\n")
    host.install()
    done = pushes(host, forge)
    assert done.returncode == 1
    assert "not today" in done.stderr
    assert host.tip() == ""


@pytest.mark.slow
def test_a_hook_that_is_a_link_or_no_script_comes_back_as_it_was(host: Host) -> None:
    existing(host, MINE, "../elsewhere")
    (host.bare / "hooks").mkdir(exist_ok=True)
    (host.bare / "hooks" / "pre-receive").symlink_to("../elsewhere")
    before = in_folder(host)
    host.install()
    assert server(host, "status", "origin.git")["kept"]
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


@pytest.mark.slow
def test_a_hook_that_replaced_ours_is_told_of_and_not_lost(host: Host) -> None:
    existing(host, MINE)
    host.install()
    existing(host, "#!/bin/sh\nexit 0\n")
    check_words(server(host, "status", "origin.git", status=1)["problem"])
    refused = server(host, "install", "origin.git", status=7)
    check_words(refused["error"]["message"])


def test_a_hook_that_goes_by_its_name_still_has_it(host: Host, forge: Forge) -> None:
    existing(host, '#!/bin/sh\n[ "$(basename "$0")" = pre-receive ]\n')
    before = in_folder(host)
    host.install()
    assert pushes(host, forge).returncode == 0
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


def test_a_folder_of_hooks_that_nothing_calls_is_not_relied_on(host: Host, forge: Forge) -> None:
    (host.bare / "hooks" / "pre-receive.d").mkdir(parents=True)
    host.install()
    state = server(host, "status", "origin.git")
    assert state["hook"] == str(host.bare / "hooks" / "pre-receive")
    assert state["proven"]
    assert pushes(host, forge).returncode == 0
    stolen = forge.honest(claim()).of(JO)
    refused = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim"})
    assert refused.returncode == 1


def test_a_link_that_leads_nowhere_is_kept_like_a_hook(host: Host) -> None:
    (host.bare / "hooks").mkdir(exist_ok=True)
    (host.bare / "hooks" / "pre-receive").symlink_to("../nothing")
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
    assert pushes(host, forge, env=env).returncode == 0
    stolen = forge.honest(claim()).of(JO)
    refused = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim", **env})
    assert refused.returncode == 1
    assert "(identity)" in refused.stderr
    server(host, "uninstall", "origin.git")
    assert in_folder(host) == before


def test_what_runs_after_ours_is_named(host: Host) -> None:
    existing(host, GITEA, mode=0o755)
    existing(host, MINE, "pre-receive.d/aaa", 0o755)
    later = {existing(host, MINE, x, 0o755) for x in ("pre-receive.d/zzz-last", "update")}
    answer = server(host, "install", "--identity", "GL_USER", "origin.git")
    named = {x.split(" runs after it")[0] for x in answer["warnings"] if " runs after it" in x}
    assert named == {str(x) for x in later}


def test_a_repository_of_gitlabs_keeps_it_with_its_own_hooks(host: Host) -> None:
    (host.bare / "custom_hooks").mkdir()
    answer = server(host, "install", "--identity", "GL_USERNAME", "origin.git")
    assert answer["hook"].endswith("custom_hooks/pre-receive.d/zz-gitlease")
    assert answer["live"]
    assert not answer["proven"]
    check_words(answer["warnings"])
    server(host, "uninstall", "origin.git")
    assert not list((host.bare / "custom_hooks").iterdir())


@pytest.mark.slow
def test_hooks_outside_of_the_repository_are_left_to_their_keeper(host: Host) -> None:
    git(host.bare, "config", "core.hooksPath", str(host.folder))
    refused = server(host, "install", "origin.git", status=7)
    check_words(refused["error"])


# --- gitlease's own faults ----------------------------------------------------------------------


BROKEN = {
    "missing": None,
    "crashes": "#!/bin/sh\nexit 1\n",
    "is killed": "#!/bin/sh\nkill -9 $$\n",
    "faults": "#!/bin/sh\nkill -SEGV $$\n",
    "takes too long": "#!/bin/sh\nkill -ALRM $$\n",
    "has no interpreter": "#!/nowhere/bin/python3\n",
    "has no package": f"#!{sys.executable} -ISE\nimport gitlease_that_was_uninstalled\n",
}


@pytest.mark.one_in(3)
@pytest.mark.nightly(3)
@pytest.mark.parametrize("broken", list(BROKEN))
@pytest.mark.parametrize("mode", ["block", "warn"])
@pytest.mark.parametrize("beside", ["alone", "after another hook"])
def test_what_gitlease_did_not_judge_is_accepted_in_mode_warn_alone(
    broken: str, mode: str, beside: str, host: Host, forge: Forge
) -> None:
    program = host.folder / "broken"
    text = BROKEN[broken]
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    if beside != "alone":
        existing(host, MINE)
    host.install(mode=mode, program=str(program))
    # What would be found on PATH instead is none of ours.
    env = {"PATH": f"{Path(sys.executable).parent / 'nowhere'}:/usr/bin:/bin"}
    env["CALLS"] = str(host.folder / "calls")
    work = git(host.bare, "rev-parse", "main")
    for done, ref in (
        (pushes(host, forge, env=env), REF),
        (forge.push(str(host.bare), work, "refs/heads/side", env=env), "refs/heads/side"),
    ):
        if mode == "block":
            assert done.returncode == 1
            assert "refused (fault): " in done.stderr
            assert "hint: " in done.stderr
            assert host.tip(ref) == ""
        else:
            assert done.returncode == 0
            assert "gitlease: warning: " in done.stderr
            assert ref in done.stdout
    assert len(calls(host.folder)) == (2 if beside == "after another hook" else 0)


def test_a_hook_that_cannot_read_what_is_pushed_refuses_it(host: Host, forge: Forge) -> None:
    existing(host, MINE)
    host.install()
    tools = host.folder / "tools"
    tools.mkdir()
    script(tools / "cat", "exit 1\n")
    done = pushes(host, forge, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert done.returncode == 1
    assert "refused (fault): " in done.stderr
    assert host.tip() == ""


@pytest.mark.parametrize("lines", ["", "half", "one of two"])
def test_what_comes_in_part_is_refused(host: Host, lines: str) -> None:
    host.install()
    tip = git(host.bare, "rev-parse", "main")
    line = f"{'0' * 40} {tip} refs/heads/side\n"
    given = {"": "", "half": line[:60], "one of two": line}[lines]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gitlease", "server-hook", "pre-receive", "end"],
        cwd=host.bare,
        env=clean_env({"GL_USER": "kim"}),
        input=given,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode not in (0, 9), done.stderr
    check_words(done.stderr)


@pytest.mark.parametrize(("mode", "way_out"), [("sometimes", "block"), ("Warn", "warn")])
def test_settings_of_the_server_that_cannot_be_used_are_a_fault(
    host: Host, forge: Forge, mode: str, way_out: str
) -> None:
    host.install()
    git(host.bare, "config", "gitlease.mode", mode)
    done = pushes(host, forge)
    assert done.returncode == 1
    assert f"gitlease.mode is {mode}" in done.stderr
    assert f"git config gitlease.mode {way_out}" in done.stderr


def test_nothing_of_the_environment_is_a_setting(host: Host, forge: Forge) -> None:
    host.install()
    told = {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "gitlease.mode",
        "GIT_CONFIG_VALUE_0": "warn",
        "GIT_CONFIG_KEY_1": "gitlease.kim.holder",
        "GIT_CONFIG_VALUE_1": "jo@example.com",
        "GITLEASE_SKIP": "1",
        "GITLEASE_LAYER": "x",
    }
    stolen = forge.first(barrier()).of(JO)
    done = forge.push(str(host.bare), forge.write(stolen), env={"GL_USER": "kim", **told})
    assert done.returncode == 1
    assert "(identity)" in done.stderr


def test_the_shell_is_what_this_version_writes() -> None:
    for form in HookForm:
        text = shim(form, "/opt/git lease's/bin/gitlease")
        placed = find_shim(text)
        assert placed is not None
        assert (placed.form, placed.program) == (form, "/opt/git lease's/bin/gitlease")
        assert shim(placed.form, placed.program) == text
        checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr
    assert find_shim(b"#!/bin/sh\nexit 0\n") is None


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


@pytest.mark.slow
def test_very_many_refs_and_files_are_bounded_too(
    host: Host, forge: Forge, measured: Path, tmp_path: Path
) -> None:
    tip = git(host.bare, "rev-parse", "main")
    lines = "".join(f"create refs/heads/x{number} {tip}\n" for number in range(60_000))
    run_git(forge.path, "update-ref", "--stdin", input=lines)
    done = run_git(forge.path, "push", "-q", str(host.bare), "refs/heads/*", env={"GL_USER": "kim"})
    assert done.returncode == 1
    assert "refused (too-large): " in done.stderr
    assert max(map(int, measured.read_text().split())) < MOST


HALF_A_MILLION = 500_000


def with_folder(forge: Forge, name: str, *, also: str = "", file: bytes = b"%07d.md") -> str:
    """A commit of kim's on main that adds a folder with half a million files, and one file more."""
    blob = write_object(forge.path, b"id: X\n")
    entries = [("100644", file % number, blob) for number in range(HALF_A_MILLION)]
    wide = forge.raw(entries)
    main = git(forge.server, "rev-parse", "main")
    root = {}
    for line in git(forge.path, "ls-tree", main).splitlines():
        head, _, path = line.partition("\t")
        root[path.encode()] = (head.split(" ")[0].lstrip("0"), path.encode(), head.split(" ")[2])
    for path, tree in ((name, wide), (also, blob)):
        folder, _, below = path.encode().rpartition(b"/")
        if not path:
            continue
        mode = "40000" if tree == wide else "100644"
        top = ("40000", folder, forge.raw([(mode, below, tree)])) if folder else (mode, below, tree)
        root[top[1]] = top
    tree = forge.raw(sorted(root.values(), key=lambda x: x[1] + b"/" * (x[0] == "40000")))
    who = {
        f"GIT_{x}_{y}": "kim@example.com"
        for x in ("AUTHOR", "COMMITTER")
        for y in ("NAME", "EMAIL")
    }
    return git(forge.path, "commit-tree", "-p", main, "-m", "much", tree, env=who)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "also", "said"),
    [
        ("wide", "", ""),
        ("wide", "src/api", "refused (held): src/api is held by jo@example.com"),
        ("src/api", "", "refused (held): src/api/0000000.md is held by jo@example.com"),
        ("tasks", "", "refused (too-large): "),
    ],
)
def test_half_a_million_files_are_judged_in_bounded_memory(
    folder: str, also: str, said: str, host: Host, forge: Forge, measured: Path
) -> None:
    held = forge.write(forge.honest(claim(JO, "src/api/", ttl=28_800), actor=JO))
    assert forge.push(str(host.bare), held, env={"GL_USER": "jo"}).returncode == 0
    made = with_folder(forge, folder, also=also)
    measured.unlink()
    done = forge.push(str(host.bare), made, "refs/heads/main", env={"GL_USER": "kim"})
    if said:
        assert done.returncode == 1, done.stderr
        assert said in done.stderr
        assert len(done.stderr) < 4_000
    else:
        assert done.returncode == 0, done.stderr
    assert host.tip("refs/heads/main") == git(
        forge.path, "rev-parse", made if not said else f"{made}~1"
    )
    assert max(map(int, measured.read_text().split())) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [60, 130])
def test_what_takes_more_memory_than_there_is_is_refused(
    megabytes: int, host: Host, forge: Forge, tmp_path: Path
) -> None:
    held = forge.write(forge.first(claim(JO, "src/api/", ttl=28_800)))
    assert forge.push(str(host.bare), held).returncode == 0
    program = tmp_path / "cramped"
    own = shlex.quote(str(own_program(tmp_path)))
    program.write_text(f'#!/bin/sh\nulimit -d {megabytes * 1024}\n{own} "$@"\n')
    program.chmod(0o755)
    host.install(program=str(program))
    made = with_folder(forge, "wide", also="src/api")
    done = forge.push(str(host.bare), made, "refs/heads/main", env={"GL_USER": "kim"})
    assert done.returncode == 1
    assert "gitlease: refused" in done.stderr
    assert "Traceback" not in done.stderr
    assert host.tip("refs/heads/main") == git(forge.path, "rev-parse", f"{made}~1")
