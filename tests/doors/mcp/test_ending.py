"""A server in a process of its own: whose session it is, and what it leaves when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import LONG, Desk
from support.snapshots import check_words


@pytest.fixture
def desk(clones: Callable[..., list[Path]], path_remote: Remote) -> Iterator[Desk]:
    clone = clones(1)[0]
    git(clone, "config", "user.email", "jo@example.com")
    made = Desk(clone, env=path_remote.env)
    yield made
    made.clear()


class Wire:
    """A server that is spoken to line by line, as hosts do."""

    def __init__(self, desk: Desk, **env: str) -> None:
        self.process = desk.start("mcp", env=env, stdin=subprocess.PIPE)
        self._number = 0
        about = {"protocolVersion": "2025-06-18", "capabilities": {}}
        self.ask("initialize", {**about, "clientInfo": {"name": "host", "version": "1"}})
        self._say({"method": "notifications/initialized"})

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def begin(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        self._say({"id": self._number, "method": method, "params": params})
        return self._number

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = self.begin(method, params)
        while (answer := self.read()).get("id") != number:
            continue
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments, "_meta": meta or {}}
        return self.ask("tools/call", params)["structuredContent"]

    def end(self, number: signal.Signals | None = None) -> int:
        """End its input, or send a signal; the exit status."""
        if number is not None:
            self.process.send_signal(number)
            self.process.wait(LONG)
        self.out, self.err = self.process.communicate(timeout=LONG)
        return self.process.returncode


def write_task(desk: Desk) -> Path:
    file = desk.clone / "tasks" / "F001.md"
    file.parent.mkdir()
    file.write_text("---\nid: F001\nstatus: todo\n---\n")
    return file


@pytest.mark.slow
def test_what_is_no_message_is_answered(desk: Desk) -> None:
    """The SDK drops such a line, and its client would wait for ever."""
    wire = Wire(desk)
    assert wire.process.stdin is not None
    lone = '"tools/call", "params": {"name": "claim", "arguments": {"resources": "F001\\ud800"}}'
    for line, id in ((f'"id": 7, "method": {lone}', 7), ('"id": 8, "method": 1', None)):
        wire.process.stdin.write('{"jsonrpc": "2.0", ' + line + "}\n")
        wire.process.stdin.flush()
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (id, -32600)
    assert wire.call("status")["ok"]
    wire.end()


def test_a_call_is_answered_before_the_end_of_input_ends_it(desk: Desk) -> None:
    wire = Wire(desk)
    number = wire.begin("tools/call", {"name": "claim", "arguments": {"resources": "deploy"}})
    wire._say({"method": "notifications/cancelled", "params": {"requestId": []}})  # which is no id
    assert wire.end() == 0
    (answer,) = map(json.loads, wire.out.splitlines())
    assert (answer["id"], answer["result"]["structuredContent"]["status"]) == (number, "claimed")
    assert desk.live() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT])
def test_it_drops_what_it_claimed_and_keeps_the_edges(
    desk: Desk, number: signal.Signals | None
) -> None:
    file = write_task(desk)
    desk.document("claim", "mine-before", "--any")
    wire = Wire(desk)
    assert wire.call("claim", resources=["F001", "deploy"], any=True)["status"] == "claimed"
    assert wire.call("claim", resources="mine-before", any=True)["status"] == "renewed"
    assert wire.end(number) == (0 if number is None else 128 + number)
    assert desk.live() == ["mine-before"], "what it only renewed stays"
    assert "jo@example.com" in file.read_text(), "the task stays assigned"


@pytest.mark.nightly
def test_a_wait_that_is_under_way_keeps_it_from_nothing(desk: Desk) -> None:
    git(desk.clone, "config", "user.email", "kim@example.com")
    desk.document("claim", "F001")
    git(desk.clone, "config", "user.email", "jo@example.com")
    wire = Wire(desk)
    wire.call("claim", resources="deploy")
    meta = {"progressToken": "p"}
    wire.begin("tools/call", {"name": "wait", "arguments": {"resources": "F001"}, "_meta": meta})
    assert wire.read()["method"] == "notifications/progress"
    assert wire.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert desk.live() == ["F001"]


@pytest.mark.slow
def test_the_hook_for_the_end_of_a_session_does_it_where_it_is_installed(desk: Desk) -> None:
    desk.document("agent", "claude", "install")
    wire = Wire(desk, CLAUDE_CODE_SESSION_ID="0123456789")
    claimed = wire.call("claim", resources="deploy", any=True)
    assert claimed["lease"]["session"] == "claude:01234567"
    assert wire.end() == 0
    assert desk.live() == ["deploy"]


@pytest.mark.slow
def test_threads_of_one_host_are_sessions_of_their_own(desk: Desk) -> None:
    wire = Wire(desk)
    first = {"x-codex-turn-metadata": {"thread_id": "aaaaaaaa-1"}}
    second = {"x-codex-turn-metadata": json.dumps({"thread_id": "bbbbbbbb-2"})}
    odd = {"x-codex-turn-metadata": "{no json"}
    assert wire.call("claim", first, resources="F001")["status"] == "claimed"
    assert wire.call("claim", second, resources="F001")["error"]["session"] == "codex:aaaaaaaa"
    assert wire.call("claim", second, resources="F002")["lease"]["session"] == "codex:bbbbbbbb"
    assert wire.call("claim", odd, resources="F003")["lease"]["session"].startswith("mcp-")
    assert wire.end() == 0
    assert desk.live() == []


@pytest.mark.slow
def test_a_person_who_types_it_is_told_what_it_is(desk: Desk) -> None:
    keyboard, terminal = os.openpty()
    try:
        process = desk.start("mcp", stdin=terminal, stderr=subprocess.PIPE)
        assert process.stderr is not None
        check_words(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 128 + signal.SIGINT
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_just_before_it_reads_ends_it(desk: Desk, number: signal.Signals) -> None:
    program = (
        f"import os; stop = lambda: os.kill(os.getpid(), {int(number)}); "
        "import gitlease.mcp.stdio as m; real = m.stdio_server; "
        "m.stdio_server = lambda: (stop(), real())[1]; "
        "from gitlease.__main__ import main; main()"
    )
    process = desk.started([sys.executable, "-c", program, "mcp"], stdin=subprocess.PIPE)
    assert process.wait(LONG) == 128 + number  # its input is still open
