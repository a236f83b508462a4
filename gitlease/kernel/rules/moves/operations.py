"""Operations, requests to a ledger as plain data, each with its own id; and what they came to.

They do not say how or when they are carried out, so one process can hand them to another, a
gateway can join them into one push and a simulation can replay them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from gitlease.kernel.rules.edge import Assignee
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.lease import Actor, Lease, Policy
from gitlease.kernel.rules.resources import WHOLE, Resource

MAX_PATHS = 64
MAX_PATHS_LENGTH = 8_192


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Base of all: a fresh random id, and who asks."""

    id: str
    actor: Actor


@dataclass(frozen=True, kw_only=True)
class Create(Operation):
    """Makes the ledger where there is none."""

    ledger_id: str
    policy: Policy


@dataclass(frozen=True, kw_only=True)
class Claim(Operation):
    """Takes a lease, or renews the caller's own live one.

    ``ttl`` in seconds; None for ``default_ttl``, which is fitted into the limits if it
    ``default_fits`` and must lie within them otherwise. ``lease_id`` is the nonce of the grant.
    ``takeover`` allows to replace the edge of another, ``abandoned`` one that the record says is
    abandoned, ``reopen`` completed work. ``new``: only
    a new grant will do, and one's own live lease is in the way of it.
    ``expect_holder``: a takeover takes nothing of anybody else.
    ``edge`` says that the task file is assigned along with it, ``assigned`` who else stands there.
    ``picked``: a pool or a run takes it from the queue, and nobody chose it for a person.
    ``ticket`` is the caller's place in the line, which the grant gives up. ``passing``: of those
    who wait longer, so many may be passed over; None is nobody.
    """

    resource: Resource
    lease_id: str
    scope: str = WHOLE
    ttl: int | None = None
    default_ttl: int = 900
    default_fits: bool = True
    paths: tuple[str, ...] = ()
    reason: str | None = None
    takeover: bool = False
    abandoned: bool = False
    reopen: bool = False
    new: bool = False
    edge: bool = False
    assigned: tuple[Assignee, ...] = ()
    ticket: str | None = None
    passing: int | None = None
    expect_holder: str | None = None
    picked: bool = False

    @property
    def replaces_edges(self) -> bool:
        """Return whether it may take a task that is assigned to another."""
        return self.takeover or self.abandoned


@dataclass(frozen=True, kw_only=True)
class Pick(Operation):
    """Makes the first of these claims that nothing stands against; all have this operation's id.

    What the caller is at already is passed over, so that two runs of one person get different work.
    A step names the claim that it made instead, so no ledger and no other version has a pick.

    ``named``: the caller named the resources, and takes whichever is free. Then every live lease of
    the caller's own is in the way as another's is, and the refusal says why none could be had.
    """

    claims: tuple[Claim, ...]
    named: bool = False


@dataclass(frozen=True)
class Grant:
    """One grant of a lease, distinguished from all others by the nonce ``lease_id``."""

    resource: Resource
    scope: str
    session: str | None
    lease_id: str
    token: int


def grant_of(lease: Lease) -> Grant:
    """The grant of a record."""
    return Grant(lease.resource, lease.scope, lease.session, lease.lease_id, lease.token)


@dataclass(frozen=True, kw_only=True)
class Renew(Operation):
    """The heartbeat: expiry becomes now + TTL. No resource means everything of the session.

    With ``grants`` it renews exactly those, of whichever sessions of the holder they are.
    """

    resource: Resource | None = None
    scope: str | None = None
    ttl: int | None = None
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Extend(Operation):
    """Stretches to at least now + ``seconds``, capped to the policy's maximum."""

    resource: Resource
    seconds: int
    scope: str | None = None


@dataclass(frozen=True, kw_only=True)
class Release(Operation):
    """Drops one's lease; with nothing to drop it succeeds all the same.

    ``assigned`` are those whose task it is by its file, where the caller is not among them.
    """

    resource: Resource
    scope: str | None = None
    note: str | None = None
    assigned: tuple[Assignee, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unassign(Operation):
    """Ends the caller's assignment to a task that only its file has: no record changes.

    It outranks an older edge in any file, as a release does, and grants nothing.
    """

    resource: Resource


@dataclass(frozen=True, kw_only=True)
class Park(Operation):
    """Parked a lease for a later run of its holder: only older versions wrote it.

    ``seconds`` are capped to the policy's ``park_max``; None: as long as that.
    """

    resource: Resource
    seconds: int | None = None
    scope: str | None = None
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class EndSession(Operation):
    """Gives back leases of the caller's runs: exactly these grants, if still theirs.

    Older versions could ``park`` them for ``seconds``.
    """

    grants: tuple[Grant, ...]
    park: bool = False
    seconds: int | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunOut(Operation):
    """Expires leases of the caller's runs now: exactly these grants, if still theirs.

    Edges are kept, since the work is not finished. Leases without an edge are released. With the
    mark ``-wait`` in its id, the tasks are kept until somebody claims them by name.
    """

    grants: tuple[Grant, ...]
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bind(Operation):
    """Binds the unbound leases of the caller's person on these resources to the session."""

    resources: tuple[Resource, ...]
    scope: str = WHOLE


@dataclass(frozen=True, kw_only=True)
class Unbind(Operation):
    """Unbinds exactly these grants from the run that bound them.

    For that run, or for its person once they made sure that the run is dead.
    """

    grants: tuple[Grant, ...]


@dataclass(frozen=True, kw_only=True)
class Complete(Operation):
    """Finishes: the lease ends ``completed``, and most claims are refused from then on.

    ``assigned`` are those whose task it is by its file, where the caller is not among them.
    ``held_only``: what the caller does not hold is no work that could be finished.
    """

    resource: Resource
    lease_id: str
    scope: str | None = None
    assigned: tuple[Assignee, ...] = ()
    held_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Revoke(Operation):
    """Ends someone else's lease: for admins, with a reason."""

    resource: Resource
    reason: str
    scope: str | None = None
    expect_holder: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retirement:
    """Records of one resource to clean up, and the ``reason`` that their holders are told.

    ``grants`` are leases that lapsed. ``assigned``: also where an edge keeps one for its holder.
    ``unassigned`` are those whose names leave the task file with it, and ``note`` is for whoever
    takes the task next.
    """

    resource: Resource
    reason: str
    grants: tuple[Grant, ...] = ()
    assigned: bool = False
    unassigned: tuple[Assignee, ...] = ()
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retire(Operation):
    """Cleans up lapsed leases, never live ones: one operation for many resources."""

    items: tuple[Retirement, ...]


@dataclass(frozen=True, kw_only=True)
class AddNote(Operation):
    """Leaves a note for the next holder; ``to_holder``: and word of it to whoever holds it now."""

    resource: Resource
    text: str
    to_holder: bool = False


@dataclass(frozen=True, kw_only=True)
class TakeTicket(Operation):
    """Stands in line for several resources at once, or stays there for longer.

    ``ticket`` is the random id of the place; ``since`` keeps it where it was before (None: now),
    and ``until`` is when whoever waits gives up. Both are wall-clock milliseconds.
    """

    resources: tuple[Resource, ...]
    ticket: str
    until: int
    scope: str = WHOLE
    since: int | None = None


@dataclass(frozen=True, kw_only=True)
class LeaveTicket(Operation):
    """Leaves the line: with no ticket there it succeeds all the same."""

    resources: tuple[Resource, ...]
    ticket: str


@dataclass(frozen=True, kw_only=True)
class SetPolicy(Operation):
    """Changes the policy: for admins once there are any."""

    changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Acknowledge(Operation):
    """Drops notices that their holder has been shown."""

    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Barrier(Operation):
    """Changes nothing but the revision, so that an older undecided push can never land."""


@dataclass(frozen=True, kw_only=True)
class Restore(Operation):
    """Goes on from another past than the one that was seen.

    ``above`` is the last fencing token of the past that is given up: none that was given there is
    given again (S4). ``waits``: the ledger's ref was deleted, and what was granted since the state
    that is put back is not known (see ``restoring``).
    """

    above: int
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class EndWait(Operation):
    """Ends the wait of a restored ledger: for admins, who have asked everybody."""


@dataclass(frozen=True, kw_only=True)
class PutBack(Operation):
    """Writes down the caller's own leases that a restored ledger lacks, as their clone saw them."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, kw_only=True)
class MoveLedger(Operation):
    """Ends the ledger at this place, and names where it goes on: for admins once there are any.

    ``to`` is a remote as the project's settings name it (``-``: the usual one), a prefix and a
    layer.
    """

    to: str


@dataclass(frozen=True, kw_only=True)
class OpenMoved(Operation):
    """Goes on with a ledger at the place that its last step named, which must be ``at``."""

    at: str


@dataclass(frozen=True, kw_only=True)
class DropRecord(Operation):
    """Removes a damaged record: for admins."""

    file: str
    reason: str


LAPSED = "lapsed"  # the event of one's own expired lease that a later claim replaced
BARRIER = "barrier"  # that of a Barrier, which is nobody's business


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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result: ``leases`` as they are now (or as they ended), and those displaced.

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
