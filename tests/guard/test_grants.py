"""A push is fenced by one's own leases of what commits of earlier leases name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kernel.rules.values import JO, holding, lease, moment

from gitlease.guard.pushed_work import vouching_leases
from gitlease.kernel.rules.lease import DEFAULT_POLICY
from gitlease.kernel.rules.viewpoint import Viewpoint
from gitlease.kernel.rules.work import Named


def named(resource: str, token: int = 1, layer: str = "global") -> Named:
    return Named(resource=resource, key=resource.lower(), token=token, layer=layer)


def test_what_is_no_resource_hides_nothing_that_is_named_behind_it() -> None:
    ledger: Any = holding(lease(resource="F001"), lease(resource="F002"))
    head: Any = SimpleNamespace(layer="global", ledger=ledger)
    commit: Any = SimpleNamespace(
        named=(named("path:../x"), named("F003", layer="team"), named("F002"))
    )

    class Vouches(Viewpoint):
        def vouching(self, named: Named, records: Any) -> Any:
            return records

    view = Vouches(JO, DEFAULT_POLICY, moment(10))
    assert [x.resource.text for x in vouching_leases(head, [commit], view)] == ["F002"]
    nothing: Any = SimpleNamespace(layer="global", ledger=None)
    assert vouching_leases(nothing, [commit], view) == []
