"""What holds of every move of a ledger's ref and between any two leases, whoever watches.

The states are values in memory here, read by their fields alone: none of the product's rules is
asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ledger_checker.form import fold, own_pattern, person, resource_key
from ledger_checker.state import in_conflict

if TYPE_CHECKING:
    from gitlease.kernel.rules.lease import Lease
    from gitlease.kernel.rules.ledger import Header


class Broken(AssertionError):
    """An invariant does not hold; the message begins with its name."""

    @property
    def rule(self) -> str:
        return str(self).partition(":")[0]


class Claim(NamedTuple):
    """What a lease keeps from others, by the fields of its record."""

    resource: str
    key: tuple[str, str]
    holder: str
    session: str | None
    patterns: tuple[str, ...]


def same_person(one: str, other: str) -> bool:
    return person(one) == person(other)


def is_active(lease: Lease) -> bool:
    return lease.state.value == "active"


def conflict(one: Lease, other: Lease) -> bool:
    """Whether two leases conflict, by the words of the contract."""
    return in_conflict(_claim_of(one), _claim_of(other))


@lru_cache(maxsize=4096)
def _claim_of(lease: Lease) -> Claim:
    text = lease.resource.text
    own = own_pattern(text)
    paths = tuple(lease.paths) if own is None else (own, *lease.paths)
    key = resource_key(text), fold(lease.scope)
    return Claim(text, key, lease.holder, lease.session, paths)


def check_header(before: Header | None, after: Header, applied: Collection[str]) -> frozenset[str]:
    """S1, S4 and S6 of a move; gives its operations. ``applied`` are those of all moves before."""
    revision, token = (before.revision, before.token) if before else (0, 0)
    if after.revision != revision + 1:
        raise Broken("S1: a revision was left out or given twice")
    if after.token < token:
        raise Broken("S4: the ledger's sequence went back")
    ring, known = after.ring, before.ring if before else ()
    fresh = [entry.operation for entry in ring if entry.revision == after.revision]
    kept = ring[: len(ring) - len(fresh)]
    again = len(set(fresh)) != len(fresh) or any(id in applied for id in fresh)
    if not fresh or again or kept != known[len(known) - len(kept) :]:
        raise Broken("S6: an operation was applied twice, or not noted")
    return frozenset(fresh)


def check_tokens(before: Header | None, grants: Iterable[Lease]) -> None:
    """S4: tokens only grow, and each is given once."""
    tokens = [lease.token for lease in grants]
    least = before.token if before else 0
    if any(token <= least for token in tokens) or len(set(tokens)) != len(tokens):
        raise Broken("S4: a grant has the token of an earlier one")
