"""Conversations of agents that follow one another, or live side by side, in one host process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import git
from support.running import Desk
from support.typed import Agent, Typist

from gitlease.settings import conversations

Clones = Callable[..., list[Path]]
OLD, NEW, OTHER = "11111111-0000", "22222222-0000", "33333333-0000"


@pytest.fixture
def jo(clones: Clones) -> Typist:
    (clone,) = clones(1)
    git(clone, "config", "user.email", "jo@example.com")
    typist = Typist(clone, ManualClock())
    typist.ok("agent claude install")
    typist.ok("claim warm-up --any")
    return typist


def held(jo: Typist) -> dict[str, str | None]:
    return {x["resource"]: x["session"] for x in jo.ok("list --json").json["leases"]}


def cleared(agent: Agent, number: str) -> Agent:
    """The conversation with which an agent goes on after ``/clear``."""
    agent.sends("session-end", reason="clear")
    after = Agent(agent.at, session=number, later=agent.later)
    after.sends("session-start", source="clear")
    return after


def test_a_cleared_conversation_continues_its_session_and_the_last_end_ends_it(
    jo: Typist,
) -> None:
    first = Agent(jo, session=OLD)
    first.sends("session-start", source="startup")
    jo.ok("claim docs/", env=first.terminal)
    second = cleared(first, NEW)
    assert jo.ok("whoami --json", env=second.terminal).json["session"] == first.name
    assert jo.ok("renew docs/", env=second.terminal).code == 0
    assert "held by" not in second.edits("docs/a.md")
    third = cleared(second, OTHER)
    jo.ok("claim src/", env=third.terminal)
    assert set(held(jo).values()) == {None, first.name}
    first.a_minute_later()
    assert set(held(jo)) == {"warm-up", "path:docs", "path:src"}
    third.sends("session-end", reason="other")
    assert set(held(jo)) == {"warm-up"}


def test_an_end_that_nobody_continues_takes_effect_after_a_minute(jo: Typist) -> None:
    agent = Agent(jo, session=OLD)
    agent.sends("session-start", source="startup")
    jo.ok("claim docs/", env=agent.terminal)
    agent.sends("session-end", reason="clear")
    assert "path:docs" in held(jo)
    agent.a_minute_later()
    assert set(held(jo)) == {"warm-up"}
    Agent(jo, session=NEW).sends("session-start", source="clear")
    assert jo.ok("whoami --json", env=Agent(jo, session=NEW).terminal).json["session"] != agent.name


def test_conversations_side_by_side_stay_apart(jo: Typist) -> None:
    """Two of them are cleared at once, in one process: which follows which cannot be known."""
    one, two = Agent(jo, session=OLD), Agent(jo, session=OTHER)
    for agent in (one, two):
        agent.sends("session-start", source="startup")
        agent.sends("session-end", reason="clear")
    after = Agent(jo, session=NEW)
    after.sends("session-start", source="clear")
    assert jo.ok("whoami --json", env=after.terminal).json["session"] == after.name


@pytest.mark.parametrize("known_by", ["project", "runtime folder"])
def test_the_end_in_a_removed_work_tree_ends_the_session(
    jo: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_by: str
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    if known_by == "project":
        monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(jo.clone))
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    linked = tmp_path / "linked"
    git(jo.clone, "worktree", "add", "-q", "-b", "side", str(linked))
    agent = Agent(jo, session=OLD)
    agent.sends("session-start", source="startup", cwd=str(linked))
    jo.ok("claim docs/", env=agent.terminal)
    git(jo.clone, "worktree", "remove", "--force", str(linked))
    agent.sends("session-end", reason="other", cwd=str(linked))
    assert set(held(jo)) == {"warm-up"}


PROCESS = (7, "100")


@pytest.mark.parametrize(
    ("process", "later", "joined"),
    [
        (PROCESS, 59, True),
        (PROCESS, 60, False),
        ((8, "100"), 1, False),
        ((7, "101"), 1, False),
    ],
    ids=["same process", "a minute later", "another process", "its number given out again"],
)
def test_only_the_same_process_continues_a_conversation(
    tmp_path: Path, process: tuple[int, str], later: int, joined: bool
) -> None:
    common = str(tmp_path)
    (tmp_path / "gitlease").mkdir()
    conversations.end(common, "claude:1", PROCESS, now=1_000)
    conversations.begin(common, "claude:2", process, clears=True, now=1_000 + later)
    assert (conversations.continued(common, "claude:2") == "claude:1") is joined


def test_a_process_without_a_start_time_joins_nothing(tmp_path: Path) -> None:
    common = str(tmp_path)
    (tmp_path / "gitlease").mkdir()
    conversations.end(common, "claude:1", (0, ""), now=1_000)
    conversations.begin(common, "claude:2", (0, ""), clears=True, now=1_001)
    assert conversations.continued(common, "claude:2") == "claude:2"


# --- a host as a process, with its tool server ----------------------------------------------------

HOST = """
import json, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
env = dict(os.environ, **json.loads(sys.argv[2]))
def hook(event, number, **data):
    data |= {"session_id": number, "cwd": os.getcwd()}
    words = [sys.executable, "-m", "gitlease", "agent", "claude", event]
    subprocess.run(words, input=json.dumps(data), text=True, env=env, stdout=subprocess.DEVNULL)
class Server:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-m", "gitlease", "mcp"], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}}
        self.ask(1, "initialize", {**about, "clientInfo": {"name": "host", "version": "1"}})
        self.say({"method": "notifications/initialized"})
    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
        self.process.stdin.flush()
    def ask(self, number, method, params):
        self.say({"id": number, "method": method, "params": params})
        while (answer := json.loads(self.process.stdout.readline())).get("id") != number:
            pass
        return answer["result"]
    def claim(self, name):
        arguments = {"resources": [name], "any": True}
        answer = self.ask(2, "tools/call", {"name": "claim", "arguments": arguments})
        body = answer["structuredContent"]
        return body["lease"]["session"] if body["ok"] else body["error"]["code"]
"""


@pytest.fixture
def desk(clones: Clones, path_remote: Remote) -> Iterator[Desk]:
    (clone,) = clones(1)
    git(clone, "config", "user.email", "jo@example.com")
    made = Desk(clone, env=path_remote.env)
    made.document("claim", "warm-up", "--any")
    yield made
    made.clear()


def play(desk: Desk, script: str, **env: str) -> list[object]:
    """What a host prints, a JSON value a line."""
    words = [sys.executable, "-c", f"{HOST}\n{script}", desk.env["PYTHONPATH"], json.dumps(env)]
    process = desk.started(words)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_a_tool_server_follows_the_conversation_of_its_host(desk: Desk) -> None:
    script = f"""
hook("session-start", "{OLD}", source="startup")
server = Server()
print(json.dumps(server.claim("one")))
hook("session-end", "{OLD}", reason="clear")
hook("session-start", "{NEW}", source="clear")
print(json.dumps(server.claim("two")))
hook("session-end", "{NEW}", reason="resume")
hook("session-start", "{OTHER}", source="resume")
print(json.dumps(server.claim("three")))
"""
    first, *rest = play(desk, script, CLAUDE_CODE_SESSION_ID=OLD)
    assert [first, *rest] == ["claude:11111111", "claude:11111111", "claude:33333333"]


def test_a_tool_server_that_is_told_no_session_joins_the_only_one_of_its_host(desk: Desk) -> None:
    script = f"""
one, two = Server(), Server()
print(json.dumps([one.claim("T1")[:4], two.claim("T1")]))
hook("session-start", "{OLD}", source="startup")
print(json.dumps(one.claim("T2")))
hook("session-start", "{NEW}", source="startup")
print(json.dumps(one.claim("T3")[:4]))
"""
    alone, joined, apart = play(desk, script)
    assert alone == ["mcp-", "held"], "two servers are two workers"
    assert joined == "claude:11111111"
    assert apart == "mcp-", "of two live sessions neither is known to be its own"
