"""Every verb at every door: each parameter arrives at the verb as it was given.

The cases are generated from the table, so that a new verb or parameter is tried by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from doors.fake import make_desks
from support.tasks import task

import gitlease
from gitlease.gateway.routes import ROUTES, ApiRequest, ApiRoute
from gitlease.kernel.ledger.messages import Messages
from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.resources import parse_resource
from gitlease.library.leases import Leases
from gitlease.library.methods import OF_A_CLONE, OF_A_GATEWAY, Method
from gitlease.mcp.server import TOOLS, LeaseTool
from gitlease.verbs.table import COMMAND, TABLE, Door, Parameter, find_verb, read_values

# By the type in Python: a word as typed, as JSON, and the value that the verb gets.
SAMPLES: Mapping[str, tuple[str, Any, Any]] = {
    "ResourceLike": ("F007", "F007", parse_resource("F007")),
    "Iterable[ResourceLike]": ("F007", ["F007"], [parse_resource("F007")]),
    "Iterable[str]": ("seven", ["seven"], ["seven"]),
    "Iterable[StrPath]": ("docs/a.md", ["docs/a.md"], [parse_resource("path:docs/a.md")]),
    "Duration": ("1m", "1m", 60),
    "Duration | datetime": ("1970-01-01T00:00:07Z", "1970-01-01T00:00:07Z", 7_000),
    "int": ("7", 7, 7),
    "str": ("seven", "seven", "seven"),
    'Literal["rebase", "merge"]': ("merge", "merge", "merge"),
    "str | Sequence[str]": ("make test", ["make", "test"], ("make", "test")),
    "Sequence[str]": ("true", ["true"], ("true",)),
    "StrPath": ("docs", "docs", "docs"),
    "Callable[[WorkEvent], object]": ("", print, print),
    "bool": ("", True, True),
    "bool | Duration": ("7m", "7m", 420),
}
# Options of the command line alone, without which it does something else.
BESIDES = {"board": ("--once",)}
USAGE = {"run": 125}  # any other status is that of the command


# Values in JSON that are wrong for every parameter of a type.
WRONG: Mapping[str, list[Any]] = {
    "Iterable[ResourceLike]": [[], [7], {"F001": 1}, 7, ["F001"] * 65, ["../x"]],
    "Iterable[StrPath]": [[], [7], 7, ["../x"]],
    "Duration": ["soon", "", -5, 0, True, 1.5, [5], {}],
    "Duration | datetime": ["soon", -5, True, []],
    "int": ["x", 0, -1, True, 1.5, []],
    "str": [7, True, [], {}],
    'Literal["rebase", "merge"]': ["squash", 7, True, []],
    "str | Sequence[str]": ["", "'", [], [7], 7, {}],
    "bool": ["yes", 0, 1, []],
}


# What is typed wrongly for every parameter of a type.
MISTYPED: Mapping[str, list[str]] = {
    "ResourceLike": ["a b", "../x"],
    "Iterable[ResourceLike]": ["a b", "../x"],
    "Iterable[StrPath]": ["../x", "!x"],
    "Duration": ["soon", "0", "-1"],
    "Duration | datetime": ["soon"],
    "int": ["x", "0"],
    'Literal["rebase", "merge"]': ["squash"],
    "str | Sequence[str]": ["'", " "],
}


def mistyped(one: Parameter) -> list[str]:
    """Words that are wrong for a parameter; a text is limited, on lines that print."""
    limit: Any = one.kind.schema.get("maxLength", 128)
    texts = [" ", "x" * (limit + 1), "n\udce9"]
    limited = "maxLength" in one.kind.schema or one.name == "scope"
    return MISTYPED.get(one.kind.python, texts if limited else [])


class WatchedVerb:
    """A verb that keeps what it was called with, and then refuses."""

    def __init__(self, name: str) -> None:
        self.declared, self.values = find_verb(name), dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.declared, name)

    def answer(self, _door: object, **values: Any) -> None:
        self.values = values
        raise UsageError("enough was seen")


def offered(door: str) -> list[Any]:
    return [
        pytest.param(name, one, id=f"{name}-{one.name}")
        for name in TABLE
        for one in find_verb(name).at(door).values()
    ]


@pytest.mark.parametrize(("name", "one"), offered(COMMAND))
def test_a_parameter_arrives_from_the_command_line(
    name: str, one: Parameter, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, (ada, _) = WatchedVerb(name), make_desks(task("F007"))
    monkeypatch.setattr("gitlease.cli.app.find_verb", lambda _name: verb)
    words, expected = [*name.split(), *BESIDES.get(name, ())], dict[str, Any]()
    for other in verb.at(COMMAND).values():
        before = other.positional and one.positional and one.name not in expected
        if verb.runs and other.name == "command":
            expected["command"] = ("true",)
            continue
        if other.name == one.name or other.required or before:
            typed, _, expected[other.name] = SAMPLES[other.kind.python]
            option = other.words.partition("/")[0].split()[-1]
            words += [typed if other.positional else f"{option}={typed}" if typed else option]
    ran = ada.run(*words, *(["--", "true"] if verb.runs else []))
    assert (verb.values, ran.code) == (expected, USAGE.get(name, 2)), ran.err


@pytest.mark.parametrize(("name", "one"), [x for x in offered(COMMAND) if mistyped(x.values[1])])
def test_a_mistyped_word_is_refused_before_anybody_is_asked(name: str, one: Parameter) -> None:
    (ada, _), verb = make_desks(task("F007")), find_verb(name)
    for wrong in mistyped(one):
        words = name.split()
        for other in verb.at(COMMAND).values():
            if verb.runs and other.name == "command":
                continue
            if other.name == one.name or other.required:
                typed = wrong if other.name == one.name else SAMPLES[other.kind.python][0]
                option = other.words.partition("/")[0].split()[0]
                words += [typed] if other.positional else [option, typed]
        ran = ada.run(*words, *(["--", "true"] if verb.runs else []))
        seen = (ran.code, ran.out, ada.store.remote.asked)
        assert seen == (USAGE.get(name, 2), "", 0), (words, ran.err)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        pytest.param(method, name, id=f"{method.name}-{name}")
        for method in OF_A_CLONE
        for name in method.parameters
    ],
)
def test_a_parameter_arrives_from_a_method(
    method: Method, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, (ada, _) = WatchedVerb(method.verb), make_desks(task("F007"))
    monkeypatch.setattr("gitlease.library.methods.find_verb", lambda _name: verb)
    monkeypatch.setattr(Leases, "_to_run", lambda self, *_, **__: self._door)
    options = {"session": None, "no_session": False, "local": False, "layer": None}
    given, expected = sampled(method.parameters, name, *["resources"] * method.one)
    expected |= method.given
    if method.one and "resources" in given:
        [given["resource"]] = given.pop("resources")
    several = any(x.kind is x.VAR_POSITIONAL for x in method.signature.parameters.values())
    words = given.pop("resources", ()) if several else ()
    words = [given.pop("command"), *words] if words and "command" in given else words
    with pytest.raises(UsageError, match="enough was seen"):
        getattr(Leases(ada.open(".", **options)), method.name)(*words, **given)
    assert verb.values == expected


def sampled(known: Mapping[str, Parameter], *names: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values for the parameters of these names and whatever else is required; what arrives."""
    given, expected = dict[str, Any](), dict[str, Any]()
    for name, one in known.items():
        if name in names or one.required:
            _, given[name], expected[name] = SAMPLES[one.kind.python]
    return given, expected


class RootDoor(Door):
    """A caller for whom words are names, or paths from the root."""

    alone = True

    def now(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def ledger(self) -> Any:
        raise AssertionError("no verb is carried out here")

    queue = ledger


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        pytest.param(tool, name, id=f"{tool.name}-{name}")
        for tool in TOOLS.values()
        if tool.name in TABLE and tool.name != "status"  # which is not the verb
        for name in tool.takes
    ],
)
def test_a_parameter_arrives_from_a_tool(
    tool: LeaseTool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, caught = RootDoor(), list[WatchedVerb]()

    def watched(verb: str) -> Any:
        caught.append(WatchedVerb(verb))
        return caught[-1]

    monkeypatch.setattr("gitlease.mcp.server.find_verb", watched)
    monkeypatch.setattr("gitlease.mcp.server.LONGEST_WAIT", 1_000)  # this door's own bound
    arguments, expected = sampled(tool.takes, name, "resources")
    values = read_values(tool.takes, door, arguments, what=tool.name)
    with pytest.raises(UsageError, match="enough was seen"):
        tool.act(door, **values)
    [verb] = caught
    if verb.declared.name == "done":
        assert expected.pop("done") is True
    if "resource" in verb.values:
        [expected["resource"]] = expected.pop("resources")
    assert {x: verb.values[x] for x in expected} == expected


@pytest.mark.parametrize(
    ("route", "name"),
    [
        pytest.param(route, name, id=f"{route.name}-{name}")
        for route in ROUTES
        if route.writes
        for name in sorted(route.fields.keys() - {"session", "layer"})
    ],
)
def test_a_parameter_arrives_over_http(
    route: ApiRoute, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = list[tuple[str, dict[str, Any]]]()

    def carried_out(_request: Any, _door: Any, verb: Any, values: dict[str, Any]) -> Any:
        caught.append((verb.name, values))
        return 200, {}, {}

    monkeypatch.setattr("gitlease.gateway.routes.carry_out", carried_out)
    also = {"any": "done"} if route.name == "release" else {}
    data, expected = sampled(route.fields, name, also.get(name, name))
    if route.in_query:
        data |= {x: "true" for x in data if route.fields[x].kind.switch}
    gateway = fake_gateway()
    caller = SimpleNamespace(email="jo@example.com")
    route.respond(ApiRequest(gateway, caller, "F007", data, {}, None, lambda: None))  # type: ignore[arg-type]
    [(verb, values)] = caught
    if "extend" in expected:
        expected["duration"] = expected.pop("extend")
    if expected.pop("done", False):
        assert verb == "done"
    assert values == expected
    assert values.keys() <= find_verb(verb).parameters.keys()


@pytest.mark.parametrize(
    ("method", "name"),
    [
        pytest.param(method, name, id=f"{method.name}-{name}")
        for method in OF_A_GATEWAY
        for name in method.parameters
    ],
)
def test_a_parameter_arrives_from_a_connection(
    method: Method, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the request that a connection makes of it, and the route that answers that."""
    caught = list[tuple[str, dict[str, Any]]]()

    def carried_out(request: Any, _door: Any, verb: Any, values: dict[str, Any]) -> Any:
        known = "resource" if "resource" in verb.parameters else "resources"
        named = [parse_resource(request.resource)] if request.resource else []
        placed = {known: named if known == "resources" else named[0]} if named else {}
        caught.append((verb.name, values | placed))
        raise UsageError("enough was seen")

    def asked(_self: Any, verb: str, path: str, body: Any = None, **_more: Any) -> Any:
        place, _, query = path.partition("?")
        [route] = (x for x in ROUTES if x.method == verb and fits(x.path, place))
        resource = place.rpartition("/")[2] if "{key}" in route.path else ""
        data = dict(parse_qsl(query)) if body is None else body
        gateway = fake_gateway()
        caller = SimpleNamespace(email="jo@example.com")
        route.respond(ApiRequest(gateway, caller, resource, data, {}, None, lambda: None))  # type: ignore[arg-type]

    monkeypatch.setattr("gitlease.gateway.routes.carry_out", carried_out)
    monkeypatch.setattr(gitlease.Connection, "_ask", asked)
    given, expected = sampled(method.parameters, name, "resource", "resources")
    expected |= method.given
    if method.one and "resources" in given:
        [given["resource"]] = given.pop("resources")
    with pytest.raises(UsageError, match="enough was seen"):
        getattr(gitlease.connect("http://localhost:1", token="x"), method.name)(**given)
    assert caught == [(method.verb, expected)]


def fake_gateway() -> SimpleNamespace:
    """A gateway that carries out nothing, in any layer."""
    session = SimpleNamespace(actor=Actor("jo@example.com"), messages=Messages())
    made = SimpleNamespace(session=lambda *_who, **_how: session)
    made.in_layer = lambda _layer: made
    made.take_messages = lambda *_whose: ()
    made.leave_messages = lambda *_whose, **_of: None
    return made


def fits(template: str, path: str) -> bool:
    return re.fullmatch(template.replace("{key}", "[^/:]+"), path) is not None


@pytest.mark.parametrize(
    ("name", "one"),
    [
        pytest.param(verb, one, id=f"{verb}-{one.name}")
        for verb in TABLE
        for one in find_verb(verb).parameters.values()
        if one.kind.python in WRONG
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_it(name: str, one: Parameter) -> None:
    door, known = RootDoor(), {one.name: one}
    for wrong in (x for x in WRONG[one.kind.python] if x is not one.default):
        with pytest.raises(UsageError) as refused:
            read_values(known, door, {one.name: wrong}, what=name)
        named = one.kind.python == "str" or wrong == ["../x"] or one.name in refused.value.message
        assert named, refused.value.message
