"""Every endpoint holds what the OpenAPI document says of it, whatever it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.gateway import Served, serving
from support.remotes import Servers, open_remote
from support.repos import make_clone

from gitlease.faces.http import access
from gitlease.faces.http.app import OPERATIONS
from gitlease.faces.http.openapi import ApiOperation

pytestmark = [pytest.mark.slow]
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
        patch.setattr(access, "BURST", 1e9)
        for name, value in remote.env.items():
            patch.setenv(name, value)
        clone = make_clone(remote, folder / "clone", "gate@example.com", "Gate")
        with serving(Path(clone)) as served:
            yield served


@pytest.mark.parametrize("shown", OPERATIONS, ids=lambda x: x.name)
def test_an_endpoint_is_as_it_is_documented(shown: ApiOperation, gate: Served) -> None:
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
