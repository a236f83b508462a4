"""Sessions of a ledger in memory, and the verbs of the engine bound to one."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from gitlease.kernel.ledger import acts, claim, sessions, stepping
from gitlease.kernel.ledger.chores import in_order
from gitlease.kernel.ledger.edges import EdgeRules, Edges
from gitlease.kernel.ledger.ledger_session import Caller, Decisions, LedgerSession, Terms
from gitlease.kernel.ledger.ports import (
    Clock,
    Intent,
    LedgerStore,
    TaskChange,
    TaskFiles,
    TaskList,
    Written,
)
from gitlease.kernel.ledger.transaction import PATIENCE, CarryOut
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.lease import Actor, Lease
from gitlease.kernel.rules.resources import GLOBAL_LAYER, Resource
from gitlease.kernel.store.git_ledger import RefLedgerStore
from gitlease.tasks.queue import TaskQueue
from support import older
from support.clock import ManualClock
from support.memory import MemoryClone, MemoryRemote, memory_ledger_store
from support.tasks import MemoryTasks


class NoTaskFiles:
    """The task files of a repository that can have none: all names are just names."""

    writes = False

    def read(self, ref: str | None = None) -> TaskList:
        return TaskList()

    def places(self) -> Sequence[str]:
        return ()

    def doubt(self) -> str:
        return ""

    def elsewhere(self, here: TaskList) -> Sequence[tuple[str, TaskList]]:
        return ()

    def on_a_branch(self, resource: Resource) -> tuple[str, Task] | None:
        return None

    def assigned_since(self, task: Task, name: str, ref: str | None) -> int | None:
        return None

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        """Nothing can be changed, and nothing is asked to be."""

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        return ()

    def intend(self, intent: Intent) -> None:
        """Nothing is ever written here."""

    def settled(self, intent: Intent) -> None:
        """Nothing was intended."""

    def leave(self, intent: Intent) -> None:
        """Nothing was intended."""

    def at(self, root: str) -> None:
        return None

    def left_behind(self) -> Sequence[Intent]:
        return ()


def ledger_session(
    store: LedgerStore,
    *,
    clock: Clock,
    actor: Actor,
    layer: str = GLOBAL_LAYER,
    files: TaskFiles | None = None,
    rules: EdgeRules | None = None,
    default_ttl: int = 900,
    patience: float = PATIENCE,
    dice: random.Random | None = None,
    carry: CarryOut | None = None,
) -> LedgerSession:
    """A session with what is usual for all that is not given."""
    decisions = Decisions(store, layer, actor.holder)
    return LedgerSession(
        store,
        caller=Caller(actor=actor),
        clock=clock,
        layer=layer,
        edges=Edges(files or NoTaskFiles(), rules or EdgeRules(), decisions),
        terms=Terms(
            default_ttl=default_ttl,
            ttl_is_default=True,
            patience=patience,
            dice=dice or random.SystemRandom(),
            carry=carry,
        ),
        chores=in_order(),
    )


class LeaseService:
    """Claims and everything after, for one actor on one layer of one store."""

    def __init__(self, session: LedgerSession) -> None:
        self.session = session
        self.store, self.clock = session.store, session.clock
        self.actor, self.layer = session.actor, session.layer
        self.edges, self.inbox = session.edges, session.mailbox
        self.look, self.known_look = session.look, session.known_look

        self.read = partial(stepping.read_leases, session)
        self.log = partial(stepping.read_log, session)
        self.claim = partial(claim.claim, session)
        self.start = partial(claim.start, session)
        self.wait = partial(claim.wait, session)
        self.renew = partial(acts.renew, session)
        self.renew_all = partial(acts.renew_all, [session])
        self.beat = partial(acts.renew_grants, session)
        self.extend = partial(acts.extend, session)
        self.release = partial(acts.release, session)
        self.complete = partial(acts.complete, session)
        self.set_status = partial(acts.set_status, session)
        self.park = partial(older.park, session)
        self.keep = partial(acts.keep, session)
        self.give_back = partial(sessions.give_back, session)
        self.end_session = partial(sessions.end_session, [session])
        self.sessions = partial(sessions.sessions, [session])
        self.retire = partial(acts.retire, session)
        self.revoke = partial(acts.revoke, session)
        self.drop_record = partial(acts.drop_record, session)
        self.note = partial(acts.note, session)
        self.set_policy = partial(acts.set_policy, session)
        self.confirm = partial(acts.confirm, session)


class MemoryWorld:
    """One remote, one clock, and clones by name, each with a copy of the same task files."""

    patience = PATIENCE

    def __init__(self, *tasks: Task) -> None:
        self.clock, self.remote = ManualClock(), MemoryRemote()
        self.clones: defaultdict[str, MemoryClone] = defaultdict(MemoryClone)
        self.files: defaultdict[str, MemoryTasks] = defaultdict(lambda: MemoryTasks.of(*tasks))
        self.dice = 7

    def store(self, who: Actor, *, clone: str = "") -> RefLedgerStore:
        kept = self.clones[clone or who.holder]
        return memory_ledger_store(self.remote, clock=self.clock, clone=kept, place="origin")

    def of(
        self,
        who: Actor,
        *,
        clone: str = "",
        layer: str = GLOBAL_LAYER,
        patience: float | None = None,
        **rules: Any,
    ) -> LeaseService:
        """A new command of this person, in their clone or another."""
        files = self.files[clone or who.holder]
        return LeaseService(
            ledger_session(
                self.store(who, clone=clone),
                clock=self.clock,
                actor=who,
                layer=layer,
                files=files,
                rules=EdgeRules(**rules),
                dice=random.Random(self.dice),
                patience=patience or self.patience,
            )
        )

    def queue(self, who: Actor, *, clone: str = "") -> TaskQueue:
        return TaskQueue(self.of(who, clone=clone).session)

    def leases(self) -> list[Lease]:
        """The records on the remote."""
        version = self.remote.refs.get(GLOBAL_LAYER)
        return list(self.remote.ledger(version).every_lease()) if version else []

    def holders(self) -> list[str]:
        """Who holds what, by the records on the remote."""
        return [f"{x.resource} {x.holder}" for x in self.leases()]

    def asked(self) -> list[str]:
        """The requests since the last look."""
        requests, self.remote.requests = self.remote.requests, []
        return requests
