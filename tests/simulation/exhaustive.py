"""Small worlds, each explored whole: every order of decisions, landings, answers, crashes and time.

    python tests/simulation/exhaustive.py --clients 2 --operations 4

The clients are the real code, which runs from one request to the next (``scripted``). Between two
requests nothing of it can be seen or disturbed from outside but its files, so that an order of
requests, answers, kills and clocks is all that there is to choose. What a process does next depends
on what its clone kept, its answers and its clock: it is worked out once for each of these.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from ledger_checker.laws import Laws  # noqa: E402
from ledger_checker.moves import Broken  # noqa: E402
from simulation.scripted import (  # noqa: E402
    SETUP,
    SILENCE,
    Ended,
    Process,
    Report,
    believed,
    run,
)
from simulation.shared_state import (  # noqa: E402
    Disk,
    DiskImage,
    Request,
    Versions,
    command_of,
    serve,
)
from simulation.small_worlds import World, worlds  # noqa: E402

from gitlease.kernel.ledger import transaction  # noqa: E402
from gitlease.kernel.rules.lease import Lease  # noqa: E402
from gitlease.kernel.rules.resources import parse_resource  # noqa: E402

T = TypeVar("T")
HOLDS = ("claim", "keep", "beat", "pick", "renew", "extend", "bind", "claim as the person")
LONG_AFTER = 1_000_000  # seconds after which nothing that was granted counts any more


class Local:
    """One client as it stands between two events: idle, or waiting for the answer to a request.

    ``number`` of its commands are over or begun. ``gave_up`` is that of the last one that was to
    end a lease: what was granted before, the client is not said to believe in any more.
    """

    __slots__ = (
        "answers", "begun", "beliefs", "client", "gave_up", "image", "killed", "next", "number",
        "request", "started", "verb",
    )  # fmt: skip

    def __init__(self, client: int, number: int, image: DiskImage, gave_up: int) -> None:
        self.client, self.number, self.image, self.gave_up = client, number, image, gave_up
        self.request: Request | None = None
        self.verb, self.started, self.begun = "", image, 0
        self.answers: tuple[tuple[str, int], ...] = ()
        self.killed: Local | None = None  # what a kill leaves of it, once its request is sent
        self.next: dict[tuple[str, int], Edge] = {}
        self.beliefs: dict[int, tuple[Lease, ...]] = {}


class Edge(NamedTuple):
    """Where a client gets by one answer, and how its command ended if it did.

    A kill on the way there leaves one of ``crashed``, before the next request was sent.
    """

    to: Local
    report: Report | None
    crashed: tuple[Local, ...] = ()


class State(NamedTuple):
    """One state of a world. ``flights`` are pushes that nobody waits for, and that may land yet.

    ``told`` has for each client what the remote has answered it, None before that; ``never`` the
    operations of which it was said that they will not land.
    """

    ref: str
    work: str
    instant: int
    silences: int
    crashes: int
    never: frozenset[str]
    flights: tuple[Request, ...]
    clients: tuple[Local, ...]
    told: tuple[str | None, ...]


Step = tuple[str, State]


@dataclass
class Result:
    """What was explored of one world, and the shortest way to what is wrong with it."""

    world: World
    states: int = 0
    steps: int = 0
    runs: int = 0
    broken: str = ""
    trace: list[str] = field(default_factory=list)


class Explorer:
    """Explores one world, the states that are reached by fewer events first."""

    def __init__(self, world: World) -> None:
        self.world, self.versions = world, Versions()
        self.resources = [parse_resource(text) for text in world.resources]
        late = world.instants[-1] + LONG_AFTER
        self.instants = (*world.instants, late)
        self.laws = Laws(self.versions, world.times, self.instants, lambda id: command_of(id)[0])
        self.runs = 0
        self.event = ""  # the last one, for the account of what is broken
        self._idle: dict[object, Local] = {}
        self._waiting: dict[object, Local] = {}
        self._images: dict[object, DiskImage] = {}
        self._healed: set[object] = set()

    # --- one client -------------------------------------------------------------------------------

    def idle(self, client: int, number: int, image: DiskImage, gave_up: int) -> Local:
        key = client, number, image.key, gave_up
        found = self._idle.get(key)
        if found is None:
            found = self._idle[key] = Local(client, number, image, gave_up)
        return found

    def start(self, local: Local, verb: str, instant: int) -> Edge:
        """The client begins its next command."""
        edge = local.next.get((verb, instant))
        if edge is None:
            gives_up = verb in ("release", "done", "unbind", "end")
            begun = Local(
                local.client,
                local.number + 1,
                local.image,
                local.number + 1 if gives_up else local.gave_up,
            )
            begun.verb, begun.begun = verb, instant
            edge = local.next[verb, instant] = self._run(begun, ())
        return edge

    def answer(self, local: Local, answer: str, instant: int) -> Edge:
        """The client gets an answer."""
        edge = local.next.get((answer, instant))
        if edge is None:
            edge = self._run(local, (*local.answers, (answer, instant)))
            local.next[answer, instant] = edge
        return edge

    def _run(self, local: Local, answers: tuple[tuple[str, int], ...]) -> Edge:
        self.runs += 1
        process = self._process(local, local.started, local.begun, answers)
        resource = self.resources[local.client]
        policy = dict(self.world.policy)
        found = run(process, local.verb, resource, self.world.ttl, policy)
        images = [
            self.idle(local.client, local.number, image, local.gave_up) for image in found.images
        ]
        crashed = tuple(dict.fromkeys(images))
        if isinstance(found, Ended):
            report, gave_up = found.report, local.gave_up
            if report.code == "ok" and local.verb in HOLDS:
                gave_up = 0
            ended = self.idle(local.client, local.number, found.images[-1], gave_up)
            return Edge(ended, report, crashed)
        begun = local.client, local.number, local.verb, local.gave_up, local.begun
        key = begun, local.started.key, answers
        there = self._waiting.get(key)
        if there is None:
            there = Local(local.client, local.number, found.images[-1], local.gave_up)
            there.started, there.begun, there.answers = local.started, local.begun, answers
            there.verb, there.request, there.killed = local.verb, found.request, images[-1]
            self._waiting[key] = there
        return Edge(there, None, crashed)

    def _process(
        self,
        local: Local,
        image: DiskImage,
        instant: int,
        answers: Sequence[tuple[str, int]] = (),
    ) -> Process:
        return Process(
            client=local.client,
            number=local.number,
            time=self.world.times[local.client],
            true=self.instants[instant],
            answers=[(text, self.instants[at]) for text, at in answers],
            versions=self.versions,
            disk=Disk(image),
            actor=self.world.actors[local.client],
        )

    def beliefs(self, local: Local, instant: int) -> tuple[Lease, ...]:
        """The leases that a client believes to hold, but for those that it has given up."""
        found = local.beliefs.get(instant)
        if found is None:
            process = self._process(local, local.image, instant)
            found = tuple(
                lease
                for lease in believed(process)
                if command_of(lease.lease_id)[1] >= local.gave_up
            )
            local.beliefs[instant] = found
        return found

    # --- one state --------------------------------------------------------------------------------

    def begin(self) -> State:
        """Everybody has read the ledger, which the first client has made; or there is none."""
        ref, images = "", [DiskImage() for _ in self.world.programs]
        if self.world.ledger:
            ref, _, images[0] = self.alone(0, SETUP, images[0], "set policy", ref, "", 0)
            for client in range(1, len(images)):
                _, _, images[client] = self.alone(client, SETUP, images[client], "read", ref, "", 0)
        clients = tuple(self.idle(n, 0, image, 0) for n, image in enumerate(images))
        world = self.world
        told = (None,) * len(clients)
        return State(ref, "", 0, world.silences, world.crashes, frozenset(), (), clients, told)

    def alone(
        self,
        client: int,
        number: int,
        image: DiskImage,
        verb: str,
        ref: str,
        work: str,
        instant: int,
    ) -> tuple[str, str, DiskImage]:
        """One command of one client while the network is well, and nobody else does anything."""
        local = Local(client, number, image, 0)
        local.verb, local.begun = verb, instant
        edge = self._run(local, ())
        while edge.report is None:
            request = edge.to.request
            assert request is not None
            answer, after, work = serve(request, ref, work)
            if after != ref:
                self.laws.check_move(ref, request, frozenset())
                ref = after
            edge = self.answer(edge.to, answer, instant)
        self.laws.check_report(edge.report, ref)
        if edge.report.code != "ok":
            raise Broken(f"S8: {verb} ends with {edge.report.code} while all is well")
        return ref, work, edge.to.image

    def steps(self, state: State) -> Iterator[Step]:
        """Every event that may come next, and the state after it."""
        if state.instant + 1 < len(self.world.instants):
            yield "time passes", state._replace(instant=state.instant + 1)
        for at, request in enumerate(state.flights):
            _, ref, work = serve(request, state.ref, state.work)
            self.event = f"a push lands late, as {ref}"
            self.laws.check_move(state.ref, request, state.never)
            rest = state.flights[:at] + state.flights[at + 1 :]
            after = state._replace(ref=ref, work=work, flights=rest)
            yield self.event, _without_vain(after)
        for client, local in enumerate(state.clients):
            if local.request is None:
                yield from self._begun(state, client, local)
            else:
                yield from self._waited(state, client, local, local.request)

    def _begun(self, state: State, client: int, local: Local) -> Iterator[Step]:
        program = self.world.programs[client]
        for verb in program[local.number] if local.number < len(program) else ():
            edge = self.start(local, verb, state.instant)
            yield from self._taken(state, client, edge, f"begins to {verb}")

    def _waited(self, state: State, client: int, local: Local, request: Request) -> Iterator[Step]:
        answer, instant = state.told[client], state.instant
        pushes, flights = request.kind == "push", state.flights
        if answer is None:
            answer, ref, work = serve(request, state.ref, state.work)
            self.event = f"{_name(client)}'s {request.kind} arrives"
            if ref != state.ref:
                self.event += f", as {ref}"
                self.laws.check_move(state.ref, request, state.never)
            elif work != state.work:
                raise Broken("S5: work that needs a lease landed without the ledger")
            told = _put(state.told, client, answer)
            yield self.event, _without_vain(state._replace(ref=ref, work=work, told=told))
            if pushes:
                flights = tuple(sorted((*flights, request)))
        else:
            edge = self.answer(local, answer, instant)
            yield from self._taken(state, client, edge, f"is answered: {answer or 'nothing'}")
            if not pushes:
                return  # nobody can tell whether a question was read before it went unanswered
        if state.silences:
            edge = self.answer(local, SILENCE, instant)
            after = state._replace(silences=state.silences - 1, flights=flights)
            yield from self._taken(after, client, edge, f"gets no answer to its {request.kind}")
        if state.crashes and local.killed is not None:
            yield self._killed(state._replace(flights=flights), client, local.killed)

    def _taken(self, state: State, client: int, edge: Edge, what: str) -> Iterator[Step]:
        never, name = state.never, _name(client)
        if edge.report is not None:
            self.event = f"{name} {what}, and ends with {edge.report.code}"
            never |= self.laws.check_report(edge.report, state.ref)
        elif edge.to.request is not None:
            self.event = f"{name} {what}, and asks to {edge.to.request.kind}"
        clients = _put(state.clients, client, edge.to)
        told = _put(state.told, client, None)
        yield self.event, _without_vain(state._replace(never=never, clients=clients, told=told))
        for crashed in edge.crashed if state.crashes else ():
            label, after = self._killed(state, client, crashed)
            yield f"{name} {what}, and {label.removeprefix(name + ' ')}", after

    def _killed(self, state: State, client: int, crashed: Local) -> Step:
        after = state._replace(
            crashes=state.crashes - 1,
            clients=_put(state.clients, client, crashed),
            told=_put(state.told, client, None),
        )
        return f"{_name(client)} is killed", _without_vain(after)

    def check(self, state: State) -> None:
        """What must hold in a state, whatever came before it."""
        held = [self.beliefs(local, state.instant) for local in state.clients]
        if sum(map(bool, held)) > 1:
            self.laws.check_beliefs(held, state.ref)

    def check_end(self, state: State) -> None:
        """S8: whoever is killed, or has come to an end, goes on without anybody's help."""
        for local in state.clients:
            key = local, state.ref, state.work, state.instant
            if local.request is None and key not in self._healed:
                self._healed.add(key)
                self._heal(local, state)

    def _heal(self, local: Local, state: State) -> None:
        client, image, ref, work = local.client, local.image, state.ref, state.work
        for n, verb in enumerate(("note", "read")):
            number = SETUP - 1 - n
            ref, work, image = self.alone(client, number, image, verb, ref, work, state.instant)
        if image.pending:
            raise Broken("S8: a change is pending for ever")
        last = len(self.instants) - 1
        self.alone(client, SETUP - 3, image, "claim", ref, work, last)

    # --- the whole world --------------------------------------------------------------------------

    def explore(self) -> Result:
        """Visit every state; stops where a rule is broken."""
        with mock.patch.object(transaction, "SAME_AGAIN", self.world.again):
            return self._explore()

    def _explore(self) -> Result:
        result = Result(self.world)
        states: list[State] = []
        parents = array("q")
        seen: set[State] = set()
        at = -1
        try:
            states.append(self.begin())
            seen.add(states[0])
            parents.append(-1)
            while at + 1 < len(states):
                at += 1
                state, alive = states[at], False
                for label, after in self.steps(state):
                    alive = True
                    result.steps += 1
                    if after not in seen:
                        self.event = label
                        seen.add(after)
                        states.append(after)
                        parents.append(at)
                        self.check(after)
                        if after.crashes < state.crashes:
                            self.check_end(after)
                if not alive:
                    self.event = "and no more"
                    self.check_end(state)
        except Broken as broken:
            result.broken = str(broken)
            result.trace = self._trace(states, parents, at)
        result.states, result.runs = len(states), self.runs
        return result

    def _trace(self, states: Sequence[State], parents: Sequence[int], at: int) -> list[str]:
        """The events that led to a state, and the one after it that broke a rule."""
        broke = self.event
        way = [f"{self.world.instants[states[at].instant]:4g}s  {broke}"] if at >= 0 else []
        while at > 0:
            before = states[parents[at]]
            label = next(label for label, after in self.steps(before) if after == states[at])
            seconds = self.world.instants[before.instant]
            way.append(f"{seconds:4g}s  {label}")
            at = parents[at]
        return way[::-1]


def _put(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _name(client: int) -> str:
    return "ABC"[client]


def _without_vain(state: State) -> State:
    """Without the pushes that can never land any more: no state comes back."""
    if not state.flights:
        return state
    flights = tuple(x for x in state.flights if serve(x, state.ref, state.work)[0] == "done")
    return state if len(flights) == len(state.flights) else state._replace(flights=flights)


def main() -> int:
    """Explore the worlds of one size, and print a row of a table for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, choices=(2, 3), default=2)
    parser.add_argument("--operations", type=int, choices=(1, 2, 3, 4), default=4)
    parser.add_argument("--world", default="", help="only those whose name begins so")
    asked = parser.parse_args()
    print("| world | states | steps | runs of the client | seconds of CPU |")
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    for world in worlds(asked.clients, asked.operations):
        if not world.name.startswith(asked.world):
            continue
        began, result = time.process_time(), Explorer(world).explore()
        spent = f"{time.process_time() - began:.0f}"
        cells = [world.name, f"{result.states:,}", f"{result.steps:,}", f"{result.runs:,}", spent]
        print("| " + " | ".join(cells) + " |", flush=True)
        if result.broken:
            print(*result.trace, result.broken, sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
