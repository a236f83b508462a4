"""Runs a command and kills it at its n-th system call that changes something, before it is made.

    python kill_nth.py NUMBER caller|all -- COMMAND...

Counted are the calls of the command and of all processes that it starts, in the order in which
they are made: writes, renames, removals, links, folders, programs started, connections and what
is sent over them. ``caller`` kills the process that makes the call, ``all`` every one there is.
Number 0 kills nothing and so counts. The last line on standard error is JSON: ``{"calls", "killed",
"exit", "by_name"}``. Needs Linux, and leave to trace one's own children.

The kernel stops the traced processes at these calls only (a seccomp filter), so that a command runs
about as fast as it does alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import signal
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

# By machine: the numbers of the calls, of which a newer one lacks those without "at".
_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "write": 1,
        "pwrite64": 18,
        "writev": 20,
        "sendfile": 40,
        "connect": 42,
        "sendto": 44,
        "sendmsg": 46,
        "execve": 59,
        "truncate": 76,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "link": 86,
        "unlink": 87,
        "symlink": 88,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "symlinkat": 266,
        "sendmmsg": 307,
        "renameat2": 316,
        "execveat": 322,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "symlinkat": 36,
        "linkat": 37,
        "renameat": 38,
        "truncate": 45,
        "ftruncate": 46,
        "write": 64,
        "writev": 66,
        "pwrite64": 68,
        "sendfile": 71,
        "connect": 203,
        "sendto": 206,
        "sendmsg": 211,
        "execve": 221,
        "sendmmsg": 269,
        "renameat2": 276,
        "execveat": 281,
    },
}

_TRACEME, _CONT, _SETOPTIONS, _GETEVENTMSG = 0, 7, 0x4200, 0x4201
_FORK, _VFORK, _CLONE, _EXEC, _SECCOMP = 1, 2, 3, 4, 7
_OPTIONS = 1 << _FORK | 1 << _VFORK | 1 << _CLONE | 1 << _EXEC | 1 << _SECCOMP | 1 << 20
_WALL = 0x40000000
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_RET_TRACE, _RET_ALLOW = 0x7FF00000, 0x7FFF0000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def calls() -> dict[str, int]:
    """The calls that count, by name; none on a machine that is not known."""
    return _NUMBERS.get(platform.machine(), {})


def run(command: Sequence[str], number: int, *, everyone: bool) -> dict[str, Any]:
    """Run it, kill it at that call, and tell what came of it."""
    names = list(calls())
    first = os.fork()
    if first == 0:
        _become_traced(command, list(calls().values()))
    os.waitpid(first, _WALL)
    _ptrace(_SETOPTIONS, first, _OPTIONS)
    _ptrace(_CONT, first, 0)
    known, new = {first}, set[int]()
    counted: Counter[str] = Counter()
    killed, status = "", 0
    while known:
        try:
            pid, ended = os.waitpid(-1, _WALL)
        except ChildProcessError:
            break
        if not os.WIFSTOPPED(ended):
            known.discard(pid)
            status = ended if pid == first else status
            continue
        known.add(pid)
        event, passed_on = ended >> 16, os.WSTOPSIG(ended)
        if event == _SECCOMP:
            passed_on = 0
            counted[names[_message(pid)]] += 1
            # The first one starts the command itself.
            if counted.total() - 1 == number > 0 and not killed:
                killed = f"{names[_message(pid)]} of {_name(pid)}"
                for victim in known if everyone else {pid}:
                    _kill(victim)
                continue
        elif event in (_FORK, _VFORK, _CLONE):
            new.add(_message(pid))
            passed_on = 0
        elif event == _EXEC:
            passed_on = 0
        elif passed_on == signal.SIGSTOP and pid not in new and pid != first:
            new.add(pid)  # a new process, seen before its parent's news of it
            passed_on = 0
        elif (passed_on == signal.SIGSTOP and pid in new) or passed_on == signal.SIGTRAP:
            passed_on = 0
        _ptrace(_CONT, pid, passed_on)
    counted["execve"] -= 1
    return {
        "calls": counted.total(),
        "killed": killed,
        "exit": os.waitstatus_to_exitcode(status),
        "by_name": dict(sorted((name, n) for name, n in counted.items() if n)),
    }


def _become_traced(command: Sequence[str], numbers: list[int]) -> None:
    try:
        _ptrace(_TRACEME, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        filtering = [struct.pack("HBBI", 0x20, 0, 0, 0)]  # load the call's number
        for at, number in enumerate(numbers):
            filtering.append(struct.pack("HBBI", 0x15, 0, 1, number))  # not this one: skip
            filtering.append(struct.pack("HBBI", 0x06, 0, 0, _RET_TRACE | at))
        filtering.append(struct.pack("HBBI", 0x06, 0, 0, _RET_ALLOW))
        data = ctypes.create_string_buffer(b"".join(filtering))
        program = _Program(len(filtering), ctypes.addressof(data))
        _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        if _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
            os._exit(126)
        os.execv(shutil.which(command[0]) or command[0], list(command))
    finally:
        os._exit(127)


def _ptrace(request: int, pid: int, data: int) -> None:
    # A process that was killed meanwhile is gone: its end is read in time.
    if _libc.ptrace(request, pid, None, data) < 0 and ctypes.get_errno() != 3:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of {pid}")


def _message(pid: int) -> int:
    found = ctypes.c_ulong()
    _libc.ptrace(_GETEVENTMSG, pid, None, ctypes.addressof(found))
    return found.value


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(300).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "?"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> int:
    """The command line; exits as the command did."""
    number, whom, command = int(sys.argv[1]), sys.argv[2], sys.argv[4:]
    found = run(command, number, everyone=whom == "all")
    print("\n" + json.dumps(found), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
