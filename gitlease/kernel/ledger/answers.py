"""Answers of the ledger, and news for a holder: doors word these and add no facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gitlease.kernel.ledger.ports import Written
from gitlease.kernel.rules.errors import GitleaseError, UsageError
from gitlease.kernel.rules.frozen import dataclass, replace
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import DEFAULT_POLICY, Lease, Policy, State
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.ledger import MAX_STEP, Note, Ticket
from gitlease.kernel.rules.moves.operations import Claim, Event
from gitlease.kernel.rules.resources import WHOLE, Resource

MAX_RESOURCES = MAX_STEP  # of one command, which is one step


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """How a claim is to be made, for all verbs that claim.

    ``one``: it takes the first of the resources that is free. ``ttl`` in seconds. ``new`` refuses
    to renew what is one's own already, and ``bind`` has the session bind what its person holds
    without one. ``any_name`` lets names pass that are no tasks. ``commit`` records the edges as a
    commit of their own; None: as the settings say. ``picked``: a pool or a run takes the tasks from
    the queue by itself, so they go back to it at their lapse. ``default_fits``: no limit of the
    ledger refuses a TTL that was set, as nothing is claimed. ``before_sending`` is called with the
    claims of each try before that is sent.
    """

    one: bool = False
    scope: str = WHOLE
    ttl: int | None = None
    paths: tuple[str, ...] = ()
    reason: str | None = None
    takeover: bool = False
    expect_holder: str | None = None
    reopen: bool = False
    new: bool = False
    bind: bool = False
    any_name: bool = False
    commit: bool | None = None
    picked: bool = False
    default_fits: bool = False
    before_sending: Callable[[Sequence[Claim]], None] | None = None


@dataclass(frozen=True)
class Turn:
    """How a claim stands in line: its ticket, and how many who wait longer it may pass over.

    ``lines`` are the resources that the ticket is for.
    """

    ticket: str | None = None
    passing: int | None = None
    lines: tuple[Resource, ...] = ()


NO_TURN = Turn()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a verb. ``refused`` has the errors of single leases.

    ``bound`` are the ids of leases that its session bound for a time. ``displaced`` has the leases
    that were taken over, ``unassigned`` the names whose edges were. ``edge_in`` says where the
    caller's edge stands now: in the ledger's ``record``, a ``file``, or both. ``written`` has the
    task file edits, ``notes`` those left for the next holder. ``stays`` names what an implicit end
    left to running commands. ``at`` is the instant from which its leases count, if the ledger was
    changed. ``run`` is the record of the run that claimed, which was written before.
    """

    status: str
    leases: tuple[LeaseView, ...] = ()
    bound: tuple[str, ...] = ()
    displaced: tuple[LeaseView, ...] = ()
    unassigned: tuple[str, ...] = ()
    edge: str = "none"
    edge_in: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()
    notes: tuple[Note, ...] = ()
    refused: tuple[GitleaseError, ...] = ()
    capped_to_max: bool = False
    max_ttl_seconds: int = 0
    changed: bool = True
    stays: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    at: Instant | None = None
    run: str = ""

    @property
    def found_nothing(self) -> bool:
        """Return whether there was nothing to end."""
        return not self.leases and not self.refused and not self.stays


@dataclass(frozen=True, kw_only=True)
class EndedLease:
    """A lease that was released or revoked, as far as the audit trail knows it.

    Times in ms by the writers' clocks; ``claimed_at`` is None if its grant is too long ago.
    """

    resource: str
    scope: str
    layer: str
    holder: str
    session: str | None
    token: int
    state: State
    claimed_at: int | None
    ended_at: int
    by: str
    reason: str | None
    mine: bool


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The result of a reading verb. ``waiting`` is the line, in its order.

    ``ended`` has what was released or revoked lately, newest first. ``told`` says to people what
    was done first.
    """

    leases: tuple[LeaseView, ...] = ()
    ended: tuple[EndedLease, ...] = ()
    notes: tuple[Note, ...] = ()
    waiting: tuple[Ticket, ...] = ()
    events: tuple[Event, ...] = ()
    policy: Policy = DEFAULT_POLICY
    ledger_id: str | None = None
    revision: int = 0
    told: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken:
    """A lease taken from a holder. ``what``: ``taken_over``, ``revoked``, or ``retired``.

    ``lapsed``: it had run out, and was not assigned any more.
    """

    resource: str
    scope: str
    what: str
    by: str
    at: datetime
    reason: str | None
    lapsed: bool = False


def joined(one: Answer, other: Answer) -> Answer:
    """Join the answers of two steps or layers."""
    return replace(
        other,
        leases=one.leases + other.leases,
        edge=other.edge if one.edge == "none" else one.edge,
        edge_in=tuple(dict.fromkeys((*one.edge_in, *other.edge_in))),
        written=one.written + other.written,
        refused=one.refused + other.refused,
        capped_to_max=one.capped_to_max or other.capped_to_max,
        changed=one.changed or other.changed,
        stays=tuple(dict.fromkeys(one.stays + other.stays)),
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )


def stopped(done: Answer, error: GitleaseError) -> Answer:
    """The answer so far, with the error that stopped it among ``refused``."""
    return joined(
        done, Answer(status=done.status, refused=(error,), changed=False, warnings=error.warnings)
    )


def leave_to_runs(answer: Answer, leases: Sequence[Lease]) -> Answer:
    """The answer, with a warning for each lease that an implicit end leaves to its run."""
    names = [str(lease.resource) for lease in leases]
    messages = (f"{name} stays: it belongs to a running command" for name in names)
    return replace(
        answer,
        stays=tuple(dict.fromkeys((*answer.stays, *names))),
        warnings=tuple(dict.fromkeys((*answer.warnings, *messages))),
    )


def several(resources: Sequence[Resource], *, besides: int = 0) -> tuple[Resource, ...]:
    """The resources of one command, each once; UsageError for more than one push should carry.

    ``besides`` is the number of operations that its step has beside one for each.
    """
    found, most = tuple(dict.fromkeys(resources)), MAX_RESOURCES - besides
    if len(found) > most:
        raise UsageError(
            f"{len(found)} resources are more than the {most} of one command",
            hints=("a folder or a pattern covers many files",),
        )
    return found
