"""A landing that was killed leaves a task done here alone: what a claim of it says then."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lander import make_landings
from support.ledgers import workspace
from support.remotes import Remote

from gitlease.kernel.rules.errors import PolicyRefused
from gitlease.library.leases import Leases

pytestmark = pytest.mark.slow


def test_a_claim_names_the_landing_to_go_on_with(path_remote: Remote, tmp_path: Path) -> None:
    jo = make_landings(path_remote, tmp_path / "at").jo
    jo.begins()
    jo.land(push=False)
    leases = Leases(workspace(jo.root, clock=jo.clock))
    with pytest.raises(PolicyRefused, match=r"is done, says .*, but not in origin/main") as caught:
        leases.claim("F001")
    assert "gitlease land F001" in caught.value.hints[0]
    leases.release("F001")
    with pytest.raises(PolicyRefused, match="but not in origin/main") as caught:
        leases.claim("F001")
    assert not any("land" in hint for hint in caught.value.hints), "nobody holds it"
    leases.claim("F001", reopen=True)
    jo.land()
    with pytest.raises(PolicyRefused, match=r"is done, says tasks/F001.md") as caught:
        leases.claim("F001")
    assert "but not in" not in str(caught.value), "it has landed"
