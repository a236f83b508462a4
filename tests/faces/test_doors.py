"""The same stories through every door: the command line, the library, a gateway, and tools.

What is told differs by the door; what becomes of the leases, and by which code it is refused, does
not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from support.gateway import Served, serving
from support.remotes import Remote
from support.repos import git
from support.running import Desk
from support.tools import Era, ToolClient, in_memory, over_http, over_stdio

import gitlease
from gitlease.verbs import http_of

Told = tuple[str, str | None]
"""A status or a code, and who holds it."""


class Door(Protocol):
    """One person at one door; every verb answers with what it came to."""

    def claim(self, name: str, **options: Any) -> Told: ...
    def renew(self, name: str) -> Told: ...
    def extend(self, name: str, duration: str) -> Told: ...
    def release(self, name: str) -> Told: ...
    def done(self, name: str) -> Told: ...
    def held(self) -> list[str]: ...


class CommandDoor:
    """Typed in a clone of one's own."""

    def __init__(self, clone: Path, remote: Remote) -> None:
        self._desk = Desk(clone, env=remote.env)

    def _type(self, *words: str) -> Told:
        done = json.loads(self._desk.ask("--json", *words).stdout)
        if not done["ok"]:
            return done["error"]["code"], done["error"]["holder"]
        return done["status"], (done.get("lease") or {}).get("holder")

    def claim(self, name: str, **options: Any) -> Told:
        words = []
        for option, value in options.items():
            words += [f"--{option}"] if value is True else [f"--{option}", str(value)]
        return self._type("claim", name, *words)

    def renew(self, name: str) -> Told:
        return self._type("renew", name)

    def extend(self, name: str, duration: str) -> Told:
        return self._type("extend", name, duration)

    def release(self, name: str) -> Told:
        return self._type("release", name)

    def done(self, name: str) -> Told:
        return self._type("done", name, "--any")

    def held(self) -> list[str]:
        return sorted(x["resource"] for x in self._desk.document("list")["leases"])


class LibraryDoor:
    """Called in a program, on ``gitlease.open`` of a clone or through ``gitlease.connect``."""

    def __init__(self, leases: Any) -> None:
        self._leases = leases

    def _call(self, status: str, verb: Callable[[], Any]) -> Told:
        try:
            found = verb()
        except gitlease.GitleaseError as error:
            return error.code, error.holder
        return status, None if found is None else found.holder

    def claim(self, name: str, **options: Any) -> Told:
        try:
            lease = self._leases.claim(name, **options)
        except gitlease.GitleaseError as error:
            return error.code, error.holder
        return ("renewed" if lease.renewals else "claimed"), lease.holder

    def renew(self, name: str) -> Told:
        return self._call("renewed", lambda: self._leases.renew(name))

    def extend(self, name: str, duration: str) -> Told:
        return self._call("extended", lambda: self._leases.extend(name, duration))

    def release(self, name: str) -> Told:
        return self._call("released", lambda: self._leases.release(name))

    def done(self, name: str) -> Told:
        options = {"any": True} if isinstance(self._leases, gitlease.Leases) else {}
        return self._call("completed", lambda: self._leases.done(name, **options))

    def held(self) -> list[str]:
        return sorted(x.resource for x in self._leases.list())


class HttpDoor:
    """Asked over HTTP, with nothing of gitlease's."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def _ask(self, method: str, name: str, body: Any = None, **query: str) -> Told:
        answer = self._client.request(method, f"/v1/leases/{name}", json=body, params=query)
        said = answer.json()
        if answer.status_code >= 400:
            assert answer.status_code == http_of(said["code"])
            return said["code"], said["holder"]
        return said["status"], (said.get("lease") or {}).get("holder")

    def claim(self, name: str, **options: Any) -> Told:
        return self._ask("PUT", name, options)

    def renew(self, name: str) -> Told:
        return self._ask("PATCH", name, {})

    def extend(self, name: str, duration: str) -> Told:
        return self._ask("PATCH", name, {"extend": duration})

    def release(self, name: str) -> Told:
        return self._ask("DELETE", name)

    def done(self, name: str) -> Told:
        return self._ask("DELETE", name, done="true")

    def held(self) -> list[str]:
        return sorted(x["resource"] for x in self._client.get("/v1/leases").json()["leases"])


class ToolDoor:
    """Called by an agent, through the Model Context Protocol."""

    def __init__(self, client: ToolClient) -> None:
        self._client = client

    def _call(self, tool: str, **arguments: Any) -> Told:
        said = self._client.document(tool, **arguments)
        if not said["ok"]:
            return said["error"]["code"], said["error"]["holder"]
        return said["status"], (said.get("lease") or {}).get("holder")

    def claim(self, name: str, **options: Any) -> Told:
        return self._call("claim", resources=name, **options)

    def renew(self, name: str) -> Told:
        return self._call("renew", resources=[name])

    def extend(self, name: str, duration: str) -> Told:
        return self._call("extend", resources=name, duration=duration)

    def release(self, name: str) -> Told:
        return self._call("release", resources=[name])

    def done(self, name: str) -> Told:
        return self._call("release", resources=name, done=True)

    def held(self) -> list[str]:
        return sorted(x["resource"] for x in self._client.document("status")["leases"])


TOOLS: dict[str, tuple[Callable[..., AbstractContextManager[ToolClient]], Era]] = {
    "tools": (in_memory, "auto"),
    "tools-legacy": (in_memory, "legacy"),
    "tools-stdio": (over_stdio, "auto"),
    "tools-stdio-legacy": (over_stdio, "legacy"),
}
AT_MCP: dict[str, Era] = {"tools-http": "auto", "tools-http-legacy": "legacy"}
DOORS = ("command", "library", "connection", "http", *TOOLS, *AT_MCP)


SLOW = ("tools-legacy", "tools-stdio-legacy", "tools-http-legacy")


@pytest.fixture(params=[pytest.param(x, marks=[pytest.mark.slow] * (x in SLOW)) for x in DOORS])
def people(
    request: pytest.FixtureRequest,
    path_remote: Remote,
    clones: Callable[..., list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Door, Door]]:
    """Jo and Kim, at the same kind of door."""
    for name, value in path_remote.env.items():
        monkeypatch.setenv(name, value)
    names = ("jo", "kim")
    made = clones(3)
    for clone, name in zip(made, (*names, "gate"), strict=True):
        git(clone, "config", "user.email", f"{name}@example.com")
    if request.param == "command":
        yield CommandDoor(made[0], path_remote), CommandDoor(made[1], path_remote)
    elif request.param == "library":
        first, second = (gitlease.open(clone) for clone in made[:2])
        yield LibraryDoor(first), LibraryDoor(second)
    elif request.param in TOOLS:
        opened, era = TOOLS[request.param]
        with opened(made[0], era) as first_tools, opened(made[1], era) as second_tools:
            yield ToolDoor(first_tools), ToolDoor(second_tools)
    elif request.param in AT_MCP:  # the newest protocol has no sessions of its own
        with serving(made[2]) as gate:
            era = AT_MCP[request.param]
            opened_for = partial(over_http, gate.url, era=era, **{"Gitlease-Session": "run-7"})
            with (
                opened_for(token=gate.secret("jo")) as first_tools,
                opened_for(token=gate.secret("kim")) as second_tools,
            ):
                yield ToolDoor(first_tools), ToolDoor(second_tools)
    else:
        with serving(made[2]) as gate:
            yield _through(gate, request.param, "jo"), _through(gate, request.param, "kim")


def _through(gate: Served, kind: str, name: str) -> Door:
    if kind == "http":
        return HttpDoor(gate.caller(name))
    return LibraryDoor(gitlease.connect(gate.url, token=gate.secret(name)))


JO, KIM = "jo@example.com", "kim@example.com"


def test_the_same_becomes_of_leases_at_every_door(people: tuple[Door, Door]) -> None:
    """One story after the other, each about a name of its own: opening a door takes long."""
    for story in (
        _what_is_asked_wrongly_changes_nothing,
        _a_lease_is_one_persons_until_it_is_given_back,
        _a_claim_of_ones_own_renews_it_unless_it_is_to_be_new,
        _finished_work_stays_finished,
        _parts_of_the_work_are_leased_apart,
    ):
        story(*people)


def _what_is_asked_wrongly_changes_nothing(jo: Door, kim: Door) -> None:
    assert jo.claim("F001", ttl="soon")[0] == "usage"
    assert jo.claim("F001", ttl="5s")[0] == "policy"
    assert jo.claim("F001", ttl="3d")[0] == "policy"
    assert jo.extend("F001", "-5")[0] == "usage"
    assert kim.held() == []


def _a_lease_is_one_persons_until_it_is_given_back(jo: Door, kim: Door) -> None:
    assert jo.claim("F001") == ("claimed", JO)
    assert kim.claim("F001") == ("held", JO)
    assert jo.renew("F001") == ("renewed", JO)
    assert kim.renew("F001") == ("not_holder", JO)
    assert jo.extend("F001", "2h") == ("extended", JO)
    assert kim.extend("F001", "2h") == ("not_holder", JO)
    assert kim.release("F001") == ("held", JO)
    assert kim.held() == ["F001"]
    assert jo.release("F001")[0] == "released"
    assert jo.release("F001")[0] == "released", "there is nothing left to do"
    assert jo.renew("F001")[0] == "lost"
    assert kim.claim("F001") == ("claimed", KIM)
    assert jo.held() == ["F001"]


def _a_claim_of_ones_own_renews_it_unless_it_is_to_be_new(jo: Door, _kim: Door) -> None:
    assert jo.claim("F002")[0] == "claimed"
    assert jo.claim("F002")[0] == "renewed"
    assert jo.claim("F002", new=True) == ("held", JO)


def _finished_work_stays_finished(jo: Door, kim: Door) -> None:
    assert jo.claim("F003")[0] == "claimed"
    assert kim.done("F003")[0] == "held"
    assert jo.done("F003")[0] == "completed"
    assert kim.claim("F003")[0] == "policy"
    assert kim.claim("F003", reopen=True) == ("claimed", KIM)


def _parts_of_the_work_are_leased_apart(jo: Door, kim: Door) -> None:
    assert jo.claim("F004", scope="api")[0] == "claimed"
    assert kim.claim("F004", scope="ui") == ("claimed", KIM)
    assert kim.claim("F004", scope="api") == ("held", JO)
    assert kim.claim("F004")[0] == "held"
