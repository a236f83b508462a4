"""Events of coding agents, as their hosts write them, and what they are answered."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from doors.fake import Desk, make_desks
from support.commands import run_gitlease, run_program
from support.fences import clean_env
from support.memory import MemoryWatch
from support.repos import git
from support.snapshots import check_words
from support.tasks import task

from gitlease.agents import answers, background, events, handling
from gitlease.agents.events import MAX_BYTES, EventKind
from gitlease.guard.notes import NotedInbox
from gitlease.guard.service import GuardedLayers, GuardService, WatchFolder
from gitlease.kernel.rules.errors import NotARepository
from gitlease.kernel.settings.identity import AGENTS, MCP_EDITS

ROOT = str(Path(__file__).parents[2])
EVENTS = Path(__file__).with_name("agent_events")
SESSIONS = {"claude": "claude:5b1f0c2e", "codex": "codex:89abcdef", "cursor": "cursor:c0a80101"}
Clones = Callable[..., list[Path]]


def recorded(name: str, root: Path | None = None) -> bytes:
    """A recorded event, in this work tree."""
    text = (EVENTS / f"{name}.json").read_text()
    return text.replace("/repo", str(root) if root else "/repo").encode()


def names(*kinds: str) -> list[str]:
    """The recorded events of these kinds."""
    found = sorted(file.stem for file in EVENTS.glob("*.json"))
    return [name for name in found if name.partition("-")[2].startswith(kinds)]


def words(name: str) -> tuple[str, str]:
    """Host and event of a recorded one, as on the command line."""
    host, _, rest = name.partition("-")
    return host, next(word for word in handling.EVENTS if rest.startswith(word))


@dataclass
class Seats:
    """Opens a context as ``open_for_agent`` opens a repository."""

    desk: Desk
    root: Path
    mode: str = "block"
    offline: str = "warn"
    watch: MemoryWatch | None = None
    used: bool = True
    options: tuple[str, ...] = ()
    family: frozenset[str] = frozenset()
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, directory: str, **given: str) -> Any:
        self.asked.append({"directory": directory, **given})
        if not self.used:
            return None
        session = SESSIONS[given["host"]]
        if given["agent_id"]:
            session += "/" + given["agent_id"][:8]
        space = self.open(session)
        family = frozenset({session, SESSIONS[given["host"]], *self.family})
        return SimpleNamespace(
            workspace=space, session=session, family=family, options=self.options
        )

    def open(self, session: str) -> Any:
        flags = {"session": session, "no_session": False, "local": False, "layer": None}
        self.desk.private = str(self.root / ".git" / "gitlease")
        space = self.desk.open(str(self.root), **flags)
        space.repository.toplevel = str(self.root)
        space.settings = SimpleNamespace(
            guard_mode=self.mode,
            landing_release="never",
            guard_offline=self.offline,
            guard_timeout=5,
            tasks=SimpleNamespace(files=("tasks/**/*.md",)),
        )
        space.again = lambda **_: space
        actor = space.identity.actor
        folder = str(self.root / ".git" / "gitlease")
        space.inbox = NotedInbox(folder, actor.holder, actor.session)
        space.guard = GuardService(
            cast(WatchFolder, self.watch or MemoryWatch()),
            lambda: self.desk.store,
            clock=self.desk.clock,
            actor=space.identity.actor,
            layers=GuardedLayers(["global"]),
            max_age=60,
        )
        return space

    def send(self, name: str, data: bytes | None = None) -> tuple[dict[str, Any] | None, str]:
        data = recorded(name, self.root) if data is None else data
        now = self.desk.clock.now
        return handling.handle(words(name), data, opener=self, now=lambda: now().wall_ms / 1_000)


@pytest.fixture
def desks(tmp_path: Path) -> tuple[Desk, Seats]:
    """Ada's command line, and Bob's agent in a work tree."""
    ada, bob = make_desks(task("F001"))
    (tmp_path / "src" / "auth").mkdir(parents=True)
    return ada, Seats(bob, tmp_path)


def denied(host: str, answer: dict[str, Any] | None) -> str:
    """The reason with which an edit was refused, ``""`` where it was not."""
    if not answer:
        return ""
    if AGENTS[host].flat:
        return str(answer["agent_message"]) if answer.get("permission") == "deny" else ""
    inner = answer.get("hookSpecificOutput", {})
    denies = inner.get("permissionDecision") == "deny"
    return str(inner["permissionDecisionReason"]) if denies else ""


def nothing(host: str) -> dict[str, Any] | None:
    """The answer that says nothing."""
    return {} if AGENTS[host].flat else None


def test_every_agent_has_recorded_events_of_its_hooks() -> None:
    hooks = {(agent.name, hook.word) for agent in AGENTS.values() for hook in agent.hooks}
    assert hooks <= {*map(words, names(""))}


@pytest.mark.parametrize("name", names(""))
def test_every_recorded_event_is_read(name: str) -> None:
    host, word = words(name)
    event = events.read(AGENTS[host], EventKind(word), json.loads(recorded(name)))
    assert (event.by, event.kind.value, event.cwd) == (host, word, "/repo")
    assert event.session_id
    assert bool(event.paths) == (word == "before-edit")
    assert ("git " in event.command) == (word == "before-shell")
    tells_of_it = "subagent-start" in {hook.word for hook in AGENTS[host].hooks}
    assert bool(event.agent_id) == (tells_of_it and "subagent" in name)


@pytest.mark.parametrize(
    ("host", "name", "by", "paths"),
    [
        (
            *("codex", "codex-before-edit", "codex"),
            ("src/new.py", "src/auth/login.py", "src/auth/signin.py", "src/old.py"),
        ),
        ("claude", "claude-before-edit-write", "claude", ("/repo/src/auth/login.py",)),
        ("claude", "cursor-before-edit", "cursor", ("/repo/src/auth/login.py",)),
    ],
)
def test_files_are_named_by_patches_and_by_no_content(
    host: str, name: str, by: str, paths: tuple[str, ...]
) -> None:
    """Cursor may run the hooks of Claude Code."""
    event = events.read(AGENTS[host], EventKind.BEFORE_EDIT, json.loads(recorded(name)))
    assert (event.by, event.paths) == (by, paths)


@pytest.mark.parametrize("host", AGENTS)
@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"session_id": 7, "cwd": [], "tool_input": None},
        {"tool_input": {"file_path": 7, "command": {"a": 1}}},
        {"tool_input": {"file_path": "x" * 5_000, "command": [1, None, "*** Add File:"]}},
        {"tool_input": "not json", "workspace_roots": {"a": 1}},
        {"tool_input": "[" * 100_000, "workspace_roots": [None, 3]},
    ],
)
def test_odd_events_say_less_and_break_nothing(host: str, odd: dict[str, Any]) -> None:
    for kind in EventKind:
        assert events.read(AGENTS[host], kind, odd).paths == ()


@pytest.mark.slow
def test_a_patch_of_a_thousand_files_is_cut_and_says_so(desks: tuple[Desk, Seats]) -> None:
    _, seats = desks
    patch = "".join(f"*** Add File: src/f{n}.py\n" for n in range(1_001))
    data = json.dumps({"tool_input": {"command": patch}}).encode()
    answer, _ = seats.send("codex-before-edit", data)
    assert answer is not None
    check_words(answer["systemMessage"])


# --- before an edit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "paths"),
    [
        ("mcp__fs__write_file", {"path": "src/a.py", "content": "docs/b.py"}, ("src/a.py",)),
        ("mcp__fs__move_file", {"source": "a", "destination": "file:///r/b"}, ("a", "/r/b")),
        ("mcp__code__edit", {"file_paths": ["a", 7, "", "b"]}, ("a", "b")),
        ("mcp__web__update_page", {"uri": "https://example.com/a"}, ()),
        ("mcp__fs__read_file", {"path": "src/a.py"}, ()),
        ("Bash", {"path": "src/a.py"}, ()),
    ],
)
def test_of_an_mcp_server_s_tools_those_that_edit_are_judged(
    tool: str, arguments: dict[str, Any], paths: tuple[str, ...]
) -> None:
    data = {"session_id": "s", "tool_name": tool, "tool_input": arguments}
    assert events.read(AGENTS["claude"], EventKind.BEFORE_EDIT, data).paths == paths
    assert bool(re.search(MCP_EDITS, tool)) == (tool not in ("mcp__fs__read_file", "Bash"))


@pytest.mark.parametrize("name", names("before-edit"))
def test_what_another_holds_is_not_edited(desks: tuple[Desk, Seats], name: str) -> None:
    ada, seats = desks
    ada.ok("claim", "src/auth/", "--session", "build-7", "--reason", "rate limits")
    host, _ = words(name)
    why = denied(host, seats.send(name)[0])
    check_words(why)
    assert why.count("\n") == (2 if host == "codex" else 1)  # both sides of a rename


@pytest.mark.default(
    "claude-before-edit-mcp",
    "claude-before-edit-notebook",
    "codex-before-edit",
    "cursor-before-edit-text",
)
@pytest.mark.slow
@pytest.mark.parametrize("name", names("before-edit"))
def test_what_is_free_or_ones_own_is_edited_without_a_word(
    desks: tuple[Desk, Seats], name: str
) -> None:
    ada, seats = desks
    host, _ = words(name)
    ada.ok("claim", "docs/")
    assert seats.send(name) == (nothing(host), "")
    seats.desk.ok("claim", "src/", "--session", SESSIONS[host])
    assert seats.send(name) == (nothing(host), "")


@pytest.mark.slow
def test_subagents_work_under_the_lease_of_who_started_them(desks: tuple[Desk, Seats]) -> None:
    _, seats = desks
    name = "claude-before-edit-subagent"
    seats.desk.ok("claim", "src/", "--session", "claude:5b1f0c2e")
    assert seats.send(name) == (None, "")
    seats.desk.ok("release", "src/", "--session", "claude:5b1f0c2e")
    seats.desk.ok("claim", "src/", "--session", "claude:5b1f0c2e/another")
    assert denied("claude", seats.send(name)[0])
    assert denied("claude", seats.send("claude-before-edit")[0])


@pytest.mark.nightly
def test_links_count_where_they_lead_to(desks: tuple[Desk, Seats], tmp_path: Path) -> None:
    ada, seats = desks
    ada.ok("claim", "src/auth/")
    (tmp_path / "alias").symlink_to("src/auth")
    (tmp_path / "src" / "auth" / "a.py").touch()
    (tmp_path / "a.py").symlink_to("src/auth/a.py")
    (tmp_path / "out").symlink_to("/")

    def edit(path: str) -> str:
        data = json.dumps({"cwd": str(tmp_path / "src"), "tool_input": {"file_path": path}})
        return denied("claude", seats.send("claude-before-edit", data.encode())[0])

    for path in ("../alias/new.py", "../a.py", str(tmp_path / "x" / ".." / "src" / "auth" / "b")):
        assert "src/auth/" in edit(path)
    for path in ("/etc/passwd", "../out/etc/passwd", "../../outside", "b.py", "../.git/config"):
        assert edit(path) == ""


def test_what_the_person_runs_elsewhere_is_only_pointed_out(desks: tuple[Desk, Seats]) -> None:
    ada, seats = desks
    ada.ok("claim", "src/auth/")
    seats.mode = "warn"
    for name in ("claude-before-edit", "cursor-before-edit", "codex-before-edit"):
        answer, _ = seats.send(name)
        assert "deny" not in json.dumps(answer)
        check_words(json.dumps(answer))
    seats.mode = "off"
    assert seats.send("claude-before-edit") == (None, "")


# --- faults let edits through -------------------------------------------------------------------


@pytest.mark.parametrize("host", AGENTS)
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[]", b"[" * 200_000, b'"' + b"x" * MAX_BYTES + b'"'],
    ids=["empty", "cut off", "not utf-8", "a list", "deep", "huge"],
)
def test_what_cannot_be_read_is_let_through_loudly(
    desks: tuple[Desk, Seats], host: str, data: bytes
) -> None:
    _, seats = desks
    answer, aside = seats.send(f"{host}-before-edit", data)
    assert denied(host, answer) == ""
    assert aside in json.dumps(answer)
    check_words(aside)


@pytest.mark.parametrize("host", AGENTS)
def test_a_fault_of_ours_lets_the_edit_through(host: str, tmp_path: Path) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no\nway")

    name = f"{host}-before-edit"
    answer, aside = handling.handle(words(name), recorded(name, tmp_path), opener=broken)
    assert denied(host, answer) == ""
    check_words(json.dumps(answer))
    assert "\n" not in aside


@pytest.mark.nightly
@pytest.mark.parametrize("path", ["src/\x00.py", "src/\ud800.py"])
def test_a_path_that_no_file_can_have_lets_the_edit_through(
    desks: tuple[Desk, Seats], path: str
) -> None:
    _, seats = desks
    data = json.dumps({"cwd": str(seats.root), "tool_input": {"file_path": path}}).encode()
    assert denied("claude", seats.send("claude-before-edit", data)[0]) == ""


@pytest.mark.default("claude-after-tool")
@pytest.mark.slow
@pytest.mark.parametrize("name", names(""))
def test_elsewhere_there_is_silence(name: str, desks: tuple[Desk, Seats]) -> None:
    _, seats = desks
    seats.used = False
    assert seats.send(name) == (nothing(words(name)[0]), "")

    def nowhere(*_: Any, **__: Any) -> Any:
        raise NotARepository("this is not a git repository")

    assert handling.handle(words(name), recorded(name), opener=nowhere) == (
        nothing(words(name)[0]),
        "",
    )


# --- the start ----------------------------------------------------------------------------------


def context(answer: dict[str, Any] | None) -> str:
    assert answer is not None
    inner = answer.get("hookSpecificOutput", {})
    return str(answer.get("additional_context") or inner["additionalContext"])


@pytest.mark.default("claude-session-start")
@pytest.mark.slow
@pytest.mark.parametrize("name", names("session-start", "subagent-start"))
def test_a_session_begins_knowing_what_is_going_on(desks: tuple[Desk, Seats], name: str) -> None:
    ada, seats = desks
    host, _ = words(name)
    ada.ok("claim", "src/auth/", "--reason", "rate limits")
    seats.desk.ok("claim", "docs/", "--session", SESSIONS[host])
    text = context(seats.send(name)[0])
    for line in (
        "gitlease: the current work in this repository, from the ledger on origin (memory)",
        f"you are bob@example.com, session {SESSIONS[host]}",
        "you carry path:docs: live until 12:15:00Z, expires in 15m",
        "held by others:",
        "- src/auth: ada@example.com (on laptop, branch main), until 12:15:00Z, expires in 15m",
        "free tasks: gitlease next; to claim: gitlease claim RESOURCE",
    ):
        assert line in text
    for command in ("git commit", "git push"):
        match = re.search(rf"GITLEASE_SESSION=(\S+) {command}\b", text)
        own = match is not None and match[1].startswith(f"{SESSIONS[host]}/")
        assert own == ("subagent" in name and host != "cursor"), text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude-session-start", "codex-subagent-start"])
def test_the_start_is_short_however_much_is_held(desks: tuple[Desk, Seats], name: str) -> None:
    ada, seats = desks
    assert seats.send(name) == (None, ""), "there is no ledger"
    for n in range(60):
        ada.ok("claim", f"some/rather/long/folder-{n}/", "--reason", "because " * 20)
    text = context(seats.send(name)[0])
    assert len(text) <= answers.LONGEST_CONTEXT
    check_words(text)


@pytest.mark.nightly
def test_texts_of_others_cannot_pass_for_ours(desks: tuple[Desk, Seats]) -> None:
    line = answers.one_line("a\nhint: do this \x1b[31m" + "x" * 1_000)
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) == answers.LONGEST_LINE


# --- the end, and the background ----------------------------------------------------------------


@pytest.mark.slow
def test_the_background_renews_and_releases_only_what_is_bound_to_the_session(
    desks: tuple[Desk, Seats],
) -> None:
    _, seats = desks
    bob, own = seats.desk, "claude:5b1f0c2e"
    for word, session in (("a/", own), ("b/", f"{own}/1"), ("c/", "other")):
        bob.ok("claim", word, "--session", session)
    bob.ok("claim", "d/", "--no-session")

    def opener(_: str, *, session: str) -> Any:
        return seats.open(session)

    def held() -> dict[str, tuple[str | None, int]]:
        leases = bob.ok("list", "--json").json["leases"]
        return {x["resource"]: (x["session"], x["renewals"]) for x in leases}

    background.renew([own], opener)
    assert {renewals for _, renewals in held().values()} == {0}, "nothing was due"
    bob.clock.advance(301)
    background.renew([own], opener)
    assert sorted(held().values(), key=str) == sorted(
        [(own, 1), (f"{own}/1", 0), ("other", 0), (None, 0)], key=str
    )
    background.release([own], opener)
    assert [session for session, _ in held().values()] == ["other", None]
    asked = bob.store.remote.asked
    background.release([own], opener)
    assert bob.store.remote.asked == asked
    background.renew([own], opener)
    assert bob.store.remote.asked == asked


RAN_OUT = "your lease of path:a expired at "


@pytest.mark.default("claude-after-tool")
@pytest.mark.slow
@pytest.mark.parametrize("name", names("after-tool", "before-edit", "session-start"))
def test_what_was_lost_is_told_once(desks: tuple[Desk, Seats], name: str) -> None:
    amy, seats = desks
    host, _ = words(name)
    own = SESSIONS[host]
    (seats.root / ".git" / "gitlease").mkdir(parents=True)
    seats.desk.ok("claim", "a/", "--session", own)
    amy.clock.advance(100_000)
    answer, _ = seats.send(name)
    if "subagent" in name:
        assert RAN_OUT not in json.dumps(answer), "that is the session's to be told"
    else:
        assert RAN_OUT in json.dumps(answer)
        assert RAN_OUT not in json.dumps(seats.send(name)[0])


@pytest.mark.parametrize("name", names("session-end", "subagent-stop", "after-tool"))
def test_what_is_left_to_the_background_is_answered_at_once(
    desks: tuple[Desk, Seats], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, seats = desks
    started: list[list[str]] = []
    monkeypatch.setattr(handling, "start_detached", lambda words, cwd: started.append(words))
    gitlease_folder = seats.root / ".git" / "gitlease"
    gitlease_folder.mkdir(parents=True)
    host, word = words(name)
    if word == "after-tool":
        seats.desk.ok("claim", "src/", "--session", SESSIONS[host])
        seats.desk.clock.advance(301)
        for _ in range(2):
            assert seats.send(name) == (nothing(host), "")
            renewal, look = (
                ["agent", host, "renew-now", SESSIONS[host]],
                ["agent", host, "look-now"],
            )
        assert started == [renewal, look], "throttled"
        return
    assert seats.send(name) == (nothing(host), "")
    agent = {"claude": "/a9e83d51", "codex": "/019a9f10"}[host] if "subagent" in name else ""
    assert started == [["agent", host, "release-now", SESSIONS[host] + agent]]
    kept = handling.handle([*words(name), "--keep"], recorded(name, seats.root), opener=seats)
    assert (kept, len(started)) == ((nothing(host), ""), 1)


# --- with real git ------------------------------------------------------------------------------


def gitlease(cwd: Path, *argv: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return run_gitlease(argv, cwd, input=input)


@pytest.mark.nightly
def test_a_session_from_its_start_to_its_end(clones: Clones) -> None:
    one, two = clones(2)
    assert gitlease(one, "claim", "src/auth/", "--reason", "limits").returncode == 0
    assert gitlease(two, "agent", "claude", "install").returncode == 0

    def event(name: str, clone: Path = two) -> Any:
        done = gitlease(clone, *("agent", *words(name)), input=recorded(name, clone).decode())
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout) if done.stdout else None

    assert "src/auth: w1@example.com" in context(event("claude-session-start"))
    assert "w1@example.com" in denied("claude", event("claude-before-edit"))
    assert event("claude-before-edit", one) is None
    assert gitlease(one, "release", "src/auth/").returncode == 0
    assert gitlease(two, "claim", "src/", "--session", "claude:5b1f0c2e").returncode == 0
    assert event("claude-before-edit") is None
    assert event("claude-before-edit-subagent") is None
    assert denied("codex", event("codex-before-edit"))
    assert gitlease(two, "agent", "claude", "renew-now", "claude:5b1f0c2e").returncode == 0
    (lease,) = json.loads(gitlease(two, "list", "--json").stdout)["leases"]
    assert lease["renewals"] == 0, "it was not due yet"
    assert gitlease(two, "agent", "claude", "release-now", "claude:5b1f0c2e").returncode == 0
    assert json.loads(gitlease(two, "list", "--json").stdout)["leases"] == []


@pytest.mark.slow
def test_an_edit_is_judged_where_its_file_lies(clones: Clones, tmp_path: Path) -> None:
    """In another work tree than that of the current folder, or from outside of any."""
    one, two = clones(2)
    assert gitlease(one, "claim", "src/auth/", "--reason", "limits").returncode == 0
    assert gitlease(two, "agent", "claude", "install").returncode == 0
    git(two, "worktree", "add", "-q", str(tmp_path / "wt"), "-b", "topic")
    event = json.loads(recorded("claude-before-edit", two))
    for cwd, root in ((two, tmp_path / "wt"), (tmp_path, two), (tmp_path, tmp_path / "wt")):
        event["cwd"] = str(cwd)
        event["tool_input"]["file_path"] = str(root / "src" / "auth" / "new.py")
        done = gitlease(two, "agent", "claude", "before-edit", input=json.dumps(event))
        assert (done.returncode, done.stderr) == (0, "")
        assert "w1@example.com" in denied("claude", json.loads(done.stdout)), (cwd, root)


@pytest.mark.default("words0")
@pytest.mark.nightly
@pytest.mark.parametrize(
    "words", [("claude", "on-fly"), ("cursor", "on-fly"), ("emacs", "before-edit")]
)
def test_what_another_version_calls_refuses_nothing_and_what_a_person_mistypes_is_said(
    tmp_path: Path, words: tuple[str, str]
) -> None:
    """Hosts take a usage error for a refusal, and older versions live on beside newer settings."""
    done = gitlease(tmp_path, "-C", ".", "agent", *words, input="{}" * 100_000)
    quiet = "{}\n" if words[0] == "cursor" else ""
    assert (done.returncode, done.stdout) == (0, quiet)
    check_words(done.stderr)
    above, below = pty.openpty()
    typed = subprocess.run(
        [sys.executable, "-m", "gitlease", "agent", *words],
        cwd=tmp_path,
        env=clean_env({"PYTHONPATH": ROOT}),
        stdin=below,
        capture_output=True,
        timeout=60,
        check=False,
    )
    os.close(above)
    os.close(below)
    assert typed.returncode == 2


@pytest.mark.default("claude-before-edit-<&-")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shut"),
    [
        ("claude-before-edit", "<&-"),
        ("cursor-before-edit", "0>/dev/null"),
        ("codex-before-shell", "<&-"),
    ],
)
def test_without_a_standard_input_it_says_so_and_lets_the_edit_through(
    tmp_path: Path, name: str, shut: str
) -> None:
    host, word = words(name)
    line = [sys.executable, "-m", "gitlease", "agent", host, word]
    done = run_program(
        ["sh", "-c", f'exec "$@" {shut}', "sh", *line], tmp_path, {"PYTHONPATH": ROOT}
    )
    assert done.returncode == 0
    what = {"before-edit": "this edit", "before-shell": "this command"}.get(word, word)
    assert f"gitlease: {what} " in done.stderr
    check_words(done.stderr.rpartition(": ")[2])
    answer = json.loads(done.stdout or "{}")
    assert denied(host, answer) == ""
    if word == "before-edit":
        assert what in json.dumps(answer)


def test_nobody_listening_is_no_fault() -> None:
    class Closed(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("closed")

    assert handling.run(["claude", "before-edit"], stdin=Closed()) == 0
