"""A server's hook and a ledger whose ref was deleted: it is put back, waits, and nothing else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kernel.rules.values import claim as claims
from kernel.rules.values import fresh, set_policy
from support.forge import JO, KIM, Draft, Forge
from support.remotes import Servers
from support.repos import git
from support.served import REF, Host, serve

from gitlease.check.replay import check_past
from gitlease.kernel.git.run import SystemClock
from gitlease.kernel.ledger.deleted import restore
from gitlease.kernel.rules.errors import LeaseHeld, PolicyRefused
from gitlease.kernel.rules.moves.operations import EndWait, Operation, PutBack, Restore
from gitlease.server.receive import receive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """A repository with a ledger, whose admin is Jo."""
    with serve("path", tmp_path_factory.mktemp("deleted"), servers) as host:
        forge = Forge(host.folder / "made.git", host.bare, actor=JO)
        draft = forge.first(set_policy(JO, admins=JO.holder))
        assert forge.push(str(host.bare), forge.write(draft)).returncode == 0
        for step in (claims(KIM, "F001"), claims(KIM, "F002")):
            made = forge.write(forge.honest(step, actor=KIM))
            assert forge.push(str(host.bare), made).returncode == 0
        return host.bare


@pytest.fixture
def forge(host: Host, tmp_path: Path) -> Forge:
    return Forge(tmp_path / "kim.git", host.bare, actor=JO)


def restores() -> Restore:
    return Restore(id=fresh(), actor=JO, above=0, waits=True)


def deleted(host: Host) -> str:
    """Delete the ref; what it was."""
    before = host.tip()
    git(host.bare, "update-ref", "-d", REF)
    return before


def judged(forge: Forge, made: str, user: str = "jo") -> str:
    """The rule that a push in quarantine breaks; ``""`` for none."""
    old = forge.tip() or "0" * 40
    told = receive(
        f"{old} {made} {REF}\n".encode(),
        environ=forge.environ(GL_USER=user),
        clock=SystemClock(),
        directory=str(forge.server),
        replay=check_past,
    )
    assert told.blocked == bool(told.refusals)
    return told.refusals[0].rule if told.refusals else ""


def step(forge: Forge, base: str, *operations: Operation, **more: object) -> Draft:
    return forge.honest(*operations, base=base, actor=operations[0].actor, **more)  # type: ignore[arg-type]


def test_a_deleted_ledger_is_put_back_by_an_admin_alone(host: Host, forge: Forge) -> None:
    """S2: with the wait, and on the past as it was."""
    base = deleted(host)
    draft = step(forge, base, restores())
    made = forge.write(draft)
    assert judged(forge, made) == ""
    assert judged(forge, made, "kim") == "identity"
    stolen = replace(restores(), actor=KIM)
    assert judged(forge, forge.write(draft.naming(stolen)), "kim") == "restore"
    honest = replace(draft, record=replace(draft.record, operations=(stolen,)), actor=KIM)
    assert judged(forge, forge.write(honest.told(by=KIM.holder)), "kim") == "restore"


def test_no_restoration_is_forged(host: Host, forge: Forge) -> None:
    """S2 and S4: a lower epoch, no wait, a past that was never legal, a grant on top of it."""
    base = deleted(host)
    draft = step(forge, base, restores())
    token = draft.ledger.header
    assert judged(forge, forge.write(draft.header(epoch=token.epoch - 1))) == "header"
    assert judged(forge, forge.write(draft.header(closed_until=None))) == "header"
    late = forge.write(step(forge, base, restores(), at=forge.later(3_600)))
    assert judged(forge, late) == "clock"
    usurped = step(forge, base, claims(KIM, "F003")).lease("F003", holder=JO.holder)
    assert judged(forge, forge.write(step(forge, forge.write(usurped), restores()))) == "record"
    # Only the restoration itself may make the ref; whatever else comes when it is there.
    made = forge.write(draft)
    more = forge.write(step(forge, made, EndWait(id=fresh(), actor=JO)))
    assert judged(forge, more) != ""
    assert judged(forge, base) != ""


def test_a_ledger_that_is_there_is_not_restored(host: Host, forge: Forge) -> None:
    assert judged(forge, forge.write(step(forge, host.tip(), restores()))) == "restore"


def test_during_the_wait_leases_are_put_back_and_none_granted(host: Host, forge: Forge) -> None:
    """S2 and S7: by their own holder, with what they had; an admin alone ends the wait."""
    newest = forge.ledger()
    lease = next(x for x in newest.every_lease() if x.resource.text == "F002")
    base = forge.parents(deleted(host))[0]
    restored = forge.write(step(forge, base, restores()))
    assert forge.push(str(host.bare), restored, env={"GL_USER": "jo"}).returncode == 0
    back = PutBack(id=fresh(), actor=KIM, leases=(lease,))
    assert judged(forge, forge.write(step(forge, restored, back)), "kim") == ""
    theirs = replace(back, id=fresh(), actor=JO)
    stolen = step(forge, restored, back).naming(theirs)
    assert judged(forge, forge.write(replace(stolen, actor=JO))) != ""
    granted = step(forge, base, claims(KIM, "F009"))
    grant = replace(granted, base=restored, parents=(restored,))
    assert judged(forge, forge.write(grant.header(**_closed(forge, restored))), "kim") == "policy"
    ends = step(forge, restored, EndWait(id=fresh(), actor=JO))
    assert judged(forge, forge.write(ends)) == ""
    assert judged(forge, forge.write(ends), "kim") == "identity"


def _closed(forge: Forge, version: str) -> dict[str, Any]:
    header = forge.ledger(version).header
    return {"closed_until": header.closed_until, "format": header.format, "epoch": header.epoch}


def test_the_admins_clone_restores_and_the_holder_goes_on(host: Host) -> None:
    """L3: with a lease that the admin's clone had not seen."""
    jo, kim = host.person("jo"), host.person("kim")
    jo.claim("F005")
    lease = kim.claim("F007")
    deleted(host)
    with mock.patch.dict(os.environ, kim.env), pytest.raises(PolicyRefused):
        restore(kim.at().ledger)
    with mock.patch.dict(os.environ, jo.env):
        restore(jo.at().ledger)
    again = kim.claim("F007")
    assert (again.token, again.lease_id) == (lease.token, lease.lease_id)
    with pytest.raises(LeaseHeld):
        jo.claim("F007")
    with pytest.raises(PolicyRefused):
        kim.claim("F008")
