"""The tools themselves: what they take, how they refuse, and whom they speak for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.client import Client
from mcp.shared.dispatcher import ProgressFnT
from support.remotes import Remote
from support.repos import git, real_clone
from support.running import LONG
from support.snapshots import check_words
from support.tools import ERAS, Era, ToolClient, in_memory

import gitlease

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


def test_what_is_asked_wrongly_is_refused(tools: ToolClient) -> None:
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("claim", {"resources": ["F001"], "session": "x"}),
        ("claim", {}),
        ("claim", {"resources": ["F001", "1h"]}),
        ("release", {"resources": ["a", "b"], "done": True}),
        ("next", {"ttl": "5m"}),
        ("wait", {"resources": "a", "timeout": "2m"}),
        ("extend", {"resources": ["a", "b"], "duration": "5m"}),
        ("renew", {"scope": "login"}),
        ("status", {"resources": "a", "mine": True}),
    )
    hints = list[str]()
    for tool, arguments in calls:
        error = tools.document(tool, **arguments)["error"]
        assert error["code"] == "usage", arguments
        hints += error["hints"]
    check_words(hints)
    assert tools.document("status")["leases"] == []


@pytest.mark.slow
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


@pytest.mark.slow
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


# --- waiting --------------------------------------------------------------------------------------


async def wait_for(client: Client, progress: ProgressFnT) -> types.CallToolResult:
    return await client.call_tool("wait", {"resources": "F001"}, progress_callback=progress)


@pytest.mark.default("legacy")
@pytest.mark.slow
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


@pytest.mark.nightly
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


@pytest.mark.slow
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
