"""A world of clones with clocks of their own on one faulty remote, and a checker with the true one.

Everything is drawn from one seed and happens in virtual time. While one actor waits for an answer
or takes a nap, others act: that is where races come from.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from support.memory import (
    Fault,
    MemoryClone,
    MemoryRemote,
    Move,
    Step,
    memory_ledger_store,
)
from support.service import LeaseService
from support.session import ledger_session

from gitlease.core.errors import GitleaseError
from gitlease.core.expiry import Moment, holder_has
from gitlease.core.instant import MS, Instant
from gitlease.core.lease import Actor, Lease, State, same_person
from gitlease.core.resources import pattern
from gitlease.core.resources.resource import Resource, parse_resource, scopes_overlap
from gitlease.engine.answers import Answer, ClaimOptions, Reading

LAYER = "global"
NAMES = ("F001", "F002", "F003")
PATHS = ("src/auth/**", "src/*/login.py", "docs/")
SCOPES = ("*", "*", "parser", "lexer")
TTLS = (10, 15, 30, 60, 120)
MAY_HAVE_LANDED = frozenset({"ok", "running", "unknown_outcome", "denied", "lost"})


class Broken(AssertionError):
    """An invariant does not hold; the message names it."""


@dataclass
class OwnClock:
    """An actor's clocks: each has its own rate, and the wall clock its own idea of now."""

    world: World
    wall_offset: float
    wall_rate: float
    boot_rate: float
    boots: int = 1
    booted_at: float = 0.0

    def now(self) -> Instant:
        true = self.world.true
        return Instant(
            wall_ms=round((1_795_176_000 + true * self.wall_rate + self.wall_offset) * MS),
            boot_ms=round((true - self.booted_at) * self.boot_rate * MS),
            boot_id=f"boot-{self.boots}",
        )

    def sleep(self, seconds: float) -> None:
        self.world.elapse(max(seconds, 0.0))

    def reboot(self) -> None:
        self.boots, self.booted_at = self.boots + 1, self.world.true


@dataclass
class Person:
    """One clone and who works in it. ``renounced`` are leases that it has begun to give up."""

    name: str
    actor: Actor
    clock: OwnClock
    steps_clock: bool
    clone: MemoryClone = field(default_factory=MemoryClone)
    renounced: set[str] = field(default_factory=set)
    busy: int = 0
    read: str = ""
    own: list[Lease] = field(default_factory=list)


class WatchedRemote(MemoryRemote):
    """A remote that shows the world every move of its refs."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def _move(self, moves: Iterable[Move]) -> bool:
        moves = list(moves)
        moved = super()._move(moves)
        if moved:
            for move in moves:
                before = self.steps[move.expected] if move.expected else None
                self.world.moved(before, self.steps[move.new])
        return moved


class World:
    """``run`` lets the actors act; every rule is checked at every instant at which one could break.

    ``observed``: the rule that needs no common clock, so wall clocks may be wrong and may jump.
    """

    def __init__(self, seed: int, *, observed: bool, actors: int = 5, faults: float = 0.25) -> None:
        self.dice = random.Random(seed)
        self.true = 0.0
        self.observed, self.faults = observed, faults
        self.remote = WatchedRemote(self)
        self.remote.during = self._during
        self.people = [self._person(n) for n in range(actors)]
        self.outcomes: dict[str, str] = {}
        self.granted: dict[str, str] = {}
        self.excused: set[str] = set()
        self.gone: set[str] = set()
        self.operations: set[str] = set()
        self.last_token = 0
        self.done = self.held = 0
        self._numbers = itertools.count(1)
        self._depth = 0

    def _person(self, n: int) -> Person:
        dice, far = self.dice, 7_200.0 if self.observed else 28.0
        clock = OwnClock(
            self,
            wall_offset=dice.uniform(-far, far),
            wall_rate=1 + (dice.uniform(-0.004, 0.004) if self.observed else 0.0),
            boot_rate=1 + dice.uniform(-0.004, 0.004),
        )
        # The first two are runs of one person; the others work alone, without a session.
        session = f"run-{n}" if n < 2 else None
        actor = Actor(f"p{max(n, 1)}@example.com", session, session_explicit=n == 1)
        return Person(f"clone-{n}", actor, clock, steps_clock=self.observed and n % 2 == 0)

    # --- time passes ------------------------------------------------------------------------------

    def elapse(self, seconds: float) -> None:
        """Let true time pass; others may act meanwhile, at any instant of it."""
        until = self.true + seconds
        while self.true < until:
            self.true = min(until, self.true + self.dice.uniform(0.1, max(seconds, 0.2)))
            self.check_beliefs()
            if self._depth < 2 and self.dice.random() < 0.3:
                self.act()

    def _during(self, kind: str) -> None:
        slow = self.dice.random() < 0.05
        self.elapse(self.dice.uniform(0, 40 if slow else 1.0))
        if kind == "push" and self.dice.random() < self.faults:
            self.remote.late_by = self.dice.choice((1, 1, 2, 3, 5, 9))
            self.remote.pushes.append(self.dice.choice(list(Fault)))
        if kind == "fetch" and self.dice.random() < self.faults / 4:
            self.remote.fetches.append(Fault.UNREACHABLE)

    # --- what people do ---------------------------------------------------------------------------

    def begin(self, policy: dict[str, str]) -> None:
        """The ledger is made while the network is well, and nobody disturbs."""
        faults, self.faults, self._depth = self.faults, 0.0, 2
        self.service(self.people[0]).set_policy(policy)
        self.faults, self._depth = faults, 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.elapse(self.dice.choice((0.0, 1.0, 5.0, 20.0, 60.0)))
            self.act()

    def act(self) -> None:
        """One actor carries out one command; seldom one that is in the middle of another."""
        twice = self.dice.random() < 0.1
        idle = [person for person in self.people if twice or not person.busy]
        if not idle:
            return
        person = self.dice.choice(idle)
        if self.dice.random() < 0.05:
            self._disturb(person)
        self.command(person, self.dice.choice(self.VERBS))

    def _disturb(self, person: Person) -> None:
        if person.steps_clock:
            person.clock.wall_offset += self.dice.choice((-3_600.0, -60.0, 60.0, 3_600.0))
        else:
            person.clock.reboot()

    VERBS = (
        *("claim",) * 6,
        *("renew",) * 3,
        *("extend", "release", "release", "read", "note", "done", "revoke"),
        *("park", "park", "end session"),
    )

    def command(self, person: Person, verb: str, what: Resource | None = None) -> str:
        """Carry out one command as a process of its own; ``ok`` or the code of its refusal."""
        number = f"command-{next(self._numbers)}"
        service = self.service(person, number)
        self.outcomes[number] = "running"
        person.busy, self._depth = person.busy + 1, self._depth + 1
        try:
            answer = self._verb(person, service, verb, what or self._resource())
        except GitleaseError as refusal:
            self.outcomes[number] = refusal.code
        else:
            self.outcomes[number] = "ok"
            if isinstance(answer, Answer):
                self._answered(person, number, verb, answer)
        finally:
            person.busy, self._depth = person.busy - 1, self._depth - 1
        self.done += 1
        self.check_beliefs()
        return self.outcomes[number]

    def service(self, person: Person, number: str = "") -> LeaseService:
        store = memory_ledger_store(self.remote, clock=person.clock, clone=person.clone)
        actor = replace(person.actor, branch=number or None)
        return LeaseService(
            ledger_session(store, clock=person.clock, actor=actor, layer=LAYER, dice=self.dice)
        )

    def _resource(self) -> Resource:
        return parse_resource(self.dice.choice((*NAMES, *NAMES, *PATHS)))

    def _verb(
        self, person: Person, service: LeaseService, verb: str, what: Resource
    ) -> Answer | Reading:
        dice = self.dice
        if verb == "claim":
            paths = (dice.choice(PATHS),) if dice.random() < 0.2 and not what.is_path else ()
            reopen = dice.random() < 0.7
            wait = dice.choice((None, None, None, 30))
            scope = dice.choice(SCOPES)
            return service.claim(
                [what],
                ClaimOptions(scope=scope, ttl=dice.choice(TTLS), paths=paths, reopen=reopen),
                wait=wait,
            )
        if verb == "renew":
            return service.renew([what] if dice.random() < 0.5 else [])
        if verb == "extend":
            return service.extend(what, dice.choice((5, 60, 300)))
        if verb == "note":
            return service.note(what, "half done")
        if verb == "revoke":
            return service.revoke(what, reason="stuck")
        if verb in ("release", "done", "park", "end session"):
            person.renounced |= {lease.lease_id for lease in self._own(person)}
        if verb == "release":
            return service.release([what])
        if verb == "done":
            return service.complete(what)
        if verb == "park":
            return service.park([what], seconds=dice.choice((5, 60, 300, 900)))
        if verb == "end session":
            run, seconds = person.actor.session or "run-0", dice.choice((60, 900))
            return service.end_session(run, park=dice.random() < 0.5, seconds=seconds)
        return service.read()

    def _answered(self, person: Person, number: str, verb: str, answer: Answer) -> None:
        for view in answer.leases:
            if verb in ("claim", "renew", "extend"):
                person.renounced.discard(view.lease_id)
                if view.lease_id not in self.granted:
                    raise Broken(f"S6: {number} reports a lease that the remote never had")

    # --- what must hold ---------------------------------------------------------------------------

    def moved(self, before: Step | None, after: Step) -> None:
        """The ref went from one state to the next: what the rules say of that."""
        if before is not None and after.header.revision != before.header.revision + 1:
            raise Broken("S1: a revision was left out or given twice")
        if after.header.token < self.last_token:
            raise Broken("S4: the ledger's sequence went back")
        old = {} if before is None else {x.lease_id: x for x in before.leases.values()}
        new = {x.lease_id: x for x in after.leases.values()}
        for lease in new.values():
            if lease.lease_id in old:
                continue
            if lease.lease_id in self.gone:
                raise Broken(f"S6: the lease of {lease.resource} came back from the dead")
            if lease.token <= self.last_token:
                raise Broken(f"S4: a grant of {lease.resource} has an old token")
            self.granted[lease.lease_id] = lease.branch or ""
        self.last_token = after.header.token
        self.gone |= old.keys() - new.keys()
        ended = {e.token for e in after.events if e.kind in ("released", "completed", "revoked")}
        self.excused |= {x.lease_id for x in old.values() if x.token in ended}
        self._check_events(after)
        self._check_overlaps(list(new.values()))

    def _check_events(self, after: Step) -> None:
        for event in after.events:
            if event.kind in ("renewed", "extended", "released", "parked") and not same_person(
                event.by, event.holder or ""
            ):
                raise Broken(f"S7: {event.by} {event.kind} the lease of {event.holder}")
        fresh = {entry.operation for entry in after.header.ring} - self.operations
        written = {e.operation for e in after.header.ring if e.revision == after.header.revision}
        if fresh != written:
            raise Broken("S6: an operation was applied twice, or not noted")
        self.operations |= fresh

    def _check_overlaps(self, leases: list[Lease]) -> None:
        """At most one active record of overlapping work: a grant displaces all that it overlaps."""
        active = [x for x in leases if x.state is State.ACTIVE]
        for one, other in itertools.combinations(active, 2):
            if conflict(one, other):
                raise Broken(f"S2: {one.resource} and {other.resource} are both in the ledger")

    def _own(self, person: Person) -> Iterator[Lease]:
        """The leases that a clone believes to hold at this instant, by all that it knows."""
        state = person.clone.state(LAYER).load()
        if state is None or not self._candidates(person, state.version):
            return
        store = memory_ledger_store(self.remote, clock=person.clock, clone=person.clone)
        known = store.known(LAYER)
        seen = known.seen if known else lambda _lease: None
        moment = Moment(now=person.clock.now(), seen=seen)
        for lease in self._candidates(person, state.version):
            if holder_has(lease, moment):
                yield lease

    def _candidates(self, person: Person, version: str) -> list[Lease]:
        """The active leases of a version that answer to a person; a parked one is nobody's run."""
        if person.read != version:
            found = self.remote.steps[version].leases.values()
            active = (x for x in found if x.state is State.ACTIVE and not x.parked)
            person.read, person.own = version, [x for x in active if x.answers_to(person.actor)]
        return person.own

    def check_beliefs(self) -> None:
        """S3: at no real instant do two correct clients believe in conflicting leases."""
        beliefs = [
            (person, lease)
            for person in self.people
            for lease in self._own(person)
            if lease.lease_id not in person.renounced and lease.lease_id not in self.excused
        ]
        self.held += len(beliefs)
        for (one, a), (other, b) in itertools.combinations(beliefs, 2):
            if one is not other and a.lease_id != b.lease_id and conflict(a, b):
                raise Broken(
                    f"S3: at {self.true:.1f}s {one.name} believes to hold {a.resource} "
                    f"(token {a.token}), and {other.name} {b.resource} (token {b.token})"
                )

    # --- the end ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """The network heals and everybody looks: lost messages cost time, not truth (L3, L1)."""
        self.faults = 0.0
        self.remote.pushes.clear()
        self.remote.fetches.clear()
        self.remote.arrive()
        self._depth = 2  # nobody acts by himself any more
        for person in self.people:
            self.command(person, "read")
            store = memory_ledger_store(self.remote, clock=person.clock, clone=person.clone)
            if self.command(person, "note") != "ok":
                raise Broken("L3: the network is well, and a note cannot be left")
            self.command(person, "read")
            if list(store.pending(LAYER)):
                raise Broken("L3: a change is pending for ever")
        for number in self.granted.values():
            if self.outcomes[number] not in MAY_HAVE_LANDED:
                raise Broken(
                    f"S6: {number} said {self.outcomes[number]}, and its lease was granted"
                )
        for name in NAMES:
            claimer = self.dice.choice(self.people)
            self.command(claimer, "read")
            self.elapse(100_000)  # a clock set back may leave a parked lease its longest time
            service = self.service(claimer, "the end")
            self.outcomes["the end"] = "ok"
            if not service.claim([parse_resource(name)], ClaimOptions(reopen=True)).leases:
                raise Broken(f"L1: {name} is free and cannot be claimed")


def conflict(one: Lease, other: Lease) -> bool:
    """Whether two leases conflict, by the words of the contract."""
    if same_person(one.holder, other.holder) and (
        None in (one.session, other.session) or one.session == other.session
    ):
        return False
    if one.resource == other.resource and scopes_overlap(one.scope, other.scope):
        return True
    return any(
        pattern.overlap(pattern.parse(a), pattern.parse(b))
        for a in one.patterns
        for b in other.patterns
    )
