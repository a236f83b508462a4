"""``gitlease mcp install|uninstall|status``: who starts the server, and whether it answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fences import clean_env
from support.remotes import Remote
from support.repos import git
from support.running import ROOT, Desk
from support.snapshots import check_words

from gitlease.kernel.settings.identity import AGENTS
from gitlease.mcp.server import TOOLS

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(clones: Callable[..., list[Path]], path_remote: Remote, tmp_path: Path) -> Iterator[Desk]:
    """A clone, with this ``gitlease`` on PATH and a HOME of its own."""
    clone = clones(1)[0]
    git(clone, "config", "user.email", "jo@example.com")
    write_program(tmp_path / "bin", f'PYTHONPATH={ROOT} exec {sys.executable} -m gitlease "$@"')
    (tmp_path / "home").mkdir()
    path = f"{tmp_path / 'bin'}:{clean_env()['PATH']}"
    made = Desk(clone, env={**path_remote.env, "PATH": path, "HOME": str(tmp_path / "home")})
    yield made
    made.clear()


def write_program(folder: Path, line: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / "gitlease"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)


@pytest.mark.slow("claude")
@pytest.mark.nightly
@pytest.mark.parametrize("host", AGENTS)
def test_what_is_installed_is_started_and_answers(desk: Desk, host: str) -> None:
    assert not desk.document("mcp", "status", host, expect=1)["installed"]
    assert desk.document("mcp", "install", host)["what"] == "written"
    found = desk.document("mcp", "status", host)
    assert (found["installed"], found["tools"]) == (True, list(TOOLS))
    assert (found["command"], found["starts"]) == ("mcp", ["gitlease", "mcp"])
    assert desk.document("mcp", "uninstall", host)["what"] == "removed"
    assert git(desk.clone, "status", "--porcelain") == ""


def test_a_server_that_does_not_answer_is_no_success(desk: Desk, tmp_path: Path) -> None:
    desk.document("mcp", "install", "claude")
    write_program(tmp_path / "bin", "echo no such thing >&2; exit 1")
    done = desk.started([*desk.words("mcp", "status", "claude")])
    _, err = done.communicate(timeout=60)
    assert done.returncode == 5
    check_words(err)


@pytest.mark.nightly
def test_a_program_of_the_work_tree_is_not_started(desk: Desk) -> None:
    write_program(desk.clone / "tools", "touch started")
    for program in ("./tools/gitlease", str(desk.clone / "tools" / "gitlease")):
        entry = {"command": program, "args": ["mcp"]}
        (desk.clone / ".mcp.json").write_text(json.dumps({"mcpServers": {"gitlease": entry}}))
        done = desk.ask("mcp", "status", "claude")
        assert (done.returncode, "a program in the work tree" in done.stderr) == (7, True)
        assert not (desk.clone / "started").exists()


def test_the_persons_own_file_needs_no_repository(desk: Desk, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    assert desk.document("-C", str(bare), "mcp", "install", "codex", "--user")["installed"]
    assert (tmp_path / "home" / ".codex" / "config.toml").exists()
    assert desk.document("-C", str(bare), "mcp", "status", "codex", "--user")["tools"]
    desk.document("-C", str(bare), "mcp", "uninstall", "codex", "--user")
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.default("words0")
@pytest.mark.parametrize("words", [("install",), ("--user",), ("--json",), ("install", "vim")])
def test_what_is_typed_wrongly_starts_nothing(desk: Desk, words: tuple[str, ...]) -> None:
    done = desk.ask("mcp", *words)
    assert done.returncode == 2
    check_words(done.stderr)


@pytest.mark.default("given0")
@pytest.mark.parametrize("given", [("--session", "x"), ("--no-session",)])
def test_a_fixed_session_is_refused(desk: Desk, given: tuple[str, ...]) -> None:
    for words in ((), ("install", "claude")):
        done = desk.ask(*given, "mcp", *words)
        assert done.returncode == 2
        check_words(done.stderr)
