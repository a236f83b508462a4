"""What is known of other processes: whether one runs, what is left of a group, and git's words.

A number alone names no process, since the system gives it out again: it goes with when it started.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

from gitlease.core.frozen import dataclass

PROC = "/proc"
PATIENCE = 2.0
GENERATIONS = 12  # a hook's shell, its subshell, a hook manager and its shells, git
SHELLS = frozenset((b"sh", b"dash", b"bash", b"zsh", b"ksh", b"mksh", b"fish", b"busybox"))
STATE, PARENT, GROUP, STARTED = 0, 1, 2, 19  # fields of /proc/PID/stat, after the name

_SHORT = b"mFtCc"  # the options of git commit that take a value
_LONG = frozenset(
    b"--" + name.encode()
    for name in (
        *("message", "file", "template", "reuse-message", "reedit-message", "author", "date"),
        *("fixup", "squash", "trailer", "pathspec-from-file"),
    )
)


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


def numbered_in() -> str:
    """The namespace that process numbers are of: a container's differ from its machine's."""
    with contextlib.suppress(OSError):
        return os.readlink(f"{PROC}/self/ns/pid")
    return ""


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


def ancestors() -> Iterator[int]:
    """The processes that this one descends from, the nearest first."""
    pid = os.getppid()
    while pid > 1:  # the first one of a machine is everybody's
        yield pid
        pid, _ = parent_and_words(pid)


def working_parent() -> tuple[int, str]:
    """The nearest process above that is no shell, with when it started; 0 where there is none."""
    for pid in ancestors():
        words = parent_and_words(pid)[1]
        if words and os.path.basename(words[0]).lstrip(b"-") not in SHELLS:
            return pid, started_at(pid)
    return 0, ""


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
    import subprocess  # where there is no /proc alone

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


# --- the git that a hook runs under: it does not say itself whether a commit is amended -----------


@dataclass(frozen=True, slots=True)
class CommitWords:
    """What the words of ``git commit`` say that git keeps from its hooks."""

    amend: bool = False
    cleanup: str = ""


def commit_words(pid: int | None = None) -> CommitWords | None:
    """The words of the nearest git above this process, if that commits.

    None where it does not show, as in an alias. Never raises.
    """
    words = _words_after(b"commit", pid)
    return None if words is None else _read(words)


def is_mirror_push(pid: int | None = None) -> bool:
    """Whether the nearest git above this process was told to push a mirror. Never raises.

    What such a push deletes is not among the lines that its hook gets.
    """
    words = _words_after(b"push", pid) or ()
    return any(word.startswith(b"--mi") and b"--mirror".startswith(word) for word in words)


def is_forced_push(pid: int | None = None) -> bool:
    """Whether the nearest git above this process was told to push by force. Never raises."""
    for word in _words_after(b"push", pid) or ():
        short = word[:1] == b"-" != word[1:2]
        if word[:1] == b"+" or word.startswith(b"--force") or (short and b"f" in word):
            return True
    return False


def pushing_git() -> tuple[int, str]:
    """The nearest ``git push`` above this process, with when it started; 0 where none shows."""
    pid, _ = _git_above(b"push", None)
    return (pid, started_at(pid)) if pid else (0, "")


def wait_for_end(pid: int, started: str, *, seconds: float) -> None:
    """Wait until the process that started then has ended, at most so many seconds."""
    end, pause = time.monotonic() + seconds, 0.02
    while still_runs(pid, started) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)


def _words_after(command: bytes, pid: int | None) -> Sequence[bytes] | None:
    """What stands after this command of the nearest git above, None where none has it."""
    found, words = _git_above(command, pid)
    return words if found else None


def _git_above(command: bytes, pid: int | None) -> tuple[int, Sequence[bytes]]:
    pid = os.getppid() if pid is None else pid
    for _ in range(GENERATIONS):
        parent, words = parent_and_words(pid)
        name = os.path.basename(words[0]) if words else b""
        if name in (b"git", b"git.exe") and command in words:
            return pid, words[words.index(command) + 1 :]
        if parent <= 1:
            break
        pid = parent
    return 0, ()


def _read(words: Sequence[bytes]) -> CommitWords:
    amend, cleanup = False, b""
    rest = iter(words)
    for word in rest:
        name, given, value = word.partition(b"=")
        if word == b"--":
            break
        if name.startswith(b"--am") and b"--amend".startswith(name):
            amend = True
        elif name.startswith(b"--cl") and b"--cleanup".startswith(name):
            cleanup = value if given else next(rest, b"")
        elif name == b"--no-amend":
            amend = False
        elif (name in _LONG and not given) or (
            word[:1] == b"-" != word[1:2] and _takes_next(word[1:])
        ):
            next(rest, None)
    return CommitWords(amend, os.fsdecode(cleanup))


def _takes_next(letters: bytes) -> bool:
    """Whether the last of some short options takes the next word for its value."""
    first = next((n for n, letter in enumerate(letters) if letter in _SHORT), None)
    return first == len(letters) - 1
