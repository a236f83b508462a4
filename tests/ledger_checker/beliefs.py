"""The invariants of the protocol, judged from outside: by true time, and by every move of the ref.

Beliefs only end as time passes, so they are compared whenever somebody comes to know another head
or has its clock changed. Each move of the ref is compared with the state that it replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ledger_checker.form import person
from ledger_checker.losses import (
    PUT_BACK,
    RESTORED,
    WAIT_ENDED,
    Line,
    Losses,
    check_open,
)
from ledger_checker.moves import (
    Broken,
    check_header,
    check_tokens,
    conflict,
    is_active,
    same_person,
)
from ledger_checker.state import MS
from ledger_checker.ties import Ties

if TYPE_CHECKING:
    from simulation.machines import Machine, Process, Run
    from support.memory import MemoryRemote, Step

    from gitlease.kernel.ledger.answers import Answer
    from gitlease.kernel.rules.lease import Lease
    from gitlease.kernel.rules.loss import Hold
    from gitlease.kernel.rules.moves.operations import Grant
    from gitlease.kernel.store.state import Known

MAY_HAVE_LANDED = frozenset(
    {"ok", "running", "killed", "unknown_outcome", "denied", "lost", "rollback"}
)
# What the person does to a run from outside of it, which that learns with its next contact (S3).
ENDS = frozenset({"released", "completed", "revoked", "run_out", "parked"})
OWN_EVENTS = frozenset({"renewed", "extended", "released", "parked", "run_out", "bound", "unbound"})


class Checker:
    """Watches one ledger and the runs that work on it; raises Broken.

    ``forked``: the ref was rolled back, so what happens to it now is not what will stay.
    """

    def __init__(
        self,
        remote: MemoryRemote,
        runs: Sequence[Run],
        true_wall: Callable[[], float] | None = None,
    ) -> None:
        self.remote, self.runs, self.ties = remote, runs, Ties(true_wall)
        self.common_clock = true_wall is not None
        self.true_wall = true_wall
        self.line, self.forked, self.is_deleted = Line(), False, False
        self.granted: dict[str, str] = {}  # by lease id the command that asked for it
        self.senders: dict[str, tuple[str, bool]] = {}  # by operation its command; if it grants
        self.landed: set[str] = set()  # commands of which something was carried out
        self.wrote: set[str] = set()  # commands of which a lease was written, to stay
        self.carried: set[str] = set()  # leases that were renewed, which any process may report
        self.excused: set[str] = set()
        self.effects: dict[str, tuple[int, str, str]] = {}
        self.held = 0
        self.losses = Losses()
        self._rivals: list[tuple[Run, Lease, Run, Lease]] = []
        self._seen_of: dict[str, dict[str, Known]] = {}  # by machine and ledger, the last head

    # --- the ref ----------------------------------------------------------------------------------

    def moved(self, version: str, before: Step | None, after: Step, there: str) -> None:
        """The ref, which was at ``there``, went from a state to the next."""
        if self.is_deleted:
            self._is_there_again(before, after)
        elif self.line.moves and before is not self.remote.steps[self.line.last]:
            raise Broken("S1: a move replaced a state that it was not decided on")
        was = None if before is None else before.header
        fresh = check_header(was, after.header, self.line.operations)
        old = {} if before is None else {x.lease_id: x for x in before.leases.values()}
        new = {x.lease_id: x for x in after.leases.values()}
        changed = [x for nonce, x in new.items() if old.get(nonce) is not x]
        back = {e.token for e in after.events if e.kind == PUT_BACK}
        granted = [x for x in changed if x.lease_id not in old and x.token not in back]
        check_tokens(was, granted)
        check_open(was, after, granted, self.true_wall)
        self.losses.moved(after, [x for x in changed if x.token in back], changed)
        for lease in granted:
            if lease.lease_id in self.line.gone:
                raise Broken(f"S6: the lease of {lease.resource} came back from the dead")
            self.granted[lease.lease_id] = lease.branch or ""
        gone = [x for nonce, x in old.items() if nonce not in new]
        self._check_events(after, [x for x in changed if x.lease_id in old])
        self.ties.moved(after, old, [x for x in changed if x.token not in back], gone)
        self.carried |= {x.lease_id for x in changed if x.renewals and x.lease_id in old}
        for lease in self.ties.intruded:
            if (run := self._believer(lease)) is not None:
                raise Broken(f"S7: {run.name} holds {lease.resource}, which another run ended")
        own = (x for x in changed if x.operation not in self.ties.along and x.token not in back)
        self._note_operations(fresh, wrote=any(own))
        self.line.add(version, fresh, (x.lease_id for x in gone))
        if any(e.kind == RESTORED for e in after.events):
            self.losses.again = version
        if any(e.kind == WAIT_ENDED for e in after.events):
            self._waive()
        ended = {e.token for e in after.events if e.kind in ENDS}
        self.excused |= {x.lease_id for x in old.values() if x.token in ended}
        if self.forked:
            self.excused |= {x.lease_id for x in (*changed, *gone)}
        renewals = {nonce: x.renewals for nonce, x in old.items()}
        self._check_continued(
            (
                x
                for x in changed
                if is_active(x) and x.renewals > renewals.get(x.lease_id, x.renewals)
            ),
            after,
        )
        self._check_overlaps(changed, after)
        self._check_displaced(gone, after)

    def _check_events(self, after: Step, changed: Sequence[Lease]) -> None:
        for event in after.events:
            if event.kind in OWN_EVENTS and not same_person(event.by, event.holder or ""):
                raise Broken(f"S7: {event.by} {event.kind} the lease of {event.holder}")
        told = {e.token for e in after.events if same_person(e.by, e.holder or "")}
        for lease in changed:
            if lease.token not in told:
                raise Broken(f"S7: the lease of {lease.holder} was changed by somebody else")

    def _note_operations(self, fresh: Iterable[str], *, wrote: bool) -> None:
        for operation in fresh:
            if operation in self.senders:
                number, grants = self.senders[operation]
                self.landed.add(number)
                if grants and wrote and not self.forked:
                    self.wrote.add(number)

    def _check_overlaps(self, changed: Iterable[Lease], after: Step) -> None:
        """At most one active record of overlapping work: a grant displaces all that it overlaps.

        But for the edge that a lapsed lease leaves: that protects a name, and never its paths.
        """
        active = [x for x in after.leases.values() if is_active(x)]
        for one in changed:
            for other in active if is_active(one) else ():
                first = min((one, other), key=lambda x: x.token)
                edge = first.edge and one.resource != other.resource
                edge = edge and self._believer(first) is None
                if other is not one and conflict(one, other) and not edge:
                    raise Broken(f"S2: {one.resource} and {other.resource} are both in the ledger")

    def _check_continued(self, continued: Iterable[Lease], after: Step) -> None:
        """No lease goes on beside a later one of another's, which was granted as it had lapsed."""
        for lease in continued:
            for other in after.leases.values():
                if is_active(other) and other.token > lease.token and conflict(lease, other):
                    raise Broken(f"S2: {lease.resource} goes on beside {other.resource}")

    def _check_displaced(self, gone: Iterable[Lease], after: Step) -> None:
        """What left the ledger without being ended was over, for its holder and by true time.

        Another clone of the same session may have it anew, and what is bound to no session any run
        of its person: that is in nobody's way. What a person's second clone takes for run out, by
        its own clock, is as if released there: the first may not know it yet.
        """
        taking = (e for e in after.events if e.kind not in ("displaced", "lapsed", "barrier"))
        takers = {(person(e.holder or ""), e.session) for e in taking}
        for lease in gone:
            if lease.lease_id in self.excused or not is_active(lease):
                continue
            owner = person(lease.holder)
            if takers and all(x == owner and lease.session in (None, y) for x, y in takers):
                if lease.session is None:  # its person ended it, by the clock of another clone
                    self.excused.add(lease.lease_id)
                continue
            if (run := self._believer(lease)) is not None:
                raise Broken(f"S2: {run.name} holds {lease.resource}, which was displaced")

    def _believer(self, lease: Lease) -> Run | None:
        """A run that takes this grant for its own at this instant."""
        for run in self.runs if lease.lease_id not in self.excused else ():
            for own in run.own:
                if own.lease_id == lease.lease_id and self.believes(run, own):
                    return run
        return None

    # --- a ledger that was deleted --------------------------------------------------------------

    def deleted(self) -> None:
        """The ref is gone, with all that stands in it."""
        self.losses.lines.append(self.line)
        self.is_deleted = True

    def _is_there_again(self, before: Step | None, after: Step) -> None:
        """It is restored as somebody has seen it, or a new one takes its place."""
        self.is_deleted, left = False, self.line
        self.losses.check_again(before, after)
        version = "" if before is None else after.parent
        lines = (x for x in reversed(self.losses.lines) if version in x.places)
        self.line = next(lines).until(version) if version else Line()
        for lease in before.leases.values() if before is not None else ():
            # Whoever knows that a lease of theirs has ended must not go on with it (S6).
            ended = next((n for n, x in enumerate(left.moves) if lease.lease_id in x[2]), None)
            if ended is not None and self._all_know(lease, left, ended):
                self.excused.discard(lease.lease_id)
            # What was taken over in the lost part is live again: no clone that restores can know of
            # the newer grant, and whoever has that is told at the next contact.
            key = f"{lease.resource.key} {lease.scope}"
            token, grant, _ = self.effects.get(key, (0, "", ""))
            if is_active(lease) and token > lease.token:
                del self.effects[key]
                self.excused.add(grant)

    def _all_know(self, lease: Lease, line: Line, place: int) -> bool:
        """Whether every clone of a holder has seen a move of the ref."""
        of = {run.machine for run in self.runs if same_person(run.actor.holder, lease.holder)}
        return all(x.seen and line.places.get(x.seen.version, -1) >= place for x in of)

    def knows_all(self, version: str) -> bool:
        """Whether a version of the line comes after its last restoration."""
        places, again = self.line.places, self.losses.again
        return version in places and (not again or places[version] >= places[again])

    def _waive(self) -> None:
        """An admin says that nobody has a lease that the ledger lacks: who has one is excused."""
        for machine in {run.machine for run in self.runs}:
            if machine.seen is None or machine.seen.version not in self.line.places:
                lost = {x.lease_id for run in machine.runs for x in run.own}
                self.losses.waived += len(lost - self.excused)
                self.excused |= lost

    # --- rollbacks --------------------------------------------------------------------------------

    def rolled_back(self, version: str) -> Line:
        """The ref went back to a version of its past; gives the line that it left."""
        left, self.line, self.forked = self.line, self.line.until(version), True
        return left

    def restored(self, line: Line) -> None:
        """The ref is again where it was before the rollback."""
        self.line, self.forked = line, False

    def forgot(self, machine: Machine) -> None:
        """A machine has lost what it knew, also when the leases that it wrote count from."""
        self.excused |= {x.lease_id for run in machine.runs for x in run.own}
        for lease in self.remote.steps[self.line.last].leases.values():
            sender = self.ties.senders.get(lease.operation)
            if sender is not None and sender.process.run.machine is machine:
                self.excused.add(lease.lease_id)

    # --- beliefs ----------------------------------------------------------------------------------

    def learned(self, machine: Machine) -> None:
        """A machine knows another head, or has its clocks changed: who believes what now?"""
        known = machine.disk.load()
        if known is not None and self.remote.steps[known.version].header.moved_to is not None:
            known = None  # what has ended there tells nobody what they have
        else:
            self._check_goes_on(machine, known)
        has = machine.believing()
        for run in machine.runs:
            run.own = [] if known is None else self._answering(run, known.version)
            run.live = [x for x in run.own if has(x)]
        self._rivals = [
            pair
            for pair in self._rivals
            if pair[0].machine is not machine and pair[2].machine is not machine
        ]
        others = [run for run in self.runs if run.machine is not machine]
        for place, run in enumerate(machine.runs):
            for other in (*machine.runs[place + 1 :], *others) if run.live else ():
                self._rivals += (
                    (run, a, other, b) for a in run.live for b in other.live if conflict(a, b)
                )
        self.compare()

    def _check_goes_on(self, machine: Machine, known: Known | None) -> None:
        """A clone never takes an older head, or one of another past, for the newest.

        That somebody else's renewal was lost, and others renewed since, it need not notice: the
        protocol has it keep the last decision that it saw, and renewals of its own.
        """
        seen, machine.seen, places = machine.seen, known, self.line.places
        if seen is None:
            self._seen_of.pop(machine.name, None)  # it has lost all that it knew
        if seen is None or known is None or seen.version == known.version:
            return
        of_ledgers = self._seen_of.setdefault(machine.name, {})
        of_ledgers[seen.ledger_id] = seen
        if seen.version not in places and self.losses.had(seen.version):
            # Back from a ledger that took this one's place, a clone may meet an older state than
            # the restored one. It must not be older than what it saw of this one itself.
            same = of_ledgers.get(known.ledger_id)
            if same is None:
                return
            if same.version in places:
                went_back = places.get(known.version, -1) < places[same.version]
            else:
                went_back = not self.knows_all(known.version)
            if went_back:
                raise Broken(f"rollback: {machine.name} took what was lost for the newest")
            return
        lost = seen.version not in places and (bool(seen.renewed) or seen.decision not in places)
        if known.revision <= seen.revision or (known.version in places and lost):
            raise Broken(
                f"rollback: {machine.name} knew revision {seen.revision}, "
                f"and took {known.revision} of another past for the newest"
            )

    def left(self, run: Run) -> None:
        """A run is over, or dead: it believes in nothing any more."""
        self._rivals = [pair for pair in self._rivals if run not in (pair[0], pair[2])]

    def compare(self) -> None:
        """S3: at no real instant do two correct clients believe in conflicting leases."""
        for one, a, other, b in self._rivals:
            if a.lease_id in self.excused or b.lease_id in self.excused:
                continue
            if self.believes(one, a) and self.believes(other, b):
                raise Broken(
                    f"S3: {one.name} believes to hold {a.resource} (token {a.token}), "
                    f"and {other.name} {b.resource} (token {b.token})"
                )

    def believes(self, run: Run, lease: Lease) -> bool:
        """Whether a run takes a lease for its own at this instant, by all that its clone knows."""
        return lease.lease_id not in run.renounced and run.machine.believing()(lease)

    def _answering(self, run: Run, version: str) -> list[Lease]:
        found = self.remote.steps[version].leases.values()
        own = [x for x in found if is_active(x) and not x.parked and x.answers_to(run.actor)]
        for lease in own:
            other = lease.session not in (None, run.actor.session)
            if other and same_person(lease.holder, run.actor.holder):
                raise Broken(f"S3: {run.name} believes in what is bound to {lease.session}")
        return [x for x in own if self.common_clock or self._wrote_here(x, run)]

    def _wrote_here(self, lease: Lease, run: Run) -> bool:
        """Whether a run's clone can tell when a lease counts from, where no clock is common."""
        sender = self.ties.senders.get(lease.operation)
        return sender is None or sender.process.run.machine is run.machine

    # --- answers ----------------------------------------------------------------------------------

    def acts(self, run: Run) -> None:
        """S5: a run works on all that it believes to hold, where tokens are looked at."""
        if run not in run.machine.runs:
            return  # it is over: what it knew is not kept up
        for lease in run.own:
            if not self.believes(run, lease) or self.forked:
                continue
            self.held += 1
            if lease.lease_id in self.excused:
                continue
            key = f"{lease.resource.key} {lease.scope}"
            token, grant, person = self.effects.get(key, (0, "", ""))
            if lease.token < token and lease.session is None and same_person(person, lease.holder):
                continue  # what is bound to no session another clone of its person may have anew
            if lease.token < token or (lease.token == token and grant != lease.lease_id):
                raise Broken(f"S5: {run.name} works on {lease.resource} with an old token")
            self.effects[key] = lease.token, lease.lease_id, lease.holder

    def sent(self, process: Process, operations: Iterable[str], *, grants: bool) -> None:
        """A process may send these operations; ``grants``: they write leases."""
        for operation in operations:
            self.senders[operation] = process.number, grants
            self.ties.sent(process, operation)

    def asked(self, holds: Iterable[Hold]) -> None:
        """A process asks others of its clone to renew these along, once."""
        self.ties.asked |= {(x.grant.lease_id, x.since.wall_ms) for x in holds}

    def answered(self, process: Process, answer: Answer, *, holds: bool) -> None:
        """A command said that it succeeded: S6, and that is what happened.

        ``holds``: its leases are the caller's from then on, so none of them has run out (S3).
        """
        now = process.run.machine.clock.now()
        written = {x.lease_id: x for x in self.remote.steps[self.line.last].leases.values()}
        for view in answer.leases if holds else ():
            if view.lease_id not in self.granted:
                raise Broken(f"S6: {process.number} reports a lease that the remote never had")
            lease = written.get(view.lease_id)
            sender = None if lease is None else self.ties.senders.get(lease.operation)
            if lease is not None and lease.renewals and sender and sender.process is not process:
                continue  # another process of its person renewed it since: that one's time counts
            lasts = (view.expires_at - view.renewed_at).total_seconds() * MS
            if answer.at is not None and answer.at.elapsed_at_most(now) >= lasts:
                raise Broken(f"S3: {process.number} reports a lease that has run out")
        along = {x.lease_id for x in answer.leases} <= self.carried
        if answer.changed and process.number not in self.landed and not along:
            raise Broken(f"S6: {process.number} reports a change that the remote never had")

    def given_back(self, grants: Iterable[Grant]) -> None:
        """A command said that these are unbound, and nothing went back meanwhile."""
        found = self.remote.steps[self.line.last].leases.values()
        bound = {x.lease_id: x.session for x in found if is_active(x)}
        for grant in grants:
            if bound.get(grant.lease_id) == grant.session is not None:
                raise Broken(f"S6: {grant.resource} is still bound to the run that gave it back")

    def ended(self, outcomes: Mapping[str, str], shaken: Container[str]) -> None:
        """What was refused was never carried out; ``shaken`` commands lived through a rollback."""
        for number in self.wrote:
            if outcomes[number] not in MAY_HAVE_LANDED and number not in shaken:
                raise Broken(f"S6: {number} said {outcomes[number]}, and was carried out")
