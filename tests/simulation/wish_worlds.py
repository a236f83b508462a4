"""Worlds of clients that wish: small ones explored whole, and larger ones lived at random.

    python tests/simulation/wish_worlds.py --seeds 0-999

Both play the same events (``Explorer.events``) and are judged by ``ledger_checker.laws``, which
shares no rule with the product or the model.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

if __name__ == "__main__":
    sys.path[:0] = map(str, Path(__file__).resolve().parents[1:3])

from ledger_checker.laws import Laws
from ledger_checker.moves import Broken
from simulation import shared_state, wishes
from simulation.scripted import SETUP, Report
from simulation.shared_state import OwnTime, command_of
from simulation.wishes import (
    DONE,
    LEDGER,
    SILENCE,
    Answer,
    Client,
    DiskImage,
    Ended,
    Objects,
    Push,
    Remote,
    Request,
    believed,
    run,
)

from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.resources import parse_resource

T = TypeVar("T")
POLICY = {"skew": "10s", "ttl_min": "10s"}
LONG_AFTER = 1_000_000  # seconds after which nothing that was granted counts any more
TIMES = tuple(OwnTime(offset=offset) for offset in (0, 10, 5.001, 2.002, 7.003))


@dataclass(frozen=True)
class World:
    """What there is to play.

    ``programs`` has the commands of each client, and ``resources`` what each claims. ``silences``
    is how many answers may fail to come, ``crashes`` how many commands may be killed, ``lags`` how
    many readings a replica may answer that is one change behind, for one ref or for all, and
    ``mirrors`` how often a stale mirror may put back a wish that is ``mirrored`` (its state).
    """

    programs: tuple[tuple[str, ...], ...]
    resources: tuple[str, ...]
    instants: tuple[float, ...] = (0,)
    ttl: int = 10
    silences: int = 0
    crashes: int = 0
    lags: int = 0
    mirrors: int = 0
    mirrored: str = "answered"


class Local:
    """One client between two events: idle, or waiting for the answer to a request."""

    __slots__ = (
        "answers", "begun", "client", "gave_up", "image", "killed", "next", "number", "request",
        "started", "verb",
    )  # fmt: skip

    def __init__(self, client: int, number: int, image: DiskImage, gave_up: int) -> None:
        self.client, self.number, self.image, self.gave_up = client, number, image, gave_up
        self.request: Request | None = None
        self.verb, self.started, self.begun = "", image, 0
        self.answers: tuple[tuple[Answer, int], ...] = ()
        self.killed: Local | None = None
        self.next: dict[object, Edge] = {}


class Edge(NamedTuple):
    """Where a client gets by one answer, how its command ended, and what a kill may leave."""

    to: Local
    report: Report | None
    crashed: tuple[Local, ...]


class State(NamedTuple):
    """One state. ``flights`` are pushes that nobody waits for, and that may land yet.

    ``before`` is what the refs were before their last change, where replicas may lag. ``told`` has
    what the remote has answered to each client, and ``never`` what must not land any more.
    """

    remote: Remote
    before: Remote
    instant: int
    silences: int
    crashes: int
    lags: int
    mirrors: int
    never: frozenset[str]
    flights: tuple[Push, ...]
    clients: tuple[Local, ...]
    told: tuple[Answer | None, ...]


class Event(NamedTuple):
    """Something that may come next; ``happen`` gives the state after it, or raises Broken."""

    kind: str
    label: str
    happen: Callable[[], State]


@dataclass
class Result:
    """What was played, and the shortest way to what is wrong with it."""

    states: int = 0
    broken: str = ""
    trace: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


class Explorer:
    """Plays one world."""

    def __init__(self, world: World) -> None:
        self.world, self.objects = world, Objects()
        self.resources = [parse_resource(text) for text in world.resources]
        self.actors = [Actor(f"p{n}@example.com") for n in range(len(world.programs))]
        self.instants = (*world.instants, world.instants[-1] + LONG_AFTER)
        self.times = TIMES[: len(world.programs)]
        versions = self.objects.versions
        self.laws = Laws(versions, self.times, self.instants, lambda id: command_of(id)[0])
        self._idle: dict[object, Local] = {}
        self._waiting: dict[object, Local] = {}
        self._beliefs: dict[object, tuple[Lease, ...]] = {}
        self._healed: set[object] = set()
        self.joined: set[str] = set()  # versions that have operations of several clients

    # --- one client ---

    def idle(self, client: int, number: int, image: DiskImage, gave_up: int) -> Local:
        key = client, number, image, gave_up
        return self._idle.setdefault(key, Local(client, number, image, gave_up))

    def start(self, local: Local, verb: str, instant: int) -> Edge:
        edge = local.next.get((verb, instant))
        if edge is None:
            number = local.number + 1
            gave_up = number if verb == "release" else local.gave_up
            begun = Local(local.client, number, local.image, gave_up)
            begun.verb, begun.begun = verb, instant
            edge = local.next[verb, instant] = self._run(begun, ())
        return edge

    def answer(self, local: Local, answer: Answer, instant: int) -> Edge:
        edge = local.next.get((answer, instant))
        if edge is None:
            edge = self._run(local, (*local.answers, (answer, instant)))
            local.next[answer, instant] = edge
        return edge

    def _client(self, local: Local, answers: tuple[tuple[Answer, int], ...]) -> Client:
        return Client(
            index=local.client,
            number=local.number,
            time=self.times[local.client],
            true=self.instants[local.begun],
            answers=[(answer, self.instants[at]) for answer, at in answers],
            objects=self.objects,
            actor=self.actors[local.client],
            images=[local.started],
            ttl=self.world.ttl,
        )

    def _run(self, local: Local, answers: tuple[tuple[Answer, int], ...]) -> Edge:
        client = local.client
        found = run(self._client(local, answers), local.verb, self.resources[client])
        left = (self.idle(client, local.number, x, local.gave_up) for x in found.images)
        crashed = tuple(dict.fromkeys(left))
        if isinstance(found, Ended):
            holds = found.report.code == "ok" and local.verb in ("claim", "wait")
            gave_up = 0 if holds else local.gave_up
            ended = self.idle(client, local.number, found.images[-1], gave_up)
            return Edge(ended, found.report, crashed)
        key = client, local.number, local.verb, local.gave_up, local.begun, local.started, answers
        there = self._waiting.get(key)
        if there is None:
            there = Local(client, local.number, found.images[-1], local.gave_up)
            there.verb, there.started, there.begun = local.verb, local.started, local.begun
            there.answers, there.request, there.killed = answers, found.request, crashed[-1]
            self._waiting[key] = there
        return Edge(there, None, crashed)

    def beliefs(self, local: Local, instant: int) -> tuple[Lease, ...]:
        """The leases that a client believes to hold, except those that it has begun to give up."""
        key = local.client, local.image, local.gave_up, instant
        found = self._beliefs.get(key)
        if found is None:
            now = self.times[local.client].at(self.instants[instant])
            held = believed(local.image, self.objects, self.actors[local.client], now)
            found = tuple(x for x in held if command_of(x.lease_id)[1] >= local.gave_up)
            self._beliefs[key] = found
        return found

    # --- one state ---

    def begin(self) -> State:
        """Everybody has read the ledger, which the first client has made."""
        many, world = len(self.world.programs), self.world
        setup = Local(0, SETUP, DiskImage(), 0)
        version = self._client(setup, ()).set_up(POLICY)
        remote = Remote(version, ("",) * many)
        clients = tuple(self.idle(n, 0, DiskImage(known=version), 0) for n in range(many))
        left = world.silences, world.crashes, world.lags, world.mirrors
        return State(remote, remote, 0, *left, frozenset(), (), clients, (None,) * many)

    def events(self, state: State) -> Iterator[Event]:
        """Every event that may come next."""
        if state.instant + 1 < len(self.world.instants):
            later = state._replace(instant=state.instant + 1)
            yield Event("time", "time passes", partial(_same, later))
        for at, push in enumerate(state.flights):
            rest = state._replace(flights=state.flights[:at] + state.flights[at + 1 :])
            yield Event("late", "a push lands late", partial(self._lands, rest, push))
        for client in range(len(state.clients)) if state.mirrors else ():
            yield from self._put_back(state, client)
        for client, local in enumerate(state.clients):
            name = "ABCDE"[client]
            if local.request is not None:
                yield from self._waited(state, client, local, local.request)
            elif local.number < len(self.world.programs[client]):
                verb = self.world.programs[client][local.number]
                edge = self.start(local, verb, state.instant)
                yield from self._taken(state, client, edge, "begin", f"{name} begins to {verb}")

    def _put_back(self, state: State, client: int) -> Iterator[Event]:
        """A mirror that is behind overwrites a ref with a wish that was there before."""
        header = self.objects.header(state.remote.ledger)
        for identity in self.objects.wishes:
            applied = header.entry(identity) is not None
            was_there = applied or state.remote.wishes[client] == f"withdrawn {identity}"
            wanted = applied == (self.world.mirrored == "answered")
            if command_of(identity)[0] == client and was_there and wanted:
                remote = state.remote.moved(client, f"open {identity}")
                after = state._replace(remote=remote, mirrors=state.mirrors - 1)
                yield Event("mirror", f"a mirror puts back {identity}", partial(_same, after))

    def _landed(self, state: State, push: Push) -> tuple[str, State]:
        """A push arrives. Every move of the ledger is judged."""
        answer, remote = wishes.serve(push, state.remote)
        if remote == state.remote:
            return answer, state
        for move in push.moves:
            if move.ref == LEDGER and remote.ledger == move.new != state.remote.ledger:
                request = shared_state.Request("push", move.old, move.new, push.base)
                self.laws.check_move(state.remote.ledger, request, state.never)
                if len(self.objects.versions.by_name[move.new].by) > 1:
                    self.joined.add(move.new)
        before = state.remote if self.world.lags else remote
        return answer, _without_vain(state._replace(remote=remote, before=before))

    def _lands(self, state: State, push: Push) -> State:
        return self._landed(state, push)[1]

    def _waited(self, state: State, client: int, local: Local, request: Request) -> Iterator[Event]:
        answer, name = state.told[client], "ABCDE"[client]
        what = "push" if isinstance(request, Push) else "reading"
        flights = state.flights
        if answer is None and isinstance(request, Push):
            push = request

            def arrive() -> State:
                told, after = self._landed(state, push)
                return after._replace(told=_put(after.told, client, told))

            yield Event("arrive", f"{name}'s push arrives", arrive)
            flights = (*flights, push)
        elif answer is None:
            yield from self._read(state, client)
        else:
            edge = self.answer(local, answer, state.instant)
            told = answer if isinstance(answer, str) else f"{answer.ledger}, {answer.wishes}"
            yield from self._taken(state, client, edge, "answer", f"{name} is told {told}")
        is_push = isinstance(request, Push)
        if answer is not None and not is_push:
            return  # nobody can tell whether it was read before it went unanswered
        lost = state._replace(flights=tuple(sorted(flights)))
        if state.silences:
            edge = self.answer(local, SILENCE, state.instant)
            after = lost._replace(silences=state.silences - 1)
            label = f"{name} gets no answer to its {what}"
            yield from self._taken(after, client, edge, "silence", label)
        if state.crashes and local.killed is not None:
            killed = local.killed
            yield Event("kill", f"{name} is killed", partial(self._killed, lost, client, killed))

    def _read(self, state: State, client: int) -> Iterator[Event]:
        now, old = state.remote, state.before
        found = {now: 0}
        if state.lags and old != now:
            stale = (old, Remote(now.ledger, old.wishes), Remote(old.ledger, now.wishes))
            found |= {answer: 1 for answer in stale if answer != now}
        for answer, lag in found.items():
            told = _put(state.told, client, answer)
            after = state._replace(told=told, lags=state.lags - lag)
            label = f"{'ABCDE'[client]} reads" + " what a replica has" * lag
            yield Event("lag" if lag else "arrive", label, partial(_same, after))

    def _taken(
        self, state: State, client: int, edge: Edge, kind: str, label: str
    ) -> Iterator[Event]:
        def go() -> State:
            never = state.never
            if edge.report is not None:
                never |= self.laws.check_report(edge.report, state.remote.ledger)
            clients = _put(state.clients, client, edge.to)
            told = _put(state.told, client, None)
            return _without_vain(state._replace(never=never, clients=clients, told=told))

        if edge.report is not None:
            label += f", and ends with {edge.report.code}"
        yield Event(kind, label, go)
        for crashed in edge.crashed if state.crashes else ():
            yield Event(
                "kill",
                f"{label}, and is killed",
                partial(self._killed, state, client, crashed),
            )

    def _killed(self, state: State, client: int, crashed: Local) -> State:
        clients = _put(state.clients, client, crashed)
        told = _put(state.told, client, None)
        after = state._replace(crashes=state.crashes - 1, clients=clients, told=told)
        return _without_vain(after)

    def check(self, state: State) -> None:
        """S3: no two clients believe in conflicting leases."""
        held = [self.beliefs(local, state.instant) for local in state.clients]
        if sum(map(bool, held)) > 1:
            self.laws.check_beliefs(held, state.remote.ledger)

    def check_end(self, state: State) -> None:
        """S8, L1, L3: every idle client goes on by itself once the network is well."""
        for client, local in enumerate(state.clients):
            key = local, state.remote, state.instant
            if local.request is None and key not in self._healed:
                self._healed.add(key)
                self._heal(client, local, state)

    def _heal(self, client: int, local: Local, state: State) -> None:
        well = state._replace(never=frozenset(), flights=())
        image, last = local.image, len(self.instants) - 1
        for number, verb, instant in ((1, "look", state.instant), (2, "claim", last)):
            begun = Local(client, SETUP - number, image, 0)
            begun.verb, begun.begun = verb, instant
            edge = self._run(begun, ())
            while edge.report is None:
                request = edge.to.request
                answer: Answer = well.remote
                if isinstance(request, Push):
                    answer, well = self._landed(well, request)
                edge = self.answer(edge.to, answer, instant)
            self.laws.check_report(edge.report, well.remote.ledger)
            image = edge.to.image
            if edge.report.code != "ok":
                raise Broken(f"S8: {verb} ends with {edge.report.code} while all is well")
            state_of, _, identity = well.remote.wishes[client].partition(" ")
            applied = self.objects.header(well.remote.ledger).entry(identity)
            if image.open is not None or (state_of == "open" and applied is None):
                raise Broken("L3: a wish is open for ever")

    # --- the whole world, or a life in it ---

    def explore(self) -> Result:
        """Visit every state, those that are reached by fewer events first."""
        result, first = Result(), self.begin()
        parents: dict[State, tuple[State, str] | None] = {first: None}
        queue, at, label = [first], first, ""
        try:
            for at in queue:
                alive = False
                for event in self.events(at):
                    alive, label = True, event.label
                    result.kinds[event.kind] += 1
                    after = event.happen()
                    if after not in parents:
                        parents[after] = at, label
                        queue.append(after)
                        self.check(after)
                        if event.kind == "kill":
                            self.check_end(after)
                if not alive:
                    label = "and no more"
                    self.check_end(at)
        except Broken as broken:
            result.broken, result.trace = str(broken), [label]
            found = parents[at]
            while found is not None:
                at, label = found
                result.trace.insert(0, label)
                found = parents[at]
        result.states = len(queue)
        return result

    def live(self, dice: random.Random) -> Result:
        """One life: one event after another, drawn by how often its kind happens."""
        result, state = Result(), self.begin()
        try:
            while events := [*self.events(state)]:
                weights = [OFTEN[event.kind] for event in events]
                (event,) = dice.choices(events, weights)
                result.trace.append(event.label)
                result.kinds[event.kind] += 1
                result.states += 1
                state = event.happen()
                self.check(state)
            self.check_end(state)
        except Broken as broken:
            result.broken = str(broken)
        return result


OFTEN = {
    "begin": 8.0, "arrive": 1.0, "answer": 1.0, "time": 0.15, "late": 0.3, "silence": 0.15,
    "kill": 0.05, "lag": 0.3, "mirror": 0.1,
}  # fmt: skip
LIFE = World(
    programs=(("claim", "release") * 4, ("wait", "release") * 4) * 2 + (("claim", "wait") * 4,),
    resources=("F001", "F002", "F003", "F004", "F001"),
    instants=tuple(range(0, 180, 3)),
    ttl=40,
    silences=6,
    crashes=3,
    lags=6,
    mirrors=2,
)


def life(seed: int, world: World = LIFE) -> Result:
    """One life of five clients, from its seed."""
    return Explorer(world).live(random.Random(f"wishes {seed}"))


def _same(state: State) -> State:
    return state


def _put(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _without_vain(state: State) -> State:
    """Without the pushes that can never land any more: only a mirror gives a ref a value twice."""
    if not state.flights or state.mirrors:
        return state
    live = tuple(x for x in state.flights if wishes.serve(x, state.remote)[0] == DONE)
    return state if len(live) == len(state.flights) else state._replace(flights=live)


def main() -> int:
    """Play many lives; stop at the first violation, with its seed and its events."""
    parser = argparse.ArgumentParser(description=(main.__doc__ or ""))
    parser.add_argument("--seeds", required=True, metavar="A-B", help="the first and the last seed")
    first, _, last = parser.parse_args().seeds.partition("-")
    kinds, states = Counter[str](), 0
    for seed in range(int(first), int(last or first) + 1):
        result = life(seed)
        if result.broken:
            print(*result.trace, f"seed {seed}: {result.broken}", sep="\n")
            return 1
        kinds += result.kinds
        states += result.states
    print(f"{states:,} events", dict(sorted(kinds.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
