"""The ref of a ledger was deleted on a real remote: what commands say, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.remotes import Remote
from support.repos import git
from support.running import Desk

pytestmark = pytest.mark.slow

REF = "refs/gitlease/global"


def test_a_deleted_ledger_comes_back_and_waits(
    clones: Callable[..., list[Path]], path_remote: Remote
) -> None:
    """S2, S3, S8: with a lease that the restoring clone had not seen."""
    ada, bob = map(Desk, clones(2))
    ada.document("claim", "F001", "--any")
    mine = bob.document("claim", "F002", "--any")["lease"]
    git(path_remote.bare, "update-ref", "-d", REF)
    for desk in (ada, bob):
        error = desk.document("claim", "F003", "--any", expect=7)["error"]
        assert error["code"] == "rollback"
    told = ada.document("init", "--restore")
    assert any("nothing new is granted until" in text for text in told["warnings"])
    refused = ada.document("claim", "F003", "--any", expect=6)["error"]
    assert refused["code"] == "policy"
    assert "nothing new is granted until" in refused["message"]
    assert not any("--now" in text for text in [*refused["hints"], *refused["next"]])
    again = bob.document("renew", "F002")["lease"]
    assert (again["lease_id"], again["token"]) == (mine["lease_id"], mine["token"])
    bob.document("done", "F002", "--any")
    ada.document("init", "--restore", "--now")
    new = bob.document("claim", "F003", "--any")["lease"]
    assert new["token"] > mine["token"]
    bob.document("verify")
    kinds = [event["kind"] for event in bob.document("log")["events"]]
    decided = [kind for kind in kinds if kind != "renewed"]
    assert decided == ["claimed", "wait_ended", "completed", "put_back", "restored", "claimed"]


def test_what_makes_no_sense_together_is_said(clones: Callable[..., list[Path]]) -> None:
    (ada,) = map(Desk, clones(1))
    for words in (("--now",), ("--restore", "--new-ledger"), ("--restore", "--undo-rollback")):
        assert ada.document("init", *words, expect=2)["error"]["code"] == "usage"
    assert ada.document("init", "--restore", expect=7)["error"]["code"] == "invalid"
    ada.document("config", "--ledger", "ttl_max", "25h", expect=2)
    ada.document("config", "--ledger", "ttl_max", "24h")
