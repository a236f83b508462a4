"""A model of wishes: claims that clones which lost a race have carried out by whoever pushes next.

The protocol is in ``.github/designs/wishes.md``. The product has none of it: the clients here are
written for the model, on the product's rules (``decide``, ``holder_has``). A command runs from one
request to the next, and is carried out again with one answer more, as in ``scripted``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.scripted import Report
from simulation.shared_state import COMMANDS, COUNTED, OwnTime, Version, Versions

from gitlease.kernel.ledger.ports import Change, Snapshot
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS, Instant
from gitlease.kernel.rules.lease import (
    DEFAULT_POLICY,
    Actor,
    Lease,
    Moment,
    Sighting,
    State,
    holder_has,
)
from gitlease.kernel.rules.ledger import Fate, Header, Ledger
from gitlease.kernel.rules.moves.operations import (
    Barrier,
    Claim,
    Create,
    Operation,
    Release,
    SetPolicy,
)
from gitlease.kernel.rules.moves.transitions import Applied, Decided, create, decide
from gitlease.kernel.rules.resources import Resource

LAYER = "global"
LEDGER = -1  # in a move: the ledger's ref, not the wish of a client
SILENCE = "no answer"
DONE, MOVED = "done", "moved"
ROUNDS = 2  # times that a client which wishes looks and carries wishes out before it gives up
READS = 3  # times that it reads where an answer is missing or stale
FRESH = 30  # seconds, beside the skew, in which a wish counts as one of a living client
WINDOW = 64  # revisions after its base in which a wish may be carried out


# --- what the remote holds ------------------------------------------------------------------------


class Wish(NamedTuple):
    """What a client asks others to carry out: a claim, when it asked, and on which revision."""

    claim: Claim
    asked: Instant
    base: int


class Remote(NamedTuple):
    """The refs: the ledger's version, and the wish of each client.

    A wish is ``""`` (none), ``open ID``, ``answered VERSION`` or ``withdrawn ID``.
    """

    ledger: str
    wishes: tuple[str, ...]

    def at(self, ref: int) -> str:
        return self.ledger if ref == LEDGER else self.wishes[ref]

    def moved(self, ref: int, new: str) -> Remote:
        if ref == LEDGER:
            return self._replace(ledger=new)
        return self._replace(wishes=(*self.wishes[:ref], new, *self.wishes[ref + 1 :]))


class Move(NamedTuple):
    """One ref of a push: what it is to be, and what it must be now."""

    ref: int
    old: str
    new: str


class Push(NamedTuple):
    """An atomic push. ``base`` is the state that the ledger's move was decided on."""

    moves: tuple[Move, ...]
    base: str = ""


class Read(NamedTuple):
    """One fetch of the ledger and all wishes."""


Request = Push | Read
Answer = str | Remote


def serve(push: Push, remote: Remote) -> tuple[str, Remote]:
    """What the remote answers to a push, and its refs afterwards: all of them move, or none."""
    if any(remote.at(move.ref) != move.old for move in push.moves):
        return MOVED, remote
    for move in push.moves:
        remote = remote.moved(move.ref, move.new)
    return DONE, remote


class Objects:
    """Every version and every wish that anybody wrote."""

    def __init__(self) -> None:
        self.versions = Versions()
        self.wishes: dict[str, Wish] = {}

    def header(self, version: str) -> Header:
        return self.versions.by_name[version].header

    def ledger(self, version: str) -> Ledger:
        found = self.versions.by_name[version]
        return Ledger(found.header, found)


# --- what a clone keeps ---------------------------------------------------------------------------


class Attempt(NamedTuple):
    """An operation that may have been sent: as a step on ``base``, or as a wish."""

    operation: Operation
    asked: Instant
    base: str = ""
    wished: bool = False


class DiskImage(NamedTuple):
    """What a clone keeps at one instant. ``since`` is when each of its leases was asked for."""

    known: str = ""
    own: str = ""  # its wish, as it knows it
    since: tuple[tuple[str, Instant], ...] = ()
    open: Attempt | None = None


# --- the client -----------------------------------------------------------------------------------


class Suspended(BaseException):
    """The process waits for an answer that is not written down."""

    def __init__(self, request: Request) -> None:
        self.request = request


class GaveUp(Exception):
    """The remote could not be read: what became of an attempt is for the next command."""


class Refused(Exception):
    """The claim is not to be had."""


@dataclass
class Client:
    """One command of one client, as far as its answers go (and when they came: true seconds)."""

    index: int
    number: int
    time: OwnTime
    true: float
    answers: Sequence[tuple[Answer, float]]
    objects: Objects
    actor: Actor
    images: list[DiskImage]
    ttl: int
    ids: int = 0
    told: int = 0
    fresh_from: int = 0
    tried: set[str] = field(default_factory=set)
    became: list[tuple[str, Fate]] = field(default_factory=list)

    # --- clocks, ids, requests, the disk ---

    def now(self) -> Instant:
        return self.time.at(self.true)

    def fresh_id(self) -> str:
        self.ids += 1
        return f"{(self.index * COMMANDS + self.number) * COUNTED + self.ids:020x}"

    def ask(self, request: Request) -> Answer:
        if self.told == len(self.answers):
            raise Suspended(request)
        answer, self.true = self.answers[self.told]
        self.told += 1
        self.fresh_from = len(self.images) - 1
        return answer

    @property
    def disk(self) -> DiskImage:
        return self.images[-1]

    def write(self, image: DiskImage) -> None:
        if image != self.images[-1]:
            self.images.append(image)

    def note(self, attempt: Attempt) -> None:
        """Write down what is about to be sent, and from when on its lease would count."""
        self.tried.add(attempt.operation.id)
        since = self.disk.since
        if isinstance(attempt.operation, Claim):
            nonce = attempt.operation.lease_id
            others = (x for x in since if x[0] != nonce)
            since = (*others, (nonce, attempt.asked))
        self.write(self.disk._replace(open=attempt, since=since))

    def close(self) -> None:
        self.write(self.disk._replace(open=None))

    # --- reading and deciding ---

    def read(self) -> Remote:
        """The refs. A ledger older than the known one is never used. Raises GaveUp."""
        for _ in range(READS):
            answer = self.ask(Read())
            if isinstance(answer, str):
                continue
            known = self.disk.known
            revision = self.objects.header(answer.ledger).revision
            if known and revision < self.objects.header(known).revision:
                continue
            self.write(self.disk._replace(known=answer.ledger, own=answer.wishes[self.index]))
            return answer
        raise GaveUp

    def decided(self, version: str, operations: Sequence[Operation], at: Instant) -> Decided:
        """Decide a batch of which nothing may be refused."""
        return decide(self.objects.ledger(version), operations, Moment(now=at))

    def written(self, version: str, decided: Decided) -> str:
        """The version that a decision makes of another."""
        ledger = self.objects.ledger(version)
        base = Snapshot(layer=LAYER, version=version, ledger=ledger, received=self.now())
        change = Change(base=base, decided=decided, what="a step")
        return self.objects.versions.add(change, replace_tip=False).name

    def send(self, base: str, decided: Decided, also: Sequence[Move] = ()) -> str:
        """Push a step, and the wishes that it answers. Learns the new head on success."""
        new = self.written(base, decided)
        moves = [Move(LEDGER, base, new)]
        moves += (move._replace(new=f"answered {new}") for move in also)
        answer = self.ask(Push(tuple(moves), base))
        if answer == DONE:
            own = next((move.new for move in moves if move.ref == self.index), self.disk.own)
            self.write(self.disk._replace(known=new, own=own))
        return str(answer)

    # --- wishes ---

    def carried(
        self, version: str, first: Sequence[Operation], wishes: Mapping[int, Wish]
    ) -> tuple[Decided, list[int]]:
        """A step of one's own operations and of all wishes that may go along, and whose they are.

        Each claim is decided after those before it, and left out if it is refused. Its lease has
        the times that its own client would have written.
        """
        now, taken = self.now(), list[int]()
        batch = list(first)
        for client, wish in wishes.items():
            if not may_carry(self.objects.header(version), wish, now):
                continue
            if adds_only(self.objects.ledger(version), [*batch, wish.claim], now):
                batch.append(wish.claim)
                taken.append(client)
        decided = self.decided(version, batch, now)
        for client in taken:
            decided = stamped(decided, wishes[client])
        return decided, taken

    def open_wishes(self, remote: Remote) -> dict[int, Wish]:
        """The wishes that are open, the oldest first."""
        found = {}
        for client, text in enumerate(remote.wishes):
            state, _, identity = text.partition(" ")
            if state == "open":
                found[client] = self.objects.wishes[identity]
        return dict(sorted(found.items(), key=lambda item: (item[1].base, item[0])))

    def expected(self, remote: Remote, clients: Sequence[int]) -> list[Move]:
        """What a step expects of the wishes that it carries out."""
        return [Move(client, remote.wishes[client], "") for client in clients]

    def wish(self, claim: Claim) -> bool:
        """Leave a wish on one's own ref; False if it is not certain to be there."""
        asked, before = self.now(), self.disk.own
        base = self.objects.header(self.disk.known).revision
        self.note(Attempt(claim, asked, wished=True))
        self.objects.wishes[claim.id] = Wish(claim, asked, base)
        mine = f"open {claim.id}"
        if self.ask(Push((Move(self.index, before, mine),))) != DONE:
            return False
        self.write(self.disk._replace(own=mine))
        return True

    # --- what became of it ---

    def settle(self) -> None:
        """Find out what became of what an earlier command left open."""
        left = self.disk.open
        if left is not None:
            self.became.append((left.operation.id, self.resolve(left)))

    def resolve(self, attempt: Attempt) -> Fate:
        """Find out what became of an attempt, and fence off what may still land. Raises GaveUp."""
        operation = attempt.operation.id
        for _ in range(READS):
            remote = self.read()
            if self.objects.header(remote.ledger).entry(operation):
                self.close()
                return Fate.APPLIED
            mine = remote.wishes[self.index]
            if attempt.wished and self.is_answer_of(mine, operation):
                continue  # a replica shows the answer, and an older ledger
            fence = self.fence(attempt, remote)
            base = remote.ledger if any(move.ref == LEDGER for move in fence) else ""
            is_fenced = not fence or self.ask(Push(tuple(fence), base)) == DONE
            if is_fenced and not is_to_be_read_again(fence):
                self.close()
                return Fate.LOST
        raise GaveUp

    def fence(self, attempt: Attempt, remote: Remote) -> list[Move]:
        """What has to move so that nothing of an attempt can land any more."""
        fence, mine = list[Move](), remote.wishes[self.index]
        withdrawn = f"withdrawn {attempt.operation.id}"
        if attempt.wished and mine != withdrawn:
            fence.append(Move(self.index, mine, withdrawn))
        if attempt.base == remote.ledger:
            barrier = Barrier(id=self.fresh_id(), actor=self.actor)
            decided = self.decided(remote.ledger, [barrier], self.now())
            fence.append(Move(LEDGER, remote.ledger, self.written(remote.ledger, decided)))
        return fence

    def is_answer_of(self, wish: str, operation: str) -> bool:
        state, _, version = wish.partition(" ")
        return state == "answered" and self.objects.header(version).entry(operation) is not None

    # --- the commands ---

    def claim(self, what: Resource, *, carries: bool) -> str:
        """Claim; after a lost race wish, and carry out what everybody wishes (or only wait)."""
        claim = Claim(
            id=self.fresh_id(),
            actor=self.actor,
            resource=what,
            lease_id=self.fresh_id(),
            ttl=self.ttl,
            reopen=True,
        )
        answer = self.alone(claim)
        if answer == MOVED:
            return self.wished(claim, carries=carries)
        return self.granted(claim) if answer == DONE else self.after(claim)

    def wished(self, claim: Claim, *, carries: bool) -> str:
        placed = self.wish(claim)
        for turn in range(ROUNDS if placed else 0):
            remote = self.read()
            if self.objects.header(remote.ledger).entry(claim.id):
                break
            wishes = self.open_wishes(remote)
            if self.index not in wishes:
                break
            if not carries:
                continue
            if turn % 2:  # somebody's wish may be in the way: the next one goes alone
                wishes = {self.index: wishes[self.index]}
            decided, taken = self.carried(remote.ledger, (), wishes)
            if self.index not in taken:
                break  # this client decides by its own sightings, and says why it is refused
            if self.send(remote.ledger, decided, self.expected(remote, taken)) == DONE:
                break
        return self.after(claim)

    def after(self, claim: Claim) -> str:
        """The outcome of a claim that was left open."""
        attempt = self.disk.open
        assert attempt is not None
        if self.resolve(attempt) is Fate.LOST:
            raise Refused
        return self.granted(claim)

    def granted(self, claim: Claim) -> str:
        """``ok``, or ``lost`` if the time of the lease was over before its client knew."""
        self.close()
        lease = self.objects.versions.by_name[self.disk.known].leases.get(
            (claim.resource.key, claim.scope)
        )
        since = dict(self.disk.since).get(claim.lease_id)
        if lease is None or lease.lease_id != claim.lease_id or since is None:
            return "lost"
        return "ok" if is_in_time(lease, since, self.now()) else "lost"

    def alone(self, operation: Operation) -> str:
        """Push one operation, decided again on the newest state before it is refused.

        The push was ``done``, or lost for good (``moved``), or has no answer.
        """
        for is_fresh in (False, True):
            if is_fresh:
                self.read()
            base = self.disk.known
            try:
                decided = self.decided(base, [operation], self.now())
            except GitleaseError:
                continue
            if decided.applied.changed:
                self.note(Attempt(operation, self.now(), base))
                return self.send(base, decided)
        raise Refused

    def release(self, what: Resource) -> str:
        """Release; after a lost race what others wish goes along with the next try."""
        release = Release(id=self.fresh_id(), actor=self.actor, resource=what)
        answer = self.alone(release)
        if answer == MOVED:
            self.close()
            answer = self.with_wishes(release)
        if answer == DONE:
            self.close()
            return "ok"
        attempt = self.disk.open
        assert attempt is not None
        if self.resolve(attempt) is Fate.LOST:
            raise Refused
        return "ok"

    def with_wishes(self, operation: Operation) -> str:
        remote = self.read()
        decided, taken = self.carried(remote.ledger, [operation], self.open_wishes(remote))
        if not decided.applied.changed:
            raise Refused
        self.note(Attempt(operation, self.now(), remote.ledger))
        return self.send(remote.ledger, decided, self.expected(remote, taken))

    def set_up(self, policy: Mapping[str, str]) -> str:
        """Make the ledger."""
        made = Create(
            id=self.fresh_id(), actor=self.actor, ledger_id="ledger", policy=DEFAULT_POLICY
        )
        ledger = create(made)
        change = SetPolicy(id=self.fresh_id(), actor=self.actor, changes=tuple(policy.items()))
        decided = decide(ledger, [change], Moment(now=self.now()))
        base = Snapshot(layer=LAYER, version="", ledger=None, received=self.now())
        return self.objects.versions.add(Change(base, decided, "set-up"), replace_tip=False).name


def may_carry(header: Header, wish: Wish, now: Instant) -> bool:
    """Whether a wish is one that this head may answer, and of a client that is likely to live."""
    if header.entry(wish.claim.id) is not None or not header.ring_reaches(wish.base):
        return False
    if not wish.base <= header.revision <= wish.base + WINDOW:
        return False
    # Nothing rests on this comparison of two clocks: whoever is left out claims for itself.
    age = abs(now.wall_ms - wish.asked.wall_ms)
    return age <= (FRESH + header.policy.skew) * MS


def adds_only(ledger: Ledger, batch: Sequence[Operation], now: Instant) -> bool:
    """Whether the last claim of a batch is granted where nothing stood, lapsed leases included."""
    step = decide(ledger, batch, Moment(now=now), together=False)
    if isinstance(step.applied.results[-1], GitleaseError):
        return False
    before = decide(ledger, batch[:-1], Moment(now=now)).applied.ledger if batch[:-1] else ledger
    changed = {
        key: lease
        for key, (_, lease) in step.applied.ledger.changes.leases.items()
        if before.changes.leases.get(key, (None, None))[1] != lease
    }
    stood = {x.key for x in before.every_lease()}
    return len(changed) == 1 and stood.isdisjoint(changed)


def is_to_be_read_again(fence: Sequence[Move]) -> bool:
    """Whether the ledger decides after all: a mirror may have put back a wish that was answered."""
    return any(move.ref != LEDGER for move in fence)


def stamped(decided: Decided, wish: Wish) -> Decided:
    """The step with the lease of a wish as its own client would have written it."""
    at, claim = wish.asked.wall_ms, wish.claim

    def own(lease: Lease | None) -> Lease | None:
        if lease is None or lease.lease_id != claim.lease_id:
            return lease
        over = at + lease.duration_ms
        return replace(lease, claimed_at=at, renewed_at=at, expires_at=over)

    applied = decided.applied
    changes = applied.ledger.changes
    leases = {key: (before, own(after)) for key, (before, after) in changes.leases.items()}
    ledger = replace(applied.ledger, changes=replace(changes, leases=leases))
    results = tuple(
        x
        if isinstance(x, GitleaseError)
        else replace(x, leases=tuple(filter(None, map(own, x.leases))))
        for x in applied.results
    )
    return replace(decided, applied=Applied(ledger, results, changed=True))


def is_in_time(lease: Lease, since: Instant, now: Instant) -> bool:
    return since.elapsed_at_most(now) < lease.duration_ms


def believed(image: DiskImage, objects: Objects, actor: Actor, now: Instant) -> list[Lease]:
    """The leases that a clone takes for its own, by all that it knows."""
    if not image.known:
        return []
    since = dict(image.since)

    def seen(lease: Lease) -> Sighting | None:
        at = since.get(lease.lease_id)
        return None if at is None else Sighting(at=at, changed=True, since=at)

    leases = objects.versions.by_name[image.known].leases.values()
    moment = Moment(now=now, seen=seen)
    mine = (x for x in leases if x.holder == actor.holder and x.state is State.ACTIVE)
    return [x for x in mine if holder_has(x, moment)]


# --- a command as far as it goes ------------------------------------------------------------------


class Waiting(NamedTuple):
    """The process has sent a request. A kill leaves one of ``images``."""

    request: Request
    images: tuple[DiskImage, ...]


class Ended(NamedTuple):
    """The process is over."""

    report: Report
    images: tuple[DiskImage, ...]


VERBS: dict[str, Callable[[Client, Resource], str]] = {
    "claim": lambda client, what: client.claim(what, carries=True),
    "wait": lambda client, what: client.claim(what, carries=False),
    "release": lambda client, what: client.release(what),
    "look": lambda client, _: "ok" if client.read() else "",
}


def run(client: Client, verb: str, what: Resource) -> Waiting | Ended:
    """Carry out one command as far as its answers go."""
    done = frozenset[str]()
    try:
        client.settle()
        before = set(client.tried)
        code = VERBS[verb](client, what)
        done = frozenset(client.tried - before) if code == "ok" else done
    except Suspended as suspended:
        return Waiting(suspended.request, tuple(client.images[client.fresh_from :]))
    except Refused:
        code = "unavailable"
    except GaveUp:
        code = "unknown_outcome" if client.disk.open is not None else "unavailable"
    late = code == "ok" and verb in ("claim", "wait") and _is_late(client)
    report = Report(code, frozenset(client.tried), done, late, tuple(client.became))
    return Ended(report, tuple(client.images[client.fresh_from :]))


def _is_late(client: Client) -> bool:
    """Whether a lease that is reported is over, by arithmetic alone."""
    version: Version = client.objects.versions.by_name[client.disk.known]
    nonces = {nonce for nonce, _ in client.disk.since}
    mine = [x for x in version.leases.values() if x.lease_id in nonces]
    newest = max(mine, key=lambda x: x.token, default=None)
    return newest is not None and newest.expires_at <= client.now().wall_ms
