"""The callers of tools: a person with a clone, or the holder of a token at a gateway."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from gitlease.core.errors import GitleaseError, LeaseHeld, LeaseLost
from gitlease.core.frozen import replace
from gitlease.core.lease import holder_has
from gitlease.core.loss import explained
from gitlease.core.resources.pattern import fold
from gitlease.core.resources.resource import Resource
from gitlease.engine.answers import Answer, joined
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.queue import TaskQueue
from gitlease.engine.stepping import in_every
from gitlease.engine.watch import Watcher
from gitlease.verbs.table import Act, Door
from gitlease.wiring.words import check_claim, dead_hooks, path_here, resource_here

if TYPE_CHECKING:
    from gitlease.core.view import LeaseView
    from gitlease.gateway.follower import Follower
    from gitlease.gateway.gateway import Gateway
    from gitlease.wiring.workspace import Workspace

TURN = "x-codex-turn-metadata"  # sent by Codex with each call

LOOK = 0.5  # seconds between two checks that a listener is still there
Check = Callable[[], None]

LedgerPart = tuple[LedgerSession, list[Resource]]


class ToolCaller(Door, Protocol):
    """A person, in one session, as the tools see them."""

    @property
    def alone(self) -> bool:
        """Whether nobody else may call as the same person and session."""

    def own(self, view: LeaseView) -> LeaseView:
        """The lease as the caller's, if it is."""

    def explained(self, lost: LeaseLost) -> LeaseLost:
        """The refusal with the reason of the loss, if known."""

    def follow(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once it has begun, and then at every change of leases.

        Raises InterruptedError at its end, and what reading the ledger raises.
        """


class Backend(Protocol):
    """The leases that a server serves: those of a clone, or those behind a gateway."""

    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, *, writes: bool
    ) -> AbstractContextManager[ToolCaller]:
        """The caller of a request, for the duration of the call; ``woken`` ends its waits.

        Raises Denied without the access needed, and what opening a clone may raise.
        """

    def words(self, text: str) -> str:
        """A message as the clients of this server may read it."""

    def sender(self, request: Any) -> Hashable:
        """Identifies the client of a request, as far as possible."""

    def waiting(self, request: Any) -> AbstractContextManager[None]:
        """Count the block as a wait. Raises Unavailable if there are too many."""

    def listening(self, request: Any) -> AbstractContextManager[None]:
        """Count the block as a listener. Raises Unavailable if there are too many."""


def thread_of(meta: Mapping[str, Any]) -> str:
    """The id of the calling Codex thread, else an empty string."""
    data = meta.get(TURN)
    try:
        turn = json.loads(data) if isinstance(data, str) else data
    except (ValueError, RecursionError):
        return ""
    thread = turn.get("thread_id") if isinstance(turn, Mapping) else None
    return thread if isinstance(thread, str) else ""


def held_by(workspace: Workspace, grants: Mapping[str, LeaseView]) -> dict[str, str]:
    """The sessions of those of some leases that are live, as far as this clone knows, by id."""
    look = None
    with contextlib.suppress(GitleaseError):  # damaged: whatever needs it fetches it again
        look = workspace.ledger.known_look() if grants else None
    if look is None:
        return {}
    known = {x.lease_id: x.session for x in look.leases if holder_has(x, look.moment)}
    named = {x: one.session for x, one in dict(grants).items() if one.session is not None}
    return {x: session for x, session in named.items() if session == known.get(x)}


class CloneCaller(ToolCaller):
    """A person with a clone: paths are those of its work tree, and claims edit its task files.

    ``grants`` collects the leases claimed here, by id, in their latest state, and ``renewed`` the
    ids of other leases that were renewed here. What was claimed before the host went on to another
    conversation stays the caller's, in the session that has it.
    """

    def __init__(
        self, workspace: Workspace, grants: dict[str, LeaseView], renewed: set[str]
    ) -> None:
        self._workspace, self._grants, self._renewed = workspace, grants, renewed
        held = held_by(workspace, grants)
        self._earlier = {x: name for x, name in held.items() if name != workspace.actor.session}
        self._before = workspace.ledger.unread_notices()  # a refused renewal marks them as told

    @property
    def ledger(self) -> LedgerSession:
        return self._workspace.ledger

    @property
    def queue(self) -> TaskQueue:
        return self._workspace.queue

    def resources(self, words: Iterable[str], *, claiming: bool = False) -> list[Resource]:
        return [resource_here(self._workspace, word) for word in words]

    def paths(self, words: Iterable[str]) -> list[Resource]:
        return [path_here(self._workspace.repository, word) for word in words]

    def check_claim(
        self, wanted: Sequence[Resource], covered: Sequence[Resource], *, any_name: bool
    ) -> Sequence[str]:
        return check_claim(self._workspace, wanted, covered, any_name=any_name)

    def every_ledger(self) -> Sequence[LedgerSession]:
        spaces = [self._in(x) for x in (None, *sorted({*self._earlier.values()}))]
        return [x.ledger for space in spaces for x in space.in_use]

    def act(
        self,
        verb: str,
        resources: Sequence[Resource],
        act: Act,
        *,
        scope: str | None = None,
        ttl: int | None = None,
    ) -> Answer:
        parts = self._by_ledger(resources)
        if verb == "claim":
            return self._claim(resources, act)
        if len(parts) <= 1:
            answer = act(parts[0][0] if parts else self.ledger, resources)
        elif verb == "renew":
            named = {id(ledger): some for ledger, some in parts}
            ledgers = [ledger for ledger, _ in parts]
            answer = in_every(ledgers, "renewed", lambda one: act(one, named[id(one)]))
        else:
            answer = reduce(joined, (act(ledger, some) for ledger, some in parts))
        if verb in ("renew", "extend"):
            self._note_granted(answer)
        return answer

    def _by_ledger(self, resources: Sequence[Resource]) -> Sequence[LedgerPart]:
        names = {fold(self._grants[x].resource): name for x, name in self._earlier.items()}
        parts: dict[str | None, list[Resource]] = {}
        for resource in resources:
            parts.setdefault(names.get(fold(resource.text)), []).append(resource)
        return [(self._in(name).ledger, some) for name, some in parts.items()]

    def _in(self, session: str | None) -> Workspace:
        """The workspace in an earlier session; None: the present one."""
        return self._workspace if session is None else self._workspace.again(run=session)

    @property
    def alone(self) -> bool:
        return True

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

    def explained(self, lost: LeaseLost) -> LeaseLost:
        return explained(lost, (*self._before, *self.ledger.unread_notices()))

    def granted(self, answer: Answer) -> Sequence[str]:
        self._note_granted(answer)
        return dead_hooks(self._workspace) if answer.leases else ()

    def _note_granted(self, answer: Answer) -> None:
        for view in answer.leases:
            if not view.renewals or view.lease_id in self._grants:
                self._grants[view.lease_id] = view
            elif view.session is not None:
                self._renewed.add(view.lease_id)

    def follow(self, tell: Callable[[], None]) -> None:
        for _ in Watcher(self.ledger, on_begin=lambda _head: tell()).events():
            tell()


class GatewayCaller(ToolCaller):
    """The holder of a token: paths start at the root, and no task file is written."""

    def __init__(
        self, gateway: Gateway, session: LedgerSession, follower: Follower, check: Check
    ) -> None:
        """``check`` raises once the caller is gone, or may not go on."""
        self._gateway, self._session = gateway, session
        self._follower, self._check = follower, check

    @property
    def ledger(self) -> LedgerSession:
        return self._session

    @property
    def queue(self) -> TaskQueue:
        return TaskQueue(self._session)

    def act(
        self,
        verb: str,
        resources: Sequence[Resource],
        act: Act,
        *,
        scope: str | None = None,
        ttl: int | None = None,
    ) -> Answer:
        if verb == "renew":
            return self._gateway.renew(self.ledger, resources, scope=scope, ttl=ttl)
        return act(self.ledger, resources)

    @property
    def alone(self) -> bool:
        return self.ledger.actor.session is not None

    def own(self, view: LeaseView) -> LeaseView:
        return view

    def explained(self, lost: LeaseLost) -> LeaseLost:
        return lost

    def follow(self, tell: Callable[[], None]) -> None:
        events = queue.SimpleQueue[object]()
        leave = self._follower.listen(events.put)
        try:
            tell()
            while True:
                self._check()
                with contextlib.suppress(queue.Empty):
                    events.get(timeout=LOOK)
                    tell()
        finally:
            leave()
