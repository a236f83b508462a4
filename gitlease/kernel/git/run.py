"""Runs git, tells what is known of other processes, and has the clocks of this machine.

git runs without a shell, with a cleaned environment, and with a limit of time: it moves data and
answers questions; objects of the ledger are read and written by ``store``.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from gitlease.kernel.rules.errors import Invalid
from gitlease.kernel.rules.frozen import dataclass
from gitlease.kernel.rules.instant import Instant

ASKED = 2.0  # seconds that a process has to end after SIGTERM
AFTER_KILL = 2.0  # seconds in which a killed process may still be read
SAID = 256 * 1024  # bytes kept of the beginning of standard error, and of its end
ALLOWED_PROTOCOLS = ("file", "git", "http", "https", "ssh")


class GitFailed(Invalid):
    """git did not tell what it was asked: why, only its own words say, of this version of it."""


@dataclass(frozen=True)
class GitResult:
    """The outcome of a git process. ``timed_out`` means that it was killed at its limit.

    ``err`` has only the beginning and the end of very much output.
    """

    code: int
    out: bytes
    err: str
    timed_out: bool = False

    @property
    def reason(self) -> str:
        """git's own reason for a failure, on one line."""
        if self.timed_out:
            return "git did not answer in time"
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        lines = lines or ["it said nothing"]
        reason = next((x for x in lines if x.startswith(("fatal: ", "error: "))), lines[-1])
        reason = reason.removeprefix("fatal: ").removeprefix("error: ").removesuffix(":")
        # A remote's words are printed: they must not move a terminal's cursor.
        return "".join(c if c.isprintable() else " " for c in reason)[:300]

    def failure(self, what: str) -> GitFailed:
        """The error of what git could not do, with its own reason."""
        return GitFailed(f"{what}: {self.reason}")

    def checked(self, what: str) -> bytes:
        """Return the output. Raises GitFailed, which names ``what`` failed."""
        if self.code != 0:
            raise self.failure(what)
        return self.out


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that tie git to another repository.

    Settings given on the command line (``git -c``) and those of the transport stay.
    """
    env = {k: v for k, v in environ.items() if k not in _REPOSITORY_VARIABLES}
    env["LC_ALL"] = "C"  # failures are classified by git's messages
    env["GIT_OPTIONAL_LOCKS"] = "0"  # never refresh the user's index
    env["GIT_ALLOW_PROTOCOL"] = allowed_protocols(environ)
    # Nobody could answer: without it git waits for a password until its time is up.
    if not _interactive():
        env.setdefault("GIT_TERMINAL_PROMPT", "0")
    return env


def allowed_protocols(environ: Mapping[str, str]) -> str:
    """The transports that git may use, as ``GIT_ALLOW_PROTOCOL`` lists them."""
    # A user's list may forbid more than ours does.
    allowed = environ.get("GIT_ALLOW_PROTOCOL")
    wanted = ALLOWED_PROTOCOLS if allowed is None else allowed.split(":")
    return ":".join(p for p in wanted if p != "ext")  # it runs commands


def local_variables_cleared(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command in a work tree of its own.

    Without the variables that tie git to another repository, of which a hook inherits some. The
    settings given on the command line stay, since credentials and ``safe.directory`` come so in
    CI; only those that name another work tree are dropped.
    """
    env = {k: v for k, v in environ.items() if k not in LOCAL_VARIABLES}
    if given := env.pop(_PARAMETERS, ""):
        kept = [x for x in re.findall(_PARAMETER, given) if not _names_a_tree(x.replace("'", ""))]
        if kept:
            env[_PARAMETERS] = " ".join(kept)
    count = env.pop(_COUNT, "")
    # Anybody can set it: a number of any size must not make a loop of it.
    number = int(count) if count.isascii() and count.isdecimal() and len(count) < 5 else 0
    pairs = [(env.pop(f"{_KEY}{n}", None), env.pop(f"{_VALUE}{n}", None)) for n in range(number)]
    pairs = [(k, v) for k, v in pairs if k is None or not _names_a_tree(k)]
    for n, (key, value) in enumerate(pairs):
        env |= {f"{_KEY}{n}": key} if key is not None else {}
        env |= {f"{_VALUE}{n}": value} if value is not None else {}
    return env | ({_COUNT: str(len(pairs))} if pairs else {})


def _names_a_tree(setting: str) -> bool:
    return setting.partition("=")[0].lower() in ("core.worktree", "core.bare")


_PARAMETERS = "GIT_CONFIG_PARAMETERS"  # each 'key=value' or 'key'='value', quoted as for a shell
_PARAMETER = r"(?:'[^']*'|\\.|[^\s'])+"
_COUNT, _KEY, _VALUE = "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"

# What ``git rev-parse --local-env-vars`` lists, but the settings of the command line.
LOCAL_VARIABLES = frozenset(
    {
        "GIT_DIR",  # would be the repository instead of --git-dir's
        "GIT_WORK_TREE",  # a bare store with a work tree
        "GIT_COMMON_DIR",  # refs and objects of the user's repository
        "GIT_INDEX_FILE",  # a hook's temporary index
        "GIT_OBJECT_DIRECTORY",  # objects would be written to the user's repository
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",  # objects found there would not be sent
        "GIT_PREFIX",  # a folder of the user's work tree
        "GIT_SHALLOW_FILE",  # the user's shallow boundary
        "GIT_GRAFT_FILE",
        "GIT_REPLACE_REF_BASE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_CONFIG",  # `git config` would read one file only
    }
)
# Each of these, exported by git inside a hook or set by a user, made a git process meant for the
# private store work on the user's repository, or the other way round.
_REPOSITORY_VARIABLES = LOCAL_VARIABLES | {
    "GIT_QUARANTINE_PATH",  # refuses every ref update
    "GIT_NAMESPACE",  # another name for every ref
    "GIT_DEFAULT_HASH",  # a store of another object format
    "GIT_REFLOG_ACTION",
    "GIT_TRACE_PACKET",  # set by us, to see whether a request was sent
    "GIT_TRACE_REDACT",
}


def _interactive() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:
        return False


def run_git(
    args: Sequence[str],
    *,
    cwd: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
    repository: bool = False,
    on_err: Callable[[bytes], None] | None = None,
    source: str | None = None,
    on_out: Callable[[bytes], None] | None = None,
    memory: int | None = None,
    on_start: Callable[[], object] = lambda: None,
) -> GitResult:
    """Run ``git ARGS`` and wait at most ``timeout`` seconds; then it and all it started are killed.

    ``env`` is added to the cleaned environment; with ``repository`` the variables that name the
    user's repository are kept. ``on_err`` gets standard error as it arrives, and ``on_out`` the
    output, which is not kept then; its time does not count. ``source`` is a file for standard
    input. ``on_start`` is called once git runs, before it is waited for. ``memory`` limits the data
    of each process, in bytes, where the system can: git keeps all of a server's output that has no
    line break. Raises Invalid if git is missing.
    """
    # A hook's own index and quarantine must hold for questions about the user's repository.
    base = dict(os.environ) if repository else clean_environment(os.environ)
    if repository:
        base |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        given = subprocess.DEVNULL if source is None else os.open(source, os.O_RDONLY)
    except OSError as error:
        raise Invalid(f"{source} cannot be read: {error.strerror}") from None
    try:
        process = subprocess.Popen(
            ["git", *args],
            cwd=cwd,
            env={**base, **(env or {})},
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # On a terminal git must stay in its group, or it could not ask for a password there.
            start_new_session=not _interactive(),
        )
    except FileNotFoundError as error:
        if not os.path.isdir(cwd):
            raise Invalid(f"there is no folder {cwd}") from error
        raise Invalid("git is not installed, or not on PATH") from error
    except (OSError, ValueError) as error:
        raise Invalid(f"git cannot be run: {error}") from error
    finally:
        if given != subprocess.DEVNULL:
            os.close(given)
    if memory is not None:
        _limit_memory(process.pid, memory)
    try:
        on_start()
        out, err, timed_out = _collect(process, time.monotonic() + timeout, on_err, on_out)
    # An interrupted command must not leave a git that goes on sending.
    except BaseException:
        _kill(process)
        process.wait()
        raise
    return GitResult(process.returncode, out, err.decode("utf-8", "replace"), timed_out)


def _limit_memory(pid: int, most: int) -> None:
    import resource

    # Linux alone has it; the process may have ended already, or must not be limited.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))


def _collect(
    process: subprocess.Popen[bytes],
    deadline: float,
    on_err: Callable[[bytes], None] | None,
    on_out: Callable[[bytes], None] | None,
) -> tuple[bytes, bytes, bool]:
    # ``communicate`` with a timeout would poll for the exit, which costs milliseconds every time.
    out, err = process.stdout, process.stderr
    if out is None or err is None:
        raise ValueError("the process has no pipes")
    tell = on_err or (lambda _: None)
    chunks, errors = list[bytes](), bytearray()
    timed_out = False
    with selectors.DefaultSelector() as ready, out, err:
        for pipe in (out, err):
            ready.register(pipe, selectors.EVENT_READ)
        while ready.get_map():
            events = ready.select(max(0.0, deadline - time.monotonic()))
            if not events:
                if timed_out:
                    break  # a process that git left behind holds the pipes open
                # What a killed git had still to say is read, as far as it comes at once.
                timed_out, deadline = True, time.monotonic() + AFTER_KILL
                _kill(process)
            for key, _ in events:
                data = os.read(key.fd, 65_536)
                if not data:
                    ready.unregister(key.fileobj)
                if key.fileobj is err:
                    errors += data
                    errors = _shortened(errors)
                    tell(data)
                elif on_out is None:
                    chunks.append(data)
                else:
                    # The limit is git's: what is made of its output may take longer.
                    began = time.monotonic()
                    on_out(data)
                    deadline += time.monotonic() - began
    if not timed_out:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
            _kill(process)
    process.wait()
    return b"".join(chunks), bytes(errors), timed_out


def _shortened(said: bytearray) -> bytearray:
    """Of a flood the first and the last whole lines."""
    if len(said) <= 3 * SAID:
        return said
    first, _, _ = said[:SAID].rpartition(b"\n")
    return first + b"\n" + said[-SAID:].partition(b"\n")[2]


def _kill(process: subprocess.Popen[bytes]) -> None:
    # With what it started: a transport helper left alone would go on sending. SIGTERM first: if
    # killed outright, the receiving git of a remote on this machine would leave the ref's lock.
    try:
        # A git in the group of a terminal is killed alone: the group is the whole command's.
        leads = os.getpgid(process.pid) == process.pid
    except ProcessLookupError:
        return
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(-process.pid if leads else process.pid, signum)
        if _ends(process, leads=leads):
            return


def _ends(process: subprocess.Popen[bytes], *, leads: bool) -> bool:
    until = time.monotonic() + ASKED
    while process.poll() is None or (leads and group_is_left(process.pid)):
        if time.monotonic() >= until:
            return False
        time.sleep(0.005)
    return True


# --- other processes --------------------------------------------------------------------------
# A number alone names no process, since the system gives it out again: it goes with when it
# started.

PROC = "/proc"
PATIENCE = 2.0
MOST_ANCESTORS = 200
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
    """Return whether the process that started then still runs."""
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


def ancestors(pid: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """The processes that this one descends from, the nearest first, with their words."""
    pid = os.getppid() if pid is None else pid
    while pid > 1:  # the first one of a machine is everybody's
        parent, words = parent_and_words(pid)
        yield pid, words
        pid = parent


@dataclass(frozen=True)
class Process:
    """A process that runs. ``started`` is as ``started_at`` has it."""

    pid: int
    parent: int
    group: int
    started: str

    @property
    def name(self) -> str:
        """The name that lists of processes show; ``""`` if it has ended."""
        if _has_proc():
            with contextlib.suppress(OSError), open(f"{PROC}/{self.pid}/comm", "rb") as opened:
                return opened.read(256).decode("utf-8", "replace").strip()
            return ""
        lines = _ps(["-o", "comm=", "-p", str(self.pid)])
        return os.path.basename(lines[0].strip()) if lines else ""


def processes() -> dict[int, Process]:
    """The processes that run, by number; those that only wait to be reaped do not count."""
    return {x.pid: x for x, state in _processes() if not _ended(state)}


GUARDIAN = b".runs.guardian"  # ends the name of the module that guards the command of a run


def is_guardian(words: Sequence[bytes]) -> bool:
    """Tell by its words whether a process guards the command of a run."""
    return any(word.endswith(GUARDIAN) for word in words[:5])


def run_above() -> int:
    """The process of the run that this one works below; 0 where none shows."""
    above = islice(ancestors(), MOST_ANCESTORS)
    for _, words in above:
        if is_guardian(words):
            pid, _ = next(above, (0, []))
            return pid
    return 0


def members_of(group: int) -> frozenset[int]:
    """The processes of a group that run; those that only wait to be reaped do not count."""
    return frozenset(x.pid for x in processes().values() if x.group == group)


def group_is_left(group: int, spared: Collection[int] = ()) -> bool:
    """Return whether any process of a group but these still runs."""
    try:
        # Asked first, since to read all of /proc costs more; but it counts those not yet reaped.
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    # Some of it may run as another user, whom only /proc or ps would show.
    except PermissionError:
        return True
    return not members_of(group) <= frozenset(spared)


def signal_group(group: int, signum: int, spared: Collection[int] = ()) -> None:
    """Send a signal to all of a group but these, as far as they may be sent one."""
    # To the whole group at once where nobody is spared: a process that forks meanwhile gets it too.
    for target in members_of(group) - frozenset(spared) if spared else (-group,):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target, signum)


# Another process does not know of the archive that this one was started from.
_FROM_ARCHIVE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def own_archive() -> str | None:
    """The archive from which this program runs; None if it runs from a folder."""
    home = _home()
    return None if os.path.isdir(home) else home


def _home() -> str:
    home = os.path.abspath(__file__)
    for _ in range(4):  # above the module, its two packages and gitlease
        home = os.path.dirname(home)
    return home


def own_module(name: str) -> list[str]:
    """The words that start a module of this program in a process of its own."""
    home = _home()
    # -P: nothing in the folder that it starts in is to be run instead of this program.
    here = [sys.executable, "-P"]
    return [*here, "-m", name] if os.path.isdir(home) else [*here, "-c", _FROM_ARCHIVE, home, name]


def detach(words: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, silent and without input. Raises OSError."""
    how |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return subprocess.Popen[bytes](words, start_new_session=True, **how)


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


def _processes() -> Iterator[tuple[Process, str]]:
    """Every process, with its state."""
    if _has_proc():
        for name in os.listdir(PROC):
            if name.isdigit() and (fields := _stat(name)):
                parent, group = int(fields[PARENT]), int(fields[GROUP])
                yield Process(int(name), parent, group, fields[STARTED]), fields[STATE]
        return
    for line in _ps(["-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="]):
        words = line.split(None, 4)
        if len(words) == 5 and words[0].isdigit():
            pid, parent, group = map(int, words[:3])
            yield Process(pid, parent, group, words[4].strip()), words[3]


def _ps(words: list[str]) -> list[str]:
    try:
        done = subprocess.run(
            ["ps", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines()


# --- the git that a hook runs under: it does not say itself whether a commit is amended -----------


def wait_for_end(pid: int, started: str, *, seconds: float) -> None:
    """Wait until the process that started then has ended, at most so many seconds."""
    end, pause = time.monotonic() + seconds, 0.02
    while still_runs(pid, started) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)


# --- the clocks of this machine ------------------------------------------------------------------


class SystemClock:
    """Wall clock and boot clock, read together.

    The boot clock keeps counting through suspend where the system has one that does
    (``CLOCK_BOOTTIME``); elsewhere the monotonic clock stands in.
    """

    def __init__(self) -> None:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                self._boot_id = file.read().strip()
        except OSError:  # the kernel has no id of it, so when it booted stands for it
            started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
            self._boot_id = f"booted-{int(started) // 60}"
        self._which = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> Instant:
        boot = time.clock_gettime_ns(self._which) // 1_000_000
        return Instant(wall_ms=time.time_ns() // 1_000_000, boot_ms=boot, boot_id=self._boot_id)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class WokenClock(SystemClock):
    """The same clocks, for a wait that another thread may end: ``sleep`` raises InterruptedError.

    It does so from when ``woken`` is set on.
    """

    def __init__(self, woken: threading.Event) -> None:
        super().__init__()
        self._woken = woken

    def sleep(self, seconds: float) -> None:
        if self._woken.wait(max(0.0, seconds)):
            raise InterruptedError("the wait was ended")


# --- what goes on in the background -----------------------------------------------------------
# A command that nobody configured logging in does not import it for that.

NAME = "gitlease"


def log(level: Literal["debug", "info", "warning"], text: str, *words: object) -> None:
    """Log a line; nothing where the program has no use for it. No secrets: as in messages."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(NAME)
    if not logger.handlers:  # else a warning would be printed where nothing is configured
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(text, *words)


def prctl_of_linux() -> Callable[..., int] | None:
    """Linux's prctl; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        found: Callable[..., int] = ctypes.CDLL(None).prctl
        return found
    except (ImportError, OSError, AttributeError):
        return None
