"""What a request costs a gateway, counted: processes, and records that are read."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from support.gateway import Served
from support.running import LONG

from gitlease.kernel.git.objects import COMMIT, PipedObjects
from gitlease.kernel.ledger.transaction import Step, fresh_id
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.moves.operations import Claim
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.libgit import FEW, LibgitObjects
from gitlease.kernel.store.tree import GitRecords


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


def test_a_step_of_many_is_one_pack_and_one_push(names: Served) -> None:
    for first in ("F0", "F00"):  # the first step is read back, and no other
        names.ask("jo", "PUT", f"/v1/leases/{first}", json={}).raise_for_status()
    objects, gateway = names.folder / ".git/gitlease/store.git/objects", names.app.gateway
    before, pushed = files_in(objects), gateway.joiner.steps
    read = LibgitObjects.read
    with (
        processes() as started,
        mock.patch("os.replace", side_effect=os.replace) as moved,
        mock.patch.object(LibgitObjects, "read", autospec=True, side_effect=read) as reads,
    ):
        asked = list[Future[Step]]()
        for n in range(60):
            who = Actor(f"p{n}@example.com")
            operation = Claim(
                id=fresh_id(), actor=who, resource=parse_resource(f"F{n + 1}"), lease_id=fresh_id()
            )
            asked.append(gateway.joiner.ask(who, [operation], together=True, what="a claim"))
        assert all(one.result(LONG).applied.changed for one in asked)
    steps = gateway.joiner.steps - pushed
    assert steps <= 4, "what comes while one is pushed goes along in the next"
    assert started == ["push"] * steps
    new = files_in(objects) - before
    assert sum(x.suffix == ".pack" for x in new) >= 1
    assert len(new) <= 2 * steps + FEW * (steps - 1)
    # Beside packs what is pending and what is known.
    packs = sum(x.suffix in (".pack", ".idx") for x in new)
    assert moved.call_count == packs + 2 * steps
    kinds = [call.args[2] for call in reads.call_args_list]
    assert set(kinds) == {COMMIT}, "no tree and no record is read that this gateway wrote"
    assert len(kinds) <= 4 * steps


def files_in(folder: Path) -> set[Path]:
    return {x for x in folder.rglob("*") if x.is_file()}


def test_a_claim_reads_the_records_of_its_own_name_alone(names: Served) -> None:
    for number in range(5):
        names.ask("jo", "PUT", f"/v1/leases/F{number}", json={}).raise_for_status()
    every: Callable[..., object] = GitRecords.every
    with mock.patch.object(GitRecords, "every", autospec=True, side_effect=every) as read:
        names.ask("jo", "PUT", "/v1/leases/F9", json={}).raise_for_status()
    assert not read.called


def test_what_was_read_once_is_not_read_again(project: Served) -> None:
    """Of the next state only what differs; and task files once a second, whoever asks.

    The clock of this gateway stands still.
    """

    def ask() -> None:
        project.ask("jo", "PUT", "/v1/leases/task-api", json={}).raise_for_status()
        for path in ("/v1/leases", "/v1/leases/task-api", "/lfs/locks"):
            project.ask("kim", "GET", path).raise_for_status()
        project.ask("jo", "DELETE", "/v1/leases/task-api").raise_for_status()

    read = PipedObjects.read
    ask()
    with (
        processes() as started,
        mock.patch.object(PipedObjects, "read", autospec=True, side_effect=read) as reads,
    ):
        ask()
    assert {*started} == {"push", "ls-remote"}
    kinds = Counter(call.args[2] for call in reads.call_args_list)
    assert {*kinds} <= {COMMIT}
    assert kinds[COMMIT] <= 12, "not the past again"
