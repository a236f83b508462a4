"""What a request costs a gateway, counted: processes, and records that are read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from support.gateway import Served

from gitlease.store import GitRecords


@contextmanager
def processes() -> Iterator[list[str]]:
    """The gits that are started meanwhile, by their verbs."""
    started = list[str]()
    real = subprocess.Popen

    def popen(words: list[str], *rest: object, **options: object) -> object:
        verbs = ("push", "fetch", "ls-remote", "cat-file", "ls-tree", "ls-files", "rev-parse")
        started.append(next((x for x in verbs if x in words), " ".join(words)))
        return real(words, *rest, **options)  # type: ignore[call-overload]

    with mock.patch("subprocess.Popen", popen):
        yield started


@pytest.mark.parametrize("kind", ["names", "project"])
def test_a_claim_starts_no_process_but_its_push(kind: str, request: pytest.FixtureRequest) -> None:
    gate: Served = request.getfixturevalue(kind)
    gate.ask("jo", "PUT", "/v1/leases/task-api", json={}).raise_for_status()
    gate.ask("jo", "DELETE", "/v1/leases/task-api").raise_for_status()
    with processes() as started:
        gate.ask("jo", "PUT", "/v1/leases/task-api", json={}).raise_for_status()
        gate.ask("jo", "DELETE", "/v1/leases/task-api").raise_for_status()
        gate.ask("jo", "PUT", "/v1/leases/task-ui", json={}).raise_for_status()
    assert [x for x in started if x != "ls-remote"] == ["push"] * 3


def test_a_claim_reads_the_records_of_its_own_name_alone(names: Served) -> None:
    for number in range(5):
        names.ask("jo", "PUT", f"/v1/leases/F{number}", json={}).raise_for_status()
    every: Callable[..., object] = GitRecords.every
    with mock.patch.object(GitRecords, "every", autospec=True, side_effect=every) as read:
        names.ask("jo", "PUT", "/v1/leases/F9", json={}).raise_for_status()
    assert not read.called
