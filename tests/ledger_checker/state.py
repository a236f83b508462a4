"""The state at one point of a history, the step that is judged, and the rules that it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from ledger_checker.commit import OUTCOMES, DeclaredStep, NamedOperation, StepCommit
from ledger_checker.form import (
    WHOLE,
    Allowance,
    LeaseRecord,
    LedgerHeader,
    LedgerPolicy,
    own_pattern,
    person,
)
from ledger_checker.paths import any_overlap

MS = 1_000
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that a commit breaks: its name, and a sentence."""

    commit: str
    rule: str
    message: str


class LeaseTable:
    """The records of a ledger, by their folded resource and scope."""

    def __init__(self) -> None:
        self.by_key: dict[Key, LeaseRecord] = {}
        self._scopes: dict[str, set[Key]] = {}
        self._with_paths: dict[Key, LeaseRecord] = {}

    def put(self, lease: LeaseRecord) -> None:
        """Put a record in the place of any other of its key."""
        self.drop(lease.key)
        self.by_key[lease.key] = lease
        self._scopes.setdefault(lease.key[0], set()).add(lease.key)
        if lease.patterns:
            self._with_paths[lease.key] = lease

    def drop(self, key: Key) -> None:
        """Forget the record of a key, if there is one."""
        if self.by_key.pop(key, None) is not None:
            self._with_paths.pop(key, None)
            scopes = self._scopes[key[0]]
            scopes.discard(key)
            if not scopes:
                del self._scopes[key[0]]

    def conflicts(self, lease: LeaseRecord) -> Iterator[LeaseRecord]:
        """Every other active record that conflicts with one."""
        found = {key: self.by_key[key] for key in self._scopes.get(lease.key[0], ())}
        if lease.patterns:
            found |= self._with_paths
        for key, other in found.items():
            if key != lease.key and not other.completed and in_conflict(lease, other):
                yield other


class Exclusive(Protocol):
    """What keeps others from some work."""

    @property
    def resource(self) -> str: ...

    @property
    def key(self) -> Key: ...

    @property
    def holder(self) -> str: ...

    @property
    def session(self) -> str | None: ...

    @property
    def patterns(self) -> tuple[str, ...]: ...


def in_conflict(one: Exclusive, other: Exclusive) -> bool:
    """Whether two leases share work, and are of two people or of two sessions of one."""
    one_person = person(one.holder) == person(other.holder)
    if one_person and (None in (one.session, other.session) or one.session == other.session):
        return False
    if one.key[0] == other.key[0] and scopes_meet(one.key[1], other.key[1]):
        return True
    # Scopes of one task share its paths.
    same_task = one.key[0] == other.key[0] and own_pattern(one.resource) is None
    both = set(one.patterns).intersection(other.patterns) if same_task else set()
    mine, theirs = ([p for p in x.patterns if p not in both] for x in (one, other))
    return any_overlap(mine, theirs)


def scopes_meet(one: str, other: str) -> bool:
    """Whether two folded scopes share work."""
    return WHOLE in (one, other) or one == other


@dataclass(slots=True)
class JudgedStep:
    """One step with all that the rules need.

    ``outcomes`` has the outcome of each operation by its id. ``changed`` has the changed records by
    key, before and after. ``hidden`` is the number of renewals that were replaced just before it,
    whose operations are not known.
    """

    id: str
    commit: StepCommit
    declared: DeclaredStep | None
    before: LedgerHeader | None
    header: LedgerHeader
    outcomes: dict[str, str]
    changed: dict[Key, tuple[LeaseRecord | None, LeaseRecord | None]]
    hidden: int = 0
    broken: list[BrokenRule] = field(default_factory=list)
    unjudged: int = 0  # takeovers of which only the taker could know that the lease had lapsed

    @property
    def at(self) -> int:
        """When it was decided, in wall-clock milliseconds."""
        return self.declared.at if self.declared is not None else self.commit.authored * MS

    @property
    def operations(self) -> Iterator[NamedOperation]:
        """The operations that succeeded."""
        named = () if self.declared is None else self.declared.operations
        return (op for op in named if self.outcomes.get(op.id) in OUTCOMES[op.kind])

    @property
    def policies(self) -> tuple[LedgerPolicy, ...]:
        """The policies that may have been in force: first the one before the step, last its own.

        If it was changed back and forth within the step, one that stands for any is between.
        """
        now = self.header.policy
        first = now if self.before is None else self.before.policy
        any_of_them = replace(now, margins=Allowance(0, 0, 0, False), abandoned_after=600)
        between = (any_of_them,) if self.policy_unsure else ()
        return tuple(dict.fromkeys((first, *between, now)))

    @property
    def policy_unsure(self) -> bool:
        """Whether an operation may have met a policy that is neither the old nor the new one."""
        changes = sum(op.kind == "SetPolicy" for op in self.operations)
        return changes > (0 if self.before is None else 1)

    def breaks(self, rule: str, message: str) -> None:
        """Note a broken rule."""
        self.broken.append(BrokenRule(self.id, rule, message))

    def lapsed(self, lease: LeaseRecord) -> bool | None:
        """Whether others might take a lease when the step was decided; None if only they can know.

        By the rule ``observed``, and for records from the future, it depends on how long the taker
        had seen the record.
        """
        found = [self._lapsed(lease, policy) for policy in self.policies]
        return True if True in found else None if None in found else False

    def abandoned(self, lease: LeaseRecord) -> bool:
        """Whether its edge no longer protected it when the step was decided."""
        return lease.picked or any(
            p.abandoned_after
            and self.at
            > lease.expires_at + (p.abandoned_after + p.margins.widest(lease.margins).skew) * MS
            for p in self.policies
        )

    def _lapsed(self, lease: LeaseRecord, policy: LedgerPolicy) -> bool | None:
        margins = policy.margins.widest(lease.margins)
        if lease.renewed_at > self.at + margins.skew * MS:
            return None
        by_wall = not (policy.margins.observed and lease.margins.observed)
        if by_wall and self.at <= lease.expires_at + margins.skew * MS:
            return False
        return None if margins.observed else True

    def ran_out(self, lease: LeaseRecord) -> bool:
        """Whether a lease was over for its own holder when the step was decided."""
        over = self.declared is not None and lease.lease_id in self.declared.over
        over = over and lease.operation not in self.outcomes  # what the step wrote is current
        return over or self.at >= lease.expires_at


def about(lease: LeaseRecord) -> str:
    """The name of a lease in a sentence."""
    scope = "" if lease.scope == WHOLE else f" (scope {lease.scope})"
    return f"{lease.resource}{scope}"
