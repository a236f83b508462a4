"""The server for one agent over standard input and output, in a clone."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectSendStream
from mcp import StdioServerParameters, types
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from gitlease.agents.opening import (
    ToolSession,
    in_session_of_host,
    is_left_to_hooks,
    note_tool_server,
    open_for_tools,
)
from gitlease.guard.service import renew_known, retry_interval
from gitlease.kernel.ledger.answers import Answer, joined
from gitlease.kernel.ledger.heartbeat import at_the_end
from gitlease.kernel.ledger.ledger_session import LedgerSession
from gitlease.kernel.ledger.sessions import run_out
from gitlease.kernel.ledger.stepping import in_every
from gitlease.kernel.ledger.transaction import fresh_id
from gitlease.kernel.ledger.watch import Watcher
from gitlease.kernel.rules.errors import GitleaseError, LeaseHeld, Unavailable, clean
from gitlease.kernel.rules.frozen import replace
from gitlease.kernel.rules.instant import MS, Instant, format_duration
from gitlease.kernel.rules.lease import holder_has
from gitlease.kernel.rules.lease_view import LeaseView
from gitlease.kernel.rules.resources import Resource, fold
from gitlease.mcp.server import AskedPlace, Backend, LeaseServer, ToolCaller, thread_of
from gitlease.verbs.table import Act
from gitlease.wiring.doors import WorkTreeDoor
from gitlease.wiring.workspace import Workspace

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TEND_EVERY = 3.0  # seconds between two looks at the leases
PATIENCE = 10.0  # seconds to wait at the end for calls under way
LISTEN, UNREADABLE = "subscriptions/listen", "this is no valid message"

Opener = Callable[..., Workspace]
Asked = dict[object, anyio.Event]  # by the ids of calls, what is set once they are answered


def held_by(workspace: Workspace, grants: Mapping[str, LeaseView]) -> dict[str, str]:
    """The sessions of those of some leases that are live, as far as this clone knows, by id."""
    view = None
    # A damaged copy: whatever needs it fetches it again.
    with contextlib.suppress(GitleaseError):
        view = workspace.ledger.known_look() if grants else None
    if view is None:
        return {}
    known = {x.lease_id: x.session for x in view.leases if holder_has(x, view.moment)}
    named = {x: lease.session for x, lease in dict(grants).items() if lease.session is not None}
    return {x: session for x, session in named.items() if session == known.get(x)}


def _by_layer(
    workspace: Workspace, grants: Mapping[str, LeaseView]
) -> list[tuple[Workspace, dict[str, LeaseView]]]:
    """Some leases by their layers, of which the workspace's own is always one."""
    found: dict[str, dict[str, LeaseView]] = {workspace.layer: {}}
    for lease_id, view in grants.items():
        found.setdefault(view.layer, {})[lease_id] = view
    return [(workspace.in_layer(layer), some) for layer, some in found.items()]


class CloneCaller(ToolCaller, WorkTreeDoor):
    """A person with a clone, in one session.

    ``grants`` collects the leases claimed here, by id, in their latest state, and ``renewed`` the
    ids of other leases that were renewed here. What was claimed before the host went on to another
    conversation stays the caller's, in the session that has it.
    """

    alone = True
    begun = False

    def __init__(
        self, workspace: Workspace, grants: dict[str, LeaseView], renewed: set[str]
    ) -> None:
        self.workspace, self._grants, self._renewed = workspace, grants, renewed
        held = held_by(workspace, grants)
        self._earlier = {x: name for x, name in held.items() if name != workspace.actor.session}

    def every_ledger(self) -> Sequence[LedgerSession]:
        spaces = [self._in(x) for x in (None, *sorted({*self._earlier.values()}))]
        return [x.ledger for space in spaces for x in space.in_use]

    def act(self, verb: str, resources: Sequence[Resource], act: Act, **terms: Any) -> Answer:
        with self.explaining(verb):
            if verb == "claim":
                return self._claim(resources, act)
            # What was claimed before the host went on to another conversation is in the session
            # that has it.
            names = {fold(self._grants[x].resource): name for x, name in self._earlier.items()}
            by_session: dict[str | None, list[Resource]] = {}
            for resource in resources:
                by_session.setdefault(names.get(fold(resource.text)), []).append(resource)
            parts = [(self._in(name).ledger, some) for name, some in by_session.items()]
            if len(parts) <= 1:
                answer = act(parts[0][0] if parts else self.ledger, resources)
            elif verb == "renew":
                named = {id(ledger): some for ledger, some in parts}
                ledgers = [ledger for ledger, _ in parts]
                answer = in_every(ledgers, "renewed", lambda ledger: act(ledger, named[id(ledger)]))
            else:
                answer = reduce(joined, (act(ledger, some) for ledger, some in parts))
        if verb in ("renew", "extend"):
            self._note_granted(answer)
        return answer

    def _in(self, session: str | None) -> Workspace:
        """The workspace in an earlier session; None: the present one."""
        return self.workspace if session is None else self.workspace.again(run=session)

    def own(self, view: LeaseView) -> LeaseView:
        return replace(view, mine=True) if view.lease_id in self._earlier else view

    def _claim(self, resources: Sequence[Resource], act: Act) -> Answer:
        try:
            return act(self.ledger, resources)
        except LeaseHeld as held:
            sessions = {self._earlier.get(view.lease_id) for view in held.views}
            if len(sessions) != 1 or (session := sessions.pop()) is None:
                raise
        return act(self._in(session).ledger, resources)

    def granted(self, answer: Answer) -> Sequence[str]:
        self._note_granted(answer)
        return super().granted(answer)

    def _note_granted(self, answer: Answer) -> None:
        for view in answer.leases:
            # One that was held before is renewed along, and not ended with this server.
            if not view.renewals or view.lease_id in self._grants:
                self._grants[view.lease_id] = view
            elif view.session is not None:
                self._renewed.add(view.lease_id)

    def follow(self, tell: Callable[[], None]) -> None:
        for _ in Watcher(self.ledger, on_begin=lambda _head: tell()).events():
            tell()


class CloneBackend(Backend):
    """The leases of the clone around a folder, which is opened anew for each call."""

    # So each call uses the current settings, and calls share nothing. The claimed leases are kept
    # by the agent's thread, to let them expire at the end.
    def __init__(self, directory: str | None = None, *, opener: Opener = open_for_tools) -> None:
        self._directory, self._opener = directory, opener
        self._name = f"mcp-{fresh_id()[:12]}"  # its session if its host names none
        self._session: dict[str, str | None] = {}  # of the last call
        self._noted: Mapping[str, str] = {}
        self._grants: dict[str, dict[str, LeaseView]] = {}
        self._renewed: dict[str, set[str]] = {}
        self._last_call: Instant | None = None
        self._next_try = 0  # by the boot clock
        self._calls, self._idle = 0, threading.Condition()
        self._waits: set[threading.Event] = set()
        self._closing = False

    @contextlib.contextmanager
    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, place: AskedPlace
    ) -> Iterator[CloneCaller]:
        with self._counted(woken):
            thread = thread_of(meta)
            opened = self._open(thread)
            self._last_call = opened.workspace.ledger.clock.now()
            clock = opened.workspace.waking_clock(woken)
            workspace = opened.workspace.again(clock=clock).in_layer(place.layer)
            grants = self._grants.setdefault(thread, {})
            try:
                yield CloneCaller(workspace, grants, self._renewed.setdefault(thread, set()))
            finally:
                if grants or self._noted:
                    self._note(opened)

    def _open(self, thread: str) -> ToolSession:
        opened = self._opener(self._directory, thread=thread)
        joined = in_session_of_host(opened, self._name, before=self._session.get(thread))
        self._session[thread] = joined.workspace.actor.session
        return joined

    def _note(self, opened: ToolSession) -> None:
        """Note what is held for the hooks of the host, if it has changed."""
        # Copies: calls in other threads claim meanwhile.
        every = {x: y for some in list(self._grants.values()) for x, y in dict(some).items()}
        held = held_by(opened.workspace, every)
        if held != self._noted:
            self._noted = held
            note_tool_server(opened.workspace, held, told=opened.told)

    @contextlib.contextmanager
    def _counted(self, woken: threading.Event) -> Iterator[None]:
        with self._idle:
            if self._closing:
                raise Unavailable("this server is being stopped")
            self._calls += 1
            self._waits.add(woken)
        try:
            yield
        finally:
            with self._idle:
                self._calls -= 1
                self._waits.discard(woken)
                self._idle.notify_all()

    def tend(self) -> None:
        """Renew what is due of the leases claimed here, where no hooks of the agent do it.

        They are let go once no tool has been called for ``mcp.keep``.
        """
        for thread, grants in list(self._grants.items()):
            if not grants:
                continue
            opened = self._open(thread)
            tended, workspace = self._not_hooked(opened, thread), opened.workspace
            if not tended:
                continue
            now, last = workspace.ledger.clock.now(), self._last_call or Instant(0, 0, "")
            if last.elapsed_at_most(now) > workspace.settings.mcp_keep * MS:
                keep = format_duration(workspace.settings.mcp_keep)
                for space, some in _by_layer(workspace, tended):
                    ended = run_out(at_the_end(space, some), some).leases
                    for lease_id in some:
                        grants.pop(lease_id, None)
                    workspace.inbox.leave(
                        [f"{x.resource}: let go, no tool was called for {keep}" for x in ended]
                    )
            elif now.boot_ms >= self._next_try:
                for space, some in _by_layer(workspace, tended):
                    self._renew_due(space, some, now)

    def _not_hooked(self, opened: ToolSession, thread: str) -> dict[str, LeaseView]:
        """The leases that this server has to renew and to end, not the hooks of its host."""
        grants = dict(self._grants.get(thread, {}))
        sessions = {view.session for view in grants.values()}
        hooked = {x for x in sessions if is_left_to_hooks(opened, x, thread=thread)}
        return {x: view for x, view in grants.items() if view.session not in hooked}

    def _renew_due(
        self, workspace: Workspace, tended: Mapping[str, LeaseView], now: Instant
    ) -> None:
        view = workspace.ledger.known_look()
        held = [
            x
            for x in (view.leases if view is not None else ())
            if x.lease_id in tended and x.session == tended[x.lease_id].session
            if not x.parked and x.expires_at > now.wall_ms
        ]
        if any(x.renew_at <= now.wall_ms for x in held):
            # One that changes nothing is not tried again at each look.
            self._next_try = now.boot_ms + retry_interval(held) * MS
            workspace.inbox.leave(renew_known(workspace.ledger, held))

    def tend_until_closed(self) -> None:
        """Tend to the leases from time to time, until the server is closed."""
        while not self._closing:
            try:
                self.tend()
            except Exception as error:
                # It is tried again in a moment.
                logging.getLogger("gitlease").warning("leases were not renewed: %s", error)
            with self._idle:
                self._idle.wait_for(lambda: self._closing, TEND_EVERY)

    def close(self) -> None:
        """Refuse new calls, end waits, and let the leases claimed here expire now.

        Tasks stay assigned. What the hooks of a live conversation will end stays. A failure is only
        logged.
        """
        with self._idle:
            if self._closing:
                return
            self._closing = True
            self._idle.notify_all()
            for woken in self._waits:
                woken.set()
            # A call under way may still claim: that has to be let go, too.
            self._idle.wait_for(lambda: not self._calls, PATIENCE)
        for thread, grants in self._grants.items():
            renewed = self._renewed.get(thread, set())
            if not grants and not renewed:
                continue
            try:
                opened = self._open(thread)
                tended, workspace = self._not_hooked(opened, thread), opened.workspace
                if is_left_to_hooks(opened, workspace.actor.session, thread=thread):
                    renewed = set()
                if tended or renewed:
                    for space, some in _by_layer(workspace, tended):
                        run_out(at_the_end(space, {*some, *renewed}), some, renewed)
                note_tool_server(workspace, {}, told=opened.told)
            except Exception as error:
                # The other threads' leases must still be handled.
                logging.getLogger("gitlease").warning("leases will expire by themselves: %s", error)


def serve(directory: str | None = None) -> int:
    """Serve until the input ends or a signal comes; the exit status."""
    backend = CloneBackend(directory)
    threading.Thread(target=backend.tend_until_closed, daemon=True).start()
    anyio.run(_serve, backend)
    return 0


async def _serve(backend: CloneBackend) -> None:
    server = LeaseServer(backend).mcp
    try:
        async with anyio.create_task_group() as group:
            # Before anything is served: the SDK ends on the end of input, and not on a signal.
            await group.start(_end_by_signal, backend)
            async with stdio_server() as (read, write):
                send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()
                done, answers = anyio.create_memory_object_stream[SessionMessage]()
                asked: Asked = {}
                group.start_soon(_pass_on, read, write.send, send, asked)
                group.start_soon(_answer, answers, write, asked)
                await server.run(receive, done, server.create_initialization_options())
            group.cancel_scope.cancel()
    # A client that stops reading has left: what it claimed is let go below.
    except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        logging.getLogger("gitlease").info("the client no longer reads")
        # For output not written yet, whose loss must not become a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        backend.close()


async def _pass_on(
    read: AsyncIterable[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
    send: MemoryObjectSendStream[SessionMessage | Exception],
    asked: Asked,
) -> None:
    async with send:
        async for item in read:
            # The SDK drops a line that is no message, and its client would wait for ever.
            if isinstance(item, Exception):
                error = types.ErrorData(code=types.INVALID_REQUEST, message=UNREADABLE)
                refused = types.JSONRPCError(jsonrpc="2.0", id=_id_of(item), error=error)
                await answer(SessionMessage(refused))
                continue
            message, params = item.message, getattr(item.message, "params", None) or {}
            if isinstance(message, types.JSONRPCRequest) and message.method != LISTEN:
                if params.get("name") != "wait":
                    asked[message.id] = anyio.Event()
            # What is cancelled is not answered.
            elif isinstance(cancelled := params.get("requestId"), str | int):
                asked.pop(cancelled, None)
            await send.send(item)
        # At the end of its input the SDK, too, drops the answers of what is under way.
        with anyio.move_on_after(PATIENCE):
            for answered in list(asked.values()):
                await answered.wait()


async def _answer(made: AsyncIterable[SessionMessage], write: Any, asked: Asked) -> None:
    async with write:
        async for item in made:
            await write.send(item)
            if answered := asked.pop(getattr(item.message, "id", None), None):
                answered.set()


def _id_of(unreadable: Exception) -> str | int | None:
    """The id of a line that Python's JSON can read, and the SDK's cannot (a lone surrogate)."""
    try:
        problems = unreadable.errors()  # type: ignore[attr-defined]
        id = json.loads(problems[0]["input"])["id"]
        json.dumps(id, ensure_ascii=False).encode()
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return id if isinstance(id, str | int) else None


async def _end_by_signal(backend: CloneBackend, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(*SIGNALS) as received:
        task_status.started()
        async for number in received:
            await anyio.to_thread.run_sync(backend.close)
            # A thread that reads standard input would keep the process alive.
            os._exit(128 + number)


SECONDS = 30.0  # hosts give a server ten or more to start; a busy machine takes longer


def probe(command: Sequence[str], folder: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the tools of a server, which is started in a folder and stopped again.

    It gets the few variables that hosts pass on, and ``env``. Raises Unavailable, with the last
    line of its standard error, if it does not answer.
    """
    return anyio.run(_probe, command, folder, env)


async def _probe(command: Sequence[str], folder: str, env: Mapping[str, str]) -> tuple[str, ...]:
    started = StdioServerParameters(
        command=command[0], args=list(command[1:]), cwd=folder, env=dict(env)
    )
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        why = f"it did not answer within {SECONDS:g}s"
        try:
            with anyio.fail_after(SECONDS):
                async with Client(stdio_client(started, errlog=stderr)) as client:
                    return tuple(tool.name for tool in (await client.list_tools()).tools)
        except TimeoutError:
            pass
        except Exception as error:
            # Of whatever went wrong in the SDK's own tasks.
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            why = f"{error}"
        with contextlib.suppress(OSError):
            stderr.seek(0)
            why = next(reversed([x for x in stderr.read().splitlines() if x.strip()]), why)
    raise Unavailable(f"{' '.join(command)} does not answer: {clean(why)[:200]}")
