"""The live table of a pool on a terminal: running jobs, below a line for each event."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from gitlease.core.duration import humanize_duration
from gitlease.core.errors import clean

if TYPE_CHECKING:
    from gitlease.runs.pool import Job

REFRESH = 0.5  # seconds between two drawings


class PoolTable:
    """A context manager; it draws only in ``show``, without a thread, because the pool forks."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(clean(text), markup=False)

    def show(self, running: Sequence[Job]) -> None:
        """Draw the running jobs."""
        if time.monotonic() - self._drawn < REFRESH:
            return
        self._drawn = time.monotonic()
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in ("TASK", "FOR", "SESSION", "LOG"):
            table.add_column(heading, no_wrap=True, overflow="ellipsis")
        for job in running:
            age = humanize_duration(int(time.monotonic() - job.began))
            cells = (job.name, age, job.record.session, job.record.log)
            table.add_row(*(Text(clean(cell)) for cell in cells))
        self._live.update(table, refresh=True)
