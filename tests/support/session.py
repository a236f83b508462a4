"""A session of a ledger without task files and inbox, where a test needs none."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gitlease.core import GLOBAL_LAYER, Actor, Resource, Task
from gitlease.engine import (
    PATIENCE,
    CarryOut,
    Clock,
    EdgeRules,
    Edges,
    Inbox,
    Intent,
    LedgerSession,
    LedgerStore,
    TaskChange,
    TaskList,
    Written,
)


class NoInbox:
    """Where no work is done in the background, nothing is left to be said."""

    def leave(self, texts: Sequence[str]) -> None:
        """Nobody would find them."""

    def take(self) -> tuple[str, ...]:
        return ()


class NoTaskFiles:
    """The task files of a repository that can have none: all names are just names."""

    def read(self, ref: str | None = None) -> TaskList:
        return TaskList()

    def places(self) -> Sequence[str]:
        return ()

    def elsewhere(self, here: TaskList) -> Sequence[tuple[str, TaskList]]:
        return ()

    def on_a_branch(self, resource: Resource) -> tuple[str, Task] | None:
        return None

    def assigned_since(self, task: Task, name: str, ref: str | None) -> int | None:
        return None

    def check(self, changes: Sequence[TaskChange], *, commit: bool) -> None:
        """Nothing can be changed, and nothing is asked to be."""

    def write(self, changes: Sequence[TaskChange], *, commit: bool) -> tuple[Written, ...]:
        return ()

    def intend(self, intent: Intent) -> None:
        """Nothing is ever written here."""

    def settled(self, intent: Intent) -> None:
        """Nothing was intended."""

    def leave(self, intent: Intent) -> None:
        """Nothing was intended."""

    def at(self, root: str) -> None:
        return None

    def left_behind(self) -> Sequence[Intent]:
        return ()


def ledger_session(
    store: LedgerStore,
    *,
    clock: Clock,
    actor: Actor,
    layer: str = GLOBAL_LAYER,
    edges: Edges | None = None,
    inbox: Inbox | None = None,
    default_ttl: int = 900,
    ttl_is_default: bool = True,
    patience: float = PATIENCE,
    dice: random.Random | None = None,
    carry: CarryOut | None = None,
) -> LedgerSession:
    """A session with what is usual for all that is not given."""
    return LedgerSession(
        store,
        clock=clock,
        actor=actor,
        layer=layer,
        edges=edges or Edges(NoTaskFiles(), EdgeRules(), holder=actor.holder),
        inbox=inbox or NoInbox(),
        default_ttl=default_ttl,
        ttl_is_default=ttl_is_default,
        patience=patience,
        dice=dice,
        carry=carry,
    )
