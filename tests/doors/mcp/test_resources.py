"""The resources, and the news that they changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from support.gateway import serving
from support.remotes import Remote
from support.repos import git
from support.running import LONG, hurried
from support.snapshots import raises
from support.tools import ERAS, Era, ToolClient, in_memory, over_http, over_stdio

import gitlease
from gitlease.kernel.ledger import watch as watching
from gitlease.mcp.server import BOARD, MINE

Opened = Callable[..., AbstractContextManager[ToolClient]]
LOOK = 0.5  # seconds
PLACES = ("memory", "stdio", "http")


@pytest.fixture
def pair(clones: Callable[..., list[Path]], path_remote: Remote) -> list[Path]:
    made = clones(2)
    for clone, name in zip(made, ("jo", "kim"), strict=True):
        git(clone, "config", "user.email", f"{name}@example.com")
    return made


@pytest.fixture(params=PLACES)
def opened(
    request: pytest.FixtureRequest, pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opened]:
    """Opens Jo's tools, which soon look at the remote again."""
    if request.param == "http":
        with serving(pair[0]) as gate:
            yield partial(over_http, gate.url, gate.secret("jo"))
    elif request.param == "stdio":
        program = hurried({"gitlease.kernel.ledger.watch.LOOK": LOOK})
        yield partial(over_stdio, pair[0], words=[*program[1:], "mcp"])
    else:
        monkeypatch.setattr(watching, "LOOK", LOOK)
        yield partial(in_memory, pair[0])


def read(client: ToolClient, uri: str) -> Any:
    (part,) = client.portal.call(client.client.read_resource, uri).contents
    assert part.mime_type == "application/json"
    return json.loads(part.text)  # type: ignore[union-attr]


@pytest.mark.default("memory-auto")
@pytest.mark.nightly
@pytest.mark.parametrize("era", ERAS)
def test_the_board_and_what_is_ones_own(opened: Opened, pair: list[Path], era: Era) -> None:
    gitlease.open(pair[1]).claim("F002")
    with opened(era=era) as client:
        client.document("claim", resources="F001")
        listed = client.portal.call(client.client.list_resources).resources
        assert [str(x.uri) for x in listed] == [BOARD, MINE]
        assert [x["resource"] for x in read(client, BOARD)["leases"]] == ["F001", "F002"]
        mine = read(client, MINE)
        # A claim of a client without a session begins one, which the resource does not name.
        is_named = mine["carrying"][0]["lease"]["mine"]
        assert [x["resource"] for x in mine["leases"]] == ["F001"] * is_named
        assert [(x["resource"], x["state"]) for x in read(client, MINE)["carrying"]] == [
            ("F001", "live")
        ]
        with raises(MCPError):
            read(client, "lease://else")


@pytest.mark.default("memory")
@pytest.mark.slow
def test_whoever_listens_is_told_of_changes(opened: Opened, pair: list[Path]) -> None:
    kim = gitlease.open(pair[1])
    kim.claim("F001")

    async def heard(client: ToolClient) -> None:
        with anyio.fail_after(LONG):
            async with client.client.listen(resource_subscriptions=[BOARD, MINE]) as news:
                assert {*(news.honored.resource_subscriptions or ())} == {BOARD, MINE}
                for change in (lambda: None, partial(kim.claim, "F002")):
                    await anyio.to_thread.run_sync(change)
                    told = [await anext(news), await anext(news)]
                    assert told == [ResourceUpdated(BOARD), ResourceUpdated(MINE)]

    with opened() as client:
        client.portal.call(heard, client)
        assert len(client.document("status")["leases"]) == 2, "the server goes on"


def test_a_resource_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    with in_memory(tmp_path / "bare") as client, pytest.raises(MCPError) as refused:
        read(client, BOARD)
    assert refused.value.error.data["code"] == "not_a_repository"
