"""The leases of a block of the library: renewed while it lasts, released at its end."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable

from gitlease.core.errors import GitleaseError, LeaseLost, UsageError
from gitlease.core.loss import Lost
from gitlease.core.moves.operations import Grant
from gitlease.core.resources.resource import Resource
from gitlease.engine import acts
from gitlease.engine.answers import Answer
from gitlease.engine.keeping import holds_of
from gitlease.engine.sessions import unbind
from gitlease.runs.heartbeat import at_the_end, heartbeat_of
from gitlease.runs.records import forget, remember
from gitlease.wiring.workspace import Workspace


class HeldLeases:
    """The leases of one block. ``lost`` is set at the first loss, ``on_loss`` called for each.

    They belong to the process that claimed them: in a forked child the block's end releases
    nothing. ``sharp``: a loss is reported once this clone knows of it, not at the next renewal.
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
        self._remembered: Answer | None = None  # the claim that this clone knows as a run's
        self._losses: list[Lost] = []
        self.ids: set[str] = set()

    @property
    def is_here(self) -> bool:
        """Whether this process claimed them."""
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
        new = {view.lease_id for view in answer.leases if not view.renewals}
        grants = {hold.grant.lease_id: hold.grant for hold in holds}
        self._granted |= {x: grant.resource for x, grant in grants.items() if x in new}
        if self._sharp and self._remembered is None:
            self._remembered = answer
            remember(self._workspace, answer, present=bool(answer.bound))
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
        lost = {one.hold.grant.lease_id for one in self._losses}
        ours = {x: resource for x, resource in self._granted.items() if x not in lost}
        bound = [grant for x, grant in self._bound.items() if x not in lost]
        try:
            ledger = at_the_end(self._workspace, {*ours, *self._bound})
            if bound:
                unbind(ledger, bound)
            if ours:
                acts.release(ledger, [*ours.values()], scope=scope, note=note, commit=commit)
            if self._remembered is not None:
                forget(self._workspace, self._remembered)
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
