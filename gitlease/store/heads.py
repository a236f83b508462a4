"""The heads of ledgers as one clone knows them: what it has seen, since when, and what it refuses.

A head with a lower revision than this clone has seen, or another one of the same revision, is a
rollback or a stale replica; another ledger in the place of the known one is no better. Neither is
ever used as truth.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from gitlease.core.errors import AnotherLedger, Invalid, Rollback, UsageError
from gitlease.core.frozen import replace
from gitlease.core.instant import Instant
from gitlease.core.lease import Lease, Sighting
from gitlease.core.ledger import Ledger
from gitlease.core.resources.resource import parse_resource
from gitlease.engine.ports import Change, Clock, Snapshot
from gitlease.store.private_store import CacheDamaged
from gitlease.store.records import lease_file
from gitlease.store.state import Known, StateFolder
from gitlease.store.tree import GitRecords, Lost

LEDGERS_KEPT = 3


class Objects(Protocol):
    """Where the objects of heads are read."""

    def read(self, version: str) -> Ledger:
        """The ledger at a version; Invalid when it is none, CacheDamaged when it is lost."""

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        """The record files that differ, and whether each was there before; None when it is gone.

        Where the old ledger cannot be read, every record may have been there before.
        """

    def decision(self, version: str) -> str:
        """The version that none may replace: this one, or where it only renews the one before it.

        ``""`` where it cannot be read.
        """

    def first_after(self, decision: str, version: str) -> str | None:
        """The first version after a decision on the way to another; None where it is not on it.

        CacheDamaged where what lies on the way is lost.
        """


class Heads:
    """The known heads of one place, a state folder for each layer."""

    def __init__(
        self, objects: Objects, state: Callable[[str], StateFolder], clock: Clock, place: str
    ) -> None:
        self._objects, self._new_state, self.clock = objects, state, clock
        self.place = place
        self.lost: Callable[[str], Lost] | None = None  # what is done where a version is damaged
        self._states: dict[str, StateFolder] = {}
        self._kept: dict[str, Ledger] = {}
        self._keeping = threading.Lock()
        self.mended = False  # whether objects were found damaged, and made anew

    def state(self, layer: str) -> StateFolder:
        if layer not in self._states:
            self._states[layer] = self._new_state(layer)
        return self._states[layer]

    def load(self, layer: str) -> Known | None:
        """What is known of a layer; None before the first contact."""
        return self.state(layer).load()

    def known(self, layer: str) -> Snapshot | None:
        """The last known head; None before the first contact, and when its objects were mended.

        CacheDamaged when they are lost.
        """
        known = self.load(layer)
        if known is None:
            return None
        try:
            ledger = self.read(known.version)
        except (Invalid, CacheDamaged) as error:
            if self.mended:
                return None  # a cache, to be filled by the next fetch
            # It could be read when it became known.
            raise CacheDamaged(f"this clone's copy of the ledger is damaged: {error}") from None
        return self._snapshot(layer, known.at(self.clock.now()), ledger)

    def read(self, version: str) -> Ledger:
        """The ledger at a version. The last few are kept."""
        ledger = self._kept.get(version)
        if ledger is None:
            ledger = self._objects.read(version)
            with self._keeping:  # threads of a gateway share this
                while len(self._kept) >= LEDGERS_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[version] = ledger
        return ledger

    def learn(self, layer: str, version: str | None, *, before: Known | None) -> Snapshot:
        """Take a fetched head as the known one, if it is not behind what was known ``before``.

        Another process of this clone may have gone further while the fetch was under way: then
        what it saw is the newer head. Raises Rollback and Invalid.
        """
        received = self.clock.now()
        if version is None:
            if before is not None:
                raise AnotherLedger(
                    f"this clone knows a ledger, but there is none at {self.place}",
                    hints=("it was deleted, or the remote or lease.ref_prefix has changed",),
                )
            return Snapshot(layer=layer, version="", ledger=None, received=received)
        ledger = self._read_there(version)
        if before is not None:
            self._check(layer, before, ledger, version)
        present = self.load(layer) or before
        if present is not None and present.ledger_id == ledger.header.ledger_id:
            if present.revision > ledger.header.revision:
                return self.known(layer) or self._snapshot(layer, present, ledger)
            if before is not None and present.version != before.version:
                self._check(layer, present, ledger, version)  # of another past than that one saw
            before = present
        known = replace(
            self._with_changes_sighted_now(layer, before, ledger, version), received=received
        )
        self.state(layer).save(known)
        return self._snapshot(layer, known, ledger)

    def forget_objects(self) -> None:
        """Read everything again: the store may have been made anew."""
        self._kept.clear()

    def adopt(self, change: Change, version: str, *, append_only: bool = False) -> Snapshot:
        """Take one's own applied change as the known head, without asking anybody.

        Its records count as seen from the instant of the decision, since they count from there.
        Raises Rollback where it landed beside what another process of this clone has seen since.
        """
        layer = change.base.layer
        try:
            ledger = self.read(version)
        except (Invalid, CacheDamaged):
            ledger = change.ledger  # applied all the same: what was lost is fetched another time
        before = self.load(layer)
        if before is not None and before.version == change.base.version:
            known = self._moved(before.at(change.at), ledger, version, {})
        else:
            if before is not None and before.revision == ledger.header.revision:
                self._check(layer, before, ledger, version)
            known = self._with_changes_sighted_now(layer, before, ledger, version)
        known = _credited(replace(known, received=change.at), change, None)
        known = replace(known, append_only=known.append_only or append_only)
        self.state(layer).save(known)
        return self._snapshot(layer, known, ledger)

    def credit(self, change: Change, head: Snapshot) -> Snapshot:
        """Count one's own records from their decision, also when they were only read back."""
        known = self.load(head.layer)
        if head.ledger is None or known is None or known.version != head.version:
            return head
        known = _credited(known, change, head.ledger)
        self.state(head.layer).save(known)
        return self._snapshot(head.layer, known, head.ledger)

    def _read_there(self, version: str) -> Ledger:
        try:
            return self.read(version)
        except Invalid as error:
            raise Invalid(f"{error.message}, at {self.place}", hints=error.hints) from None

    def _check(self, layer: str, before: Known, ledger: Ledger, version: str) -> None:
        header = ledger.header
        if header.ledger_id != before.ledger_id:
            raise AnotherLedger(
                f"the ledger at {self.place} is not the one that this clone knows",
                hints=("the remote was renamed, added or replaced",),
            )
        if version == before.version:
            return
        if header.revision <= before.revision or not self._goes_on(before, ledger, version):
            error = Rollback(
                f"the ledger at {self.place} was rolled back: it is at revision "
                f"{header.revision}, but this clone has seen a different history up to "
                f"{before.revision}",
                hints=(
                    "a stale mirror, a restored backup or a forced push can cause this",
                    "people must decide which history counts: gitlease init --help",
                ),
            )
            error.version, error.token = version, header.token
            raise error

    def _goes_on(self, before: Known, ledger: Ledger, version: str) -> bool:
        """Whether a head has in its past whatever this clone has seen and cannot be replaced.

        That is the last decision, and on top of it the renewals: they may be replaced, but only by
        renewals that have them as well. However many steps lie between makes no difference (S10).
        """
        if not before.decision:
            return True
        first: str | None = version
        if before.digest is None or before.digest != ledger.header.digest:
            first = self._objects.first_after(before.decision, version)
        if first is None or before.version in (before.decision, first):
            return first is not None
        if first != version and self._objects.decision(first) == first:
            return False  # it was decided on a state before the renewal that was seen
        there = self._read_there(first)
        if there.header.revision <= before.revision:
            return False  # what takes the place of a renewal comes after it
        return all(_has_grant(there, nonce, *one) for nonce, one in before.renewed.items())

    def _with_changes_sighted_now(
        self, layer: str, before: Known | None, ledger: Ledger, version: str
    ) -> Known:
        now, header = self.clock.now(), ledger.header
        if before is None or before.ledger_id != header.ledger_id:
            first = Known(header.ledger_id, version, header.revision, now, now)
            return self._moved(first, ledger, version, self._decided(layer, ledger, now))
        before = before.at(now)
        if version == before.version:
            return before
        kept, seen = dict(before.sighted), {}
        for file, there in self._differences(before.version, ledger):
            kept.pop(file, None)
            if there is not None:
                seen[file] = Sighting(at=now, changed=there)
        for file, sighting in self._decided(layer, ledger, now).items():
            if file in seen:
                seen[file] = replace(sighting, changed=seen[file].changed)
        return self._moved(replace(before, sighted=kept), ledger, version, seen)

    def _moved(
        self, before: Known, ledger: Ledger, version: str, seen: dict[str, Sighting]
    ) -> Known:
        decision = self._objects.decision(version)
        return replace(
            before,
            version=version,
            revision=ledger.header.revision,
            digest=ledger.header.digest,
            decision=decision,
            renewed=before.renewed if decision == before.decision else {},
            sighted={**before.sighted, **seen},
        )

    def _decided(self, layer: str, ledger: Ledger, now: Instant) -> dict[str, Sighting]:
        """Records that this clone wrote itself, by a command whose outcome is only now found.

        A holder's time runs from the decision, whoever reads the record first and when: another
        process of the clone, while the first one still waits, or a later one after it gave up.
        """
        found = {}
        for pending in self.state(layer).unsettled():
            if pending.at is None or not pending.at.same_boot(now):
                continue
            for text in pending.resources:
                for lease in _leases_of(ledger, text):
                    if lease.operation in pending.operations:
                        found[lease_file(lease)] = Sighting(at=pending.at, changed=True)
        return found

    def _differences(self, old: str, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        try:
            before: Ledger | None = self.read(old)
        except (Invalid, CacheDamaged):
            before = None
        return self._objects.differences(before, new)

    def _snapshot(self, layer: str, known: Known, ledger: Ledger) -> Snapshot:
        def seen(lease: Lease) -> Sighting:
            return known.sighting(lease_file(lease))

        if self.lost is not None:
            records = cast(GitRecords, ledger.records)
            kept, lost = self.state(layer).path, self.lost(known.version)
            ledger = replace(ledger, records=records.handed_out(kept, lost))
        return Snapshot(
            layer=layer,
            version=known.version,
            ledger=ledger,
            received=known.received,
            seen=seen,
        )


def _credited(known: Known, change: Change, ledger: Ledger | None) -> Known:
    """With the records that a change wrote seen since its decision, if they still are as written.

    No ``ledger`` to look into means that the change itself is the head.
    """
    kept, own, renewed = dict(known.sighted), {}, dict[str, tuple[str, int]]()
    for before, after in change.ledger.changes.leases.values():
        if before is not None and ledger is None:
            kept.pop(lease_file(before), None)
        if after is not None and (ledger is None or _is_unchanged_in(after, ledger)):
            own[lease_file(after)] = Sighting(at=change.at, changed=before is not None)
            renewed[after.lease_id] = after.resource.text, after.renewals
    return replace(
        known,
        sighted={**kept, **own},
        renewed={**known.renewed, **renewed} if change.renewal else known.renewed,
    )


def _is_unchanged_in(lease: Lease, ledger: Ledger) -> bool:
    found = _leases_of(ledger, lease.resource.text)
    return any(x.key == lease.key and x.operation == lease.operation for x in found)


def _has_grant(ledger: Ledger, nonce: str, resource: str, renewals: int) -> bool:
    found = _leases_of(ledger, resource)
    return any(x.lease_id == nonce and x.renewals >= renewals for x in found)


def _leases_of(ledger: Ledger, resource: str) -> list[Lease]:
    try:
        return ledger.leases_of(parse_resource(resource))
    except (UsageError, Invalid):
        return []


def known_ref(state_path: str) -> str:
    """The private ref that keeps a known head's objects and tells a fetch what is there."""
    place, layer = os.path.split(state_path)
    return f"refs/known/{os.path.basename(place)}/{layer}"
