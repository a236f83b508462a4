"""The calls that an answer suggests name the layer and the session that they need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.gateway import serving
from support.remotes import Remote
from support.tools import ToolClient, in_memory, over_http

pytestmark = pytest.mark.default


def calls(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The tools and arguments of the suggested calls."""
    split = (text.split(" ", 1) for text in document["next"])
    return [(tool, json.loads(given)) for tool, given in split]


def all_work(tools: ToolClient, document: dict[str, Any]) -> None:
    found = calls(document)
    assert found
    for tool, given in found:
        assert tools.document(tool, **given)["ok"], (tool, given)


def test_a_call_in_a_layer_leads_to_calls_there(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    mine, other = clones(2)
    with in_memory(mine) as tools, in_memory(other) as others:
        claimed = tools.document("claim", resources=["F001"], any=True, layer="sub")
        refused = others.document("claim", resources=["F001"], any=True, layer="sub")
        assert all(given["layer"] == "sub" for _, given in calls(refused["error"]))
        all_work(tools, claimed)
        assert not tools.document("status", layer="sub")["leases"]


def test_a_client_without_a_session_is_told_the_one_it_got(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    with serving(clones(1)[0]) as gate, over_http(gate.url, gate.secret("jo"), "auto") as tools:
        all_work(tools, tools.document("claim", resources=["F001"], any=True, layer="sub"))
        assert not tools.document("status", layer="sub")["leases"]
