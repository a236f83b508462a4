"""Starts a command without a shell, in a process group of its own, once it is guarded."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping

from gitlease.core.errors import GitleaseError, Invalid, NotFound
from gitlease.core.frozen import dataclass
from gitlease.git.processes import started_at

# Ignored by Python from its start, whatever it was started with.
PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
PR_SET_PDEATHSIG = 1  # of Linux
NEVER_RAN = 127  # what a child ends with that could not become the command; nobody sees it

Dispositions = Mapping[int, signal.Handlers]


class NoCommand(NotFound):
    """There is no such command."""


class CannotExecute(Invalid):
    """The command is there, and cannot be executed."""


@dataclass(frozen=True, slots=True)
class Child:
    """A command that was started: the leader of its process group, and when it began."""

    pid: int
    started: str


def check_executable(word: str, *, env: Mapping[str, str], cwd: str) -> None:
    """See that a command could be executed. NoCommand or CannotExecute where it could not."""
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
    folders = os.pathsep.join(os.path.join(cwd, folder) for folder in where.split(os.pathsep))
    if shutil.which(word, path=folders) is None:
        there = shutil.which(word, mode=os.F_OK, path=folders)
        if there is None:
            raise NoCommand(f"{word}: command not found")
        raise CannotExecute(f"{there} cannot be executed")


def start(
    words: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str,
    dispositions: Dispositions,
    before: Callable[[Child], None],
) -> Child:
    """Start a command; ``before`` is called once it has its group and before it runs.

    ``dispositions`` are the signals as this process found them, and as the command gets them.
    Raises NoCommand, CannotExecute, and whatever ``before`` raises: then the command never ran.
    """

    def become() -> None:
        die_with_us()
        signal.set_wakeup_fd(-1)
        for signum, found in dispositions.items():
            signal.signal(signum, found)
        for own in PYTHONS_OWN:
            signal.signal(own, signal.SIG_DFL)
        if os.read(told, 1) != b"!":
            os._exit(NEVER_RAN)
        os.chdir(cwd)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(words[0], words, dict(env))  # noqa: S606 - no shell

    die_with_us = on_parent_death(signal.SIGKILL)
    told, tell = os.pipe()  # closed without a word when this process dies first
    failed, fail = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _in_child(become, fail, (tell, failed))
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
        raise _refused(words[0], env, cwd, int(why))
    return child


def _in_child(become: Callable[[], None], fail: int, others: tuple[int, int]) -> None:
    """Become the command, or end. Signals are blocked until nothing is ours."""
    try:
        for handle in others:
            os.close(handle)
        os.setpgid(0, 0)
        become()
    except OSError as error:
        os.write(fail, str(error.errno or errno.EIO).encode())
    except BaseException:
        os.write(fail, str(errno.EIO).encode())
    finally:
        os._exit(NEVER_RAN)


def on_parent_death(signum: signal.Signals) -> Callable[[], object]:
    """What has the system send a child this signal when this process dies, where it can do that.

    A command is killed: nobody may be left to ask it first, and then to see to its end: the
    guardian may have been killed as well. It reaches the command alone, and what that started is
    the guardian's. It goes by the thread that starts the child, the main one, that lives longest.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda: None
    return lambda: prctl(PR_SET_PDEATHSIG, int(signum))


def _refused(word: str, env: Mapping[str, str], cwd: str, number: int) -> GitleaseError:
    why = os.strerror(number).lower()
    if number == errno.ENOENT:
        try:
            check_executable(word, env=env, cwd=cwd)
        except (NoCommand, CannotExecute) as refused:
            return refused
        why = "there is no such interpreter, or no such folder to run it in"
    return CannotExecute(f"{word} cannot be executed: {why}")


def exit_status(raw: int) -> int:
    """A status of ``waitpid`` as shells say it: 128 + n when signal n ended it."""
    code = os.waitstatus_to_exitcode(raw)
    return code if code >= 0 else 128 - code
