"""``keep`` at every door of a gateway: the task stays its owner's, and waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.gateway import Served
from support.tools import over_http

import gitlease

pytestmark = pytest.mark.default

AT: Any = {"Gitlease-Session": "s1"}


def by_api(served: Served) -> None:
    done = served.ask("jo", "DELETE", "/v1/leases/task-api?keep=true&note=which%20colour%3F")
    assert (done.status_code, done.json()["status"], done.json()["edge"]) == (200, "kept", "kept")


def by_api_of_several(served: Served) -> None:
    body = {"resources": ["task-api"], "keep": True}
    assert served.ask("jo", "POST", "/v1/leases:release", json=body).json()["status"] == "kept"


def by_library(served: Served) -> None:
    with gitlease.connect(served.url, token=served.secret("jo")) as leases:
        leases.release("task-api", keep=True, note="which colour?")


def by_openintent(served: Served) -> None:
    headers = {"X-API-Key": served.secret("jo"), "X-Agent-ID": "one"}
    where = f"{served.url}/v1/intents/task-api/leases"
    with httpx.Client(headers=headers, trust_env=False) as client:
        (lease,) = client.get(where).json()["leases"]
        assert client.delete(f"{where}/{lease['id']}?keep=perhaps").status_code == 400
        assert client.delete(f"{where}/{lease['id']}?keep=true").status_code == 200


def by_spor(served: Served) -> None:
    done = served.ask("jo", "POST", "/v1/nodes/task-api/reserve", content="{}").json()
    assert (done["status"], done["lease"]["reserved"]) == ("reserved", True)


def by_tool(served: Served) -> None:
    with over_http(served.url, served.secret("jo"), **AT) as client:
        done = client.document("release", resources=["task-api"], keep=True)
    assert done["status"] == "kept"


DOORS: list[Callable[[Served], None]] = [
    *(by_api, by_api_of_several, by_library, by_openintent, by_spor, by_tool),
]


@pytest.mark.parametrize("keep", DOORS, ids=lambda x: x.__name__)
def test_a_kept_task_waits_for_its_owner(project: Served, keep: Any) -> None:
    assert project.ask("jo", "PUT", "/v1/leases/task-api").status_code == 201
    keep(project)
    shown = project.ask("kim", "GET", "/v1/leases/task-api").json()
    assert (shown["leases"][0]["state"], shown["setback"]["waits"]) == ("expired", True)
    assert project.ask("kim", "PUT", "/v1/leases/task-api").status_code == 409
    picked = project.ask("jo", "POST", "/v1/tasks:next", json={"claim": True}).json()
    assert picked["task"]["resource"] == "task-ui"
    assert project.ask("jo", "PUT", "/v1/leases/task-api").json()["status"] == "claimed"
    assert project.ask("jo", "GET", "/v1/leases/task-api").json()["setback"] is None


def test_what_is_finished_is_not_kept(project: Served) -> None:
    project.ask("jo", "PUT", "/v1/leases/task-api")
    done = project.ask("jo", "DELETE", "/v1/leases/task-api?keep=true&done=true")
    assert (done.status_code, done.json()["code"]) == (400, "usage")
    with over_http(project.url, project.secret("jo"), **AT) as client:
        words = client.text("release", resources=["task-api"], keep=True, done=True)
    assert "keep and done exclude each other" in words
