"""Starts commands without a shell: guarded, in the background, or for a person."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from gitlease.kernel.git.files import share
from gitlease.kernel.git.run import run_git
from gitlease.kernel.rules.errors import Invalid, NotFound
from gitlease.runs.processes import on_parent_death


class NoCommand(NotFound):
    """No such command."""


class CannotExecute(Invalid):
    """The command exists, but cannot be executed."""


def check_executable(word: str, *, env: Mapping[str, str] = os.environ, cwd: str = "") -> None:
    """Check that a command could be executed. Raises NoCommand or CannotExecute."""
    if not word:
        raise NoCommand("the command is empty")
    if os.sep in word:
        path = os.path.join(cwd, word)
        if not os.path.lexists(path):
            raise NoCommand(f"{word}: no such file")
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            raise CannotExecute(f"{word} cannot be executed")
        return
    where = env.get("PATH", os.defpath)
    # A relative folder of PATH begins where the command will run.
    folders = os.pathsep.join(os.path.join(cwd, folder) for folder in where.split(os.pathsep))
    if shutil.which(word, path=folders) is None:
        file = shutil.which(word, mode=os.F_OK, path=folders)
        if file is None:
            raise NoCommand(f"{word}: command not found")
        raise CannotExecute(f"{file} cannot be executed")


def run_with_input(words: Sequence[str], text: str) -> int:
    """Run a command with ``text`` as its input, which it need not read; its status, or 127."""
    try:
        return subprocess.run(words, input=text.encode(), check=False).returncode
    # A command need not read its input.
    except BrokenPipeError:
        return 0
    except OSError:
        return 127


def run_in(folder: str, words: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command without input in a folder; its status. Raises NoCommand or CannotExecute."""
    check_executable(words[0], env=env, cwd=folder)
    null = subprocess.DEVNULL
    return subprocess.run(words, cwd=folder, env=env, stdin=null, check=False).returncode


def show_in_pager(text: str) -> bool:
    """Show a text in the pager that git would use; False if there is none, or it cannot start."""
    answer = run_git(("var", "GIT_PAGER"), cwd=".", timeout=10)
    pager = os.fsdecode(answer.out) if answer.code == 0 else ""
    try:
        words = [] if set(pager) & set("|&;<>()$`*?") else shlex.split(pager)  # needs a shell
    except ValueError:
        return False
    # To git, too, `cat` means no pager.
    if words in ([], ["cat"]) or not shutil.which(words[0]):
        return False
    env = {"LESS": "FRX", "LV": "-c", **os.environ}  # as git does
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        subprocess.run(words, input=text.encode(), env=env, check=False)
    return True


LONGEST_WORD = 65_536
FAULT = 70


def fork_into_background(
    log: str, work: Callable[[Callable[[bytes], None]], int], *, with_parent: bool = False
) -> bytes:
    """Run ``work`` in a process of its own, and return the first word that it reports.

    ``work`` gets the function to report it with; ``b""`` if it ended without. Its standard input is
    empty, and what it and its commands print is added to ``log``. ``with_parent``: it gets TERM
    when this process dies, if the system can do that. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    # Output may be secret, and a person's umask may let everybody read.
    opened = os.open(log, flags, 0o600)
    share(log, opened)
    receive, send = os.pipe()
    _flush()  # what is not written yet would be written twice
    die_with_us, parent = on_parent_death(signal.SIGTERM), os.getpid()
    if os.fork() == 0:
        if with_parent:
            die_with_us()
            # The parent may have died before the request for its death was made.
            if os.getppid() != parent:
                os._exit(FAULT)  # it is dead already
        _work_alone(opened, receive, send, work)
    os.close(opened)
    os.close(send)
    with open(receive, "rb") as answers:
        return answers.readline(LONGEST_WORD).rstrip(b"\n")


def _work_alone(
    log: int, receive: int, send: int, work: Callable[[Callable[[bytes], None]], int]
) -> None:
    # In the fork: it never returns.
    def report(word: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process that started it was killed
            os.write(send, word.replace(b"\n", b" ") + b"\n")
        os.close(send)

    status = FAULT
    try:
        os.close(receive)
        # A terminal that closes must not take the run with it.
        os.setsid()
        _close_inherited()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, handle in enumerate((nothing, log, log)):
            os.dup2(handle, number)
        # The parent's handlers would treat a signal for the run as one of their own.
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_DFL)
        status = work(report)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        _flush()
        # Not sys.exit: what the parent has registered for its own end must not run in the fork.
        os._exit(status)


def _close_inherited() -> None:
    # What this process was started with is closed: nobody should wait for this one to close it.
    # What was opened since is not inherited by commands, and may be in use.
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir("/dev/fd")):
            with contextlib.suppress(OSError):
                if number > 2 and os.get_inheritable(number):
                    os.close(number)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def foreground_group() -> int | None:
    """The process group that the controlling terminal talks to; None without a terminal."""
    try:
        # Streams may be redirected; the terminal itself says whose turn it is.
        handle = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return os.tcgetpgrp(handle)
    except OSError:
        return None
    finally:
        os.close(handle)


def is_talked_to() -> bool:
    """Tell whether a person is at a terminal: no stream of it is part of a pipeline."""
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False


@contextlib.contextmanager
def handling(
    handle: Callable[[int, FrameType | None], object] | signal.Handlers, *signums: int
) -> Iterator[None]:
    """In this block of the main thread these signals are handled so, and afterwards as before."""
    before = {signum: signal.signal(signum, handle) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def stop_like(signum: int) -> None:
    """Stop the group of this process as the terminal would, until a shell continues it."""
    with handling(signal.SIG_DFL, signum):
        sys.stderr.flush()
        os.kill(0, signum)
