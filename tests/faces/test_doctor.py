"""``doctor``: every check in each of its states, on real repositories and remotes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_gitlease
from support.documents import held_to_schema
from support.fences import clean_env
from support.remotes import Remote
from support.repos import assert_untouched, commit_file, git, make_repository, snapshot
from support.snapshots import check_words

from gitlease.core import Hint, command_words
from gitlease.wiring import Examined, examine

Clones = Callable[..., list[Path]]
Rows = list[tuple[str, str]]
DEAD = "http://127.0.0.1:1/nothing.git"
BIN = os.path.dirname(sys.executable)


@pytest.fixture
def jo(clones: Clones) -> Path:
    return clones(1)[0]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, for files of agents."""
    (own := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(own))
    return own


def look(place: Path, tmp_path: Path, *, fix: bool = False, **how: Any) -> dict[str, list[Any]]:
    """The findings by their checks; what was done is under ``fixed``."""
    folder = tmp_path / f"tmp-{time.monotonic_ns()}"
    folder.mkdir()
    how = {"probes": False, "local": False, **how}
    rows, done = examine(Examined(str(place), str(folder), **how), fix=fix)
    found: dict[str, list[Any]] = {"fixed": done}
    for row in rows:
        found.setdefault(row.check, []).append(row)
    return found


def states(found: dict[str, list[Any]], check: str) -> list[str]:
    return [row.state for row in found[check]]


def ask(place: Path, *words: str, expect: int = 0, env: Mapping[str, str] | None = None) -> Any:
    done = run_gitlease([*words, "--json"], place, env)
    assert done.returncode == expect, done
    return held_to_schema(json.loads(done.stdout))


def type_fix(place: Path, fix: object) -> None:
    """Type the command that mends something, in a shell."""
    env = clean_env({"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ["HOME"]})
    if isinstance(fix, Hint):
        fix = shlex.join(command_words(f"gitlease {fix.verb}", fix.arguments))
    done = subprocess.run(
        ["sh", "-c", str(fix)], cwd=place, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (fix, done)


# --- the command -------------------------------------------------------------------------------


def test_sound_clone_is_good_in_words_and_json(jo: Path, path_remote: Remote) -> None:
    env = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    assert run_gitlease(["claim", "README", "--any"], jo).returncode == 0
    assert run_gitlease(["hooks", "install"], jo, env).returncode == 0
    done = run_gitlease(["doctor"], jo, env)
    assert done.returncode == 0
    check_words(re.sub(r"git 2\.\d+|answers in \S+ s|[\da-f]{20}", "…", done.stdout))
    document = ask(jo, "doctor", env=env)
    assert document["ok"]
    assert document["fixed"] == []
    assert {x["state"] for x in document["checks"]} == {"good", "unknown"}  # no clock at a path


def test_bad_line_ends_with_status_one(jo: Path) -> None:
    git(jo, "config", "lease.ttl", "soon")
    done = run_gitlease(["doctor"], jo)
    assert done.returncode == 1
    document = ask(jo, "doctor", expect=1)
    assert document["error"]["code"] == "violations"
    bad = next(x for x in document["checks"] if x["state"] == "bad")
    assert bad["check"] == "settings"
    type_fix(jo, bad["fix"])
    assert ask(jo, "doctor")["ok"]


def test_bad_option_is_usage(jo: Path) -> None:
    assert ask(jo, "doctor", "--remote", "nowhere", expect=2)["error"]["code"] == "usage"
    assert ask(jo, "doctor", "--layer", "a b", expect=2)["error"]["code"] == "usage"


@pytest.mark.slow
def test_fixes_name_the_place_of_the_call(jo: Path, tmp_path: Path) -> None:
    checks = ask(tmp_path, "-C", str(jo.relative_to(tmp_path)), "doctor")["checks"]
    fix = next(x["fix"] for x in checks if x["check"] == "hooks")
    type_fix(tmp_path, fix)
    assert not any(x["fix"] and x["check"] == "hooks" for x in ask(jo, "doctor")["checks"])


# --- it runs anywhere --------------------------------------------------------------------------


def test_outside_of_a_repository_the_machine_is_examined(tmp_path: Path) -> None:
    found = look(tmp_path, tmp_path)
    assert found.keys() == {"fixed", "git", "repository", "agents"}
    assert states(found, "repository") == ["warning"]
    assert ask(tmp_path, "doctor")["ok"]


def test_a_wrong_place_is_bad(jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(look(tmp_path / "nowhere", tmp_path), "repository") == ["bad"]
    (row,) = look(jo / ".git", tmp_path)["repository"]
    assert row.state == "bad"
    type_fix(jo, row.fix)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert states(look(jo, tmp_path), "repository") == ["bad"]


def test_without_a_remote(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    assert states(look(repo, tmp_path), "remote") == ["warning"]
    assert states(look(repo, tmp_path, local=True), "remote") == ["good"]


def test_bare_repository(path_remote: Remote, tmp_path: Path) -> None:
    found = look(path_remote.bare, tmp_path)
    assert found["repository"][0].state == "good"
    assert "hooks" not in found
    assert "tasks" not in found
    assert states(found, "identity") == ["warning"]


def test_broken_git_config_is_a_finding(jo: Path, tmp_path: Path) -> None:
    (jo / ".git/config").write_text("[core\n")
    found = look(jo, tmp_path)
    assert states(found, "repository") == ["bad"]
    assert ask(jo, "doctor", expect=1)["error"]["code"] == "violations"


def test_broken_settings_leave_the_rest_examined(jo: Path, tmp_path: Path) -> None:
    (jo / ".gitlease.yaml").write_text("lease: {tttl: 5m}\n")
    found = look(jo, tmp_path)
    assert states(found, "settings") == ["bad"]
    assert "tttl" in found["settings"][0].what
    assert states(found, "remote") == ["unknown"]
    assert states(found, "private") == states(found, "identity") == ["good"]
    type_fix(jo, found["settings"][0].fix)


@pytest.mark.parametrize("key", ["lease.bogus", "lease.ttl", "lease.remote"])
def test_broken_setting_of_git_has_a_fix(jo: Path, tmp_path: Path, key: str) -> None:
    git(jo, "config", key, "no such")
    (found,) = look(jo, tmp_path)["settings"]
    assert found.state == "bad"
    type_fix(jo, found.fix)
    assert states(look(jo, tmp_path), "settings") == ["good"]


def test_offline_is_unknown(jo: Path, tmp_path: Path) -> None:
    git(jo, "remote", "set-url", "origin", DEAD)
    document = ask(jo, "doctor")
    known = {x["check"]: x["state"] for x in document["checks"]}
    assert (known["remote"], known["clock"]) == ("unknown", "unknown")
    found = look(jo, tmp_path, probes=True)
    assert states(found, "probe") == ["unknown"]


def test_a_check_that_raises_stops_no_other(
    jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitlease.wiring.doctor.hook_states", lambda _: 1 / 0)
    found = look(jo, tmp_path)
    (row,) = found["hooks"]
    assert row.state == "bad"
    assert "ZeroDivisionError" in row.what
    assert "gateway" in found or "sessions" in found


@pytest.mark.parametrize(("version", "state"), [((2, 30), "bad"), ((2, 31), "warning")])
def test_old_git(
    jo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int],
    state: str,
) -> None:
    monkeypatch.setattr("gitlease.wiring.doctor.git_version", lambda _: version)
    assert look(jo, tmp_path)["git"][0].state == state


def test_program_off_the_path(jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    row = look(jo, tmp_path)["git"][-1]
    assert row.state == "warning"
    type_fix(jo, f"{row.fix}; command -v gitlease")


# --- nothing changes ---------------------------------------------------------------------------


def test_nothing_changes_without_fix(jo: Path, path_remote: Remote, tmp_path: Path) -> None:
    """But this clone's copy of the ledger, where there is one, and that is below .git/gitlease."""
    before, there = snapshot(jo), snapshot(path_remote.bare)
    look(jo, tmp_path)
    assert not (jo / ".git/gitlease").exists()
    run_gitlease(["claim", "README", "--any"], jo)
    there = snapshot(path_remote.bare)
    (left := jo / ".git/gitlease/old.tmp").touch()
    os.utime(left, (1, 1))
    kept = {x for x in (jo / ".git/gitlease").rglob("*") if x.is_file()}
    look(jo, tmp_path)
    assert_untouched(before, snapshot(jo))
    assert_untouched(there, snapshot(path_remote.bare))
    assert {x for x in (jo / ".git/gitlease").rglob("*") if x.is_file()} == kept


def test_a_clone_without_gitlease_stays_one(jo: Path, tmp_path: Path) -> None:
    commit_file(jo, "tasks/a.md", "---\nid: A1\nstatus: todo\n---\n")
    commit_file(jo, ".gitlease.yaml", "lease: {ttl: 5m}\n")
    look(jo, tmp_path, probes=True, fix=True)
    assert not (jo / ".git/gitlease").exists()


# --- the clone ---------------------------------------------------------------------------------


def test_task_files_in_each_state(jo: Path, tmp_path: Path) -> None:
    (jo / "tasks").mkdir()
    for name, head in {"a": "id: A1\nstatus: todo", "b": "id: B1\nstatus: weird"}.items():
        (jo / f"tasks/{name}.md").write_text(f"---\n{head}\n---\n")
    assert states(look(jo, tmp_path), "tasks") == ["warning", "good"]
    (jo / "tasks/c.md").write_text("---\nid: A1\nstatus: todo\n---\n")
    (jo / "tasks/d.md").write_text("---\nid: [\n---\n")
    rows = look(jo, tmp_path)["tasks"]
    assert [row.state for row in rows] == ["bad", "bad", "bad", "warning"]
    for row in rows:
        type_fix(jo, row.fix)


def test_settings_of_a_newer_schema_warn(jo: Path, tmp_path: Path) -> None:
    (jo / ".gitlease.yaml").write_text("schema: 2\nnew: {key: 1}\n")
    assert states(look(jo, tmp_path), "settings") == ["warning", "good"]


@pytest.fixture
def hooked(jo: Path) -> Path:
    env = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    assert run_gitlease(["hooks", "install"], jo, env).returncode == 0
    return jo


def test_hooks_that_fire_are_good(hooked: Path, tmp_path: Path) -> None:
    assert states(look(hooked, tmp_path), "hooks") == ["good"]


@pytest.mark.slow
def test_damaged_hook_is_installed_again(hooked: Path, tmp_path: Path) -> None:
    hook = hooked / ".git/hooks/pre-push"
    hook.write_text(hook.read_text().replace("exit 0", "exit 7"))
    (hooked / ".git/hooks/post-merge").unlink()
    rows = look(hooked, tmp_path)["hooks"]
    assert [row.state for row in rows] == ["good", "warning", "bad"]
    assert "post-merge" in rows[1].what
    found = look(hooked, tmp_path, fix=True)
    assert len(found["fixed"]) == 1
    assert states(found, "hooks") == ["good", "warning"]  # what was not installed stays so
    type_fix(hooked, rows[1].fix)
    assert states(look(hooked, tmp_path), "hooks") == ["good"]


@pytest.mark.slow
def test_hooks_that_are_off_are_installed_again(hooked: Path, tmp_path: Path) -> None:
    (hook := hooked / ".git/hooks/pre-commit").chmod(0o644)
    rows = look(hooked, tmp_path)["hooks"]
    assert [row.state for row in rows] == ["good", "bad"]
    type_fix(hooked, rows[1].fix)
    assert states(look(hooked, tmp_path), "hooks") == ["good"]
    hook.write_bytes(b"#!/bin/sh\ntrue\n" + hook.read_bytes())  # a script with our section
    hook.chmod(0o644)
    found = look(hooked, tmp_path, fix=True)
    assert hook.stat().st_mode & 0o777 == 0o644
    assert not any(x.startswith("mended") for x in found["fixed"])
    type_fix(hooked, found["hooks"][1].fix)
    assert states(look(hooked, tmp_path), "hooks") == ["good"]


@pytest.mark.slow
def test_program_that_cannot_run_is_one_row_for_all_hooks(hooked: Path, tmp_path: Path) -> None:
    (program := tmp_path / "gitlease").write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    noted = hooked / ".git/gitlease/program"
    noted.write_text(f"{program}\n")
    (row,) = look(hooked, tmp_path)["hooks"]
    assert row.state == "bad"
    assert str(program) in row.what


def test_hooks_of_an_old_git_are_unknown(
    hooked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitlease.install.hook_places.git_version", lambda _: (2, 31))
    assert states(look(hooked, tmp_path), "hooks") == ["unknown"]


# --- agents ------------------------------------------------------------------------------------


def agent_rows(place: Path, tmp_path: Path) -> list[tuple[str, str]]:
    return [(row.state, row.what) for row in look(place, tmp_path)["agents"]]


def test_hooks_of_claude_in_each_state(jo: Path, tmp_path: Path, home: Path) -> None:
    assert states(look(jo, tmp_path), "agents") == ["good"]
    file = jo / ".claude/settings.json"
    run_gitlease(["agent", "claude", "install", "--keep"], jo)
    assert states(look(jo, tmp_path), "agents") == ["good"]
    data = json.loads(file.read_text())
    del data["hooks"]["PreToolUse"]
    file.write_text(json.dumps(data))
    (row,) = look(jo, tmp_path)["agents"]
    assert row.state == "bad"
    found = look(jo, tmp_path, fix=True)
    assert states(found, "agents") == ["good"]
    assert "--keep" in file.read_text()
    file.write_text(json.dumps({**json.loads(file.read_text()), "disableAllHooks": True}))
    assert states(look(jo, tmp_path), "agents") == ["bad"]
    file.write_text("{")
    assert states(look(jo, tmp_path), "agents")[0] == "warning"


def test_hooks_registered_twice_have_a_fix(jo: Path, tmp_path: Path, home: Path) -> None:
    run_gitlease(["agent", "claude", "install"], jo)
    run_gitlease(["agent", "claude", "install", "--user"], jo, {"HOME": str(home)})
    rows = look(jo, tmp_path)["agents"]
    assert [row.state for row in rows] == ["good", "good", "warning"]
    type_fix(jo, rows[-1].fix)
    assert states(look(jo, tmp_path), "agents") == ["good"]


def test_server_that_claude_was_not_told_to_start(jo: Path, tmp_path: Path, home: Path) -> None:
    run_gitlease(["mcp", "install", "claude"], jo)
    assert states(look(jo, tmp_path), "agents") == ["warning"]
    (own := jo / ".claude/settings.local.json").parent.mkdir()
    own.write_text(json.dumps({"enabledMcpjsonServers": ["gitlease"]}))
    assert states(look(jo, tmp_path), "agents") == ["good"]
    refused = {"projects": {str(jo): {"disabledMcpjsonServers": ["gitlease"]}}}
    (home / ".claude.json").write_text(json.dumps(refused))
    assert states(look(jo, tmp_path), "agents") == ["warning"]


def test_server_without_its_package_is_bad(
    jo: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_gitlease(["mcp", "install", "claude"], jo)
    monkeypatch.setattr("gitlease.wiring.doctor.find_spec", lambda _: None)
    assert states(look(jo, tmp_path), "agents") == ["bad"]


def test_codex_has_to_trust_project_and_hooks(jo: Path, tmp_path: Path, home: Path) -> None:
    run_gitlease(["agent", "codex", "install"], jo)
    run_gitlease(["mcp", "install", "codex"], jo)
    assert states(look(jo, tmp_path), "agents") == ["warning", "warning"]
    (config := home / ".codex/config.toml").parent.mkdir()
    root = os.path.realpath(jo)
    config.write_text(f'[projects."{root}"]\ntrust_level = "trusted"\n')
    assert states(look(jo, tmp_path), "agents") == ["warning", "good"]
    key = f"{root}/.codex/hooks.json:session_start:0:0"
    config.write_text(f'{config.read_text()}[hooks.state."{key}"]\ntrusted_hash = "x"\n')
    assert states(look(jo, tmp_path), "agents") == ["good", "good"]
    config.write_text("[")
    assert set(states(look(jo, tmp_path), "agents")) == {"warning"}


def test_cursor_tells_nobody_whom_it_trusts(jo: Path, tmp_path: Path, home: Path) -> None:
    run_gitlease(["agent", "cursor", "install"], jo)
    assert states(look(jo, tmp_path), "agents") == ["unknown"]


# --- what is kept ------------------------------------------------------------------------------


@pytest.mark.slow
def test_live_run_is_shown_with_its_process(jo: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "gitlease", "run", "job", "--any", "--", "cat"]
    env = clean_env({"PYTHONPATH": str(Path(__file__).parents[2])})
    run = subprocess.Popen(words, cwd=jo, env=env, stdin=subprocess.PIPE)
    try:
        while not (jo / ".git/gitlease/alive").is_dir() or not look(jo, tmp_path)["sessions"][0]:
            time.sleep(0.05)
        (row,) = look(jo, tmp_path, fix=True)["sessions"]
        assert row.state == "good"
        assert "job" in row.what
        assert run.poll() is None
    finally:
        run.kill()
        run.communicate()
    while states(look(jo, tmp_path), "sessions") == ["good"]:  # its guardian ends the command
        time.sleep(0.05)
    found = look(jo, tmp_path, fix=True)
    assert states(found, "sessions") == ["good", "warning"]  # it holds a live lease: not touched
    assert found["fixed"] == []
    (record,) = (jo / ".git/gitlease/alive").glob("*.json")
    kept = record.read_bytes()
    assert run_gitlease(["claim", "other", "--any"], jo).returncode == 0
    assert states(look(jo, tmp_path), "sessions") == ["good"]
    record.write_bytes(kept)
    assert states(look(jo, tmp_path), "sessions") == ["good", "warning"]
    found = look(jo, tmp_path, fix=True)
    assert states(found, "sessions") == ["good"]
    assert len(found["fixed"]) == 1


@pytest.fixture
def used(jo: Path) -> Path:
    """A clone that knows a ledger."""
    assert run_gitlease(["claim", "README", "--any"], jo).returncode == 0
    return jo


@pytest.mark.slow
def test_damaged_copies_are_deleted_and_fetched_again(used: Path, tmp_path: Path) -> None:
    private = used / ".git/gitlease"
    known = private / "state/default/global/known.json"
    for damage in ("notes", "known", "object", "config"):
        if damage == "notes":
            (private / "notes.json").write_text("{")
        elif damage == "known":
            known.write_text('{"version": 7}')
        elif damage == "object":
            file = next(x for x in (private / "store.git/objects").rglob("*") if x.is_file())
            file.chmod(0o644)
            file.write_bytes(b"damaged")
        else:
            (private / "store.git/config").write_text("[core")
        row = look(used, tmp_path)["private"][0]
        assert row.state == "bad", damage
        type_fix(used, row.fix)  # unless the ledger was read meanwhile, which mends the same
        assert states(look(used, tmp_path), "private") == ["good"], damage
    (private / "notes.json").write_text("{")
    assert len(look(used, tmp_path, fix=True)["fixed"]) == 1
    (lease,) = ask(used, "list")["leases"]
    assert lease["mine"]


def test_ledger_of_this_clone_alone_is_never_deleted(jo: Path, tmp_path: Path) -> None:
    ask(jo, "claim", "x", "--any", "--local")
    store = jo / ".git/gitlease/local.git"
    before = snapshot(store)
    for file in (store / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o644)
            file.write_bytes(b"damaged")
    found = look(jo, tmp_path, fix=True)
    assert "bad" in states(found, "private")
    assert snapshot(store).keys() == before.keys()


def test_leftovers_leave_after_an_hour(used: Path, tmp_path: Path) -> None:
    private = used / ".git/gitlease"
    files = [private / "a.json.1.ab.tmp", private / "store.git/refs/.ab.tmp"]
    files += [private / "store.git/shallow.lock", private / "store.git.1.2.damaged/x"]
    files[-1].parent.mkdir()
    for file in files:
        file.touch()
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    assert all(file.exists() for file in files)
    for file in (*files, files[-1].parent):
        os.utime(file, (1, 1))
    assert states(look(used, tmp_path), "private") == ["warning", "good"]
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    assert not any(file.exists() for file in files)
    assert (private / "store.git.lock").exists()  # ours, which nobody has to remove


def test_private_folder_with_wrong_modes(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = used / ".git/gitlease"
    folder.chmod(0o777)
    row = look(used, tmp_path)["private"][0]
    type_fix(used, row.fix)
    assert states(look(used, tmp_path), "private") == ["good"]
    git(used, "config", "core.sharedRepository", "group")
    folder.chmod(0o2775)
    assert states(look(used, tmp_path), "private") == ["good"]
    git(used, "config", "--unset", "core.sharedRepository")
    folder.chmod(0o500)
    monkeypatch.setattr(os, "access", lambda *_: folder.stat().st_mode & 0o700 == 0o700)
    found = look(used, tmp_path)
    assert states(found, "private") == ["bad"]
    found = look(used, tmp_path, fix=True)
    assert states(found, "private") == ["good"]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_group_of_a_person_alone_is_no_stranger(used: Path, tmp_path: Path) -> None:
    folder = used / ".git/gitlease"
    for place in (used / ".git", folder, folder / "state"):
        place.chmod(0o775)  # as a umask of 002 leaves them
    assert states(look(used, tmp_path), "private") == ["good"]
    (folder / "state").chmod(0o777)
    row = look(used, tmp_path)["private"][0]
    assert row.state == "bad"
    type_fix(used, row.fix)
    assert states(look(used, tmp_path), "private") == ["good"]


def test_what_lies_in_the_private_folder_must_be_usable(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = used / ".git/gitlease/state"

    def refuse(path: str, mode: int) -> bool:
        return path != str(state) or not mode & os.W_OK

    monkeypatch.setattr(os, "access", refuse)
    found = look(used, tmp_path)
    assert states(found, "private") == ["bad"]  # and does not say that it is sound
    state.chmod(0o500)
    found = look(used, tmp_path, fix=True)
    assert len(found["fixed"]) == 1
    assert state.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_no_folder_is_moved_away(jo: Path, tmp_path: Path, *, is_link: bool) -> None:
    private = jo / ".git/gitlease"
    private.symlink_to(jo / "nothing") if is_link else private.write_text("")
    (row,) = look(jo, tmp_path, fix=True)["private"]
    assert row.state == "bad"
    type_fix(jo, row.fix)
    assert states(look(jo, tmp_path), "private") == ["good"]
    ask(jo, "claim", "README", "--any")


def test_read_only_place_is_bad_and_stays(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = look(used, tmp_path, fix=True)
    assert (states(found, "private"), found["fixed"]) == (["bad"], [])
    type_fix(used, found["private"][0].fix)
    assert states(found, "ledger") == ["good"]


def test_repair_that_fails_is_told(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    (used / ".git/gitlease").chmod(0o777)
    monkeypatch.setattr(os, "chmod", refuse)
    found = look(used, tmp_path, fix=True)
    check_words(found["fixed"])
    assert states(found, "private")[0] == "bad"


def test_gateway_in_each_state(used: Path, tmp_path: Path) -> None:
    assert "gateway" not in look(used, tmp_path)
    assert run_gitlease(["serve", "token", "add", "a@b.c"], used).returncode == 0
    assert states(look(used, tmp_path), "gateway") == ["good"]
    file = used / ".git/gitlease/serve/tokens.json"
    file.chmod(0o644)
    assert states(look(used, tmp_path), "gateway") == ["bad"]
    found = look(used, tmp_path, fix=True)
    assert states(found, "gateway") == ["good"]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("damaged")
    (row,) = look(used, tmp_path, fix=True)["gateway"]
    assert row.state == "bad"
    type_fix(used, row.fix)
    assert states(look(used, tmp_path), "gateway") == ["good"]


# --- the remote --------------------------------------------------------------------------------


@pytest.mark.one_in(2)
def test_probe_on_every_transport(remote: Remote, clones: Clones, tmp_path: Path) -> None:
    for one in clones(2, remote):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in remote.env.items():
                patch.setenv(name, value)
            found = look(one, tmp_path, probes=True)
        assert states(found, "probe") == ["good", "good", "good"]
        assert set(states(found, "remote")) == {"good"}
    refs = git(remote.bare, "for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/gitlease/probe", "refs/heads/main"]
    assert not (one / ".git/gitlease").exists()


def test_object_format_is_told_without_a_ledger(jo: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", "other.git")
    assert "in sha1" in look(jo, tmp_path)["remote"][0].what
    git(jo, "remote", "set-url", "origin", str(tmp_path / "other.git"))
    assert "in sha256" in look(jo, tmp_path)["remote"][0].what


def test_probe_reuses_a_layer_that_holds_leases(jo: Path, tmp_path: Path) -> None:
    ask(jo, "claim", "x", "--any", "--layer", "probe")
    assert states(look(jo, tmp_path, probes=True), "probe") == ["good"] * 3
    (lease,) = ask(jo, "list", "--layer", "probe")["leases"]
    assert lease["mine"]


def test_clock_of_an_http_server(
    http_remote: Remote, clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = clones(1, http_remote)
    for name, value in http_remote.env.items():
        monkeypatch.setenv(name, value)
    assert states(look(one, tmp_path), "clock") == ["good"]
    monkeypatch.setattr(
        "gitlease.wiring.doctor.ask_about",
        lambda *_, **__: ("Wed, 01 Jan 2020 00:00:00 GMT", "sha1"),
    )
    assert states(look(one, tmp_path), "clock") == ["bad"]


def test_denied_push_is_bad_and_says_why(jo: Path, path_remote: Remote, tmp_path: Path) -> None:
    hook = path_remote.bare / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        '#!/bin/sh\ncase $1 in refs/heads/*) exit 0;; esac; echo "only branches"; exit 1\n'
    )
    hook.chmod(0o755)
    (row,) = look(jo, tmp_path, probes=True)["probe"]
    assert row.state == "bad"
    assert "gitlease config lease.ref_prefix" not in str(row.fix)  # right in some cases only
    check_words(row.what)
    git(jo, "config", "lease.refPrefix", "refs/heads/gitlease")
    assert states(look(jo, tmp_path, probes=True), "probe") == ["good"] * 3


def test_several_push_urls_are_bad(jo: Path, path_remote: Remote, tmp_path: Path) -> None:
    git(jo, "remote", "set-url", "--add", "--push", "origin", str(path_remote.bare))
    git(jo, "remote", "set-url", "--add", "--push", "origin", str(tmp_path / "other.git"))
    rows = look(jo, tmp_path)["remote"]
    assert rows[0].state == "bad"
    type_fix(jo, rows[0].fix)
    assert look(jo, tmp_path)["remote"][0].state == "good"


def test_no_secret_of_a_url_is_printed(jo: Path) -> None:
    git(jo, "remote", "set-url", "origin", "http://jo:hunter2@127.0.0.1:1/x.git?token=hunter3")
    done = run_gitlease(["doctor", "--probe", "--fix"], jo)
    assert "127.0.0.1" in done.stdout
    assert "hunter" not in done.stdout + done.stderr


def test_recorded_ledger_elsewhere_offers_no_new_one(used: Path, tmp_path: Path) -> None:
    commit_file(used, ".gitlease.yaml", "lease: {ledger: 0123456789abcdef0123}\n")
    row = look(used, tmp_path)["remote"][0]
    assert row.state == "bad"
    assert "new-ledger" not in str(row.fix)  # which in a clone of the right one would split it


def test_secret_header_stays_out_of_refusals(jo: Path) -> None:
    git(jo, "remote", "set-url", "origin", DEAD)
    git(jo, "config", "http.extraHeader", "PRIVATE-TOKEN: hunter2")
    done = run_gitlease(["doctor", "--probe"], jo)
    assert "hunter" not in done.stdout + done.stderr


def test_ttl_beyond_the_policy(jo: Path, tmp_path: Path) -> None:
    ask(jo, "claim", "README", "--any")
    git(jo, "config", "lease.ttl", "2d")
    row = look(jo, tmp_path)["ledger"][0]
    assert row.state == "bad"
    type_fix(jo, row.fix)
    assert states(look(jo, tmp_path), "ledger") == ["good"]


@pytest.mark.parametrize("value", ["2d", "soon"])
def test_setting_of_the_environment_is_unset(
    jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    ask(jo, "claim", "README", "--any")
    monkeypatch.setenv("GITLEASE_TTL", value)
    found = look(jo, tmp_path)
    (row,) = (x for check in ("settings", "ledger") for x in found.get(check, ()) if x.fix)
    assert row.fix == "unset GITLEASE_TTL"


SERVER = """\
import subprocess, sys
# A server that moves each ref by itself, and compares what it was where that is asked for.
compares, caps, bare = sys.argv[1] == "yes", sys.argv[2].encode(), sys.argv[-1]
def line(data):
    sys.stdout.buffer.write(b"%04x" % (len(data) + 4) + data)
def run(*words, **how):
    return subprocess.run(["git", "-C", bare, *words], capture_output=True, **how)
for row in run("for-each-ref", "--format=%(objectname) %(refname)").stdout.splitlines():
    line(row + b"\\0report-status " + caps + b"\\n")
sys.stdout.buffer.write(b"0000")
sys.stdout.flush()
moves, read = [], sys.stdin.buffer
while (size := int(read.read(4), 16)):
    moves.append(read.read(size - 4).partition(b"\\0")[0].split())
run("index-pack", "--stdin", "--fix-thin", input=read.read())
line(b"unpack ok\\n")
for old, new, ref in moves:
    failed = run("update-ref", ref, new, *([old] if compares else [])).returncode
    line((b"ng %s refused\\n" if failed else b"ok %s\\n") % ref)
sys.stdout.buffer.write(b"0000")
sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("compares", "capability", "expected"),
    [
        ("no", "atomic", ["good", "bad"]),
        ("yes", "atomic", ["good", "good", "bad"]),
        ("yes", "ofs-delta", ["good", "good", "warning"]),
    ],
)
def test_server_that_cannot_be_relied_on(
    jo: Path, tmp_path: Path, compares: str, capability: str, expected: list[str]
) -> None:
    (script := tmp_path / "server.py").write_text(SERVER)
    program = shlex.join([sys.executable, str(script), compares, capability])
    git(jo, "config", "remote.origin.receivepack", program)
    assert states(look(jo, tmp_path, probes=True), "probe") == expected
