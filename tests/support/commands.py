"""Commands of gitlease, each in a process of its own that begins with everything imported.

A server forks for each command: two thirds of the time of a short command are its imports, which
tests of their own are about. What depends on how Python itself is started is started by it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fences import clean_env, raise_fences

ROOT = str(Path(__file__).parents[2])
LONG = 240.0  # seconds that a command may take, on a machine that does other things
Done = subprocess.CompletedProcess[str]


def run_program(
    words: Sequence[str], cwd: Path | None, env: Mapping[str, str], input: str = ""
) -> Done:
    """Run a program to its end, in a clean environment plus ``env``; however it ends."""
    return subprocess.run(
        words,
        cwd=cwd,
        env=clean_env(env),
        input=input,
        capture_output=True,
        encoding="utf-8",
        timeout=LONG,
        check=False,
    )


def typed(cwd: Path, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """Run a command as it is typed in a folder."""
    return run_gitlease(words, cwd, env)


def run_gitlease(
    words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, input: str = ""
) -> Done:
    """Run a command to its end, in a clean environment (plus ``env``); however it ends."""
    wanted = clean_env({"PYTHONPATH": ROOT, **(env or {})})
    args = [sys.executable, "-P", "-m", "gitlease", *words]
    if _about_python(wanted) != _about_python(clean_env({"PYTHONPATH": ROOT})):
        return run_program(args, cwd, {"PYTHONPATH": ROOT, **(env or {})}, input)
    streams = [os.memfd_create(name) for name in ("in", "out", "err")]
    try:
        os.write(streams[0], input.encode("utf-8"))
        os.lseek(streams[0], 0, os.SEEK_SET)
        status = status_of(words, cwd, env, streams)
        out, err = (_written(stream) for stream in streams[1:])
    finally:
        for stream in streams:
            os.close(stream)
    return subprocess.CompletedProcess(args, status, out, err)


def _about_python(env: Mapping[str, str]) -> dict[str, str]:
    """What Python and its libraries read of an environment when they begin."""
    return {x: y for x, y in env.items() if x.startswith(("PYTHON", "LC_", "LANG", "HOME", "XDG"))}


def _written(stream: int) -> str:
    with open(os.dup(stream), "rb") as file:
        file.seek(0)
        return file.read().decode("utf-8").replace("\r\n", "\n")


def status_of(
    words: Sequence[str], cwd: Path, env: Mapping[str, str] | None, streams: Sequence[int]
) -> int:
    """Have the server run a command with these three standard streams; how it ends."""
    wanted = clean_env({"PYTHONPATH": ROOT, **(env or {})})
    request = {"words": [*words], "cwd": str(cwd), "env": wanted}
    with socket.socket(socket.AF_UNIX) as asked, contextlib.ExitStack() as stack:
        asked.connect(_server())
        socket.send_fds(asked, [b"."], streams)
        asked.sendall(json.dumps(request).encode() + b"\n")
        answers = stack.enter_context(asked.makefile("r"))
        number = int(answers.readline())
        asked.settimeout(LONG)
        try:
            return int(answers.readline())
        except TimeoutError:
            os.kill(number, signal.SIGKILL)
            raise


@functools.cache
def _server() -> str:
    """The server of this test process, which ends with it: where it listens."""
    place = str(raise_fences().root / f"commands-{os.getpid()}")
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "support.commands", place],
        env=clean_env({"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/tests"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    atexit.register(server.kill)
    end = time.monotonic() + LONG
    while not os.path.exists(place):
        assert server.poll() is None, "the server of commands ended"
        assert time.monotonic() < end
        time.sleep(0.01)
    return place


# --- the server ----------------------------------------------------------------------------------

APART = ("gitlease.mcp", "gitlease.gateway", "gitlease.board", "gitlease.simulation")


def _import_all() -> None:
    import importlib
    import pkgutil

    import gitlease

    for module in pkgutil.walk_packages(gitlease.__path__, "gitlease."):
        if not module.name.startswith(APART) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _serve(place: str) -> None:
    import gc
    import select

    import gitlease.__main__

    _import_all()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place + ".new")
        listening.listen(64)
        os.rename(place + ".new", place)
        while True:
            ready, _, _ = select.select([listening.fileno(), 0], [], [])
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            if 0 in ready:  # who started it is gone
                return
            asked, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _handle(asked, gitlease.__main__.__file__)
            asked.close()


def _handle(asked: socket.socket, program: str) -> None:
    _, streams, _, _ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("r") as lines:
        request = json.loads(lines.readline())
    number = os.fork()
    if number == 0:
        asked.close()
        _become(request, streams, program)
    asked.sendall(f"{number}\n".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    with contextlib.suppress(OSError):
        asked.sendall(f"{status}\n".encode())
    os._exit(0)


def _become(request: dict[str, object], streams: Sequence[int], program: str) -> None:
    """Be the command, in its place and environment."""
    from gitlease.__main__ import main

    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _open_streams()
        os.chdir(str(request["cwd"]))
        os.environ.clear()
        os.environ.update(request["env"])  # type: ignore[call-overload]
        time.tzset()
        sys.argv = [program, *request["words"]]  # type: ignore[misc]
        _leave(main)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def _leave(main: Callable[[], None]) -> None:
    """Run the program, and end this process as Python would."""
    status: object = 0
    try:
        main()
    except SystemExit as leaving:
        status = leaving.code or 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 1)


def _open_streams() -> None:
    """Have the standard streams be as Python makes them for what they are."""
    about: Any = {"encoding": sys.stdout.encoding, "closefd": False}
    like = sys.stdout.errors
    sys.stdin = open(0, errors=like, **about)  # noqa: SIM115
    sys.stdout = open(1, "w", errors=like, buffering=1 if os.isatty(1) else -1, **about)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, **about)  # noqa: SIM115


if __name__ == "__main__":
    _serve(sys.argv[1])
