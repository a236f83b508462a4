"""A world of clones with clocks of their own on one faulty remote, and a checker with the true one.

Everything is drawn from one seed and happens in virtual time. While one actor waits for an answer
or takes a nap, others act: that is where races come from.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ledger_checker.beliefs import Checker
from ledger_checker.moves import Broken
from simulation.commands import DAY, HOLDING, NAMES, TASKS, VERBS, Commands, Files
from simulation.jobs import Jobs
from simulation.machines import LAYER, START, Disk, Job, Killed, Machine, OwnClock, Process, Run
from simulation.places import store_at
from simulation.server import Server
from simulation.upheavals import Upheavals
from simulation.weather import Weather
from support.memory import Fault

from gitlease.kernel.ledger import acts, claim
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.chores import in_order
from gitlease.kernel.ledger.edges import EdgeRules, Edges
from gitlease.kernel.ledger.ledger_session import Caller, Decisions, LedgerSession, Terms
from gitlease.kernel.ledger.ports import Pending
from gitlease.kernel.rules.errors import GitleaseError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS
from gitlease.kernel.rules.lease import Actor, same_person
from gitlease.kernel.rules.loss import Hold
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import Resource, parse_resource
from gitlease.kernel.store.git_ledger import RefLedgerStore

CLONES: tuple[tuple[tuple[str, str | None, bool], ...], ...] = (
    (("p1", "run-0", True), ("p1", "run-2", False)),
    (("p1", "run-1", True),),
    (("p2", None, False),),
    (("p3", None, False), ("p4", "run-3", True)),
    (("p5", None, False), ("p2", None, False)),
)  # who works where: holder, session, and whether the session was named
RULES, FILES = EdgeRules(required=False), Files()
FAULTS = tuple(Fault)
LONG = 400_000.0  # seconds after which every lease has lapsed, by the slowest of all clocks
SOON = 300.0  # seconds within which somebody comes back for what is held


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
        self.shaken: set[str] = set()
        self.told: set[str] = set()
        self.remote = Server(self)
        self.remote.lagging = weather.lagging
        self.remote.during = self._during
        self.machines = [self._machine(n, who) for n, who in enumerate(CLONES)]
        self.runs = [run for machine in self.machines for run in machine.runs]
        self.checker = Checker(self.remote, self.runs, None if observed else self.true_wall)
        self.people = [*self.runs]
        self.commands, self.jobs = Commands(self), Jobs(self)
        self.calm = False
        self.done = 0
        self._running: list[Process] = []
        self._asking: dict[str, Process] = {}  # by operation, who had others asked to carry it out
        self._depth = self.turns = 0
        self.upheavals = Upheavals(self, self.commands)
        self._back_at = 0.0
        self._numbers = itertools.count(1)
        self._free: list[tuple[float, int, Run, Resource]] = []

    def _machine(self, n: int, people: tuple[tuple[str, str | None, bool], ...]) -> Machine:
        dice, far = self.dice, 7_200.0 if self.observed else 28.0
        drift, steady = self.weather.drift, not (self.observed and n % 2 == 0)
        # The wait of a restored ledger ends by the wall clock: none may be off by days.
        wild = self.observed and not steady and not self.weather.upheavals
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

    def true_wall(self) -> float:
        return (START + self.true) * MS

    # --- time passes ------------------------------------------------------------------------------

    def days_pass(self) -> None:
        """Nobody does anything until edges are abandoned; then somebody looks at them."""
        self.true += self.dice.uniform(0.5, 1.5) * DAY
        for run in self.dice.sample(self.people, 4):
            self.command(run, "claim a task")

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
            if self.weather.upheavals and 0 < self._depth < 3 and dice.random() < 0.1:
                self.upheavals.happen()

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
            for operation in pending.operations:
                process = self._asking.get(operation, self._running[-1])
                self.checker.sent(process, [operation], grants=bool(pending.resources))

    def waits(self, machine: Machine, ask: Callable[[], None]) -> None:
        dice, process = self.dice, self._running[-1] if self._running else None
        if process is None or self.calm or self._depth > 2 or dice.random() < 0.8:
            return
        ask()
        self._asking |= dict.fromkeys(machine.disk.asked_by(process.number), process)
        run = dice.choice(machine.runs)
        self.faults["claim taken along"] += self._takes_along(run)
        self.outside("while it waits")

    def _takes_along(self, run: Run) -> bool:
        before = {operation: self.checker.senders.get(operation) for operation in self._asking}
        self.command(run, self.dice.choice(("claim", "claim a task", "read")))
        return any(self.checker.senders.get(x) != sender for x, sender in before.items())

    def learned(self, machine: Machine) -> None:
        self.checker.learned(machine)

    # --- what people do ---------------------------------------------------------------------------

    def begin(self, policy: dict[str, str]) -> None:
        """The ledger is made while the network is well, and nobody disturbs."""
        with self._calm():
            acts.set_policy(self.session(Process("", self.runs[0])), policy)
        if self.weather.upheavals:
            self.upheavals.recorded = self.upheavals.header.ledger_id

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.elapse(self.dice.choice((0.0, 1.0, 5.0, 20.0, 60.0)))
            if self.remote.rolled_back and self.true >= self._back_at:
                self._bring_back()
            if self.dice.random() < 0.012 and not self.remote.rolled_back:
                self.days_pass()
            if self.weather.upheavals:
                self.upheavals.happen()
            self.act()

    def act(self) -> None:
        """One run carries out one command; seldom one whose clone is in the middle of another."""
        dice = self.dice
        twice = dice.random() < 0.1
        idle = [run for run in self.people if twice or not run.machine.busy]
        if not idle:
            return
        run = dice.choice(idle)
        if dice.random() < self.weather.disturbed:
            self._disturb(run.machine)
        jobs = [x for x in run.machine.alive if not x.dead and not x.busy]
        if jobs and dice.random() < 0.6:
            self.jobs.goes_on(dice.choice(jobs))
        elif (verb := dice.choice(VERBS)) == "run":
            self.jobs.begin(run)
        else:
            self.command(run, verb)

    def _disturb(self, machine: Machine) -> None:
        dice = self.dice
        if not machine.steady:
            machine.clock.step(dice.choice((-3_600.0, -60.0, 60.0, 3_600.0)))
            self.faults["clock set"] += 1
        else:
            for process in self._running:
                process.dead = process.dead or process.run.machine is machine
            for job in [x for x in machine.alive if not x.dead]:
                self.jobs.dies(job)
            machine.clock.reboot()
            self.faults[f"reboot, {machine.disk.power_fails(dice)}"] += 1
            machine.seen = None
        self.checker.learned(machine)

    def _roll_back(self) -> None:
        self.remote.roll_back(self.dice.randint(1, 10))
        self.turns += self.remote.rolled_back
        self.faults["rollback"] += self.remote.rolled_back
        self._back_at = self.true + self.dice.uniform(5, 300)

    def _bring_back(self) -> None:
        """Bring back what was there; who worked on the other past takes a fresh clone."""
        self.turns += 1
        line = self.remote.bring_back()
        for machine in self.machines:
            known = machine.disk.load()
            if line is not None and known is not None and known.version not in line.places:
                self.checker.forgot(machine)
                for pending in machine.disk.pending(living=True):
                    machine.disk.remove_pending(pending)
                machine.disk.forget()
                machine.seen = None
                self.checker.learned(machine)

    def command(
        self, run: Run, verb: str, what: Resource | None = None, *, job: Job | None = None
    ) -> str:
        """Carry out one command as a process of its own; ``ok`` or the code of its refusal."""
        number = f"command-{next(self._numbers)}"
        process = Process(number, run, began=self.turns, verb=verb, job=job)
        if self.dice.random() < self.weather.kills:
            process.steps_left = self.dice.randint(0, 8)
        machine = run.machine
        self.outcomes[number] = outcome = "running"
        self._running.append(process)
        machine.busy, self._depth = machine.busy + 1, self._depth + 1
        self.checker.acts(run)
        try:
            answer = self.commands.carry_out(process, what)
            outcome = "ok"
        except GitleaseError as refusal:
            outcome = refusal.code
            if any("had reached the remote" in said for said in refusal.warnings):
                self.told.add(number)  # of a wait: one of its claims, which was lost meanwhile
            self._refused(run, refusal)
        except Killed:
            outcome = "killed"
        finally:
            self._running.pop()
            machine.busy, self._depth = machine.busy - 1, self._depth - 1
        self.outcomes[number] = outcome
        self.done += 1
        if self.remote.rolled_back or process.began != self.turns:
            self.shaken.add(number)
        if outcome == "killed" and process.job is not None:
            self.jobs.dies(process.job)
        if outcome == "ok" and isinstance(answer, Answer):
            self._answered(process, verb, answer)
        return outcome

    def _refused(self, run: Run, refusal: GitleaseError) -> None:
        if refusal.free_at_ms is None or refusal.resource is None or self.dice.random() < 0.5:
            return
        at = run.machine.clock.when(refusal.free_at_ms)
        if self.true < at < self.true + SOON:
            resource = parse_resource(refusal.resource)
            heapq.heappush(self._free, (at, next(self._numbers), run, resource))

    def session(self, process: Process, *, person: bool = False) -> LedgerSession:
        """What a process works with; its number stands in the records that it writes."""
        clock, actor = process.run.machine.clock, process.run.actor
        if person:
            actor = replace(actor, session=None, session_explicit=False)
        process.session = actor.session
        store = self._store(process.run)
        return LedgerSession(
            store,
            caller=Caller(actor=replace(actor, branch=process.number or None)),
            clock=clock,
            layer=LAYER,
            edges=Edges(FILES, RULES, Decisions(store, LAYER, actor.holder)),
            terms=Terms(default_ttl=900, ttl_is_default=True, dice=self.dice),
            chores=in_order(),
        )

    def _store(self, run: Run) -> RefLedgerStore:
        return store_at(
            self.remote,
            run.machine,
            opener=run.actor,
            recorded=lambda: self.upheavals.recorded,
            at_once=lambda: self.dice.random() < 0.5,
        )

    def given_back(self, process: Process, grants: Sequence[Grant]) -> None:
        # A replica that lags may say that nothing is bound yet, and then there is nothing to do.
        went_back = self.remote.rolled_back or process.began != self.turns
        if not went_back and not self.weather.lagging:
            self.checker.given_back(grants)

    def asked(self, holds: Sequence[Hold]) -> None:
        self.checker.asked(holds)

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
            weather,
            faults=0.0,
            kills=0.0,
            disturbed=0.0,
            suspended=0.0,
            rollbacks=0.0,
            upheavals=0.0,
        )
        self.remote.lagging, self._depth = 0.0, 9  # nobody acts by himself
        self.calm = True
        self._free.clear()
        yield
        self.weather, self._depth, self.calm = weather, depth, False
        self.remote.lagging = weather.lagging

    def settle(self) -> None:
        """The network heals and everybody looks: lost messages cost time, not truth (L3, L1)."""
        if self.remote.rolled_back:
            self._bring_back()
        self.remote.pushes.clear()
        self.remote.fetches.clear()
        self.remote.arrive()
        upheavals = self.weather.upheavals
        with self._calm():
            if upheavals:
                self.upheavals.settle()
                if self.checker.is_deleted:
                    # Who knew its last state lost it in a power failure, and clocks are no help.
                    assert self.observed
                    return
            for job in [x for machine in self.machines for x in machine.alive if not x.dead]:
                self.jobs.give_back(job)
            for run in self.people:
                self._settles(run)
            self.checker.ended(self.outcomes, self.shaken | self.told)
            for name in NAMES if self.observed else (*NAMES, *TASKS):
                claimer = self.dice.choice(self.people)
                self.command(claimer, "read")
                self.elapse(LONG)
                session = self.session(Process("", claimer))
                try:
                    claim.claim(session, [name], ClaimOptions(reopen=True))
                except GitleaseError as refusal:
                    raise Broken(f"L1: {name} is free, and not to be had: {refusal}") from None

    def _settles(self, run: Run) -> None:
        self.command(run, "read")
        if (said := self.command(run, "note")) != "ok":
            raise Broken(f"S8: the network is well, and a note cannot be left: {said}")
        self.command(run, "read")
        self.jobs.have_back(run)
        if any(same_person(x.run.actor.holder, run.actor.holder) for x in run.machine.alive):
            raise Broken("S8: what a dead run bound cannot be had back")
        if run.machine.disk.pending():
            raise Broken("L3: a change is pending for ever")
