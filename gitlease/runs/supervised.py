"""A supervised command: its end, its signals, its terminal and its guardian.

One wait ends with any of them: a signal, a wake-up by a thread, the end of the guardian.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from gitlease.git.run import group_is_left, signal_group
from gitlease.runs.child import Child, exit_status, start
from gitlease.runs.guardian import Guardian, GuardianFailed, readable, watch_lines
from gitlease.runs.terminal import Terminal, is_talked_to, stop_like

PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH, signal.SIGCONT),
    signal.SIGTSTP,
)
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
OF_THE_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
STOPS = (signal.SIGTSTP, *OF_THE_TERMINAL)
STEP = 0.05
CONTINUED = 0.2  # seconds by which a stop may be late
NO_PROMPT = "GIT_TERMINAL_PROMPT"
GUARDIANS = 10  # of one command, one after the other
SOON = 5.0  # seconds for another one to start


class SupervisedProcess:
    """One command of this process, which is a context: signals are its own inside.

    ``stops``: a signal that ends asks to stop it (TERM, grace, KILL), as in the background, where
    only gitlease sends them: then ``to_stop`` is set. Else such signals are passed on.
    ``told_to_end``: one of them has come.
    """

    def __init__(self, *, grace: int, stops: bool = False) -> None:
        self._stops = stops
        self.to_stop = self.told_to_end = False
        self._guardian = Guardian(grace)
        self._terminal = Terminal()
        self._child: Child | None = None
        self._status: int | None = None
        self._found: dict[int, signal.Handlers] = {}
        self._handlers: dict[int, object] = {}
        self._woken, self._wake = os.pipe()
        self._wakeup = -1
        self._told = self._prompts = False
        self._guardians = 0
        self._reads = is_talked_to()  # the command gets the terminal

    def __enter__(self) -> Self:
        for handle in (self._woken, self._wake):
            os.set_blocking(handle, False)
        self._wakeup = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for signum in (*PASSED_ON, signal.SIGCHLD):
            if signum == signal.SIGCHLD or signal.getsignal(signum) is not signal.SIG_IGN:
                self._handle(signum, _note)
        for signum in OF_THE_TERMINAL:
            self._handle(signum, signal.SIG_IGN)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        ended_by_signal = self._status is None or self._status > 128
        self._terminal.take_back(restore=ended_by_signal)
        self._terminal.close()
        self._guardian.dismiss(goodbye=self._child is None or kind is None)
        signal.set_wakeup_fd(self._wakeup)
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        os.close(self._woken)
        os.close(self._wake)
        if self._prompts:  # a program goes on after this
            os.environ.pop(NO_PROMPT, None)

    def close(self) -> None:
        """Reap the guardian."""
        self._guardian.close()

    def _handle(self, signum: int, how: Callable[[int, FrameType | None], None] | int) -> None:
        before = signal.signal(signum, how)
        self._handlers[signum] = signal.SIG_DFL if before is None else before
        ignored = before is signal.SIG_IGN
        self._found[signum] = signal.SIG_IGN if ignored else signal.SIG_DFL

    # --- its start ------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def start(
        self, words: tuple[str, ...], env: dict[str, str], cwd: str, *, until_ms: int
    ) -> None:
        """Start it, guarded from its first moment on. GuardianFailed, and as ``child.start``."""
        self._guardian.start()
        self._child = start(
            words, env, cwd, self._found, lambda child: self._ready(child, until_ms)
        )
        # Renewals run in the background meanwhile, and must not ask for a password.
        self._prompts = NO_PROMPT not in os.environ
        os.environ.setdefault(NO_PROMPT, "0")

    def _ready(self, child: Child, until_ms: int) -> None:
        self._guardian.watch(child.pid, child.started, until_ms)
        if self._reads:
            self._terminal.lend(child.pid)

    # --- for the run that decides ---------------------------------------------------------------

    def wait(self, seconds: float) -> int | None:
        """Wait for its end: its exit status, 128 + n when signal n ended it.

        None after so many seconds, or earlier if there is something to decide.
        """
        end = time.monotonic() + seconds
        while True:
            self._reap()
            if self._status is not None:
                return self._status
            left = end - time.monotonic()
            if left <= 0 or self._told:
                self._told = False
                return None
            self._hear(left)

    def wait_for_group(self, seconds: float) -> bool:
        """After its end, wait for the rest of its group; whether nothing is left of it."""
        end = time.monotonic() + seconds
        while group_is_left(self.pid):
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(STEP, left))
        return True

    def ask(self) -> None:
        """Ask its group to end (TERM), stopped ones too."""
        signal_group(self.pid, signal.SIGTERM)
        signal_group(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End its group (KILL)."""
        signal_group(self.pid, signal.SIGKILL)

    def guard(self, until_ms: int) -> bool:
        """Tell its guardian until when, by the boot clock, it may live without another message.

        False if it is no longer guarded, and no guardian can be started.
        """
        if self._child is not None and self._guardian.is_gone():
            self._guardian.close()
            self._guardians += 1
            try:
                if self._guardians >= GUARDIANS:
                    return False
                known = watch_lines(self._child.pid, self._child.started, until_ms)
                self._guardian.start(SOON, known)
            except GuardianFailed:
                self._guardians = GUARDIANS
                return False
        self._guardian.until(until_ms)
        return True

    def wake(self) -> None:
        """Make ``wait`` return now. Safe for threads."""
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    # --- how ------------------------------------------------------------------------------------

    def _hear(self, seconds: float) -> None:
        """Wait for any event, and pass on the signals that have come."""
        line = self._guardian.fileno()
        ready = readable([self._woken, *([line] if line >= 0 else [])], seconds)
        if line in ready:
            self._told = True  # it is gone: the run has another one started
        for signum in self._signals() if self._woken in ready else b"":
            if signum == 0:
                self._told = True
            elif signum in PASSED_ON:
                self._pass_on(signum)

    def _signals(self) -> bytes:
        try:
            return os.read(self._woken, 4_096)
        except BlockingIOError:
            return b""

    def _pass_on(self, signum: int) -> None:
        self.told_to_end |= signum in ENDING
        if self._stops and signum in ENDING:
            self.to_stop = self._told = True
        elif signum == signal.SIGCONT:
            self._resume()
        else:
            signal_group(self.pid, signum)

    def _reap(self) -> None:
        """Note that the command has ended, or was stopped."""
        while self._status is None and self._child is not None:
            pid, raw = os.waitpid(self._child.pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(raw):
                self._stopped(os.WSTOPSIG(raw))
            else:
                self._status = exit_status(raw)

    def _stopped(self, signum: int) -> None:
        if not self._terminal.exists:
            return
        self._reads = self._reads or signum in OF_THE_TERMINAL
        if signum in OF_THE_TERMINAL and self._terminal.is_ours():
            self._resume()
            return
        self._terminal.take_back()
        stop_like(signum if signum in STOPS else signal.SIGTSTP)
        # Only a shell continues what was stopped; without one neither we nor the command were.
        end, found = time.monotonic() + CONTINUED, b""
        while signal.SIGCONT not in found and (left := end - time.monotonic()) > 0:
            readable([self._woken], left)
            found += self._signals()
        self._resume()
        for other in found:
            if other != signal.SIGCONT and other in PASSED_ON:
                self._pass_on(other)
        self._told = True

    def _resume(self) -> None:
        """Continue it, with the terminal if it reads that and we have it."""
        if self._reads and not self._terminal.lent:
            self._terminal.lend(self.pid)
        signal_group(self.pid, signal.SIGCONT)


def _note(signum: int, frame: FrameType | None) -> None:
    """Do nothing: Python writes the number of the signal to the wakeup descriptor."""
