"""Every endpoint holds what the OpenAPI document says of it, whatever it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies
from support.gateway import Served, serving
from support.remotes import Servers, open_remote
from support.repos import make_clone

from gitlease.gateway.routes import ROUTES, ApiRoute

pytestmark = pytest.mark.slow
schemathesis = pytest.importorskip("schemathesis")  # of the extra `dev`
about = pytest.importorskip("schemathesis.specs.openapi.checks")
CHECKS = [
    pytest.importorskip("schemathesis.checks").not_a_server_error,
    about.status_code_conformance,
    about.content_type_conformance,
    about.response_schema_conformance,
]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("schema")
    with (
        pytest.MonkeyPatch.context() as patch,
        open_remote("path", folder / "remote", servers=servers) as remote,
    ):
        remote.open_to(patch)
        clone = make_clone(remote, folder / "clone", "gate@example.com", "Gate")
        with serving(Path(clone)) as served:
            yield served


@pytest.mark.parametrize("shown", ROUTES, ids=lambda x: x.name)
def test_an_endpoint_is_as_it_is_documented(shown: ApiRoute, gate: Served) -> None:
    secret = gate.secret("jo")
    api = schemathesis.openapi.from_dict(gate.ask("jo", "GET", "/openapi.json").json())
    cases = api[shown.path][shown.method].as_strategy()

    @given(case=cases)
    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def play(case: Any) -> None:
        answer = case.call(base_url=gate.url, headers={"Authorization": f"Bearer {secret}"})
        case.validate_response(answer, checks=CHECKS)

    play()


WORDS = ["task-api", "path:..", "path:", "..", "a b", "%00", "*", "::x", "\u2028", "a" * 300, "-1"]
ENDLESS = ("/v1/events", "subscribe", "/board", "/mcp")  # streams, pages and another protocol


def _routes(gate: Served) -> list[tuple[str, str]]:
    found = [(x.path, sorted(x.methods)) for x in gate.app.routes()]  # type: ignore[attr-defined]
    return [
        (path, method)
        for path, methods in found
        for method in methods
        if method != "HEAD" and not any(word in path for word in ENDLESS)
    ]


def test_no_dialect_answers_nonsense_with_a_fault(gate: Served) -> None:
    """Every parse error of every API is a 4xx."""
    values = strategies.recursive(
        strategies.none()
        | strategies.booleans()
        | strategies.integers()
        | strategies.floats()
        | strategies.sampled_from(WORDS)
        | strategies.text(max_size=9),
        lambda some: strategies.lists(some, max_size=3),
        max_leaves=4,
    )
    names = ["scope", "ttl", "wait", "resources", "ids", "session", "dispatch", "ms", "status"]
    names += ["duration_seconds", "reason", "takeover", "extend", "paths", "title", "claim"]
    names += ["reclaim", "limit", "offset", "cursor", "path", "assignee", "note", "done"]
    routes = strategies.sampled_from(_routes(gate))
    words = strategies.lists(strategies.sampled_from(WORDS), min_size=2, max_size=2)
    some = strategies.dictionaries(strategies.sampled_from(names), values, max_size=3)
    bodies = some.map(lambda body: {"scope": "*", **body}) | some | values

    @given(route=routes, words=words, body=bodies)
    @settings(
        max_examples=1_500,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def play(route: tuple[str, str], words: list[str], body: Any) -> None:
        path, method = route
        parts = [quote(words[n % 2], safe="") for n in range(path.count("{"))]
        address = re.sub(r"{[^}]*}", lambda _found: parts.pop(), path)
        if isinstance(body, dict):
            body.pop("wait", None)
        own: dict[str, Any] = {"content": json.dumps(body)}
        if method in ("GET", "DELETE"):
            flat = body.items() if isinstance(body, dict) else ()
            own = {"params": {x: str(y).encode("utf-8", "replace") for x, y in flat}}
        answer = gate.ask("jo", method, address, **own)
        meant = (501, 503) if path.endswith("/objects/batch") else (503,)  # locks, not objects
        assert answer.status_code < 500 or answer.status_code in meant, (route, words, body)

    play()
