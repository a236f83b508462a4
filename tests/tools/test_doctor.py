"""``doctor``: every check in each of its states, on real repositories and remotes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support import careless_server
from support.commands import run_gitlease
from support.fences import clean_env
from support.remotes import Remote
from support.repos import assert_untouched, commit_file, git, snapshot
from support.running import ask
from support.snapshots import check_words

import gitlease
from gitlease.kernel.rules.errors import Hint, command_words
from gitlease.tools.doctor import CHECKS, carry_out, examine
from gitlease.wiring.examined import Examined
from gitlease.wiring.words import to_add_extras

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
    newer = " and has them in its configuration"
    text = done.stdout.replace(newer, "")
    check_words(re.sub(r"git 2\.\d+|answers in \S+ s|[\da-f]{20}|; a push takes.*", "…", text))
    document = ask(jo, "doctor", env=env)
    assert document["ok"]
    assert document["fixed"] == []
    assert {x["state"] for x in document["checks"]} == {"good", "unknown"}  # no clock at a path


@pytest.mark.parametrize(
    ("many", "fate", "state"),
    [
        (3, "lost", "good"),
        (40, "landed", "good"),
        (40, "lost", "warning"),
        (400, "landed", "warning"),
    ],
)
def test_pushes_of_the_last_hour_are_counted(
    jo: Path, tmp_path: Path, many: int, fate: str, state: str
) -> None:
    assert run_gitlease(["claim", "README", "--any"], jo).returncode == 0
    (journal,) = jo.glob(".git/gitlease/state/*/global/pushes")
    now = time.time_ns() // 1_000_000
    lines = [[now - 7_200_000, 5, "claim of old", "lost", True]]
    lines += [[now, 1_200, "renew of F1", fate, True]] * many
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    [row] = look(jo, tmp_path)["pushes"]
    assert row.state == state
    check_words(re.sub("; a push takes.* s, a read [0-9.]+ s", "", row.what))


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


# --- it runs anywhere --------------------------------------------------------------------------


def test_outside_of_a_repository_the_machine_is_examined(tmp_path: Path) -> None:
    found = look(tmp_path, tmp_path)
    assert found.keys() == {"fixed", "git", "repository", "agents"}
    assert states(found, "repository") == ["warning"]


def test_a_wrong_place_is_bad(jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = look(jo / ".git", tmp_path)["repository"]
    assert row.state == "bad"
    type_fix(jo, row.fix)
    (jo / ".git/config").write_text("[core\n")
    assert states(look(jo, tmp_path), "repository") == ["bad"]
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert states(look(jo, tmp_path), "repository") == ["bad"]


def test_place_without_a_work_tree_or_remote(path_remote: Remote, tmp_path: Path) -> None:
    found = look(path_remote.bare, tmp_path)
    assert found["repository"][0].state == "good"
    assert {"hooks", "tasks"}.isdisjoint(found)
    assert states(found, "identity") == states(found, "remote") == ["warning"]
    assert states(look(path_remote.bare, tmp_path, local=True), "remote") == ["good"]


def test_broken_settings_leave_the_rest_examined(jo: Path, tmp_path: Path) -> None:
    (jo / ".gitlease.yaml").write_text("lease: {tttl: 5m}\n")
    found = look(jo, tmp_path)
    assert states(found, "settings") == ["bad"]
    assert "tttl" in found["settings"][0].what
    assert states(found, "remote") == ["unknown"]
    assert states(found, "private") == states(found, "identity") == ["good"]
    type_fix(jo, found["settings"][0].fix)


def test_offline_is_unknown(jo: Path, tmp_path: Path) -> None:
    git(jo, "remote", "set-url", "origin", DEAD)
    document = ask(jo, "doctor")
    known = {x["check"]: x["state"] for x in document["checks"]}
    assert (known["remote"], known["clock"]) == ("unknown", "unknown")
    found = look(jo, tmp_path, probes=True)
    assert states(found, "probe") == ["unknown"]


def test_machine_in_each_state(jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, state in (((2, 30), "bad"), ((2, 31), "warning")):
        monkeypatch.setattr("gitlease.tools.doctor.git_version", lambda _, x=version: x)
        assert look(jo, tmp_path)["git"][0].state == state
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("gitlease.guard.doctor.hook_states", lambda _: 1 / 0)
    found = look(jo, tmp_path)
    assert (states(found, "hooks"), states(found, "sessions")) == (["bad"], ["good"])
    assert found["git"][-1].state == "warning"
    type_fix(jo, f"{found['git'][-1].fix}; command -v gitlease")


def test_a_check_finds_the_same_alone(jo: Path, tmp_path: Path) -> None:
    ask(jo, "claim", "README", "--any")
    found = look(jo, tmp_path)
    for check in CHECKS:
        if check.name in ("ledger", "clock", "sessions"):  # which read what the remote answered
            alone = Examined(str(jo), str(tmp_path), probes=False, local=False)
            assert carry_out(check, alone) == found[check.name]


def test_every_check_is_on_the_page() -> None:
    page = (Path(gitlease.__file__).parent / "docs/trouble.md").read_text(encoding="utf-8")
    first = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    named = {x for row in first for x in re.findall(r"`(\w+)`", row)}
    assert {x.name for x in CHECKS} - named == set(), "give them a row in docs/trouble.md"


# --- nothing changes ---------------------------------------------------------------------------


def test_nothing_changes_without_fix(jo: Path, path_remote: Remote, tmp_path: Path) -> None:
    """But this clone's copies of ledger and task files, and they are below .git/gitlease."""
    commit_file(jo, "tasks/a.md", "---\nid: A1\nstatus: todo\n---\n")
    look(jo, tmp_path, probes=True, fix=True)
    private = jo / ".git/gitlease"
    assert not private.exists()
    run_gitlease(["claim", "README", "--any"], jo)
    before, there = snapshot(jo), snapshot(path_remote.bare)
    (left := private / "old.tmp").touch()
    os.utime(left, (1, 1))
    kept = kept_below(private)
    look(jo, tmp_path)
    assert_untouched(before, snapshot(jo))
    assert_untouched(there, snapshot(path_remote.bare))
    assert kept_below(private) == kept


def kept_below(folder: Path) -> set[Path]:
    """All files but the caches, which are written once the task files are two seconds old."""
    return {x for x in folder.rglob("*") if x.is_file() and x.suffix != ".cache"}


# --- the clone ---------------------------------------------------------------------------------


@pytest.mark.slow
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


@pytest.fixture
def hooked(jo: Path) -> Path:
    env = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    assert run_gitlease(["hooks", "install"], jo, env).returncode == 0
    return jo


def file_of_hook(clone: Path, name: str) -> Path:
    if not (hook := clone / ".git/hooks" / name).exists():
        pytest.skip("this git has hooks in its configuration")
    return hook


@pytest.mark.slow
def test_damaged_hook_is_installed_again(hooked: Path, tmp_path: Path) -> None:
    hook = file_of_hook(hooked, "pre-push")
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
def test_script_with_our_section_that_is_off_is_not_mended(hooked: Path, tmp_path: Path) -> None:
    hook = file_of_hook(hooked, "pre-commit")
    hook.write_bytes(b"#!/bin/sh\ntrue\n" + hook.read_bytes())
    hook.chmod(0o644)
    found = look(hooked, tmp_path, fix=True)
    assert not any(x.startswith("mended") for x in found["fixed"])
    assert [row.state for row in found["hooks"]] == ["good", "bad"]
    type_fix(hooked, found["hooks"][1].fix)
    assert states(look(hooked, tmp_path), "hooks") == ["good"]


def test_hooks_that_cannot_be_shown_to_fire(
    hooked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = hooked / ".git/gitlease/program"
    (program := tmp_path / "gitlease").write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    before = noted.read_text()
    noted.write_text(f"{program}\n")
    (row,) = look(hooked, tmp_path)["hooks"]  # one for all hooks
    assert (row.state, str(program) in row.what) == ("bad", True)
    noted.write_text(before)
    in_files = (hooked / ".git/hooks/pre-commit").exists()
    monkeypatch.setattr("gitlease.guard.hook_places.git_version", lambda _: (2, 31))
    assert states(look(hooked, tmp_path), "hooks") == ["unknown" if in_files else "warning"]


# --- agents ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hooks_of_claude_in_each_state(jo: Path, tmp_path: Path, home: Path) -> None:
    file = jo / ".claude/settings.json"
    run_gitlease(["agent", "claude", "install", "--keep"], jo)
    assert states(look(jo, tmp_path), "agents") == ["good"]
    data = json.loads(file.read_text())
    del data["hooks"]["PreToolUse"]
    file.write_text(json.dumps(data))
    assert states(look(jo, tmp_path), "agents") == ["bad"]
    assert states(look(jo, tmp_path, fix=True), "agents") == ["good"]
    assert "--keep" in file.read_text()
    file.write_text(json.dumps({**json.loads(file.read_text()), "disableAllHooks": True}))
    assert states(look(jo, tmp_path), "agents") == ["bad"]
    file.write_text("{")
    assert states(look(jo, tmp_path), "agents")[0] == "warning"
    file.write_text(json.dumps(data))
    run_gitlease(["agent", "claude", "install"], jo)
    run_gitlease(["agent", "claude", "install", "--user"], jo, {"HOME": str(home)})
    rows = look(jo, tmp_path)["agents"]
    assert [row.state for row in rows] == ["good", "good", "warning"]  # they are there twice
    type_fix(jo, rows[-1].fix)
    assert states(look(jo, tmp_path), "agents") == ["good"]


@pytest.mark.slow
def test_tool_server_of_claude_in_each_state(
    jo: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_gitlease(["mcp", "install", "claude"], jo)
    assert states(look(jo, tmp_path), "agents") == ["warning"]
    (own := jo / ".claude/settings.local.json").parent.mkdir()
    own.write_text(json.dumps({"enabledMcpjsonServers": ["gitlease"]}))
    assert states(look(jo, tmp_path), "agents") == ["good"]
    refused = {"projects": {str(jo): {"disabledMcpjsonServers": ["gitlease"]}}}
    (home / ".claude.json").write_text(json.dumps(refused))
    assert states(look(jo, tmp_path), "agents") == ["warning"]
    monkeypatch.setattr("gitlease.agents.doctor.find_spec", lambda _: None)
    (row,) = look(jo, tmp_path)["agents"]
    assert (row.state, row.fix) == ("bad", to_add_extras())


def test_missing_package_comes_by_the_installer_that_was_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert to_add_extras().startswith(f"{sys.executable} -m pip install ")
    for file, tool in (("pipx_metadata.json", "pipx"), ("uv-receipt.toml", "uv tool")):
        (receipt := tmp_path / file).touch()
        assert to_add_extras().startswith(f"{tool} install --force ")
        receipt.unlink()


# --- what is kept ------------------------------------------------------------------------------


@pytest.mark.slow
def test_live_run_is_shown_and_dead_one_forgotten(jo: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-m", "gitlease", "run", "job", "--any", "--", "cat"]
    env = clean_env({"PYTHONPATH": str(Path(__file__).parents[2])})
    with subprocess.Popen(words, cwd=jo, env=env, stdin=subprocess.PIPE) as run:
        while "job" not in (row := look(jo, tmp_path, fix=True)["sessions"][0]).what:
            time.sleep(0.05)
        assert (row.state, run.poll()) == ("good", None)
        run.kill()
    while states(look(jo, tmp_path), "sessions") == ["good"]:  # its guardian ends the command
        time.sleep(0.05)
    found = look(jo, tmp_path, fix=True)
    assert states(found, "sessions") == ["good", "warning"]  # it holds a live lease: not touched
    (record,) = (jo / ".git/gitlease/alive").glob("*.json")
    kept = record.read_bytes()
    ask(jo, "claim", "other", "--any")
    record.write_bytes(kept)
    found = look(jo, tmp_path, fix=True)
    assert (states(found, "sessions"), len(found["fixed"])) == (["good"], 1)


@pytest.fixture
def used(jo: Path) -> Path:
    """A clone that knows a ledger."""
    assert run_gitlease(["claim", "README", "--any"], jo).returncode == 0
    return jo


@pytest.mark.slow
def test_private_files_that_nobody_can_read_are_set_aside(used: Path, tmp_path: Path) -> None:
    """A change on its way stays as it is, whoever reads the ledger, until a person looks."""
    private = used / ".git/gitlease"
    layer = private / "state/default/global"
    for name, damage in (
        ("edges/w.json", '{"a": 1}'),
        ("edges/dir.json", None),
        ("pending/y.json", "[]"),
        ("notes.json", None),
    ):
        (path := layer / name).parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.mkdir() if damage is None else path.write_text(damage)
    (private / "state/default/lock").touch()
    ask(used, "list")
    ask(used, "claim", "x", "--any")
    rows = look(used, tmp_path)["private"]
    assert [x.state for x in rows] == ["bad"] * 5
    type_fix(used, next(x.fix for x in rows if "w.json" in x.what))
    assert (layer / "edges/w.json.old").read_text() == '{"a": 1}'
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    assert (layer / "pending/y.json.old").read_text() == "[]"
    assert (layer / "notes.json.old").is_dir()
    (layer / "pending/y.json").write_text("{}")  # and nothing that was set aside before is lost
    type_fix(used, next(x.fix for x in look(used, tmp_path)["private"] if "y.json" in x.what))
    kept = (layer / "pending/y.json.old", layer / "pending/y.json.old1")
    assert [x.read_text() for x in kept] == ["[]", "{}"]
    ask(used, "claim", "y", "--any", "--layer", "lock")


@pytest.mark.slow
def test_damaged_copies_are_deleted_and_fetched_again(used: Path, tmp_path: Path) -> None:
    private = used / ".git/gitlease"
    for file, damage in (
        ("notes.json", "{"),
        ("state/default/global/known.json", '{"version": 7}'),
        ("store.git/config", "[core"),
        ("state/default/global/edges/aa.json", "junk"),
        ("state/default/global/pending", ""),
        ("runs", "junk"),
        ("tasks", "junk"),
    ):
        if (private / file).is_dir():
            (private / file).rmdir()
        (private / file).parent.mkdir(exist_ok=True)
        (private / file).write_text(damage)
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
    (store / "config").write_text("[core")
    before = {*store.rglob("*")}
    assert "bad" in states(look(jo, tmp_path, fix=True), "private")
    assert before <= {*store.rglob("*")}


@pytest.mark.slow
def test_leftovers_leave_after_an_hour(used: Path, tmp_path: Path) -> None:
    private = used / ".git/gitlease"
    files = [private / "a.json.1.ab.tmp", private / "store.git/shallow.lock"]
    for file in files:
        file.touch()
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    for file in files:
        assert file.exists()
        os.utime(file, (1, 1))
    assert states(look(used, tmp_path), "private") == ["warning", "good"]
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    assert not any(file.exists() for file in files)
    for name in ("store.git.1.damaged", "state/default/global/known.json.1.2.damaged"):
        for make in (Path.mkdir, Path.touch, lambda x: x.symlink_to(private)):
            make(aside := private / name)
            assert states(look(used, tmp_path, fix=True), "private") == ["good"]
            assert not os.path.lexists(aside)
    assert (private / "store.git.lock").exists()  # ours, which nobody has to remove


@pytest.mark.slow
def test_private_folder_with_wrong_modes(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = used / ".git/gitlease"
    (state := folder / "state").chmod(0o500)
    usable = os.access
    monkeypatch.setattr(
        os, "access", lambda x, mode: usable(x, mode) and (x != str(state) or is_open(state))
    )
    assert states(look(used, tmp_path), "private") == ["bad"]  # and does not say that it is sound
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    assert state.stat().st_mode & 0o777 == 0o700
    for file in (folder, state):  # one command for both
        file.chmod(0o777)
    (row,) = look(used, tmp_path)["private"][:-1]
    type_fix(used, row.fix)
    git(used, "config", "core.sharedRepository", "group")
    folder.chmod(0o2775)
    assert states(look(used, tmp_path), "private") == ["good"]


def is_open(folder: Path) -> bool:
    return folder.stat().st_mode & 0o700 == 0o700


@pytest.mark.slow
def test_what_is_no_folder_is_moved_away(jo: Path, tmp_path: Path) -> None:
    (jo / "tasks").mkdir()
    (jo / "tasks/F001.md").write_text("---\nid: F001\nstatus: todo\n---\n")
    ways: tuple[Callable[[Path], object], ...] = (
        *(lambda x: x.write_text("mine"), lambda x: x.symlink_to("nothing")),
        lambda x: x.symlink_to(x.name),
    )
    places = ("", "/state", "/state/default/global/pending", "/state/default/global/edges")
    for file, make in product(places, ways):
        path = jo / f".git/gitlease{file}"
        if path.exists():
            path.rename(f"{path}.before{len([*path.parent.iterdir()])}")
        make(path)
        refused = run_gitlease(["claim", "F001"], jo)
        hint = "hint: gitlease doctor --fix"
        assert (refused.returncode, refused.stderr.splitlines()[1]) == (7, hint), file
        run_gitlease(["doctor", "--fix"], jo)
        aside = Path(f"{path}.old")
        assert aside.is_symlink() or aside.read_text() == "mine"
        aside.unlink()
        ask(jo, "claim", "F001")
        ask(jo, "release", "F001")
        assert states(look(jo, tmp_path), "private") == ["good"]


def test_what_is_somebodys_own_stays(used: Path, tmp_path: Path) -> None:
    private = used / ".git/gitlease"
    layer = private / "state/default/global"
    copies = [private / "backup.git/config", private / "old/known.json", private / "old/notes.json"]
    copies += [layer / "known.json.bak", layer / "pending/x.bak", layer / "edges/notes"]
    copies += [private / "state/README", private / "state/default/NOTES"]
    copies += [layer / "known.json.damaged", private / "x.tmp", private / "backup.git/x.lock"]
    for file in copies:
        file.parent.mkdir(exist_ok=True)
        file.write_text("[core")
        os.utime(file, (1, 1))
    assert states(look(used, tmp_path, fix=True), "private") == ["good"]
    assert [x.read_text() for x in copies] == ["[core"] * len(copies)


def test_what_cannot_be_mended_is_told(
    used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    (folder := used / ".git/gitlease").chmod(0o777)
    monkeypatch.setattr(os, "chmod", refuse)
    found = look(used, tmp_path, fix=True)
    check_words(found["fixed"])
    assert states(found, "private")[0] == "bad"
    monkeypatch.undo()
    folder.chmod(0o700)
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = look(used, tmp_path, fix=True)
    assert (states(found, "private"), found["fixed"]) == (["bad"], [])
    assert states(found, "ledger") == ["good"]


@pytest.mark.slow
def test_gateway_in_each_state(used: Path, tmp_path: Path) -> None:
    assert run_gitlease(["serve", "token", "add", "a@b.c"], used).returncode == 0
    assert states(look(used, tmp_path), "gateway") == ["good"]
    file = used / ".git/gitlease/serve/tokens.json"
    file.chmod(0o644)
    assert states(look(used, tmp_path), "gateway") == ["bad"]
    assert states(look(used, tmp_path, fix=True), "gateway") == ["good"]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("damaged")
    (row,) = look(used, tmp_path)["gateway"]
    assert row.state == "bad"
    type_fix(used, row.fix)
    assert states(look(used, tmp_path), "gateway") == ["good"]


# --- the remote --------------------------------------------------------------------------------


@pytest.mark.default("path")
@pytest.mark.nightly
def test_probe_on_every_transport(remote: Remote, clones: Clones, tmp_path: Path) -> None:
    for one in clones(2, remote):
        with pytest.MonkeyPatch.context() as patch:
            remote.open_to(patch)
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


def test_clock_of_an_http_server(
    http_remote: Remote, clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = clones(1, http_remote)
    http_remote.open_to(monkeypatch)
    assert states(look(one, tmp_path), "clock") == ["good"]
    monkeypatch.setattr(
        "gitlease.wiring.examined.ask_about",
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
    ask(jo, "claim", "x", "--any", "--layer", "probe")  # which is not for that
    assert states(look(jo, tmp_path, probes=True), "probe") == ["good"] * 3
    (lease,) = ask(jo, "list", "--layer", "probe")["leases"]
    assert lease["mine"]


def test_ledger_that_is_not_everybodys_is_bad(
    jo: Path, path_remote: Remote, tmp_path: Path
) -> None:
    git(jo, "remote", "set-url", "--add", "--push", "origin", str(path_remote.bare))
    git(jo, "remote", "set-url", "--add", "--push", "origin", str(tmp_path / "other.git"))
    rows = look(jo, tmp_path)["remote"]
    assert rows[0].state == "bad"
    type_fix(jo, rows[0].fix)
    assert look(jo, tmp_path)["remote"][0].state == "good"
    commit_file(jo, ".gitlease.yaml", "lease: {ledger: 0123456789abcdef0123}\n")
    row = look(jo, tmp_path)["remote"][0]
    assert row.state == "bad"
    assert "new-ledger" not in str(row.fix)  # which in a clone of the right one would split it


def test_no_secret_of_a_url_is_printed(jo: Path) -> None:
    git(jo, "remote", "set-url", "origin", "http://jo:hunter2@127.0.0.1:1/x.git?token=hunter3")
    git(jo, "config", "http.extraHeader", "PRIVATE-TOKEN: hunter4")
    done = run_gitlease(["doctor", "--probe", "--fix"], jo)
    assert "127.0.0.1" in done.stdout
    assert "hunter" not in done.stdout + done.stderr


@pytest.mark.slow
def test_ttl_beyond_the_policy(jo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(jo, "claim", "README", "--any")
    git(jo, "config", "lease.ttl", "2d")
    row = look(jo, tmp_path)["ledger"][0]
    assert row.state == "bad"
    type_fix(jo, row.fix)
    assert states(look(jo, tmp_path), "ledger") == ["good"]
    monkeypatch.setenv("GITLEASE_TTL", "2d")
    assert look(jo, tmp_path)["ledger"][0].fix == "unset GITLEASE_TTL"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compares", "capability", "expected"),
    [
        (False, "atomic", ["good", "bad"]),
        (True, "atomic", ["good", "good", "bad"]),
        (True, "ofs-delta", ["good", "good", "warning"]),
    ],
)
def test_server_that_cannot_be_relied_on(
    jo: Path, tmp_path: Path, *, compares: bool, capability: str, expected: list[str]
) -> None:
    program = careless_server.command(compares, capability)
    git(jo, "config", "remote.origin.receivepack", program)
    assert states(look(jo, tmp_path, probes=True), "probe") == expected
