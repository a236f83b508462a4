"""The processes of a run: adopting, outliving and signalling them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping

from gitlease.kernel.git.run import Process, prctl_of_linux, still_runs

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 2, 36  # of Linux


def below(root: int, every: Mapping[int, Process]) -> list[Process]:
    """The descendants of a process, the nearest first."""
    children: dict[int, list[Process]] = {}
    for process in every.values():
        children.setdefault(process.parent, []).append(process)
    found, parents = list[Process](), [root]
    while parents:
        generation = [x for parent in parents for x in children.pop(parent, ())]
        found += generation
        parents = [x.pid for x in generation]
    return found


def signal_process(process: Process, signum: int) -> None:
    """Send a signal to a process, as far as it may be sent one; never to a later one's number."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            if still_runs(process.pid, process.started):
                os.kill(process.pid, signum)
            return
        handle = os.pidfd_open(process.pid)
        try:
            # The handle stays with the process that had the number when it was opened.
            if still_runs(process.pid, process.started):
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def name_this_process(name: str) -> None:
    """Let lists of processes show a name, where that is to be had for a write."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def on_parent_death(signum: signal.Signals) -> Callable[[], object]:
    """A function for a child, by which it gets this signal when this process dies (on Linux).

    Only the child gets it, and nothing that it started. It goes by the thread that starts the
    child, the main one, which lives longest.
    """
    prctl = prctl_of_linux()
    if prctl is None:
        return lambda: None
    return lambda: prctl(PR_SET_PDEATHSIG, int(signum))


def outlive_parent() -> None:
    """Undo that this process is killed when its parent dies; another signal then stays."""
    if (prctl := prctl_of_linux()) is not None:
        import ctypes

        signum = ctypes.c_int(0)
        prctl(PR_GET_PDEATHSIG, ctypes.byref(signum))
        if signum.value == signal.SIGKILL:
            prctl(PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> bool:
    """Make this process the parent of all descendants that lose theirs; False if it cannot be."""
    prctl = prctl_of_linux()
    return prctl is not None and prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
