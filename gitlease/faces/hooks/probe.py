"""The answer to `gitlease hooks status`, which has git run hooks to see who is called by them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

STOPS = 1  # so that a script with the lines that are printed ends there


def answer(argv: Sequence[str]) -> int | None:
    """Say on standard error that this hook is called, and give the exit status; None: not asked."""
    try:
        from gitlease.bootstrap_hooks import probe_answer

        said = probe_answer(argv[0] if argv else "", os.path.abspath(sys.argv[0]))
    except Exception:  # the hook itself meets it as well, and tells
        return None
    if not said:
        return None
    if sys.stderr is not None:
        print(said, file=sys.stderr, flush=True)
    return STOPS
