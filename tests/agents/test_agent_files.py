"""Hooks go into the files of coding agents, and come out again leaving no trace."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.repos import assert_untouched, make_repository, snapshot
from support.snapshots import check_words, raises

from gitlease.agents.opening import agent_sessions, is_used
from gitlease.agents.setup import (
    AGENTS_MD,
    BEGIN,
    PASSED_ON,
    SECTION,
    AgentFile,
    add_hooks,
    entries,
    hooks_in,
    inside,
    is_installed,
    is_ours,
    place_of,
    register,
    registered,
    remove_hooks,
    remove_section,
    set_up_agent,
    unregister,
    write_section,
)
from gitlease.guard.notes import start_detached as start
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.settings.identity import AGENTS

FOREIGN = {
    "model": "opus",
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]},
        ]
    },
    "permissions": {"allow": ["Bash(ls:*)"]},
}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", email="ada@example.com")


def place(repo: Path, host: str) -> AgentFile:
    return place_of(AGENTS[host], discover(str(repo)), user=False, environ={})


def file_of(repo: Path, host: str) -> Path:
    return repo / AGENTS[host].folder / AGENTS[host].hooks_file


@pytest.mark.default("claude")
@pytest.mark.nightly
@pytest.mark.parametrize("host", AGENTS)
def test_what_was_not_there_is_gone_again(repo: Path, host: str) -> None:
    before = snapshot(repo)
    assert add_hooks(AGENTS[host], place(repo, host), keep=False).what == "written"
    assert is_installed(host, str(repo))
    found = hooks_in(AGENTS[host], place(repo, host))
    assert (found.missing, set(found.events)) == ((), {h.event for h in AGENTS[host].hooks})
    assert remove_hooks(AGENTS[host], place(repo, host)).what == "removed"
    assert_untouched(before, snapshot(repo))
    assert remove_hooks(AGENTS[host], place(repo, host)).what == "absent"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FOREIGN, indent=4) + "\n",
        json.dumps(FOREIGN, indent=2).replace("\n", "\r\n") + "\r\n",
        '{\n  "hooks": {"Stop": []},\n  "wide": [123456789012345678901, "\u00fc"]\n}\n',
        json.dumps(FOREIGN),
        "\ufeff" + json.dumps(FOREIGN, indent=2),
    ],
    ids=["four", "crlf", "odd", "one line", "bom"],
)
def test_what_others_wrote_stays(repo: Path, text: str) -> None:
    file = file_of(repo, "claude")
    file.parent.mkdir()
    file.write_bytes(text.encode())
    file.chmod(0o640)
    add_hooks(AGENTS["claude"], place(repo, "claude"), keep=False)
    data = json.loads(file.read_bytes())
    others = json.loads(text.lstrip("\ufeff"))
    assert list(data) == list(others)
    for event, groups in others["hooks"].items():
        assert data["hooks"][event][: len(groups)] == groups
    assert remove_hooks(AGENTS["claude"], place(repo, "claude")).what == "removed"
    assert json.loads(file.read_bytes()) == others
    if text.count("\n") > 1 and "wide" not in text and text[0] != "\ufeff":
        assert file.read_bytes() == text.encode()  # as a host itself writes it
    assert file.stat().st_mode & 0o777 == 0o640


def test_older_entries_of_ours_are_replaced_and_not_doubled(repo: Path) -> None:
    file = file_of(repo, "claude")
    file.parent.mkdir()
    old = {"type": "command", "command": "/opt/bin/gitlease agent claude pre"}
    both = [{"type": "command", "command": "./mine.sh"}, old]
    hooks = {"PreToolUse": [{"hooks": both}], "Old": [{"hooks": [old]}]}
    file.write_text(json.dumps({"hooks": hooks}))
    assert hooks_in(AGENTS["claude"], place(repo, "claude")).missing
    add_hooks(AGENTS["claude"], place(repo, "claude"), keep=True)
    data = json.loads(file.read_text())
    assert data["hooks"]["PreToolUse"][0] == {"hooks": both[:1]}
    assert "Old" not in data["hooks"]
    found = [handler["command"] for _, handler in entries(data)]
    assert len(found) == len(AGENTS["claude"].hooks)
    assert "gitlease agent claude session-end --keep" in found
    assert hooks_in(AGENTS["claude"], place(repo, "claude")).keep
    remove_hooks(AGENTS["claude"], place(repo, "claude"))
    assert json.loads(file.read_text()) == {"hooks": {"PreToolUse": [{"hooks": both[:1]}]}}


def test_only_what_calls_our_handler_is_ours() -> None:
    for ours in ("gitlease agent claude pre", "/x/git-lease agent codex after-tool --keep"):
        assert is_ours({"command": ours})
    for other in ("echo gitlease agent claude pre", "gitlease agent", 7):
        assert not is_ours({"command": other})


@pytest.mark.default("[1]")
@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        '{\n  // mine\n  "a": 1\n}',
        "[1]",
        '{"hooks": []}',
        '{"a": 1, "a": 2}',
        pytest.param("[" * 100_000, id="deep"),
        "\udcff",
    ],
)
def test_a_file_that_cannot_be_kept_whole_is_left_alone(repo: Path, text: str) -> None:
    file = file_of(repo, "claude")
    file.parent.mkdir()
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = snapshot(repo)
    with raises(Invalid):
        add_hooks(AGENTS["claude"], place(repo, "claude"), keep=False)
    check_words(hooks_in(AGENTS["claude"], place(repo, "claude")).problem)
    assert not is_installed("claude", str(repo))
    assert_untouched(before, snapshot(repo))


@pytest.mark.parametrize("odd", ["NaN", "1e400", '"\\ud800"'], ids=["nan", "inf", "half"])
def test_what_cannot_be_written_again_is_left_alone(repo: Path, odd: str) -> None:
    file = file_of(repo, "claude")
    file.parent.mkdir()
    file.write_text(f'{{"a": {odd}}}')
    with raises(Invalid):
        add_hooks(AGENTS["claude"], place(repo, "claude"), keep=False)
    assert file.read_text() == f'{{"a": {odd}}}'


def test_a_link_out_of_the_work_tree_is_not_followed(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (repo / ".claude").symlink_to(tmp_path / "outside")
    with raises(Invalid):
        place(repo, "claude")
    (repo / "AGENTS.md").symlink_to(tmp_path / "outside" / "AGENTS.md")
    with raises(Invalid):
        inside(discover(str(repo)), AGENTS_MD)


def test_the_persons_own_file_may_be_a_link_which_stays(tmp_path: Path) -> None:
    dotfiles, home = tmp_path / "dotfiles.json", tmp_path / "home"
    dotfiles.write_text(json.dumps(FOREIGN, indent=2))
    home.mkdir()
    (home / "settings.json").symlink_to(dotfiles)
    own = place_of(AGENTS["claude"], None, user=True, environ={"CLAUDE_CONFIG_DIR": str(home)})
    add_hooks(AGENTS["claude"], own, keep=False)
    assert (home / "settings.json").is_symlink()
    assert len(list(entries(json.loads(dotfiles.read_text())))) == len(AGENTS["claude"].hooks)
    assert remove_hooks(AGENTS["claude"], own).what == "removed"
    assert json.loads(dotfiles.read_text()) == FOREIGN


@pytest.mark.default("None")
@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [None, "# Project\n", "# Project", "# Project\r\n\r\nText\r\n", "a\n\n\n"]
)
def test_the_section_is_written_once_and_taken_out_to_the_byte(
    repo: Path, text: str | None
) -> None:
    file = repo / "AGENTS.md"
    if text is not None:
        file.write_bytes(text.encode())
    before = snapshot(repo)
    assert write_section(inside(discover(str(repo)), AGENTS_MD)).what == "written"
    assert write_section(inside(discover(str(repo)), AGENTS_MD)).what == "unchanged"
    written = file.read_bytes().decode()
    assert written.startswith(text or "")
    assert written.count(BEGIN) == 1
    assert remove_section(inside(discover(str(repo)), AGENTS_MD)).what == "removed"
    assert_untouched(before, snapshot(repo))


def test_a_section_is_renewed_where_it_is(repo: Path) -> None:
    file = repo / "AGENTS.md"
    file.write_text("# A\n\n<!-- BEGIN GITLEASE v=0 -->\nold\n<!-- END GITLEASE -->\n\n# B\n")
    write_section(inside(discover(str(repo)), AGENTS_MD))
    assert file.read_text() == "# A\n\n" + "\n".join(SECTION) + "\n\n# B\n"
    file.write_text(file.read_text() + "more\n")
    assert remove_section(inside(discover(str(repo)), AGENTS_MD)).what == "removed"
    assert file.read_text() == "# A\n\n# B\nmore\n"


def test_elsewhere_nothing_says_that_gitlease_is_used(repo: Path) -> None:
    assert not is_used(discover(str(repo)))
    add_hooks(AGENTS["claude"], place(repo, "claude"), keep=False)
    assert is_used(discover(str(repo)))
    (repo / ".claude" / "settings.json").unlink()
    assert not is_used(discover(str(repo)))
    (repo / ".gitlease.yaml").touch()
    assert is_used(discover(str(repo)))


V7 = "019a9f10-2b3c-7def-8123-456789abcdef"
CHILD = "019a9f10-3b3c-7def-8123-4567fedcba98"


@pytest.mark.parametrize(
    ("host", "number", "agent", "environ", "own", "family"),
    [
        ("claude", "5b1f0c2e-7d3a", "", {}, "claude:5b1f0c2e", {"claude:5b1f0c2e"}),
        ("codex", V7, "", {}, "codex:89abcdef", {"codex:89abcdef"}),
        (
            *("codex", V7, CHILD, {}, "codex:89abcdef/fedcba98"),
            {"codex:89abcdef/fedcba98", "codex:89abcdef", "codex:fedcba98"},
        ),
        (
            *("cursor", "c0a80101-1111", "", {"CURSOR_TRACE_ID": "ffff0000ffff"}),
            *("cursor:c0a80101", {"cursor:c0a80101", "cursor:ffff0000"}),
        ),
        ("claude", "", "", {}, None, set()),
        ("claude", "a b\nc", "", {}, "claude:abc", {"claude:abc"}),
    ],
)
def test_a_hook_speaks_as_the_session_of_its_host(
    repo: Path,
    host: str,
    number: str,
    agent: str,
    environ: dict[str, str],
    own: str | None,
    family: set[str],
) -> None:
    found = agent_sessions(
        discover(str(repo)), environ=environ, host=host, session_id=number, agent_id=agent
    )
    assert (found.own, set(found.family)) == (own, family)


def test_work_in_the_background_outlives_its_starter_and_has_no_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, program = tmp_path / "pipe", tmp_path / "program"
    os.mkfifo(pipe)
    program.write_text(f'#!/bin/sh\necho "$*" "$(ps -o sid= -p $$ | tr -d " ")" "$$" > {pipe}\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert start(["agent", "claude", "renew-now", "s"], cwd=str(tmp_path))
    *words, session, process = pipe.read_text().split()
    assert words == ["-P", "-m", "gitlease", "agent", "claude", "renew-now", "s"]
    assert session == process
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert not start(["x"], cwd=str(tmp_path))


def test_a_setting_that_switches_hooks_off_is_told(repo: Path) -> None:
    set_up_agent(str(repo), "claude", "install", user=False, keep=False, section=False)
    (repo / ".claude" / "settings.local.json").write_text('{"disableAllHooks": true}')
    setup = set_up_agent(str(repo), "claude", "status", user=False, keep=False, section=False)
    assert setup.is_off
    assert any("disableAllHooks" in text for text in setup.warnings)


# --- ``gitlease mcp`` among their tool servers ----------------------------------------------------

FILES = {"claude": ".mcp.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}
OTHER = {"command": "npx", "args": ["-y", "other"], "env": {"KEY": "ü"}}


def server_place(repo: Path, host: str) -> AgentFile:
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


@pytest.mark.default("claude")
@pytest.mark.nightly
@pytest.mark.parametrize("host", AGENTS)
def test_a_server_that_was_not_there_is_gone_again(repo: Path, host: str) -> None:
    before = snapshot(repo)
    assert register(AGENTS[host], server_place(repo, host)).what == "written"
    assert register(AGENTS[host], server_place(repo, host)).what == "unchanged"
    found = registered(AGENTS[host], server_place(repo, host))
    assert found is not None
    assert (found.command, found.ours) == (("gitlease", "mcp"), True)
    assert unregister(AGENTS[host], server_place(repo, host)).what == "removed"
    assert_untouched(before, snapshot(repo))
    assert unregister(AGENTS[host], server_place(repo, host)).what == "absent"
    assert registered(AGENTS[host], server_place(repo, host)) is None


def test_codex_passes_variables_on_by_name_alone(repo: Path) -> None:
    register(AGENTS["codex"], server_place(repo, "codex"))
    entry = servers_in(repo / FILES["codex"])["gitlease"]
    assert entry["env_vars"] == list(PASSED_ON)
    assert {"SSH_AUTH_SOCK", "GIT_SSH_COMMAND"} <= {*PASSED_ON}
    assert "env" not in entry


@pytest.mark.default("{}", "text2", "text4", "text6")
@pytest.mark.slow
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
    assert register(AGENTS[host], server_place(repo, host)).what == "written"
    others = json.loads(text.lstrip("\ufeff").strip() or "{}")
    servers = others.pop("mcpServers", {})
    assert servers_in(file) == {**servers, "gitlease": {"command": "gitlease", "args": ["mcp"]}}
    assert register(AGENTS[host], server_place(repo, host)).what == "unchanged"
    assert unregister(AGENTS[host], server_place(repo, host)).what == "removed"
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
    assert register(AGENTS["codex"], server_place(repo, "codex")).what == "written"
    assert servers_in(file)["gitlease"]["command"] == "gitlease"
    assert unregister(AGENTS["codex"], server_place(repo, "codex")).what == "removed"
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
    assert register(AGENTS["claude"], server_place(repo, "claude")).what == "unchanged", (
        "as it was arranged"
    )
    assert unregister(AGENTS["claude"], server_place(repo, "claude")).what == "removed"
    left = {"mcpServers": {"a": OTHER, "b": OTHER}, "z": 1}
    assert json.loads(file.read_text()) == left
    assert file.read_text() == json.dumps(left, indent=2, ensure_ascii=False)


@pytest.mark.nightly
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
def test_a_file_that_cannot_take_a_server_is_left_alone(repo: Path, host: str, text: str) -> None:
    put(repo, host, text)
    before = snapshot(repo)
    with raises(Invalid):
        register(AGENTS[host], server_place(repo, host))
    assert_untouched(before, snapshot(repo))


def test_the_persons_own_files_of_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    register(AGENTS["codex"], server_place(repo, "codex"))
    file = repo / FILES["codex"]
    text = file.read_text() + "startup_timeout_sec = 20\n"
    file.write_text(text)
    with raises(Invalid):
        unregister(AGENTS["codex"], server_place(repo, "codex"))
    assert file.read_text() == text
