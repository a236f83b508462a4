"""The real client code, driven from a script: one command runs from one request to the next.

``run`` carries a command out as a process of its own, with the real engine, store and rules. It
gets the answers that are written down; when they are used up, the process is found waiting for the
next one. To go on is to run it again with one answer more: it depends on nothing else, since ids
are counted, and the clock stands still between two answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from unittest import mock

from ledger_checker.moves import Broken
from simulation.commands import TASKS, Files
from simulation.scripted_verbs import LAYER, MAIN, VERBS
from simulation.shared_state import (
    COMMANDS,
    COUNTED,
    Disk,
    DiskImage,
    OwnTime,
    Request,
    Version,
    Versions,
)
from support.memory import MemoryStep
from support.session import LeaseService, NoTaskFiles, ledger_session

from gitlease.kernel.ledger import transaction
from gitlease.kernel.ledger.answers import Answer
from gitlease.kernel.ledger.edges import EdgeRules
from gitlease.kernel.ledger.ports import Cause, Change, Pending, Swapped
from gitlease.kernel.rules.errors import GitleaseError, Unavailable
from gitlease.kernel.rules.instant import Instant
from gitlease.kernel.rules.lease import Actor, Lease, Moment, State, holder_has
from gitlease.kernel.rules.ledger import Fate, Header
from gitlease.kernel.rules.moves.operations import Acknowledge, Barrier
from gitlease.kernel.rules.resources import Resource
from gitlease.kernel.rules.work import WorkPush
from gitlease.kernel.store.git_ledger import RefLedgerStore, StorePlace
from gitlease.kernel.store.storage import Move, SharedWithWork, Storage, StoredRecords

SETUP = COMMANDS - 1  # the number of the command that makes a ledger before a world begins
SILENCE = "no answer"


class Suspended(BaseException):
    """The process waits for an answer that is not written down."""

    def __init__(self, request: Request) -> None:
        self.request = request


@dataclass
class Process:
    """One command of one client. ``answers`` has what it was told, and when (true seconds)."""

    client: int
    number: int
    time: OwnTime
    true: float
    answers: Sequence[tuple[str, float]]
    versions: Versions
    disk: Disk
    actor: Actor
    under: int = 0
    told: int = 0
    ids: int = 0
    fresh_from: int = 0
    wrote: list[tuple[Version, frozenset[str]]] = field(default_factory=list)
    bases: dict[str, str] = field(default_factory=dict)
    became: list[tuple[str, Fate]] = field(default_factory=list)

    def now(self) -> Instant:
        return self.time.at(self.true)

    def sleep(self, seconds: float) -> None:
        """Time passes while a request is under way, and there is always another one."""

    def ask(self, request: Request) -> str:
        if self.told == len(self.answers):
            raise Suspended(request)
        answer, self.true = self.answers[self.told]
        self.told += 1
        self.fresh_from = len(self.disk.images) - 1
        return answer

    def getrandbits(self, _: int) -> int:
        self.ids += 1
        return (self.client * COMMANDS + self.number) * COUNTED + self.ids


class _Ids:
    """Stands in for the module ``random`` where ids are made."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def SystemRandom(self) -> Process:
        return self._process


class Remote(Storage, SharedWithWork):
    """The remote as one process reaches it, and the objects that clients share."""

    def __init__(self, process: Process) -> None:
        self._process, self._versions = process, process.versions

    def fetch(self, layer: str, known: str = "", *, before_push: bool = False) -> str | None:
        answer = self._process.ask(Request("fetch"))
        if answer == SILENCE:
            raise Unavailable("the remote cannot be reached")
        return answer or None

    def peek(self, layers: Sequence[str]) -> Mapping[str, str]:
        found = {layer: self.fetch(layer) for layer in layers}
        return {layer: version for layer, version in found.items() if version}

    def look(self) -> str:
        answer = self._process.ask(Request("look"))
        if answer == SILENCE:
            raise Unavailable("the remote cannot be reached")
        return answer

    def watch(self, layer: str) -> str:
        return ""

    def swap(
        self,
        moves: Sequence[Move],
        work: WorkPush | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
    ) -> Swapped:
        (move,) = moves
        request = Request("push", move.expected, move.new, self._process.bases[move.new])
        if work is not None:
            (one,) = work.refs
            request = request._replace(
                work_old=one.old, work_new=one.new, under=self._process.under
            )
        answer = self._process.ask(request)
        if answer == "done":
            return Swapped(fate=Fate.APPLIED)
        if answer == "work moved":
            return Swapped(fate=Fate.UNDECIDED, cause=Cause.WORK, sent=False, detail="fetch first")
        cause = Cause.UNREACHABLE if answer == SILENCE else Cause.MOVED
        return Swapped(fate=Fate.UNDECIDED, cause=cause, detail=answer)

    def land(self, work: WorkPush) -> None:
        """Move the work alone."""
        (one,) = work.refs
        self._process.ask(Request("land", work_old=one.old, work_new=one.new))

    def work_refs(self, work: WorkPush) -> Mapping[str, str]:
        return {MAIN: self.look()}

    def write(self, change: Change, *, replace_tip: bool) -> str:
        version = self._versions.add(change, replace_tip=replace_tip)
        plain = frozenset(
            op.id
            for op in change.decided.record.operations
            if not isinstance(op, Barrier | Acknowledge)
        )
        self._check_along(change)
        self._process.wrote.append((version, plain))
        self._process.bases[version.name] = change.base.version
        return version.name

    def _check_along(self, change: Change) -> None:
        """S7: what goes along is renewed once for each time that its heartbeat asked for that."""
        asked = {(x.grant, x.since.wall_ms) for x in self._process.disk.kept}
        written = change.decided.record.operations
        operations = [x for x in written if not isinstance(x, Acknowledge)]
        for grant in getattr(operations[0], "grants", ()) if len(operations) > 1 else ():
            was = change.base.ledger and change.base.ledger.lease(grant.resource, grant.scope)
            if not was or (grant, was.renewed_at) not in asked:
                raise Broken(f"S7: {grant.resource} was renewed along, and nobody asked for that")

    def read(self, layer: str, version: str) -> tuple[Header, StoredRecords]:
        found = self._versions.by_name[version]
        return found.header, found

    def history(self, version: str, *, whole: bool = False) -> Iterator[MemoryStep]:
        at: Version | None = self._versions.by_name[version]
        while at is not None:
            before = at.parent.name if at.parent else ""
            renewal = at.renewal and bool(before)
            # Nobody watches here, and the ring is long enough for all that is played.
            yield MemoryStep(at.name, before, renewal, (), None, at)
            at = at.parent


class Store(RefLedgerStore):
    """The real store, which notes what it says of changes that were left open."""

    process: Process

    def settle(self, pending: Pending, head: Any) -> Fate:
        fate = super().settle(pending, head)
        self.process.became += [(op, fate) for op in pending.operations]
        return fate


def store_of(process: Process, remote: Remote) -> Store:
    """The ledgers as a process knows them."""
    place = StorePlace(remote, lambda _layer: process.disk, "origin", beside_work=remote)
    store = Store(place, process)
    store.process = process
    return store


class EvenDice(random.Random):
    """Pauses do not matter where nobody sleeps."""

    def uniform(self, a: float, b: float) -> float:
        return a


DICE = EvenDice(0)


class Report(NamedTuple):
    """How a command ended: ``ok``, the code of its refusal, or a crash of the code itself.

    ``tried`` are the operations that it tried to carry out, ``done`` those that it reports, and
    ``became`` is what it said of earlier ones. ``late``: it reported a lease whose time was over.
    """

    code: str
    tried: frozenset[str]
    done: frozenset[str]
    late: bool = False
    became: tuple[tuple[str, Fate], ...] = ()


@dataclass(frozen=True)
class Waiting:
    """The process has sent a request. A kill leaves one of ``images``."""

    request: Request
    images: tuple[DiskImage, ...]


@dataclass(frozen=True)
class Ended:
    """The process is over. A kill shortly before its end leaves one of ``images``."""

    report: Report
    images: tuple[DiskImage, ...]


def run(
    process: Process, verb: str, what: Resource, ttl: int, policy: Mapping[str, str]
) -> Waiting | Ended:
    """Carry out one command as far as its answers go."""
    remote = Remote(process)
    store = store_of(process, remote)
    actor = process.actor
    files = Files() if what in TASKS else NoTaskFiles()
    session = ledger_session(
        store,
        clock=process,
        actor=actor,
        layer=LAYER,
        dice=DICE,
        files=files,
        rules=EdgeRules(required=False),
    )
    service = LeaseService(session)
    code, answer = "ok", cast(object, None)
    known = process.disk.load()
    if known is not None:
        own = own_leases(process.versions.by_name[known.version], actor)
        process.under = max((x.token for x in own if x.resource == what), default=0)
    try:
        with mock.patch.object(transaction, "random", _Ids(process)):
            if verb == "set policy":
                answer = service.set_policy({**policy})
            else:
                answer = VERBS[verb](service, remote, what, ttl)
    except Suspended as suspended:
        return Waiting(suspended.request, tuple(process.disk.images[process.fresh_from :]))
    except GitleaseError as refusal:
        code = refusal.code
    except Broken:
        raise
    except Exception as error:
        code = f"{type(error).__name__}: {error}"
    sets = [plain for _, plain in process.wrote if plain]
    changed = code == "ok" and (not isinstance(answer, Answer) or answer.changed)
    if changed and verb == "beat" and isinstance(answer, Answer):
        changed = not _is_by_another(process, answer)
    held = isinstance(answer, Answer) and bool(answer.leases) and verb not in ("unbind", "end")
    late = held and _is_late(process)
    report = Report(
        code,
        tried=frozenset[str]().union(*sets),
        done=sets[-1] if sets and changed else frozenset(),
        late=late,
        became=tuple(process.became),
    )
    return Ended(report, tuple(process.disk.images[process.fresh_from :]))


def _is_by_another(process: Process, answer: Answer) -> bool:
    """Whether a heartbeat found that another process had renewed what it keeps."""
    known = process.disk.load()
    assert known is not None
    told = {x.lease_id for x in answer.leases}
    stand = process.versions.by_name[known.version].leases.values()
    by = {x.operation for x in stand if x.lease_id in told}
    return bool(by) and not any(by & plain for _, plain in process.wrote)


def _is_late(process: Process) -> bool:
    """Whether what a command was granted is over by the time at which it says so."""
    at, wrote = process.now().wall_ms, [version for version, plain in process.wrote if plain]
    return bool(wrote) and any(x.expires_at <= at for x in wrote[-1].granted)


def own_leases(version: Version, actor: Actor) -> list[Lease]:
    """The active leases of a version that are a client's, and bound to no other run."""
    active = (x for x in version.leases.values() if x.state is State.ACTIVE and not x.parked)
    mine = (x for x in active if x.holder == actor.holder)
    return [x for x in mine if x.session in (None, actor.session)]


def believed(process: Process) -> list[Lease]:
    """The leases that a clone says it holds, by all that it knows, asking nobody."""
    known = process.disk.load()
    if known is None:
        return []
    own = own_leases(process.versions.by_name[known.version], process.actor)
    if not own:
        return []
    now = process.now()
    kept = {x.grant.lease_id for x in process.disk.kept if x.left_ms(now) > 0}
    head = store_of(process, Remote(process)).known(LAYER)
    assert head is not None
    moment = Moment(now=now, seen=head.seen)
    return [x for x in own if x.lease_id in kept or holder_has(x, moment)]
