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
    from gitlease.faces.cli.app import run

    status = run(sys.argv[1:], prog=prog)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue  # nobody listens any more
    os._exit(status)


if __name__ == "__main__":
    main()
