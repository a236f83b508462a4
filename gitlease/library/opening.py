"""``gitlease.open``, ``open_async``, ``session`` and ``run``; and the verbs for event loops."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, TypeVar

from gitlease.kernel.ledger import acts
from gitlease.kernel.ledger.heartbeat import at_the_end
from gitlease.kernel.ledger.watch import WatchEvent
from gitlease.kernel.rules.edge import Task
from gitlease.kernel.rules.errors import GitleaseError, UnknownOutcome, UsageError
from gitlease.kernel.rules.instant import moment_of
from gitlease.kernel.rules.resources import Resource, parse_resource, word_anywhere
from gitlease.landing.fenced_push import PushAnswer
from gitlease.library.lease_verbs import AwaitedLeaseVerbs
from gitlease.library.leases import Leases, OnLost, Session
from gitlease.library.methods import (
    Duration,
    ResourceLike,
    StrPath,
    check_listener,
    refusal,
    refusing,
    refusing_class,
    to_folder,
)
from gitlease.library.values import Lease, RunResult
from gitlease.wiring.workspace import open_workspace

T = TypeVar("T")
_NAMED = ("resource", "resources")


@refusing_class
class AsyncLeases(AwaitedLeaseVerbs):
    """The verbs of ``Leases`` for a program with an event loop: ``async with`` opens it.

    Each call runs in a thread of its own, so that any number may wait at once. Cancelling a call
    waits for its thread, so that the outcome is never in doubt: a wait ends at once, a claim is
    released, and any other change has been made. ``run``, ``work`` and the callbacks are missing:
    use ``async with gitlease.hold(…)`` around your own command, and ``watch``. ``warnings`` are
    those of the last answer.
    """

    def __init__(self, opener: Callable[[], Leases]) -> None:
        self._opener, self._leases = opener, None
        self.warnings: tuple[str, ...] = ()

    _leases: Leases | None

    def __repr__(self) -> str:
        return (
            "<AsyncLeases: not open>" if self._leases is None else f"<Async{repr(self._leases)[1:]}"
        )

    async def __aenter__(self) -> Self:
        opening = _in_thread(self._opener)
        if await _finished(opening):
            # Asked for, or asyncio would report it as never retrieved.
            opening.exception()
            raise asyncio.CancelledError
        self._leases = opening.result()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Nothing is released: a lease ends by ``release``, ``done`` or time."""

    @property
    def holder(self) -> str:
        """The person who claims: git's ``user.email``; empty if there is none."""
        return self._opened.holder

    @property
    def session(self) -> str | None:
        """The holder's session, if any."""
        return self._opened.session

    async def push(
        self,
        remote: str | None = None,
        *refspecs: str,
        require: Iterable[ResourceLike] = (),
        upstream: bool = False,
        force: bool = False,
        tags: bool = False,
        delete: bool = False,
        options: Iterable[str] = (),
        hooks: bool = True,
        dry_run: bool = False,
        override: str | None = None,
    ) -> PushAnswer:
        """Push work and a renewal of its leases in one atomic push, as ``Leases.push`` does."""
        given = {
            "require": require,
            "upstream": upstream,
            "force": force,
            "tags": tags,
            "delete": delete,
            "options": options,
            "hooks": hooks,
            "dry_run": dry_run,
            "override": override,
        }
        return await self._call(Leases.push, (remote, *refspecs), given)

    async def task(self, resource: ResourceLike) -> Task:
        """A task as in its file. Raises NotFound, and Invalid for a broken file."""
        return await self._call(Leases.task, (resource,), {})

    async def watch(
        self, *resources: ResourceLike, scope: str | None = None, timeout: Duration | None = None
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield events of leases, of these resources or of all, until ``timeout``."""
        ended = threading.Event()
        events = self._copy(ended).watch(*resources, scope=scope, timeout=timeout)
        while True:
            pending = _in_thread(partial(next, events, None))
            if await _finished(pending, ended):
                # As an opening that was cancelled.
                pending.exception()
                raise asyncio.CancelledError
            try:
                event = pending.result()
            except GitleaseError as error:
                raise refusal(error) from None
            if event is None:
                return
            yield event

    @property
    def _opened(self) -> Leases:
        if self._leases is None:
            raise UsageError("not open: enter an async with block first")
        return self._leases

    def _copy(self, ended: threading.Event | None = None) -> Leases:
        # For a thread of its own, whose waits end once ``ended`` is set.
        opened = self._opened
        clock = None if ended is None else opened._workspace.waking_clock(ended)
        return Leases(
            opened._workspace.again(clock=clock), layer=opened._layer, open_at=opened._open_at
        )

    @refusing
    async def _call(
        self, verb: Callable[..., T], args: Any, options: Any, *, grants: bool = False
    ) -> T:
        # A change under way is never interrupted: its outcome would be in doubt.
        waits = grants or verb is Leases.wait
        ended = threading.Event()
        leases = self._copy(ended if waits else None)
        began = leases._ledger.clock.now().wall_ms
        pending = _in_thread(partial(verb, leases, *args, **options))
        if await _finished(pending, ended):
            if grants:
                first = args[0] if args else next((options[x] for x in _NAMED if x in options), ())
                is_single = isinstance(first, str | os.PathLike | Resource)
                words: list[Any] = [first] if is_single else [*first]
                undone = partial(_release, self._copy(), pending, words, began)
                await _finished(_in_thread(undone))
            pending.exception()
            raise asyncio.CancelledError
        self.warnings = leases.warnings
        return pending.result()


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    # Not in a shared pool, whose threads may all be waiting.
    alone = ThreadPoolExecutor(1, thread_name_prefix="gitlease async")
    try:
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(alone, context.run, work)
    finally:
        alone.shutdown(wait=False)


async def _finished(work: asyncio.Future[Any], ended: threading.Event | None = None) -> bool:
    """Wait for a thread despite cancellation; return whether cancelled, which sets ``ended``."""
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            cancelled = True
            if ended is not None:
                ended.set()
    return cancelled


def _release(
    leases: Leases, claim: asyncio.Future[Any], words: Sequence[ResourceLike], began: int
) -> None:
    """Release the leases of a cancelled claim; a failure is only a warning."""
    error = claim.exception()
    if error is not None and not isinstance(error, UnknownOutcome):
        return
    try:
        # Of unknown outcome: the ledger tells.
        if error is not None:
            claimed = [x for word in words for x in leases.show(word)]
        else:
            answer = claim.result()
            claimed = [answer] if isinstance(answer, Lease) else [*answer]
        # What was held before the call stays.
        got = [x for x in claimed if x.state == "active" and x.claimed_at >= moment_of(began)]
        ledger = at_the_end(leases._workspace, {view.lease_id for view in got})
        for view in got:
            if view.mine:
                resource = parse_resource(word_anywhere(view.resource))
                acts.release(ledger, [resource], scope=view.scope)
    except GitleaseError as refusal:
        names = ", ".join(map(str, words)) or "a task"
        message = f"gitlease: {names} may not be released, and will expire: {refusal.message}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


@refusing
def open(
    directory: StrPath = ".",
    *,
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Leases:
    """Open the leases of the repository around ``directory``, without contacting the remote.

    Raises NotARepository, and Invalid for bad settings. Without a ``user.email`` it only reads.
    """
    opener = partial(
        open_workspace, layer=layer, local=local, remote=remote, environ=environ, anonymous=True
    )
    opened = opener(to_folder(directory), session=session)
    return Leases(opened, layer=layer, open_at=opener)


def open_async(
    directory: StrPath = ".",
    *,
    session: str | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncLeases:
    """The same for programs with an event loop: every verb is awaited.

        async with gitlease.open_async(".") as leases:
            lease = await leases.claim("F001", wait="5m")
            async for event in leases.watch("F002"):
                print(event.kind)

    It is opened, and raises what ``open`` raises, when the ``async with`` block is entered.
    """
    place: dict[str, Any] = {"layer": layer, "local": local, "remote": remote, "environ": environ}
    return AsyncLeases(partial(open, directory, session=session, **place))


@refusing
def session(
    name: str | None = None,
    *,
    directory: StrPath = ".",
    on_lost: OnLost | None = None,
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Session:
    """A named session whose leases are renewed until its ``with`` block ends.

        with gitlease.session("build-7") as s:
            s.claim("F001")
            s.check()

    At its end everything claimed here is released in one push; leases that the session held before
    stay. Without a ``name`` (here, or in ``GITLEASE_SESSION``) it gets a random one. ``on_lost`` is
    called in a thread of its own for each lost lease.
    """
    check_listener(on_lost)
    opener = partial(open_workspace, layer=layer, local=local, remote=remote, environ=environ)
    opened = opener(to_folder(directory), session=name)
    return Session(opened, on_lost=on_lost, layer=layer, open_at=opener)


@refusing
def run(
    command: Sequence[str],
    *resources: ResourceLike,
    directory: StrPath = ".",
    session: str | None = None,
    next: bool = False,
    done: bool = False,
    note: str | None = None,
    grace: Duration | None = None,
    cwd: StrPath | None = None,
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
) -> RunResult:
    """Run a command under leases; the other options are those of ``Leases.run``.

    result = gitlease.run(["make", "deploy"], "deploy-prod", any=True, wait="15m")
    sys.exit(result.status)
    """
    leases = open(
        directory, session=session, layer=layer, local=local, remote=remote, environ=environ
    )
    return leases.run(
        command,
        *resources,
        next=next,
        done=done,
        note=note,
        grace=grace,
        cwd=cwd,
        one=one,
        paths=paths,
        scope=scope,
        ttl=ttl,
        wait=wait,
        reason=reason,
        takeover=takeover,
        expect_holder=expect_holder,
        reopen=reopen,
        any=any,
        new=new,
        commit=commit,
    )
