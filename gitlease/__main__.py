"""``python -m gitlease``, ``gitlease`` and ``git-lease``."""

from __future__ import annotations

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
    from gitlease.faces.cli.app import run

    sys.exit(run(sys.argv[1:], prog=prog))


if __name__ == "__main__":
    main()
