"""What a gateway pushes to a server with the hook: the steps of others, which nobody else may."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from support.forge import JO, KIM, Draft, Forge
from support.illegal import barrier, claim, fresh, revoke
from support.remotes import Servers
from support.repos import git, real_clone
from support.served import Host, own_program, serve
from support.snapshots import check_words, raises

from gitlease.gateway.opening import open_gateway
from gitlease.kernel.git.repository import discover
from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.lease import Actor
from gitlease.kernel.rules.moves.operations import Operation, SetPolicy
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.store.records import operations_line
from gitlease.server.install import install_server, uninstall_server
from gitlease.server.settings import server_settings

pytestmark = pytest.mark.slow

GATE = Actor("gate@example.com")


@pytest.fixture
def host(tmp_path: Path, servers: Servers) -> Iterator[Host]:
    """A server where the user ``gate`` is a gateway, and jo and kim are as everywhere."""
    with serve("path", tmp_path, servers) as found:
        found.install()
        install_server(
            discover(str(found.bare)), gateways=["gate"], program=str(own_program(tmp_path))
        )
        yield found


@pytest.fixture
def forge(host: Host, tmp_path: Path) -> Forge:
    return Forge(tmp_path / "gate.git", host.bare)


def mapped(host: Host) -> None:
    """The gateway is a holder as well."""
    git(host.bare, "config", "gitlease.gate.holder", GATE.holder)


def begin(host: Host, forge: Forge) -> None:
    assert push(host, forge, forge.first(barrier()), by="kim").returncode == 0


def push(host: Host, forge: Forge, draft: Draft, *, by: str) -> subprocess.CompletedProcess[str]:
    return forge.push(str(host.bare), forge.write(draft), env={"GL_USER": by})


def drafted(forge: Forge, *operations: Operation) -> Draft:
    return forge.honest(*operations, actor=operations[0].actor)


def refused(done: subprocess.CompletedProcess[str], rule: str, said: str) -> None:
    assert done.returncode == 1, done.stderr
    assert f"({rule}): " in done.stderr
    assert said in done.stderr


def policy(who: Actor, admins: str) -> SetPolicy:
    return SetPolicy(id=fresh(), actor=who, changes=(("admins", admins),))


@pytest.mark.default
def test_a_gateway_joins_the_steps_of_many_and_the_server_takes_them(
    host: Host, tmp_path: Path
) -> None:
    real_clone(host.bare, tmp_path / "gateway", GATE.holder)
    people = [f"p{n}@example.com" for n in range(6)]
    with mock.patch.dict(os.environ, {"GL_USER": "gate"}):
        gateway = open_gateway(str(tmp_path / "gateway"))
        asked = [
            gateway.joiner.ask(who, [claim(who, f"F{n}")], together=True, what="a claim")
            for n, who in enumerate(map(Actor, people))
        ]
        assert all(one.result(60).applied.changed for one in asked)
        gateway.close()
    messages = git(host.bare, "log", "--format=%B%x00", "refs/gitlease/global").split("\0")
    steps = [json.loads(line) for text in messages if (line := operations_line(text))]
    holders = [{json.dumps(x.get("actor", step["actor"])) for x in step["do"]} for step in steps]
    assert max(map(len, holders)) > 1, "no step is of several holders"
    ledger = Forge(tmp_path / "look.git", host.bare).ledger()
    assert sorted(x.holder for x in ledger.every_lease()) == people


@pytest.mark.nightly
def test_the_same_step_is_refused_from_anybody_else(host: Host, forge: Forge) -> None:
    begin(host, forge)
    step = drafted(forge, claim(KIM, "F001"), claim(JO, "F002"))
    refused(push(host, forge, step, by="kim"), "identity", "in one step")
    refused(push(host, forge, step, by="jo"), "identity", "written as kim@example.com")
    refused(push(host, forge, step, by="gate"), "identity", "names a gateway if")
    joined = replace(step, record=step.record.brought_by(GATE.holder), actor=GATE)
    assert push(host, forge, joined, by="gate").returncode == 0
    assert {forge.lease(x).holder for x in ("F001", "F002")} == {KIM.holder, JO.holder}


def test_a_gateway_is_known_by_who_pushes_and_never_by_what_it_says(
    host: Host, forge: Forge
) -> None:
    """A holder, a committer or an actor of that name is no gateway."""
    begin(host, forge)
    git(host.bare, "config", "gitlease.kim.holder", GATE.holder)
    step = drafted(forge, claim(GATE, "F001"), claim(JO, "F002"))
    refused(push(host, forge, step, by="kim"), "identity", "in one step")
    named = drafted(forge, claim(replace(JO, holder="gate"), "F001"))
    refused(push(host, forge, named, by="kim"), "identity", "written as gate")
    refused(push(host, forge, step, by="Gate"), "identity", "Gate is not an email")


def test_admins_govern_through_a_gateway_that_is_an_admin_itself(host: Host, forge: Forge) -> None:
    begin(host, forge)
    mapped(host)
    none = "which is not an admin of the ledger"
    first = drafted(forge, policy(JO, JO.holder))
    refused(push(host, forge, first, by="gate"), "gateway", none)
    assert push(host, forge, first, by="jo").returncode == 0
    assert push(host, forge, drafted(forge, claim(KIM, "F001")), by="gate").returncode == 0
    ends = drafted(forge, revoke(JO, "F001"))
    refused(push(host, forge, ends, by="gate"), "gateway", none)
    both = f"{JO.holder} {GATE.holder}"
    refused(push(host, forge, drafted(forge, policy(JO, both)), by="gate"), "gateway", none)
    mixed = drafted(forge, claim(KIM, "F009"), revoke(JO, "F001"))
    refused(push(host, forge, mixed, by="gate"), "gateway", none)
    assert push(host, forge, drafted(forge, policy(JO, both)), by="jo").returncode == 0
    assert push(host, forge, drafted(forge, revoke(JO, "F001")), by="gate").returncode == 0
    assert not forge.ledger().leases_of(parse_resource("F001"))


@pytest.mark.nightly
def test_gateways_are_set_by_install_and_gone_with_uninstall(host: Host, tmp_path: Path) -> None:
    def gateways() -> tuple[str, ...]:
        return server_settings(discover(str(host.bare))).gateways

    def install(names: list[str] | None) -> list[str]:
        program = str(own_program(tmp_path))
        done = install_server(discover(str(host.bare)), gateways=names, program=program)
        return list(done.changes)

    assert gateways() == ("gate",)
    assert install(None) == []
    assert install(["gate", "gate"]) == []
    check_words(install(["one", "two"]))
    assert gateways() == ("one", "two")
    check_words(install(["two"]))
    assert gateways() == ("two",)
    for bad in ("", "-x", "a\x1b"):
        with pytest.raises(UsageError):
            install([bad])
    assert gateways() == ("two",)
    check_words(uninstall_server(discover(str(host.bare))).changes)
    assert gateways() == ()
    with raises(UsageError):
        install(["gate"])


def test_no_client_makes_itself_a_gateway(host: Host, forge: Forge) -> None:
    begin(host, forge)
    step = drafted(forge, claim(KIM, "F001"), claim(JO, "F002"))
    named = {"GIT_CONFIG_KEY_0": "gitlease.gateways", "GIT_CONFIG_VALUE_0": "kim"}
    new = forge.write(step)
    for env in (
        {"GIT_CONFIG_PARAMETERS": "'gitlease.gateways'='kim'"},
        {"GIT_CONFIG_COUNT": "1", **named},
    ):
        done = forge.push(str(host.bare), new, env={"GL_USER": "kim", **env})
        refused(done, "identity", "in one step")
