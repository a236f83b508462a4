"""Work that a push carries: what leases of others block of it, and what later leases superseded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gitlease.guard.reports import PushedCommit
from gitlease.guard.whose import (
    GrantHistory,
    LaterGrants,
    Makers,
    Naming,
    Superseded,
    find_superseded,
    names_grant,
)
from gitlease.kernel.ledger.ports import LedgerStore, Snapshot
from gitlease.kernel.rules.errors import UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.resources import parse_resource
from gitlease.kernel.rules.viewpoint import GuardFinding, Viewpoint
from gitlease.kernel.rules.work import Named


def naming_in(layer: str, commits: Sequence[Naming], leases: Iterable[Lease]) -> Sequence[Naming]:
    """The commits, if any of them names a grant of a layer that is none of these live leases."""
    named = {(x.key, x.token) for commit in commits for x in commit.named if x.layer == layer}
    if not named:
        return ()
    return commits if named - {(x.resource.key, x.token) for x in leases} else ()


def superseded_in(
    head: Snapshot,
    store: LedgerStore,
    commits: Sequence[Naming],
    view: Viewpoint,
    makers: Callable[[Iterable[str]], Makers],
) -> list[Superseded]:
    """The superseded ones among the commits of a push, by one ledger, for whoever pushes them.

    ``makers`` gets the addresses of people. Raises GitleaseError if the ledger's history cannot be
    read.
    """
    layer, ledger = head.layer, head.ledger
    if ledger is None:
        return []
    history = GrantHistory(lambda limit: store.history(layer, limit, older=True))
    records: dict[str, list[Lease]] = {}

    def records_of(named: Named) -> list[Lease]:
        if named.key not in records:
            try:
                records[named.key] = list(ledger.leases_of(parse_resource(named.resource)))
            except UsageError:  # anybody writes trailers
                records[named.key] = []
        return records[named.key]

    def after(named: Named) -> LaterGrants:
        if named.layer != layer:
            return LaterGrants()
        return history.after(named, records_of(named))

    later = [after(named) for commit in commits for named in commit.named]
    holders = {grant.holder for one in later for grant in one.grants}
    # Most often nothing was granted since, and nobody need be known.
    known = Makers()
    if holders:
        known = makers(holders | {y for x in commits for y in (*x.emails, x.author) if y})
    return find_superseded(
        commits,
        after=after,
        vouches=lambda _, named: view.vouches(named, records_of(named)),
        makers=known,
    )


def vouching_leases(head: Snapshot, commits: Iterable[Naming], view: Viewpoint) -> list[Lease]:
    """The actor's own leases of what commits of earlier leases name: a push is fenced by them."""
    found: dict[str, Lease] = {}
    for commit in commits if head.ledger is not None else ():
        for named in commit.named:
            if named.layer != head.layer or head.ledger is None:
                continue
            try:
                records = list(head.ledger.leases_of(parse_resource(named.resource)))
            except UsageError:
                continue
            found |= {x.lease_id: x for x in view.vouching(named, records)}
    return list(found.values())


def blocking(
    finding: GuardFinding,
    carried: Sequence[PushedCommit],
    layer: str,
    actor: Actor,
    makers: Makers | None = None,
) -> GuardFinding | None:
    """The finding with the oldest commit that touches its path and is not its lease's own work.

    None if there is no such commit. ``carried`` begins with the newest.
    """
    lease = finding.lease
    known = makers or Makers()

    def is_own_work(commit: PushedCommit) -> bool:
        # Anybody may land the holder's work. A person's other run is known by the token alone.
        is_holders = lease.same_holder(actor) or known.is_by(commit, lease.holder)
        named = (*commit.named, *commit.mentioned)
        return is_holders and names_grant(named, commit.recorded, lease, layer)

    for commit in reversed(carried):
        touches = (x.path == finding.path and x.concerns(lease, actor) for x in commit.touched)
        if any(touches) and not is_own_work(commit):
            return replace(finding, commit=commit.id)
    return None
