"""What the library answers is all that there is to know: limits, times, and leases that ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gitlease
from gitlease.testing import MemoryLedger

pytest_plugins = ["gitlease.testing"]
pytestmark = pytest.mark.default
ADA, BOB = "ada@example.com", "bob@example.com"


def test_an_extension_names_the_maximum_when_it_is_capped(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA)
    ada.claim("F001")
    plain, capped = ada.extend("F001", "1h"), ada.extend("F001", "9h")
    assert (plain.capped, plain.max_ttl_seconds) == (False, None)
    assert (capped.capped, capped.max_ttl_seconds) == (True, 28_800)
    assert capped.expires_in == capped.max_ttl_seconds, "and that is what it got"


def test_a_refusal_says_how_long_it_is_held(gitlease_ledger: MemoryLedger) -> None:
    gitlease_ledger.open(ADA).claim("F001", ttl="28s")
    bob = gitlease_ledger.open(BOB)
    with pytest.raises(gitlease.LeaseHeld, match="Z, expires in 28s"):
        bob.claim("F001")
    gitlease_ledger.advance(seconds=8)
    with pytest.raises(gitlease.NotHolder, match="expires in 20s"):
        bob.renew("F001")


def test_a_list_of_all_has_what_ended(gitlease_ledger: MemoryLedger) -> None:
    ada = gitlease_ledger.open(ADA)
    ada.claim_all(["F001", "F002", "F003"])
    ada.release("F001")
    ada.done("F002", any=True)
    listed = {x.resource: x.state for x in gitlease_ledger.open(BOB).list(all=True)}
    assert listed == {"F001": "released", "F002": "completed", "F003": "active"}
    assert [x.resource for x in ada.list()] == ["F003"]
    (released,) = [x for x in ada.list(all=True, mine=True) if x.state == "released"]
    assert (released.holder, released.token, released.mine) == (ADA, 1, True)


@pytest.mark.parametrize("verb", ["mcp", "serve", "demo", "selftest"])
def test_a_page_of_help_offers_no_option_that_is_refused(verb: str) -> None:
    words = [sys.executable, "-m", "gitlease", verb]
    page = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True).stdout
    for option in ("--layer", "--local", "--remote", "--session"):
        value = [] if option == "--local" else ["upstream"]
        if f"  {option} " not in page:
            continue
        ran = subprocess.run([*words, option, *value], capture_output=True, text=True, cwd="/")
        assert ran.returncode != 2, ran.stderr
