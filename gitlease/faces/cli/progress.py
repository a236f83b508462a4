"""Tells a person what takes longer than a second: a line for each thing, none for programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gitlease.engine.ports import at_present
from gitlease.faces.cli import output

TICK = 1.0  # seconds


@contextmanager
def told() -> Iterator[None]:
    """Tell what takes long while the block runs."""
    over = threading.Event()
    ticker = threading.Thread(target=tell, args=(over.wait, output.aside), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()


def tell(is_over: Callable[[float], bool], say: Callable[[str, str], None]) -> None:
    """Say what is being done whenever that has lasted, until it is over; nothing twice in a row."""
    last, said = None, None
    while not is_over(TICK):
        now = at_present()
        if now is not None and now == last != said:
            say(f"{now} …", output.DIM)
            said = now
        last = now
