"""Progress lines on a terminal, for steps that take longer than a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gitlease.engine.ports import at_present
from gitlease.faces.cli import output

TICK = 1.0  # seconds


@contextmanager
def shown() -> Iterator[None]:
    """Report slow steps while the block runs."""
    over = threading.Event()
    ticker = threading.Thread(target=report, args=(over.wait, output.aside), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()


def report(is_over: Callable[[float], bool], say: Callable[[str, str], None]) -> None:
    """Print each step that lasts longer than a tick, once, until ``is_over``."""
    last, said = None, None
    while not is_over(TICK):
        now = at_present()
        if now is not None and now == last != said:
            say(f"{now} …", output.DIM)
            said = now
        last = now
