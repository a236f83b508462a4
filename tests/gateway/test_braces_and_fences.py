"""Locks of files with braces in their names, and tokens that a gateway is asked about."""

from __future__ import annotations

import pytest
from support.gateway import Served

import gitlease

pytestmark = pytest.mark.default


def test_lock_of_a_file_with_braces_is_released_by_its_name(names: Served) -> None:
    made = names.ask("jo", "POST", "/lfs/locks", json={"path": "art/a{1,2}.psd"})
    assert made.json()["lock"]["path"] == "art/a{1,2}.psd"
    (held,) = names.ask("jo", "GET", "/v1/leases").json()["leases"]
    assert held["resource"] == "art/a\\{1,2}.psd"
    ended = names.ask("jo", "DELETE", "/v1/leases/art%2Fa%5C%7B1,2%7D.psd")
    assert (ended.status_code, ended.json()["status"]) == (200, "released")
    assert names.ask("jo", "GET", "/lfs/locks").json()["locks"] == []


def test_token_that_was_never_granted_has_no_reason(names: Served) -> None:
    names.ask("jo", "PUT", "/v1/leases/T1")
    answer = names.ask("kim", "GET", "/v1/fence", params={"resource": "T1", "token": 99})
    assert (answer.status_code, answer.json()["code"]) == (412, "lost")
    assert "loss" not in answer.json()
    assert "never granted" in answer.json()["message"]
    kim = gitlease.connect(names.url, token=names.secret("kim"))
    with kim, pytest.raises(gitlease.LeaseLost) as refused:
        kim.fence("T1", 99)
    assert refused.value.loss is None
