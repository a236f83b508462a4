"""Transports that git does not speak itself: a helper may leave out the comparison (S1, S2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ledgers import REF, door
from support.remotes import Remote
from support.repos import git
from support.snapshots import raises

from gitlease.kernel.rules.errors import Invalid, LeaseHeld
from gitlease.kernel.store.transport import helper_of

HELPER = """\
#!{python}
import os, subprocess, sys
there = sys.argv[2]
def git(*words, **more):
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False, **more)
def say(text):
    sys.stdout.write(text + "\\n"); sys.stdout.flush()
expected, dry = {{}}, False
while line := sys.stdin.readline().rstrip("\\n"):
    word, _, rest = line.partition(" ")
    if word == "capabilities":
        say("option\\npush\\nfetch\\n")
    elif word == "option" and rest.startswith("cas") and {cas}:
        ref, _, old = rest[4:].strip('"').partition(":"); expected[ref] = old; say("ok")
    elif word == "option" and rest.startswith("dry-run"):
        dry = True; say("ok")
    elif word == "option":
        say("unsupported")
    elif word == "list":
        say(git("--git-dir", there, "for-each-ref", "--format=%(objectname) %(refname)").stdout)
    elif word == "fetch":
        while line:
            git("fetch-pack", "--keep", there, line.split(" ")[2])
            line = sys.stdin.readline().strip()
        say("")
    elif word == "push":
        while line:
            source, _, ref = line.removeprefix("push ").lstrip("+").partition(":")
            how = [f"--force-with-lease={{ref}}:{{expected[ref]}}" if expected else "--force"]
            how += ["--dry-run"] if dry else []
            done = git("push", *how, there, f"{{source}}:{{ref}}")
            say(f"ok {{ref}}" if not done.returncode else f"error {{ref}} stale info")
            line = sys.stdin.readline().strip()
        say("")
"""


def helper(tmp_path: Path, name: str, cas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "helpers" / f"git-remote-{name}"
    program.parent.mkdir(exist_ok=True)
    program.write_text(HELPER.format(python=sys.executable, cas=cas))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", f"file:{name}")


@pytest.mark.parametrize("rewritten", [False, True])
def test_helper_without_comparison_grants_nothing(
    clones: Callable[..., list[Path]],
    path_remote: Remote,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewritten: bool,
) -> None:
    ada, bob = clones(2)
    helper(tmp_path, "blind", False, monkeypatch)
    if rewritten:
        git(ada, "config", "url.blind::.insteadOf", "far:")
    git(
        ada, "remote", "set-url", "origin", f"{'far:' if rewritten else 'blind::'}{path_remote.url}"
    )
    with raises(Invalid):
        door(ada).claim("F001")
    assert git(path_remote.bare, "for-each-ref", REF) == ""
    door(bob).claim("F001")
    with pytest.raises(LeaseHeld):
        door(ada).claim("F001")


def test_helper_that_compares_is_read_back(
    clones: Callable[..., list[Path]],
    path_remote: Remote,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ada, bob = clones(2)
    helper(tmp_path, "careful", True, monkeypatch)
    git(ada, "remote", "set-url", "origin", f"careful::{path_remote.url}")
    assert door(ada).claim("F001").mine
    with pytest.raises(LeaseHeld):
        door(bob).claim("F001")
    door(bob).claim("F002")
    assert door(ada).claim("F003").mine, "what is stale is decided again"
    with pytest.raises(LeaseHeld):
        door(ada).claim("F002")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/srv/x.git", ""),
        ("git@host:x.git", ""),
        ("file:///x", ""),
        ("codecommit::eu://x", "codecommit"),
    ],
)
def test_git_knows_its_own_transports(url: str, name: str) -> None:
    assert helper_of(url) == name


def test_a_transport_that_is_not_allowed_is_named_with_the_way_out(
    clones: Callable[..., list[Path]],
    path_remote: Remote,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (ada,) = clones(1)
    helper(tmp_path, "plain", True, monkeypatch)
    git(ada, "remote", "set-url", "origin", f"plain::{path_remote.url}")
    monkeypatch.delenv("GIT_ALLOW_PROTOCOL")
    with raises(Invalid) as refused:
        door(ada).claim("F001")
    _, _, way_out = refused.value.hints[0].partition("export ")
    name, _, value = way_out.partition("=")
    monkeypatch.setenv(name, value)
    assert door(ada).claim("F001").mine
