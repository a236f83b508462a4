"""Kills of a process at a chosen step of what it does, with nothing done after that."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any


def armed(number: int, steps: Sequence[tuple[Any, str]]) -> None:
    """Kill this process at the given step, counting both ends of all of them.

    ``steps`` are functions, each by the module or class that has it, and its name there.
    """
    left = [number]

    def reached() -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            reached()
            result = function(*args, **more)
            reached()
            return result

        return wrapped

    for place, name in steps:
        if hasattr(place, name):
            setattr(place, name, wrap(getattr(place, name)))


def in_child(act: Callable[[], object]) -> bool:
    """Run it in a process of its own; whether that was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    ended = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(ended):
        assert os.WTERMSIG(ended) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(ended) == 0
    return False
