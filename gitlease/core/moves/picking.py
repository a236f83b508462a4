"""The pick: of several claims the first that nothing stands against, decided in one step."""

from __future__ import annotations

from gitlease.core.errors import (
    GitleaseError,
    Invalid,
    LeaseHeld,
    NothingLeft,
    PolicyRefused,
    UsageError,
)
from gitlease.core.expiry import Moment
from gitlease.core.frozen import replace
from gitlease.core.lease import Lease
from gitlease.core.ledger import Ledger
from gitlease.core.moves.claiming import claim, granted_ttl
from gitlease.core.moves.conflicts import relations
from gitlease.core.moves.operations import Claim, Pick
from gitlease.core.outcome import Outcome
from gitlease.core.relation import Relation, relation
from gitlease.core.resources.resource import scopes_overlap


class ParkedMeanwhile(GitleaseError):
    """The caller parked some of the tasks since the claims were made: it comes before them."""

    code = "held"


def pick(ledger: Ledger, op: Pick, moment: Moment) -> tuple[Ledger, Outcome]:
    """Make the first claim that can be made. NothingLeft when there is none.

    A loser of the swap decides again, on the winner's ledger, and comes to the next one: so each of
    many workers gets work of its own (S1). ParkedMeanwhile when a parked lease was not known of.
    """
    unknown = next((x for x in _parked(ledger, op, moment) if x.key not in op.parked), None)
    if unknown is not None:
        raise ParkedMeanwhile(f"{unknown.resource} is parked", resource=unknown.resource.text)
    for wanted in op.claims:
        granted_ttl(wanted, ledger.header.policy, None)  # or else each of them would be passed over
        if _is_at_it(ledger, wanted, moment):
            continue
        try:
            return claim(ledger, replace(wanted, id=op.id), moment)
        except (LeaseHeld, PolicyRefused, UsageError, Invalid):
            continue  # held, completed, or a record or paths that no claim can be made with
    raise NothingLeft("nothing is left to claim")


def _parked(ledger: Ledger, op: Pick, moment: Moment) -> list[Lease]:
    if not op.tasks:
        return []
    policy = ledger.header.policy
    return [
        x
        for x in ledger.every_lease()
        if x.parked
        and x.resource.key in op.tasks
        and relation(x, op.actor, policy, moment) is Relation.PARKED
    ]


def _is_at_it(ledger: Ledger, wanted: Claim, moment: Moment) -> bool:
    try:
        stood = relations(ledger, wanted.resource, wanted.actor, moment)
    except Invalid:
        return True
    mine = [x for x, how in stood if how is Relation.MINE]
    return any(scopes_overlap(x.scope, wanted.scope) for x in mine)
