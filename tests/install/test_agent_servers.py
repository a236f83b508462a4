"""``gitlease mcp`` goes into the files of coding agents, and out again."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.repos import assert_untouched, make_repository, snapshot
from support.snapshots import raises

from gitlease.core import Invalid
from gitlease.git import discover
from gitlease.install import (
    AGENTS,
    PASSED_ON,
    AgentFile,
    place_of,
    register,
    registered,
    unregister,
)

FILES = {"claude": ".mcp.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}
OTHER = {"command": "npx", "args": ["-y", "other"], "env": {"KEY": "ü"}}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def place(repo: Path, host: str) -> AgentFile:
    return place_of(AGENTS[host], discover(str(repo)), user=False, environ={}, servers=True)


def put(repo: Path, host: str, text: str) -> Path:
    file = repo / FILES[host]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    return file


def servers_in(file: Path) -> Any:
    text = file.read_bytes().decode()
    if file.suffix == ".toml":
        return tomllib.loads(text)["mcp_servers"]
    return json.loads(text.lstrip("\ufeff"))["mcpServers"]


@pytest.mark.parametrize("host", AGENTS)
def test_what_was_not_there_is_gone_again(repo: Path, host: str) -> None:
    before = snapshot(repo)
    assert register(AGENTS[host], place(repo, host)).what == "written"
    assert register(AGENTS[host], place(repo, host)).what == "unchanged"
    found = registered(AGENTS[host], place(repo, host))
    assert found is not None
    assert (found.command, found.ours) == (("gitlease", "mcp"), True)
    assert unregister(AGENTS[host], place(repo, host)).what == "removed"
    assert_untouched(before, snapshot(repo))
    assert unregister(AGENTS[host], place(repo, host)).what == "absent"
    assert registered(AGENTS[host], place(repo, host)) is None


def test_codex_passes_variables_on_by_name_alone(repo: Path) -> None:
    register(AGENTS["codex"], place(repo, "codex"))
    entry = servers_in(repo / FILES["codex"])["gitlease"]
    assert entry["env_vars"] == list(PASSED_ON)
    assert {"SSH_AUTH_SOCK", "GIT_SSH_COMMAND"} <= {*PASSED_ON}
    assert "env" not in entry


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"mcpServers":{}}',
        json.dumps({"mcpServers": {"other": OTHER}}, indent=4, ensure_ascii=False) + "\n",
        json.dumps({"mcpServers": {"other": OTHER}}),
        json.dumps({"a": [1, {"mcpServers": 2}], "mcpServers": {"other": OTHER}, "z": "}"}),
        json.dumps({"a": 1e3, "b": '\\"{'}, indent="\t").replace("\n", "\r\n") + "\r\n",
        "\ufeff" + json.dumps({"mcpServers": {"other": OTHER}}, indent=2, ensure_ascii=False),
        "\n",
    ],
)
def test_json_that_others_wrote_stays(repo: Path, text: str) -> None:
    host = "claude"
    file = put(repo, host, text)
    file.chmod(0o640)
    assert register(AGENTS[host], place(repo, host)).what == "written"
    others = json.loads(text.lstrip("\ufeff").strip() or "{}")
    servers = others.pop("mcpServers", {})
    assert servers_in(file) == {**servers, "gitlease": {"command": "gitlease", "args": ["mcp"]}}
    assert register(AGENTS[host], place(repo, host)).what == "unchanged"
    assert unregister(AGENTS[host], place(repo, host)).what == "removed"
    rest = {**others, **({"mcpServers": servers} if servers else {})}
    assert file.exists() == bool(rest)
    if rest:
        assert json.loads(file.read_bytes()) == rest
        assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "text",
    [
        'model = "o"  # mine',
        '# a comment\n\n[mcp_servers.other]\ncommand = "ü"\n\n\n',
        'mcp_servers = {}\n[profiles."a b"]\nx = """\n[mcp_servers.gitlease]\n"""\n'.replace(
            "mcp_servers = {}\n", ""
        ),
        "[a]\r\nb = 1\r\n",
        "[mcp_servers]\n",
        "\n",
    ],
)
def test_toml_that_others_wrote_stays_to_the_byte(repo: Path, text: str) -> None:
    file = put(repo, "codex", text)
    assert register(AGENTS["codex"], place(repo, "codex")).what == "written"
    assert servers_in(file)["gitlease"]["command"] == "gitlease"
    assert unregister(AGENTS["codex"], place(repo, "codex")).what == "removed"
    assert file.read_bytes() == text.encode()


@pytest.mark.parametrize("ends", ["first", "between", "last"])
def test_our_entry_comes_out_wherever_it_was_moved(repo: Path, ends: str) -> None:
    ours = {"gitlease": {"command": "/opt/bin/gitlease", "args": ["-C", "x", "mcp"]}}
    order = {
        "first": ours | {"a": OTHER, "b": OTHER},
        "between": {"a": OTHER} | ours | {"b": OTHER},
        "last": {"a": OTHER, "b": OTHER} | ours,
    }[ends]
    file = put(repo, "claude", json.dumps({"mcpServers": order, "z": 1}, indent=2))
    assert register(AGENTS["claude"], place(repo, "claude")).what == "unchanged", (
        "as it was arranged"
    )
    assert unregister(AGENTS["claude"], place(repo, "claude")).what == "removed"
    left = {"mcpServers": {"a": OTHER, "b": OTHER}, "z": 1}
    assert json.loads(file.read_text()) == left
    assert file.read_text() == json.dumps(left, indent=2, ensure_ascii=False)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("claude", '{\n  // mine\n  "a": 1\n}'),
        ("claude", '{"mcpServers": []}'),
        ("claude", '{"mcpServers": {"gitlease": {"url": "http://x"}}}'),
        ("claude", '{"mcpServers": {"gitlease": {"command": "npx"}}}'),
        ("cursor", '{"a": 1, "a": 2}'),
        ("codex", 'mcp_servers = {a = {command = "x"}}\n'),
        ("codex", '[mcp_servers.gitlease]\ncommand = "x"\n'),
        ("codex", "mcp_servers = 1\n"),
    ],
)
def test_a_file_that_cannot_take_it_is_left_alone(repo: Path, host: str, text: str) -> None:
    put(repo, host, text)
    before = snapshot(repo)
    with raises(Invalid):
        register(AGENTS[host], place(repo, host))
    assert_untouched(before, snapshot(repo))


def test_the_persons_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = {"claude": ".claude.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}
    for host, name in names.items():
        found = place_of(AGENTS[host], None, user=True, environ={}, servers=True)
        register(AGENTS[host], found)
        assert (found.name, (tmp_path / name).exists()) == (str(tmp_path / name), True)
        unregister(AGENTS[host], found)
    assert list(tmp_path.iterdir()) == []
    moved = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x"}
    for host, name in (("claude", "/c/.claude.json"), ("codex", "/x/config.toml")):
        found = place_of(AGENTS[host], None, user=True, environ=moved, servers=True)
        assert found.name == name


def test_more_of_our_table_below_our_lines_is_for_its_writer(repo: Path) -> None:
    register(AGENTS["codex"], place(repo, "codex"))
    file = repo / FILES["codex"]
    text = file.read_text() + "startup_timeout_sec = 20\n"
    file.write_text(text)
    with raises(Invalid):
        unregister(AGENTS["codex"], place(repo, "codex"))
    assert file.read_text() == text
