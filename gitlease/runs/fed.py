"""A command that is fed with a text, and waited for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from gitlease.runs.child import check_executable


def check_fed(words: Sequence[str]) -> None:
    """See that a command could be run. Raises NoCommand or CannotExecute where it could not."""
    check_executable(words[0] if words else "", env=os.environ, cwd=os.getcwd())


def run_fed(words: Sequence[str], text: str) -> int:
    """Run a command with ``text`` as its standard input; its status, 127 where it cannot start.

    A command that does not read it all is no failure.
    """
    try:
        return subprocess.run(words, input=text.encode(), check=False).returncode
    except BrokenPipeError:
        return 0
    except OSError:
        return 127
