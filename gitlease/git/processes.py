"""What is known of other processes: whether one still runs, and whether a group has any left.

A number alone names no process, since the system gives it out again: it goes with when it started.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

PROC = "/proc"
PATIENCE = 2.0
STATE, PARENT, GROUP, STARTED = 0, 1, 2, 19  # fields of /proc/PID/stat, after the name


def started_at(pid: int) -> str:
    """When a process started, as text to compare; ``""`` where there is none, or it has ended."""
    if _has_proc():
        fields = _stat(pid)
        return fields[STARTED] if fields and not _ended(fields[STATE]) else ""
    for line in _ps(["-o", "stat=,lstart=", "-p", str(pid)]):
        state, _, started = line.strip().partition(" ")
        return "" if _ended(state) else started.strip()
    return ""


def still_runs(pid: int, started: str) -> bool:
    """Whether the process that started then still runs."""
    return bool(started) and pid > 0 and started_at(pid) == started


def parent_and_words(pid: int) -> tuple[int, list[bytes]]:
    """The parent of a process, and the words it was started with; 0 and none where there is none.

    Where ps alone tells, words that have blanks in them are several.
    """
    if _has_proc():
        fields = _stat(pid)
        with contextlib.suppress(OSError), open(f"{PROC}/{pid}/cmdline", "rb") as opened:
            return int(fields[PARENT]) if fields else 0, opened.read(65_536).split(b"\0")
        return 0, []
    for line in _ps(["-o", "ppid=,args=", "-p", str(pid)]):
        parent, _, words = line.strip().partition(" ")
        if parent.isdigit():
            return int(parent), os.fsencode(words).split()
    return 0, []


def group_is_left(group: int) -> bool:
    """Whether any process of a group still runs; those that only wait to be reaped do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(found == group and not _ended(state) for found, state in _groups())


def signal_group(group: int, signum: int) -> None:
    """Send a signal to a group, if there is any process in it that may be sent one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def name_this_process(name: str) -> None:
    """Let lists of processes show a name, where that is to be had for a write."""
    with contextlib.suppress(OSError), open(f"{PROC}/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def _ended(state: str) -> bool:
    return state[:1] in ("Z", "X", "x")


def _has_proc() -> bool:
    return os.path.exists(f"{PROC}/self/stat")


def _stat(pid: int | str) -> list[str]:
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as opened:
            fields = opened.read(4_096).rpartition(b")")[2].split()  # the name may hold anything
    except OSError:
        return []
    return [field.decode("ascii", "replace") for field in fields] if len(fields) > STARTED else []


def _groups() -> Iterator[tuple[int, str]]:
    """The group and state of every process."""
    if _has_proc():
        for name in os.listdir(PROC):
            if name.isdigit() and (fields := _stat(name)):
                yield int(fields[GROUP]), fields[STATE]
        return
    for line in _ps(["-A", "-o", "pgid=,stat="]):
        words = line.split()
        if len(words) == 2 and words[0].isdigit():
            yield int(words[0]), words[1]


def _ps(words: list[str]) -> list[str]:
    try:
        said = subprocess.run(
            ["ps", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return said.stdout.decode("utf-8", "replace").splitlines()
