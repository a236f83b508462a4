"""One operation of a step as an audit sees it: what names it, and the state that it stands on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from gitlease.domain.audit_values import Written
from gitlease.domain.errors import GitleaseError
from gitlease.domain.frozen import dataclass
from gitlease.domain.instant import MS, Instant
from gitlease.domain.lapse import Moment, Sighting
from gitlease.domain.lease import Actor, Lease, LeaseKey, lease_key, same_person
from gitlease.domain.ledger import Ledger
from gitlease.domain.outcome import Event
from gitlease.domain.resource import Resource, parse_resource

UNNAMED = "unnamed-"  # how ids begin that nothing tells
SESSIONS_TRIED = 12
MOST_TARGETS = 20_000
LONG = 40 * 365 * 86_400 * MS  # milliseconds: longer than any lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operation of a step: its id, the state that it stands on, and what was written."""

    state: Ledger
    written: Written
    by: str
    at: int
    id: str

    @property
    def moment(self) -> Moment:
        """The writer's instant. How long it had seen a record cannot be known: long enough."""
        now = Instant(wall_ms=self.at, boot_ms=self.at, boot_id="writer")
        then = Instant(wall_ms=self.at - LONG, boot_ms=self.at - LONG, boot_id="writer")
        sighting = Sighting(at=then, changed=False, since=now)
        return Moment(now=now, seen=lambda _lease: sighting)

    @staticmethod
    def actor_of(by: str, like: Lease | None = None, session: str | None = None) -> Actor:
        """Whoever wrote it, in a session, from where a record of theirs says."""
        return Actor(
            holder=by,
            session=session,
            session_explicit=session is not None,
            host=like.host if like is not None else None,
            branch=like.branch if like is not None else None,
        )

    @property
    def events(self) -> tuple[Event, ...]:
        """What the message tells of this operation."""
        return tuple(event for event in self.written.events if event.operation == self.id)

    @property
    def records(self) -> tuple[Lease, ...]:
        """The records that this operation wrote last."""
        found = (x for x in self.written.leases.values() if x is not None)
        return tuple(sorted((x for x in found if x.operation == self.id), key=lambda x: x.key))

    @property
    def left_no_trace(self) -> bool:
        """Whether no line and no record names it."""
        return not (self.events or self.records or self.id.startswith(UNNAMED))

    def now(self, key: LeaseKey, resource: Resource) -> Lease | None:
        """The record as it is before this operation."""
        return next((x for x in self.state.leases_of(resource) if x.key == key), None)

    def told(self, *kinds: str) -> list[tuple[LeaseKey, Event]]:
        """What the message tells of leases, in its order, each once."""
        found: dict[LeaseKey, Event] = {}
        for event in self.events:
            resource = resource_of(event)
            if event.kind in kinds and resource is not None and event.scope is not None:
                found.setdefault(lease_key(resource, event.scope), event)
        return list(found.items())

    def targets(self, *kinds: str) -> list[Lease]:
        """The leases that it is about, as they are before it: those told first, in that order."""
        keys: dict[LeaseKey, Resource] = {}
        for key, event in self.told(*kinds):
            resource = resource_of(event)
            if resource is not None:
                keys[key] = resource
        keys |= {x.key: x.resource for x in self.records if x.key not in keys}
        found = (self.now(key, resource) for key, resource in list(keys.items())[:MOST_TARGETS])
        return [x for x in found if x is not None]

    def note(self, resource: Resource, note_id: str) -> str | None:
        """The text of a note that it left."""
        _, notes = self.written.notes.get(resource.key, (resource, ()))
        return next((note.text for note in notes if note.id == note_id), None)

    def notes_of(self, resource: Resource) -> dict[int, str]:
        """The texts of the notes that it left on a resource, by the place that their ids tell."""
        _, notes = self.written.notes.get(resource.key, (resource, ()))
        numbers = ((place_in(note.id, f"{self.id}-"), note.text) for note in notes)
        return {number: text for number, text in numbers if number is not None}

    def untold(self) -> list[Lease]:
        """Records that are to be gone, and are not yet: of a message that had no room for them."""
        wanted = {key for key, lease in self.written.leases.items() if lease is None}
        done = {key for key, (_, lease) in self.state.changes.leases.items() if lease is None}
        told = (resource_of(e) for e in self.events)
        named = {resource.key for resource in told if resource is not None}
        every = (x for x in self.state.records.every() if isinstance(x, Lease))
        left = (x for x in every if x.key in wanted - done and x.resource.key not in named)
        return sorted(left, key=lambda x: x.key)

    def sessions(self, resource: Resource, like: Lease | None = None) -> list[str | None]:
        """The sessions that its writer may have spoken in, none at all first."""
        near = list(self.state.leases_of(resource))
        if like is not None and like.patterns:
            near += self.state.leases_with_paths()
        mine = (x.session for x in near if same_person(x.holder, self.by))
        told = (event.session for event in self.events)
        return list(dict.fromkeys((None, *told, *mine)))[:SESSIONS_TRIED]


def one_resource(
    case: Case, leases: Sequence[Lease]
) -> Iterator[tuple[Resource, str | None, Actor]]:
    """The ways to name some leases of one resource: by scope or not, in whichever session."""
    if not leases or len({x.resource.key for x in leases}) > 1:
        return
    first = leases[0]
    after = case.written.leases.get(first.key)
    bound = [after.session] if after is not None else []
    sessions = dict.fromkeys((*bound, first.session, *case.sessions(first.resource, first)))
    scopes = (None, first.scope) if len(leases) == 1 else (None,)
    for session, scope in product(sessions, scopes):
        yield first.resource, scope, Case.actor_of(case.by, session=session)


def resource_of(event: Event) -> Resource | None:
    """What a line is about; None where that is no resource."""
    try:
        return None if event.resource is None else parse_resource(event.resource)
    except GitleaseError:
        return None


def place_in(text: str, start: str) -> int | None:
    """The number that follows in an id, up to a dot or its end; None where none does."""
    if not text.startswith(start):
        return None
    digits, _, _ = text[len(start) :].partition(".")
    plain = digits.isascii() and digits.isdecimal() and len(digits) < 5
    return int(digits) if plain else None
