"""What a session of the library has claimed: renewed while it lasts, released at its end."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable

from gitlease.core.errors import GitleaseError, LeaseLost, UsageError
from gitlease.core.loss import Lost
from gitlease.core.resources.resource import Resource
from gitlease.engine import end
from gitlease.engine.answers import Answer
from gitlease.engine.keeping import holds_of
from gitlease.wiring.holding import at_the_end, heartbeat_of
from gitlease.wiring.workspace import Workspace


class KeptLeases:
    """The leases of one session. ``lost`` is set once any of them is lost."""

    def __init__(self, workspace: Workspace, on_lost: Callable[[LeaseLost], object] | None) -> None:
        self.lost = threading.Event()
        self._workspace, self._on_lost, self._pid = workspace, on_lost, os.getpid()
        self._kept: set[str] = set()
        self._granted: dict[str, Resource] = {}
        self._losses: list[Lost] = []

    def learn(self, answer: Answer) -> None:
        """Keep what was claimed, and what has ended no more."""
        beat, holds = heartbeat_of(self._workspace), holds_of(answer)
        live = {hold.grant.lease_id for hold in holds}
        ended = {view.lease_id for view in answer.leases} & self._kept - live
        beat.drop(sorted(ended | (live & self._kept)), self._lose)
        beat.keep(holds, self._lose)
        self._kept = (self._kept - ended) | live
        new = {view.lease_id for view in answer.leases if not view.renewals}
        for hold in holds:
            if hold.grant.lease_id in new:
                self._granted[hold.grant.lease_id] = hold.grant.resource
        for lease_id in ended:
            self._granted.pop(lease_id, None)

    def check(self) -> None:
        """Raises LeaseLost for the first lease that was lost."""
        if os.getpid() != self._pid:
            raise UsageError(
                f"this session is process {self._pid}'s: a forked child has no part in it"
            )
        heartbeat_of(self._workspace).look()
        if self._losses:
            raise self._losses[0].error

    def release(self, *, failed: bool) -> None:
        """Release what was granted here. Raises LeaseLost, unless the block has ``failed``."""
        if os.getpid() != self._pid:
            return
        beat = heartbeat_of(self._workspace)
        beat.look()
        beat.drop(sorted(self._kept), self._lose)
        lost = {one.hold.grant.lease_id for one in self._losses}
        ours = {x: resource for x, resource in self._granted.items() if x not in lost}
        try:
            if ours:
                end.release(at_the_end(self._workspace, ours), [*ours.values()])
        except GitleaseError as refusal:
            # The work is done, and leases end by themselves: no reason to fail what succeeded.
            session = self._workspace.identity.actor.session
            message = f"gitlease: what session {session} has was not released, and ends by "
            message += f"itself: {refusal.message}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        if self._losses and not failed:
            raise self._losses[0].error

    def _lose(self, lost: Lost) -> None:
        self._losses.append(lost)
        self.lost.set()
        if self._on_lost is not None:
            words = (lost.error,)
            threading.Thread(
                target=self._on_lost, args=words, name="gitlease on_lost", daemon=True
            ).start()
