"""Start a command that dies with this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from gitlease.kernel.git.run import prctl_of_linux

# Becomes a command that is killed when the process dies that started it. ``preexec_fn`` would run
# Python between fork and exec, which may hang in a process with threads.
_TETHER = """\
import ctypes, os, signal, sys
failure, parent, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != parent:
    os._exit(1)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
os.set_inheritable(failure, False)
try:
    os.execvp(words[0], words)
except OSError as error:
    os.write(failure, b"%d" % (error.errno or 0))
os._exit(1)
"""


def start_tethered(words: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a command as ``Popen`` does; it is killed when this process dies (on Linux).

    Only the command is, and nothing that it started. It goes by the thread that starts it. Raises
    OSError.
    """
    if prctl_of_linux() is None:
        return subprocess.Popen(words, **how)
    receive, send = os.pipe()
    with open(receive, "rb") as failure:
        helper = [sys.executable, "-I", "-S", "-c", _TETHER, f"{send}", f"{os.getpid()}"]
        try:
            process = subprocess.Popen([*helper, *words], pass_fds=(send,), **how)
        finally:
            os.close(send)
        if number := int(failure.read() or 0):  # which ends once the command runs
            process.wait()
            raise OSError(number, os.strerror(number), words[0])
    return process
