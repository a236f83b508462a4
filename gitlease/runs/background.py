"""A part of this process that goes on alone, in a session of its own, with a log for its streams.

It is a fork: it knows what this process knows, and what it holds is held without a gap. So it must
be made before this process has threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable

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
    heard, say = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()  # what is not written yet would be written twice
    die_with_us, parent = on_parent_death(signal.SIGTERM), os.getpid()
    pid = os.fork()
    if pid == 0:
        if with_parent:
            die_with_us()
            if os.getppid() != parent:
                os._exit(FAULT)  # it is dead already, and nothing has begun
        _alone(opened, heard, say, work)
    os.close(opened)
    os.close(say)
    word = b""
    with open(heard, "rb") as answers:
        while len(word) < LONGEST_WORD and not word.endswith(b"\n"):
            more = answers.read1(LONGEST_WORD)
            if not more:
                break
            word += more
    return word.rstrip(b"\n")


def _alone(log: int, heard: int, say: int, work: Callable[[Callable[[bytes], None]], int]) -> None:
    """In the fork: it never returns to whatever was going on."""
    status = FAULT
    try:
        os.close(heard)
        os.setsid()
        with contextlib.suppress(OSError):
            _forget_handles({log, say})
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, handle in ((0, nothing), (1, log), (2, log)):
            os.dup2(handle, number)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_DFL)

        def tell(word: bytes) -> None:
            with contextlib.suppress(BrokenPipeError):  # whoever started it was killed meanwhile
                os.write(say, word.replace(b"\n", b" ") + b"\n")
            os.close(say)

        status = work(tell)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _forget_handles(kept: set[int]) -> None:
    """Close what this process was started with: nobody is to wait for this one to let go of it.

    What was opened since is closed with every command that is started, and may be in use.
    """
    for name in os.listdir("/dev/fd"):
        number = int(name)
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                if os.get_inheritable(number):
                    os.close(number)
