"""The pick: of several claims the first that nothing stands against, decided in one step."""

from __future__ import annotations

from gitlease.domain.claiming import claim, fit_ttl
from gitlease.domain.errors import (
    CacheDamaged,
    Invalid,
    LeaseHeld,
    NothingLeft,
    PolicyRefused,
    UsageError,
)
from gitlease.domain.frozen import replace
from gitlease.domain.lapse import Moment
from gitlease.domain.ledger import Ledger
from gitlease.domain.operations import Claim, Pick
from gitlease.domain.outcome import Outcome
from gitlease.domain.relation import Relation, relation
from gitlease.domain.resource import scopes_overlap


def pick(ledger: Ledger, op: Pick, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make the first claim that can be made. NothingLeft when there is none.

    A loser of the swap decides again, on the winner's ledger, and comes to the next one: so each of
    many workers gets work of its own (S1).
    """
    for wanted in op.claims:
        fit_ttl(wanted.ttl, wanted.default_ttl, ledger.header.policy, None)
        if _is_at_it(ledger, wanted, moment):
            continue
        try:
            return claim(ledger, replace(wanted, id=op.id), moment)
        except CacheDamaged:
            raise
        except (LeaseHeld, PolicyRefused, UsageError, Invalid):
            continue  # held, completed, or a record or paths that no claim can be made with
    raise NothingLeft("nothing is left to claim")


def _is_at_it(ledger: Ledger, wanted: Claim, moment: Moment) -> bool:
    """Whether the caller, this run or another, is at this work now."""
    policy = ledger.header.policy
    try:
        leases = ledger.leases_of(wanted.resource)
    except CacheDamaged:
        raise
    except Invalid:
        return True
    return any(
        relation(x, wanted.actor, policy, moment) is Relation.MINE
        for x in leases
        if scopes_overlap(x.scope, wanted.scope)
    )
