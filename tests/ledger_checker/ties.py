"""What ties a lease to more than its person: the run that bound it, and the edge of a task.

Judged by the records of two states and by who sent what, never by the product's own rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ledger_checker.moves import Broken, is_active, same_person
from ledger_checker.state import MS

if TYPE_CHECKING:
    from simulation.machines import Process
    from support.memory import Step

    from gitlease.kernel.rules.lease import Lease
    from gitlease.kernel.rules.moves.operations import Event

ENDS = frozenset({"released", "completed", "revoked"})
LOOSENS = frozenset({"unbound", "parked", "run_out"})
UNTOUCHED = ("token", "holder", "expires_at", "renewed_at", "state", "edge", "parked", "paths")


class Sender(NamedTuple):
    """Who sent an operation, and in whose name; ``session`` None: in that of the person."""

    process: Process
    session: str | None
    unbinds: bool


class Ties:
    """The rules of bound leases and of edges. ``counted`` has how often each move was made.

    ``true_wall`` is what a right clock reads, in ms; None where clocks may be off by anything.
    """

    def __init__(self, true_wall: Callable[[], float] | None) -> None:
        self.true_wall = true_wall
        self.senders: dict[str, Sender] = {}
        self.counted: Counter[str] = Counter()
        self.intruded: list[Lease] = []
        self.asked: set[tuple[str, int]] = set()  # by its id and when it was renewed last
        self.along: set[str] = set()  # operations that renew what other processes asked for

    def renewed_along(self, old: Mapping[str, Lease], changed: Collection[Lease]) -> None:
        """Note who renews what: of each lease once, as it was when its keeper asked for that."""
        for operation in {x.operation for x in changed}:
            its = [(x, old.get(x.lease_id)) for x in changed if x.operation == operation]
            if all(was and (was.lease_id, was.renewed_at) in self.asked for _, was in its):
                self.along.add(operation)

    def sent(self, process: Process, operation: str) -> None:
        self.senders.setdefault(operation, Sender(process, process.session, process.unbinds))

    def moved(
        self,
        after: Step,
        old: Mapping[str, Lease],
        changed: Collection[Lease],
        gone: Collection[Lease],
    ) -> None:
        """One move of the ref: ``old`` has by its id what stood before, ``gone`` what does not.

        Leaves in ``intruded`` what is bound to a run and was ended by another of its person's.
        """
        self.intruded = []
        told: dict[int | None, list[Event]] = {}
        self.renewed_along(old, changed)
        for event in after.events:
            told.setdefault(event.token, []).append(event)
        for lease in changed:
            was = old.get(lease.lease_id)
            sender = self.senders.get(lease.operation)
            if was is not None:
                self._check_kept(was, lease, [e.kind for e in told.get(lease.token, ())], sender)
                continue
            if sender is not None and lease.session != sender.session:
                raise Broken(f"S7: {lease.resource} was granted to a run that did not ask for it")
        stands = {x.lease_id: x for x in changed}
        for was in old.values() if told else ():
            for event in told.get(was.token, ()):
                if event.kind == "run_out":
                    self._check_run_out(was, stands.get(was.lease_id), event)
        for was in gone:
            self._check_gone(was, told.get(was.token, ()), after)

    def _check_kept(
        self, was: Lease, now: Lease, kinds: Sequence[str], sender: Sender | None
    ) -> None:
        """S7: a lease that is bound to a run is changed by it or its person, and by no other."""
        own = sender is None or sender.session in (None, was.session)
        if now.operation in self.along and kinds == ["renewed"]:
            self.counted["renewed along"] += not own
            own = True
        if was.session is None:
            if sender is not None and now.session not in (None, sender.session):
                raise Broken(f"S7: {now.resource} was bound to a run that did not ask for it")
            self.counted["bound"] += "bound" in kinds
        elif now.session is None:
            if not LOOSENS & set(kinds):
                raise Broken(f"S7: {was.resource} was bound to a run, and nobody unbound it")
            if "unbound" in kinds:
                self.counted["unbound"] += 1
                same = all(getattr(was, name) == getattr(now, name) for name in UNTOUCHED)
                if not own or not same:
                    raise Broken(f"S7: {was.resource} was not given back as it was bound")
        elif was.session != now.session or (not own and is_active(now)):
            raise Broken(f"S7: what is bound to {was.session} was changed by another run")
        elif not own:
            self.intruded.append(was)

    def _check_run_out(self, was: Lease, now: Lease | None, event: Event) -> None:
        """A session that ends keeps its edges: over now, and still its person's."""
        self.counted["edge kept by a session end"] += 1
        kept = now is not None and now.edge and same_person(now.holder, was.holder)
        if now is None or not kept or now.session is not None or now.expires_at > event.at:
            raise Broken(f"edge: that of {was.resource} did not outlast its session")

    def _check_gone(self, was: Lease, told: Collection[Event], after: Step) -> None:
        ended = False
        for event in told:
            sender = self.senders.get(event.operation)
            if event.kind not in ENDS:
                continue
            ended = True
            if sender is None or event.kind == "revoked":
                continue
            process, other = sender.process, sender.session not in (None, was.session)
            if process.keeps_edges and was.edge:
                raise Broken(f"edge: that of {was.resource} did not outlast its session")
            if sender.unbinds:
                raise Broken(f"S7: {was.resource} was not given back as it was bound")
            if was.session is not None and other and process.verb != "end session":
                self.intruded.append(was)
        last = after.events[-1]
        lasts = was.edge and is_active(was)
        if lasts and not ended and not same_person(last.by, was.holder):
            self._check_abandoned(was, last, after)

    def _check_abandoned(self, was: Lease, taking: Event, after: Step) -> None:
        """An edge protects until long after its lease."""
        policy = after.header.policy
        margin = max(policy.skew, was.margins.skew)
        until = was.expires_at + (policy.abandoned_after + margin) * MS
        if not policy.abandoned_after or taking.at <= until:
            raise Broken(f"edge: {was.resource} was taken before it was abandoned")
        counts_from = was.expires_at + policy.abandoned_after * MS
        if self.true_wall is not None and self.true_wall() < counts_from:
            raise Broken(f"edge: {was.resource} was taken too early, by true time")
        self.counted["abandoned edge claimed"] += 1
