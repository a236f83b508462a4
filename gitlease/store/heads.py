"""The heads of ledgers as one clone knows them, and whether leases may be granted on them.

A head with a lower revision than this clone has seen, or another one of the same revision, is a
rollback or a stale replica; another ledger in the place of the known one is no better. Neither is
ever used as truth.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Protocol, cast

from gitlease.core.errors import (
    AnotherLedger,
    GitleaseError,
    Invalid,
    Rollback,
    Unavailable,
    UsageError,
    hint,
)
from gitlease.core.frozen import dataclass, replace
from gitlease.core.instant import MS, Instant
from gitlease.core.lease import Lease, Sighting
from gitlease.core.ledger import Ledger
from gitlease.core.resources.resource import GLOBAL_LAYER, parse_resource
from gitlease.engine.ports import Change, Clock, Snapshot
from gitlease.git.files import load_json, make_folders, store_json
from gitlease.store.private_store import CacheDamaged
from gitlease.store.records import lease_file
from gitlease.store.state import Known, StateFolder
from gitlease.store.tree import GitRecords, Lost

if TYPE_CHECKING:
    from gitlease.store.git_ledger import GitRefs
    from gitlease.store.transport import Remote

LEDGERS_KEPT = 3


class Objects(Protocol):
    """Where the objects of heads are read."""

    def read(self, version: str) -> Ledger:
        """The ledger at a version; Invalid when it is none, CacheDamaged when it is lost."""

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        """The record files that differ, and whether each was there before; None when it is gone.

        Without those that only let go of a lease. Without an old ledger all may have been there.
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
            raise Rollback(
                f"the ledger at {self.place} was rolled back: it is at revision "
                f"{header.revision}, but this clone has seen a different history up to "
                f"{before.revision}",
                hints=(
                    "a stale mirror, a restored backup or a forced push can cause this",
                    hint("people must decide which history counts: {}", "init", help=True),
                ),
                version=version,
                token=header.token,
            )

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
        return all(
            any(x.lease_id == nonce and x.renewals >= most for x in _leases_of(there, text))
            for nonce, (text, most) in before.renewed.items()
        )

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
        return Snapshot(layer, known.version, ledger, known.received, seen=seen)


def _credited(known: Known, change: Change, ledger: Ledger | None) -> Known:
    """With the records that a change wrote seen since its decision, if they still are as written.

    No ``ledger`` to look into means that the change itself is the head.
    """
    kept, own, renewed = dict(known.sighted), {}, dict[str, tuple[str, int]]()
    for before, after in change.ledger.changes.leases.values():
        if before is not None and after is not None and after.lets_go_of(before):
            continue
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


def _leases_of(ledger: Ledger, resource: str) -> list[Lease]:
    try:
        return ledger.leases_of(parse_resource(resource))
    except (UsageError, Invalid):
        return []


def known_ref(state_path: str) -> str:
    """The private ref that keeps a known head's objects and tells a fetch what is there."""
    place, layer = os.path.split(state_path)
    return f"refs/known/{os.path.basename(place)}/{layer}"


# --- the proof that what is written is what everybody reads -----------------------------------
# People reach one repository by different remotes and URLs, and each copy of it may have a ledger
# of its own: whoever writes to one that others do not read would be the second holder of a lease
# (invariants S2 and S3). So a grant is refused
#
# 1. where git pushes to several places one by one, or where its settings leave the place open;
# 2. on any ledger but the one whose id the repository's settings record;
# 3. beside the ledger of another remote, unless the settings record or name one;
# 4. where the URL for pushes is not the one that others fetch from, until a change that was
#    written to the one has been seen at the other.
#
# Leases that were granted before are renewed and released where they are: where git pushes to a
# repository without the ledger, that is the one that others fetch from.

PATIENCE = 10.0  # seconds in which a change has to be seen where others fetch
PAUSE = 0.5
YOUNG = 5_000  # milliseconds for which the recorded id is not read anew
ALONE_FOR = 3_600_000  # after so many, other remotes are asked again if they have a ledger now
MAX_BYTES = 4_096
PROOF, OWN, BESIDE, ALONE = "proof.json", "own-ledger.json", "beside.json", "alone.json"
RULES = "see what sends pushes elsewhere: git config --show-origin --get-regexp insteadof"
NAME_REMOTE = "name the remote whose ledger everybody uses: git config lease.remote NAME-OR-URL"


def use_the_fetched(fetched: str) -> tuple[str, ...]:
    """The hints where git pushes elsewhere; the remote's own name would lead there again."""
    return (
        f"use the repository that others fetch from: git config lease.remote {quote(fetched)}",
        "or that of another remote: git config lease.remote NAME",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFacts:
    """What a clone's settings say about the remote of a ledger.

    ``problem`` is why nothing may be granted there, and ``way_out`` has the hints. ``ends`` are the
    effective URLs for fetches and pushes, without secrets, and ``fetch`` is the remote at the
    former if they differ; ``fetched_at`` is what people call it. ``recorded`` reads the id of the
    ledger in layer ``global`` from the repository's settings. ``others`` gives further remotes that
    may have a ledger, by name; none where a flag names the remote.
    """

    problem: str = ""
    way_out: tuple[str, ...] = (NAME_REMOTE,)
    ends: tuple[str, str] = ("", "")
    fetch: Remote | None = None
    fetched_at: str = ""
    recorded: Callable[[], str | None] = lambda: None
    others: Callable[[], Sequence[tuple[str, Remote]]] = lambda: ()


class Admission:
    """Decides whether leases may be granted on the ledgers of one place."""

    def __init__(self, facts: RemoteFacts, refs: GitRefs, heads: Heads) -> None:
        self._facts, self._refs, self._heads = facts, refs, heads
        self.moved = False
        """Whether the ledger is used where others fetch, in the place of where git pushes."""
        self._recorded: tuple[Instant, str | None] | None = None
        self._looked: dict[str, str] = {}  # by layer: the version that was read before a proof

    @property
    def _place(self) -> str:
        return self._heads.place

    def doubt(self, head: Snapshot) -> Invalid | None:
        """Why this ledger is not to be relied on, as far as is known here."""
        if self._facts.problem:
            return Invalid(self._facts.problem, hints=self._facts.way_out)
        unknown = head.layer != GLOBAL_LAYER and self._heads.load(GLOBAL_LAYER) is None
        return None if unknown else self._recorded_elsewhere(head)

    def go_where_fetched(self, layer: str, fetched: Callable[[], Snapshot]) -> Snapshot | None:
        """Use the repository that others fetch from, if that has the ledger and the pushed one not.

        ``fetched`` reads the ledger anew. None where it stays as it is: nothing is granted there.
        """
        other, known = self._facts.fetch, self._heads.load(layer)
        if other is None or self.moved or (known and self._is_proven_for(layer, known.ledger_id)):
            return None
        former = self._refs.use(other)
        place, self._heads.place = self._place, self._facts.fetched_at
        try:
            head = fetched()
            if head.ledger is not None:
                lacking = "another ledger" if known else "a ledger, and the former none"
                why = self._elsewhere(f"which has {lacking}")
                self._facts, self.moved = replace(self._facts, problem=why, fetch=None), True
                return head
        except GitleaseError:
            pass
        self._refs.use(former)
        self._heads.place = place
        return None

    def check_ends(self, head: Snapshot) -> None:
        """Raise Invalid if others are known to read another ledger than the one written to."""
        if self._facts.problem:
            raise Invalid(self._facts.problem, hints=self._facts.way_out)
        if (other := self._facts.fetch) is not None and not self._is_proven(head):
            self._compare(other, head)

    def read_elsewhere(self, head: Snapshot) -> str:
        """What others read in its place, where that was never proven; ``""`` if the same.

        One contact, and none if it is proven.
        """
        if (other := self._facts.fetch) is None or self._is_proven(head):
            return ""
        try:
            there = self._refs.peek_at(other, head.layer)
            if (there or "") == head.version or self._related(other, head, there):
                return ""
        except GitleaseError:
            return ""  # a claim says why
        return self._unlike(head, there)

    def check_recorded(self, head: Snapshot) -> None:
        """Raise Invalid if the settings record another ledger than that of the global layer."""
        if (error := self._recorded_elsewhere(head)) is not None:
            right, found = self._right(self.recorded() or ""), self._ids_elsewhere(head)
            there = [_USE.format(quote(x)) for x in found if found[x] in right]
            raise error.with_(hints=(*there, *error.hints))

    def check_chosen(self, head: Snapshot) -> None:
        """Raise Invalid if ``init`` would use another ledger than is recorded, or known to be used.

        A ledger at another remote counts as used where none is recorded.
        """
        if self.recorded() is None:
            self._check_alone(head, chosen=True)
        elif head.layer == GLOBAL_LAYER:
            self.check_recorded(head)

    def _recorded_elsewhere(self, head: Snapshot) -> Invalid | None:
        recorded, shown = self.recorded(), self._shown(head)
        if recorded is None or shown in self._right(recorded):
            return None
        there = f"has ledger {shown}" if shown else "has none"
        prefix = hint("or name the refs where it lies: {}", "config", **_KEY, value="PREFIX")
        return Invalid(
            f".gitlease.yaml records the ledger {recorded}, but {self._place} {there}",
            hints=(
                NAME_REMOTE,
                *([] if shown else [prefix]),
                hint("a fork or a copy that wants a ledger of its own: `{}`", "init", **_OWN),
            ),
        )

    def accept(self, head: Snapshot, *, another: bool) -> None:
        """Let this clone use a ledger beside those of other remotes.

        ``another``: also in the place of the recorded one.
        """
        recorded, shown = self.recorded(), self._shown(head)
        if another and recorded is not None and shown not in (None, recorded):
            folder = self._heads.state(GLOBAL_LAYER).path
            make_folders(folder)
            store_json(os.path.join(folder, OWN), [recorded, shown])
        if head.ledger is not None:
            self._keep_alone(head, head.ledger.header.ledger_id)

    def check(self, head: Snapshot, fetch: Callable[[str], Snapshot], *, grants: bool) -> str:
        """Raise why nothing may be granted on a head; return what to tell of it, or ``""``.

        Raises NotProven where a change without any lease has to be written first.
        """
        if not grants and head.ledger is not None:
            return ""
        if self._facts.problem:
            raise Invalid(self._facts.problem, hints=self._facts.way_out)
        told = ""
        if (recorded := self.recorded()) is None:
            told = self._check_alone(head)
        elif head.layer == GLOBAL_LAYER:
            self.check_recorded(head)
        else:
            self._check_beside(head, recorded, fetch)
        if grants and self._facts.fetch is not None and not self._is_proven(head):
            if head.layer not in self._looked:
                fetch(head.layer)  # what was known may not be there
            if self._facts.fetch is None:  # nor was it
                raise Invalid(self._facts.problem, hints=self._facts.way_out)
            self._prove(self._facts.fetch, head)
        return told

    def _check_beside(
        self, head: Snapshot, recorded: str, fetch: Callable[[str], Snapshot]
    ) -> None:
        """Check another layer: the recorded ledger has to be at the same place. Asked once."""
        file = os.path.join(self._heads.state(head.layer).path, BESIDE)
        known = head.ledger.header.ledger_id if head.ledger else None
        here = [self._facts.ends[1], recorded, known]
        if known is not None and load_json(file, MAX_BYTES) == here:
            return
        self.check_recorded(fetch(GLOBAL_LAYER))
        if known is not None:
            with contextlib.suppress(OSError):
                store_json(file, here)

    def recorded(self) -> str | None:
        """The id of the ledger that the repository's settings record."""
        now = self._heads.clock.now()
        if self._recorded is None or self._recorded[0].elapsed_at_most(now) > YOUNG:
            self._recorded = now, self._facts.recorded()
        return self._recorded[1]

    def _shown(self, head: Snapshot) -> str | None:
        if head.layer == GLOBAL_LAYER:
            return head.ledger.header.ledger_id if head.ledger else None
        known = self._heads.load(GLOBAL_LAYER)
        return known.ledger_id if known else None

    def _right(self, recorded: str) -> list[str]:
        """The ids of the ledgers that may be used: the recorded one, and what replaces it here."""
        file = os.path.join(self._heads.state(GLOBAL_LAYER).path, OWN)
        kept = load_json(file, MAX_BYTES)
        replaced = isinstance(kept, list) and len(kept) == 2 and kept[0] == recorded
        return [recorded, str(kept[1])] if replaced else [recorded]

    # --- a new ledger beside others ---------------------------------------------------------------

    def _check_alone(self, head: Snapshot, *, chosen: bool = False) -> str:
        """Refuse a ledger beside which another remote has one of its own; what to tell of it.

        Asked once an hour, and no more once ``init --new-ledger`` has chosen this one. A first one
        is made only where every other remote answers, or it was ``chosen``.
        """
        known = head.ledger.header.ledger_id if head.ledger else None
        others, before = self._facts.others(), self._heads.load(head.layer)
        first = known is None and not chosen
        if not others or (first and self._heads.load(GLOBAL_LAYER) is not None):
            return ""  # this place is in use
        now = self._heads.clock.now().wall_ms
        file, here = self._alone(head, known, others)
        if known is not None and _is_alone(load_json(file, MAX_BYTES), here, now):
            return ""
        found = self._ids_elsewhere(head, all_answer=first)
        if theirs := [name for name in found if found[name] != known]:
            name = min(theirs, key=lambda x: before is None or found[x] != before.ledger_id)
            what = "a ledger of this repository, and {} has none"
            what = "another ledger of this repository than {}" if known is not None else what
            raise Invalid(
                f"{name} has {what.format(self._place)}", hints=(_USE.format(quote(name)), *_CHOOSE)
            )
        if known is not None:
            self._keep_alone(head, known, now)
            return ""
        made = f"made the first ledger of layer {head.layer} on {self._place}"
        return f"{made}; there is none on {', '.join(name for name, _ in others)}"

    def _keep_alone(self, head: Snapshot, known: str, asked: int | None = None) -> None:
        if others := self._facts.others():
            file, here = self._alone(head, known, others)
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(file), exist_ok=True)
                store_json(file, [here, asked])

    def _alone(
        self, head: Snapshot, known: str | None, others: Sequence[tuple[str, Remote]]
    ) -> tuple[str, list[str | None]]:
        file = os.path.join(self._heads.state(head.layer).path, ALONE)
        return file, [self._facts.ends[1], known, *sorted(name for name, _ in others)]

    def _ids_elsewhere(self, head: Snapshot, *, all_answer: bool = False) -> dict[str, str]:
        """The ids of the ledgers at other remotes, by their names."""
        found = {}
        for name, remote in self._facts.others():
            try:
                version = self._refs.peek_at(remote, head.layer)
                if version and version != head.version:
                    read = self._refs.fetch_from(remote, head.layer) or version
                    found[name] = self._heads.read(read).header.ledger_id
            except GitleaseError as error:
                if all_answer:
                    raise Unavailable(
                        f"no ledger is made on {self._place} before it is known whether {name} has "
                        f"one: {error.message}",
                        hints=_CHOOSE,
                    ) from None
        return found

    # --- a URL for pushes beside that for fetches -------------------------------------------------

    def _prove(self, other: Remote, head: Snapshot) -> None:
        """See to it that what is written is what others read. Three contacts, once."""
        known = head.ledger.header.ledger_id if head.ledger else None
        before = self._looked.get(head.layer)
        if before is None or known is None or before == head.version:
            self._compare(other, head)
            self._looked[head.layer] = head.version
            raise NotProven
        if not self._seen(other, head):
            why = f"where a change of the ledger was not seen within {PATIENCE:g} s"
            raise self._not_seen(head, self._elsewhere(why))
        proof = self._proof_file(head.layer)
        try:
            make_folders(os.path.dirname(proof))
            store_json(proof, [*self._facts.ends, known])
        except OSError:
            return  # it is proven again the next time

    def _compare(self, other: Remote, head: Snapshot) -> None:
        there = self._refs.peek_at(other, head.layer)
        if (there or "") != head.version and not self._related(other, head, there):
            raise self._not_seen(head, self._unlike(head, there))

    def _proof_file(self, layer: str) -> str:
        return os.path.join(self._heads.state(layer).path, PROOF)

    def _is_proven(self, head: Snapshot) -> bool:
        ledger = head.ledger
        return ledger is not None and self._is_proven_for(head.layer, ledger.header.ledger_id)

    def _is_proven_for(self, layer: str, known: str) -> bool:
        return bool(load_json(self._proof_file(layer), MAX_BYTES) == [*self._facts.ends, known])

    def _related(self, other: Remote, head: Snapshot, there: str | None) -> bool:
        if head.ledger is None or there is None:
            return False
        read = self._refs.fetch_from(other, head.layer) or there
        if self._heads.read(read).header.ledger_id != head.ledger.header.ledger_id:
            return False
        goes_on = self._refs.goes_on
        return goes_on(read, head.version) or goes_on(head.version, read)

    def _seen(self, other: Remote, head: Snapshot) -> bool:
        clock = self._heads.clock
        began = clock.now()
        while True:
            there = self._refs.peek_at(other, head.layer)
            if there == head.version:
                return True
            if there is not None:  # others may have changed it since
                read = self._refs.fetch_from(other, head.layer) or there
                if self._refs.goes_on(head.version, read):
                    return True
            if began.elapsed_at_most(clock.now()) >= PATIENCE * MS:
                return False
            clock.sleep(PAUSE)

    def _unlike(self, head: Snapshot, there: str | None) -> str:
        if there is None:
            return self._elsewhere("which has no ledger")
        which = "another ledger" if head.ledger is not None else "a ledger, and the former none"
        return self._elsewhere(f"which has {which}")

    def _elsewhere(self, why: str) -> str:
        reads, writes = self._facts.ends
        return f"git pushes to {writes}, and others fetch from {reads}, {why}"

    def _not_seen(self, head: Snapshot, why: str) -> Invalid:
        if head.ledger is not None and not any(True for _ in head.ledger.every_lease()):
            self._heads.state(head.layer).forget()  # it was made for the proof alone
        return Invalid(why, hints=self._facts.way_out)


def _is_alone(kept: object, here: list[str | None], now: int) -> bool:
    match kept:
        case [place, None | int() as asked] if place == here:
            return asked is None or 0 <= now - asked < ALONE_FOR
    return False


class NotProven(Exception):
    """A change without any lease has to be written before one is granted; it leaves no store."""


_USE = "use the ledger of {0}: git config lease.remote {0}"
_KEY, _OWN = {"key": "lease.ref_prefix"}, {"new_ledger": True}
_CHOOSE = (hint("to use one of its own here all the same: `{}`", "init", **_OWN),)
