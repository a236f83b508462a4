"""``python -m gitlease``, ``gitlease`` and ``git-lease``."""

from __future__ import annotations

import gc
import os
import sys

from gitlease import __version__


def main() -> None:
    """Run the command line under the name it was called by, and exit with its status."""
    called = os.path.basename(sys.argv[0]).removesuffix(".exe")
    prog = "git lease" if called == "git-lease" else "gitlease"
    if sys.argv[1:] == ["--version"]:  # fast, because scripts call it often
        print(f"gitlease {__version__}")
        return
    # A short process leaves no garbage worth collecting. What may last long enables this again.
    gc.disable()
    _exit_on_signals()
    try:
        status = _status(sys.argv[1:], prog)
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except KeyboardInterrupt:  # before the command began, while its modules are loaded
        status = 130
    import signal

    # The status is decided: a second interrupt must not become another one while Python ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:  # the reader has left: the last flush of Python would change the status
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
    gc.freeze()  # else the interpreter's last collection takes as long as 1.5 starts of Python
    sys.exit(status)


def _exit_on_signals() -> None:
    # SystemExit also stops the git process that this one waits for
    import signal

    def leave(signum: int, _frame: object) -> None:
        raise SystemExit(128 + signum)

    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, leave)


def _status(argv: list[str], prog: str) -> int:
    if argv[:1] == ["hook"]:  # runs with every commit, so without click
        from gitlease.guard.entry import run_hook

        return run_hook(argv[1:])
    if argv[:1] == ["agent"]:  # runs with every tool call, so without click
        from gitlease.agents import handling

        if handling.is_event(argv[1:]):
            return handling.run(argv[1:])
    if argv[:1] == ["server-hook"]:
        from gitlease.server.entry import run_server_hook

        return run_server_hook(argv[1:])
    from gitlease.cli.app import run

    return run(argv, prog=prog)


if __name__ == "__main__":
    main()
