"""A lease: one holder's ephemeral reservation of a resource, as the ledger records it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gitlease.core.frozen import dataclass
from gitlease.core.holder import person_key
from gitlease.core.policy import Margins
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource


class State(Enum):
    """The state of a lease. Ledgers record only ACTIVE and COMPLETED; the others are derived."""

    ACTIVE = "active"
    EXPIRED = "expired"
    RELEASED = "released"
    COMPLETED = "completed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: the authenticated holder, and which of its runs.

    ``session_explicit`` says that the session came from a flag or the environment, which is what
    may bind a person-scoped lease to it. ``host`` (see ``place``) and ``branch`` tell people where
    that was.
    """

    holder: str
    session: str | None = None
    session_explicit: bool = False
    host: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One record of the ledger. Times are wall-clock milliseconds, ``ttl`` whole seconds.

    ``lease_id`` is a fresh nonce for each grant and ``operation`` the id that wrote the record:
    without them two clients could build the same bytes, and both be told "up to date". ``parked``:
    kept for the next run of its holder that claims it, and renewed by none. ``picked``: a pool or
    a run took it from the queue by itself, so its edge protects nothing once it has lapsed.
    """

    resource: Resource
    scope: str
    holder: str
    session: str | None
    lease_id: str
    token: int
    ttl: int
    claimed_at: int
    renewed_at: int
    expires_at: int
    renewals: int
    paths: tuple[str, ...]
    reason: str | None
    host: str | None
    branch: str | None
    state: State
    edge: bool
    operation: str
    margins: Margins
    parked: bool = False
    picked: bool = False

    @property
    def edge_stays(self) -> bool:
        """Whether the task stays its holder's once the lease has lapsed."""
        return self.edge and not self.picked

    @property
    def place(self) -> HostPlace:
        return place(self.host)

    @property
    def key(self) -> LeaseKey:
        return lease_key(self.resource, self.scope)

    @property
    def duration_ms(self) -> int:
        """What all rules of time use: ``expires_at - renewed_at``."""
        return self.expires_at - self.renewed_at

    @property
    def left_behind(self) -> bool:
        """Whether the end of a session left it for its edge: it ran out on purpose."""
        return self.session is None and not self.duration_ms

    @property
    def patterns(self) -> tuple[str, ...]:
        """Every path pattern it covers, its own first: what path conflicts look at."""
        own = self.resource.pattern
        return self.paths if own is None else (own, *self.paths)

    def same_holder(self, actor: Actor) -> bool:
        return same_person(self.holder, actor.holder)

    def answers_to(self, actor: Actor) -> bool:
        """Whether the actor is this lease's holder: same person, and not another session's run."""
        return self.same_holder(actor) and self.session in (None, actor.session)

    def is_of_parent(self, actor: Actor) -> bool:
        """Whether it is of the session that started the actor's: ``claude:1`` of ``claude:1/2``."""
        started, own = self.session, actor.session
        by = started is not None and own is not None and own.startswith(f"{started}/")
        return by and self.same_holder(actor)


class HostPlace(NamedTuple):
    """The machine of a caller, the process that leads its terminal session or run, and the name
    of its linked work tree, if it is in one."""

    host: str | None
    pid: int | None
    worktree: str | None


def place(host: str | None) -> HostPlace:
    """Read a record's ``host``: ``laptop``, ``laptop:4711``, with a tree ``laptop/T001:4711``."""
    name, pid = _split_process(host or "")
    machine, _, worktree = name.partition("/")
    return HostPlace(machine or None, pid, worktree or None)


def without_process(host: str | None) -> str | None:
    """A record's ``host`` without the process."""
    return _split_process(host or "")[0] or None


def _split_process(host: str) -> tuple[str, int | None]:
    name, colon, pid = host.rpartition(":")
    return (name, int(pid)) if colon and pid.isdecimal() and pid.isascii() else (host, None)


LeaseKey = tuple[str, str]
"""Folded resource and folded scope: at most one record of a ledger has it."""


def lease_key(resource: Resource, scope: str) -> LeaseKey:
    return resource.key, fold(scope)


def same_person(one: str, other: str) -> bool:
    """Whether two holders are one person: the ASCII letter case of emails does not matter."""
    return one == other or person_key(one) == person_key(other)
