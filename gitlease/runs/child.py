"""Starts a command without a shell, in a process group of its own, once it is guarded."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping

from gitlease.core.frozen import dataclass
from gitlease.git.processes import started_at

# Ignored by Python from its start, whatever it was started with.
PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
PR_SET_PDEATHSIG = 1  # of Linux
NEVER_RAN = 127  # what a child ends with that could not become the command; nobody sees it

Dispositions = Mapping[int, signal.Handlers]


class CannotExecute(Exception):
    """A command that cannot be started: ``missing`` says that there is no such command."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.message, self.missing = message, missing


@dataclass(frozen=True, slots=True)
class Child:
    """A command that was started: the leader of its process group, and when it began."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, and how. ``dispositions`` are the signals as this process found them."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    dispositions: Dispositions


def check_executable(word: str, *, env: Mapping[str, str], cwd: str) -> None:
    """See that a command could be executed. CannotExecute where it could not."""
    if not word:
        raise CannotExecute("the command is empty", missing=True)
    if os.sep in word:
        path = os.path.join(cwd, word)
        if not os.path.lexists(path):
            raise CannotExecute(f"{word}: no such file", missing=True)
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            raise CannotExecute(f"{word} cannot be executed", missing=False)
        return
    where = env.get("PATH", os.defpath)
    folders = os.pathsep.join(os.path.join(cwd, folder) for folder in where.split(os.pathsep))
    if shutil.which(word, path=folders) is None:
        there = shutil.which(word, mode=os.F_OK, path=folders)
        said = f"{word}: command not found" if there is None else f"{there} cannot be executed"
        raise CannotExecute(said, missing=there is None)


def start(launch: Launch, before: Callable[[Child], None]) -> Child:
    """Start a command; ``before`` is called once it has its group and before it runs.

    It must be called before this process has threads. Raises CannotExecute, and whatever
    ``before`` raises: then the command never ran.
    """
    die_with_us = _parent_death()
    told, tell = os.pipe()  # closed without a word when this process dies first
    failed, fail = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become(launch, told, fail, (tell, failed), mask, die_with_us)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(told)
    os.close(fail)
    with contextlib.suppress(OSError):  # both sides do it, so that neither has to wait
        os.setpgid(pid, pid)
    child = Child(pid, started_at(pid))
    try:
        before(child)
        os.write(tell, b"!")
    except BaseException:
        os.close(tell)
        os.close(failed)
        os.waitpid(pid, 0)
        raise
    os.close(tell)
    with open(failed, "rb") as opened:
        why = opened.read(64)
    if why:
        os.waitpid(pid, 0)
        raise _refused(launch, int(why))
    return child


def _become(
    launch: Launch,
    told: int,
    fail: int,
    others: tuple[int, int],
    mask: set[int | signal.Signals],
    die_with_us: Callable[[], object],
) -> None:
    """In the child: become the command, or end. Signals are blocked until nothing is ours."""
    try:
        for handle in others:
            os.close(handle)
        os.setpgid(0, 0)
        die_with_us()
        signal.set_wakeup_fd(-1)
        for signum, found in launch.dispositions.items():
            signal.signal(signum, found)
        for own in PYTHONS_OWN:
            signal.signal(own, signal.SIG_DFL)
        if os.read(told, 1) != b"!":
            os._exit(NEVER_RAN)
        os.chdir(launch.cwd)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(launch.words[0], launch.words, dict(launch.env))  # noqa: S606 - no shell
    except OSError as error:
        os.write(fail, str(error.errno or errno.EIO).encode())
    except BaseException:
        os.write(fail, str(errno.EIO).encode())
    finally:
        os._exit(NEVER_RAN)


def _parent_death() -> Callable[[], object]:
    """What has the system kill a child when this process dies, where it can do that.

    Nobody may be left to ask it first, and then to see to its end: the guardian may have been
    killed as well. It reaches the command alone, and what that started is the guardian's. It goes
    by the thread that starts the child, which is the main one, that lives longest.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda: None
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _refused(launch: Launch, number: int) -> CannotExecute:
    word, why = launch.words[0], os.strerror(number).lower()
    if number == errno.ENOENT:
        try:
            check_executable(word, env=launch.env, cwd=launch.cwd)
        except CannotExecute as refused:
            return refused
        why = "there is no such interpreter, or no such folder to run it in"
    return CannotExecute(f"{word} cannot be executed: {why}", missing=False)


def exit_status(raw: int) -> int:
    """A status of ``waitpid`` as shells say it: 128 + n when signal n ended it."""
    code = os.waitstatus_to_exitcode(raw)
    return code if code >= 0 else 128 - code
