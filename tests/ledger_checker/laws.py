"""What must hold in every state of a small world, judged by the true time and by plain arithmetic.

None of it asks the product's rules. ``Broken`` names the invariant.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ledger_checker.moves import Broken, check_header, check_tokens, conflict, is_active
from ledger_checker.state import MS

if TYPE_CHECKING:
    from simulation.scripted import Report
    from simulation.shared_state import OwnTime, Request, Version, Versions

    from gitlease.kernel.rules.lease import Lease

MAY_HAVE_LANDED = frozenset({"ok", "unknown_outcome", "denied", "lost"})
AS_BOUND = ("lease_id", "token", "expires_at", "renewed_at", "state", "edge", "paths")
REFUSALS = MAY_HAVE_LANDED | {"held", "not_holder", "unavailable", "not_found"}


class Laws:
    """The invariants of one world, whose machines tell the ``instants`` by ``times``.

    ``client_of`` gives the client that made an operation's id.
    """

    def __init__(
        self,
        versions: Versions,
        times: Sequence[OwnTime],
        instants: Sequence[float],
        client_of: Callable[[str], int],
    ) -> None:
        self._versions, self._times, self._client_of = versions, times, client_of
        self._true = {
            (client, time.at(true).wall_ms): true
            for client, time in enumerate(times)
            for true in instants
        }
        self._landed: dict[tuple[str, Request], None] = {}
        self._revoked: dict[str, frozenset[str]] = {}
        self._writers: dict[tuple[str, int], int] = {}

    def revoked(self, ref: str) -> frozenset[str]:
        """The nonces of all grants that were revoked on the way to a state."""
        return self._revoked.get(ref, frozenset())

    # --- the ref moves ----------------------------------------------------------------------------

    def check_move(self, ref: str, request: Request, refused: frozenset[str]) -> None:
        """The ledger's ref went from one state to the next."""
        new = self._versions.by_name[request.new]
        if refused & new.operations:
            raise Broken("S6: a change landed of which it was said that it never would")
        if (ref, request) in self._landed:
            return
        old = self._versions.by_name.get(ref)
        if request.base != ref:
            raise Broken("S1: a change replaced another state than the one it was decided on")
        self._check_header(old, new)
        if old is not None:
            for lease in old.leases.values():
                self._check_lease(lease, new)
                self._check_session(lease, new)
        self._check_grants(new)
        for lease in new.granted:
            self._writers.setdefault(
                (lease.lease_id, lease.renewed_at), self._client_of(lease.operation)
            )
        if request.work_new:
            self._check_work(request, old, new)
        self._landed[ref, request] = None
        self._revoked[request.new] = self.revoked(ref) | new.revoked

    def _check_header(self, old: Version | None, new: Version) -> None:
        before = old.operations if old else frozenset[str]()
        if not before <= new.operations or len(new.operations) != len(new.header.ring):
            raise Broken("S1: what was applied before is forgotten")
        fresh = check_header(old.header if old else None, new.header, before)
        if fresh != new.operations - before:
            raise Broken("S6: an operation was applied twice, or not noted")
        known = {x.lease_id for x in old.leases.values()} if old else set()
        check_tokens(
            old.header if old else None, (x for x in new.granted if x.lease_id not in known)
        )

    def _check_lease(self, lease: Lease, new: Version) -> None:
        """What became of one lease that stood in the ledger before."""
        now = new.leases.get(lease.key)
        if not is_active(lease) or now == lease or _may_change(lease, new):
            return
        if lease.lease_id in new.revoked:
            return
        if now is not None and now.lease_id == lease.lease_id:
            raise Broken(f"S7: the lease of {lease.holder} was changed by {_names(new.by)}")
        taken = new.granted or ((now,) if now is not None else ())  # finished without a lease
        if not taken:
            raise Broken(f"S7: the lease of {lease.holder} was ended by {_names(new.by)}")
        decided = max(self._decided(x) for x in taken)
        after = new.header.policy.abandoned_after * MS
        if lease.edge_stays and not self.is_over(lease, decided, after):
            raise Broken(f"edge: {_names(new.by)} took {lease.resource} before it was abandoned")
        if not self.is_over(lease, decided):
            raise Broken(
                f"S2: {_names(new.by)} was granted what {lease.holder} held until "
                f"{lease.expires_at} by its own clock"
            )

    def _check_session(self, lease: Lease, new: Version) -> None:
        """What became of the run that a lease is bound to, and of what it leaves behind."""
        now = new.leases.get(lease.key)
        if now is not None and now.lease_id != lease.lease_id:
            now = None
        run = None if now is None else now.session
        if run not in (None, lease.session) and (lease.holder, run) not in new.runs:
            raise Broken(f"S7: {lease.resource} was bound to a run that did not ask for it")
        loose = now is not None and run is None
        same = now is not None and all(getattr(lease, x) == getattr(now, x) for x in AS_BOUND)
        if lease.lease_id in {x.lease_id for x in new.unbound} and not (loose and same):
            raise Broken(f"S7: {lease.resource} was not given back as it was bound")
        kept = now is not None and now.edge and now.expires_at <= new.at
        if (
            lease.lease_id in {x.lease_id for x in new.run_out}
            and lease.edge
            and not (loose and kept)
        ):
            raise Broken(f"edge: that of {lease.resource} did not outlast its session")

    def _check_grants(self, new: Version) -> None:
        stands = {x.lease_id for x in new.leases.values()}
        if any(x.lease_id not in stands for x in new.granted):
            raise Broken("S2: a step gave what it granted to somebody else as well")
        active = [x for x in new.leases.values() if is_active(x)]
        for one, other in itertools.combinations(active, 2):
            if conflict(one, other):
                raise Broken(f"S2: {one.resource} and {other.resource} are both in the ledger")

    def _check_work(self, request: Request, old: Version | None, new: Version) -> None:
        """S5: work lands under a grant that stands, and that nothing newer came after."""
        before = {x.token for x in old.leases.values() if x.holder in new.by} if old else set()
        renewed = {x.token for x in new.granted}
        if not renewed <= before or not renewed:
            raise Broken("S5: work landed without a lease that stood before it")
        if request.under and request.under not in renewed:
            raise Broken(f"S5: work that was done under token {request.under} landed after that")

    # --- what is said and believed ----------------------------------------------------------------

    def check_report(self, report: Report, ref: str) -> frozenset[str]:
        """A command ended. Returns the operations that must never land from now on."""
        if report.code not in REFUSALS:
            raise Broken(f"S8: a command ended with {report.code}")
        applied = self._versions.by_name[ref].operations if ref else frozenset[str]()
        if report.late:
            raise Broken("S3: a lease was reported whose time was over")
        if not report.done <= applied:
            raise Broken("S6: what was reported as done is not in the ledger")
        never = set[str]()
        if report.code == "ok" or report.code not in MAY_HAVE_LANDED:
            never |= report.tried - report.done
        for operation, fate in report.became:
            if fate.name == "UNKNOWN":
                raise Broken("S6: what became of a change cannot be found out")
            if fate.name == "LOST":
                never.add(operation)
            if fate.name == "APPLIED" and operation not in applied:
                raise Broken("S6: what was said to have reached the remote is not there")
        if never & applied:
            raise Broken("S6: what was reported as refused is in the ledger")
        return frozenset(never)

    def check_beliefs(self, beliefs: Iterable[Sequence[Lease]], ref: str) -> None:
        """S3: no two clients believe at one instant that they hold conflicting leases."""
        revoked = self.revoked(ref)
        for some, others in itertools.combinations(beliefs, 2):
            for one, other in itertools.product(some, others):
                if {one.lease_id, other.lease_id} & revoked:
                    continue
                if conflict(one, other):
                    raise Broken(
                        f"S3: {one.holder} believes to hold {one.resource} (token {one.token}), "
                        f"and {other.holder} {other.resource} (token {other.token})"
                    )

    # --- the true time ----------------------------------------------------------------------------

    def _decided(self, lease: Lease) -> float:
        """The true time at which the writer of a record read its clock."""
        return self._true[self._writer(lease), lease.renewed_at]

    def _writer(self, lease: Lease) -> int:
        """The client by whose clock a record counts: who only binds or unbinds it leaves that."""
        return self._writers.get(
            (lease.lease_id, lease.renewed_at), self._client_of(lease.operation)
        )

    def is_over(self, lease: Lease, true: float, more: int = 0) -> bool:
        """Whether a lease's time, and ``more`` ms, is over by a clock of whoever wrote it."""
        own = self._times[self._writer(lease)]
        then, now = own.at(self._decided(lease)), own.at(true)
        longest = max(now.wall_ms - then.wall_ms, now.boot_ms - then.boot_ms)
        return longest >= lease.expires_at - lease.renewed_at + more


def _may_change(lease: Lease, new: Version) -> bool:
    """Whether a step is by the lease's person, and not by another run than it is bound to."""
    runs = (run for holder, run in new.runs if holder == lease.holder)
    return any(lease.session is None or run in (None, lease.session) for run in runs)


def _names(persons: frozenset[str]) -> str:
    return " and ".join(sorted(persons))
