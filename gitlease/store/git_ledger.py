"""What every ledger store on compare-and-swap refs has in common, wherever its refs lie.

1. The happy path is one push: objects are built on the last known head, and the push says what it
   expects there. An expected ``""`` means "must not exist", never "do not care".
2. Only a clean success counts as applied. After anything else the ref is read back, and the
   operation ids in it say what happened.
3. A change is noted beside the store before it is sent, so that a killed command leaves word.
4. What is damaged of this clone's copy is made anew, and whatever was asked is tried again.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from gitlease.core.errors import (
    AnotherLedger,
    Denied,
    HeadGone,
    Invalid,
    Rollback,
    Unavailable,
    hint,
    shown,
)
from gitlease.core.frozen import dataclass, replace
from gitlease.core.lease import State
from gitlease.core.ledger import Fate, Ledger
from gitlease.core.moves.operations import Event
from gitlease.core.policy import History
from gitlease.core.resources.resource import GLOBAL_LAYER
from gitlease.engine.ports import (
    Cause,
    Change,
    Clock,
    LedgerStep,
    Pending,
    Prepared,
    Snapshot,
    Swapped,
    note_sent,
)
from gitlease.git.files import CannotKeep, Unreadable, cannot_keep
from gitlease.store import history
from gitlease.store.heads import Admission, Heads, NotProven, Objects, RemoteFacts, known_ref
from gitlease.store.private_store import (
    GONE,
    SHA1,
    CacheDamaged,
    LooseObjects,
    PrivateStores,
    is_private,
)
from gitlease.store.state import StateFolder, pending_of
from gitlease.store.transport import (
    TIME_LIMIT,
    OtherFormat,
    Pushed,
    Remote,
    Watched,
    fetch_ref,
    is_far,
    peek_refs,
    push_refs,
)
from gitlease.store.tree import changed_records, lets_go_of, read_ledger

if TYPE_CHECKING:
    from gitlease.core.work_push import WorkPush

UNREACHABLE = "the remote cannot be reached: "
REPAIRS = 8
PAUSE = 0.05  # seconds, times the number of tries: others of this clone may be at it as well
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Move:
    """One ref of a push: what it must be now (``""``: absent), and what it shall be."""

    layer: str
    expected: str
    new: str


class Refs(Objects, Protocol):
    """Where the refs and their objects lie: git, or memory."""

    def fetch(self, layer: str, *, first: bool = False) -> str | None:
        """The version at the ref, readable from now on; None when there is no such ref.

        ``first``: the oldest history may be left out.
        """

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        """The versions at the refs, without their objects, by layer; of the refs that are there."""

    def push(self, moves: Sequence[Move], work: WorkPush | None = None) -> Pushed:
        """Move refs, all or none, if each is what is expected; with the refs of ``work``."""

    def remote_refs(self, work: WorkPush) -> Mapping[str, str]:
        """What the refs of some work are now, ``""`` for those that are not there."""

    def commit(self, change: Change, *, replace_tip: bool) -> str:
        """Write a step on top of its base, or in the place of its base; returns its version."""

    def events(self, version: str, limit: int) -> tuple[Event, ...]:
        """The audit trail of a version, newest first."""

    def steps(
        self, earlier: str, version: str, limit: int
    ) -> tuple[tuple[str, tuple[Event, ...]], ...]:
        """The versions after an earlier one up to a later one, oldest first, and what each tells.

        Nothing where there are more, or the earlier one is not on the way.
        """

    def operations(self, earlier: str, version: str) -> frozenset[str] | None:
        """The ids of the operations that history has after an earlier version, up to another.

        None where it does not lead from one to the other, or does not tell them all.
        """

    def deepen(self, layer: str) -> bool:
        """Fetch what a first contact left out of history; whether there may be any."""

    def keep(self, layer: str, version: str) -> None:
        """Keep the objects of a known head."""

    def announce(self, layer: str) -> None:
        """Have other clones on this machine look: a lease has ended."""

    def nearby(self, layer: str) -> str:
        """A word that differs after each announcement; ``""`` where there can be none."""

    def mend(self, *, anew: bool) -> None:
        """Use what another process has made anew since; with ``anew`` make the kept objects so."""


class RefLedgerStore:
    """Ledgers on one ref a layer, as one process of one clone knows them."""

    def __init__(
        self,
        refs: Refs,
        heads: Heads,
        *,
        warnings: tuple[str, ...] = (),
        admission: Admission | None = None,
        watched: Watched | None = None,
    ) -> None:
        self._refs, self._heads = refs, heads
        self._admission = admission or Admission(RemoteFacts(), cast("GitRefs", refs), heads)
        self._watched = watched or Watched()
        self._sent: set[str] = set()  # operations that may land, whatever a later try says
        self.warnings = warnings

    @property
    def place(self) -> str:
        return self._heads.place

    @property
    def moved(self) -> bool:
        return self._admission.moved

    # --- reading --------------------------------------------------------------------------------

    def known(self, layer: str) -> Snapshot | None:
        return self._with_repairs(lambda: self._heads.known(layer))

    def fetch(self, layer: str, there: str = "") -> Snapshot:
        try:
            head = self._with_repairs(lambda: self._fetched(layer, there))
            return head if head.ledger is not None else self._where_fetched(layer) or head
        except Rollback as error:
            if (elsewhere := self._where_fetched(layer)) is not None:
                return elsewhere
            if isinstance(error, AnotherLedger) and layer == GLOBAL_LAYER:
                remote_has = self._there(layer)
                if self._admission.recorded() and self._admission.doubt(remote_has) is None:
                    self._heads.state(layer).forget()  # it was read at a fork, or before a move
                    return self._with_repairs(lambda: self._fetched(layer))
                try:
                    self._admission.check_chosen(remote_has)
                except Invalid as doubt:
                    recorded = self._admission.recorded() is not None
                    hints = (*doubt.hints, *error.hints)
                    raise error.with_(recorded=recorded, refused=True, hints=hints) from None
            raise

    def _where_fetched(self, layer: str) -> Snapshot | None:
        return self._admission.go_where_fetched(
            layer, lambda: self._with_repairs(lambda: self._fetched(layer))
        )

    def _fetched(self, layer: str, there: str = "") -> Snapshot:
        before = self._heads.load(layer)
        if before is not None and self._watched.ref and not self._watched.tip:
            there = there or self._refs.peek([layer]).get(layer, "")  # a fetch tells of no other
        version = there or None
        if before is None or before.version != there or self._heads.mended:
            version = self._refs.fetch(layer, first=before is None)
        head = self._heads.learn(layer, version, before=before)
        self._refs.keep(layer, head.version)
        return head

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        return self._with_repairs(lambda: self._refs.peek(layers))

    def turn(self, layers: Sequence[str], seconds: float) -> AbstractContextManager[object]:
        stack = ExitStack()
        for layer in sorted(layers):  # in one order, or two could wait for each other
            stack.enter_context(self._heads.state(layer).turn(seconds / len(layers)))
        return stack

    def mark(self, layer: str) -> str:
        return self._heads.state(layer).mark()

    def nearby(self, layer: str) -> str:
        return self._refs.nearby(layer)

    def confirm(self, layer: str, *, rolled_back: bool = False, another: bool = False) -> Snapshot:
        try:
            head = self.fetch(layer)
        except Rollback as error:
            if not (rolled_back or isinstance(error, AnotherLedger)):
                raise
            self._check_recorded(self._there(layer), another=another)
            self._heads.state(layer).forget()
            return self.fetch(layer)
        self._check_recorded(head, another=another)
        return head

    def _check_recorded(self, head: Snapshot, *, another: bool) -> None:
        self._admission.check_ends(head)
        if not another:
            self._admission.check_chosen(head)
        elif head.ledger and head.ledger.header.ledger_id == self._admission.recorded():
            raise Invalid(
                f"{self.place} has the ledger that .gitlease.yaml records",
                hints=(
                    "in a copy that brought it along, remove its refs of ledgers first: "
                    "everybody's leases are in them",
                ),
            )

    def _there(self, layer: str) -> Snapshot:
        """The remote's ledger, whatever this clone knows of it."""
        version = self._with_repairs(lambda: self._refs.fetch(layer))
        ledger = self._with_repairs(lambda: self._heads.read(version)) if version else None
        return Snapshot(layer, version or "", ledger, self._heads.clock.now())

    def accept(self, head: Snapshot, *, another: bool) -> None:
        self._admission.accept(head, another=another)

    def doubt(self, head: Snapshot) -> Invalid | None:
        return self._admission.doubt(head)

    def read_elsewhere(self, head: Snapshot) -> str:
        return self._admission.read_elsewhere(head)

    def admit(self, head: Snapshot, *, grants: bool) -> bool:
        check = self._admission.check
        try:
            told = self._with_repairs(lambda: check(head, self.fetch, grants=grants))
        except NotProven:
            return False
        self.warnings += (told,) if told and told not in self.warnings else ()
        return True

    def history(self, layer: str, limit: int, *, older: bool = False) -> tuple[Event, ...]:
        known = self._heads.load(layer)
        if known is None:
            return ()
        found = self._refs.events(known.version, limit)
        if older and len(found) < limit and self.deepen(layer):
            found = self._refs.events(known.version, limit)
        return found

    def deepen(self, layer: str) -> bool:
        return self._with_repairs(lambda: self._refs.deepen(layer))

    def steps(self, before: Snapshot, after: Snapshot, limit: int) -> Sequence[LedgerStep]:
        if not after.version:
            return ()
        steps = self._with_repairs(lambda: self._refs.steps(before.version, after.version, limit))
        return [LedgerStep(self._heads.read(version), events) for version, events in steps]

    # --- writing --------------------------------------------------------------------------------

    def prepare(self, changes: Sequence[Change], *, append: bool = False) -> Prepared:
        by_layer = {c.base.layer: c for c in changes}
        replacing = frozenset(x for x, change in by_layer.items() if self._may_replace(change))
        if append:
            return replace(self._prepared(by_layer, frozenset()), appended=replacing)
        return self._prepared(by_layer, replacing)

    def swap(self, prepared: Prepared, work: WorkPush | None = None) -> Swapped:
        if work is not None and self.moved:
            self._admission.check_ends(next(iter(prepared.changes.values())).base)
        for layer in prepared.changes:
            self._heads.state(layer).add_pending(pending_of(prepared, layer))
        swapped = self._swap(prepared, work)
        if swapped.fate is not Fate.APPLIED:
            from gitlease.git.run import log

            names = ", ".join(change.what for change in prepared.changes.values())
            why = swapped.detail or swapped.cause.value
            log("info", "the push of %s was not taken (%s): %s", names, swapped.fate.value, why)
        if swapped.fate in (Fate.APPLIED, Fate.LOST) or not swapped.sent:
            self.forget_pending(prepared)
        return swapped

    # --- what is pending --------------------------------------------------------------------------

    def pending(self, layer: str) -> Iterable[Pending]:
        return self._heads.state(layer).pending()

    def keep_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self._heads.state(layer).add_pending(pending_of(prepared, layer), abandoned=True)

    def forget_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self._heads.state(layer).remove_pending(pending_of(prepared, layer))

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        fate = self._fate(pending, head)
        if fate is not Fate.UNDECIDED:
            self._heads.state(pending.layer).remove_pending(pending)
        return fate

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        return self._heads.state(layer).shown(notices)

    # --- repair -----------------------------------------------------------------------------------

    def _with_repairs(self, act: Callable[[], T]) -> T:
        for again in range(REPAIRS):
            try:
                return act()
            except CacheDamaged as damage:
                said = str(damage)
                self._rebuild(again)
        raise Invalid(said)

    def _rebuild(self, again: int) -> None:
        # Another process may have made the store anew, and be filling it: then a fetch is enough.
        self._refs.mend(anew=self._heads.mended)
        self._heads.forget_objects()
        self._heads.mended = True
        self._heads.clock.sleep(PAUSE * again)

    # --- how ------------------------------------------------------------------------------------

    def _may_replace(self, change: Change) -> bool:
        if not change.renewal or change.base.ledger is None:
            return False
        if change.ledger.header.policy.history is not History.REPLACE:
            return False
        known = self._heads.load(change.base.layer)
        if known is not None and known.append_only:
            return False
        base = change.base.version
        return self._refs.decision(base) not in ("", base)

    def _prepared(self, changes: dict[str, Change], replacing: frozenset[str]) -> Prepared:
        try:
            versions = {
                layer: self._refs.commit(change, replace_tip=layer in replacing)
                for layer, change in changes.items()
            }
        except CacheDamaged:
            self._rebuild(0)
            raise HeadGone(GONE) from None
        return Prepared(changes=changes, versions=versions, replacing=replacing)

    def _swap(self, prepared: Prepared, work: WorkPush | None) -> Swapped:
        moves = [
            Move(layer, prepared.replaces(layer), prepared.versions[layer])
            for layer in prepared.changes
        ]
        note_sent("a change of the ledger")
        try:
            pushed = self._refs.push(moves, work)
        except (Invalid, CacheDamaged) as error:
            self.forget_pending(prepared)  # nothing was sent that could land
            if isinstance(error, Invalid):
                raise
            self._rebuild(0)
            raise HeadGone(GONE) from None
        if pushed.clean:
            return Swapped(fate=Fate.APPLIED, heads=self._adopted(prepared), said=pushed.said)
        operations = _operations(prepared)
        if pushed.sent:
            self._sent |= operations
        elif pushed.cause is not Cause.MOVED and not operations & self._sent:
            return Swapped(
                fate=Fate.UNDECIDED, cause=pushed.cause, sent=False, detail=pushed.detail
            )
        return self._read_back(prepared, pushed, work)

    def _fate(self, pending: Pending, head: Snapshot) -> Fate:
        if head.ledger is None or head.version == pending.expected:
            return Fate.UNDECIDED
        fate = head.ledger.header.fate(pending.operations, pending.base_revision)
        if fate is not Fate.UNKNOWN:
            return fate
        told = self._with_repairs(lambda: self._refs.operations(pending.expected, head.version))
        if told is not None and told.intersection(pending.operations):
            return Fate.APPLIED
        # A renewal that is not in history any more may have been there.
        return Fate.LOST if told is not None and pending.decision else Fate.UNKNOWN

    def _adopted(self, prepared: Prepared) -> dict[str, Snapshot]:
        heads = {}
        for layer, change in prepared.changes.items():
            version, appended = prepared.versions[layer], layer in prepared.appended
            heads[layer] = self._heads.adopt(change, version, append_only=appended)
            self._refs.keep(layer, version)
            if _ends_a_live_lease(change):
                self._refs.announce(layer)
        return heads

    def _read_back(self, prepared: Prepared, pushed: Pushed, work: WorkPush | None) -> Swapped:
        heads: dict[str, Snapshot] = {}
        fates = set()
        sent = pushed.sent or bool(_operations(prepared) & self._sent)
        for layer, change in prepared.changes.items():
            try:
                heads[layer] = self._heads.credit(change, self.fetch(layer))
                there = self._refs.remote_refs(work) if work is not None and pushed.sent else {}
            except (Unavailable, Denied) as error:
                # "Stale" is no news, and false of a portal's page, which has no refs to compare.
                said = [] if pushed.cause is Cause.MOVED else [pushed.detail]
                detail, fate = (
                    "; ".join([*said, error.message.removeprefix(UNREACHABLE)]),
                    Fate.UNKNOWN,
                )
                return Swapped(fate=fate, cause=Cause.UNREACHABLE, sent=sent, detail=detail)
            except Rollback as error:
                if isinstance(error, AnotherLedger) and not sent:
                    self.forget_pending(prepared)  # nothing was sent that could land
                if pushed.cause is not Cause.MOVED:
                    refused = f"the push was refused: {pushed.detail}"
                    raise error.with_(hints=(*pushed.hints, refused, *error.hints)) from None
                raise
            fates.add(self._fate(pending_of(prepared, layer), heads[layer]))
        # The refs move together or not at all; what one of them knows holds for all.
        order = (Fate.APPLIED, Fate.UNKNOWN, Fate.LOST, Fate.UNDECIDED)
        fate = next(f for f in order if f in fates)
        if fate is Fate.UNKNOWN and not sent:
            fate = Fate.LOST  # git itself saw that the ref had moved on, and sent nothing
        if fate is Fate.APPLIED and work is not None and there and work.is_undone(there):
            fate = Fate.LOST  # the server came to its end between the two: the work is still to do
        return Swapped(
            fate=fate,
            heads=heads,
            cause=pushed.cause,
            sent=sent,
            detail=pushed.detail,
            hints=pushed.hints,
        )


def _ends_a_live_lease(change: Change) -> bool:
    ended = change.ledger.changes.leases.values()
    return any(x is not None and (y is None or y.state is not State.ACTIVE) for x, y in ended)


def _operations(prepared: Prepared) -> set[str]:
    return {op for change in prepared.changes.values() for op in change.operations}


# --- the refs in git: objects in a private store, moved by git's own compare-and-swap ---------

FIRST_STEPS = 3_000  # that a first contact brings: below 2 MB; what is older on demand
WHOLE = "--depth=2147483647"  # git's word for no end
_OF_NAMES = r"(?i)(?!gitlease:).*(\bbranch|\btags?\b|refs/(?:heads|tags)/)"  # a server's hook says
OTHER_FORMAT = "other-format"  # in the folder of a place: its objects are not like the clone's


def git_ledger_store(
    remote: Remote,
    *,
    stores: str,
    id_bytes: int = SHA1,
    state: Callable[[str], str],
    clock: Clock,
    place: str,
    prefix: str = "refs/gitlease",
    warnings: tuple[str, ...] = (),
    time_limit: float = TIME_LIMIT,
    on_move: Callable[[], None] = lambda: None,
    facts: RemoteFacts | None = None,
    watched: Watched | None = None,
) -> RefLedgerStore:
    """Ledgers on the refs ``<prefix>/<layer>`` of one remote, as one clone knows them.

    ``stores`` is the folder of the private bare repositories, of which that for objects with ids of
    ``id_bytes`` is used until the remote turns out to have others. ``state`` gives the folder of a
    layer's state, and ``place`` says to people where the ledger is, without secrets. ``time_limit``
    is that of each call of git, in seconds, and ``on_move`` is called when a known head has become
    another one. ``facts`` are what a grant there depends on; without them nothing is proven.
    """
    marker = os.path.join(os.path.dirname(state("global")), OTHER_FORMAT)
    kept = PrivateStores(stores, id_bytes, marker=marker)
    watched = watched or Watched()
    refs = GitRefs(remote, kept, state, prefix, time_limit, watched)
    heads = Heads(refs, lambda x: StateFolder(state(x), on_move=on_move), clock, place)
    heads.lost = lambda version: kept.of(version).lost
    admission = Admission(facts, refs, heads) if facts is not None else None
    return RefLedgerStore(refs, heads, warnings=warnings, admission=admission, watched=watched)


class GitRefs:
    """The refs of one remote, and the private stores with their objects."""

    def __init__(
        self,
        remote: Remote,
        stores: PrivateStores,
        state: Callable[[str], str],
        prefix: str,
        time_limit: float,
        watched: Watched,
    ) -> None:
        self._remote, self._stores, self._state_path = remote, stores, state
        self._prefix, self._limit = prefix, time_limit
        self._markers: dict[str, str] = {}
        self._watched = watched

    # --- objects ----------------------------------------------------------------------------------

    def read(self, version: str) -> Ledger:
        with self._retried_if_replaced():
            return read_ledger(self._objects(version), version)

    def differences(self, old: Ledger | None, new: Ledger) -> Sequence[tuple[str, bool | None]]:
        return [x for x in changed_records(old, new) if not (old and lets_go_of(old, new, x[0]))]

    def decision(self, version: str) -> str:
        return history.decision(self._objects(version), version)

    def first_after(self, decision: str, version: str) -> str | None:
        return history.first_after(self._objects(version), decision, version)

    def commit(self, change: Change, *, replace_tip: bool) -> str:
        from gitlease.store.tree import write_step

        tip = change.base.version
        store = self._stores.of(tip)
        objects = store.objects
        try:
            with store.in_use():
                return write_step(objects, change.decided, tip, replace_tip=replace_tip)
        except Unreadable as error:
            raise CacheDamaged(f"the ledger's objects cannot be written: {error}") from None
        except FileNotFoundError:  # another process has made the store anew
            raise CacheDamaged("the ledger's store was replaced") from None
        except OSError as error:
            raise cannot_keep(store.path, error) from None

    def events(self, version: str, limit: int) -> tuple[Event, ...]:
        return history.read_events(self._objects(version), version, limit)

    def steps(
        self, earlier: str, version: str, limit: int
    ) -> tuple[tuple[str, tuple[Event, ...]], ...]:
        return history.read_steps(self._objects(version), earlier, version, limit)

    def operations(self, earlier: str, version: str) -> frozenset[str] | None:
        return history.read_operations(self._objects(version), earlier, version)

    def keep(self, layer: str, version: str) -> None:
        store = self._stores.of(version)
        # In a store made anew since, a ref would vouch for objects that are not there.
        if version and not store.replaced():
            with contextlib.suppress(OSError):
                store.set_ref(known_ref(self._state_path(layer)), version)
        store.tidy()

    def mend(self, *, anew: bool) -> None:
        if anew:
            self._stores.usual.rebuild()
        for store in self._stores.replaced():
            store.reopen()

    def _objects(self, version: str) -> LooseObjects:
        return self._stores.of(version).objects

    @contextlib.contextmanager
    def _retried_if_replaced(self) -> Iterator[None]:
        try:
            yield
        except (Invalid, Unavailable) as error:
            if not self._stores.replaced():
                raise
            raise CacheDamaged(f"the ledger's store was replaced: {error.message}") from None

    # --- refs -------------------------------------------------------------------------------------

    def fetch(self, layer: str, *, first: bool = False) -> str | None:
        """The commit id at the ref, with its objects fetched; None when there is no ref."""
        try:
            version = self._fetched_in_its_format(layer, first=first)
            if version is None and not first and self._answers_nothing():
                raise Unavailable(
                    "the remote cannot be reached: what answers at its URL shows no refs at all"
                )
            return version
        except CannotKeep:
            if not self._stores.move_aside():
                raise
        except CacheDamaged:
            if self._stores.usual.unwritable() is None or not self._stores.move_aside():
                raise
        return self._fetched_in_its_format(layer, first=True)

    def _answers_nothing(self) -> bool:
        """Whether a portal's page may stand in the place of a server: it has no refs."""
        url = self._remote.effective or self._remote.url
        if not url.lower().startswith(("http://", "https://")):
            return False
        return not peek_refs(self._remote, self._stores.usual.path, (), timeout=self._limit)

    def _fetched_in_its_format(self, layer: str, *, first: bool) -> str | None:
        fetch = self._first_fetched if first else self._fetched
        try:
            return fetch(layer)
        except OtherFormat:
            self._stores.switch()
        try:
            return fetch(layer)
        except OtherFormat:  # neither of them
            self._stores.switch()
            raise

    def deepen(self, layer: str) -> bool:
        store = self._stores.usual
        if not store.is_cut():
            return False
        with store.cutting(self._limit):
            self._fetched(layer, WHOLE)
        return True

    def _first_fetched(self, layer: str) -> str | None:
        store = self._stores.usual
        store.objects  # its folder is there by now  # noqa: B018
        with store.cutting(self._limit):
            came = store.ref(known_ref(self._state_path(layer)))  # by another, meanwhile
            return self._fetched(layer, *([] if came else [f"--depth={FIRST_STEPS}"]))

    def peek_at(self, remote: Remote, layer: str) -> str | None:
        """The version of a layer's ref at another remote; None when there is none."""
        store, ref = self._stores.usual, self._ref(layer)
        store.ready()
        return peek_refs(remote, store.path, [ref], timeout=self._limit).get(ref)

    def use(self, remote: Remote) -> Remote:
        """Read and write at another remote from now on; returns the former one."""
        former, self._remote = self._remote, remote
        return former

    def fetch_from(self, remote: Remote, layer: str) -> str | None:
        """The same, with its objects fetched."""
        return self._fetched(layer, remote=remote)

    def goes_on(self, earlier: str, later: str) -> bool:
        """Whether a version has the last decision of another in its past."""
        decided = self.decision(earlier)
        return bool(decided) and self.first_after(decided, later) is not None

    def _fetched(self, layer: str, *options: str, remote: Remote | None = None) -> str | None:
        """Each fetch has a ref of its own: two at once in one clone must not disturb each other."""
        store, to = self._stores.usual, f"refs/fetched/{os.getpid()}-{os.urandom(6).hex()}"
        store.objects  # it is opened by now  # noqa: B018
        try:
            with self._retried_if_replaced(), store.in_use():
                ref = self._ref(layer)
                place = remote or self._remote
                if not fetch_ref(place, store.path, ref, to, *options, timeout=self._limit):
                    return None
                if (version := store.ref(to)) is None:
                    raise CacheDamaged("the fetched ledger cannot be read")
                return version
        finally:
            with contextlib.suppress(OSError):
                store.set_ref(to, None)

    def announce(self, layer: str) -> None:
        if (marker := self._shared_marker(layer)) is None:
            return
        folder = os.path.dirname(marker)
        with contextlib.suppress(OSError):
            if is_private(os.path.dirname(folder)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            if not is_private(os.path.dirname(folder), folder):
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            opened = os.open(marker, flags, 0o600)
            try:
                os.utime(opened)
            finally:
                os.close(opened)

    def nearby(self, layer: str) -> str:
        if (marker := self._shared_marker(layer)) is None:
            return ""
        folder = os.path.dirname(marker)
        try:
            private = is_private(os.path.dirname(folder), folder)
            return str(os.lstat(marker).st_mtime_ns) if private else ""
        except OSError:
            return ""  # nobody has announced anything yet

    def _shared_marker(self, layer: str) -> str | None:
        shared = os.environ.get("XDG_RUNTIME_DIR", "")
        if not os.path.isabs(shared) or not hasattr(os, "getuid"):
            return None
        if layer not in self._markers:  # who waits looks at it four times a second
            from hashlib import sha256

            url = self._remote.url
            if not is_far(url):  # a path, however it is written
                path = os.path.join(self._remote.folder, url.removeprefix("file://"))
                url = os.path.realpath(path)
            self._markers[layer] = sha256(f"{url}\0{self._ref(layer)}".encode()).hexdigest()
        return os.path.join(shared, "gitlease", self._markers[layer])

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        store, refs = self._stores.usual, {self._ref(layer): layer for layer in layers}
        store.ready()
        with self._retried_if_replaced():
            names = [*refs, *filter(None, [self._watched.ref])]
            found = peek_refs(self._remote, store.path, names, timeout=self._limit)
        self._watched.tip = found.pop(self._watched.ref, "")
        return {refs[ref]: version for ref, version in found.items()}

    def push(self, moves: Sequence[Move], work: WorkPush | None = None) -> Pushed:
        named = [(self._ref(move.layer), move.expected, move.new) for move in moves]
        path = self._stores.of(moves[0].new).path
        if work is None:
            try:
                pushed = push_refs(self._remote, path, named, self._watched, timeout=self._limit)
                return replace(pushed, hints=pushed.hints or self._ref_hints(moves, pushed))
            except OtherFormat as other:  # nothing was sent: it can be made anew in that format
                self._stores.switch()
                raise CacheDamaged(other.message) from None
        from gitlease.store.transport import push_work

        return push_work(work, named, objects=os.path.join(path, "objects"))

    def _ref_hints(self, moves: Sequence[Move], pushed: Pushed) -> tuple[str, ...]:
        """The way out where a remote refuses to make a ref of this name."""
        if pushed.cause is not Cause.REFUSED:
            return ()
        if taken := re.search(r"'(refs/[^\s']+)' exists; cannot create", pushed.detail):
            return (
                f"{shown(taken[1])} on the remote leaves no room for {self._prefix}/…: rename it, "
                "or set another lease.ref_prefix in .gitlease.yaml, such as refs/heads/leases",
            )
        if "[remote rejected]" not in pushed.detail or self._prefix.startswith("refs/heads/"):
            return ()
        for_all = (
            "if this host accepts only branches and tags, set lease: {ref_prefix: "
            "refs/heads/gitlease} in .gitlease.yaml, for everyone",
        )
        if any(move.expected for move in moves):  # others use the ledger that is there
            says_so = not pushed.said or any(re.match(_OF_NAMES, line) for line in pushed.said)
            return for_all if says_so else ()
        in_this = hint(
            "in this clone alone: {}", "config", key="lease.ref_prefix", value="refs/heads/gitlease"
        )
        return (*for_all, in_this)

    def remote_refs(self, work: WorkPush) -> Mapping[str, str]:
        from gitlease.store.transport import remote_refs

        return remote_refs(work, timeout=self._limit)

    def _ref(self, layer: str) -> str:
        return f"{self._prefix}/{layer}"
