"""The ledgers of one place as one process of one clone knows them, wherever they lie.

1. The happy path is one swap: a step is written on the last known head, and the swap says what it
   expects there. An expected ``""`` means "must not exist", never "do not care".
2. Only a clean success counts as applied. After anything else the ledger is read back, and the
   operation ids in it say what happened.
3. A change is noted beside the store before it is sent, so that a killed command leaves word.
4. What is damaged of this clone's copy is deleted and fetched again, and whatever was asked is
   tried again.
5. A head with a lower revision than this clone has seen, or another one of the same revision, is a
   rollback or a stale replica; another ledger in the place of the known one is no better. Neither
   is ever used as truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from itertools import islice, takewhile
from typing import TypeVar
from weakref import proxy

from gitlease.kernel.git.run import log
from gitlease.kernel.ledger.ports import (
    Cause,
    Change,
    Clock,
    Former,
    LedgerStep,
    Pending,
    Prepared,
    PushRecord,
    Snapshot,
    Swapped,
    note_sent,
)
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.rules.errors import (
    AnotherLedger,
    Denied,
    GitleaseError,
    Invalid,
    Rollback,
    Unavailable,
    UsageError,
    hint,
)
from gitlease.kernel.rules.frozen import dataclass, field, replace
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Actor, History, Lease, Moment, Sighting, State
from gitlease.kernel.rules.ledger import Damage, Fate, Ledger
from gitlease.kernel.rules.moves.moving import MOVED
from gitlease.kernel.rules.moves.operations import Event, OpenMoved, Operation, Restore
from gitlease.kernel.rules.moves.transitions import decide
from gitlease.kernel.rules.pace import RemotePace
from gitlease.kernel.rules.resources import GLOBAL_LAYER, parse_resource
from gitlease.kernel.rules.work import WorkPush
from gitlease.kernel.store.admission import (
    Admission,
    RemoteFacts,
    decision,
    first_after,
    operations_since,
)
from gitlease.kernel.store.elsewhere import OtherPlaces
from gitlease.kernel.store.records import lease_file
from gitlease.kernel.store.restored import is_restored
from gitlease.kernel.store.state import Known, StateFolder, pending_of
from gitlease.kernel.store.storage import CopyLost, Move, PastStep, SharedWithWork, Storage

UNREACHABLE = "the remote cannot be reached: "
REPAIRS = 8
EVENTS_KEPT = 5_000  # by a process
MOST_MOVES = 4  # that are followed in one go
FORMERLY = "former "  # before the file of a record in the state before a restoration
LATE = 600_000  # milliseconds in which a move is finished by whoever comes next
NEWS = 60_000  # milliseconds for which a process tells what it has found
PAUSE = 0.05  # seconds, times the number of tries: others of this clone may be at it as well
T = TypeVar("T")


@dataclass(frozen=True)
class StorePlace:
    """A place of ledgers, and what ``RefLedgerStore`` needs there, with a state for each layer.

    ``name`` says to people where it is, without secrets. ``facts`` are what a grant there depends
    on; without them none is refused. ``beside_work`` is the storage once more, where work lies
    beside the ledgers. ``elsewhere`` has what this clone knows at other places. ``opened`` is
    called once a ledger that was moved is known to be there. ``notices`` always hold there.
    ``follow`` finds the place to which a ledger was moved from there, or raises Invalid; without it
    the function of the place before goes on.
    """

    storage: Storage
    state: Callable[[str], StateFolder]
    name: str
    facts: RemoteFacts = field(default_factory=RemoteFacts)
    beside_work: SharedWithWork | None = None
    elsewhere: OtherPlaces | None = None
    opened: Callable[[], None] = lambda: None
    notices: tuple[str, ...] = ()
    follow: Callable[[str], StorePlace] | None = None


class RefLedgerStore:
    """Ledgers of one place, which may be moved to another.

    ``learn_place`` is asked before each contact, until it returns the place to use, which the
    remote has told only then. It raises Invalid if even reads must not ask at this one.
    """

    in_memory = False  # then no command can be started that would find it
    _follow: Callable[[str], StorePlace] | None = None

    def __init__(
        self,
        place: StorePlace,
        clock: Clock,
        *,
        learn_place: Callable[[], StorePlace | None] = lambda: None,
    ) -> None:
        self.clock = clock
        self._go_to(place)
        self._learn_place = learn_place
        self.opener: Actor | None = None
        """Who goes on with a ledger at its new place, if nobody has yet."""
        self.reopens = False
        """Whether that is wanted where it may have been there before: it waits then."""
        self._confirmed = set[str]()  # layers in which another ledger than the former may be used
        self._sent: set[str] = set()  # operations that may land, whatever a later try says
        self._past, self._seen = _Past(), dict[str, str]()  # versions, by layer
        self._told = dict[str, Instant]()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about this place: those that always hold, and what was found lately."""
        now = self.clock.now()
        lately = (x for x, at in [*self._told.items()] if at.elapsed_at_most(now) < NEWS)
        # Where the local ledger is not used, nothing that holds of it is told.
        is_unused = self._admission.is_lacking and self._admission.lost() is not None
        return *(() if is_unused else self._standing), *lately

    def load(self, layer: str) -> Known | None:
        """The known state of a layer; None before the first contact."""
        return self.state(layer).load()

    # --- reading --------------------------------------------------------------------------------

    def known(self, layer: str) -> Snapshot | None:
        known = self.load(layer)
        if known is None or self._admission.lost() is not None:
            return None
        try:
            ledger = self.read(layer, known.version)
        except (Invalid, CopyLost):
            return None  # it could be read when it became known: the next fetch brings it again
        if ledger.header.moved_to is not None and self._follow is not None:
            return None  # the next fetch leads to where it goes on
        return self._snapshot(layer, known.at(self.clock.now()), ledger)

    def fetch(self, layer: str, there: str = "", *, before_push: bool = False) -> Snapshot:
        if (lost := self._admission.lost()) is not None:
            raise lost
        head = self._followed(layer, there, before_push=before_push)
        # Nothing is free because it is looked for at the wrong place.
        self._admission.check_beside(head, reads=True)
        return head

    def _followed(self, layer: str, there: str = "", *, before_push: bool = False) -> Snapshot:
        # Before the first contact: what a branch names is not asked.
        learnt = self._learn_place()
        if learnt is not None:
            self._learn_place = lambda: None
            self._go_to(learnt)
        head = self._fetch(layer, there, before_push=before_push)
        for _ in range(MOST_MOVES):
            if head.ledger is None or head.ledger.header.moved_to is None or self._follow is None:
                return head
            head = self._at_new_place(head, head.ledger, self._follow)
        raise Invalid(f"the ledger at {self.place} was moved again and again")

    def _at_new_place(
        self, last: Snapshot, ledger: Ledger, follow: Callable[[str], StorePlace]
    ) -> Snapshot:
        """Use a ledger where it was moved to from now on, and open it there if nobody has yet.

        ``ledger`` is its ``last`` state at the former place.
        """
        layer, former = last.layer, self.storage
        new, left = follow(str(ledger.header.moved_to)), self.place
        self._go_to(new)
        self._warn(f"the ledger was moved from {left} to {self.place}")
        found = self._with_repairs(lambda: self.storage.fetch(layer))
        if not self._was_opened(found, last, ledger):
            self._open(self._opening(ledger, former, last), found or "")
        # This clone comes here first the next time, even if it is killed before it has read.
        new.opened()
        head = self._fetch(layer)
        self._elsewhere.carry(layer)
        return head

    def _go_to(self, new: StorePlace) -> None:
        """Ask and tell of another place only: nothing is decided at the former one any more."""
        self.storage, self.place, self.state = new.storage, new.name, cache(new.state)
        self._beside_work, self._elsewhere = new.beside_work, new.elsewhere or OtherPlaces()
        self._admission = Admission(new.facts, proxy(self))
        self.accept, self.doubt = self._admission.accept, self._admission.doubt
        self.lost = self._admission.lost
        self._standing = new.notices  # the others were said of the former place
        self._follow = new.follow or self._follow

    def _was_opened(self, version: str | None, last: Snapshot, ledger: Ledger) -> bool:
        """True if a moved ledger has gone on at its new place, where ``version`` is now.

        It may have left a state there when it moved on before. If nothing is there, a clone that
        has seen it go on knows that it was deleted, and never begins it again.
        """
        if version is None:
            known = self.load(last.layer)
            return known is not None and known.revision > ledger.header.revision
        return not self._with_repairs(
            lambda: is_left(self.storage, self.read(last.layer, version), version, last)
        )

    def _opening(self, ledger: Ledger, former: Storage, last: Snapshot) -> Change:
        """The change that opens a moved ledger at its new place. Raises Unavailable.

        Right after the move its last state is the whole of it, so whoever comes first may go on
        from that. Later it may have gone on and been deleted, which nobody can tell from here: then
        it takes ``reopens``, and it waits like a restored ledger (S2).
        """
        if self.opener is None:
            raise self._not_open()
        header = ledger.header
        to, moment = str(header.moved_to), Moment(now=self.clock.now(), seen=last.seen)
        operations: list[Operation] = [OpenMoved(id=fresh_id(), actor=self.opener, at=to)]
        if self._is_late(former, last):
            if not self.reopens:
                raise self._may_be_deleted()
            operations.append(
                Restore(id=fresh_id(), actor=self.opener, above=header.token, waits=True)
            )
        return Change(base=last, decided=decide(ledger, operations, moment), what="the move")

    def _open(self, opening: Change, expected: str) -> None:
        """Make the first step at the new place. Raises Unavailable if nothing is open there then.

        What is there afterwards counts, whoever made it: of several who open it, one wins (S1).
        """
        layer = opening.base.layer
        version = self._with_repairs(lambda: self.storage.write(opening, replace_tip=False))
        self.storage.swap([Move(layer, expected, version)])
        if self.storage.fetch(layer) in (None, expected):
            raise self._not_open()

    def _not_open(self) -> Unavailable:
        return Unavailable(
            f"the ledger is being moved to {self.place}, where it is not yet",
            hints=("try again", hint("or finish the move: {}", "init", move=True)),
        )

    def _may_be_deleted(self) -> Unavailable:
        return Unavailable(
            f"the ledger was moved to {self.place}, and is not there: it was deleted, "
            "or never got there",
            hints=(
                hint(
                    "an admin brings it back in a clone that has used it there: {}",
                    "init",
                    restore=True,
                ),
                hint("or, if nobody has, finishes the move, and waits: {}", "init", move=True),
            ),
        )

    def _is_late(self, former: Storage, last: Snapshot) -> bool:
        """True if the last step at a former place is so old that another may have followed it."""
        step = self._with_repairs(lambda: next(former.history(last.version), None))
        times = [] if step is None else [x.at for x in step.events if x.kind == MOVED]
        return not times or abs(self.clock.now().wall_ms - max(times)) > LATE

    def _fetch(self, layer: str, there: str = "", *, before_push: bool = False) -> Snapshot:
        try:
            return self._with_repairs(lambda: self._fetched(layer, there, before_push=before_push))
        except Rollback as error:
            if isinstance(error, AnotherLedger) and layer == GLOBAL_LAYER:
                remote_has, before = self._there(layer), self.load(layer) or self._former(layer)
                if before and _id_of(remote_has) == before.ledger_id:
                    # Restored since the first answer, so it is compared with what was seen.
                    return self._with_repairs(lambda: self._fetched(layer))
                if self._admission.recorded() and self._admission.doubt(remote_has) is None:
                    self.state(layer).forget()  # it was read at a fork, or before a move
                    self._confirmed.add(layer)
                    return self._with_repairs(lambda: self._fetched(layer))
                try:
                    self._admission.check_chosen(remote_has)
                except Invalid as doubt:
                    recorded = self._admission.recorded() is not None
                    hints = (*doubt.hints, *error.hints)
                    raise error.with_(recorded=recorded, refused=True, hints=hints) from None
            raise

    def _former(self, layer: str) -> Known | None:
        """What this clone knows at the place that it used before, unless it left that for good."""
        return None if layer in self._confirmed else self._elsewhere.former(layer)

    def _fetched(self, layer: str, there: str = "", *, before_push: bool = False) -> Snapshot:
        before = self.load(layer)
        if before is None and self.state(layer).damaged:
            self._warn(
                f"what this clone knew of the ledger at {self.place} is damaged or gone: it trusts "
                "what is there now, and counts others' expired leases as seen from now on"
            )
        version, took = there or None, 0
        if before is None or before.version != there or self.known(layer) is None:
            known, began = before or self._former(layer), self.clock.now()
            version = self.storage.fetch(
                layer, known.version if known else "", before_push=before_push
            )
            took = began.elapsed_at_least(self.clock.now())
        return self.learn(layer, version, before=before, took=took)

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        return self._with_repairs(lambda: self.storage.peek(layers))

    def turn(
        self, layers: Sequence[str], seconds: float, on_wait: Callable[[], None]
    ) -> AbstractContextManager[object]:
        stack = ExitStack()
        for layer in sorted(layers):  # in one order, or two could wait for each other
            stack.enter_context(self.state(layer).turn(seconds / len(layers), on_wait))
        return stack

    def mark(self, layer: str) -> str:
        return self.state(layer).mark()

    def nearby(self, layer: str) -> str:
        return self.storage.watch(layer)

    def confirm(self, layer: str, *, rolled_back: bool = False, another: bool = False) -> Snapshot:
        elsewhere, here = [*self._elsewhere.known(layer)], [self.load(layer)]
        try:
            head = self._followed(layer)
        except Rollback as error:
            if not (rolled_back or isinstance(error, AnotherLedger)):
                raise
            here.append(self.load(layer))  # at the place to which it moved, too
            self._check_recorded(self._there(layer), another=another)
            if rolled_back:
                self._admission.accept_less(layer, elsewhere)
            self.state(layer).forget()
            self._confirmed.add(layer)
            head = self._followed(layer)
        else:
            self._check_recorded(head, another=another)
        known = [x for x in here if x is not None]
        if head.ledger is None:
            is_lost = bool(known) or (another and self._admission.may_be_lost(head))
            return replace(head, token_seen=max((x.token for x in known), default=0), lost=is_lost)
        id, known = head.ledger.header.ledger_id, [*known, *(x for _, x in elsewhere)]
        return replace(
            head, token_seen=max((x.token for x in known if x.ledger_id == id), default=0)
        )

    def _check_recorded(self, head: Snapshot, *, another: bool) -> None:
        self._admission.check_place(head, another=another)
        self._admission.check_urls()
        if not another:
            self._admission.check_chosen(head)
            return
        self._admission.check_new(head)
        if head.ledger and head.ledger.header.ledger_id == self._admission.recorded():
            raise Invalid(
                f"{self.place} has the ledger that .gitlease.yaml records",
                hints=(
                    "in a copy that brought it along, remove its refs of ledgers first: "
                    "everybody's leases are in them",
                ),
            )

    def _there(self, layer: str) -> Snapshot:
        """The remote's ledger, whatever this clone knows of it."""
        known = self.load(layer)

        def act() -> Snapshot:
            version = self.storage.fetch(layer, known.version if known else "")
            ledger = self.read(layer, version) if version else None
            return Snapshot(layer, version or "", ledger, self.clock.now())

        return self._with_repairs(act)

    def admit(self, head: Snapshot, *, grants: bool) -> None:
        check = self._admission.check
        self._warn(self._with_repairs(lambda: check(head, self.fetch, grants=grants)))

    def _warn(self, text: str) -> None:
        self._told |= {text: self.clock.now()} if text else {}

    def history(self, layer: str, limit: int, *, older: bool = False) -> tuple[Event, ...]:
        def read(version: str) -> tuple[Event, ...]:
            return tuple(islice(self._past.events(self.storage, version, whole=older), limit))

        known = self.load(layer)
        # Where no state can be kept, the head that was read last is still known here.
        version = known.version if known else self._seen.get(layer)
        return self.read_past(layer, version, read) if version else ()

    def read_past(self, layer: str, version: str, read: Callable[[str], T]) -> T:
        """Read the history up to a version; up to that of a fetch where it is lost or cut."""
        try:
            return read(version)
        except CopyLost:
            return read(self.fetch(layer).version)

    def steps(self, before: Snapshot, after: Snapshot, limit: int) -> Sequence[LedgerStep]:
        layer, earlier, found = after.layer, before.version, list[PastStep]()
        # A renewal that was replaced since counts from the decision before it.
        ends = {earlier, decision(self.storage, earlier)} if earlier else set[str]()
        is_whole = not earlier
        for step in self.storage.history(after.version) if after.version else ():
            is_whole = is_whole or step.id in ends
            if step.id in ends or len(found) == limit:
                break
            found.append(step)
        return [LedgerStep(self.read(layer, x.id), x.events) for x in reversed(found) if is_whole]

    # --- writing --------------------------------------------------------------------------------

    def prepare(self, changes: Sequence[Change], *, append: bool = False) -> Prepared:
        by_layer = {c.base.layer: c for c in changes}
        replacing = frozenset(x for x, change in by_layer.items() if self._may_replace(change))
        replaced, appended = (
            (frozenset[str](), replacing) if append else (replacing, frozenset[str]())
        )
        versions = {
            layer: self.storage.write(change, replace_tip=layer in replaced)
            for layer, change in by_layer.items()
        }
        return Prepared(by_layer, versions, replacing=replaced, appended=appended)

    def swap(
        self,
        prepared: Prepared,
        work: WorkPush | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        began = self.clock.now()
        for layer in prepared.changes:
            # Before it is sent: a kill in between must not leave a push that nobody asks about.
            self.state(layer).add_pending(pending_of(prepared, layer))
        swapped = self._swap(prepared, work, on_start)
        self._note_push(prepared, swapped, began)
        if swapped.fate is not Fate.APPLIED:
            names = ", ".join(change.what for change in prepared.changes.values())
            why = swapped.detail or swapped.cause.value
            log("info", "the push of %s was not taken (%s): %s", names, swapped.fate.value, why)
        if swapped.fate in (Fate.APPLIED, Fate.LOST) or not swapped.sent:
            self.forget_pending(prepared)
        return swapped

    def _note_push(self, prepared: Prepared, swapped: Swapped, began: Instant) -> None:
        if swapped.cause is Cause.UNREACHABLE and not swapped.sent:
            return
        fates = {Fate.APPLIED: "landed", Fate.LOST: "lost"}
        refused = swapped.cause in (Cause.REFUSED, Cause.WORK)
        fate = fates.get(swapped.fate, "refused" if refused else "unknown")
        what = ", ".join(change.what for change in prepared.changes.values())
        push = PushRecord(began.wall_ms, swapped.took, what, fate, swapped.sent)
        self.state(next(iter(prepared.changes))).note_push(push)

    def pushes(self, layer: str) -> Sequence[PushRecord]:
        return self.state(layer).pushes()

    # --- what is pending --------------------------------------------------------------------------

    def pending(self, layer: str) -> Iterable[Pending]:
        return self.state(layer).pending()

    def keep_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self.state(layer).add_pending(pending_of(prepared, layer), abandoned=True)

    def forget_pending(self, prepared: Prepared) -> None:
        for layer in prepared.changes:
            self.state(layer).remove_pending(pending_of(prepared, layer))

    def settle(self, pending: Pending, head: Snapshot) -> Fate:
        fate = self._fate(pending, head)
        if fate is not Fate.UNDECIDED:
            self.state(pending.layer).remove_pending(pending)
        if (
            fate is Fate.LOST
            and head.ledger
            and any(map(head.ledger.header.entry, pending.operations))
        ):
            return Fate.UNKNOWN  # some of it came with another's step
        return fate

    def shown(self, layer: str, notices: Iterable[str]) -> frozenset[str]:
        return self.state(layer).shown(notices)

    # --- how ------------------------------------------------------------------------------------

    def _with_repairs(self, act: Callable[[], T]) -> T:
        for again in range(REPAIRS):
            try:
                return act()
            except CopyLost as lost:
                message = lost.message
                self.clock.sleep(PAUSE * again)
        raise Invalid(message)

    def _may_replace(self, change: Change) -> bool:
        # Decisions stay in history; only a renewal may take the place of a renewal.
        if not change.renewal or change.base.ledger is None:
            return False
        if change.ledger.header.policy.history is not History.REPLACE:
            return False
        known = self.load(change.base.layer)
        if known is not None and known.append_only:
            return False
        base = change.base.version
        return decision(self.storage, base) not in ("", base)

    def _swap(
        self, prepared: Prepared, work: WorkPush | None, on_start: Callable[[], object]
    ) -> Swapped:
        moves = [
            Move(layer, prepared.replaces(layer), prepared.versions[layer], _ends_any(change))
            for layer, change in prepared.changes.items()
        ]
        note_sent("a change of the ledger")
        began = self.clock.now()
        try:
            if work is None:
                pushed = self.storage.swap(moves, on_start=on_start)
            elif self._beside_work is not None:
                pushed = self._beside_work.swap(moves, work)
            else:
                raise Invalid(f"no work lies beside the ledger at {self.place}")
        except GitleaseError:
            self.forget_pending(prepared)  # nothing was sent that could land
            raise
        took = began.elapsed_at_least(self.clock.now())
        pushed = replace(pushed, took=took)
        if pushed.fate is Fate.APPLIED:
            heads = {
                layer: self.adopt(
                    change,
                    prepared.versions[layer],
                    append_only=layer in prepared.appended,
                    # Work may be much, so what it takes says nothing of a step.
                    took=took if work is None else 0,
                )
                for layer, change in prepared.changes.items()
            }
            return replace(pushed, heads=heads)
        operations = _operations(prepared)
        if pushed.sent:
            self._sent |= operations
        # Nothing went out now or before: there is nothing to read back.
        elif pushed.cause is not Cause.MOVED and not operations & self._sent:
            return pushed
        return self._read_back(prepared, pushed, work)

    def _fate(self, pending: Pending, head: Snapshot) -> Fate:
        if head.ledger is None or head.version == pending.expected:
            return Fate.UNDECIDED
        fate = head.ledger.header.fate(pending.operations, pending.base_revision)
        if fate is not Fate.APPLIED and head.former is not None:
            # The ledger was restored without what this was decided on: it can never land there.
            # A restoration is a new step, so the tip of before does not come back.
            decided = decision(self.storage, pending.expected)
            if fate is Fate.UNDECIDED or (
                decided and first_after(self.storage, decided, head.version) is None
            ):
                return Fate.LOST
        if fate is Fate.UNDECIDED and head.ledger.header.revision < pending.base_revision:
            return Fate.UNKNOWN  # another ledger has taken the place of that which may have it
        if fate is not Fate.UNKNOWN:
            return fate
        told = operations_since(self.storage, pending.expected, head.version)
        if told is not None and told.issuperset(pending.operations):
            return Fate.APPLIED
        # A renewal that is not in history any more may have been there.
        return Fate.LOST if told is not None and pending.decision else Fate.UNKNOWN

    def _read_back(self, prepared: Prepared, pushed: Swapped, work: WorkPush | None) -> Swapped:
        heads: dict[str, Snapshot] = {}
        fates = set()
        sent = pushed.sent or bool(_operations(prepared) & self._sent)
        for layer, change in prepared.changes.items():
            try:
                heads[layer] = self.credit(change, self.fetch(layer))
                shared = self._beside_work if work is not None and pushed.sent else None
                there = shared.work_refs(work) if shared and work else {}
            except (Unavailable, Denied) as error:
                # "Stale" is no news, and false of a portal's page, which has no refs to compare.
                said = [] if pushed.cause is Cause.MOVED else [pushed.detail]
                detail = "; ".join([*said, error.message.removeprefix(UNREACHABLE)])
                return Swapped(
                    Fate.UNKNOWN,
                    cause=Cause.UNREACHABLE,
                    sent=sent,
                    detail=detail,
                    hints=error.hints,
                )
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
        return replace(pushed, fate=fate, heads=heads, sent=sent)

    # --- heads --------------------------------------------------------------------------------

    def read(self, layer: str, version: str) -> Ledger:
        """The ledger of a layer at a version. Raises Invalid and CopyLost."""
        try:
            return Ledger(*self.storage.read(layer, version))
        except Invalid as error:
            raise Invalid(f"{error.message}, at {self.place}", hints=error.hints) from None

    def learn(
        self, layer: str, version: str | None, *, before: Known | None, took: int = 0
    ) -> Snapshot:
        """Take a fetched head as the known one, if it is not behind what was known ``before``.

        ``took`` is how many milliseconds the fetch took, 0 if there was none. Raises Rollback and
        Invalid.
        """
        received = self.clock.now()
        former = None if before is not None else self._former(layer)
        if version is None:
            if before is not None or former is not None:
                raise AnotherLedger(
                    f"this clone knows a ledger, but there is none at {self.place}",
                    hints=("it was deleted, or the remote or lease.ref_prefix has changed",),
                    gone=before is not None and not self._admission.is_lacking,  # at this URL
                )
            return Snapshot(layer=layer, version="", ledger=None, received=received)
        ledger = self.read(layer, version)
        if before is not None:
            try:
                self._check(layer, before, ledger, version)
            except AnotherLedger:
                raise
            except Rollback:
                if not is_restored(self.storage, lambda x: self.read(layer, x), before, version):
                    raise
                return self._learn_restored(layer, before, ledger, version, received)
        elif former is not None:
            self._check_id(former, ledger)
        if ledger.header.moved_to is None or self._follow is None:
            # What has ended here is no less for that: it is compared where it goes on.
            self._check_elsewhere(layer, before, ledger, version)
        if former is not None:  # the same ledger by another URL
            self._elsewhere.carry(layer)
        present = self.load(layer) or before
        if present is not None and present.ledger_id == ledger.header.ledger_id:
            # Another process of this clone may have gone further while the fetch was under way.
            if present.revision > ledger.header.revision:
                return self.known(layer) or self._snapshot(layer, present, ledger)
            if before is not None and present.version != before.version:
                self._check(layer, present, ledger, version)  # of another past than that one saw
            before = present
        pace = self._pace_at(layer, before, ledger, received, read=took)
        known = self._with_changes_sighted_now(layer, before or former, ledger, version)
        known = replace(known, received=received, pace=pace)
        if before is not None and before.version != version:
            known = self._since_elsewhere(layer, known, since=before.revision)
        self.state(layer).save(known)
        return self._snapshot(layer, known, ledger)

    def _pace_at(
        self,
        layer: str,
        before: Known | None,
        ledger: Ledger,
        now: Instant,
        *,
        own: int = 0,
        push: int = 0,
        read: int = 0,
    ) -> RemotePace:
        """The pace with what others have changed since what was known ``before``.

        Each step has a revision, a renewal that was replaced since included. ``own`` is how many
        steps are known to be this clone's; if there are more, what it has sent is looked up.
        """
        header = ledger.header
        if before is None or before.ledger_id != header.ledger_id:
            return RemotePace().after(push=push, read=read)
        others = header.revision - before.revision - own
        if others > 0:
            sent = {x for each in self.state(layer).pending(living=True) for x in each.operations}
            new = [x for x in header.ring if x.revision > before.revision]
            others += own - len({x.revision for x in new if x.operation in sent})
        elapsed = before.received.elapsed_at_least(now)
        return before.pace.after(others=others, elapsed=elapsed, push=push, read=read)

    def _since_elsewhere(self, layer: str, known: Known, *, since: int) -> Known:
        """What is known here, with when holders count from as seen at the place used before.

        A ledger that moves away and back finds an old copy here, of revision ``since``. Its
        holders' time runs from when they wrote their leases, not from when this clone came back
        (S3).
        """
        former, now = self._former(layer), known.received
        if former is None or former.ledger_id != known.ledger_id:
            return known
        # Once this clone has seen more here, nothing there is news.
        if former.revision <= since or not former.base.same_boot(now):
            return known
        former = former.at(now)
        changed = {file for file, _ in self._changed(layer, former.version, known.version)}
        sighted = dict(known.sighted)
        for file, seen in known.sighted.items():
            before = former.sighting(file)
            began = before.since or before.at
            if file not in changed and began.boot_ms < (seen.since or seen.at).boot_ms:
                sighted[file] = replace(seen, since=began)
        return replace(known, sighted=sighted)

    def _learn_restored(
        self, layer: str, before: Known, ledger: Ledger, version: str, received: Instant
    ) -> Snapshot:
        """Take a head that was restored from an older state than this clone has seen."""
        state = self.state(layer)
        state.forget()
        known = self._with_changes_sighted_now(layer, None, ledger, version)
        known = replace(known, received=received, former=before.former or before.version)
        known = replace(known, pace=before.pace)
        # A holder goes on counting from when it was granted.
        kept = {x: seen for x, seen in before.sighted.items() if x.startswith(FORMERLY)}
        kept |= {} if before.former else {FORMERLY + x: y for x, y in before.sighted.items()}
        known = replace(known, sighted={**known.sighted, **kept})
        state.save(known)
        self._warn(
            f"the ledger at {self.place} was restored after it was deleted: it is at revision "
            f"{ledger.header.revision}, and this clone had seen it up to {before.revision}"
        )
        return self._snapshot(layer, state.load() or known, ledger)

    def adopt(
        self, change: Change, version: str, *, append_only: bool = False, took: int = 0
    ) -> Snapshot:
        """Take one's own applied change as the known head, without asking anybody.

        ``took`` is how many milliseconds the push took, 0 if that is not known. Raises Rollback
        where it landed beside what another process of this clone has seen since.
        """
        layer = change.base.layer
        try:
            ledger = self.read(layer, version)
        except (Invalid, CopyLost):
            ledger = change.ledger  # applied all the same: what was lost is fetched another time
        before = self.load(layer)
        # Nobody of this clone has gone further meanwhile, so the sightings go on.
        if before is not None and before.version == change.base.version:
            known = self._moved(before.at(change.at), ledger, version, {})
        else:
            if before is not None and before.revision == ledger.header.revision:
                self._check(layer, before, ledger, version)
            known = self._with_changes_sighted_now(layer, before, ledger, version)
        # Its records count from the instant of the decision, so that is when they were seen.
        known = _credited(replace(known, received=change.at), change, None)
        pace = self._pace_at(layer, before, ledger, change.at, own=1, push=took)
        known = replace(known, append_only=known.append_only or append_only, pace=pace)
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

    def _check_id(self, before: Known, ledger: Ledger) -> None:
        if ledger.header.ledger_id != before.ledger_id:
            raise AnotherLedger(
                f"the ledger at {self.place} is not the one that this clone knows",
                hints=("the remote was renamed, added or replaced",),
            )

    def _check_elsewhere(
        self, layer: str, before: Known | None, ledger: Ledger, version: str
    ) -> None:
        """Raise Rollback if this clone has seen more of the same ledger at another place."""
        header, accepted = ledger.header, None
        for place, there in self._elsewhere.known(layer):
            if there.ledger_id != header.ledger_id or there.version == version:
                continue
            if there.revision <= header.revision:
                is_compared = before is not None and before.revision >= there.revision
                if is_compared or self._goes_on(layer, there, ledger, version):
                    continue
            if accepted is None:
                accepted = self._admission.accepted_less(layer)
            if there.version not in accepted:
                rollback = Rollback(
                    f"the ledger at {self.place} lacks what this clone has seen of it at {place}: "
                    f"it is at revision {header.revision}, and there it was at {there.revision}",
                    hints=(
                        "a restored backup or a stale mirror can cause this; use the other URL",
                        hint("people must decide which history counts: {}", "init", help=True),
                    ),
                    version=version,
                    token=header.token,
                )
                raise rollback.with_(elsewhere=True)

    def _check(self, layer: str, before: Known, ledger: Ledger, version: str) -> None:
        header = ledger.header
        self._check_id(before, ledger)
        if version == before.version:
            return
        if header.revision <= before.revision or not self._goes_on(layer, before, ledger, version):
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

    def _goes_on(self, layer: str, before: Known, ledger: Ledger, version: str) -> bool:
        """True if a head has in its past whatever this clone has seen and cannot be replaced."""
        # That is the last decision, and on top of it the renewals: they may be replaced, but only
        # by renewals that have them as well. However many steps lie between is the same (S10).
        if not before.decision:
            return True
        first: str | None = version
        if before.digest is None or before.digest != ledger.header.digest:
            first = first_after(self.storage, before.decision, version)
        if first is None or before.version in (before.decision, first):
            return first is not None
        if first != version and decision(self.storage, first) == first:
            return False  # it was decided on a state before the renewal that was seen
        there = self.read(layer, first)
        if there.header.revision <= before.revision:
            return False  # what takes the place of a renewal comes after it
        if all(
            any(x.lease_id == nonce and x.renewals >= most for x in _leases_of(there, text))
            for nonce, (text, most) in before.renewed.items()
        ):
            return True
        # One that cannot be read any more, and whose renewal is still in history, was damaged.
        since = takewhile(lambda x: x.id != before.decision, self.storage.history(version))
        return any(x.id == before.version for x in since)

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
        for file, there in self._changed(layer, before.version, version):
            kept.pop(file, None)
            if there is not None:
                seen[file] = Sighting(at=now, changed=there)
        for file, sighting in self._decided(layer, ledger, now).items():
            if file in seen:
                seen[file] = replace(sighting, changed=seen[file].changed)
        return self._moved(replace(before, sighted=kept), ledger, version, seen)

    def _changed(self, layer: str, earlier: str, version: str) -> Sequence[tuple[str, bool | None]]:
        """The records that differ between two versions, but for those that only let go."""
        # A renewal that was replaced since need not be here any more.
        is_here = next(self.storage.history(earlier), None) is not None
        old = self.storage.read(layer, earlier)[1] if is_here else None
        new = self.storage.read(layer, version)[1]
        found = new.changed_since(old)
        if old is None:
            return found
        return [x for x in found if not _lets_go(old.record_at(x[0]), new.record_at(x[0]))]

    def _moved(
        self, before: Known, ledger: Ledger, version: str, seen: dict[str, Sighting]
    ) -> Known:
        decided = decision(self.storage, version)
        return replace(
            before,
            version=version,
            revision=ledger.header.revision,
            digest=ledger.header.digest,
            token=ledger.header.token,
            decision=decided,
            renewed=before.renewed if decided == before.decision else {},
            sighted={**before.sighted, **seen},
        )

    def _decided(self, layer: str, ledger: Ledger, now: Instant) -> dict[str, Sighting]:
        """Records that this clone wrote itself, by a command whose outcome is only now found."""
        # A holder's time runs from the decision, whoever reads the record first and when: another
        # process of the clone, while the first one still waits, or a later one after it gave up.
        found = {}
        for pending in self.state(layer).pending(living=True):
            # An instant of another boot cannot be counted from.
            if pending.at is None or not pending.at.same_boot(now):
                continue
            for text in pending.resources:
                for lease in _leases_of(ledger, text):
                    if lease.operation in pending.operations:
                        # Another's step may have carried it out, which was decided earlier.
                        at, ms = pending.at, max(0, pending.at.wall_ms - lease.renewed_at)
                        since = replace(at, wall_ms=at.wall_ms - ms, boot_ms=at.boot_ms - ms)
                        own = Sighting(at=at, changed=True, since=since if ms else None)
                        found[lease_file(lease)] = own
        return found

    def _snapshot(self, layer: str, known: Known, ledger: Ledger) -> Snapshot:
        def seen(lease: Lease) -> Sighting:
            return known.sighting(lease_file(lease))

        along, self._seen[layer] = self.state(layer), known.version
        former = self._lost_past(layer, known) if known.former else None
        return Snapshot(
            layer,
            known.version,
            ledger,
            known.received,
            seen=seen,
            along=along,
            former=former,
            pace=known.pace,
        )

    def _lost_past(self, layer: str, known: Known) -> Former:
        def read() -> Ledger | None:
            try:
                return self.read(layer, known.former)
            except (Invalid, CopyLost):
                return None

        def settle() -> None:
            now = self.load(layer)
            if now is not None and now.former == known.former:
                still = {x: y for x, y in now.sighted.items() if not x.startswith(FORMERLY)}
                self.state(layer).save(replace(now, former="", sighted=still))

        def seen(lease: Lease) -> Sighting | None:
            return known.sighted.get(FORMERLY + lease_file(lease))

        return Former(read, seen, settle)


class _Past:
    """The effects of each step, kept by its version: who asks again reads only new steps."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, tuple[Event, ...]]] = {}  # and the version before it
        self._kept = 0  # events

    def events(self, storage: Storage, version: str, *, whole: bool) -> Iterator[Event]:
        """The events up to a version, the newest first; ``whole`` as of `Storage.history`."""
        while version:
            if (seen := self._seen.get(version)) is None:
                if (step := next(storage.history(version, whole=whole), None)) is None:
                    return
                seen = step.before, step.events
                if self._kept > EVENTS_KEPT:  # another thread may be at the old ones
                    self._seen, self._kept = {}, 0
                self._seen[version], self._kept = seen, self._kept + len(seen[1])
            version, events = seen
            yield from reversed(events)


def is_left(storage: Storage, there: Ledger, version: str, last: Snapshot) -> bool:
    """True if a ledger moved away from a place where ``version`` is, and on to the state ``last``.

    Then it may come back there, in the place of that version.
    """
    if last.ledger is None or there.header.moved_to is None:
        return False
    old, now = there.header, last.ledger.header
    same = old.ledger_id == now.ledger_id and old.revision < now.revision
    return same and first_after(storage, version, last.version) is not None


def _id_of(head: Snapshot) -> str:
    return "" if head.ledger is None else head.ledger.header.ledger_id


def _lets_go(before: Lease | Damage, now: Lease | Damage) -> bool:
    return isinstance(before, Lease) and isinstance(now, Lease) and now.lets_go_of(before)


def _ends_any(change: Change) -> bool:
    changed = change.ledger.changes.leases.values()
    return any(x is not None and (y is None or y.state is not State.ACTIVE) for x, y in changed)


def _credited(known: Known, change: Change, ledger: Ledger | None) -> Known:
    """Add the records of a change to the sightings, as of its decision, if ``ledger`` has them yet.

    Without a ``ledger`` the change itself is the head, which has all of them.
    """
    kept, own, renewed = dict(known.sighted), {}, dict[str, tuple[str, int]]()
    for before, after in change.ledger.changes.leases.values():
        if before is not None and after is not None and after.lets_go_of(before):
            continue
        if before is not None and ledger is None:
            kept.pop(lease_file(before), None)
        if after is not None and (
            ledger is None
            or any(  # and not by another's step, which was decided at another time
                (x.key, x.operation, x.renewed_at) == (after.key, after.operation, after.renewed_at)
                for x in _leases_of(ledger, after.resource.text)
            )
        ):
            own[lease_file(after)] = Sighting(at=change.at, changed=before is not None)
            renewed[after.lease_id] = after.resource.text, after.renewals
    return replace(
        known,
        sighted={**kept, **own},
        renewed={**known.renewed, **renewed} if change.renewal else known.renewed,
    )


def _leases_of(ledger: Ledger, resource: str) -> list[Lease]:
    try:
        return ledger.leases_of(parse_resource(resource))
    except (UsageError, Invalid):
        return []


def _operations(prepared: Prepared) -> set[str]:
    return {op for change in prepared.changes.values() for op in change.operations}
