"""What a claim costs where clones contend at a real host's pace: today, and with wishes.

    python tests/simulation/wish_costs.py

A push takes a connection and a pack, a reading a connection; requests run beside each other, and
the ledger's ref moves by compare-and-swap. Nothing here is the product: clients are loops of
requests, and the design page's table (``.github/designs/wishes.md``) is made by it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple

CONNECTION, PACK = 0.5, 0.7  # seconds
RUNS = 20


class Read(NamedTuple):
    """Read the ledger and all wishes."""


class Push(NamedTuple):
    """Move the ledger from ``expected`` with some claims, or place a wish; close ``answered``."""

    claims: tuple[int, ...] = ()
    expected: int = 0
    wish: int | None = None
    answered: tuple[int, ...] = ()


class Seen(NamedTuple):
    """What a request told: for a push whether it landed, for a reading the state."""

    landed: bool = False
    revision: int = 0
    granted: frozenset[int] = frozenset()
    wishes: tuple[tuple[int, int], ...] = ()  # base and client of each, oldest first


Request = Push | Read | float  # seconds: a pause
Play = Generator[Request, Seen, None]


@dataclass
class Cost:
    """What one run came to."""

    last: float = 0.0
    pushes: int = 0
    readings: int = 0


@dataclass
class Host:
    """A remote in virtual time, and the clients that ask it."""

    now: float = 0.0
    revision: int = 0
    granted: set[int] = field(default_factory=set)
    wishes: dict[int, int] = field(default_factory=dict)  # by client the base
    cost: Cost = field(default_factory=Cost)
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), then))

    def run(self) -> None:
        while self._due:
            self.now, _, then = heapq.heappop(self._due)
            then()

    def enter(self, play: Play, at: float) -> None:
        self.after(at, lambda: self._request(play, next(play)))

    def _go_on(self, play: Play, seen: Seen) -> None:
        try:
            request = play.send(seen)
        except StopIteration:
            self.cost.last = max(self.cost.last, self.now)
        else:
            self._request(play, request)

    def _request(self, play: Play, request: Request) -> None:
        if isinstance(request, float):
            self.after(request, lambda: self._go_on(play, Seen()))
        elif isinstance(request, Read):
            self.cost.readings += 1
            self.after(CONNECTION / 2, lambda: self._read(play))
        else:
            self.cost.pushes += 1
            self.after(CONNECTION / 2, lambda: self._advertised(play, request))

    def _read(self, play: Play) -> None:
        open_wishes = sorted((base, client) for client, base in self.wishes.items())
        seen = Seen(False, self.revision, frozenset(self.granted), tuple(open_wishes))
        self.after(CONNECTION / 2, lambda: self._go_on(play, seen))

    def _advertised(self, play: Play, push: Push) -> None:
        """Git refuses at once what the advertisement contradicts; a pack takes its time."""
        if push.wish is None and push.expected != self.revision:
            self.after(CONNECTION / 2, lambda: self._go_on(play, Seen()))
        else:
            self.after(CONNECTION / 2 + PACK, lambda: self._arrived(play, push))

    def _arrived(self, play: Play, push: Push) -> None:
        if push.wish is not None:
            self.wishes[push.wish] = push.expected
            self._go_on(play, Seen(landed=True))
            return
        lands = push.expected == self.revision and self.wishes.keys() >= {*push.answered}
        if lands:
            self.revision += 1
            self.granted |= {*push.claims}
            for client in push.answered:
                del self.wishes[client]
        self._go_on(play, Seen(landed=lands))


def racing(host: Host, client: int, dice: random.Random) -> Play:
    """Push, and after a lost race read and push again, with pauses as clients make them today."""
    revision, tries, began = 0, 0, host.now
    while True:
        at = host.now
        seen = yield Push((client,), revision)
        if seen.landed:
            return
        tries += 1
        if tries > 1:
            lasted, age = host.now - at, host.now - began
            pause = dice.uniform(0, lasted * 4 * 8 / (8 + age / lasted))
            yield min(10.0, pause) if pause >= lasted / 2 else 0.0
        seen = yield Read()
        revision = seen.revision


def wishing(lost: int) -> Callable[[Host, int, random.Random], Play]:
    """Race until so many pushes are lost; then wish, and carry out all wishes in one's turn."""

    def play(host: Host, client: int, dice: random.Random) -> Play:
        revision = 0
        for tries in range(lost):
            if tries:
                seen = yield Read()
                revision = seen.revision
            seen = yield Push((client,), revision)
            if seen.landed:
                return
        yield Push(expected=revision, wish=client)
        waited = 0
        while True:
            seen = yield Read()
            if client in seen.granted:
                return
            everybody = tuple(who for _, who in seen.wishes)
            if everybody.index(client) > waited:
                waited += 1
                yield CONNECTION + PACK
                continue
            waited = 0
            pushed = yield Push(everybody, seen.revision, answered=everybody)
            if pushed.landed:
                return

    return play


def contend(
    clients: int, spread: float, play: Callable[[Host, int, random.Random], Play], seed: int
) -> Cost:
    """So many clients claim one name each, all of them within ``spread`` seconds."""
    host, starts = Host(), random.Random(seed)
    for client in range(clients):
        dice = random.Random(f"{seed} {client}")
        host.enter(play(host, client, dice), starts.uniform(0, spread))
    host.run()
    assert len(host.granted) == clients
    return host.cost


def mean(
    clients: int, spread: float, play: Callable[[Host, int, random.Random], Play]
) -> tuple[float, float, float]:
    """Seconds until the last one is granted, pushes and readings: the mean of ``RUNS``."""
    costs = [contend(clients, spread, play, seed) for seed in range(RUNS)]
    last = sum(cost.last for cost in costs)
    pushes = sum(cost.pushes for cost in costs)
    readings = sum(cost.readings for cost in costs)
    return last / RUNS, pushes / RUNS, readings / RUNS


def main() -> None:
    print("| clones, spread | today | wish after one lost race | wish after two |")
    print("| --- | --- | --- | --- |")
    for clients, spread in itertools.product((1, 2, 3, 5, 10, 20), (0.0, 1.0)):
        cells = [f"{clients}, {spread:g} s"]
        for play in (racing, wishing(1), wishing(2)):
            last, pushes, readings = mean(clients, spread, play)
            cells.append(f"{last:.1f} s, {pushes:.0f}, {readings:.0f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
