"""What runs need of an opened repository. The workspace of ``wiring`` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from gitlease.core.lease import Actor
from gitlease.engine.ledger_session import LedgerSession
from gitlease.engine.queue.queueing import TaskQueue
from gitlease.git.repository import Repository


class RunPlace(Protocol):
    """One person in one repository, with the session of one ledger.

    ``again`` opens the same place with another session or other time limits. ``note_run`` and
    ``forget_run`` show other sessions of a work tree what runs in it; they never fail.
    """

    @property
    def repository(self) -> Repository: ...
    @property
    def actor(self) -> Actor: ...
    @property
    def layer(self) -> str: ...
    @property
    def ledger(self) -> LedgerSession: ...
    @property
    def queue(self) -> TaskQueue: ...
    @property
    def again(self) -> Callable[..., Self]: ...
    def main_branch(self) -> str | None: ...
    def learn_main_branch(self) -> str | None: ...
    def note_run(self, run_id: str) -> None: ...
    def forget_run(self, run_id: str) -> None: ...
