"""What words mean where they are typed: names and paths, other names of verbs, pages of help."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import run_program, typed
from support.repos import commit_file, git
from support.running import ask
from support.snapshots import check_words, raises

import gitlease
from gitlease.cli.app import ALIASES

pytestmark = pytest.mark.slow

ROOT = str(Path(__file__).parents[3])
Clones = Callable[..., list[Path]]


@pytest.fixture
def jo(clones: Clones) -> Path:
    (one,) = clones(1)
    commit_file(one, "src/a.py", "1\n")
    commit_file(one, "Makefile", "all:\n")
    return one


# --- what may be claimed -------------------------------------------------------------------------


@pytest.mark.default("Makefile-file")
@pytest.mark.nightly
@pytest.mark.parametrize(("word", "kind"), [("Makefile", "file"), ("src", "folder")])
def test_a_claim_of_what_may_be_a_file_or_a_name_asks_which(jo: Path, word: str, kind: str) -> None:
    error = ask(jo, "claim", word, expect=2)["error"]
    assert error["code"] == "usage"
    check_words(error["message"])
    refused = typed(jo, "claim", word).stderr
    assert f"path:{word}" in refused
    assert "--any" in refused
    assert ask(jo, "list")["leases"] == []
    assert ask(jo, "claim", f"path:{word}")["lease"]["resource"] == f"path:{word}"
    assert ask(jo, "claim", word, "--any")["lease"]["resource"] == word
    with gitlease.open(jo) as leases, raises(gitlease.UsageError):
        leases.claim("README")
    with gitlease.open(jo) as leases:
        assert leases.claim("README", any=True).resource == "README"


def test_a_lease_that_is_there_says_which_is_meant(clones: Clones) -> None:
    one, two = clones(2)
    for clone in (one, two):
        commit_file(clone, "Makefile", "all:\n")
    ask(one, "claim", "Makefile", "--any")
    assert ask(two, "claim", "Makefile", expect=1)["error"]["code"] == "held"
    assert ask(one, "claim", "Makefile")["status"] == "renewed"
    for verb in ("show", "renew", "release"):
        ask(one, verb, "Makefile")
    assert ask(two, "claim", "Makefile", expect=2)["error"]["code"] == "usage"


@pytest.mark.default("/etc/new")
@pytest.mark.parametrize("word", ["/etc/*.conf", "/etc/new", "path:~/x", "a/../../x"])
def test_what_lies_outside_is_no_path_here(jo: Path, word: str) -> None:
    for verb in ("claim", "release", "show"):
        error = ask(jo, verb, word, expect=2)["error"]
        assert error["code"] == "usage"
        check_words(error["message"])


def test_a_leading_slash_is_the_root_where_something_is_there(jo: Path) -> None:
    assert ask(jo, "claim", "/src/a.py")["lease"]["resource"] == "src/a.py"
    assert ask(jo, "claim", f"{jo}/src/a.py")["status"] == "renewed"
    assert ask(jo, "claim", "/usr-of-mine/x")["lease"]["resource"] == "usr-of-mine/x"
    (jo / "etc").mkdir()
    (jo / "etc/passwd").write_text("")
    assert ask(jo, "claim", "/etc/passwd")["lease"]["resource"] == "etc/passwd"


@pytest.mark.default
def test_braces_are_refused_with_what_to_write(jo: Path) -> None:
    refused = typed(jo, "claim", "src/{a,b}.py")
    assert refused.returncode == 2
    check_words(refused.stderr)
    (jo / "src" / "{x,y}.py").write_text("")
    assert ask(jo, "claim", "src/{x,y}.py")["lease"]["resource"] == "src/{x,y}.py"


@pytest.mark.default("new.txt-True")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("word", "matches"),
    [
        ("*.py", True),
        ("SRC/A.py", True),
        ("docs/**", False),
        ("new.txt", True),
        ("on-main/x", True),
    ],
)
def test_a_path_that_matches_no_file_is_granted_with_a_warning(
    jo: Path, word: str, matches: bool
) -> None:
    (jo / "new.txt").write_text("")
    commit_file(jo, "on-main/x", "1\n")
    git(jo, "push", "-q", "origin", "HEAD:main")
    git(jo, "fetch", "-q")
    git(jo, "reset", "-q", "--hard", "HEAD~1")
    warnings = ask(jo, "claim", f"path:{word}")["warnings"]
    expected = [] if matches else [f"{word} matches no file, here or on the main branch"]
    assert warnings == expected
    assert ask(jo, "claim", "X1", "--path", word)["warnings"] == expected


def test_what_is_in_a_submodule_is_claimed_there(jo: Path) -> None:
    (jo / ".gitmodules").write_text('[submodule "x"]\n\tpath = lib/sub\n\turl = ../x\n')
    for word in ("lib/sub/a.c", "lib/sub/*.c", "LIB/sub/a.c"):
        error = ask(jo, "claim", word, expect=2)["error"]
        check_words(error["message"])
    assert ask(jo, "claim", "lib/sub")["lease"]["resource"] == "lib/sub"
    assert ask(jo, "claim", "lib/submarine")["lease"]["resource"] == "lib/submarine"


def test_no_verb_of_tasks_suggests_a_path(jo: Path) -> None:
    for words in (("start", "Makefile"), ("set", "a,b", "todo"), ("add", "x", "--id", "a,b")):
        refused = typed(jo, *words)
        assert (refused.returncode > 0, "path:" in refused.stderr) == (True, False), words


# --- what may be finished ------------------------------------------------------------------------


def test_a_name_that_nobody_knows_is_not_finished(clones: Clones) -> None:
    one, two = clones(2)
    assert ask(one, "done", "deploy", expect=7)["error"]["code"] == "not_found"
    assert "--any" in typed(one, "done", "deploy").stderr
    with gitlease.open(one) as leases, pytest.raises(gitlease.NotFound):
        leases.done("deploy")
    assert ask(one, "log")["events"] == []
    assert ask(one, "done", "deploy", "--any")["lease"]["state"] == "completed"
    ask(one, "claim", "other")
    assert ask(one, "done", "other")["lease"]["state"] == "completed"
    ask(two, "list")
    assert ask(two, "done", "other")["lease"]["holder"] == "w1@example.com", "it is done already"


# --- other names of verbs, help, completion -----------------------------------------------------


@pytest.mark.nightly
def test_other_names_are_the_same_verbs(jo: Path) -> None:
    assert ask(jo, "lock", "X")["command"] == "claim"
    assert ask(jo, "unlock", "X")["command"] == "release"
    assert ask(jo, "take", "X")["command"] == "claim"
    assert ask(jo, "unclaim", "X")["command"] == "release"
    assert ask(jo, "take", "X")["status"] == "claimed"
    assert ask(jo, "finish", "X")["command"] == "done"
    for name, verb in ALIASES.items():
        # Of the words of `set`, `start` has the second already.
        page = typed(jo, verb, "--help").stdout.replace("set [OPTIONS] RESOURCE STATUS", "…")
        short = typed(jo, name, "--help").stdout.replace("start [OPTIONS] RESOURCE", "…")
        assert short == page


def test_the_version_is_asked_for_as_of_any_verb(jo: Path) -> None:
    for words in (("version", "--json"), ("--version", "--json"), ("--json", "version")):
        document = ask(jo, *words)
        assert (document["command"], document["version"]) == ("version", gitlease.__version__)
    for wrong, hint in (("x", "argument (x)"), ("--jso", "'--json'?"), ("--local", "option")):
        refused = typed(jo, "version", wrong)
        assert (refused.returncode, refused.stdout, hint in refused.stderr) == (2, "", True), wrong
    assert "gitlease version [" in typed(jo, "help", "version").stdout


@pytest.mark.default("delete-expected1")
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *(("unclame", ["unclaim"]), ("delete", ["release"])),
        *(("lok", ["lock", "log"]), ("lease", []), ("nonsense", [])),
    ],
)
def test_a_suggestion_is_never_the_opposite(jo: Path, word: str, expected: list[str]) -> None:
    refused = typed(jo, word, "X").stderr
    assert re.findall(r"did you mean gitlease (\w+)\?", refused) == expected


BASH = """
eval "$(gitlease completion bash)"
COMP_WORDS=({words} "") COMP_CWORD={at}
{function} {command}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def completing(jo: Path, tmp_path: Path) -> Callable[[str, str], list[str]]:
    """What a shell prints for a script, where there are a task and two leases."""
    commit_file(jo, "tasks/T7.md", "---\nid: T7\nstatus: todo\n---\n")
    ask(jo, "claim", "deploy-prod", "src/a b/", "--any")
    program, home = tmp_path / "gitlease", tmp_path / "home"
    home.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gitlease "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def ask_shell(shell: str, script: str) -> list[str]:
        done = run_program(
            [shell, "-c", script], jo, {"PYTHONPATH": ROOT, "PATH": path, "HOME": str(home)}
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return ask_shell


ZSH = """
compdef() {{ }}
_describe() {{ print -rl -- ${{${{(P)3}}%%:*}} }}
compadd() {{ shift ${{@[(i)--]}}; if (( $# )); then print -rl -- "$@"; fi }}
eval "$(gitlease completion zsh)"
words=({words} '{begun}') CURRENT={at}
_gitlease_completion
"""
SHELL_SCRIPTS = {
    "bash": BASH.replace('""', "'{begun}'"),
    "zsh": ZSH,
    "fish": "gitlease completion fish | source; complete -C '{words} {begun}'",
}


@pytest.mark.slow("bash")
@pytest.mark.nightly
@pytest.mark.parametrize("shell", SHELL_SCRIPTS)
def test_shells_complete_what_stands_after_a_verb(
    completing: Callable[[str, str], list[str]], jo: Path, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    ask(jo, "claim", "x", "--layer", "team", "--any")

    def completed(line: str) -> list[str]:
        words, _, begun = line.rpartition(" ")
        at = len(words.split()) + (shell == "zsh")
        script = SHELL_SCRIPTS[shell].format(
            words=words, begun=begun, at=at, function="_gitlease_completion", command="gitlease"
        )
        # fish lists by the alphabet, with what each is for
        return sorted(word.partition("\t")[0] for word in completing(shell, script))

    cases = (
        ("gitlease un", ["unclaim", "uninstall", "unlock"]),
        ("gitlease unlock dep", ["deploy-prod"]),
        ("gitlease claim --path tasks/T", ["tasks/T7.md"]),
        ("gitlease show path:ta", ["path:tasks/"]),
        ("gitlease -C ta", ["tasks/"]),
        ("gitlease serve token ", ["add", "list", "revoke"]),
        ("gitlease agent codex ", ["install", "status", "uninstall"]),
        ("gitlease session ", ["end", "list"]),
        ("gitlease config --ledger ttl", ["ttl_max", "ttl_min"]),
        ("gitlease help ta", ["take", "tasks"]),
        ("gitlease list --layer t", ["team"]),
        ("gitlease set T7 in", ["in_progress"]),
        ("gitlease check --format s", ["sarif"]),
    )
    # What is completed is the same for each: the others show that they are told.
    for line, expected in cases if shell == "bash" else cases[::5]:
        assert completed(line) == expected, line


# --- out again -----------------------------------------------------------------------------------


def test_uninstall_gives_back_every_byte_and_says_what_stays(jo: Path) -> None:
    def everything() -> dict[str, bytes]:
        files = (x for x in jo.rglob("*") if x.is_file())
        kept = (".git/objects/", ".git/logs/", ".git/index")
        found = {x.relative_to(jo).as_posix(): x.read_bytes() for x in files}
        return {name: data for name, data in found.items() if not name.startswith(kept)}

    ask(jo, "list")
    before = everything()
    ask(jo, "init")
    ask(jo, "hooks", "install")
    ask(jo, "agent", "claude", "install", "--agents-md")
    ask(jo, "config", "lease.ttl", "20m")
    ask(jo, "claim", "F1")
    refused = ask(jo, "uninstall", expect=1)["error"]
    check_words(refused["message"])
    ask(jo, "release", "--all")
    would = ask(jo, "uninstall", "--dry-run")
    assert everything() != before
    done = ask(jo, "uninstall")
    assert done["stays"] == would["stays"]
    assert [x.removeprefix("would have ") for x in would["done"]] == done["done"]
    after = everything()
    assert {x for x in after if not x.startswith(".git/gitlease")} == {
        x for x in before if not x.startswith(".git/gitlease")
    }
    assert {x: after[x] for x in after} == {x: before[x] for x in after}
    assert not (jo / ".git" / "gitlease").exists()
    (stays,) = done["stays"]
    git(jo, *stays.rpartition("git ")[2].split())
    assert git(jo, "ls-remote", "origin", "refs/gitlease/*") == ""
    again = typed(jo, "uninstall")
    assert again.returncode == 0
    check_words(again.stdout)


@pytest.mark.default
def test_what_cannot_be_taken_out_is_said_and_the_rest_goes(jo: Path) -> None:
    ask(jo, "init")
    (jo / ".claude").mkdir()
    (jo / ".claude" / "settings.json").write_text('{"hooks": 1}')
    left = ask(jo, "uninstall", expect=1)
    check_words(left["error"]["message"])
    assert not (jo / ".gitlease.yaml").exists()
    assert not (jo / ".git" / "gitlease").exists()
