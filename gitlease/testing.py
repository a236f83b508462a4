"""For your own tests: a ledger in memory, with all the rules of a real one, and a clock to move.

    from gitlease.testing import MemoryLedger

    with MemoryLedger() as ledger:
        ada, bob = ledger.open("ada@example.com"), ledger.open("bob@example.com")
        ada.claim("F001")
        ledger.advance(minutes=17)
        assert bob.claim("F001").token == 2

With ``pytest_plugins = ["gitlease.testing"]`` in a conftest.py pytest has it as the fixture
``gitlease_ledger``. It runs no git, and reads none of the user's settings.

PYTEST_DONT_REWRITE: it asserts nothing, and may have been imported before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from tempfile import TemporaryDirectory
from typing import Any, Self

from gitlease.kernel.rules.errors import GitleaseError, UsageError
from gitlease.kernel.rules.instant import moment_of, utc_text
from gitlease.library.leases import Leases, OnLost, Session
from gitlease.library.methods import StrPath, check_listener, refusing_class, to_folder
from gitlease.wiring.memory import MemoryStorage, MovableClock, memory_store, memory_workspace
from gitlease.wiring.workspace import Workspace

__all__ = ["MemoryLedger"]


@refusing_class
class MemoryLedger:
    """A ledger in memory, shared by several people; it ends with its ``with`` block.

    ``push``, ``run`` and ``work`` need a real repository. A wait in the thread that created the
    ledger moves the clock at once; in another thread it lasts until the test moves the clock.
    Leases held in the background are renewed whenever that is due, before ``advance`` returns.
    """

    def __init__(self) -> None:
        self._clock, self._storage = MovableClock(), MemoryStorage()
        self._folder = TemporaryDirectory(prefix="gitlease-", ignore_cleanup_errors=True)
        self._store = memory_store(self._storage, f"{self._folder.name}/:state", self._clock)

    def __repr__(self) -> str:
        return f"<MemoryLedger at {utc_text(self.now)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._folder.cleanup()

    @property
    def now(self) -> datetime:
        """The clock's time, as an aware UTC datetime."""
        return moment_of(self._clock.now().wall_ms)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass. UsageError for a negative duration."""
        passed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._clock.advance(passed.total_seconds())

    @property
    def failing(self) -> GitleaseError | None:
        """The error of every contact with the remote, such as ``gitlease.Unavailable("…")``."""
        return self._storage.failing

    @failing.setter
    def failing(self, error: GitleaseError | None) -> None:
        if error is not None and not isinstance(error, GitleaseError):
            raise UsageError('failing is an error like gitlease.Unavailable("away"), or None')
        self._storage.failing = error

    def open(
        self,
        holder: str,
        *,
        session: str | None = None,
        layer: str | None = None,
        directory: StrPath | None = None,
    ) -> Leases:
        """The leases of this person; ``directory`` is a repository with task files."""
        place = None if directory is None else to_folder(directory)
        return Leases(self._opened(holder, place, session=session, layer=layer), layer=layer)

    def session(
        self, holder: str, name: str | None = None, *, on_lost: OnLost | None = None
    ) -> Session:
        """A session of this person, as from ``gitlease.session``."""
        check_listener(on_lost)
        return Session(self._opened(holder, session=name), on_lost=on_lost)

    @contextlib.contextmanager
    def stand_in(self, holder: str) -> Iterator[Self]:
        """Make ``gitlease.open``, ``hold`` and ``session`` open this ledger, for code under test.

        They ignore the folder, remote and environment that they are given.
        """
        from unittest.mock import patch

        def opened(
            directory: str = ".",
            *,
            remote: object = None,
            local: object = False,
            anonymous: bool = False,
            **given: Any,
        ) -> Any:
            return self._opened(holder, **given | {"environ": given.get("environ") or {}})

        place = "gitlease.library"
        with (
            patch(f"{place}.opening.open_workspace", opened),
            patch(f"{place}.holding.open_workspace", opened),
        ):
            yield self

    def _opened(
        self,
        holder: str,
        directory: str | None = None,
        *,
        session: str | None = None,
        layer: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Workspace:
        return memory_workspace(
            self._store,
            holder=holder,
            private=f"{self._folder.name}/{holder.replace('/', '_')}",
            clock=self._clock,
            directory=directory,
            session=session,
            layer=layer,
            environ=environ or {},
        )


with contextlib.suppress(ModuleNotFoundError):
    import pytest

    @pytest.fixture
    def gitlease_ledger() -> Iterator[MemoryLedger]:
        """A ledger in memory for this test: see ``gitlease.testing``."""
        with MemoryLedger() as ledger:
            yield ledger
