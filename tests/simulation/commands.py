"""The commands of a simulation, drawn by dice: the calls of the engine that a face would make."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from simulation.machines import Job, Process, Run
from support import older
from support.session import NoTaskFiles
from support.tasks import task

from gitlease.kernel.ledger import acts, claim, sessions, stepping
from gitlease.kernel.ledger.answers import Answer, ClaimOptions, Reading
from gitlease.kernel.ledger.keeping import holds_of
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.ports import TaskList
from gitlease.kernel.rules.errors import LeaseLost, NotHolder
from gitlease.kernel.rules.frozen import JSON
from gitlease.kernel.rules.lease import Lease, same_person
from gitlease.kernel.rules.loss import Hold
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import Resource, parse_resource

NAMES = tuple(map(parse_resource, ("F001", "F002", "F003")))
TASKS = tuple(map(parse_resource, ("T001", "T002")))  # which have a file, and so an edge
PATHS = ("src/auth/**", "src/*/login.py", "docs/")
RESOURCES = (*NAMES, *NAMES, *NAMES, *TASKS, *map(parse_resource, PATHS), parse_resource(PATHS[0]))
SCOPES = ("*", "*", "parser", "lexer")
TTLS = (10, 15, 30, 60, 120)
DAY = 86_400
HOLDING = ("claim", "claim again", "claim a task", "renew", "extend", "beat", "run", "keep")
GAVE_UP = ("release", "done", "park", "set aside", "end session")
VERBS = (
    *("claim",) * 6,
    *("run",) * 4,
    *("renew",) * 3,
    *("extend", "release", "release", "read", "note", "done", "revoke"),
    *("park", "set aside", "end session", "beat", "end session"),
    *("claim a task",) * 3,
)


class Files(NoTaskFiles):
    """Task files of which this clone has an old copy: they name nobody, whoever has the edge."""

    found = TaskList(tuple(task(name.text) for name in TASKS))

    def read(self, ref: str | None = None) -> TaskList:
        return self.found


class Host(Protocol):
    """What a command needs of the world around it."""

    dice: random.Random
    calm: bool

    def outside(self, step: str) -> None:
        """Told of every step that leaves the process. Raises Killed where it dies there."""

    def session(self, process: Process, *, person: bool = False) -> LedgerSession:
        """What a process works with, in its own session, or for its person without one."""

    def given_back(self, process: Process, grants: Sequence[Grant]) -> None:
        """A command was told that these are bound no more."""

    def asked(self, holds: Sequence[Hold]) -> None:
        """Others of the clone are asked to renew these along."""


class Commands:
    """Carries out one command after the other, as processes of the runs of a world."""

    def __init__(self, host: Host) -> None:
        self._host, self._dice = host, host.dice
        self.verbs: dict[str, Callable[[Process], Answer | Reading]] = {
            "claim": self._claim,
            "claim a task": self._claim_a_task,
            "run": self._run,
            "keep": self._keep,
            "unbind": self._unbind,
            "have back": self._unbind,
            "release ours": self._release_ours,
            "beat": self._beat,
            "renew": self._renew,
            "extend": self._extend,
            "release": lambda x: acts.release(self._session(x), self._held(x.run)),
            "done": lambda x: acts.complete(self._session(x), self._held(x.run)[0]),
            "park": self._park,
            "set aside": self._set_aside,
            "end session": self._end_session,
            "note": self._note,
            "revoke": self._revoke,
            "read": lambda x: stepping.read_leases(self._session(x)),
        }

    def carry_out(self, process: Process, what: Resource | None) -> Answer | Reading:
        """Do what ``process.verb`` says; ``what`` is claimed where it is named."""
        if process.verb in GAVE_UP:
            process.run.renounced |= {lease.lease_id for lease in process.run.own}
        if what is not None:
            options = ClaimOptions(ttl=self._dice.choice(TTLS))
            return claim.claim(self._session(process), [what], options)
        return self.verbs[process.verb](process)

    def _session(self, process: Process) -> LedgerSession:
        return self._host.session(process)

    def _several(self) -> list[Resource]:
        dice = self._dice
        number = 1 if dice.random() < 0.8 else dice.randint(2, 3)
        return [dice.choice(RESOURCES) for _ in range(number)]

    def _held(self, run: Run) -> list[Resource]:
        """What a run holds, by what its clone knows; now and then something else."""
        if not run.own or self._dice.random() < 0.3:
            return self._several()
        number = 1 if self._dice.random() < 0.7 else len(run.own)
        return [lease.resource for lease in self._dice.sample(run.own, number)]

    # --- one command each -------------------------------------------------------------------------

    def _claim(self, process: Process) -> Answer:
        dice, wanted = self._dice, self._several()
        paths = (dice.choice(PATHS),) if dice.random() < 0.2 else ()
        options = ClaimOptions(
            scope=dice.choice(SCOPES),
            ttl=dice.choice(TTLS),
            paths=() if any(x.is_path for x in wanted) else paths,
            reopen=dice.random() < 0.7,
        )
        wait = 30 if dice.random() < 0.06 else None
        return claim.claim(self._session(process), wanted, options, wait=wait)

    def _claim_a_task(self, process: Process) -> Answer:
        options = ClaimOptions(ttl=self._dice.choice(TTLS), reopen=True)
        return claim.claim(self._session(process), [self._dice.choice(TASKS)], options)

    def _renew(self, process: Process) -> Answer:
        held = self._held(process.run) if self._dice.random() < 0.5 else []
        session = self._session(process)
        return acts.renew(session, held) if held else acts.renew_all([session])

    def _beat(self, process: Process) -> Answer:
        """The heartbeat of whoever works in a clone: what any session of the holder has."""
        run = process.run
        mine = (x for x in run.machine.runs if same_person(x.actor.holder, run.actor.holder))
        own = {x.lease_id: x for other in mine for x in other.own}
        grants = [Grant(x.resource, x.scope, x.session, x.lease_id, x.token) for x in own.values()]
        return acts.renew_grants(self._host.session(process, person=True), grants)

    def _extend(self, process: Process) -> Answer:
        held, seconds = self._held(process.run)[0], self._dice.choice((5, 60, 300))
        return acts.extend(self._session(process), held, seconds)

    def _park(self, process: Process) -> Answer:
        held, seconds = self._held(process.run), self._dice.choice((5, 60, 300, 900))
        return older.park(self._session(process), held, seconds=seconds)

    def _set_aside(self, process: Process) -> Answer:
        tasks = [x.resource for x in process.run.own if x.resource in TASKS]
        process.keeps_edges = True
        return acts.keep(self._session(process), tasks[:1] or [self._dice.choice(TASKS)])

    def _end_session(self, process: Process) -> Answer:
        dice, name = self._dice, process.run.actor.session or "run-0"
        how = dice.choice(("park", "release", "run out", "run out"))
        process.keeps_edges = how == "run out"
        session = self._session(process)
        if how == "park":
            return older.park_session(session, name, seconds=dice.choice((60, 900)))
        return sessions.end_session([session], name, release=how == "release")

    def _note(self, process: Process) -> Answer:
        return acts.note(self._session(process), self._dice.choice(RESOURCES), "half done")

    def _revoke(self, process: Process) -> Answer:
        resource = self._dice.choice(RESOURCES)
        return acts.revoke(self._session(process), resource, reason="stuck")

    # --- what runs under leases: the calls of ``leased_command`` and ``registry`` of ``runs`` ----

    def _run(self, process: Process) -> Answer:
        dice, run = self._dice, process.run
        wanted = self._wanted(run)
        options = ClaimOptions(ttl=dice.choice(TTLS), reopen=dice.random() < 0.7, bind=True)
        session = self._session(process)
        answer = claim.claim(session, wanted, options)
        grants = [x.grant for x in holds_of(answer)]
        joined = {view.lease_id for view in answer.leases if view.renewals}
        bound = set(answer.bound)
        self._host.outside("before a run is remembered")
        process.job = Job(
            run,
            bound=[x for x in grants if x.lease_id in bound],
            ours=[x for x in grants if x.lease_id not in joined],
            joined=[x for x in grants if x.lease_id in joined - bound],
        )
        run.machine.alive.append(process.job)
        self._ask(session, run, answer)
        return answer

    def _wanted(self, run: Run) -> list[Resource]:
        """What to run under: mostly what the person holds already, without a session."""
        unbound = sorted({x.resource for x in unbound_leases(run)}, key=str)
        if not unbound or self._dice.random() < 0.2:
            return self._several()
        return self._dice.sample(unbound, 1)

    def _keep(self, process: Process) -> Answer:
        job = process.job
        assert job is not None
        session = self._host.session(process, person=True)
        answer = acts.renew_grants(session, job.grants)
        lost = {x.resource for x in answer.refused if isinstance(x, LeaseLost | NotHolder)}
        for grants in (job.bound, job.ours, job.joined):
            grants[:] = [x for x in grants if x.resource.text not in lost]
        self._ask(session, job.run, answer)
        return answer

    def _ask(self, session: LedgerSession, run: Run, answer: Answer) -> None:
        """Have whoever of the clone changes the ledger next renew along what a run holds."""
        head, holds = session.store.known(session.layer), holds_of(answer)
        if head is not None and head.along is not None:
            self._host.asked(holds)
            head.along.ask(run.name, [JSON.dump(x) for x in holds])

    def _release_ours(self, process: Process) -> Answer:
        """What a run was granted itself ends with it."""
        job = process.job
        assert job is not None
        job.run.renounced |= {x.lease_id for x in job.ours}
        wanted = [x.resource for x in job.ours]
        return acts.release(self._session(process), wanted, scope=job.ours[0].scope)

    def _unbind(self, process: Process) -> Answer:
        """What a run bound is its person's again: at its end, or once it is known to be dead."""
        job = process.job
        assert job is not None
        process.unbinds = True
        job.run.renounced |= {x.lease_id for x in job.bound}
        session = self._host.session(process, person=job.dead)
        answer = sessions.unbind(session, job.bound)
        self._host.given_back(process, job.bound)
        return answer


def unbound_leases(run: Run) -> list[Lease]:
    """What a person holds in a clone without a session, and has not run out by its clock."""
    now, mine = run.machine.clock.now().wall_ms, run.actor.holder
    every = (x for other in run.machine.runs for x in other.own if x.session is None)
    return [x for x in every if same_person(x.holder, mine) and now < x.expires_at]
