"""The tools themselves: what they take, how they refuse, and whom they speak for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.client import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from support.commands import run_gitlease
from support.remotes import Remote
from support.repos import git, real_clone
from support.running import LONG, Desk
from support.snapshots import check_words, cleaned, raises
from support.tools import ERAS, Era, ToolClient, in_memory

import gitlease

pytestmark = pytest.mark.sampled(2)

MOST_TOKENS = 1_500  # of the list of tools, at four characters each
JO, KIM = "jo@example.com", "kim@example.com"


@pytest.fixture
def jo(clones: Callable[..., list[Path]], path_remote: Remote) -> Path:
    clone = clones(1)[0]
    git(clone, "config", "user.email", JO)
    return clone


@pytest.fixture
def kim(clones: Callable[..., list[Path]], jo: Path, tmp_path: Path) -> gitlease.Leases:
    return gitlease.open(real_clone(git(jo, "remote", "get-url", "origin"), tmp_path / "kim", KIM))


@pytest.fixture
def tools(jo: Path) -> Iterator[ToolClient]:
    with in_memory(jo) as client:
        yield client


def write_task(clone: Path, name: str) -> Path:
    file = clone / "tasks" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"---\nid: {name}\ntitle: The {name}\nstatus: todo\n---\n")
    return file


@pytest.mark.parametrize("era", ERAS)
def test_the_list_of_tools_is_short_and_says_what_each_does(jo: Path, era: Era) -> None:
    with in_memory(jo, era) as client:
        listed = client.portal.call(client.client.list_tools).tools
    shown = [tool.model_dump(by_alias=True, exclude_none=True) for tool in listed]
    assert len(json.dumps(shown, separators=(",", ":"))) / 4 <= MOST_TOKENS
    names = ["claim", "renew", "extend", "release", "next", "status", "wait", "note", "add", "log"]
    assert [tool.name for tool in listed] == names
    for tool in listed:
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False
        assert not {"holder", "session", "by"} & {*tool.input_schema["properties"]}
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (tool.name in ("status", "log"))


def test_a_refusal_says_who_until_when_and_what_to_do(
    tools: ToolClient, kim: gitlease.Leases
) -> None:
    lease = kim.claim("F001", reason="the parser")
    found = tools.ask("claim", resources="F001")
    assert found.is_error
    error: Any = (found.structured_content or {})["error"]
    assert (error["code"], error["exit"], error["holder"]) == ("held", 1, KIM)
    assert error["lease"]["token"] == lease.token
    text = tools.text("claim", resources="F001")
    assert "expires in 15m" in text
    check_words(cleaned(text))


def test_a_refusal_is_the_document_of_the_command_line(
    tools: ToolClient, jo: Path, kim: gitlease.Leases, path_remote: Remote
) -> None:
    kim.claim("F001")
    typed = Desk(jo, env=path_remote.env).document("claim", "F001", expect=1)
    told = tools.document("claim", resources="F001")
    assert told.keys() == typed.keys()
    assert told["error"].keys() == typed["error"].keys()
    same = ("code", "exit", "resource", "holder", "expires_at", "free_at")
    assert {x: told["error"][x] for x in same} == {x: typed["error"][x] for x in same}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("claim", {"resources": ["F001"], "holder": "kim@example.com"}),
        ("claim", {"resources": ["F001"], "session": "x"}),
        ("claim", {"resource": "F001"}),
        ("claim", {}),
        ("claim", {"resources": "F001", "takeover": True}),
        ("release", {"resources": ["a", "b"], "done": True}),
        ("release", {"resources": "a", "done": True, "note": "x"}),
        ("next", {"ttl": "5m"}),
        ("wait", {"resources": "a", "timeout": "2m"}),
        ("note", {"resources": "a"}),
        ("extend", {"resources": ["a", "b"], "duration": "5m"}),
        ("renew", {"scope": "login"}),
        ("status", {"resources": "a", "mine": True}),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    tools: ToolClient, tool: str, arguments: dict[str, Any]
) -> None:
    found = tools.document(tool, **arguments)
    assert found["error"]["code"] == "usage"
    check_words(found["error"]["message"])
    assert tools.document("status")["leases"] == []


def test_the_way_out_names_what_is_in_the_way(tools: ToolClient, kim: gitlease.Leases) -> None:
    kim.claim("F002", paths=["src/"], any=True)
    found = tools.document("claim", resources="F003", paths="src/x", any=True)
    assert (found["ok"], found["error"]["next"]) == (
        False,
        ['wait {"resources": ["F002"], "timeout": 50}'],
    )


def test_an_unknown_tool_is_no_call_at_all(tools: ToolClient) -> None:
    with raises(MCPError):
        tools.ask("steal")


def test_hints_speak_of_arguments(tools: ToolClient, jo: Path) -> None:
    (jo / "Makefile").write_text("all:\n")
    text = tools.text("claim", resources="Makefile")
    check_words(text)
    assert "--any" not in text


def test_where_there_is_no_repository_it_is_said_with_every_call(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    with in_memory(tmp_path / "bare") as client:
        assert client.document("status")["error"]["code"] == "not_a_repository"


def test_tasks_are_handed_out_assigned_and_finished(tools: ToolClient, jo: Path) -> None:
    file = write_task(jo, "F001")
    assert tools.document("next")["task"]["title"] == "The F001"
    done = tools.document("next", claim=True, ttl="30m")
    assert (done["task"]["resource"], done["lease"]["ttl_seconds"]) == ("F001", 1_800)
    assert JO in file.read_text()
    assert tools.document("next", claim=True)["error"]["code"] == "nothing_left"
    done = tools.document("release", resources="F001", done=True)
    assert (done["status"], done["edges"][0]["file"]) == ("completed", "tasks/F001.md")
    check_words(file.read_text())


def test_a_task_is_added_behind_what_it_waits_for(tools: ToolClient, jo: Path) -> None:
    write_task(jo, "F001")
    added = tools.document("add", title="More", depends_on=["F001"], paths="docs/")
    assert (added["file"], added["task"]["waits_for"]) == ("tasks/F002.md", [])
    assert added["task"]["depends_on"] == ["F001"]
    assert tools.document("next", claim=True)["task"]["resource"] == "F001"
    assert tools.document("add", title="")["error"]["code"] == "usage"


def test_a_note_is_there_for_the_next_holder(tools: ToolClient, kim: gitlease.Leases) -> None:
    tools.document("claim", resources="F001")
    tools.document("release", resources="F001", note="tests are red")
    assert tools.document("note", resources="F001", text="see the log")["status"] == "noted"
    kim.claim("F001")
    kim.release("F001")
    assert "tests are red" in tools.text("claim", resources="F001")
    assert "see the log" in tools.text("status", resources=["F001"])


def test_word_for_the_holder_comes_with_its_next_call(
    tools: ToolClient, kim: gitlease.Leases
) -> None:
    tools.document("claim", resources="F001")
    kim.note("F001", "hurry", to_holder=True)
    assert ["hurry" in tools.text("status") for _ in range(2)] == [True, False]
    kim.claim("F002")
    told = tools.document("note", resources="F002", text="faster", to_holder=True)
    assert [x["holder"] for x in told["leases"]] == [KIM]
    assert tools.document("note", resources="F003", text="x", to_holder=True)["ok"] is False


def test_the_past_and_several_resources_are_told(tools: ToolClient, jo: Path) -> None:
    write_task(jo, "F001")
    tools.document("claim", resources=["F001"], reason="the parser")
    tools.document("release", resources="F001", note="half done")
    tools.document("claim", resources="deploy", any=True)
    events = tools.document("log", resources="F001", limit=2)["events"]
    assert [x["kind"] for x in events] == ["released", "claimed"]
    assert "what claimed, resource F001, by jo@example.com" in tools.text("log", since="1h")
    one, both = (tools.document("status", resources=x) for x in ("F001", ["F001", "deploy"]))
    assert (one["task"]["title"], [x["state"] for x in one["ended"]]) == ("The F001", ["released"])
    assert "task" not in both
    assert [x["resource"] for x in both["leases"]] == ["deploy"]
    assert [x["text"] for x in both["notes"]] == ["half done"]
    assert "whose mine, resource deploy, holder jo@example.com" in tools.text("status")


def test_what_was_lost_says_by_whose_doing(
    tools: ToolClient, jo: Path, kim: gitlease.Leases
) -> None:
    tools.document("claim", resources="F001")
    kim.config("admins", KIM, ledger=True)
    kim.revoke("F001", reason="release day")
    text = tools.text("renew", resources="F001")
    assert text.startswith("lost: ")
    assert "revoked by kim@example.com" in text
    assert "hint: stop the work that it covers" in text


def test_calls_at_the_same_time_are_all_answered(tools: ToolClient) -> None:
    names = [f"port-{n}" for n in range(6)]
    found: list[dict[str, Any]] = []

    def claim(name: str) -> None:
        found.append(tools.document("claim", resources=name))

    threads = [threading.Thread(target=claim, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert [x["status"] for x in found] == ["claimed"] * 6
    assert len({x["lease"]["token"] for x in found}) == 6
    own = tools.document("status", mine=True)
    held = own["leases"]
    assert own["warnings"] == []
    assert sorted(x["resource"] for x in held) == names


def test_reading_needs_no_email(tools: ToolClient, jo: Path) -> None:
    write_task(jo, "F001")
    git(jo, "config", "--unset", "user.email")
    assert tools.document("status")["leases"] == []
    assert tools.text("next").startswith("task: F001")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("claim", {"resources": "F001"}),
        ("next", {"claim": True}),
        ("renew", {}),
        ("note", {"resources": "F001", "text": "x"}),
        ("release", {"resources": "F001"}),
        ("status", {"mine": True}),
    ]
    for tool, arguments in calls:
        error = tools.document(tool, **arguments)["error"]
        assert (error["code"], "user.email" in error["message"]) == ("invalid", True)


@pytest.mark.parametrize("door", ["tool", "next", "library"])
def test_a_claim_warns_once_of_dead_hooks(tools: ToolClient, jo: Path, door: str) -> None:
    def warnings(name: str) -> Sequence[str]:
        if door == "library":
            leases = gitlease.open(jo)
            leases.claim(name)
            return leases.warnings
        write_task(jo, name)
        given: dict[str, Any] = {"claim": True} if door == "next" else {"resources": name}
        found: list[str] = tools.document("next" if door == "next" else "claim", **given)[
            "warnings"
        ]
        return found

    assert run_gitlease(("hooks", "install"), jo).returncode == 0
    git(jo, "config", "core.hooksPath", ".husky/_")
    told = [any("core.hooksPath" in x for x in warnings(name)) for name in ("F001", "F002")]
    assert told == [True, False]


# --- waiting --------------------------------------------------------------------------------------


async def wait_for(client: Client, progress: ProgressFnT) -> types.CallToolResult:
    return await client.call_tool("wait", {"resources": "F001"}, progress_callback=progress)


@pytest.mark.parametrize("era", ERAS)
def test_a_wait_tells_how_it_goes_and_ends_when_it_is_free(
    jo: Path, kim: gitlease.Leases, era: Era
) -> None:
    kim.claim("F001")
    told = threading.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.set()

    def free() -> None:
        assert told.wait(LONG)
        kim.release("F001")

    releasing = threading.Thread(target=free)
    releasing.start()
    with in_memory(jo, era) as client:
        found = client.portal.call(partial(wait_for, client.client, progress))
        releasing.join(LONG)
        assert not found.is_error
        assert client.document("status")["leases"] == []


def test_a_wait_in_vain_says_who_still_has_it(tools: ToolClient, kim: gitlease.Leases) -> None:
    kim.claim("F001")
    error = tools.document("wait", resources="F001", timeout=1)["error"]
    assert (error["code"], error["holder"]) == ("wait_timeout", KIM)


def test_a_wait_ends_when_its_client_goes(jo: Path, kim: gitlease.Leases) -> None:
    kim.claim("F001")
    told = threading.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.set()

    with in_memory(jo) as client:
        asked = client.portal.start_task_soon(partial(wait_for, client.client, progress))
        assert told.wait(LONG)
        asked.cancel()
    assert kim.show("F001")[0].holder == KIM
    kim.release("F001")
    kim.claim("F001", new=True)  # nobody stands in line before


def test_what_was_lost_of_several_is_told(tools: ToolClient) -> None:
    tools.document("claim", resources=["a", "b", "c"])
    tools.document("release", resources=["b", "c"])
    answer = tools.ask("renew", resources=["a", "b", "c"])
    found = answer.structured_content
    assert answer.is_error, "or the agent goes on with what is not its own any more"
    assert found["error"]["code"] == "lost"
    assert [x["resource"] for x in found["refused"]] == ["b", "c"]
    assert [x["resource"] for x in found["leases"]] == ["a"], "which was renewed"
    (content,) = answer.content
    assert isinstance(content, types.TextContent)
    first, *rest = content.text.splitlines()
    assert first.startswith("renewed a until")
    check_words(rest[0])
    check_words(rest[1])


def test_no_hint_names_an_argument_that_the_tool_lacks(tools: ToolClient, jo: Path) -> None:
    write_task(jo, "F001")
    found = tools.document("release", resources="m1", done=True)
    assert (found["error"]["code"], found["error"]["hints"]) == ("not_found", [])


def test_a_lease_that_goes_on_is_shown_with_its_token(tools: ToolClient) -> None:
    token = tools.document("claim", resources="a")["lease"]["token"]
    for text in (tools.text("renew"), tools.text("extend", resources="a", duration="2h")):
        assert f", token {token}" in text


def test_a_renewal_that_names_nothing_is_of_all(tools: ToolClient, jo: Path) -> None:
    check_words(tools.text("renew"))
    tools.document("claim", resources=["a", "b"])
    gitlease.open(jo, layer="other").claim("c")
    found = tools.document("renew", ttl="1h")
    assert [(x["resource"], x["ttl_seconds"]) for x in found["leases"]] == [
        ("a", 3_600),
        ("b", 3_600),
        ("c", 3_600),
    ]
