"""A server's hook where the settings record a ledger and there is none: a new one has to wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel.rules.values import fresh, set_policy
from support.forge import JO, Forge
from support.remotes import Servers
from support.served import Host, serve

from gitlease.kernel.rules.moves.operations import Restore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Path:
    """A repository that records a ledger, and has none."""
    with serve("path", tmp_path_factory.mktemp("recorded"), servers) as host:
        jo = host.person("jo")
        jo.put(".gitlease.yaml", "lease: {ledger: 0123456789abcdef0123}\n")
        jo.git("commit", "-q", "-m", "begin")
        jo.git("push", "-q", "origin", "main")
        return host.bare


def test_new_ledger_in_the_place_of_the_recorded_one_waits(host: Host, tmp_path: Path) -> None:
    """S2: whoever makes it cannot know what the deleted one has granted."""
    forge = Forge(tmp_path / "jo.git", host.bare, actor=JO)
    at_once = forge.write(forge.first(set_policy(JO, admins=JO.holder)))
    done = forge.push(str(host.bare), at_once, env={"GL_USER": "jo"})
    assert done.returncode == 1
    assert "(recorded): .gitlease.yaml" in done.stderr
    assert "init --restore" in done.stderr
    waits = Restore(id=fresh(), actor=JO, above=0, waits=True)
    made = forge.write(forge.first(waits))
    assert forge.push(str(host.bare), made, env={"GL_USER": "jo"}).returncode == 0
    assert host.tip() == made
