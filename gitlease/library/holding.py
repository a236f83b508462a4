"""``gitlease.hold``: claim, renew in the background, release, and report a loss at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary

from gitlease.kernel.ledger import acts, claim
from gitlease.kernel.ledger.answers import Answer, ClaimOptions
from gitlease.kernel.ledger.heartbeat import at_the_end, heartbeat_of, in_a_run
from gitlease.kernel.ledger.keeping import holds_of
from gitlease.kernel.ledger.sessions import unbind
from gitlease.kernel.rules.errors import GitleaseError, LeaseHeld, LeaseLost, Loss, UsageError
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.loss import Lost
from gitlease.kernel.rules.moves.operations import Grant
from gitlease.kernel.rules.resources import Resource
from gitlease.library.methods import (
    TERMS,
    Duration,
    ResourceLike,
    StrPath,
    check_listener,
    refusing,
    refusing_class,
    to_folder,
    to_list,
    to_note,
    to_resources,
)
from gitlease.library.values import Lease
from gitlease.runs.records import RunRecord, record_of, remember, runs_of
from gitlease.verbs.claiming import check_one, claim_options, patterns_of
from gitlease.verbs.table import refuse_durations
from gitlease.wiring.doors import CloneDoor
from gitlease.wiring.workspace import Workspace, open_workspace

# The leases that each task (or thread without one) holds: waiting for one of these would be a
# deadlock. A task started by another runs beside it, and may wait for it.
_held_by: WeakKeyDictionary[object, frozenset[str]] = WeakKeyDictionary()


def _open_in_a_run(directory: StrPath, **options: Any) -> Workspace:
    return in_a_run(open_workspace(to_folder(directory), **options), "hold")


@refusing
def hold(
    *resources: ResourceLike,
    session: str | None = None,
    note: str | None = None,
    on_lost: Callable[[Holding], object] | None = None,
    directory: StrPath = ".",
    one: bool = False,
    paths: Iterable[StrPath] = (),
    scope: str | None = None,
    ttl: Duration | None = None,
    wait: Duration | None = None,
    reason: str | None = None,
    takeover: bool = False,
    expect_holder: str | None = None,
    reopen: bool = False,
    any: bool = False,
    new: bool = False,
    commit: bool | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Holding:
    """Hold leases while a ``with`` block runs, renewed in the background; ``async with`` too.

    All of ``resources`` or none; with ``one`` the first that is free, which ``leases`` names.
    ``wait`` blocks for at most that long while another has one.
    ``note`` is left for the next holder. Without a ``session`` (here, or in ``GITLEASE_SESSION``)
    each hold has a session of its own, so that two threads, or two jobs of one person, exclude each
    other; leases that the person holds without a session are bound to it for the block. Within one
    session a hold of something already held joins it, and only the outermost releases.

    ``on_lost`` is called in a thread of its own once a loss is known. A lease that is not renewed
    in time is lost before anybody else can claim it. A revocation, or a release from elsewhere, is
    noticed at the next renewal, after about a third of ``ttl``, and within seconds once this clone
    has seen it: another may have the lease by then, but ``Leases.push`` and ``Leases.fence`` refuse
    this work at once.

    Raises what ``Leases.claim`` raises, and LeaseLost at the end of a block that lost its lease.
    """
    check_listener(on_lost)
    # All arguments are checked before anything is opened, except paths, which need the repository.
    covered = to_list(paths, "paths")
    given = {
        "one": one,
        "scope": scope,
        "ttl": ttl,
        "wait": wait,
        "reason": reason,
        "takeover": takeover,
        "expect_holder": expect_holder,
        "reopen": reopen,
        "any": any,
        "new": new,
        "commit": commit,
    }
    terms = TERMS.values(None, TERMS.differing(given))
    longest = terms.pop("wait", None)
    claimed = claim_options(**terms)
    check_one(claimed, lambda name: name)
    place: dict[str, Any] = {"session": session, "layer": layer, "local": local, "remote": remote}
    opener = partial(_open_in_a_run, directory, environ=environ, **place)
    return Holding(
        opener,
        resources,
        claimed,
        paths=covered,
        wait=longest,
        note=to_note(note),
        on_lost=on_lost,
    )


@refusing_class
class Holding:
    """The leases of a ``with gitlease.hold(…) as lease`` block. Thread-safe.

    ``lost`` is an event, set once any of them is lost, which is final; ``warnings`` are those of
    the claim. Only the process that entered the block holds them: a forked child does not.
    """

    def __init__(
        self,
        opener: Callable[[], Workspace],
        resources: Iterable[ResourceLike],
        terms: ClaimOptions,
        *,
        paths: Iterable[StrPath] = (),
        wait: int | None = None,
        note: str | None = None,
        on_lost: Callable[[Holding], object] | None = None,
    ) -> None:
        self.lost = threading.Event()
        self.warnings: tuple[str, ...] = ()
        self._open, self._words, self._paths = opener, tuple(resources), paths
        self._terms, self._wait, self._on_lost = terms, wait, on_lost
        self._at_end = partial(
            HeldLeases.release, scope=terms.scope, note=note, commit=terms.commit
        )
        self._loss: Lost | None = None
        self._cancelled = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()
        self._entered = False
        self._runner: object = None  # the task or thread that runs the block
        self._held_before: frozenset[str] = frozenset()  # by that
        self._session: str | None = None
        self._views: tuple[Lease, ...] = ()
        self._kept: HeldLeases | None = None

    def __repr__(self) -> str:
        if not self._views:
            return f"<Holding {' '.join(map(str, self._words))}: not entered>"
        state = f"lost ({self.loss})" if self.loss else f"{self.seconds_left:.0f}s left"
        return f"<Holding {' '.join(self.tokens)}: {state}>"

    # --- state ----------------------------------------------------------------------------------

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases as they were granted, before any renewal."""
        return self._views

    @property
    def token(self) -> int:
        """The fencing token of the only lease. UsageError if there are several: see ``tokens``."""
        if len(self._views) != 1:
            raise UsageError(f"{len(self._views)} leases are held here: each has its own token")
        return self._views[0].token

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each resource."""
        return {view.resource: view.token for view in self._views}

    @property
    def session(self) -> str | None:
        """The session that holds it; None before it is entered."""
        return self._session

    @property
    def loss(self) -> Loss | None:
        """The reason of its loss; None while it is held."""
        return self._loss.loss if self._loss else None

    @property
    def seconds_left(self) -> float:
        """Seconds it may be relied on without another renewal; 0.0 when it is over."""
        kept = self._kept  # which another thread may let go of
        return kept.seconds_left() if kept else 0.0

    def check(self) -> None:
        """Raise LeaseLost, with the reason, once a lease is lost.

        It contacts no remote, so it is cheap; a change there is known after the next renewal. Fence
        what cannot be undone by ``token``.
        """
        if not self._views:
            raise UsageError("nothing is held: enter the hold by a with block first")
        kept = self._kept
        if kept is not None:
            kept.check()
        elif self._loss is not None:
            raise self._loss.error

    async def wait_lost(self) -> Loss:
        """Wait until a lease is lost, to cancel the work; cancel this when the work is done."""
        lost = asyncio.Event()
        # A loss is known in the heartbeat's thread, and each waiter may have a loop of its own.
        waiter = asyncio.get_running_loop(), lost
        with self._lock:
            self._waiters.append(waiter)
            if self._loss is not None:
                lost.set()
        try:
            await lost.wait()
        finally:
            with self._lock:
                self._waiters.remove(waiter)
        return self._loss.loss if self._loss else Loss.EXPIRED

    # --- the block ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        self._claim()
        self._mark()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (kept := self._leave()) is not None:
            self._at_end(kept)
            kept.end(error)

    async def __aenter__(self) -> Self:
        self._enter()
        claiming = asyncio.create_task(asyncio.to_thread(self._claim))
        try:
            await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # Ends the wait; a claim that succeeds all the same is given back.
            self._cancelled.set()
            await asyncio.shield(asyncio.create_task(self._give_back(claiming)))
            raise
        self._mark()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (kept := self._leave()) is not None:
            # Shielded: a task that is cancelled at the end of its block still gives back what it
            # holds.
            await asyncio.shield(asyncio.create_task(asyncio.to_thread(self._at_end, kept)))
            kept.end(error)

    # --- how ------------------------------------------------------------------------------------

    def _enter(self) -> None:
        if self._entered:
            raise UsageError("this hold was entered before: call gitlease.hold again for a new one")
        self._entered = True
        self._runner = threading.current_thread()
        # Of an event loop each task is a runner of its own; there may be no loop.
        with contextlib.suppress(RuntimeError):
            self._runner = asyncio.current_task() or self._runner
        self._held_before = _held_by.get(self._runner, frozenset())

    def _claim(self) -> None:
        workspace = self._open()
        self._session = workspace.identity.actor.session
        waited = workspace.again(clock=workspace.waking_clock(self._cancelled))
        door = CloneDoor(workspace)
        wanted, covered = to_resources(door, self._words), door.paths(self._paths)
        terms = replace(self._terms, paths=patterns_of(covered), bind=not self._terms.one)
        refuse_durations(door, () if terms.any_name else wanted, TERMS.parameters)
        warnings = door.check_claim(wanted, covered, any_name=terms.any_name)
        answer = claim.claim(
            waited.ledger,
            wanted,
            terms,
            wait=self._wait,
            on_wait=lambda held: _refuse_deadlock(held, self._held_before),
        )
        self.warnings = (*warnings, *door.granted(answer), *answer.warnings)
        self._views = answer.leases
        self._kept = HeldLeases(workspace, self.lost, self._lose, sharp=True)
        self._kept.learn(answer)

    def _lose(self, lost: Lost) -> None:
        with self._lock:
            if self._loss is not None:
                return
            self._loss = lost
            waiters = list(self._waiters)
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
        if self._on_lost is not None:
            call_in_thread(self._on_lost, self)

    async def _give_back(self, claiming: asyncio.Task[None]) -> None:
        try:
            await claiming
        except (GitleaseError, InterruptedError):
            return
        kept, self._kept = self._kept, None
        if kept is not None:
            await asyncio.to_thread(self._at_end, kept)

    def _mark(self) -> None:
        ids = self._kept.ids if self._kept else set()
        _held_by[self._runner] = _held_by.get(self._runner, frozenset()) | ids

    def _leave(self) -> HeldLeases | None:
        kept = self._kept
        # In a forked child the leases are its parent's, who still works under them.
        if kept is None or not kept.is_here:
            return None
        _held_by[self._runner] = _held_by.get(self._runner, frozenset()) - kept.granted
        # A program may keep this object for its tokens: it must not keep the heartbeat, the opened
        # clone and the task with it.
        self._kept = self._runner = None
        return kept


def _refuse_deadlock(held: LeaseHeld, own_ids: frozenset[str]) -> None:
    refusals = held.each or (held,)
    own = [next((x for x in y.conflicts if x.lease_id in own_ids), None) for y in refusals]
    blocking = own[0]
    # Of several that any would do, another one ends the wait.
    if blocking is not None and None not in own:
        raise UsageError(
            f"{blocking.resource} is already held by this code: waiting for it would never end",
            hints=("use that lease, or give both holds the same session",),
        )


class HeldLeases:
    """The leases of one block. ``lost`` is set at the first loss, ``on_loss`` called for each.

    ``sharp``: a loss is reported once this clone knows of it, not at the next renewal.
    """

    def __init__(
        self,
        workspace: Workspace,
        lost: threading.Event,
        on_loss: Callable[[Lost], object],
        *,
        sharp: bool | None = None,
    ) -> None:
        self._workspace, self._lost, self._on_loss = workspace, lost, on_loss
        self._beat, self._sharp, self._pid = heartbeat_of(workspace), sharp, os.getpid()
        self._granted: dict[str, Resource] = {}
        self._bound: dict[str, Grant] = {}
        self._remembered: RunRecord | None = None  # that this clone has of the first claim
        self._losses: list[Lost] = []
        self.ids: set[str] = set()

    @property
    def is_here(self) -> bool:
        """Return whether this process claimed them."""
        return os.getpid() == self._pid

    @property
    def granted(self) -> set[str]:
        """The ids to give back: not those that the session held before the block."""
        return {*self._granted, *self._bound}

    def learn(self, answer: Answer) -> None:
        """Take note of an answer: keep its live leases, and drop those it ended."""
        holds = holds_of(answer)
        live = {hold.grant.lease_id for hold in holds}
        ended = {view.lease_id for view in answer.leases} & self.ids - live
        self._beat.drop(sorted(ended | (live & self.ids)), self._lose)
        self._beat.keep(holds, self._lose, sharp=self._sharp)
        self.ids = (self.ids - ended) | live
        # What the session held before the block was renewed, and stays at its end.
        new = {view.lease_id for view in answer.leases if not view.renewals}
        grants = {hold.grant.lease_id: hold.grant for hold in holds}
        self._granted |= {x: grant.resource for x, grant in grants.items() if x in new}
        if self._sharp and self._remembered is None:
            self._remembered = record_of(self._workspace, answer, shown=bool(answer.bound))
            remember(self._workspace, self._remembered)
        self._bound |= {x: grant for x, grant in grants.items() if x in answer.bound}
        for lease_id in ended:
            self._granted.pop(lease_id, None)

    def seconds_left(self) -> float:
        """Seconds for which all of them may be relied on without another renewal."""
        if not self.is_here or self._losses:
            return 0.0
        return min((self._beat.left_ms(x) for x in self.ids), default=0) / 1_000

    def check(self) -> None:
        """Raise LeaseLost for the first lease that was lost."""
        if not self.is_here:
            raise UsageError(
                f"these leases belong to process {self._pid}: a forked child does not hold them"
            )
        self._beat.look()
        if self._losses:
            raise self._losses[0].error

    def release(
        self, *, scope: str | None = None, note: str | None = None, commit: bool | None = None
    ) -> None:
        """Release what was granted here and not lost; a failure is only a warning."""
        if not self.is_here:
            return
        self._beat.look()
        self._beat.drop(sorted(self.ids), self._lose)
        lost = {x.hold.grant.lease_id for x in self._losses}
        ours = {x: resource for x, resource in self._granted.items() if x not in lost}
        bound = [grant for x, grant in self._bound.items() if x not in lost]
        try:
            ledger = at_the_end(self._workspace, {*ours, *self._bound})
            if bound:
                unbind(ledger, bound)
            if ours:
                acts.release(ledger, [*ours.values()], scope=scope, note=note, commit=commit)
            if self._remembered is not None:
                runs_of(self._workspace).retire(self._remembered)
        except GitleaseError as refusal:
            # The work is done, and leases expire: no reason to fail what succeeded.
            names = ", ".join(x.text for x in (*ours.values(), *(g.resource for g in bound)))
            message = f"gitlease: {names} was not released, and will expire: {refusal.message}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def end(self, error: BaseException | None) -> None:
        """Raise LeaseLost if any was lost, or add a note to the ``error`` of the block."""
        if not self._losses or not self.is_here:
            return
        lost = self._losses[0].error
        if error is None:
            raise lost
        if not isinstance(error, LeaseLost):
            error.add_note(f"gitlease: {lost.message}")

    def _lose(self, lost: Lost) -> None:
        self._losses.append(lost)
        self._lost.set()
        self._on_loss(lost)


def call_in_thread(listener: Callable[..., object], *arguments: object) -> None:
    """Call a listener of the program's in a thread of its own."""
    threading.Thread(target=listener, args=arguments, name="gitlease on_lost", daemon=True).start()
