"""``python -m gitlease``, ``gitlease`` and ``git-lease``."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and leave with its exit status; usage shows the name it is called by."""
    called = os.path.basename(sys.argv[0]).removesuffix(".exe")
    prog = "git lease" if called == "git-lease" else "gitlease"
    if sys.argv[1:] == ["--version"]:  # asked by scripts and shells all the time
        from gitlease import __version__

        print(f"gitlease {__version__}")
        return
    # A call is short and gives everything back to the system at its end: collecting garbage and
    # taking the imported libraries apart would be a quarter of its time.
    gc.disable()
    _end_orderly()
    try:
        status = _status(sys.argv[1:], prog)
    except SystemExit as told:
        status = int(told.code or 0)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue  # nobody listens any more
    os._exit(status)


def _end_orderly() -> None:
    """Let signals end this process by SystemExit, on which it ends the git that it waits for."""
    import signal

    def leave(signum: int, _frame: object) -> None:
        raise SystemExit(128 + signum)

    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, leave)


def _status(argv: list[str], prog: str) -> int:
    if argv[:1] == ["hook"]:  # of git, with every commit: without click as well
        from gitlease.faces.hooks.entry import run_hook

        return run_hook(argv[1:])
    if argv[:1] == ["agent"]:  # an event of a coding agent: after every tool, so without click
        from gitlease.faces.agents import handling

        if handling.is_event(argv[1:]):
            return handling.run(argv[1:])
    if argv[:1] == ["server-hook"]:  # of a server's git, with every push
        from gitlease.faces.server.entry import run_server_hook

        return run_server_hook(argv[1:])
    from gitlease.faces.cli import import_click

    import_click()
    from gitlease.faces.cli.app import run

    return run(argv, prog=prog)


if __name__ == "__main__":
    main()
