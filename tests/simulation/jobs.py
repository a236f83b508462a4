"""Runs under leases, as they begin, go on, end and die: as ``runs/`` does it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from simulation.commands import unbound_leases
from simulation.machines import Job, Run

from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.lease import same_person

if TYPE_CHECKING:
    from simulation.world import World


class Jobs:
    """The commands under leases of one world, which their clones remember as ``alive``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = itertools.count(1)

    def begin(self, run: Run) -> None:
        """Run something under leases: in a session of its own, but where one was given."""
        worker, machine = run, run.machine
        self.have_back(run)
        if run.actor.session is None and not unbound_leases(run):
            self._world.command(run, "claim")  # first by hand, then a run that goes on with it
        if not run.actor.session_explicit or self._world.dice.random() < 0.3:
            session = f"job-{next(self._numbers)}"
            actor = replace(run.actor, session=session, session_explicit=False)
            worker = Run(f"{machine.name} {session}", machine, actor)
            machine.runs.append(worker)
            self._world.runs.append(worker)
        self._world.command(worker, "run")
        if not any(x.run is worker and not x.dead for x in machine.alive):
            self._leaves(worker)

    def goes_on(self, job: Job) -> None:
        """A command under leases is killed, or renews its leases, or comes to its end."""
        draw, job.busy = self._world.dice.random(), True
        if draw < 0.1:
            self._world.faults["killed run"] += 1
            self.dies(job)
        elif draw < 0.6:
            if self._world.command(job.run, "keep", job=job) == "killed" or not job.grants:
                self.dies(job)
        else:
            self.give_back(job)
        job.busy = False

    def give_back(self, job: Job) -> None:
        """A run ends: what it bound is unbound, then what it got is released."""
        done = not job.bound or self._world.command(job.run, "unbind", job=job) == "ok"
        if done and job.ours and not job.dead:
            done = self._world.command(job.run, "release ours", job=job) == "ok"
        if done and not job.dead:
            job.run.machine.alive.remove(job)
        self.dies(job)

    def have_back(self, run: Run) -> None:
        """Whoever runs something has back what dead runs of this clone had bound."""
        alive = run.machine.alive
        for job in [x for x in alive if x.dead and not x.busy]:
            gone = job.busy or job not in alive  # by another command, while this one had the last
            if not gone and same_person(job.run.actor.holder, run.actor.holder):
                job.busy = True
                if not job.bound or self._world.command(run, "have back", job=job) == "ok":
                    alive.remove(job)
                job.busy = False

    def dies(self, job: Job) -> None:
        job.dead = True
        self._leaves(job.run)

    def _leaves(self, run: Run) -> None:
        """A run is over; who works in a session that was given goes on without it."""
        if run in self._world.people or run not in self._world.runs:
            return
        self._world.runs.remove(run)
        run.machine.runs.remove(run)
        self._world.checker.left(run)
