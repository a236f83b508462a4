"""Who calls a tool: someone at a clone, or the holder of a token at a gateway."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from gitlease.core.errors import LeaseLost
from gitlease.core.frozen import replace
from gitlease.core.loss import explained
from gitlease.core.resources.resource import Resource, parse_resource, path_resource
from gitlease.engine import hold
from gitlease.engine.answers import Answer, ClaimOptions
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.queue.queueing import TaskQueue
from gitlease.engine.waiting.watching import Watcher
from gitlease.wiring.words import check_claim, path_here, resource_here

if TYPE_CHECKING:
    from gitlease.core.view import LeaseView
    from gitlease.gateway.follower import Follower
    from gitlease.gateway.gateway import Gateway
    from gitlease.wiring.workspace import Workspace

TURN = "x-codex-turn-metadata"  # what Codex says of itself with each call

LOOK = 0.5  # seconds between two looks whether a listener is still there
Check = Callable[[], None]

ClaimPlan = tuple[tuple[Resource, ...], ClaimOptions, tuple[str, ...]]
"""What is to be claimed, how, and what there is to say of it."""


class ToolCaller(Protocol):
    """One person, or one run of theirs, as the tools see them."""

    @property
    def ledger(self) -> LedgerSession: ...
    @property
    def queue(self) -> TaskQueue: ...

    def resource(self, word: str) -> Resource:
        """The resource that a word means here. UsageError for a bad one."""

    def plan(self, words: Sequence[str], paths: Sequence[str], options: ClaimOptions) -> ClaimPlan:
        """What words and paths to cover mean in a claim. UsageError for what may not be claimed."""

    def renew(self, resources: Sequence[Resource], *, scope: str | None, ttl: int | None) -> Answer:
        """Renew these leases; without resources all that the caller's session holds."""

    def explained(self, lost: LeaseLost) -> LeaseLost:
        """The same refusal, with why it was lost where that is known."""

    def granted(self, answer: Answer) -> None:
        """Take note of what was claimed, or renewed."""

    def follow(self, tell: Callable[[], None]) -> None:
        """Tell when it has begun, and with every change of leases from then on.

        It ends by an InterruptedError, and by what keeps it from looking.
        """


class Backend(Protocol):
    """Whose leases a server serves: those of a clone, or those behind a gateway."""

    def caller(
        self, meta: Mapping[str, Any], request: Any, woken: threading.Event, *, writes: bool
    ) -> AbstractContextManager[ToolCaller]:
        """Who calls, by what came along, while the call lasts. A wait ends once ``woken`` is set.

        Raises Denied where the caller may not do this, and what opening a clone may.
        """

    def sender(self, request: Any) -> Hashable:
        """Whom requests come from, as far as one can be told from another."""

    def waiting(self, request: Any) -> AbstractContextManager[None]:
        """Be among those who wait, while the block lasts. Unavailable where too many do."""

    def listening(self, request: Any) -> AbstractContextManager[None]:
        """Be among those who listen, while the block lasts. Unavailable where too many do."""


def thread_of(meta: Mapping[str, Any]) -> str:
    """The number of the Codex thread that calls, where it says so; else nothing."""
    said = meta.get(TURN)
    try:
        turn = json.loads(said) if isinstance(said, str) else said
    except (ValueError, RecursionError):
        return ""
    thread = turn.get("thread_id") if isinstance(turn, Mapping) else None
    return thread if isinstance(thread, str) else ""


class CloneCaller:
    """Whoever has a clone: paths are those of its work tree, and claims are written to its tasks.

    ``grants`` gets the leases that are new, by their ids, as they were left.
    """

    def __init__(self, workspace: Workspace, grants: dict[str, LeaseView]) -> None:
        self._workspace, self._grants = workspace, grants
        self._before = workspace.ledger.untold()  # a renewal that is refused takes note of them

    @property
    def ledger(self) -> LedgerSession:
        return self._workspace.ledger

    @property
    def queue(self) -> TaskQueue:
        return self._workspace.queue

    def resource(self, word: str) -> Resource:
        return resource_here(self._workspace, word)

    def plan(self, words: Sequence[str], paths: Sequence[str], options: ClaimOptions) -> ClaimPlan:
        covered = [path_here(self._workspace.repository, path) for path in paths]
        wanted = tuple(self.resource(word) for word in words)
        said = check_claim(self._workspace, wanted, covered, any_name=options.any_name)
        return wanted, _covering(options, covered), said

    def renew(self, resources: Sequence[Resource], *, scope: str | None, ttl: int | None) -> Answer:
        if not resources:
            return hold.renew_all([x.ledger for x in self._workspace.in_use], ttl=ttl)
        return hold.renew(self.ledger, resources, scope=scope, ttl=ttl)

    def explained(self, lost: LeaseLost) -> LeaseLost:
        return explained(lost, (*self._before, *self.ledger.untold()))

    def granted(self, answer: Answer) -> None:
        for view in answer.leases:
            if not view.renewals or view.lease_id in self._grants:
                self._grants[view.lease_id] = view

    def follow(self, tell: Callable[[], None]) -> None:
        for _ in Watcher(self.ledger, on_begin=lambda _head: tell()).events():
            tell()


class GatewayCaller:
    """The holder of a token: paths count from the root, and no task file is written."""

    def __init__(
        self, gateway: Gateway, session: LedgerSession, follower: Follower, check: Check
    ) -> None:
        """``check`` raises where the caller is gone, or may not go on."""
        self._gateway, self.ledger, self._follower, self._check = gateway, session, follower, check
        self.queue = TaskQueue(session)

    def resource(self, word: str) -> Resource:
        return parse_resource(word)

    def plan(self, words: Sequence[str], paths: Sequence[str], options: ClaimOptions) -> ClaimPlan:
        covered = [path_resource(path) for path in paths]
        options = replace(_covering(options, covered), commit=False)
        return tuple(map(self.resource, words)), options, ()

    def renew(self, resources: Sequence[Resource], *, scope: str | None, ttl: int | None) -> Answer:
        if not resources:
            return hold.renew_all([self.ledger], ttl=ttl)
        return self._gateway.renew(self.ledger, resources, scope=scope, ttl=ttl)

    def explained(self, lost: LeaseLost) -> LeaseLost:
        return lost

    def granted(self, answer: Answer) -> None:
        """It is the gateway's clients that end; it stays."""

    def follow(self, tell: Callable[[], None]) -> None:
        heard = queue.SimpleQueue[object]()
        leave = self._follower.listen(heard.put)
        try:
            tell()
            while True:
                self._check()
                with contextlib.suppress(queue.Empty):
                    heard.get(timeout=LOOK)
                    tell()
        finally:
            leave()


def _covering(options: ClaimOptions, covered: Sequence[Resource]) -> ClaimOptions:
    return replace(options, paths=tuple(x.pattern for x in covered if x.pattern is not None))
