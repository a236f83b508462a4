"""``gitlease.session``: a run that renews what it claims, and releases everything at its end."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType

from gitlease.answers import Answer
from gitlease.bootstrap import Workspace, open_workspace
from gitlease.bootstrap_holding import at_the_end, heartbeat_of, in_a_run
from gitlease.domain.errors import GitleaseError, LeaseLost, UsageError
from gitlease.domain.loss import Lost
from gitlease.domain.resource import Resource
from gitlease.faces.library import Leases
from gitlease.faces.opened import Said, check_listener
from gitlease.keeping import holds_of


def session(
    name: str | None = None,
    *,
    directory: str = ".",
    layer: str | None = None,
    local: bool = False,
    remote: str | None = None,
    on_lost: Callable[[Session, LeaseLost], object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Session:
    """A run with a name of its own: what it claims is renewed until its ``with`` block ends.

        with gitlease.session("build-7") as s:
            s.claim("F001")
            s.check()

    At the end everything that was claimed here is released, in one push; what the session held
    before stays. Without a ``name`` (here, or in ``GITLEASE_SESSION``) it gets a random one.
    ``on_lost`` is called in a thread of its own with each lease that is lost.
    """
    check_listener(on_lost)
    opened = open_workspace(
        directory, session=name, layer=layer, local=local, remote=remote, environ=environ
    )
    return Session(opened, on_lost=on_lost)


class Session(Leases):
    """The verbs of ``Leases``, for one run that lasts as long as a ``with`` block.

    ``lost`` is an event that is set once any lease of it is lost.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        on_lost: Callable[[Session, LeaseLost], object] | None = None,
    ) -> None:
        super().__init__(in_a_run(workspace, "session"))
        self.lost = threading.Event()
        self._on_lost, self._pid = on_lost, os.getpid()
        self._kept: set[str] = set()
        self._granted: dict[str, Resource] = {}
        self._losses: list[Lost] = []

    def check(self) -> None:
        """Return while everything that was claimed here is held. LeaseLost for the first lost."""
        if os.getpid() != self._pid:
            raise UsageError(
                f"this session is process {self._pid}'s: a forked child has no part in it"
            )
        heartbeat_of(self._workspace).look()
        if self._losses:
            raise self._losses[0].error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.getpid() != self._pid:
            return
        beat = heartbeat_of(self._workspace)
        beat.look()
        beat.drop(sorted(self._kept), self._lose)
        lost = {one.hold.grant.lease_id for one in self._losses}
        ours = {x: resource for x, resource in self._granted.items() if x not in lost}
        try:
            if ours:
                at_the_end(self._workspace, ours).release([*ours.values()])
        except GitleaseError as refusal:
            # The work is done, and leases end by themselves: no reason to fail what succeeded.
            message = f"gitlease: what session {self.session} has was not released, and ends by "
            message += f"itself: {refusal.message}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        if self._losses and error is None:
            raise self._losses[0].error

    def _heard(self, answer: Said) -> Said:
        """Keep what was claimed, and what has ended no more."""
        if isinstance(answer, Answer):
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
        return super()._heard(answer)

    def _lose(self, lost: Lost) -> None:
        self._losses.append(lost)
        self.lost.set()
        if self._on_lost is not None:
            words = (self, lost.error)
            threading.Thread(
                target=self._on_lost, args=words, name="gitlease on_lost", daemon=True
            ).start()
