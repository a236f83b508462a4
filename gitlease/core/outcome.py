"""What an operation came to: for its caller (Outcome), and for the audit trail (Event)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import dataclass
from gitlease.core.lease import Lease
from gitlease.core.resources.resource import Resource

LAPSED = "lapsed"  # the event of one's own expired lease that a later claim replaced


class Event(NamedTuple):
    """One line of the audit trail. ``at`` is the writer's wall clock in milliseconds."""

    kind: str
    operation: str
    at: int
    by: str
    resource: str | None = None
    scope: str | None = None
    holder: str | None = None
    session: str | None = None
    token: int | None = None
    reason: str | None = None
    detail: str | None = None


TAKEOVER = ("taken_over", "displaced")


def mark_claims_after_lapse(
    events: Sequence[Event], deliberate: Container[str]
) -> tuple[Event, ...]:
    """Say in the detail of a takeover that it only followed a lapse.

    ``deliberate`` has the operations that were to replace an assignment. Histories tell them by
    their operations, so the detail is not part of a commit.
    """

    def marked(event: Event) -> Event:
        if event.kind not in TAKEOVER or event.operation in deliberate:
            return event
        former = [e.holder for e in events if e[:2] == ("displaced", event.operation)]
        names = ", ".join(dict.fromkeys(name for name in former if name))
        return event._replace(detail=f"after {names}'s lapsed")

    return tuple(map(marked, events))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done: ``leases`` as they are now (or as they ended), and those displaced.

    ``unassigned`` are the names whose edges were taken over, ``assigned`` those that keep theirs
    beside the caller's lease. ``refused`` has the errors of an operation over several leases,
    ``retired`` the resources cleaned up. ``changed`` is False if there was nothing to do.
    """

    operation: str
    status: str
    leases: tuple[Lease, ...] = ()
    events: tuple[Event, ...] = ()
    displaced: tuple[Lease, ...] = ()
    unassigned: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    retired: tuple[Resource, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    capped_to_max: bool = False
    changed: bool = True
    is_renewal: bool = False
