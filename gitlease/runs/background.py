"""Forks a part of this process into the background, in a session of its own, with a log.

The fork has all the state of this process, so that leases are held without a gap. It must be made
before this process has threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable

from gitlease.git.files import share
from gitlease.runs.child import on_parent_death

LONGEST_WORD = 65_536
FAULT = 70


def go_on_alone(
    log: str, work: Callable[[Callable[[bytes], None]], int], *, with_parent: bool = False
) -> bytes:
    """Run ``work`` in a process of its own, and return the first word that it reports.

    ``work`` gets the function to report it with; ``b""`` if it ended without. Its standard input is
    empty, and what it and its commands print is added to ``log``. ``with_parent``: it gets TERM
    when this process dies, if the system can do that. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    opened = os.open(log, flags, 0o600)
    share(log, opened)
    receive, send = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()  # what is not written yet would be written twice
    die_with_us, parent = on_parent_death(signal.SIGTERM), os.getpid()
    pid = os.fork()
    if pid == 0:
        if with_parent:
            die_with_us()
            if os.getppid() != parent:
                os._exit(FAULT)  # it is dead already
        _alone(opened, receive, send, work)
    os.close(opened)
    os.close(send)
    word = b""
    with open(receive, "rb") as answers:
        while len(word) < LONGEST_WORD and not word.endswith(b"\n"):
            more = answers.read1(LONGEST_WORD)
            if not more:
                break
            word += more
    return word.rstrip(b"\n")


def _alone(
    log: int, receive: int, send: int, work: Callable[[Callable[[bytes], None]], int]
) -> None:
    # In the fork: it never returns.
    status = FAULT
    try:
        os.close(receive)
        os.setsid()
        with contextlib.suppress(OSError):
            _close_inherited({log, send})
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, handle in ((0, nothing), (1, log), (2, log)):
            os.dup2(handle, number)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_DFL)

        def report(word: bytes) -> None:
            with contextlib.suppress(BrokenPipeError):  # the process that started it was killed
                os.write(send, word.replace(b"\n", b" ") + b"\n")
            os.close(send)

        status = work(report)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _close_inherited(kept: set[int]) -> None:
    # Close what this process was started with: nobody should wait for this one to close it. What
    # was opened since is not inherited by commands, and may be in use.
    for name in os.listdir("/dev/fd"):
        number = int(name)
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                if os.get_inheritable(number):
                    os.close(number)
