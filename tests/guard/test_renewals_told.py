"""What a renewal in the background tells of losses, and which ledger a push is judged by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kernel.rules.values import JO

from gitlease.guard.reports import GuardReport
from gitlease.guard.service import GuardService, renew_known
from gitlease.guard.whose import Makers
from gitlease.kernel.rules.errors import LeaseLost, Loss
from gitlease.kernel.rules.resources import LOCAL_LAYER
from gitlease.kernel.rules.work import Named


@pytest.mark.parametrize(
    ("loss", "noticed", "told"),
    [
        (Loss.EXPIRED, False, []),
        (Loss.RELEASED_ELSEWHERE, False, ["gone"]),
        (Loss.RELEASED_ELSEWHERE, True, []),
    ],
)
def test_a_loss_that_the_ledger_tells_is_not_told_twice(
    loss: Loss, noticed: bool, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = LeaseLost("gone", resource="F001", scope="*", loss=loss)
    answer = SimpleNamespace(warnings=(), refused=(lost,))
    monkeypatch.setattr("gitlease.kernel.ledger.acts.renew_grants", lambda *_, **__: answer)
    notices = [SimpleNamespace(resource="F001", scope="*")] * noticed
    head = SimpleNamespace(ledger=SimpleNamespace(losses=lambda _: notices))
    store = SimpleNamespace(warnings=(), known=lambda _: head)
    session: Any = SimpleNamespace(store=store, layer="global", actor=JO)
    assert renew_known(session, []) == told


def test_a_push_is_judged_by_the_ledger_that_its_trailers_name() -> None:
    asked = list[bool]()
    stores: Any = {
        is_local: SimpleNamespace(known=lambda layer, is_local=is_local: asked.append(is_local))
        for is_local in (True, False)
    }
    service: Any = GuardService.__new__(GuardService)
    service._layers, service._stores, service._actor = (LOCAL_LAYER,), stores, JO
    service._load = lambda _: SimpleNamespace(
        doubt="", leases=SimpleNamespace(of_person=lambda _: [])
    )
    named = Named(resource="F001", key="f001", token=1, layer=LOCAL_LAYER)
    commits: Any = [SimpleNamespace(named=(named,))]
    report = GuardReport()
    assert service.with_superseded(report, commits, makers=lambda _: Makers()) == report
    assert asked == [True]
