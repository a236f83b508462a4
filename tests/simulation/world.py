"""A world of clones with clocks of their own on one faulty remote, and a checker with the true one.

Everything is drawn from one seed and happens in virtual time. While one actor waits for an answer
or takes a nap, others act: that is where races come from.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from simulation.checker import Broken, Checker
from simulation.machines import LAYER, Disk, Killed, Machine, OwnClock, Process, Run
from simulation.server import Server
from simulation.weather import Weather
from support.memory import Fault, memory_ledger_store
from support.session import NoInbox, NoTaskFiles

from gitlease.core.errors import GitleaseError
from gitlease.core.frozen import replace
from gitlease.core.lease import Actor, same_person
from gitlease.core.moves.operations import Grant
from gitlease.core.resources.resource import Resource, parse_resource
from gitlease.engine import claim, end, govern, hold, reading, sessions
from gitlease.engine.answers import Answer, ClaimOptions, Reading
from gitlease.engine.edges import EdgeRules, Edges
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.ports import Pending

NAMES = tuple(map(parse_resource, ("F001", "F002", "F003")))
PATHS = ("src/auth/**", "src/*/login.py", "docs/")
RESOURCES = (*NAMES, *NAMES, *map(parse_resource, PATHS))
SCOPES = ("*", "*", "parser", "lexer")
TTLS = (10, 15, 30, 60, 120)
CLONES: tuple[tuple[tuple[str, str | None, bool], ...], ...] = (
    (("p1", "run-0", True), ("p1", "run-2", False)),
    (("p1", "run-1", True),),
    (("p2", None, False),),
    (("p3", None, False), ("p4", "run-3", True)),
    (("p5", None, False),),
)  # who works where: holder, session, and whether the session was named
RULES = EdgeRules()
FAULTS = tuple(Fault)
LONG = 400_000.0  # seconds after which every lease has lapsed, by the slowest of all clocks
SOON = 300.0  # seconds within which somebody comes back for what is held
HOLDING = ("claim", "claim again", "renew", "extend", "beat")
GAVE_UP = ("release", "done", "park", "end session")
VERBS = (
    *("claim",) * 6,
    *("renew",) * 3,
    *("extend", "release", "release", "read", "note", "done", "revoke"),
    *("park", "park", "end session", "beat"),
)


class World:
    """``run`` lets the runs act; every rule is checked at every instant at which one could break.

    ``observed``: the rule that needs no common clock, so wall clocks may be wrong and may jump.
    """

    def __init__(self, seed: int, *, observed: bool, weather: Weather) -> None:
        self.dice = random.Random(seed)
        self.true = 0.0
        self.observed, self.weather = observed, weather
        self.faults: Counter[str] = Counter()
        self.outcomes: dict[str, str] = {}
        self.counted: Counter[str] = Counter()
        self.shaken: set[str] = set()
        self.remote = Server(self)
        self.remote.lagging = weather.lagging
        self.remote.during = self._during
        self.machines = [self._machine(n, who) for n, who in enumerate(CLONES)]
        self.runs = [run for machine in self.machines for run in machine.runs]
        self.checker = Checker(self.remote, self.runs)
        self.done = 0
        self._running: list[Process] = []
        self._depth = self._turns = 0
        self._back_at = 0.0
        self._numbers = itertools.count(1)
        self._free: list[tuple[float, int, Run, Resource]] = []

    def _machine(self, n: int, people: tuple[tuple[str, str | None, bool], ...]) -> Machine:
        dice, far = self.dice, 7_200.0 if self.observed else 28.0
        drift, steady = self.weather.drift, not (self.observed and n % 2 == 0)
        wild = self.observed and not steady
        clock = OwnClock(
            self,
            wall_offset=dice.uniform(-far, far),
            wall_rate=2.0 ** dice.uniform(-1, 1) if wild else 1.0,
            boot_rate=1 + dice.uniform(-drift, drift),
        )
        if self.observed and steady:
            clock.wall_rate = clock.boot_rate
        machine = Machine(f"clone-{n}", clock, Disk(self), steady)
        for who, session, named in people:
            actor = Actor(f"{who}@example.com", session, session_explicit=named)
            machine.runs.append(Run(f"{machine.name} {session or who}", machine, actor))
        return machine

    # --- time passes ------------------------------------------------------------------------------

    def elapse(self, seconds: float) -> None:
        """Let true time pass; others may act meanwhile, at any instant of it."""
        dice, until = self.dice, self.true + seconds
        while self.true < until:
            then = min(until, self.true + dice.uniform(0.1, max(seconds, 0.2)))
            if self._free and self._free[0][0] <= then and self._depth < 3:
                self._claim_again()
                continue
            self.true = max(self.true, then)
            if dice.random() < self.weather.rollbacks and not self.remote.rolled_back:
                self._roll_back()
            if self._depth < 3 and dice.random() < 0.3:
                self.act()

    def _claim_again(self) -> None:
        """Whoever was refused claims at the very instant at which it was told to."""
        at, _, run, what = heapq.heappop(self._free)
        self.true = max(self.true, at)
        if not run.machine.busy:
            self.command(run, "claim again", what)

    def _during(self, kind: str) -> None:
        dice, weather = self.dice, self.weather
        if dice.random() < weather.suspended:
            self.faults["suspended machine"] += 1
            self.elapse(dice.uniform(60, 1_500))
        else:
            self.elapse(dice.uniform(0, 40 if dice.random() < weather.slow else 1.0))
        if kind == "push" and dice.random() < weather.faults:
            self.remote.late_by = dice.choice((1, 1, 2, 3, 5, 9))
            fault = dice.choice(FAULTS)
            self.faults[f"push {fault.name.lower()}"] += fault is not Fault.NONE
            self.remote.pushes.append(fault)
        if kind != "push" and dice.random() < weather.faults / 4:
            self.faults["fetch unreachable"] += 1
            self.remote.fetches.append(Fault.UNREACHABLE)

    # --- what leaves a process --------------------------------------------------------------------

    def outside(self, step: str) -> None:
        """Kill the running process here, where its time has come."""
        process = self._running[-1] if self._running else None
        if process is None:
            return
        if process.steps_left is not None and not process.dead:
            process.steps_left -= 1
            if process.steps_left < 0:
                process.dead = True
                self.faults[f"killed {step}"] += 1
        if process.dead:
            raise Killed(process.number)

    def process(self) -> str:
        return self._running[-1].number if self._running else ""

    def is_alive(self, process: str) -> bool:
        return any(x.number == process and not x.dead for x in self._running)

    def noted(self, pending: Pending) -> None:
        if self._running and pending.what != "a barrier":
            grants = bool(pending.resources)
            self.checker.sent(self._running[-1], pending.operations, grants=grants)

    def learned(self, machine: Machine) -> None:
        self.checker.learned(machine)

    # --- what people do ---------------------------------------------------------------------------

    def begin(self, policy: dict[str, str]) -> None:
        """The ledger is made while the network is well, and nobody disturbs."""
        with self._calm():
            govern.set_policy(self.session(self.runs[0]), policy)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.elapse(self.dice.choice((0.0, 1.0, 5.0, 20.0, 60.0)))
            if self.remote.rolled_back and self.true >= self._back_at:
                self._bring_back()
            self.act()

    def act(self) -> None:
        """One run carries out one command; seldom one whose clone is in the middle of another."""
        dice = self.dice
        twice = dice.random() < 0.1
        idle = [run for run in self.runs if twice or not run.machine.busy]
        if not idle:
            return
        run = dice.choice(idle)
        if dice.random() < self.weather.disturbed:
            self._disturb(run.machine)
        self.command(run, dice.choice(VERBS))

    def _disturb(self, machine: Machine) -> None:
        dice = self.dice
        if not machine.steady:
            machine.clock.step(dice.choice((-3_600.0, -60.0, 60.0, 3_600.0)))
            self.faults["clock set"] += 1
        else:
            for process in self._running:
                process.dead = process.dead or process.run.machine is machine
            machine.clock.reboot()
            self.faults[f"reboot, {machine.disk.power_fails(dice)}"] += 1
            machine.seen = None
        self.checker.learned(machine)

    def _roll_back(self) -> None:
        self.remote.roll_back(self.dice.randint(1, 10))
        self._turns += self.remote.rolled_back
        self.faults["rollback"] += self.remote.rolled_back
        self._back_at = self.true + self.dice.uniform(5, 300)

    def _bring_back(self) -> None:
        """Bring back what was there; who worked on the other past takes a fresh clone."""
        self._turns += 1
        line = self.remote.bring_back()
        for machine in self.machines:
            known = machine.disk.load()
            if line is not None and known is not None and known.version not in line.places:
                self.checker.excused |= {x.lease_id for run in machine.runs for x in run.own}
                for pending in machine.disk.unsettled():
                    machine.disk.remove_pending(pending)
                machine.disk.forget()
                machine.seen = None
                self.checker.learned(machine)

    def command(self, run: Run, verb: str, what: Resource | None = None) -> str:
        """Carry out one command as a process of its own; ``ok`` or the code of its refusal."""
        process = Process(f"command-{next(self._numbers)}", run, began=self._turns)
        if self.dice.random() < self.weather.kills:
            process.steps_left = self.dice.randint(0, 8)
        number, machine = process.number, run.machine
        self.outcomes[number] = outcome = "running"
        self._running.append(process)
        machine.busy, self._depth = machine.busy + 1, self._depth + 1
        self.checker.acts(run)
        try:
            answer = self._verb(self.session(run, number), run, verb, what)
            outcome = "ok"
        except GitleaseError as refusal:
            outcome = refusal.code
            self._refused(run, refusal)
        except Killed:
            outcome = "killed"
        finally:
            self._running.pop()
            machine.busy, self._depth = machine.busy - 1, self._depth - 1
        self.outcomes[number] = outcome
        self.counted[f"{verb} {outcome}"] += 1
        self.done += 1
        if self.remote.rolled_back or process.began != self._turns:
            self.shaken.add(number)
        if outcome == "ok" and isinstance(answer, Answer):
            self._answered(process, verb, answer)
        return outcome

    def _refused(self, run: Run, refusal: GitleaseError) -> None:
        if refusal.free_at is None or refusal.resource is None or self.dice.random() < 0.5:
            return
        at = run.machine.clock.when(refusal.free_at)
        if self.true < at < self.true + SOON:
            resource = parse_resource(refusal.resource)
            heapq.heappush(self._free, (at, next(self._numbers), run, resource))

    def session(self, run: Run, number: str = "") -> LedgerSession:
        """A process of its own for a run; ``number`` stands in the records that it writes."""
        clock, actor = run.machine.clock, replace(run.actor, branch=number or None)
        return LedgerSession(
            memory_ledger_store(self.remote, clock=clock, clone=run.machine.clone),
            clock=clock,
            actor=actor,
            layer=LAYER,
            edges=Edges(NoTaskFiles(), RULES, holder=actor.holder),
            inbox=NoInbox(),
            default_ttl=900,
            ttl_is_default=True,
            dice=self.dice,
        )

    def _several(self) -> list[Resource]:
        dice = self.dice
        number = 1 if dice.random() < 0.8 else dice.randint(2, 3)
        return [dice.choice(RESOURCES) for _ in range(number)]

    def _held(self, run: Run) -> list[Resource]:
        """What a run holds, by what its clone knows; now and then something else."""
        if not run.own or self.dice.random() < 0.3:
            return self._several()
        number = 1 if self.dice.random() < 0.7 else len(run.own)
        return [lease.resource for lease in self.dice.sample(run.own, number)]

    def _verb(
        self, session: LedgerSession, run: Run, verb: str, what: Resource | None
    ) -> Answer | Reading:
        dice = self.dice
        if verb in GAVE_UP:
            run.renounced |= {lease.lease_id for lease in run.own}
        if what is not None:
            return claim.claim(session, [what], ClaimOptions(ttl=dice.choice(TTLS)))
        if verb == "claim":
            wanted = self._several()
            paths = (dice.choice(PATHS),) if dice.random() < 0.2 else ()
            options = ClaimOptions(
                scope=dice.choice(SCOPES),
                ttl=dice.choice(TTLS),
                paths=() if any(x.is_path for x in wanted) else paths,
                reopen=dice.random() < 0.7,
            )
            wait = 30 if dice.random() < 0.06 else None
            return claim.claim(session, wanted, options, wait=wait)
        if verb == "renew":
            held = self._held(run) if dice.random() < 0.5 else []
            return hold.renew(session, held) if held else hold.renew_all([session])
        if verb == "beat":
            return hold.renew_grants(session, self._grants(run))
        if verb == "extend":
            return hold.extend(session, self._held(run)[0], dice.choice((5, 60, 300)))
        if verb == "note":
            return govern.note(session, dice.choice(RESOURCES), "half done")
        if verb == "revoke":
            return govern.revoke(session, dice.choice(RESOURCES), reason="stuck")
        if verb == "release":
            return end.release(session, self._held(run))
        if verb == "done":
            return end.complete(session, self._held(run)[0])
        if verb == "park":
            return sessions.park(session, self._held(run), seconds=dice.choice((5, 60, 300, 900)))
        if verb == "end session":
            name, seconds = run.actor.session or "run-0", dice.choice((60, 900))
            how = dice.choice(({"park": True, "seconds": seconds}, {"release": True}, {}))
            return sessions.end_session([session], name, **how)
        return reading.read_leases(session)

    def _grants(self, run: Run) -> list[Grant]:
        """All that one heartbeat of a clone renews: what any session of the holder has."""
        mine = (x for x in run.machine.runs if same_person(x.actor.holder, run.actor.holder))
        own = {x.lease_id: x for other in mine for x in other.own}
        return [Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in own.values()]

    def _answered(self, process: Process, verb: str, answer: Answer) -> None:
        holds = verb in HOLDING
        self.checker.answered(process, answer, holds=holds)
        if holds:
            process.run.renounced.difference_update(view.lease_id for view in answer.leases)
            self.checker.compare()

    # --- the end ----------------------------------------------------------------------------------

    @contextmanager
    def _calm(self) -> Iterator[None]:
        weather, depth = self.weather, self._depth
        self.weather = replace(
            weather, faults=0.0, kills=0.0, disturbed=0.0, suspended=0.0, rollbacks=0.0
        )
        self.remote.lagging, self._depth = 0.0, 9  # nobody acts by himself
        self._free.clear()
        yield
        self.weather, self._depth = weather, depth
        self.remote.lagging = weather.lagging

    def settle(self) -> None:
        """The network heals and everybody looks: lost messages cost time, not truth (L3, L1)."""
        if self.remote.rolled_back:
            self._bring_back()
        self.remote.pushes.clear()
        self.remote.fetches.clear()
        self.remote.arrive()
        with self._calm():
            for run in self.runs:
                self._settles(run)
            self.checker.ended(self.outcomes, self.shaken)
            for name in NAMES:
                claimer = self.dice.choice(self.runs)
                self.command(claimer, "read")
                self.elapse(LONG)
                try:
                    claim.claim(self.session(claimer), [name], ClaimOptions(reopen=True))
                except GitleaseError as refusal:
                    raise Broken(f"L1: {name} is free, and not to be had: {refusal}") from None

    def _settles(self, run: Run) -> None:
        self.command(run, "read")
        if (said := self.command(run, "note")) != "ok":
            raise Broken(f"S8: the network is well, and a note cannot be left: {said}")
        self.command(run, "read")
        if run.machine.disk.pending():
            raise Broken("L3: a change is pending for ever")
