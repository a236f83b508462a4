"""The guard: what a change of files touches that another holds, and how bad that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from gitlease.domain import pattern
from gitlease.domain.frozen import dataclass
from gitlease.domain.lapse import Moment
from gitlease.domain.lease import Actor, Lease
from gitlease.domain.pattern import fold
from gitlease.domain.policy import Policy
from gitlease.domain.relation import Relation, relation


class Severity(Enum):
    """What a finding comes to where the guard blocks."""

    BLOCK = "block"
    WARN = "warn"


# A run that is somebody's own is only warned about when the person speaks without a session, and
# what has lapsed may be taken: its holder is to be asked, not obeyed.
SEVERITIES: Mapping[Relation, Severity] = {
    Relation.THEIRS: Severity.BLOCK,
    Relation.MY_OTHER_RUN: Severity.BLOCK,
    Relation.MY_RUN: Severity.WARN,
    Relation.THEIRS_ASSIGNED: Severity.WARN,
    Relation.THEIRS_LAPSED: Severity.WARN,
}


@dataclass(frozen=True, slots=True)
class Touched:
    """A path that a change touches, relative to the root; a rename touches both of its paths.

    ``tasks`` are the folded names of the tasks whose file it is or was. ``folder`` says that it
    stands for all below it: a submodule.
    """

    path: str
    tasks: frozenset[str] = frozenset()
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A touched path that is covered by somebody's lease."""

    path: str
    lease: Lease
    severity: Severity


def judge(
    touched: Sequence[Touched],
    leases: Iterable[Lease],
    *,
    actor: Actor,
    policy: Policy,
    moment: Moment,
) -> list[Finding]:
    """Everything touched that a lease of others covers: what blocks comes first, then by path.

    A lease covers its own path, those of its task, and its task's file.
    """
    found = []
    for lease in leases:
        severity = SEVERITIES.get(relation(lease, actor, policy, moment))
        if severity is None:
            continue
        patterns = [pattern.parse(text) for text in lease.patterns]
        found += [
            Finding(one.path, lease, severity) for one in touched if _covers(lease, patterns, one)
        ]
    return sorted(found, key=lambda f: (f.severity is not Severity.BLOCK, f.path, f.lease.key))


def under(
    touched: Sequence[Touched],
    leases: Iterable[Lease],
    *,
    actor: Actor,
    policy: Policy,
    moment: Moment,
) -> list[Lease]:
    """The caller's own live leases that a change falls under, in the order of their resources."""
    mine = [x for x in leases if relation(x, actor, policy, moment) is Relation.MINE]
    return sorted(
        (x for x in mine if any(_covers(x, _parsed(x), one) for one in touched)),
        key=lambda x: x.key,
    )


def _parsed(lease: Lease) -> list[pattern.Pattern]:
    return [pattern.parse(text) for text in lease.patterns]


def _covers(lease: Lease, patterns: Sequence[pattern.Pattern], one: Touched) -> bool:
    if not lease.resource.is_path and fold(lease.resource.text) in one.tasks:
        return True
    if not one.folder:
        return any(pattern.covers(p, one.path) for p in patterns)
    below = pattern.parse(pattern.escape(one.path))
    return any(pattern.overlap(p, below) for p in patterns)
