"""Conversations of agents that follow one another, or live side by side, in one host process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clock import ManualClock
from support.remotes import Remote
from support.repos import git
from support.running import Desk
from support.snapshots import check_words
from support.typed import Agent, Typist

from gitlease.guard import presence
from gitlease.kernel.settings.identity import continued

pytestmark = pytest.mark.slow

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
    check_words(second.edits("docs/a.md"))
    third = cleared(second, OTHER)
    jo.ok("claim src/", env=third.terminal)
    assert set(held(jo).values()) == {None, first.name}
    first.a_minute_later()
    assert set(held(jo)) == {"warm-up", "path:docs", "path:src"}
    third.sends("session-end", reason="other")
    assert set(held(jo)) == {"warm-up"}


@pytest.mark.nightly
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


def test_the_end_in_a_removed_work_tree_ends_the_session(
    jo: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLAUDE_PROJECT_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    linked = tmp_path / "linked"
    git(jo.clone, "worktree", "add", "-q", "-b", "side", str(linked))
    agent = Agent(jo, session=OLD)
    agent.sends("session-start", source="startup", cwd=str(linked))
    jo.ok("claim docs/", env=agent.terminal)
    git(jo.clone, "worktree", "remove", "--force", str(linked))
    agent.sends("session-end", reason="other", cwd=str(linked))
    assert set(held(jo)) == {"warm-up"}


PROCESS = (7, "100")


@pytest.mark.nightly
def test_only_the_same_process_continues_a_conversation(tmp_path: Path) -> None:
    for number, (process, later, joined) in enumerate(
        (
            (PROCESS, 59, True),
            (PROCESS, 60, False),
            ((8, "100"), 1, False),
            ((7, "101"), 1, False),  # its number was given out again
        )
    ):
        common = tmp_path / str(number)
        (common / "gitlease").mkdir(parents=True)
        presence.end_conversation(str(common), "claude:1", PROCESS, now=1_000)
        presence.begin_conversation(
            str(common), "claude:2", process, clears=True, now=1_000 + later
        )
        assert (continued(str(common), "claude:2") == "claude:1") is joined


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
    def call(self, tool, **arguments):
        answer = self.ask(2, "tools/call", {"name": tool, "arguments": arguments})
        return answer["structuredContent"]
    def claim(self, name):
        body = self.call("claim", resources=[name], any=True)
        return body["lease"]["session"] if body["ok"] else body["error"]["code"]
    def keeps(self, name):
        bodies = [self.call("claim", resources=[name], any=True), self.call("renew"),
            self.call("renew", resources=name),
            self.call("extend", resources=name, duration="20m")]
        mine = [x["resource"] for x in self.call("status", mine=True)["leases"]]
        return [*(x.get("status") or x["error"]["code"] for x in bodies), name in mine]
    def ends(self, name):
        return self.call("release", resources=[name])["status"]
def edit(number, path):
    data = {"session_id": number, "cwd": os.getcwd(),
        "tool_name": "Edit", "tool_input": {"file_path": os.path.abspath(path)}}
    words = [sys.executable, "-m", "gitlease", "agent", "claude", "before-edit"]
    done = subprocess.run(words, input=json.dumps(data), text=True, env=env, capture_output=True)
    return "deny" if '"deny"' in done.stdout else done.stdout + done.stderr
def show(*values):
    print(json.dumps(values))
"""
KEPT = ["renewed", "renewed", "renewed", "extended", True]


@pytest.fixture
def desk(clones: Clones, path_remote: Remote) -> Iterator[Desk]:
    (clone,) = clones(1)
    git(clone, "config", "user.email", "jo@example.com")
    made = Desk(clone, env=path_remote.env)
    made.document("claim", "warm-up", "--any")
    yield made
    made.clear()


def play(desk: Desk, script: str, **env: str) -> list[Any]:
    """What a host prints, a JSON value a line."""
    words = [sys.executable, "-c", f"{HOST}\n{script}", desk.env["PYTHONPATH"], json.dumps(env)]
    process = desk.started(words)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("env", [{"CLAUDE_CODE_SESSION_ID": OLD}, {}], ids=["told", "not told"])
def test_a_tool_server_follows_the_conversation_of_its_host(
    desk: Desk, env: dict[str, str]
) -> None:
    script = f"""
hook("session-start", "{OLD}", source="startup")
server = Server()
print(json.dumps(server.claim("one")))
hook("session-end", "{OLD}", reason="clear")
hook("session-start", "{NEW}", source="clear")
print(json.dumps(server.claim("two")))
print(json.dumps(server.keeps("one")))
hook("session-end", "{NEW}", reason="resume")
hook("session-start", "{OTHER}", source="resume")
print(json.dumps(server.claim("three")))
"""
    first, *rest = play(desk, script, **env)
    assert [first, *rest] == ["claude:11111111", "claude:11111111", KEPT, "claude:33333333"]


@pytest.mark.nightly
def test_a_tool_server_that_is_told_no_session_joins_the_only_one_of_its_host(desk: Desk) -> None:
    script = f"""
one, two = Server(), Server()
print(json.dumps([one.claim("T1")[:4], two.claim("T1")]))
hook("session-start", "{OLD}", source="startup")
print(json.dumps(one.claim("T2")))
hook("session-start", "{NEW}", source="startup")
print(json.dumps(one.claim("T3")))
"""
    alone, joined, stays = play(desk, script)
    assert alone == ["mcp-", "held"], "two servers are two workers"
    assert joined == "claude:11111111"
    assert stays == joined, "while it lives"


@pytest.mark.parametrize("before", ["nobody", "two"])
def test_a_tool_server_keeps_its_leases_whoever_begins_beside_it(desk: Desk, before: str) -> None:
    """Told no session, it would join another one, or none, from then on."""
    script = f"""
if {before == "two"}:
    hook("session-start", "{OLD}", source="startup")
    hook("session-start", "{OTHER}", source="startup")
server = Server()
show(server.claim("T1")[:6], server.claim("src/"))
if {before == "two"}:
    hook("session-end", "{OTHER}", reason="other")
else:
    hook("session-start", "{NEW}", source="startup")
show(server.keeps("T1"), Server().claim("T1"))
show(edit("{OLD if before == "two" else NEW}", "src/a.py"), server.ends("T1"))
show(server.claim("T2"), server.ends("src/"), server.ends("T2"))
"""
    claimed, kept, after, later = play(desk, script)
    assert str(claimed[0]).startswith("mcp-"), claimed
    assert kept == [KEPT, "held"]
    assert after == ["", "released"], "who is alone in the host process works under them"
    session = "claude:22222222" if before == "nobody" else "claude:11111111"
    assert later == [session, "released", "released"], "it joins the only one for what is new"


def test_the_end_of_a_conversation_leaves_what_a_shared_tool_server_holds(desk: Desk) -> None:
    """The server joined it, and then another began in the host: either may use the server."""
    script = f"""
hook("session-start", "{OLD}", source="startup")
server = Server()
show(server.claim("T1"), server.claim("src/"))
hook("session-start", "{NEW}", source="startup")
hook("session-end", "{OLD}", reason="other")
show(server.claim("T2"), server.keeps("T1"))
words = [sys.executable, "-c", "from gitlease.agents import background as b; "
    "b.PATIENCE = 0; b.in_background('release-now', ['claude:11111111'])"]
subprocess.run(words, env=env)
show(server.keeps("T1"), edit("{NEW}", "src/a.py"))
server.process.stdin.close()
server.process.wait()
"""
    joined, kept, after = play(desk, script)
    assert joined == ["claude:11111111"] * 2
    assert kept == ["claude:22222222", KEPT], "it follows for what it claims next"
    assert after == [KEPT, ""]
    live = {x["resource"]: x["session"] for x in desk.document("list")["leases"]}
    assert live == {"warm-up": None, "T2": "claude:22222222"}, "the server ended last"
